//! Runs script lines on the model: an interpreter of its own for the part of the language that the
//! model knows.

use std::collections::BTreeMap;

use super::model::{Id, Kind, Model, Options, Place};

/// The jobs of a script, each with a model of its own.
#[derive(Default)]
pub(super) struct Interpreter {
    jobs: BTreeMap<String, Model>,
    /// The job that owns each directory; directories are named by the job that began them.
    owners: BTreeMap<String, String>,
    current: String,
    /// Some job was left behind with checkpoints pending, or with what was acknowledged and never published: it is still there.
    untidy: bool,
    /// Subtasks of the current job may not have heard that a checkpoint was aborted.
    muted: bool,
}

fn option<'a>(words: &mut Vec<&'a str>, name: &str) -> Option<&'a str> {
    let at = words.iter().position(|word| word.split_once('=').is_some_and(|(n, _)| n == name))?;
    words.remove(at).split_once('=').map(|(_, value)| value)
}

fn id(word: &str) -> Id {
    word.strip_prefix("chk-").unwrap().parse().unwrap()
}

fn kind(words: &[&str]) -> Kind {
    match words.first() {
        None => Kind::Checkpoint,
        Some(&"full") => Kind::Full,
        Some(&"savepoint") => Kind::Savepoint,
        Some(other) => panic!("kind {other}"),
    }
}

impl Interpreter {
    pub(super) fn model(&mut self) -> &mut Model {
        self.jobs.get_mut(&self.current).unwrap()
    }

    /// What the line prints.
    pub(super) fn run(&mut self, line: &str) -> Vec<String> {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        let command = words.remove(0);
        match command {
            "job" => {
                self.start(words.remove(0).to_owned(), Model::new(options(&mut words)));
                Vec::new()
            }
            "restore" => self.restore(&mut words),
            "put" | "update" | "del" | "clear" | "get" | "dump" | "len" | "fill" => {
                self.data(command, &mut words)
            }
            "checkpoint" => self.checkpoint(kind(&words)),
            "trigger" => {
                let printed = self.model().trigger(kind(&words));
                vec![printed.unwrap_or("error invalid-argument: *".to_owned())]
            }
            "write" | "ack" => self.step(command, &mut words),
            "decline" | "abort" | "expire" => vec![self.model().abort(id(words[0]))],
            "stat" => vec![self.model().stat(id(words[0]))],
            "chain" => vec![self.model().chain(id(words[0]))],
            "verify" => vec![self.model().verify(words.first().map(|word| id(word)))],
            "failover" => self.model().failover(),
            "use" => {
                words[0].clone_into(&mut self.current);
                Vec::new()
            }
            "mute" => {
                self.muted = true;
                Vec::new()
            }
            "crash" | "unmute" => Vec::new(),
            "objects" => {
                let owners = || self.owners.values().map(|owner| &self.jobs[owner]);
                // Which segments share an object is not modelled.
                let packs = owners().any(|model| model.options.packs);
                let referenced = owners().map(Model::referenced).sum::<usize>().to_string();
                let referenced = if packs { "*" } else { &referenced };
                let orphaned = if self.untidy { "*" } else { "0" };
                vec![format!("referenced={referenced} orphaned={orphaned} missing=0 meta=*")]
            }
            other => panic!("the model does not know {other}"),
        }
    }

    /// A job under a name and, until another one claims it, in a directory of that name.
    fn start(&mut self, name: String, model: Model) {
        self.owners.insert(name.clone(), name.clone());
        self.jobs.insert(name.clone(), model);
        self.current = name;
    }

    fn restore(&mut self, words: &mut Vec<&str>) -> Vec<String> {
        let name = words.remove(0).to_owned();
        let from = option(words, "from").unwrap();
        let claim = option(words, "claim") == Some("claim");
        let subtasks = option(words, "subtasks").map(|text| text.parse().unwrap());
        let (source, wanted) = match from.split_once('/') {
            Some((source, wanted)) => (source, Some(id(wanted))),
            None => (from, None),
        };
        let mut model = self.jobs[source].clone();
        let pending = !model.pending_ids().is_empty() || model.holds_unpublished();
        let newest = model.directory.retained.keys().next_back().copied();
        let Some(wanted) = wanted.or(newest) else {
            return vec!["error not-found: *".to_owned()];
        };
        let subtasks = subtasks.unwrap_or(model.options.subtasks);
        let entries = model.restore(wanted, claim, subtasks);
        self.untidy |= pending || std::mem::take(&mut self.muted);
        if claim {
            let directory = self.owners.values_mut().find(|owner| *owner == source);
            name.clone_into(directory.unwrap());
            self.jobs.insert(name.clone(), model);
            self.current = name;
        } else {
            self.start(name, model);
        }
        vec![format!("restored chk-{wanted} entries={entries}")]
    }

    fn data(&mut self, command: &str, words: &mut Vec<&str>) -> Vec<String> {
        let mut state = "s";
        let mut namespace = None;
        while let Some((name, value)) = words.first().and_then(|word| word.split_once('=')) {
            match name {
                "state" => state = value,
                "ns" => namespace = Some(value),
                _ => break,
            }
            words.remove(0);
        }
        let at = |key: &str| -> Place {
            (state.to_owned(), namespace.unwrap_or_default().to_owned(), key.to_owned())
        };
        let model = self.jobs.get_mut(&self.current).unwrap();
        let mut printed = Vec::new();
        match command {
            "put" => words.iter().filter_map(|word| word.split_once('=')).for_each(|(key, value)| {
                model.put(at(key), value);
            }),
            "update" => words.iter().filter_map(|word| word.split_once('=')).for_each(|(key, more)| {
                model.update(&at(key), more);
            }),
            "del" => words.iter().for_each(|key| model.delete(&at(key))),
            "clear" => model.clear(&(state.to_owned(), namespace.map(str::to_owned))),
            "fill" => {
                let (from, to) = words[1].split_once("..").unwrap();
                for number in from.parse::<u64>().unwrap()..to.parse().unwrap() {
                    model.put(at(&format!("{}{number:04}", words[0])), words[2]);
                }
            }
            "get" => {
                for key in words.iter() {
                    printed.push(match model.get(&at(key)) {
                        Some(value) => format!("{key}={value}"),
                        None => format!("{key} absent"),
                    });
                }
            }
            "dump" => {
                let entries = model.entries();
                let wanted = namespace.unwrap_or_default();
                let own = entries.iter().filter(|(at, _)| at.0 == state && at.1 == wanted);
                let line: Vec<String> = own.map(|(at, value)| format!("{}={value}", at.2)).collect();
                printed.push(if line.is_empty() { "(empty)".to_owned() } else { line.join(" ") });
            }
            _ => {
                let count = model.entries().keys().filter(|at| at.0 == state).count();
                printed.push(count.to_string());
            }
        }
        printed
    }

    fn checkpoint(&mut self, kind: Kind) -> Vec<String> {
        let model = self.model();
        let Some(triggered) = model.trigger(kind) else {
            return vec!["error invalid-argument: *".to_owned()];
        };
        let id = id(triggered.split_whitespace().next().unwrap());
        let mut printed = Vec::new();
        let subtasks = model.subtasks();
        for subtask in 0..subtasks {
            printed.extend(model.write(id, subtask));
        }
        for subtask in 0..subtasks {
            printed.extend(model.acknowledge(id, subtask));
        }
        printed.push(model.stat(id));
        printed
    }

    fn step(&mut self, command: &str, words: &mut Vec<&str>) -> Vec<String> {
        let subtask = option(words, "subtask").map(|text| text.parse::<usize>().unwrap());
        let id = id(words[0]);
        let model = self.model();
        if model.has_written(id, 0).is_none() {
            return vec![format!("chk-{id} ignored")];
        }
        let all: Vec<usize> = match subtask {
            Some(subtask) => vec![subtask],
            None => (0..model.subtasks()).collect(),
        };
        let mut printed = Vec::new();
        for one in all {
            printed.extend(match command {
                "write" => model.write(id, one),
                _ => model.acknowledge(id, one),
            });
        }
        printed
    }
}

fn options(words: &mut Vec<&str>) -> Options {
    let number = |words: &mut Vec<&str>, name, default: usize| -> usize {
        option(words, name).map_or(default, |text| text.parse().unwrap())
    };
    let policies = option(words, "rewrite").unwrap_or_default();
    Options {
        subtasks: number(words, "subtasks", 1),
        key_groups: u16::try_from(number(words, "key-groups", 8)).unwrap(),
        retain: number(words, "retain", 1),
        concurrent: number(words, "concurrent", 8),
        always: option(words, "antimatter") == Some("always"),
        acknowledged: option(words, "base") == Some("acknowledged"),
        max_age: policies
            .split(',')
            .find_map(|text| text.strip_prefix("max-age:"))
            .map(|age| age.parse().unwrap()),
        packs: policies.contains("objects:"),
    }
}
