//! Counts what goes into a directory, on the way to it.

use std::path::Path;
use std::sync::Arc;

use lowtide_format::{CountingStore, ObjectClass, Store};

use crate::error::Result;

/// A store on local disk, and what has been written to it through this meter.
#[derive(Debug)]
pub(super) struct Meter {
    store: Store,
    counting: CountingStore,
}

/// Bytes written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Written {
    /// To objects that hold state.
    pub(super) data_bytes: u64,
    /// To manifests and the coordinator's own objects.
    pub(super) meta_bytes: u64,
}

impl Written {
    pub(super) fn since(&self, before: &Self) -> Self {
        Self {
            data_bytes: self.data_bytes - before.data_bytes,
            meta_bytes: self.meta_bytes - before.meta_bytes,
        }
    }
}

impl Meter {
    /// Opens a directory, which is made if it is not there, and counts from zero.
    pub(super) fn open(directory: &Path) -> Result<Self> {
        let plain = Store::local(directory)?;
        let mut counting = None;
        let store = plain.wrapped(|inner| {
            let counted = CountingStore::new(inner);
            counting = Some(counted.clone());
            Arc::new(counted)
        });
        counting
            .map(|counting| Self { store, counting })
            .ok_or_else(|| crate::Error::invalid_argument("the store was not wrapped"))
    }

    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    /// What has been written since the meter was opened.
    pub(super) fn written(&self) -> Written {
        let bytes = |class| self.counting.counts(class).put_bytes;
        Written {
            data_bytes: bytes(Some(ObjectClass::Data)),
            meta_bytes: bytes(Some(ObjectClass::Sequence)) + bytes(Some(ObjectClass::Manifest)) + bytes(None),
        }
    }
}
