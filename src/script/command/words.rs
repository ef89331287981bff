//! The words of `job` and `restore`: what a job is started with.

use lowtide_format::CheckpointId;

use super::super::arguments::{Arguments, Misuse, checkpoint_id, choice, number};

/// How the base of a checkpoint is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// Only published checkpoints are bases.
    Confirmed,
    /// A subtask's own acknowledged delta may be one.
    Acknowledged,
}

/// When tombstones are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Antimatter {
    /// Only where the base may hold the key.
    Elide,
    /// One per key removed since the base.
    Always,
}

/// Who deletes what is no longer needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cleanup {
    /// The coordinator.
    Coordinator,
    /// The subtasks, as far as they wrote it themselves.
    Participant,
}

/// Which entries are written again to empty old segments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rewrite {
    /// None.
    Never,
    /// Those of segments older than so many completed checkpoints.
    MaxAge(u32),
    /// As many as keep retained ÷ live at this ratio.
    Space(f64),
    /// As many as keep the number of segments at this bound.
    Segments(u32),
    /// None; small segments are copied together so that they lie in so many objects.
    Objects(u32),
}

/// Where a script keeps its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// In memory.
    Memory,
    /// In a temporary directory.
    File,
}

/// Options of `job` and `restore`; what is left out stays `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct JobWords {
    pub(crate) backend: Option<String>,
    pub(crate) subtasks: Option<u32>,
    pub(crate) key_groups: Option<u32>,
    pub(crate) retain: Option<u32>,
    pub(crate) concurrent: Option<u32>,
    pub(crate) base: Option<Base>,
    pub(crate) antimatter: Option<Antimatter>,
    pub(crate) rewrite: Option<Vec<Rewrite>>,
    pub(crate) rewrite_bytes: Option<u64>,
    pub(crate) cleanup: Option<Cleanup>,
    pub(crate) dir: Option<String>,
    pub(crate) medium: Option<Medium>,
    pub(crate) force: bool,
}

/// The words of `restore` that are not options of a job.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RestoreWords {
    pub(crate) from: String,
    pub(crate) id: Option<CheckpointId>,
    pub(crate) claim: bool,
    pub(crate) fallback: bool,
}

impl RestoreWords {
    pub(super) fn parse(args: &mut Arguments<'_>) -> Result<Self, Misuse> {
        let from = args.option("from")?.ok_or_else(|| Misuse("`from=` is missing".to_owned()))?;
        let (from, id) = match from.rsplit_once('/') {
            Some((job, id)) => (job, Some(checkpoint_id(id)?)),
            None => (from, None),
        };
        let modes = [("claim", true), ("no-claim", false)];
        let said = args.option("claim")?.map(|text| choice("claim", text, &modes)).transpose()?;
        // `claim` and `no-claim` may also stand alone, as the usage text of `restore` shows them.
        let alone = modes.map(|(name, claim)| args.word(name).then_some(claim));
        let said: Vec<bool> = said.into_iter().chain(alone.into_iter().flatten()).collect();
        if said.contains(&true) && said.contains(&false) {
            return Err(Misuse("claim and no-claim contradict each other".to_owned()));
        }
        let fallback = args.word("fallback");
        Ok(Self { from: from.to_owned(), id, claim: said.contains(&true), fallback })
    }
}

impl JobWords {
    pub(super) fn parse(args: &mut Arguments<'_>) -> Result<Self, Misuse> {
        let bases = [("confirmed", Base::Confirmed), ("acknowledged", Base::Acknowledged)];
        let antimatter = [("elide", Antimatter::Elide), ("always", Antimatter::Always)];
        let cleanup = [("coordinator", Cleanup::Coordinator), ("participant", Cleanup::Participant)];
        let media = [("memory", Medium::Memory), ("file", Medium::File)];
        Ok(Self {
            backend: args.option("backend")?.map(str::to_owned),
            subtasks: args.number("subtasks")?,
            key_groups: args.number("key-groups")?,
            retain: args.number("retain")?,
            concurrent: args.number("concurrent")?,
            base: args.option("base")?.map(|text| choice("base", text, &bases)).transpose()?,
            antimatter: args
                .option("antimatter")?
                .map(|text| choice("antimatter", text, &antimatter))
                .transpose()?,
            rewrite: args.option("rewrite")?.map(Rewrite::parse).transpose()?,
            rewrite_bytes: args.number("rewrite-bytes")?,
            cleanup: args.option("cleanup")?.map(|text| choice("cleanup", text, &cleanup)).transpose()?,
            dir: args.option("dir")?.map(str::to_owned),
            medium: args.option("store")?.map(|text| choice("store", text, &media)).transpose()?,
            force: args.word("force"),
        })
    }

    /// What is left out here is taken from `other`; its directory, store and force are not.
    pub(crate) fn or(self, other: &Self) -> Self {
        Self {
            backend: self.backend.or_else(|| other.backend.clone()),
            subtasks: self.subtasks.or(other.subtasks),
            key_groups: self.key_groups.or(other.key_groups),
            retain: self.retain.or(other.retain),
            concurrent: self.concurrent.or(other.concurrent),
            base: self.base.or(other.base),
            antimatter: self.antimatter.or(other.antimatter),
            rewrite: self.rewrite.or_else(|| other.rewrite.clone()),
            rewrite_bytes: self.rewrite_bytes.or(other.rewrite_bytes),
            cleanup: self.cleanup.or(other.cleanup),
            dir: self.dir,
            medium: self.medium,
            force: self.force,
        }
    }
}

impl Rewrite {
    /// Policies separated by commas; `never` adds nothing.
    pub(super) fn parse(text: &str) -> Result<Vec<Self>, Misuse> {
        text.split(',').map(Self::parse_one).collect()
    }

    fn parse_one(text: &str) -> Result<Self, Misuse> {
        let (name, value) = text.split_once(':').unwrap_or((text, ""));
        match name {
            "never" if value.is_empty() => Ok(Self::Never),
            "max-age" => Ok(Self::MaxAge(number("max-age", value)?)),
            "segments" => Ok(Self::Segments(number("segments", value)?)),
            "objects" => Ok(Self::Objects(number("objects", value)?)),
            "space" => {
                let ratio: f64 = number("space", value)?;
                if !(ratio.is_finite() && ratio >= 1.0) {
                    return Err(Misuse(format!("space `{value}` is not a ratio of at least 1")));
                }
                Ok(Self::Space(ratio))
            }
            _ => Err(Misuse(format!(
                "rewrite `{text}` is not one of never, max-age:K, space:F, segments:S, objects:N"
            ))),
        }
    }
}
