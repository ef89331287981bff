//! A place in a piece for an entry that is not there: found and filled by one search of the table.

use hashbrown::hash_table::{Entry, VacantEntry};

use super::{Beside, Piece, Slot, controls_of, table_hash};
use crate::epochs::Epoch;
use crate::origins::Label;
use crate::pages::Pages;

/// Where an entry would be.
pub(crate) struct Vacancy<'a, K, N, V> {
    place: VacantEntry<'a, Slot<K, N, V>, Pages>,
    beside: &'a mut Beside,
    controls: &'a mut usize,
}

impl<K, N, V> Piece<K, N, V> {
    /// The place of a restored entry; `None` if it is there already. The table has room.
    #[inline]
    pub(crate) fn vacancy(
        &mut self,
        hash: u64,
        is_it: impl FnMut(&Slot<K, N, V>) -> bool,
    ) -> Option<Vacancy<'_, K, N, V>> {
        debug_assert!(!self.is_full(), "H8: an insertion into a full table");
        self.prefetch_likely_slot(hash);
        match self.table.entry(table_hash(hash), is_it, |_| table_hash(hash)) {
            Entry::Occupied(_) => None,
            Entry::Vacant(place) => {
                Some(Vacancy { place, beside: &mut self.beside, controls: &mut self.controls })
            }
        }
    }
}

impl<K, N, V> Vacancy<'_, K, N, V> {
    /// Puts a restored entry there. The caller counts it.
    #[inline]
    pub(crate) fn fill(self, slot: Slot<K, N, V>, label: Label, born: Epoch) {
        let entry = self.place.insert(slot);
        let bucket = entry.bucket_index();
        *self.controls = controls_of(entry.get(), bucket);
        self.beside.set(bucket, label, born);
    }
}
