//! The words of one command line: options first, then what they apply to.

use std::collections::VecDeque;
use std::fmt::Display;
use std::ops::Range;
use std::str::FromStr;

use lowtide_format::CheckpointId;

/// What is wrong with a command line; printed as `error invalid-argument: …`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Misuse(pub(crate) String);

/// Words of a command that were not taken yet, in their order.
pub(crate) struct Arguments<'a> {
    words: VecDeque<&'a str>,
}

impl<'a> Arguments<'a> {
    /// Splits a command line into its name and its words.
    pub(crate) fn split(line: &'a str) -> (&'a str, Self) {
        let mut words: VecDeque<&str> = line.split_whitespace().collect();
        let name = words.pop_front().unwrap_or_default();
        (name, Self { words })
    }

    /// Takes the next word, whatever it is.
    pub(crate) fn next(&mut self, what: &str) -> Result<&'a str, Misuse> {
        self.words.pop_front().ok_or_else(|| Misuse(format!("{what} is missing")))
    }

    /// Takes the word if it is the next one.
    pub(crate) fn flag(&mut self, word: &str) -> bool {
        let there = self.words.front() == Some(&word);
        if there {
            self.words.pop_front();
        }
        there
    }

    /// Takes the leading words of the form `name=value` whose name is one of `names`.
    pub(crate) fn leading(&mut self, names: &[&str]) -> Vec<(&'a str, &'a str)> {
        let mut taken = Vec::new();
        while let Some((name, value)) = self.words.front().and_then(|word| word.split_once('=')) {
            if !names.contains(&name) {
                break;
            }
            taken.push((name, value));
            self.words.pop_front();
        }
        taken
    }

    /// Takes `name=value` from anywhere; a name given twice is refused.
    pub(crate) fn option(&mut self, name: &str) -> Result<Option<&'a str>, Misuse> {
        let value_of =
            |word: &&'a str| word.split_once('=').filter(|(found, _)| *found == name).map(|(_, value)| value);
        let mut found = self.words.iter().filter_map(value_of);
        let value = found.next();
        if found.next().is_some() {
            return Err(Misuse(format!("`{name}=` is given twice")));
        }
        drop(found);
        self.words.retain(|word| value_of(word).is_none());
        Ok(value)
    }

    /// Takes `name=NUMBER` from anywhere.
    pub(crate) fn number<N: FromStr>(&mut self, name: &str) -> Result<Option<N>, Misuse> {
        self.option(name)?.map(|text| number(name, text)).transpose()
    }

    /// Takes `word` from anywhere.
    pub(crate) fn word(&mut self, word: &str) -> bool {
        let count = self.words.len();
        self.words.retain(|there| *there != word);
        self.words.len() != count
    }

    /// Takes the next word as a checkpoint id.
    pub(crate) fn id(&mut self) -> Result<CheckpointId, Misuse> {
        checkpoint_id(self.next("the checkpoint, such as chk-3,")?)
    }

    /// Takes the next word as a checkpoint id if it looks like one.
    pub(crate) fn optional_id(&mut self) -> Result<Option<CheckpointId>, Misuse> {
        match self.words.front() {
            Some(word) if word.starts_with("chk-") => self.id().map(Some),
            _ => Ok(None),
        }
    }

    /// Takes all that is left, at least one word.
    pub(crate) fn rest(&mut self, what: &str) -> Result<Vec<&'a str>, Misuse> {
        if self.words.is_empty() {
            return Err(Misuse(format!("{what} is missing")));
        }
        Ok(self.words.drain(..).collect())
    }

    /// Nothing may be left.
    pub(crate) fn end(&self) -> Result<(), Misuse> {
        match self.words.front() {
            None => Ok(()),
            Some(word) => Err(Misuse(format!("`{word}` is not understood here"))),
        }
    }
}

/// Parses `text` as a number called `name`.
pub(crate) fn number<N: FromStr>(name: &str, text: &str) -> Result<N, Misuse> {
    text.parse().map_err(|_| Misuse(format!("{name} `{text}` is not a number in range")))
}

/// Parses `chk-42`.
pub(crate) fn checkpoint_id(text: &str) -> Result<CheckpointId, Misuse> {
    text.parse().map_err(|_| Misuse(format!("`{text}` is not a checkpoint id such as chk-3")))
}

/// Parses one of a few words; `choices` names them for the message.
pub(crate) fn choice<T: Copy>(name: &str, text: &str, choices: &[(&str, T)]) -> Result<T, Misuse> {
    choices.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or_else(|| {
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        Misuse(format!("{name} `{text}` is not one of {}", words.join(", ")))
    })
}

/// Parses `FROM..TO`, half open.
pub(crate) fn range(text: &str) -> Result<Range<u64>, Misuse> {
    let (from, to) =
        text.split_once("..").ok_or_else(|| Misuse(format!("`{text}` is not a range such as 0..10")))?;
    let range = number("range start", from)?..number("range end", to)?;
    if range.start > range.end {
        return Err(backwards(&range));
    }
    Ok(range)
}

fn backwards(range: &Range<impl Display>) -> Misuse {
    Misuse(format!("range {}..{} runs backwards", range.start, range.end))
}

/// Splits `k=v`.
pub(crate) fn pair(word: &str) -> Result<(String, String), Misuse> {
    word.split_once('=')
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .ok_or_else(|| Misuse(format!("`{word}` is not of the form key=value")))
}
