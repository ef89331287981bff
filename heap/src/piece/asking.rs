//! Requests for what an access to a piece will look at, so that its waits for memory overlap.
//!
//! Owns: where that is. Does not own: the instruction (`prefetch`), in which order a batch asks (`map::batch`).

use super::{Piece, Slot, table_hash};
use crate::prefetch::prefetch_address;

/// So many control bytes a search looks at together, from any place on.
const GROUP_BYTES: usize = 16;

impl<K, N, V> Piece<K, N, V> {
    /// The bucket at which the search for a hash begins.
    #[inline(always)]
    fn likely_bucket(&self, hash: u64) -> usize {
        table_hash(hash) as usize & (self.table.num_buckets() - 1)
    }

    /// Asks for the slot at which the search for a hash begins, where its entry most often is: the wait for it and that
    /// for the control bytes then overlap.
    #[inline(always)]
    pub(crate) fn prefetch_likely_slot(&self, hash: u64) {
        self.prefetch_slot(self.likely_bucket(hash));
    }

    /// Asks for the control bytes that tell where the entry of a hash is: those of a group, which may begin in one line and
    /// end in the next.
    #[inline(always)]
    pub(crate) fn prefetch_search(&self, hash: u64) {
        let group = self.controls.wrapping_add(self.likely_bucket(hash));
        prefetch_address(group);
        prefetch_address(group.wrapping_add(GROUP_BYTES - 1));
    }

    /// Asks for the first slot whose byte agrees with a hash, probably its entry's, and if it is `to_change` for the first
    /// time for its label. Touches no slot.
    #[inline(always)]
    pub(crate) fn prefetch_first(&self, hash: u64, to_change: bool) {
        let Some(bucket) = self.table.find_bucket_index(table_hash(hash), |_| true) else { return };
        self.prefetch_slot(bucket);
        if to_change && !self.beside.is_changed(bucket) {
            self.beside.prefetch_tag(bucket);
        }
    }

    /// Asks for a slot.
    #[inline(always)]
    fn prefetch_slot(&self, bucket: usize) {
        prefetch_address(self.controls.wrapping_sub((bucket + 1) * size_of::<Slot<K, N, V>>()));
    }

    /// Asks for a slot and its label and birth.
    #[inline]
    pub(crate) fn prefetch_entry(&self, bucket: usize) {
        self.prefetch_slot(bucket);
        self.beside.prefetch_tag(bucket);
    }
}
