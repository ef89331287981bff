//! Reads that give all bytes asked for or an error.
//!
//! A body that is cut is resumed where it ended, of the same object: a store that knows entity tags refuses if it was
//! replaced meanwhile.

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use object_store::{GetOptions, GetResult, GetResultPayload, ObjectStore};
use std::ops::Range;

use super::Store;
use super::error::{BodyError, Operation, ReadError, StoreError, StoreErrorKind};
use crate::codec::DecodeLimits;
use crate::object_name::{FileEntry, ObjectName};

/// A body is resumed this many times at most.
const RESUMES_MAX: u32 = 4;

impl Store {
    /// The whole object, at most `limits.bytes_max` bytes of it: a longer one is refused before its body is read.
    ///
    /// # Errors
    ///
    /// [`StoreErrorKind::NotFound`] only if it is certainly absent. Never short bytes.
    pub async fn get(&self, name: &ObjectName, limits: DecodeLimits) -> Result<Bytes, StoreError> {
        self.read(name, None, limits).await
    }

    /// The bytes `range` of the object.
    ///
    /// # Errors
    ///
    /// As [`Store::get`]; [`StoreErrorKind::Changed`] if the object ends before the range does.
    pub async fn get_range(&self, name: &ObjectName, range: Range<u64>) -> Result<Bytes, StoreError> {
        self.get_range_of(name, range, None).await
    }

    /// The bytes `range` of the object, which should have `object_bytes` bytes in all.
    ///
    /// # Errors
    ///
    /// As [`Store::get_range`]; [`StoreErrorKind::Changed`] as well if the object is longer or shorter than that.
    pub async fn get_range_of(
        &self,
        name: &ObjectName,
        range: Range<u64>,
        object_bytes: Option<u64>,
    ) -> Result<Bytes, StoreError> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let limits = DecodeLimits { bytes_max: range.end - range.start };
        self.read(name, Some(Part { range, object_bytes }), limits).await
    }

    /// The bytes of a file that a manifest lists, with length and checksum verified.
    ///
    /// # Errors
    ///
    /// [`ReadError::Format`] if the bytes are others, [`ReadError::Store`] if they could not be read.
    pub async fn get_file(&self, file: &FileEntry, limits: DecodeLimits) -> Result<Bytes, ReadError> {
        let too_large = |error: crate::FormatError| error.in_object(file.object.as_str());
        limits.check("file", file.length).map_err(too_large)?;
        let Some(end) = file.offset.checked_add(file.length) else {
            let name = file.object.as_str();
            return Err(StoreError::of_body(name, StoreErrorKind::Changed, BodyError::OutOfRange).into());
        };
        let bytes = self.get_range(&file.object, file.offset..end).await?;
        file.check(&bytes)?;
        Ok(bytes)
    }

    /// Whether the object exists, and how long it is.
    ///
    /// # Errors
    ///
    /// Any failure to find out; absence is `None`.
    pub async fn length(&self, name: &ObjectName) -> Result<Option<u64>, StoreError> {
        let options = GetOptions { head: true, ..GetOptions::default() };
        match self.inner.get_opts(&self.path(name.as_str()), options).await {
            Ok(found) => Ok(Some(found.meta.size)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(source) => Err(StoreError::new(Operation::Get, name.as_str(), source)),
        }
    }

    async fn read(
        &self,
        name: &ObjectName,
        part: Option<Part>,
        limits: DecodeLimits,
    ) -> Result<Bytes, StoreError> {
        let failed = |source| StoreError::new(Operation::Get, name.as_str(), source);
        let body = |kind, source| StoreError::of_body(name.as_str(), kind, source);
        let path = self.path(name.as_str());
        let object_bytes = part.as_ref().and_then(|part| part.object_bytes);
        let range = part.map(|part| part.range);
        let mut options = GetOptions { range: range.clone().map(Into::into), ..GetOptions::default() };
        let mut found = match (self.inner.get_opts(&path, options).await, &range) {
            (Ok(found), _) => found,
            (Err(source), Some(wanted)) => return Err(self.refused(name, wanted, source).await),
            (Err(source), None) => return Err(failed(source)),
        };
        let wanted = range.unwrap_or(0..found.meta.size);
        let need = wanted.end - wanted.start;
        if need > limits.bytes_max {
            let (bytes, bytes_max) = (need, limits.bytes_max);
            return Err(body(StoreErrorKind::TooLarge, BodyError::TooLarge { bytes, bytes_max }));
        }
        if wanted.end > found.meta.size || found.range.start != wanted.start {
            let have = found.meta.size.saturating_sub(wanted.start);
            return Err(body(StoreErrorKind::Changed, BodyError::Short { need, have }));
        }
        let tag = found.meta.e_tag.clone();
        let size = found.meta.size;
        if let Some(expected) = object_bytes.filter(|expected| *expected != size) {
            return Err(body(StoreErrorKind::Changed, BodyError::Object { bytes: size, expected }));
        }
        let mut whole = Body::default();
        for resumes in 0.. {
            let cut = take_body(found, &mut whole, need).await;
            let have = whole.length();
            if have == need {
                return Ok(whole.freeze());
            }
            if have > need {
                return Err(body(StoreErrorKind::Changed, BodyError::Long { need }));
            }
            if resumes == RESUMES_MAX {
                return Err(match cut {
                    Some(source) => failed(source),
                    None => body(StoreErrorKind::Transient, BodyError::Short { need, have }),
                });
            }
            let rest = wanted.start + have..wanted.end;
            options = GetOptions { range: Some(rest.into()), if_match: tag.clone(), ..GetOptions::default() };
            found = match self.inner.get_opts(&path, options).await {
                Ok(found) => found,
                Err(source) => return Err(self.refused(name, &wanted, source).await),
            };
            if found.meta.size != size || found.meta.e_tag != tag || found.range.start != wanted.start + have
            {
                return Err(body(StoreErrorKind::Changed, BodyError::Short { need, have }));
            }
        }
        Ok(whole.freeze())
    }

    /// Why a range could not be read. Stores refuse one that begins at or behind the end of its object in words of their own,
    /// which look as if trying again might help.
    async fn refused(
        &self,
        name: &ObjectName,
        wanted: &Range<u64>,
        source: object_store::Error,
    ) -> StoreError {
        let error = StoreError::new(Operation::Get, name.as_str(), source);
        match (error.kind(), self.length(name).await) {
            (StoreErrorKind::Transient, Ok(Some(length))) if length < wanted.end => {
                let (need, have) = (wanted.end - wanted.start, length.saturating_sub(wanted.start));
                StoreError::of_body(name.as_str(), StoreErrorKind::Changed, BodyError::Short { need, have })
            }
            _ => error,
        }
    }
}

/// A part of an object, and how long the object should be.
struct Part {
    range: Range<u64>,
    object_bytes: Option<u64>,
}

/// What has come of a body: one that comes in one piece is not copied.
#[derive(Default)]
struct Body {
    only: Bytes,
    joined: BytesMut,
}

impl Body {
    fn length(&self) -> u64 {
        (self.only.len() + self.joined.len()) as u64
    }

    /// Appends a piece of a body of `need` bytes.
    fn push(&mut self, piece: Bytes, need: u64) {
        if self.length() == 0 {
            self.only = piece;
            return;
        }
        if self.joined.is_empty() {
            // Within the limit that was checked; a body that is longer is refused.
            self.joined.reserve(usize::try_from(need).unwrap_or_default());
        }
        self.joined.extend_from_slice(&std::mem::take(&mut self.only));
        self.joined.extend_from_slice(&piece);
    }

    fn freeze(self) -> Bytes {
        if self.joined.is_empty() { self.only } else { self.joined.freeze() }
    }
}

/// Appends what comes of a body, up to a little more than `need` bytes; returns why it ended, if it did not by itself.
async fn take_body(found: GetResult, whole: &mut Body, need: u64) -> Option<object_store::Error> {
    let mut chunks = match found.payload {
        GetResultPayload::Stream(chunks) => chunks,
        // A local file is read in one piece instead of many small ones on the blocking pool.
        _ => {
            return match found.bytes().await {
                Ok(bytes) => {
                    whole.push(bytes, need);
                    None
                }
                Err(source) => Some(source),
            };
        }
    };
    while let Some(chunk) = chunks.next().await {
        match chunk {
            Ok(chunk) => whole.push(chunk, need),
            Err(source) => return Some(source),
        }
        if whole.length() > need {
            break;
        }
    }
    None
}
