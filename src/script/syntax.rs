//! The outer form of a script file: stanzas, expected output, comments, the header.
//!
//! Owns: which lines belong together, and their numbers. Does not own: what a command means
//! (`command`). A text that has a form at all is accepted; what a line says is judged when it runs,
//! so that a script can expect a refusal.

use super::ScriptError;

/// One line of a script with its number, trimmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// Number in the file, from 1.
    pub(crate) number: usize,
    /// The text without leading and trailing blanks.
    pub(crate) text: String,
}

/// Commands and what they are expected to print, all of them together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stanza {
    /// The command lines, at least one.
    pub(crate) commands: Vec<Line>,
    /// The lines expected after `----`, comments left out; empty without a separator.
    pub(crate) expected: Vec<Line>,
    /// Number of the line `----`, if there is one.
    pub(crate) separator: Option<usize>,
    /// Number of the last line of the stanza.
    pub(crate) last: usize,
}

/// The line between commands and expected output.
pub(crate) const SEPARATOR: &str = "----";

/// Splits `text` into stanzas.
///
/// # Errors
///
/// A separator without a command before it, or a second one in a stanza.
pub(crate) fn stanzas(file: &str, text: &str) -> Result<Vec<Stanza>, ScriptError> {
    let mut all = Vec::new();
    let mut open: Option<Stanza> = None;
    for (index, raw) in text.lines().enumerate() {
        let (number, line) = (index + 1, raw.trim());
        if line.is_empty() {
            all.extend(open.take());
            continue;
        }
        if line.starts_with('#') {
            continue;
        }
        match (&mut open, line == SEPARATOR) {
            (None, true) => return Err(malformed(file, number, "`----` without a command before it")),
            (Some(stanza), true) if stanza.separator.is_some() => {
                return Err(malformed(file, number, "a second `----` in one stanza"));
            }
            (Some(stanza), true) => {
                stanza.separator = Some(number);
                stanza.last = number;
            }
            (Some(stanza), false) => {
                stanza.last = number;
                let line = Line { number, text: line.to_owned() };
                if stanza.separator.is_some() {
                    stanza.expected.push(line);
                } else {
                    stanza.commands.push(line);
                }
            }
            (None, false) => {
                let line = Line { number, text: line.to_owned() };
                open = Some(Stanza {
                    commands: vec![line],
                    expected: Vec::new(),
                    separator: None,
                    last: number,
                });
            }
        }
    }
    all.extend(open);
    Ok(all)
}

/// The backends that the file's header names: `# backends: heap rocksdb`, among the comments and
/// blank lines before the first command. `None` without such a line, or if it names none.
pub(crate) fn backends(text: &str) -> Option<Vec<String>> {
    text.lines()
        .map(str::trim)
        .take_while(|line| line.is_empty() || line.starts_with('#'))
        .find_map(|line| line.trim_start_matches('#').trim_start().strip_prefix("backends:"))
        .map(|names| names.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .filter(|names| !names.is_empty())
}

fn malformed(file: &str, line: usize, problem: &'static str) -> ScriptError {
    ScriptError::Malformed { file: file.to_owned(), line, problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(lines: &[Line]) -> Vec<&str> {
        lines.iter().map(|line| line.text.as_str()).collect()
    }

    #[test]
    fn a_stanza_ends_at_a_blank_line_and_output_starts_after_the_separator() {
        let all =
            stanzas("f", "# top\njob a\n\n  put k=v\n  get k\n  ----\n  # why\n  k=v\n\n\nlen").unwrap();
        assert_eq!(all.len(), 3);
        assert_eq!(texts(&all[0].commands), ["job a"]);
        assert_eq!(all[0].separator, None);
        assert_eq!(texts(&all[1].commands), ["put k=v", "get k"]);
        assert_eq!(texts(&all[1].expected), ["k=v"]);
        assert_eq!((all[1].separator, all[1].last), (Some(6), 8));
        assert_eq!(all[2].commands[0].number, 11);
    }

    #[test]
    fn carriage_returns_do_not_reach_the_commands() {
        let all = stanzas("f", "get k\r\n----\r\nk absent\r\n").unwrap();
        assert_eq!(texts(&all[0].expected), ["k absent"]);
    }

    #[test]
    fn a_separator_without_a_command_is_refused_with_its_line() {
        let error = stanzas("f.txt", "job a\n\n----\nx").unwrap_err();
        assert_eq!(error.to_string(), "f.txt:3: `----` without a command before it");
        let error = stanzas("f.txt", "job a\n----\n----").unwrap_err();
        assert_eq!(error.to_string(), "f.txt:3: a second `----` in one stanza");
    }

    #[test]
    fn the_header_names_backends_only_before_the_first_command() {
        assert_eq!(backends("# x\n# backends: heap rocksdb\njob a").unwrap(), ["heap", "rocksdb"]);
        assert_eq!(backends("job a\n# backends: rocksdb"), None);
        assert_eq!(
            backends("# backends:\njob a"),
            None,
            "a script that is run on nothing passes whatever it says"
        );
    }
}
