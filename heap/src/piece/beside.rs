//! What stands beside each entry of a piece, in four bytes and a bit: where it comes from, since when its key may be
//! known, and whether it has changed in the interval that is running in the piece.
//!
//! Owns: label, birth and changed bit by bucket. Does not own: what a label means (`origins`).
//!
//! Births are few among the entries of a piece, so each is kept once, and an entry has its number. The changed bits
//! stand by themselves: they are so few that those of a million entries stay near the processor, and what an update
//! does next depends on its bit.

use super::Label;
use crate::bitmap::Bitmap;
use crate::epochs::Epoch;
use crate::pages::{PagedBox, paged};
use crate::prefetch::prefetch_address;

/// Label, birth and changed bit of each bucket of a piece.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Beside {
    /// The changed bits, 32 a cell, and after them the tag of each bucket. First, so that it is in the piece's first cache
    /// line.
    cells: PagedBox<[u32]>,
    /// The cell of the first tag.
    tags: usize,
    /// The distinct births. Some may be of entries that are gone.
    births: Vec<Epoch>,
}

/// Label and number of the birth, the latter in the upper half of a cell.
#[derive(Clone, Copy, Debug)]
struct Tag {
    label: Label,
    birth: u16,
}

/// Changed bits of a cell.
const CELL_BITS: usize = u32::BITS as usize;

/// Numbers of births are below this.
const BIRTHS_MAX: usize = u16::MAX as usize + 1;

impl From<u32> for Tag {
    #[inline]
    fn from(cell: u32) -> Self {
        Self { label: Label(cell as u16), birth: (cell >> 16) as u16 }
    }
}

impl From<Tag> for u32 {
    #[inline]
    fn from(tag: Tag) -> Self {
        Self::from(tag.label.0) | Self::from(tag.birth) << 16
    }
}

impl Beside {
    /// For so many buckets, none of which has an entry.
    pub(crate) fn new(buckets: usize) -> Self {
        let nothing = Tag { label: Label::NEW, birth: 0 };
        let tags = buckets.div_ceil(CELL_BITS);
        let mut cells = paged(tags + buckets, u32::from(nothing));
        cells.iter_mut().take(tags).for_each(|bits| *bits = 0);
        Self { cells, tags, births: Vec::new() }
    }

    fn buckets(&self) -> usize {
        self.cells.len() - self.tags
    }

    /// Asks for the tag of a bucket. Not through a reference: whether there is such a cell would have to be asked first.
    #[inline]
    pub(crate) fn prefetch_tag(&self, bucket: usize) {
        prefetch_address(self.cells.as_ptr().addr() + (self.tags + bucket) * size_of::<u32>());
    }

    #[inline]
    fn tag(&self, bucket: usize) -> Option<Tag> {
        self.cells.get(self.tags + bucket).map(|cell| Tag::from(*cell))
    }

    #[inline]
    fn set_tag(&mut self, bucket: usize, tag: Tag) {
        let at = self.tags + bucket;
        self.cells.get_mut(at).into_iter().for_each(|cell| *cell = tag.into());
    }

    /// Whether an entry has changed in the running interval.
    #[inline]
    pub(crate) fn is_changed(&self, bucket: usize) -> bool {
        self.cells.get(bucket / CELL_BITS).is_some_and(|bits| bits >> (bucket % CELL_BITS) & 1 == 1)
    }

    /// Notes that an entry changes; its label if that is its first change in the running interval.
    #[inline]
    pub(crate) fn change(&mut self, bucket: usize) -> Option<Label> {
        let (bits, bit) = (self.cells.get_mut(bucket / CELL_BITS)?, 1 << (bucket % CELL_BITS));
        if *bits & bit != 0 {
            return None;
        }
        *bits |= bit;
        Some(self.label(bucket))
    }

    /// Takes the note of a change back; tells whether there was one.
    pub(crate) fn forget_change(&mut self, bucket: usize) -> bool {
        let was_there = self.is_changed(bucket);
        self.cells
            .get_mut(bucket / CELL_BITS)
            .into_iter()
            .for_each(|bits| *bits &= !(1 << (bucket % CELL_BITS)));
        was_there
    }

    /// The buckets of the entries that have changed in the running interval. O(buckets ÷ 64).
    pub(crate) fn changed(&self) -> Bitmap {
        let cells = self.cells.get(..self.tags).unwrap_or_default();
        if cells.iter().all(|bits| *bits == 0) {
            return Bitmap::default();
        }
        let word =
            |cells: &[u32]| cells.iter().rev().fold(0, |word, bits| word << CELL_BITS | u64::from(*bits));
        Bitmap::from_words(cells.chunks(2).map(word).collect())
    }

    /// Ends the running interval: the entries that have changed in it get its label. Returns their buckets; `None` if
    /// there are none. O(buckets ÷ 64 + changed).
    pub(crate) fn end_interval(&mut self, label: impl Fn() -> Label) -> Option<Bitmap> {
        let changed = self.changed();
        if changed.is_empty() {
            return None;
        }
        let label = label();
        changed.ones().for_each(|bucket| self.set_label(bucket, label));
        self.cells.iter_mut().take(self.tags).for_each(|bits| *bits = 0);
        Some(changed)
    }

    #[inline]
    pub(crate) fn label(&self, bucket: usize) -> Label {
        self.tag(bucket).map_or(Label::NEW, |tag| tag.label)
    }

    #[inline]
    pub(crate) fn set_label(&mut self, bucket: usize, label: Label) {
        if let Some(tag) = self.tag(bucket) {
            self.set_tag(bucket, Tag { label, ..tag });
        }
    }

    pub(crate) fn born(&self, bucket: usize) -> Epoch {
        let number = self.tag(bucket).map(|tag| usize::from(tag.birth));
        number.and_then(|number| self.births.get(number)).copied().unwrap_or_default()
    }

    /// Of an entry that has not changed in the running interval.
    #[inline]
    pub(crate) fn set(&mut self, bucket: usize, label: Label, born: Epoch) {
        debug_assert!(!self.is_changed(bucket), "H8: a changed bit at an empty bucket");
        let birth = self.number_of(born);
        self.set_tag(bucket, Tag { label, birth });
    }

    /// The number of a birth; most are the one that came last.
    #[inline]
    fn number_of(&mut self, born: Epoch) -> u16 {
        match self.births.last() {
            Some(last) if *last == born => (self.births.len() - 1) as u16,
            _ => self.find_or_add(born),
        }
    }

    #[cold]
    fn find_or_add(&mut self, born: Epoch) -> u16 {
        if let Some(number) = self.births.iter().rposition(|known| *known == born) {
            return number as u16;
        }
        // Births of entries that are gone are forgotten, at the cost of less than one look at a bucket per birth.
        if self.births.len() >= 64 && self.births.len() >= (2 * self.buckets()).min(BIRTHS_MAX) {
            self.forget_unused();
        }
        if self.births.len() >= BIRTHS_MAX {
            return self.share_oldest(born);
        }
        self.births.push(born);
        (self.births.len() - 1) as u16
    }

    /// A birth is a lower bound: where a huge piece has more than there are numbers, the latecomers share the oldest.
    fn share_oldest(&mut self, born: Epoch) -> u16 {
        let oldest = self.births.iter_mut().enumerate().min_by_key(|(_, birth)| **birth);
        oldest.map_or(0, |(number, birth)| {
            *birth = born.min(*birth);
            number as u16
        })
    }

    /// Keeps the births that a bucket names, empty ones included: at most one each.
    fn forget_unused(&mut self) {
        let mut numbers: Vec<Option<u16>> = vec![None; self.births.len()];
        let mut births = Vec::new();
        for cell in self.cells.iter_mut().skip(self.tags) {
            let tag = Tag::from(*cell);
            let old = usize::from(tag.birth);
            let (Some(number), Some(born)) = (numbers.get_mut(old), self.births.get(old)) else { continue };
            let number = *number.get_or_insert_with(|| {
                births.push(*born);
                (births.len() - 1) as u16
            });
            *cell = Tag { birth: number, ..tag }.into();
        }
        self.births = births;
    }

    /// Bytes of memory beside the struct itself.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.cells) + self.births.capacity() * size_of::<Epoch>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_noted_once_and_end_with_the_interval_whatever_the_size() {
        for buckets in [4_usize, 64, 128, 4096, 16_384] {
            let mut beside = Beside::new(buckets);
            (0..buckets).for_each(|bucket| beside.set(bucket, Label(1), Epoch(bucket as u32)));
            let changed: Vec<usize> = (0..buckets).filter(|bucket| bucket % 37 == 3).collect();
            for bucket in &changed {
                assert_eq!(beside.change(*bucket), Some(Label(1)));
                assert_eq!(beside.change(*bucket), None, "a change noted twice");
            }
            let (gone, stay) = changed.split_first().unwrap();
            assert!(beside.forget_change(*gone) && !beside.forget_change(*gone));
            assert!(beside.changed().ones().eq(stay.iter().copied()));
            let ended = beside.end_interval(|| Label(2));
            assert_eq!(ended.map(|bits| bits.ones().collect()), (!stay.is_empty()).then(|| stay.to_vec()));
            for bucket in 0..buckets {
                let label = if stay.contains(&bucket) { Label(2) } else { Label(1) };
                assert_eq!((beside.label(bucket), beside.born(bucket)), (label, Epoch(bucket as u32)));
                assert!(!beside.is_changed(bucket), "a change outlives its interval");
            }
            assert_eq!(beside.end_interval(|| Label(3)), None);
        }
    }

    #[test]
    fn more_births_than_numbers_are_bounded_from_below() {
        let buckets = BIRTHS_MAX + 100;
        let mut beside = Beside::new(buckets);
        for bucket in 0..buckets {
            beside.set(bucket, Label(1), Epoch(10 + bucket as u32));
        }
        beside.set(0, Label(1), Epoch(5));
        for bucket in 1..buckets {
            assert!(beside.born(bucket) <= Epoch(10 + bucket as u32), "a birth after the entry's own");
        }
        assert!(beside.born(0) <= Epoch(5));
    }

    #[test]
    fn births_are_kept_exactly_however_many_come_and_go() {
        let mut beside = Beside::new(32);
        let mut expected = [0_u32; 32];
        let mut seed = 1_u64;
        for birth in 1..200_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let bucket = (seed >> 40) as usize % 32;
            beside.set(bucket, Label(bucket as u16), Epoch(birth));
            expected[bucket] = birth;
            assert!(beside.births.len() <= 96, "births of entries that are gone pile up");
        }
        for (bucket, birth) in expected.into_iter().enumerate() {
            assert_eq!((beside.label(bucket), beside.born(bucket)), (Label(bucket as u16), Epoch(birth)));
        }
    }
}
