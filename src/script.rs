//! Scenario scripts: jobs driven step by step from a text file, and what they print checked.
//!
//! A script is a list of stanzas separated by blank lines: command lines, a line `----`, and the output
//! expected of them. `*` in an expected line stands for any run of characters, `#` starts a comment.
//! Everything a script does goes through the library's public API and the on-disk formats. Runs are
//! the same every time: time stands still until a script moves it, upload ids are counted.
//!
//! Owns: the language, the comparison, what a command prints. Does not own: what happens (`job`,
//! `coordinator`), the faults (`fault`).
//!
//! # Examples
//!
//! ```
//! use lowtide::script::{Script, ScriptOptions};
//!
//! let text = "job a\n\nput k=v\ncheckpoint\n----\nchk-1 complete\n\
//!             chk-1 base=none puts=1 tombstones=0 clears=0 rewritten=0 segments=1\n";
//! let script = Script::parse("example.txt", text)?;
//! # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
//! # runtime.block_on(async {
//! let run = script.run(&ScriptOptions::default()).await?;
//! assert!(run.mismatches().is_empty());
//! # Ok::<(), lowtide::script::ScriptError>(()) })?;
//! # Ok::<(), lowtide::script::ScriptError>(())
//! ```

mod arguments;
mod census;
mod check;
mod command;
mod driven;
mod error;
mod glob;
mod session;
mod syntax;

pub use check::{Mismatch, ScriptRun};
pub use command::Medium;
pub use error::ScriptError;

pub(crate) use session::Session;
use syntax::Stanza;

/// The backends that a script can be run on, as its header and `backend=` name them.
pub const BACKENDS: &[&str] = driven::BACKENDS;

/// How a script is run, beyond what it says itself.
#[derive(Clone, Debug, Default)]
pub struct ScriptOptions {
    /// The backend of jobs that name none; `heap` if none is given.
    pub backend: Option<String>,
    /// Where objects are kept, whatever the script says; left to the script if none.
    pub medium: Option<Medium>,
}

/// A script that has been read and can be run any number of times.
#[derive(Clone, Debug)]
pub struct Script {
    file: String,
    text: String,
    backends: Vec<String>,
    stanzas: Vec<Stanza>,
}

impl Script {
    /// Reads a script; `file` is its name in messages.
    ///
    /// # Errors
    ///
    /// [`ScriptError::Malformed`] with file and line if the text has no form. What single commands say
    /// is judged when they run.
    pub fn parse(file: &str, text: &str) -> Result<Self, ScriptError> {
        // Some editors put a byte order mark before the first line.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let backends = syntax::backends(text).unwrap_or_else(|| vec!["heap".to_owned()]);
        let stanzas = syntax::stanzas(file, text)?;
        Ok(Self { file: file.to_owned(), text: text.to_owned(), backends, stanzas })
    }

    /// The backends that its header asks for; `heap` if it names none.
    #[must_use]
    pub fn backends(&self) -> &[String] {
        &self.backends
    }

    /// Runs it once, in a store of its own that is gone afterwards.
    ///
    /// Cost: what its jobs do; memory for their state and, on [`Medium::Memory`], their objects.
    ///
    /// # Errors
    ///
    /// [`ScriptError::Backend`] for a backend that is not in this build, [`ScriptError::Directory`] if
    /// there is no room for files. A command that fails prints an error and the run goes on.
    pub async fn run(&self, options: &ScriptOptions) -> Result<ScriptRun, ScriptError> {
        let mut session = Session::new(options)?;
        let mut outputs = Vec::with_capacity(self.stanzas.len());
        for stanza in &self.stanzas {
            let mut output = Vec::new();
            for line in &stanza.commands {
                output.extend(session.run(&line.text).await?);
            }
            outputs.push(output);
        }
        Ok(ScriptRun::new(&self.file, &self.text, &self.stanzas, outputs))
    }
}

#[cfg(test)]
mod tests;
