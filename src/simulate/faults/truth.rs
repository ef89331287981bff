//! What a directory's sequence says, read behind all faults and asking nobody.

use std::collections::BTreeSet;

use lowtide_format::{
    DecodeLimits, ObjectClass, ObjectName, ObjectPath, PublishedRef, SequenceMember, Store,
};

use crate::error::Result;

/// The newest member of a sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Truth {
    pub(super) generation: u64,
    pub(super) own: BTreeSet<u64>,
    pub(super) foreign: BTreeSet<u64>,
    pub(super) savepoints: BTreeSet<u64>,
    /// The smallest id that may be triggered next.
    pub(super) next_id: u64,
}

impl Truth {
    /// Reads the sequence of `directory` below `root`; empty if there is none.
    pub(super) async fn read(root: &Store, directory: &str) -> Result<Self> {
        let store = root.sub(&ObjectName::new(directory)?);
        let listed = store.list(ObjectClass::Sequence).await?;
        let numbers = listed.iter().filter_map(|object| match ObjectPath::parse(&object.path) {
            Some(ObjectPath::Sequence { number }) => Some(number),
            _ => None,
        });
        let Some(number) = numbers.max() else { return Ok(Self::default()) };
        let bytes = store.get(&ObjectPath::Sequence { number }.name(), DecodeLimits::default()).await?;
        Ok(Self::of(&SequenceMember::decode(&bytes, number, DecodeLimits::default())?))
    }

    fn of(member: &SequenceMember) -> Self {
        let ids = |references: &[PublishedRef], owned: Option<bool>| {
            let wanted = references.iter().filter(|found| owned.is_none_or(|owned| found.owned == owned));
            wanted.map(|found| found.checkpoint.get()).collect()
        };
        Self {
            generation: member.generation.0,
            own: ids(&member.checkpoints, Some(true)),
            foreign: ids(&member.checkpoints, Some(false)),
            savepoints: ids(&member.savepoints, None),
            next_id: member.next_checkpoint.get(),
        }
    }
}
