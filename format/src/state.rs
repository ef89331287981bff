//! How a state is described wherever it is written: its name, its kind, and the codecs of its parts.

use crate::codec::{CodecIdentity, DecodeLimits};
use crate::cursor::{Cursor, put_bytes, put_varint};
use crate::error::FormatError;

/// The longest name of a state or codec in bytes.
const NAME_BYTES_MAX: usize = 255;

/// What shape a state has. The numbers are those on disk: do not renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum StateKind {
    /// One value per key and namespace.
    Value = 1,
    /// A map per key and namespace; the record's key is followed by the user key.
    Map = 2,
    /// A list per key and namespace.
    List = 3,
    /// Timers: a priority queue per namespace.
    Timers = 4,
}

impl StateKind {
    fn from_tag(tag: u8) -> Option<Self> {
        match tag {
            1 => Some(Self::Value),
            2 => Some(Self::Map),
            3 => Some(Self::List),
            4 => Some(Self::Timers),
            _ => None,
        }
    }
}

/// Everything that must agree for the records of a state to be read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StateDescriptor {
    /// Name, 1 to 255 bytes, unique among the states of a job.
    pub name: String,
    /// Shape of the state.
    pub kind: StateKind,
    /// Codec of its keys.
    pub key: CodecIdentity,
    /// Codec of its namespaces.
    pub namespace: CodecIdentity,
    /// Codec of its values.
    pub value: CodecIdentity,
}

impl StateDescriptor {
    /// Checks that what was `stored` can be read with this description.
    ///
    /// # Errors
    ///
    /// [`FormatError::CodecMismatch`] or [`FormatError::StateKindMismatch`], naming the state.
    pub fn check_reads(&self, stored: &Self) -> Result<(), FormatError> {
        let parts = [
            ("key", &stored.key, &self.key),
            ("namespace", &stored.namespace, &self.namespace),
            ("value", &stored.value, &self.value),
        ];
        for (part, stored, expected) in parts {
            if stored != expected {
                let (stored, expected) = (stored.clone(), expected.clone());
                return Err(FormatError::CodecMismatch { state: self.name.clone(), part, stored, expected });
            }
        }
        if self.kind == stored.kind {
            Ok(())
        } else {
            Err(FormatError::StateKindMismatch {
                state: self.name.clone(),
                stored: stored.kind,
                expected: self.kind,
            })
        }
    }
}

/// Appends a table of states.
pub(crate) fn put_states(out: &mut Vec<u8>, states: &[StateDescriptor]) -> Result<(), FormatError> {
    let mut codecs: Vec<&CodecIdentity> = Vec::new();
    let mut number = |codec| match codecs.iter().position(|known| *known == codec) {
        Some(at) => at as u64,
        None => {
            codecs.push(codec);
            codecs.len() as u64 - 1
        }
    };
    let mut rows = Vec::new();
    for StateDescriptor { name, kind, key, namespace, value } in states {
        put_name(&mut rows, name)?;
        rows.push(*kind as u8);
        for codec in [key, namespace, value] {
            put_varint(&mut rows, number(codec));
        }
    }
    put_varint(out, codecs.len() as u64);
    for CodecIdentity { name, version, fingerprint } in codecs {
        put_name(out, name)?;
        put_varint(out, u64::from(*version));
        out.extend_from_slice(&fingerprint.to_le_bytes());
    }
    put_varint(out, states.len() as u64);
    out.extend_from_slice(&rows);
    Ok(())
}

fn put_name(out: &mut Vec<u8>, name: &str) -> Result<(), FormatError> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        let problem = "the name of a state or codec is not 1 to 255 bytes long";
        return Err(FormatError::Unwritable { part: "table of states", problem });
    }
    put_bytes(out, name.as_bytes());
    Ok(())
}

/// Reads a table of states.
pub(crate) fn take_states(
    cursor: &mut Cursor<'_>,
    limits: DecodeLimits,
) -> Result<Vec<StateDescriptor>, FormatError> {
    let mut codecs = Vec::new();
    for _ in 0..cursor.count(10, size_of::<CodecIdentity>(), limits)? {
        let name = take_name(cursor)?;
        codecs.push(CodecIdentity { name, version: cursor.number()?, fingerprint: cursor.u64()? });
    }
    let mut states = Vec::new();
    for _ in 0..cursor.count(6, size_of::<StateDescriptor>(), limits)? {
        let name = take_name(cursor)?;
        let kind =
            StateKind::from_tag(cursor.u8()?).ok_or_else(|| cursor.invalid("a state has no known kind"))?;
        let mut codec = || -> Result<CodecIdentity, FormatError> {
            let at: usize = cursor.number()?;
            codecs
                .get(at)
                .cloned()
                .ok_or_else(|| cursor.invalid("a state refers to a codec that is not listed"))
        };
        states.push(StateDescriptor { name, kind, key: codec()?, namespace: codec()?, value: codec()? });
    }
    Ok(states)
}

fn take_name(cursor: &mut Cursor<'_>) -> Result<String, FormatError> {
    let name = cursor.text()?;
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(cursor.invalid("a name is not 1 to 255 bytes long"));
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{AutoCodec, Codec};
    use crate::error::FormatErrorKind;

    fn state<V: crate::Value>(name: &str) -> StateDescriptor {
        StateDescriptor {
            name: name.to_owned(),
            kind: StateKind::Value,
            key: Codec::<String>::identity(&AutoCodec),
            namespace: Codec::<()>::identity(&AutoCodec),
            value: Codec::<V>::identity(&AutoCodec),
        }
    }

    #[test]
    fn a_table_of_states_survives_and_lists_each_codec_once() {
        let states = [state::<u64>("a"), state::<String>("b"), state::<u64>("c")];
        let mut bytes = Vec::new();
        put_states(&mut bytes, &states).unwrap();
        assert_eq!(bytes.first(), Some(&3), "three codecs");
        let mut cursor = Cursor::new("test", &bytes);
        assert_eq!(take_states(&mut cursor, DecodeLimits::default()).unwrap(), states);
        cursor.finish().unwrap();
    }

    #[test]
    fn a_state_of_another_value_type_is_incompatible_and_named() {
        let error = state::<u64>("count").check_reads(&state::<u32>("count")).unwrap_err();
        assert_eq!(error.kind(), FormatErrorKind::Incompatible);
        assert!(error.to_string().contains("the value codec of state \"count\""), "{error}");
        let list = StateDescriptor { kind: StateKind::List, ..state::<u64>("count") };
        assert_eq!(
            state::<u64>("count").check_reads(&list).unwrap_err().kind(),
            FormatErrorKind::Incompatible
        );
        assert!(state::<u64>("count").check_reads(&state::<u64>("count")).is_ok());
    }

    #[test]
    fn a_state_without_a_name_is_not_written() {
        assert!(put_states(&mut Vec::new(), &[state::<u64>("")]).is_err());
        assert!(put_states(&mut Vec::new(), &[state::<u64>(&"x".repeat(256))]).is_err());
    }
}
