//! Reading and writing the small pieces that every object is made of: fixed numbers, varints, counted bytes.
//!
//! Owns: that no length is believed before it is compared with what is left.
//! Does not own: what the pieces mean.

use crate::codec::DecodeLimits;
use crate::error::FormatError;
use crate::ids::CheckpointId;

/// Appends `value` in seven-bit groups, low group first, the high bit saying that another follows.
#[inline]
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a varint length and the bytes.
#[inline]
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends what `write` appends, behind its varint length; copies it only if the length takes more than a byte.
///
/// # Errors
///
/// Those of `write`, and if it took bytes away that were there before. What is left in `out` is of no use then.
#[inline]
pub(crate) fn put_counted<E: From<FormatError>>(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    let at = out.len();
    out.push(0);
    write(out)?;
    match (out.len().checked_sub(at + 1), out.get_mut(at)) {
        (Some(length), Some(byte)) if length < 0x80 => *byte = length as u8,
        (Some(length), Some(_)) => widen(out, at, length),
        _ => {
            let problem = "its codec took bytes away instead of appending some";
            return Err(FormatError::Unwritable { part: "record", problem }.into());
        }
    }
    Ok(())
}

/// Gives the length at `at`, of the bytes behind it, the room that it needs.
fn widen(out: &mut Vec<u8>, at: usize, length: usize) {
    let mut spelled = Vec::with_capacity(10);
    put_varint(&mut spelled, length as u64);
    out.splice(at..=at, spelled);
}

/// Appends a flag: 1 for no, 2 for yes.
pub(crate) fn put_flag(out: &mut Vec<u8>, flag: bool) {
    out.push(if flag { 2 } else { 1 });
}

/// A place in bytes that are read front to back; every error names the part.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    part: &'static str,
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(part: &'static str, bytes: &'a [u8]) -> Self {
        Self { part, rest: bytes }
    }

    pub(crate) fn part(&self) -> &'static str {
        self.part
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// What is left.
    #[inline]
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Goes on with `rest`, the end of what was left.
    #[inline]
    pub(crate) fn go_on(&mut self, rest: &'a [u8]) {
        self.rest = rest;
    }

    #[cold]
    pub(crate) fn invalid(&self, problem: &'static str) -> FormatError {
        FormatError::Invalid { part: self.part, problem }
    }

    /// Fewer than `need` bytes are left.
    #[cold]
    fn truncated(&self, need: u64) -> FormatError {
        FormatError::Truncated { part: self.part, need, have: self.rest.len() as u64 }
    }

    /// The next `length` bytes.
    #[inline]
    pub(crate) fn take(&mut self, length: u64) -> Result<&'a [u8], FormatError> {
        let split = usize::try_from(length).ok().and_then(|length| self.rest.split_at_checked(length));
        let (taken, rest) = split.ok_or_else(|| self.truncated(length))?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    fn array<const LENGTH: usize>(&mut self) -> Result<[u8; LENGTH], FormatError> {
        let split = self.rest.split_first_chunk::<LENGTH>();
        let (taken, rest) = split.ok_or_else(|| self.truncated(LENGTH as u64))?;
        self.rest = rest;
        Ok(*taken)
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, FormatError> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, FormatError> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, FormatError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, FormatError> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn u128(&mut self) -> Result<u128, FormatError> {
        self.array().map(u128::from_le_bytes)
    }

    /// A varint; a longer spelling than needed is refused, so that a number has one spelling.
    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, FormatError> {
        match self.rest.split_first() {
            Some((&byte, rest)) if byte < 0x80 => {
                self.rest = rest;
                Ok(u64::from(byte))
            }
            _ => self.long_varint(),
        }
    }

    #[cold]
    fn long_varint(&mut self) -> Result<u64, FormatError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(self.invalid("a number has more than 64 bits"));
            }
            value |= bits << shift;
            if byte < 0x80 {
                return if byte == 0 && shift > 0 {
                    Err(self.invalid("a number is spelled longer than it needs to be"))
                } else {
                    Ok(value)
                };
            }
        }
        Err(self.invalid("a number has more than 64 bits"))
    }

    /// A varint that must fit in a smaller type.
    pub(crate) fn number<N: TryFrom<u64>>(&mut self) -> Result<N, FormatError> {
        let value = self.varint()?;
        N::try_from(value).map_err(|_| self.invalid("a number is out of range"))
    }

    /// Bytes behind their varint length.
    #[inline]
    pub(crate) fn counted(&mut self) -> Result<&'a [u8], FormatError> {
        let length = self.varint()?;
        self.take(length)
    }

    /// Text behind its varint length.
    pub(crate) fn text(&mut self) -> Result<&'a str, FormatError> {
        let bytes = self.counted()?;
        std::str::from_utf8(bytes).map_err(|_| self.invalid("a text is not UTF-8"))
    }

    /// The number of items that follow, each at least `bytes_min` long here and `size` bytes in memory: neither the
    /// bytes that are left nor the limit may be exceeded by what is then allocated.
    pub(crate) fn count(
        &mut self,
        bytes_min: usize,
        size: usize,
        limits: DecodeLimits,
    ) -> Result<usize, FormatError> {
        let count = self.varint()?;
        let have = self.rest.len() as u64;
        if count > have / bytes_min.max(1) as u64 {
            return Err(FormatError::Truncated {
                part: self.part,
                need: count.saturating_mul(bytes_min as u64),
                have,
            });
        }
        limits.check(self.part, count.saturating_mul(size as u64))?;
        usize::try_from(count).map_err(|_| self.invalid("a count is out of range"))
    }

    /// A checkpoint id spelled as how far it lies before `from`.
    #[inline]
    pub(crate) fn id_before(&mut self, from: CheckpointId) -> Result<CheckpointId, FormatError> {
        let distance = self.varint()?;
        from.get()
            .checked_sub(distance)
            .and_then(CheckpointId::new)
            .ok_or_else(|| self.invalid("a checkpoint id lies before the first"))
    }

    /// A checkpoint id, or nothing, as a varint: nothing is zero.
    pub(crate) fn optional_id(&mut self) -> Result<Option<CheckpointId>, FormatError> {
        Ok(CheckpointId::new(self.varint()?))
    }

    /// A flag: 1 for no, 2 for yes.
    pub(crate) fn flag(&mut self) -> Result<bool, FormatError> {
        match self.u8()? {
            1 => Ok(false),
            2 => Ok(true),
            _ => Err(self.invalid("a flag is neither 1 nor 2")),
        }
    }

    /// A checkpoint id as a varint.
    pub(crate) fn id(&mut self) -> Result<CheckpointId, FormatError> {
        let id = self.varint()?;
        CheckpointId::new(id).ok_or_else(|| self.invalid("a checkpoint id is zero"))
    }

    /// Checks that nothing is left.
    pub(crate) fn finish(self) -> Result<(), FormatError> {
        match self.rest.len() {
            0 => Ok(()),
            bytes => Err(FormatError::TrailingBytes { part: self.part, bytes: bytes as u64 }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_varint_survives_and_has_one_spelling(value: u64, shift in 0_u32..64, noise: Vec<u8>) {
            let value = value >> shift;
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            let mut cursor = Cursor::new("test", &bytes);
            prop_assert_eq!(cursor.varint().unwrap(), value);
            prop_assert!(cursor.finish().is_ok());
            let mut cursor = Cursor::new("test", &noise);
            if let Ok(read) = cursor.varint() {
                let mut again = Vec::new();
                put_varint(&mut again, read);
                prop_assert_eq!(&noise[..noise.len() - cursor.rest.len()], &again[..]);
            }
        }
    }

    #[test]
    fn a_count_is_compared_with_what_is_left_and_with_the_limit() {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, 5);
        bytes.extend([0; 9]);
        let limits = DecodeLimits::default();
        assert!(
            Cursor::new("test", &bytes).count(2, 100, limits).is_err(),
            "five times two is more than nine"
        );
        assert_eq!(Cursor::new("test", &bytes).count(1, 100, limits).unwrap(), 5);
        assert!(Cursor::new("test", &bytes).count(1, 100, DecodeLimits { bytes_max: 499 }).is_err());
    }
}
