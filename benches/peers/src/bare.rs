//! The least map in bounded pieces, for the proofs in `benches/limits`: tables of 4,096 buckets in huge pages, found by the
//! hash that tells the key group on every machine, and by a directory, without which no single one could be split. A changed
//! bit and a tag stand beside each bucket; there is no epoch, namespace, checkpoint or lock, and no bucket is ever split.

use allocator_api2::vec::Vec as VecIn;
use hashbrown::HashTable;
use lowtide_format::Key as _;

use crate::huge::{Arena, HugePages};
use crate::kinds::Kind;
use crate::measure::ask_for;

/// Buckets of a table.
pub const BUCKETS: usize = 4096;
const BITS: usize = u32::BITS as usize;

type Slot<T> = (<T as Kind>::K, <T as Kind>::V);
/// The number of a piece, and a hash there.
pub type Place = (usize, u64);

/// A table, and where its control bytes begin: a cache line.
#[repr(align(64))]
struct Piece<T: Kind>(HashTable<Slot<T>, Arena>, usize);

/// The map, as large as it will ever be.
pub struct Bare<T: Kind> {
    directory: Vec<u32>,
    pieces: VecIn<Piece<T>, HugePages>,
    bits: VecIn<u32, HugePages>,
    tags: VecIn<u32, HugePages>,
    /// The tags that first changes have read.
    pub noted: u32,
}

impl<T: Kind> Bare<T> {
    /// With the entries of the numbers below `entries`.
    ///
    /// # Panics
    ///
    /// If hashes crowd into one piece.
    #[must_use]
    pub fn filled(entries: u64) -> Self {
        let count = (entries as usize * 10 / 7 / BUCKETS).next_power_of_two();
        let arena = Arena::leaked(count * (BUCKETS * (size_of::<Slot<T>>() + 1) + 128));
        let mut pieces = VecIn::with_capacity_in(count, HugePages);
        pieces.resize_with(count, || {
            Piece::<T>(HashTable::with_capacity_in(BUCKETS / 8 * 7, arena), usize::MAX)
        });
        let [mut bits, mut tags] = [(); 2].map(|()| VecIn::new_in(HugePages));
        bits.resize(count * BUCKETS / BITS, 0);
        tags.resize(count * BUCKETS, 1);
        let mut map = Self { directory: (0..count as u32).collect(), pieces, bits, tags, noted: 0 };
        for slot in (0..entries).map(|number| (T::key(number), T::value(number))) {
            let (piece, hash) = map.place(&slot.0);
            let Piece(table, controls) = &mut map.pieces[piece];
            let entry = table.insert_unique(hash, slot, |_| panic!("a piece has room for what hashes there"));
            let (at, bucket) = (std::ptr::from_ref(entry.get()).addr(), entry.bucket_index());
            *controls = at + (bucket + 1) * size_of::<Slot<T>>();
        }
        map
    }

    /// Where a key is, without a look.
    #[inline(always)]
    pub fn place(&self, key: &T::K) -> Place {
        let hash = key.key_hash();
        let number = self.directory[hash as usize & (self.directory.len() - 1)];
        (number as usize, hash.rotate_left(20))
    }

    /// The place of a key that is accessed alone: asks for the slot where the entry most often is.
    #[inline(always)]
    pub fn place_alone(&self, key: &T::K) -> Place {
        let (piece, hash) = self.place(key);
        self.ask_for_slot(piece, hash as usize & (BUCKETS - 1));
        (piece, hash)
    }

    #[inline(always)]
    fn ask_for_slot(&self, piece: usize, bucket: usize) {
        ask_for(self.pieces[piece].1.wrapping_sub((bucket + 1) * size_of::<Slot<T>>()));
    }

    /// Asks for the control bytes of a hash.
    #[inline(always)]
    pub fn ask_for_group(&self, (piece, hash): Place) {
        let group = self.pieces[piece].1.wrapping_add(hash as usize & (BUCKETS - 1));
        ask_for(group);
        ask_for(group.wrapping_add(15));
    }

    /// Asks for the first slot whose byte agrees with the hash.
    #[inline(always)]
    pub fn ask_for_first(&self, (piece, hash): Place) {
        if let Some(bucket) = self.pieces[piece].0.find_bucket_index(hash, |_| true) {
            self.ask_for_slot(piece, bucket);
        }
    }

    /// The value of a key.
    #[inline(always)]
    pub fn get(&self, (piece, hash): Place, key: &T::K) -> Option<&T::V> {
        self.pieces[piece].0.find(hash, |slot| slot.0 == *key).map(|slot| &slot.1)
    }

    /// Changes the value of a key: tests its bit, and the first time sets it and reads the tag.
    #[inline(always)]
    pub fn change(&mut self, (piece, hash): Place, key: &T::K) {
        let Ok(entry) = self.pieces[piece].0.find_entry(hash, |slot| slot.0 == *key) else { return };
        let at = piece * BUCKETS + entry.bucket_index();
        let (bits, bit) = (&mut self.bits[at / BITS], 1 << (at % BITS));
        if *bits & bit == 0 {
            *bits |= bit;
            self.noted = self.noted.wrapping_add(self.tags[at]);
        }
        T::change(&mut entry.into_mut().1);
    }

    /// Every next change is a first one.
    pub fn forget_changes(&mut self) {
        self.bits.fill(0);
    }
}
