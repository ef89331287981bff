//! The objects in which the segments of a simulation lie.
//!
//! Owns: which segment is where, and what of an object nothing lists any more. Does not own: the choice what is packed,
//! which is the policy's. A segment's bytes are those of its records.

use std::collections::{BTreeMap, HashMap, HashSet};

use lowtide_heap::chain::{Chain, Element, SegmentFacts, SegmentNumber};
use lowtide_heap::rewrite::{ObjectStats, PackStats, RewritePolicy};

/// Number of an object.
type Object = u64;

/// Where segments lie that are not alone in an object of their own.
#[derive(Debug, Default)]
pub(super) struct Objects {
    /// The object of each packed segment.
    packed: HashMap<SegmentNumber, Object>,
    /// Bytes of each such object, as it was written.
    bytes: BTreeMap<Object, u64>,
    next: Object,
}

/// A segment's object: one that was packed, or its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    Packed(Object),
    Own(SegmentNumber),
}

impl Objects {
    fn place(&self, segment: SegmentNumber) -> Place {
        self.packed.get(&segment).map_or(Place::Own(segment), |object| Place::Packed(*object))
    }

    /// How many objects the chain lists.
    pub(super) fn count(&self, chain: &Chain) -> u64 {
        let places = chain.elements().iter().map(|element| self.place(element.facts.number));
        places.collect::<HashSet<_>>().len() as u64
    }

    /// Bytes in the packed objects that the chain does not list.
    pub(super) fn waste(&self, chain: &Chain) -> u64 {
        let listed = chain.elements().iter().filter(|it| self.packed.contains_key(&it.facts.number));
        let listed: u64 = listed.map(|element| element.facts.record_bytes()).sum();
        self.bytes.values().sum::<u64>().saturating_sub(listed)
    }

    /// Puts the new segments of a delta into one object if they are small.
    pub(super) fn share(&mut self, new: &[SegmentFacts], bytes_max: u64) {
        let bytes = new.iter().map(SegmentFacts::record_bytes).sum();
        if new.len() > 1 && bytes <= bytes_max {
            self.packed.extend(new.iter().map(|facts| (facts.number, self.next)));
            self.bytes.insert(self.next, bytes);
            self.next += 1;
        }
    }

    fn stats(&self, chain: &Chain, budget_bytes: u64) -> PackStats {
        let mut order: HashMap<Place, usize> = HashMap::new();
        let mut objects: Vec<ObjectStats> = Vec::new();
        for element in chain.elements() {
            let place = self.place(element.facts.number);
            let at = *order.entry(place).or_insert_with(|| {
                objects.push(ObjectStats { can_move: true, ..ObjectStats::default() });
                objects.len() - 1
            });
            if let Some(object) = objects.get_mut(at) {
                let bytes = element.facts.record_bytes();
                object.segments.push(element.facts.number);
                object.record_bytes += bytes;
                object.listed_bytes += bytes;
                object.object_bytes = match place {
                    Place::Packed(object) => self.bytes.get(&object).copied().unwrap_or_default(),
                    Place::Own(_) => bytes,
                };
                object.can_move &= element.id() < chain.id();
            }
        }
        PackStats { objects, budget_bytes }
    }

    /// Copies what the policy says; returns how many bytes.
    pub(super) fn pack(&mut self, policy: &dyn RewritePolicy, chain: &Chain, budget_bytes: u64) -> u64 {
        let stats = self.stats(chain, budget_bytes);
        let chosen = policy.pack(&stats);
        let mut bytes = 0;
        for object in chosen.iter().filter_map(|at| stats.objects.get(*at)) {
            bytes += object.record_bytes;
            self.packed.extend(object.segments.iter().map(|segment| (*segment, self.next)));
        }
        if bytes > 0 {
            self.bytes.insert(self.next, bytes);
            self.next += 1;
        }
        self.forget_unlisted(chain.elements());
        bytes
    }

    fn forget_unlisted(&mut self, listed: &[Element]) {
        let listed: HashSet<SegmentNumber> = listed.iter().map(|element| element.facts.number).collect();
        self.packed.retain(|segment, _| listed.contains(segment));
        let used: HashSet<Object> = self.packed.values().copied().collect();
        self.bytes.retain(|object, _| used.contains(object));
    }
}
