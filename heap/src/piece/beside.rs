//! What stands beside each entry of a piece, in four bytes: where it comes from, and since when its key may be known.
//!
//! Owns: label and birth by bucket. Does not own: what a label means (`origins`).
//!
//! Births are few among the entries of a piece, so each is kept once, and an entry has its number.

use super::Label;
use crate::epochs::Epoch;
use crate::pages::{PagedVec, Pages};

/// Label and birth of each bucket of a piece.
#[derive(Debug)]
pub(crate) struct Beside {
    by_bucket: PagedVec<Tag>,
    /// The distinct births. Some may be of entries that are gone.
    births: Vec<Epoch>,
}

#[derive(Clone, Copy, Debug)]
struct Tag {
    label: Label,
    birth: u16,
}

impl Beside {
    /// For so many buckets, none of which has an entry.
    pub(crate) fn new(buckets: usize) -> Self {
        let mut by_bucket = PagedVec::with_capacity_in(buckets, Pages);
        by_bucket.resize(buckets, Tag { label: Label::NEW, birth: 0 });
        Self { by_bucket, births: Vec::new() }
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
        let number = self.by_bucket.get(bucket).map(|tag| usize::from(tag.birth));
        number.and_then(|number| self.births.get(number)).copied().unwrap_or_default()
    }

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
        if self.births.len() >= 64 && self.births.len() >= 2 * self.by_bucket.len() {
            self.forget_unused();
        }
        self.births.push(born);
        (self.births.len() - 1) as u16
    }

    /// Keeps the births that a bucket names, empty ones included: at most one each.
    fn forget_unused(&mut self) {
        let mut numbers: Vec<Option<u16>> = vec![None; self.births.len()];
        let mut births = Vec::new();
        for tag in &mut self.by_bucket {
            let old = usize::from(tag.birth);
            let (Some(number), Some(born)) = (numbers.get_mut(old), self.births.get(old)) else { continue };
            tag.birth = *number.get_or_insert_with(|| {
                births.push(*born);
                (births.len() - 1) as u16
            });
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
