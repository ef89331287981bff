//! Data commands: entries of the current job.

use super::Session;
use crate::error::Result;
use crate::script::command::{Command, Place};
use crate::script::driven::VOID;

impl Place {
    fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or(VOID)
    }
}

impl Session {
    pub(super) fn on_data(&mut self, command: Command) -> Result<()> {
        match command {
            Command::Put { place, entries } => {
                let job = self.running()?;
                for (key, value) in entries {
                    job.put(&place.state, place.namespace(), key, value)?;
                }
            }
            Command::Update { place, entries } => {
                let job = self.running()?;
                for (key, suffix) in entries {
                    job.append(&place.state, place.namespace(), &key, &suffix)?;
                }
            }
            Command::Delete { place, keys } => {
                let job = self.running()?;
                for key in keys {
                    job.remove(&place.state, place.namespace(), &key)?;
                }
            }
            Command::Clear(place) => {
                self.running()?.clear(&place.state, place.namespace.as_deref())?;
            }
            Command::Fill { place, prefix, numbers, value } => {
                let job = self.running()?;
                for number in numbers {
                    let key = format!("{prefix}{number:04}");
                    job.put(&place.state, place.namespace(), key, value.clone())?;
                }
            }
            Command::Get { place, keys } => {
                for key in keys {
                    let found = self.running()?.get(&place.state, place.namespace(), &key)?;
                    self.print(match found {
                        Some(value) => format!("{key}={value}"),
                        None => format!("{key} absent"),
                    });
                }
            }
            Command::Dump(place) => {
                let entries = self.running()?.dump(&place.state, place.namespace())?;
                let entries: Vec<String> =
                    entries.iter().map(|(key, value)| format!("{key}={value}")).collect();
                self.print(if entries.is_empty() { "(empty)".to_owned() } else { entries.join(" ") });
            }
            Command::Len { state } => {
                let len = self.running()?.len(&state)?;
                self.print(len);
            }
            Command::Compact { state } => self.running()?.compact(&state)?,
            _ => {}
        }
        Ok(())
    }
}
