//! Reading a member of the sequence.

use super::encode::{CHECKPOINTS, ENVELOPE, HEAD, LOCATION_BYTES_MAX, RESTORED_FROM, SAVEPOINTS, TRASH};
use super::{PublishedRef, RestoredFrom, SequenceMember, SequenceStep};
use crate::codec::DecodeLimits;
use crate::cursor::Cursor;
use crate::error::FormatError;
use crate::ids::{CheckpointId, Generation, UploadId};
use crate::manifest::CheckpointKind;
use crate::object_name::ObjectName;
use crate::section::Sections;

impl SequenceMember {
    /// The member in `object`, which was found under the name of `number`.
    ///
    /// # Errors
    ///
    /// Any [`FormatError`] for bytes that are not that member.
    pub fn decode(object: &[u8], number: u64, limits: DecodeLimits) -> Result<Self, FormatError> {
        let body = ENVELOPE.open(object, limits)?;
        let known = [HEAD, CHECKPOINTS, SAVEPOINTS, TRASH, RESTORED_FROM];
        let sections = Sections::split(ENVELOPE.part, &body, &known)?;
        let mut member = take_head(sections.need(HEAD)?)?;
        if member.number != number {
            return Err(FormatError::Invalid {
                part: ENVELOPE.part,
                problem: "another member lies under its name",
            });
        }
        member.checkpoints = take_list(sections.need(CHECKPOINTS)?, limits)?;
        member.savepoints = take_list(sections.need(SAVEPOINTS)?, limits)?;
        let mut cursor = sections.need(TRASH)?;
        for _ in 0..cursor.count(2, size_of::<ObjectName>(), limits)? {
            member.trash.push(take_object(&mut cursor)?);
        }
        cursor.finish()?;
        member.restored_from = sections.get(RESTORED_FROM).map(take_restored_from).transpose()?;
        member.check_invariants()?;
        Ok(member)
    }
}

/// The head alone; the lists are still empty.
fn take_head(mut cursor: Cursor<'_>) -> Result<SequenceMember, FormatError> {
    let number = cursor.varint()?;
    let generation = Generation(cursor.varint()?);
    let token = UploadId::new(cursor.u128()?);
    let token = token.ok_or_else(|| cursor.invalid("its token is not an upload id"))?;
    let created_millis = cursor.varint()?;
    let step = take_step(&mut cursor)?;
    let sweep_boundary_millis = cursor.varint()?;
    let next_checkpoint = cursor.id()?;
    cursor.finish()?;
    Ok(SequenceMember {
        number,
        generation,
        token,
        created_millis,
        step,
        checkpoints: Vec::new(),
        savepoints: Vec::new(),
        sweep_boundary_millis,
        next_checkpoint,
        restored_from: None,
        trash: Vec::new(),
    })
}

fn take_step(cursor: &mut Cursor<'_>) -> Result<SequenceStep, FormatError> {
    let (tag, argument) = (cursor.u8()?, cursor.varint()?);
    let checkpoint = CheckpointId::new(argument);
    let step = match tag {
        1 => Some(SequenceStep::TakeOver),
        2 => checkpoint.map(|checkpoint| SequenceStep::Publish { checkpoint }),
        3 => Some(SequenceStep::Retention),
        4 => checkpoint.map(|checkpoint| SequenceStep::Claim { checkpoint }),
        5 => checkpoint.map(|checkpoint| SequenceStep::Abandon { checkpoint }),
        6 => Some(SequenceStep::SweepBoundary { before_millis: argument }),
        7 => checkpoint.map(|checkpoint| SequenceStep::DeleteSavepoint { checkpoint }),
        8 => Some(SequenceStep::Stop),
        _ => None,
    };
    step.ok_or_else(|| cursor.invalid("its step has no known number"))
}

fn take_list(mut cursor: Cursor<'_>, limits: DecodeLimits) -> Result<Vec<PublishedRef>, FormatError> {
    let mut list = Vec::new();
    for _ in 0..cursor.count(16, size_of::<PublishedRef>(), limits)? {
        let checkpoint = cursor.id()?;
        let generation = Generation(cursor.varint()?);
        let kind = CheckpointKind::from_tag(cursor.u8()?);
        list.push(PublishedRef {
            checkpoint,
            generation,
            kind: kind.ok_or_else(|| cursor.invalid("the kind of a checkpoint has no known number"))?,
            manifest: take_object(&mut cursor)?,
            length: cursor.varint()?,
            checksum: cursor.u64()?,
            unclaimed: cursor.flag()?,
            owned: cursor.flag()?,
        });
    }
    cursor.finish()?;
    Ok(list)
}

fn take_object(cursor: &mut Cursor<'_>) -> Result<ObjectName, FormatError> {
    let text = cursor.text()?;
    ObjectName::new(text).map_err(|_| cursor.invalid("the name of an object breaks the rules of names"))
}

fn take_restored_from(mut cursor: Cursor<'_>) -> Result<RestoredFrom, FormatError> {
    let location = cursor.text()?.to_owned();
    if location.len() > LOCATION_BYTES_MAX {
        return Err(cursor.invalid("the location of a restore is longer than 4,096 bytes"));
    }
    let restored = RestoredFrom { location, checkpoint: cursor.id()?, claimed: cursor.flag()? };
    cursor.finish()?;
    Ok(restored)
}
