//! Packing: which segments' bytes a checkpoint copies into one new object, so that a restore opens few objects.
//!
//! Owns: the choice. Does not own: what is listed (`chain`), copying (whoever has the bytes). A copied segment stays the
//! segment it is: its records, its checkpoint and what of it is live do not change, only where its bytes are.
//!
//! Rewriting a segment costs its live records and frees the dead ones; copying it costs all of them and frees nothing. So
//! copying is the cheaper way to have fewer objects only for segments that are nearly all live, and for those that
//! rewriting cannot empty: small deltas that stay listed because of their tombstones.
//!
//! # The bound
//!
//! A checkpoint adds two objects at most, its delta and its cold segment, if it is not a large one that is cut in parts.
//! Above `n` objects, the four smallest hold at most 4 ÷ `n` of the retained bytes together. So with that many bytes to
//! copy, whatever the budget, the four become one, and there are fewer objects than before. Copies are seldom copied
//! again: what is packed is no longer among the smallest.
//!
//! # Invariants
//!
//! - W3. Above the bound, a packing leaves at least three objects less than there were, unless fewer than four can be
//!   copied.

use crate::chain::SegmentNumber;

/// An object may hold this many bytes on average before more objects than the bound says are allowed: a larger copy at one
/// checkpoint would cost more than it saves.
const OBJECT_BYTES: u64 = 16 << 20;

/// How many of the smallest objects are copied at least, whatever the budget.
const SMALLEST: u64 = 4;

/// Bytes of listed files for each byte in their objects that is not listed any more.
const LISTED_PER_WASTE: u64 = 4;

/// Once there are too many objects, a sixteenth of the bound more are packed if the budget allows it.
const BATCH_PARTS: u32 = 16;

/// Figures of one object of the chain that is about to be acknowledged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectStats {
    /// The listed segments in it, oldest first.
    pub segments: Vec<SegmentNumber>,
    /// Encoded bytes of their records, before compression: what copying them costs.
    pub record_bytes: u64,
    /// Stored bytes of these segments.
    pub listed_bytes: u64,
    /// Stored bytes of the object, what is not listed any more among them.
    pub object_bytes: u64,
    /// Whether it may be copied: it is not of this very checkpoint, and all is known that a copy needs.
    pub can_move: bool,
}

impl ObjectStats {
    /// Stored bytes that nothing lists.
    #[must_use]
    pub fn waste_bytes(&self) -> u64 {
        self.object_bytes.saturating_sub(self.listed_bytes)
    }
}

/// What a packing is decided on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackStats {
    /// The objects of the chain, oldest first by their first segment.
    pub objects: Vec<ObjectStats>,
    /// What rewriting has left of the budget, in encoded bytes.
    pub budget_bytes: u64,
}

/// How many objects a chain of so many record bytes may list, and how many of the bytes may be copied for it at once.
fn limits(count: u32, retained_bytes: u64) -> (u64, u64) {
    let count_max = u64::from(count.max(1)).max(retained_bytes / OBJECT_BYTES);
    (count_max, retained_bytes.saturating_mul(SMALLEST) / count_max)
}

/// A packing in progress.
struct Choice<'a> {
    stats: &'a PackStats,
    chosen: Vec<usize>,
    copied_bytes: u64,
}

impl Choice<'_> {
    fn can_take(&self, at: usize) -> bool {
        !self.chosen.contains(&at) && self.stats.objects.get(at).is_some_and(|object| object.can_move)
    }

    fn take(&mut self, at: usize) {
        self.copied_bytes += self.stats.objects.get(at).map_or(0, |object| object.record_bytes);
        self.chosen.push(at);
    }

    /// Objects that the chain will list.
    fn count(&self) -> u64 {
        (self.stats.objects.len() - self.chosen.len()) as u64 + u64::from(!self.chosen.is_empty())
    }
}

/// The objects whose listed segments are to become one object, ascending by place: none, or what the bound asks for.
pub(super) fn choose(stats: &PackStats, count: u32) -> Vec<usize> {
    let mut choice = Choice { stats, chosen: Vec::new(), copied_bytes: 0 };
    free_waste(&mut choice);
    let alone = choice.chosen.len();
    have_fewer(&mut choice, count);
    if choice.chosen.len() == 1 && alone == 0 {
        return Vec::new();
    }
    let mut chosen = choice.chosen;
    chosen.sort_unstable();
    chosen
}

/// Takes objects that hold much waste for what copying them costs, until waste is a quarter of what is listed.
fn free_waste(choice: &mut Choice<'_>) {
    let objects = &choice.stats.objects;
    let listed: u64 = objects.iter().map(|object| object.listed_bytes).sum();
    let mut waste: u64 = objects.iter().map(ObjectStats::waste_bytes).sum();
    let worth = |at: &usize| {
        objects.get(*at).map_or(0.0, |object| object.waste_bytes() as f64 / (object.record_bytes + 1) as f64)
    };
    let mut places: Vec<usize> = (0..objects.len()).collect();
    places.sort_by(|a, b| worth(b).total_cmp(&worth(a)).then(a.cmp(b)));
    for at in places {
        let Some(object) = objects.get(at) else { continue };
        if waste <= listed / LISTED_PER_WASTE || object.waste_bytes() == 0 {
            return;
        }
        if choice.can_take(at) && choice.copied_bytes + object.record_bytes <= choice.stats.budget_bytes {
            waste -= object.waste_bytes();
            choice.take(at);
        }
    }
}

/// Takes the smallest objects while there are more than the bound says.
fn have_fewer(choice: &mut Choice<'_>, count: u32) {
    let objects = &choice.stats.objects;
    let retained = objects.iter().map(|object| object.record_bytes).sum();
    let (count_max, bytes_min) = limits(count, retained);
    if choice.count() <= count_max {
        return;
    }
    let (before, taken) = (objects.len() as u64, choice.chosen.len());
    let budget = choice.stats.budget_bytes.max(bytes_min);
    let few = count_max - count_max / u64::from(BATCH_PARTS);
    let mut places: Vec<usize> = (0..objects.len()).collect();
    places.sort_by_key(|at| (objects.get(*at).map_or(0, |object| object.record_bytes), *at));
    for at in places {
        if !choice.can_take(at) {
            continue;
        }
        let bytes = objects.get(at).map_or(0, |object| object.record_bytes);
        let must = ((choice.chosen.len() - taken) as u64) < SMALLEST || choice.count() > count_max;
        let affordable = if must { budget } else { choice.stats.budget_bytes };
        if !must && choice.count() <= few || choice.copied_bytes + bytes > affordable {
            break;
        }
        choice.take(at);
    }
    let movable = objects.iter().filter(|object| object.can_move).count() as u64;
    // What cannot move may be the smallest, and what was taken because of its waste may be large.
    let sound = taken > 0 || movable < before || choice.count() + SMALLEST - 1 <= before || before < SMALLEST;
    debug_assert!(sound, "W3: {before} objects became {}", choice.count());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rewrite::{BoundedRewriting, RewritePolicy};

    fn objects(sizes: &[u64]) -> Vec<ObjectStats> {
        let object = |(at, bytes): (usize, &u64)| ObjectStats {
            segments: vec![SegmentNumber(at as u32)],
            record_bytes: *bytes,
            listed_bytes: *bytes,
            object_bytes: *bytes,
            can_move: true,
        };
        sizes.iter().enumerate().map(object).collect()
    }

    fn chosen(objects: Vec<ObjectStats>, count: u32, budget_bytes: u64) -> Vec<usize> {
        choose(&PackStats { objects, budget_bytes }, count)
    }

    #[test]
    fn nothing_is_copied_while_the_bound_holds() {
        assert!(chosen(objects(&[5, 5, 5, 5]), 4, 1000).is_empty());
        let unbounded = BoundedRewriting { objects_max: None, ..BoundedRewriting::default() };
        assert!(unbounded.pack(&PackStats { objects: objects(&[1; 9000]), budget_bytes: 9000 }).is_empty());
    }

    #[test]
    fn the_four_smallest_become_one_whatever_the_budget() {
        assert_eq!(chosen(objects(&[90, 1, 80, 2, 70, 3, 60, 4, 50]), 8, 0), [1, 3, 5, 7]);
        let mut sizes = vec![10; 100];
        sizes.push(1000);
        assert_eq!(chosen(objects(&sizes), 100, 0).len(), 4, "W3: they hold less than four average objects");
    }

    #[test]
    fn a_budget_packs_a_batch_so_that_the_next_checkpoints_need_not() {
        let chosen = chosen(objects(&[10; 161]), 160, 10_000);
        assert_eq!(chosen.len(), 12, "161 − 12 + 1 are a sixteenth below the bound");
    }

    #[test]
    fn what_cannot_move_stays() {
        let mut of_many = objects(&[1, 1, 1, 50, 50, 50]);
        of_many[0].can_move = false;
        of_many[2].can_move = false;
        assert_eq!(chosen(of_many, 5, 1000), [1, 3, 4, 5]);
        let mut none = objects(&[1, 1, 1]);
        none.iter_mut().for_each(|object| object.can_move = false);
        assert!(chosen(none, 2, 1000).is_empty());
    }

    #[test]
    fn an_object_is_copied_alone_once_waste_is_more_than_a_quarter_of_what_is_listed() {
        let mut wasteful = objects(&[100, 100, 100]);
        wasteful[1].object_bytes = 170;
        assert!(chosen(wasteful.clone(), 8, 1000).is_empty());
        wasteful[1].object_bytes = 180;
        assert_eq!(chosen(wasteful.clone(), 8, 1000), [1]);
        assert!(chosen(wasteful, 8, 99).is_empty(), "the budget wins over waste");
    }

    #[test]
    fn a_large_chain_may_list_an_object_for_every_so_many_bytes() {
        let (count_max, at_once) = limits(512, 512 * OBJECT_BYTES * 10);
        assert_eq!((count_max, at_once), (5120, SMALLEST * OBJECT_BYTES));
        assert_eq!(limits(512, 512 * 100), (512, 400));
    }
}
