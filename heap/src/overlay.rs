//! Which entries were written again, by whom, and what that makes of their homes.
//!
//! Owns: per rewriting checkpoint, how many entries it wrote again and how many of those changed since. Does not own:
//! which buckets these are (the pieces), which segments to empty (`rewrite`).
//!
//! A rewrite changes the home of an entry in the chains that descend from its checkpoint, and in no other. So it is
//! kept as an overlay: a set of buckets in each piece, and counts. Once every possible base descends from it, it is
//! *settled*: the counts move to new labels at once, and the entries get them as their pieces are touched, but not
//! before all snapshots are closed that only know the old labels.
//!
//! # Invariants
//!
//! - H17. Entries that bear the mark of a rewrite are those it wrote again and that have not changed since; there are
//!   as many as were written less those that were lost.
//! - H18. A mark goes when its entry changes.

use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use lowtide_format::CheckpointId;
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::bitmap::Bitmap;
use crate::epochs::Epoch;
use crate::handover::Stamp;
use crate::lineage::{Home, copy_of};
use crate::origins::{FixedHome, Label, Origins, Part};
use crate::piece::Beside;

/// The buckets of a piece that bear the marks of some rewrites, by the epoch of the rewrite.
pub(crate) type Marks = Vec<(Epoch, Bitmap)>;

/// The rewrites whose marks one bucket bears, oldest first.
pub(crate) type MarkedBy = SmallVec<[Epoch; 4]>;

/// The rewrites that mark a bucket, according to several groups of sets.
pub(crate) fn marked_by(groups: &[&Marks], bucket: usize) -> MarkedBy {
    let sets = groups.iter().flat_map(|group| group.iter());
    let mut by: MarkedBy = sets.filter(|(_, set)| set.contains(bucket)).map(|(epoch, _)| *epoch).collect();
    by.sort_unstable();
    by
}

/// The set of one rewrite, made if need be.
pub(crate) fn set_of(marks: &mut Marks, epoch: Epoch) -> Option<&mut Bitmap> {
    let at = marks.iter().position(|(of, _)| *of == epoch).unwrap_or_else(|| {
        marks.push((epoch, Bitmap::default()));
        marks.len() - 1
    });
    marks.get_mut(at).map(|(_, set)| set)
}

/// Where rewritten entries came from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Source {
    /// The rewrites that had moved them before and are not settled, oldest first. All of them count: entries of one
    /// label that went different ways get different labels.
    pub(crate) rewrites: MarkedBy,
    pub(crate) label: Label,
    pub(crate) part: Part,
}

/// Entries by where they came from.
pub(crate) type SourceCounts = HashMap<Source, u32>;

/// What a rewrite came to.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// The segments that hold the records now.
    pub(crate) target: Home,
    /// The entries of each state.
    pub(crate) of_states: Vec<SourceCounts>,
}

/// Where the writer leaves it.
pub(crate) type OutcomeSlot = Arc<Mutex<Option<Arc<Outcome>>>>;

/// A rewrite whose entries have new labels to come.
#[derive(Clone, Debug)]
struct Settled {
    /// Snapshots frozen before then know the old labels only.
    at: Stamp,
    labels: Arc<HashMap<(Label, Part), Label>>,
    sources: Arc<HashSet<Label>>,
    /// Entries that still bear its mark.
    left: u64,
}

/// What one checkpoint wrote again of one state.
#[derive(Clone, Debug)]
struct Rewrite {
    epoch: Epoch,
    id: CheckpointId,
    /// Rewrites in the chain of its base that were not settled.
    ancestors: SmallVec<[Epoch; 2]>,
    /// Entries that changed since they were written again, if any did. Each snapshot sees them as they were: a freeze copies
    /// a pointer.
    lost: Option<Arc<SourceCounts>>,
    /// Whether the state was cleared since.
    void: bool,
    outcome: OutcomeSlot,
    settled: Option<Settled>,
}

/// What a rewriting checkpoint tells each state at its freeze.
#[derive(Clone, Debug)]
pub(crate) struct RewriteStart {
    pub(crate) epoch: Epoch,
    pub(crate) id: CheckpointId,
    pub(crate) ancestors: SmallVec<[Epoch; 2]>,
    pub(crate) outcome: OutcomeSlot,
}

/// The rewrites of one state that its labels do not show yet, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rewrites {
    list: Vec<Rewrite>,
}

impl Rewrites {
    fn get(&self, epoch: Epoch) -> Option<&Rewrite> {
        self.list.iter().find(|rewrite| rewrite.epoch == epoch)
    }

    /// Whether there is nothing to look after.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The same for a snapshot: mostly nothing, and then without a call.
    #[inline]
    pub(crate) fn frozen(&self) -> Self {
        if self.is_empty() { Self::default() } else { self.clone() }
    }

    pub(crate) fn begin(&mut self, start: &RewriteStart) {
        let RewriteStart { epoch, id, ref ancestors, ref outcome } = *start;
        let (ancestors, outcome) = (copy_of(ancestors), Arc::clone(outcome));
        let (lost, void, settled) = (None, false, None);
        self.list.push(Rewrite { epoch, id, ancestors, lost, void, outcome, settled });
    }

    /// The label of an entry, given the one beside it and its marks: settled rewrites have changed it.
    pub(crate) fn label(&self, label: Label, part: Part, marks: &[Epoch]) -> Label {
        let settled = marks.iter().filter_map(|epoch| self.get(*epoch)?.settled.as_ref());
        settled.fold(label, |label, settled| settled.labels.get(&(label, part)).copied().unwrap_or(label))
    }

    /// The rewrites in `chain` that moved an entry with these marks and are not settled; it lies with the last.
    pub(crate) fn path(&self, marks: &[Epoch], chain: &[Epoch]) -> MarkedBy {
        let unsettled = |epoch: &&Epoch| self.get(**epoch).is_some_and(|rewrite| rewrite.settled.is_none());
        marks.iter().filter(|epoch| chain.contains(epoch)).filter(unsettled).copied().collect()
    }

    /// The newest checkpoint among those that wrote the entry again.
    pub(crate) fn newest(&self, marks: &[Epoch]) -> Option<CheckpointId> {
        marks.iter().filter_map(|epoch| self.get(*epoch)).map(|rewrite| rewrite.id).max()
    }

    /// An entry with these marks changes; `label` is the one beside it, and its label proper is returned.
    pub(crate) fn lose(&mut self, label: Label, part: Part, marks: &[Epoch]) -> Label {
        let label = self.label(label, part, marks);
        for epoch in marks {
            let Some(rewrite) = self.get(*epoch) else { continue };
            let rewrites = self.path(marks, &rewrite.ancestors);
            let Some(rewrite) = self.list.iter_mut().find(|rewrite| rewrite.epoch == *epoch) else {
                continue;
            };
            match &mut rewrite.settled {
                Some(settled) => settled.left = settled.left.saturating_sub(1),
                None => {
                    let lost = Arc::make_mut(rewrite.lost.get_or_insert_default());
                    *lost.entry(Source { rewrites, label, part }).or_default() += 1;
                }
            }
        }
        label
    }

    /// A source in terms of the labels as they are now.
    fn proper(&self, source: &Source) -> Source {
        let Source { rewrites, label, part } = source;
        // Those that are settled come first: whatever descends from a rewrite descends from its ancestors.
        let is_settled = |epoch: &&Epoch| self.get(**epoch).is_none_or(|rewrite| rewrite.settled.is_some());
        let settled: MarkedBy = rewrites.iter().filter(is_settled).copied().collect();
        let rewrites = rewrites.iter().filter(|epoch| !settled.contains(epoch)).copied().collect();
        Source { rewrites, label: self.label(*label, *part, &settled), part: *part }
    }

    /// How many entries lie with a rewrite, by where they came from, with where they are now.
    fn standing(&self, rewrite: &Rewrite, state: usize) -> Option<(Arc<Outcome>, SourceCounts)> {
        if rewrite.void || rewrite.settled.is_some() {
            return None;
        }
        let outcome = rewrite.outcome.lock().clone()?;
        let mut counts = SourceCounts::new();
        for (source, count) in outcome.of_states.get(state)? {
            *counts.entry(self.proper(source)).or_default() += count;
        }
        for (source, lost) in rewrite.lost.iter().flat_map(|lost| lost.iter()) {
            if let Some(count) = counts.get_mut(&self.proper(source)) {
                debug_assert!(*count >= *lost, "H17: more entries lost than were written again");
                *count = count.saturating_sub(*lost);
            }
        }
        counts.retain(|_, count| *count > 0);
        Some((outcome, counts))
    }

    /// What each rewrite of `chain` moved: from where, to which segments, how many.
    pub(crate) fn moved(&self, chain: &[Epoch], state: usize) -> Vec<(Epoch, Arc<Outcome>, SourceCounts)> {
        let of_chain = self.list.iter().filter(|rewrite| chain.contains(&rewrite.epoch));
        of_chain
            .filter_map(|rewrite| {
                let (outcome, counts) = self.standing(rewrite, state)?;
                Some((rewrite.epoch, outcome, counts))
            })
            .collect()
    }

    /// Every possible base descends from the rewrite: its entries get labels of their own.
    pub(crate) fn settle(&mut self, epoch: Epoch, at: Stamp, state: usize, origins: &mut Origins) {
        let Some(rewrite) = self.get(epoch) else { return };
        let id = rewrite.id;
        let mut labels = HashMap::new();
        let mut left = 0;
        if let Some((outcome, counts)) = self.standing(rewrite, state) {
            for (Source { label, part, .. }, count) in counts {
                let Some(segment) = outcome.target.of_part(part) else { continue };
                let version = origins.version(label);
                let Some(new) = origins.fixed(version, FixedHome { segment, epoch }, id) else { continue };
                origins.transfer((label, new), part, count);
                labels.insert((label, part), new);
                left += u64::from(count);
            }
        }
        if let Some(rewrite) = self.list.iter_mut().find(|rewrite| rewrite.epoch == epoch) {
            let sources = Arc::new(labels.keys().map(|(label, _)| *label).collect());
            rewrite.settled = Some(Settled { at, labels: Arc::new(labels), sources, left });
        }
        self.retire();
    }

    /// Whether entries may still bear the label that a settled rewrite has taken them from.
    pub(crate) fn pins(&self, label: Label) -> bool {
        let settled = self.list.iter().filter_map(|rewrite| rewrite.settled.as_ref());
        settled.filter(|settled| settled.left > 0).any(|settled| settled.sources.contains(&label))
    }

    /// The rewrite is in no chain that may become a base.
    pub(crate) fn forget(&mut self, epoch: Epoch) {
        self.list.retain(|rewrite| rewrite.epoch != epoch);
    }

    /// The state was cleared: no entry bears a mark any more.
    pub(crate) fn clear(&mut self) {
        for rewrite in &mut self.list {
            rewrite.void = true;
            if let Some(settled) = &mut rewrite.settled {
                settled.left = 0;
            }
        }
        self.retire();
    }

    /// Forgets settled rewrites whose marks are all gone.
    fn retire(&mut self) {
        let named = |list: &[Rewrite], epoch: Epoch| {
            list.iter().any(|rewrite| rewrite.settled.is_none() && rewrite.ancestors.contains(&epoch))
        };
        let done = |rewrite: &&Rewrite| rewrite.settled.as_ref().is_some_and(|settled| settled.left == 0);
        let gone: Vec<Epoch> = self
            .list
            .iter()
            .filter(done)
            .map(|rewrite| rewrite.epoch)
            .filter(|epoch| !named(&self.list, *epoch))
            .collect();
        self.list.retain(|rewrite| !gone.contains(&rewrite.epoch));
    }

    /// Gives the entries of a piece the labels of settled rewrites, oldest first, where no snapshot frozen up to
    /// `oldest` is open that would not know them; and takes marks away that mean nothing any more.
    pub(crate) fn fold(&mut self, marks: &mut Marks, beside: &mut Beside, part: Part, oldest: Option<Stamp>) {
        if marks.is_empty() {
            return;
        }
        marks.retain(|(epoch, set)| self.get(*epoch).is_some() && !set.is_empty());
        marks.sort_unstable_by_key(|(epoch, _)| *epoch);
        let mut blocked = false;
        marks.retain(|(epoch, set)| {
            let Some(rewrite) = self.list.iter_mut().find(|rewrite| rewrite.epoch == *epoch) else {
                return false;
            };
            let Some(settled) = &mut rewrite.settled else { return true };
            // In order: a later one starts from the labels of the earlier.
            blocked |= oldest.is_some_and(|oldest| oldest < settled.at);
            if blocked {
                return true;
            }
            for bucket in set.ones() {
                if let Some(label) = settled.labels.get(&(beside.label(bucket), part)) {
                    beside.set_label(bucket, *label);
                }
                settled.left = settled.left.saturating_sub(1);
            }
            false
        });
        self.retire();
    }
}
