//! What stands beside each entry of a piece, in four bytes: where it comes from, since when its key may be known, and
//! whether it has changed in the interval that is running in the piece.
//!
//! Owns: label, birth and changed bit by bucket. Does not own: what a label means (`origins`).
//!
//! Births are few among the entries of a piece, so each is kept once, and an entry has its number. The changed bit
//! stands with the label because the first change of an entry needs both: one wait for memory instead of two.

use super::Label;
use crate::bitmap::Bitmap;
use crate::epochs::Epoch;
use crate::pages::{PagedVec, Pages};
use crate::prefetch::prefetch;

/// Label, birth and changed bit of each bucket of a piece.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Beside {
    /// First, so that it is in the piece's first cache line.
    by_bucket: PagedVec<Tag>,
    /// A bit for each sixty-fourth of the buckets that may hold a changed one.
    regions: u64,
    /// Buckets of a region, as a power of two.
    region_bits: u32,
    /// The distinct births. Some may be of entries that are gone.
    births: Vec<Epoch>,
}

#[derive(Clone, Copy, Debug)]
struct Tag {
    label: Label,
    /// The number of the birth, and [`CHANGED`].
    birth: u16,
}

/// Buckets of a word of a set.
const BITS: usize = u64::BITS as usize;

/// The entry has changed in the running interval.
const CHANGED: u16 = 1 << 15;
/// Numbers of births are below this.
const BIRTHS_MAX: usize = CHANGED as usize;

impl Tag {
    fn birth(self) -> usize {
        usize::from(self.birth & !CHANGED)
    }

    fn is_changed(self) -> bool {
        self.birth & CHANGED != 0
    }
}

impl Beside {
    /// For so many buckets, none of which has an entry.
    pub(crate) fn new(buckets: usize) -> Self {
        let mut by_bucket = PagedVec::with_capacity_in(buckets, Pages);
        by_bucket.resize(buckets, Tag { label: Label::NEW, birth: 0 });
        let region_bits = buckets.next_power_of_two().trailing_zeros().saturating_sub(BITS.trailing_zeros());
        Self { by_bucket, regions: 0, region_bits, births: Vec::new() }
    }

    #[inline]
    pub(crate) fn prefetch(&self, bucket: usize) {
        self.by_bucket.get(bucket).into_iter().for_each(prefetch);
    }

    /// Whether an entry has changed in the running interval.
    #[inline]
    pub(crate) fn is_changed(&self, bucket: usize) -> bool {
        self.by_bucket.get(bucket).is_some_and(|tag| tag.is_changed())
    }

    /// Notes that an entry changes; its label if that is its first change in the running interval.
    #[inline]
    pub(crate) fn change(&mut self, bucket: usize) -> Option<Label> {
        let tag = self.by_bucket.get_mut(bucket).filter(|tag| !tag.is_changed())?;
        tag.birth |= CHANGED;
        self.regions |= 1 << (bucket >> self.region_bits);
        Some(tag.label)
    }

    /// Takes the note of a change back; tells whether there was one.
    pub(crate) fn forget_change(&mut self, bucket: usize) -> bool {
        let tag = self.by_bucket.get_mut(bucket).filter(|tag| tag.is_changed());
        tag.map(|tag| tag.birth &= !CHANGED).is_some()
    }

    /// The buckets of the entries that have changed in the running interval. O(buckets of their regions).
    pub(crate) fn changed(&self) -> Bitmap {
        if self.regions == 0 {
            return Bitmap::default();
        }
        let word = |(index, tags): (usize, &[Tag])| {
            let region = (index * BITS) >> self.region_bits;
            let whole_word_of_none =
                self.region_bits >= BITS.trailing_zeros() && self.regions >> region & 1 == 0;
            if whole_word_of_none {
                return 0;
            }
            // Without a branch for each tag, which the next one would often gainsay.
            let bits = tags.iter().enumerate().map(|(bit, tag)| u64::from(tag.is_changed()) << bit);
            bits.fold(0, |word, bit| word | bit)
        };
        Bitmap::from_words(self.by_bucket.chunks(BITS).enumerate().map(word).collect())
    }

    /// Ends the running interval: the entries that have changed in it get its label. Returns their buckets; `None` if
    /// there are none. O(buckets of their regions).
    pub(crate) fn end_interval(&mut self, label: impl Fn() -> Label) -> Option<Bitmap> {
        let changed = self.changed();
        self.regions = 0;
        if changed.is_empty() {
            return None;
        }
        let label = label();
        for bucket in changed.ones() {
            if let Some(tag) = self.by_bucket.get_mut(bucket) {
                *tag = Tag { label, birth: tag.birth & !CHANGED };
            }
        }
        Some(changed)
    }

    #[inline]
    pub(crate) fn label(&self, bucket: usize) -> Label {
        self.by_bucket.get(bucket).map_or(Label::NEW, |tag| tag.label)
    }

    #[inline]
    pub(crate) fn label_mut(&mut self, bucket: usize) -> Option<&mut Label> {
        self.by_bucket.get_mut(bucket).map(|tag| &mut tag.label)
    }

    pub(crate) fn born(&self, bucket: usize) -> Epoch {
        let number = self.by_bucket.get(bucket).map(|tag| tag.birth());
        number.and_then(|number| self.births.get(number)).copied().unwrap_or_default()
    }

    /// Of an entry that has not changed in the running interval.
    #[inline]
    pub(crate) fn set(&mut self, bucket: usize, label: Label, born: Epoch) {
        let birth = self.number_of(born);
        if let Some(tag) = self.by_bucket.get_mut(bucket) {
            *tag = Tag { label, birth };
        }
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
        if self.births.len() >= 64 && self.births.len() >= (2 * self.by_bucket.len()).min(BIRTHS_MAX) {
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
        for tag in &mut self.by_bucket {
            let old = tag.birth();
            let (Some(number), Some(born)) = (numbers.get_mut(old), self.births.get(old)) else { continue };
            let number = *number.get_or_insert_with(|| {
                births.push(*born);
                (births.len() - 1) as u16
            });
            tag.birth = number | tag.birth & CHANGED;
        }
        self.births = births;
    }

    /// Bytes of memory beside the struct itself.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.by_bucket.capacity() * size_of::<Tag>() + self.births.capacity() * size_of::<Epoch>()
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
