//! The commands of the script language and how a line is read as one.
//!
//! Owns: the grammar of one line. Does not own: what a command does (`session`).

mod words;

use std::ops::Range;

use lowtide_format::CheckpointId;

use super::arguments::{self, Arguments, Misuse, choice, number, pair};
use crate::fault::{FaultClass, FaultMode, FaultOperation, FaultPlan};

pub use words::Medium;
pub(crate) use words::{Antimatter, Base, Cleanup, JobWords, RestoreWords, Rewrite};

/// Where data commands work: a named state and a namespace of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Name of the state.
    pub(crate) state: String,
    /// The namespace; `None` where the command left it out.
    pub(crate) namespace: Option<String>,
}

/// What a trigger asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The ordinary incremental checkpoint.
    Checkpoint,
    /// A checkpoint without a base.
    Full,
    /// A self-contained checkpoint that the user owns.
    Savepoint,
}

/// Which bytes `corrupt` and `lose` hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Victim {
    /// The n-th data object of the checkpoint, sorted by name, from 0.
    Object(usize),
    /// The checkpoint's manifest.
    Manifest,
}

/// One command of a script.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Command {
    Job {
        name: String,
        words: JobWords,
    },
    Restore {
        name: String,
        from: RestoreWords,
        words: JobWords,
    },
    Use(String),
    Crash,
    Failover,
    Hold(String),
    Release(String),
    Stop,
    Put {
        place: Place,
        entries: Vec<(String, String)>,
    },
    Update {
        place: Place,
        entries: Vec<(String, String)>,
    },
    Delete {
        place: Place,
        keys: Vec<String>,
    },
    Clear(Place),
    Get {
        place: Place,
        keys: Vec<String>,
    },
    Dump(Place),
    Len {
        state: String,
    },
    /// Merges the tables of a state; of use on RocksDB.
    Compact {
        state: String,
    },
    Fill {
        place: Place,
        prefix: String,
        numbers: Range<u64>,
        value: String,
    },
    Checkpoint(Kind),
    Trigger(Kind),
    Write {
        id: CheckpointId,
        subtask: Option<u32>,
    },
    Acknowledge {
        id: CheckpointId,
        subtask: Option<u32>,
    },
    /// What a subtask of another job has to say reaches the current job's coordinator.
    Misdeliver {
        id: CheckpointId,
        subtask: u32,
        from: String,
    },
    Decline {
        id: CheckpointId,
        subtask: u32,
    },
    Abort(CheckpointId),
    Expire(CheckpointId),
    Stat(CheckpointId),
    Chain(CheckpointId),
    Savepoints,
    SavepointDelete(CheckpointId),
    Mute,
    Unmute,
    Objects,
    Fault(FaultPlan),
    /// Faults that were planned and have not come are forgotten.
    FaultNone,
    Corrupt {
        id: Option<CheckpointId>,
        victim: Victim,
        at: Option<u64>,
    },
    Lose {
        id: CheckpointId,
        victim: Victim,
    },
    Verify(Option<CheckpointId>),
    Sweep {
        age_millis: Option<u64>,
        dry_run: bool,
    },
    /// A sweep from outside that stands still at a call to the store, until it is resumed.
    SweepOutside {
        age_millis: Option<u64>,
        pause: FaultPlan,
    },
    SweepResume,
    Clock {
        millis: u64,
    },
}

impl Command {
    /// Reads one command line.
    ///
    /// # Errors
    ///
    /// An unknown command, a missing or unknown word, a value out of range.
    pub(crate) fn parse(line: &str) -> Result<Self, Misuse> {
        let (name, mut args) = Arguments::split(line);
        let command = match Self::of_jobs(name, &mut args)? {
            Some(command) => command,
            None => match Self::of_data(name, &mut args)? {
                Some(command) => command,
                None => match Self::of_checkpoints(name, &mut args)? {
                    Some(command) => command,
                    None => Self::of_store(name, &mut args)?,
                },
            },
        };
        args.end()?;
        Ok(command)
    }

    fn of_jobs(name: &str, args: &mut Arguments<'_>) -> Result<Option<Self>, Misuse> {
        Ok(Some(match name {
            "job" => {
                let name = args.next("the job's name")?.to_owned();
                Self::Job { name, words: JobWords::parse(args)? }
            }
            "restore" => {
                let name = args.next("the job's name")?.to_owned();
                let from = RestoreWords::parse(args)?;
                Self::Restore { name, from, words: JobWords::parse(args)? }
            }
            "use" => Self::Use(args.next("the job's name")?.to_owned()),
            "crash" => Self::Crash,
            "failover" => Self::Failover,
            "hold" => Self::Hold(args.next("the job's name")?.to_owned()),
            "release" => Self::Release(args.next("the job's name")?.to_owned()),
            "stop" => Self::Stop,
            _ => return Ok(None),
        }))
    }

    fn of_data(name: &str, args: &mut Arguments<'_>) -> Result<Option<Self>, Misuse> {
        let known = ["put", "update", "del", "clear", "get", "dump", "len", "fill", "compact"];
        if !known.contains(&name) {
            return Ok(None);
        }
        let place = Place::parse(args)?;
        Ok(Some(match name {
            "put" => Self::Put { place, entries: pairs(args)? },
            "update" => Self::Update { place, entries: pairs(args)? },
            "del" => Self::Delete { place, keys: keys(args)? },
            "clear" => Self::Clear(place),
            "get" => Self::Get { place, keys: keys(args)? },
            "dump" => Self::Dump(place),
            "len" | "compact" if place.namespace.is_some() => {
                return Err(Misuse(format!("`{name}` is about all namespaces: leave `ns=` out")));
            }
            "len" => Self::Len { state: place.state },
            "compact" => Self::Compact { state: place.state },
            _ => Self::Fill {
                place,
                prefix: args.next("the prefix of the keys")?.to_owned(),
                numbers: arguments::range(args.next("the range of numbers")?)?,
                value: args.next("the value")?.to_owned(),
            },
        }))
    }

    fn of_checkpoints(name: &str, args: &mut Arguments<'_>) -> Result<Option<Self>, Misuse> {
        Ok(Some(match name {
            "checkpoint" => Self::Checkpoint(Kind::parse(args)),
            "trigger" => Self::Trigger(Kind::parse(args)),
            "write" => Self::Write { id: args.id()?, subtask: args.number("subtask")? },
            "ack" => {
                let (id, subtask) = (args.id()?, args.number("subtask")?);
                match args.option("from")? {
                    None => Self::Acknowledge { id, subtask },
                    Some(from) => {
                        Self::Misdeliver { id, subtask: subtask.unwrap_or(0), from: from.to_owned() }
                    }
                }
            }
            "decline" => {
                let id = args.id()?;
                let subtask = args.number("subtask")?;
                let subtask = subtask.ok_or_else(|| Misuse("`subtask=` is missing".to_owned()))?;
                Self::Decline { id, subtask }
            }
            "abort" => Self::Abort(args.id()?),
            "expire" => Self::Expire(args.id()?),
            "stat" => Self::Stat(args.id()?),
            "chain" => Self::Chain(args.id()?),
            "savepoints" => Self::Savepoints,
            "savepoint-delete" => Self::SavepointDelete(args.id()?),
            "mute" => Self::Mute,
            "unmute" => Self::Unmute,
            _ => return Ok(None),
        }))
    }

    fn of_store(name: &str, args: &mut Arguments<'_>) -> Result<Self, Misuse> {
        Ok(match name {
            "objects" => Self::Objects,
            "fault" if args.flag("none") => Self::FaultNone,
            "fault" => Self::Fault(fault(args)?),
            "corrupt" => {
                let id = args.optional_id()?;
                let (victim, at) = (Victim::parse(args)?, args.number("at")?);
                if victim == Victim::Manifest && id.is_none() {
                    return Err(Misuse("name the checkpoint of the manifest".to_owned()));
                }
                Self::Corrupt { id, victim, at }
            }
            "lose" => Self::Lose { id: args.id()?, victim: Victim::parse(args)? },
            "verify" => Self::Verify(args.optional_id()?),
            "sweep" if args.flag("resume") => Self::SweepResume,
            "sweep" => {
                let age_millis = args.number("age")?;
                match args.option("pause")? {
                    None => Self::Sweep { age_millis, dry_run: args.word("dry-run") },
                    Some(text) => Self::SweepOutside { age_millis, pause: pause(text)? },
                }
            }
            "clock" => Self::Clock { millis: number("time", args.next("the time in ms")?)? },
            _ => return Err(Misuse(format!("there is no command `{name}`"))),
        })
    }
}

impl Place {
    fn parse(args: &mut Arguments<'_>) -> Result<Self, Misuse> {
        let mut place = Self { state: "s".to_owned(), namespace: None };
        for (name, value) in args.leading(&["state", "ns"]) {
            if value.is_empty() {
                return Err(Misuse(format!("`{name}=` names nothing")));
            }
            match name {
                "state" => value.clone_into(&mut place.state),
                _ => place.namespace = Some(value.to_owned()),
            }
        }
        Ok(place)
    }
}

impl Kind {
    fn parse(args: &mut Arguments<'_>) -> Self {
        if args.flag("savepoint") {
            Self::Savepoint
        } else if args.flag("full") {
            Self::Full
        } else {
            Self::Checkpoint
        }
    }
}

impl Victim {
    fn parse(args: &mut Arguments<'_>) -> Result<Self, Misuse> {
        if args.word("manifest") {
            return Ok(Self::Manifest);
        }
        Ok(Self::Object(args.number("object")?.unwrap_or(0)))
    }
}

fn pairs(args: &mut Arguments<'_>) -> Result<Vec<(String, String)>, Misuse> {
    args.rest("an entry of the form key=value")?.into_iter().map(pair).collect()
}

fn keys(args: &mut Arguments<'_>) -> Result<Vec<String>, Misuse> {
    Ok(args.rest("a key")?.into_iter().map(str::to_owned).collect())
}

/// Operations of the store that faults are planned for.
const OPERATIONS: [(&str, FaultOperation); 5] = [
    ("put", FaultOperation::Put),
    ("get", FaultOperation::Get),
    ("delete", FaultOperation::Delete),
    ("list", FaultOperation::List),
    ("multipart", FaultOperation::Multipart),
];

/// `list:3`: the third listing from now.
fn pause(text: &str) -> Result<FaultPlan, Misuse> {
    let (operation, nth) = text.split_once(':').unwrap_or((text, "1"));
    let plan = FaultPlan::first(choice("operation", operation, &OPERATIONS)?, FaultMode::Pause);
    Ok(FaultPlan { nth: number("pause", nth)?, ..plan })
}

fn fault(args: &mut Arguments<'_>) -> Result<FaultPlan, Misuse> {
    let modes = [
        ("before", FaultMode::Before),
        ("after", FaultMode::After),
        ("cut", FaultMode::Cut),
        ("hang", FaultMode::Hang),
    ];
    let classes = [("data", FaultClass::Data), ("publish", FaultClass::Publish), ("any", FaultClass::Any)];
    let operation = choice("operation", args.next("the operation")?, &OPERATIONS)?;
    let mode = args.option("mode")?.ok_or_else(|| Misuse("`mode=` is missing".to_owned()))?;
    let class = args.option("object")?.unwrap_or("data");
    let plan = FaultPlan {
        operation,
        mode: choice("mode", mode, &modes)?,
        class: choice("object", class, &classes)?,
        nth: args.number("nth")?.unwrap_or(1),
        times: args.number("times")?.unwrap_or(1),
    };
    if plan.nth == 0 {
        return Err(Misuse("`nth=` counts from 1".to_owned()));
    }
    Ok(plan)
}

#[cfg(test)]
mod tests;
