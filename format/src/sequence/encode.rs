//! Writing a member of the sequence.

use super::{PublishedRef, RestoredFrom, SequenceMember, SequenceStep};
use crate::compression::Compression;
use crate::cursor::{put_bytes, put_flag, put_varint};
use crate::envelope::Envelope;
use crate::error::FormatError;
use crate::section::{REQUIRED, put_section};
use crate::version::MAGIC_SEQUENCE;

pub(super) const ENVELOPE: Envelope = Envelope { part: "sequence member", magic: MAGIC_SEQUENCE };
pub(super) const HEAD: u8 = 1 | REQUIRED;
pub(super) const CHECKPOINTS: u8 = 2 | REQUIRED;
pub(super) const SAVEPOINTS: u8 = 3 | REQUIRED;
pub(super) const TRASH: u8 = 4 | REQUIRED;
pub(super) const RESTORED_FROM: u8 = 5 | REQUIRED;

/// The longest location of a restore in bytes.
pub(super) const LOCATION_BYTES_MAX: usize = 4096;

impl SequenceMember {
    /// The member as an object.
    ///
    /// # Errors
    ///
    /// [`FormatError::Invalid`] if an invariant does not hold, [`FormatError::Unwritable`] if a location is too long.
    pub fn encode(&self, compression: Compression) -> Result<Vec<u8>, FormatError> {
        self.check_invariants()?;
        let Self {
            number,
            generation,
            token,
            created_millis,
            step,
            checkpoints,
            savepoints,
            sweep_boundary_millis,
            next_checkpoint,
            restored_from,
            trash,
        } = self;
        let (mut body, mut section) = (Vec::new(), Vec::new());
        put_varint(&mut section, *number);
        put_varint(&mut section, generation.0);
        section.extend_from_slice(&token.get().to_le_bytes());
        put_varint(&mut section, *created_millis);
        let (tag, argument) = tag_of(*step);
        section.push(tag);
        put_varint(&mut section, argument);
        put_varint(&mut section, *sweep_boundary_millis);
        put_varint(&mut section, next_checkpoint.get());
        put_section(&mut body, HEAD, &section);
        for (tag, list) in [(CHECKPOINTS, checkpoints), (SAVEPOINTS, savepoints)] {
            section.clear();
            put_varint(&mut section, list.len() as u64);
            list.iter().for_each(|published| put_published(&mut section, published));
            put_section(&mut body, tag, &section);
        }
        section.clear();
        put_varint(&mut section, trash.len() as u64);
        trash.iter().for_each(|name| put_bytes(&mut section, name.as_str().as_bytes()));
        put_section(&mut body, TRASH, &section);
        if let Some(RestoredFrom { location, checkpoint, claimed }) = restored_from {
            if location.len() > LOCATION_BYTES_MAX {
                let problem = "the location of a restore is longer than 4,096 bytes";
                return Err(FormatError::Unwritable { part: "sequence member", problem });
            }
            section.clear();
            put_bytes(&mut section, location.as_bytes());
            put_varint(&mut section, checkpoint.get());
            put_flag(&mut section, *claimed);
            put_section(&mut body, RESTORED_FROM, &section);
        }
        ENVELOPE.seal(&body, compression)
    }
}

/// The number of a step on disk, and its argument. Do not renumber.
fn tag_of(step: SequenceStep) -> (u8, u64) {
    match step {
        SequenceStep::TakeOver => (1, 0),
        SequenceStep::Publish { checkpoint } => (2, checkpoint.get()),
        SequenceStep::Retention => (3, 0),
        SequenceStep::Claim { checkpoint } => (4, checkpoint.get()),
        SequenceStep::Abandon { checkpoint } => (5, checkpoint.get()),
        SequenceStep::SweepBoundary { before_millis } => (6, before_millis),
        SequenceStep::DeleteSavepoint { checkpoint } => (7, checkpoint.get()),
        SequenceStep::Stop => (8, 0),
    }
}

fn put_published(out: &mut Vec<u8>, published: &PublishedRef) {
    let PublishedRef { checkpoint, generation, kind, manifest, length, checksum, unclaimed, owned } =
        published;
    put_varint(out, checkpoint.get());
    put_varint(out, generation.0);
    out.push(*kind as u8);
    put_bytes(out, manifest.as_str().as_bytes());
    put_varint(out, *length);
    out.extend_from_slice(&checksum.to_le_bytes());
    put_flag(out, *unclaimed);
    put_flag(out, *owned);
}
