//! Where a history is played: a session of scenario commands, and a transcript that replays it.

use std::sync::Arc;
use std::time::Duration;

use lowtide_format::Store;
use parking_lot::Mutex;

use crate::fault::Faults;
use crate::script::{ScriptError, ScriptOptions, Session};

/// A command that takes longer waits for something that never comes.
const PATIENCE: Duration = Duration::from_secs(30);

/// The commands of a history and what they printed. A handle: it survives a panic of the history.
#[derive(Clone, Debug, Default)]
pub(super) struct Transcript(Arc<Mutex<Vec<Stanza>>>);

#[derive(Clone, Debug)]
struct Stanza {
    command: String,
    printed: Vec<String>,
}

impl Transcript {
    fn begin(&self, command: &str) {
        self.0.lock().push(Stanza { command: command.to_owned(), printed: Vec::new() });
    }

    fn end(&self, printed: &[String]) {
        if let Some(stanza) = self.0.lock().last_mut() {
            stanza.printed = printed.to_vec();
        }
    }

    /// What the last command should have printed instead.
    pub(super) fn correct(&self, expected: Vec<String>) {
        if let Some(stanza) = self.0.lock().last_mut() {
            stanza.printed = expected;
        }
    }

    /// As a scenario script.
    pub(super) fn script(&self) -> String {
        let mut text = String::new();
        let mut open = false;
        for Stanza { command, printed } in self.0.lock().iter() {
            text.push_str(command);
            text.push('\n');
            open = true;
            if !printed.is_empty() {
                text.push_str("----\n");
                text.push_str(&printed.join("\n"));
                text.push_str("\n\n");
                open = false;
            }
        }
        if open {
            text.push('\n');
        }
        text
    }
}

/// A session and its transcript.
pub(super) struct Stage {
    session: Session,
    transcript: Transcript,
}

impl Stage {
    pub(super) fn new(transcript: Transcript) -> Result<Self, ScriptError> {
        Ok(Self { session: Session::new(&ScriptOptions::default())?, transcript })
    }

    /// Runs one command and returns what it prints.
    pub(super) async fn run(&mut self, command: &str) -> Result<Vec<String>, ScriptError> {
        self.transcript.begin(command);
        let printed = match tokio::time::timeout(PATIENCE, self.session.run(command)).await {
            Ok(printed) => printed?,
            Err(_) => vec!["error hangs: the command did not return".to_owned()],
        };
        self.transcript.end(&printed);
        Ok(printed)
    }

    /// The store behind all faults.
    pub(super) fn truth(&self) -> Option<Store> {
        self.session.truth()
    }

    pub(super) fn faults(&self) -> &Faults {
        self.session.faults()
    }

    /// The name of the job that commands go to.
    pub(super) fn current(&self) -> Option<&str> {
        self.session.current_name()
    }

    /// Whether a sweep stands still half-way.
    pub(super) fn sweep_is_paused(&self) -> bool {
        self.session.sweep_is_paused()
    }

    pub(super) fn transcript(&self) -> &Transcript {
        &self.transcript
    }
}
