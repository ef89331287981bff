//! Expected against actual output.

use std::fmt;

use super::glob::fits;
use super::syntax::{SEPARATOR, Stanza};

/// A stanza that printed something else than it should.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mismatch {
    /// Name of the script's file.
    pub file: String,
    /// Number of the line where the two part, or of the stanza's last line if output is missing.
    pub line: usize,
    /// The stanza's commands.
    pub commands: Vec<String>,
    /// What it should have printed.
    pub expected: Vec<String>,
    /// What it printed.
    pub actual: Vec<String>,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}:{}: the output differs", self.file, self.line)?;
        for command in &self.commands {
            writeln!(f, "    {command}")?;
        }
        let part = |f: &mut fmt::Formatter<'_>, name: &str, lines: &[String], mark: char| {
            writeln!(f, "  {name}:")?;
            if lines.is_empty() {
                writeln!(f, "    (nothing)")?;
            }
            lines.iter().try_for_each(|line| writeln!(f, "  {mark} {line}"))
        };
        part(f, "expected", &self.expected, '-')?;
        part(f, "actual", &self.actual, '+')
    }
}

/// What one run of a script printed.
#[derive(Clone, Debug)]
pub struct ScriptRun {
    mismatches: Vec<Mismatch>,
    rewritten: String,
}

impl ScriptRun {
    /// Compares the outputs of all stanzas with what they should be.
    pub(crate) fn new(file: &str, text: &str, stanzas: &[Stanza], outputs: Vec<Vec<String>>) -> Self {
        let mismatches = stanzas
            .iter()
            .zip(&outputs)
            .filter_map(|(stanza, output)| mismatch(file, stanza, output))
            .collect();
        Self { mismatches, rewritten: rewrite(text, stanzas, &outputs) }
    }

    /// Where the output was not as expected, in the order of the file.
    #[must_use]
    pub fn mismatches(&self) -> &[Mismatch] {
        &self.mismatches
    }

    /// The text of the script with the actual output in place of the expected one. Lines that fit, with
    /// their wildcards, stay as they are; so do comments, except those within replaced output.
    #[must_use]
    pub fn rewritten(&self) -> &str {
        &self.rewritten
    }
}

fn mismatch(file: &str, stanza: &Stanza, output: &[String]) -> Option<Mismatch> {
    let parted = stanza.expected.iter().zip(output).find(|(line, actual)| !fits(&line.text, actual));
    let line = match parted {
        Some((line, _)) => line.number,
        None if stanza.expected.len() == output.len() => return None,
        None => stanza.expected.get(output.len()).map_or(stanza.last, |line| line.number),
    };
    Some(Mismatch {
        file: file.to_owned(),
        line,
        commands: stanza.commands.iter().map(|line| line.text.clone()).collect(),
        expected: stanza.expected.iter().map(|line| line.text.clone()).collect(),
        actual: output.to_vec(),
    })
}

fn rewrite(text: &str, stanzas: &[Stanza], outputs: &[Vec<String>]) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut source = text.lines().enumerate().map(|(index, line)| (index + 1, line)).peekable();
    for (stanza, output) in stanzas.iter().zip(outputs) {
        let end_of_commands = stanza.commands.last().map_or(0, |line| line.number);
        while let Some((_, line)) = source.next_if(|(number, _)| *number <= end_of_commands) {
            lines.push(line.to_owned());
        }
        let same = mismatch("", stanza, output).is_none();
        while let Some((_, line)) = source.next_if(|(number, _)| *number <= stanza.last) {
            if same {
                lines.push(line.to_owned());
            }
        }
        if !same && !output.is_empty() {
            lines.push(SEPARATOR.to_owned());
            for (index, actual) in output.iter().enumerate() {
                let expected = stanza.expected.get(index).map(|line| &line.text);
                let kept = expected.filter(|expected| fits(expected, actual));
                lines.push(kept.unwrap_or(actual).clone());
            }
        }
    }
    lines.extend(source.map(|(_, line)| line.to_owned()));
    lines.push(String::new());
    lines.join("\n")
}

#[cfg(test)]
mod tests;
