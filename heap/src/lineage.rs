//! Which freezes of this backend may still become the base of a checkpoint, and where the records of a base are.
//!
//! Owns: the remembered freezes with their fate, the base of the last trigger, the homes of intervals in each chain.
//! Does not own: the changed sets and removal logs that are kept because of it (the pieces).
//!
//! Two checkpoints in flight can have different bases, and then different chains: of the two, either may become
//! the next base. So homes are kept per checkpoint, as a list from intervals to segments, which each checkpoint
//! takes over from its base and extends by its own segments.
//!
//! # Invariants
//!
//! - H4. Ids and epochs of the remembered freezes ascend.
//! - H5. The floor never goes back, and no remembered freeze is below it: what changed up to the floor is in every
//!   base that is still possible.

use std::sync::Arc;

use lowtide_format::CheckpointId;
use lowtide_format::broken::{Break, is_broken};
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::chain::{Chain, SegmentNumber};
use crate::epochs::Epoch;
use crate::origins::{Origin, Part};
use crate::prefetch::prefetch_shared;

/// Which checkpoints a trigger may name as the base.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BaseMode {
    /// Published checkpoints only: a base means that everything older is settled.
    #[default]
    Confirmed,
    /// Also a checkpoint that this backend has written, although it is pending or was aborted.
    Acknowledged,
}

/// The segments that one checkpoint wrote for its delta.
#[derive(Clone, Debug)]
pub(crate) enum Home {
    /// One segment.
    Whole(SegmentNumber),
    /// One for each part of the key groups.
    Parts(Arc<[SegmentNumber]>),
}

impl Home {
    pub(crate) fn of_part(&self, part: Part) -> Option<SegmentNumber> {
        match self {
            Self::Whole(segment) => Some(*segment),
            Self::Parts(segments) => segments.get(part.0).copied(),
        }
    }
}

/// Where the records of entries are, by the interval of their last change, in the chain of one checkpoint.
#[derive(Clone, Debug, Default)]
pub(crate) struct Homes {
    /// Ascending: entries changed after the epoch before, up to this one, are there, or, where there is no home any
    /// more, were all moved by rewrites.
    until: Vec<(Epoch, Option<Home>)>,
    /// The last full checkpoint that the chain starts with: fixed homes up to it are no longer right.
    full: Option<Epoch>,
}

impl Homes {
    /// The homes of a chain that holds fixed homes only: a restored one.
    pub(crate) fn restored() -> Self {
        Self::default()
    }

    /// The segment that holds the record of an entry of this origin, in this part.
    pub(crate) fn find(&self, origin: &Origin, part: Part) -> Option<SegmentNumber> {
        if let Some(home) = origin.home
            && self.full.is_none_or(|full| home.epoch > full)
        {
            return Some(home.segment);
        }
        let index = self.until.partition_point(|(until, _)| *until < origin.version);
        self.until.get(index).and_then(|(_, home)| home.as_ref()?.of_part(part))
    }

    /// The homes after a checkpoint, whose interval ended with `epoch`, wrote `delta` against these as its base.
    pub(crate) fn extended(&self, epoch: Epoch, delta: Option<Home>, listed: &Chain) -> Self {
        let is_listed = |segment: &SegmentNumber| {
            listed.elements().iter().any(|element| element.facts.number == *segment)
        };
        let lives = |home: &Home| match home {
            Home::Whole(segment) => is_listed(segment),
            Home::Parts(segments) => segments.iter().any(is_listed),
        };
        let kept = self.until.iter().map(|(epoch, home)| (*epoch, home.clone().filter(lives)));
        let mut until: Vec<(Epoch, Option<Home>)> = kept.collect();
        until.push((epoch, delta));
        until.dedup_by(|next, last| {
            let both_gone = next.1.is_none() && last.1.is_none();
            if both_gone {
                last.0 = next.0;
            }
            both_gone
        });
        Self { until, full: self.full }
    }

    /// The homes of a checkpoint without a base.
    pub(crate) fn full(epoch: Epoch, delta: Option<Home>) -> Self {
        Self { until: vec![(epoch, delta)], full: Some(epoch) }
    }
}

/// What a checkpoint left behind when it was written: all that using it as a base needs.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) chain: Arc<Chain>,
    pub(crate) homes: Arc<Homes>,
}

/// Where a snapshot leaves it, and the backend finds it.
pub(crate) type WrittenSlot = Arc<Mutex<Option<Written>>>;

/// What became of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Pending,
    Completed,
    Aborted,
}

/// A freeze that may become a base.
#[derive(Debug)]
struct Node {
    id: CheckpointId,
    epoch: Epoch,
    fate: Fate,
    /// The rewrites in its chain that are not settled, its own among them, oldest first.
    rewrites: RewriteEpochs,
    written: WrittenSlot,
}

/// The epochs of some rewrites, oldest first.
pub(crate) type RewriteEpochs = SmallVec<[Epoch; 2]>;

/// A copy of these epochs, in one move: a clone calls for each.
#[inline]
pub(crate) fn copy_of(epochs: &RewriteEpochs) -> RewriteEpochs {
    RewriteEpochs::from_slice(epochs)
}

/// The rewrites in the chain of a checkpoint to be.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChainRewrites {
    /// Those in the chain of its base that are not settled.
    pub(crate) of_base: RewriteEpochs,
    /// Whether it may rewrite itself.
    pub(crate) own: bool,
}

/// A base that a trigger may use.
#[derive(Clone, Debug)]
pub(crate) struct BaseFacts {
    pub(crate) id: CheckpointId,
    pub(crate) epoch: Epoch,
    pub(crate) written: Written,
    /// The rewrites in its chain that are not settled, oldest first.
    pub(crate) rewrites: RewriteEpochs,
}

/// The freezes of one backend that may become bases.
#[derive(Debug)]
pub(crate) struct Lineage {
    mode: BaseMode,
    nodes: Vec<Node>,
    /// Freezes that a trigger has ruled out, to be dropped outside the pause: a chain holds hundreds of elements.
    gone: Vec<Node>,
    floor: Epoch,
    /// The rewrites that are neither settled nor forgotten, oldest first.
    unsettled: RewriteEpochs,
    /// The base that the last trigger named, until that has been acted upon.
    named: Option<CheckpointId>,
}

impl Lineage {
    /// Nothing is remembered.
    pub(crate) fn new(mode: BaseMode) -> Self {
        let (nodes, gone, unsettled) = (Vec::new(), Vec::new(), RewriteEpochs::new());
        Self { mode, nodes, gone, floor: Epoch(0), unsettled, named: None }
    }

    /// The restored checkpoint, whose entries all bear fixed labels, is the base to be.
    pub(crate) fn restored(mode: BaseMode, chain: Chain, epoch: Epoch) -> Self {
        let id = chain.id();
        let written = Written { chain: Arc::new(chain), homes: Arc::new(Homes::restored()) };
        let written = Arc::new(Mutex::new(Some(written)));
        let (rewrites, unsettled) = (RewriteEpochs::new(), RewriteEpochs::new());
        let node = Node { id, epoch, fate: Fate::Completed, rewrites, written };
        Self { mode, nodes: vec![node], gone: Vec::new(), floor: epoch, unsettled, named: None }
    }

    /// Asks for what a freeze looks at.
    pub(crate) fn prefetch(&self) {
        self.nodes.iter().for_each(|node| prefetch_shared(&node.written));
    }

    pub(crate) fn mode(&self) -> BaseMode {
        self.mode
    }

    /// What changed up to here is in every base that is still possible.
    pub(crate) fn floor(&self) -> Epoch {
        self.floor
    }

    /// The epochs of all possible bases, ascending: changed sets on both sides of one stay apart.
    pub(crate) fn list_boundaries(&self, boundaries: &mut SmallVec<[Epoch; 4]>) {
        boundaries.clear();
        for node in &self.nodes {
            boundaries.push(node.epoch);
        }
    }

    /// Whether `id` was written and may be used as a base.
    pub(crate) fn is_base(&self, id: CheckpointId) -> bool {
        self.nodes.iter().any(|node| node.id == id && node.written.lock().is_some())
    }

    /// The base `id`, if it was written and may be used.
    pub(crate) fn base(&self, id: CheckpointId) -> Option<BaseFacts> {
        let node = self.nodes.iter().find(|node| node.id == id)?;
        let written = node.written.lock().clone()?;
        Some(BaseFacts { id, epoch: node.epoch, written, rewrites: copy_of(&node.rewrites) })
    }

    /// No checkpoint may be a base any more.
    pub(crate) fn forget(&mut self) {
        self.nodes.clear();
    }

    /// A trigger names `base`: what it settles is forgotten. In mode confirmed it says that the base is complete. Returns
    /// the rewrites that are in no chain any more.
    pub(crate) fn trigger(&mut self, base: Option<CheckpointId>, ended: Epoch) -> RewriteEpochs {
        if let Some(base) = base {
            match self.mode {
                BaseMode::Confirmed => {
                    // One by one: there is seldom more than one.
                    while self.nodes.first().is_some_and(|node| node.id < base) {
                        self.gone.push(self.nodes.remove(0));
                    }
                    self.set_fate(base, Fate::Completed);
                }
                BaseMode::Acknowledged => {
                    let aborted = |node: &mut Node| node.id < base && node.fate == Fate::Aborted;
                    self.gone.extend(self.nodes.extract_if(.., aborted));
                    let published = self.published();
                    let older = |node: &mut Node| published.is_some_and(|published| node.id < published);
                    self.gone.extend(self.nodes.extract_if(.., older));
                }
            }
        }
        let lowest = match self.nodes.first() {
            None => ended,
            Some(node) if base.is_some() => node.epoch,
            // What a pending checkpoint carries is settled by a trigger that names a base, not before.
            Some(_) => self.floor,
        };
        self.floor = self.floor.max(lowest);
        self.named = base;
        self.check_invariants();
        if self.unsettled.is_empty() {
            return RewriteEpochs::new();
        }
        let mut forgotten = RewriteEpochs::new();
        self.unsettled.retain(|epoch| {
            let in_chain = self.nodes.iter().any(|node| node.rewrites.contains(epoch));
            if !in_chain {
                forgotten.push(*epoch);
            }
            in_chain
        });
        forgotten
    }

    /// The rewrites that are in the chain of every possible base, of those up to the base that the last trigger named, if that
    /// is not done. Any time before the next trigger will do, since the base stays possible until then.
    pub(crate) fn settle(&mut self) -> RewriteEpochs {
        let Some(base) = self.named.take() else { return RewriteEpochs::new() };
        let through = self.nodes.iter().find(|node| node.id == base).map(|node| node.epoch);
        let is_settled = |epoch: &Epoch| {
            let mut chains = self.nodes.iter().map(|node| node.rewrites.contains(epoch));
            let in_all = through.is_some_and(|through| *epoch <= through) && chains.clone().all(|it| it);
            in_all || is_broken(Break::RewriteStampedEarly) && chains.any(|it| it)
        };
        let (settled, kept): (RewriteEpochs, RewriteEpochs) =
            self.unsettled.iter().copied().partition(is_settled);
        self.unsettled = kept;
        for node in &mut self.nodes {
            node.rewrites.retain(|epoch| !settled.contains(epoch));
        }
        settled
    }

    /// Whether [`settle`](Self::settle) has something to do.
    #[inline]
    pub(crate) fn may_settle(&self) -> bool {
        self.named.is_some() && !self.unsettled.is_empty()
    }

    /// How many rewrites wait to be settled.
    pub(crate) fn unsettled(&self) -> usize {
        self.unsettled.len()
    }

    /// Remembers the freeze that ended `epoch`; the snapshot leaves what it wrote in the returned slot.
    pub(crate) fn push(&mut self, id: CheckpointId, epoch: Epoch, chain: ChainRewrites) -> WrittenSlot {
        let written = Arc::new(Mutex::new(None));
        let mut rewrites = chain.of_base;
        if chain.own {
            rewrites.push(epoch);
            self.unsettled.push(epoch);
        }
        self.nodes.push(Node { id, epoch, fate: Fate::Pending, rewrites, written: Arc::clone(&written) });
        self.check_invariants();
        written
    }

    fn published(&self) -> Option<CheckpointId> {
        let completed = self.nodes.iter().filter(|node| node.fate == Fate::Completed);
        completed.map(|node| node.id).max()
    }

    fn set_fate(&mut self, id: CheckpointId, fate: Fate) {
        self.nodes.iter_mut().filter(|node| node.id == id).for_each(|node| node.fate = fate);
    }

    /// `id` is complete everywhere: pending checkpoints that it overtakes never will be. Unknown ids are harmless;
    /// tells whether it is known.
    pub(crate) fn completed(&mut self, id: CheckpointId) -> bool {
        self.gone.clear();
        self.set_fate(id, Fate::Completed);
        let overtaken = self.nodes.iter().filter(|node| node.id < id && node.fate == Fate::Pending);
        for id in overtaken.map(|node| node.id).collect::<Vec<_>>() {
            self.aborted(id);
        }
        self.nodes.iter().any(|node| node.id == id)
    }

    /// `id` will never be complete. Idempotent; unknown and completed ids are left alone.
    pub(crate) fn aborted(&mut self, id: CheckpointId) {
        self.gone.clear();
        let mode = self.mode;
        self.nodes.retain_mut(|node| {
            if node.id != id || node.fate == Fate::Completed {
                return true;
            }
            node.fate = Fate::Aborted;
            // Acknowledged, it may still be a base until a later one is.
            mode == BaseMode::Acknowledged && node.written.lock().is_some()
        });
    }

    /// The oldest element that a chain of any possible base lists; `None` while one of them is not written.
    pub(crate) fn oldest_element(&self) -> Option<CheckpointId> {
        let oldest = self.nodes.iter().map(|node| {
            let written = node.written.lock();
            let first = written.as_ref()?.chain.elements().first().map(crate::chain::Element::id);
            Some(first.unwrap_or(node.id))
        });
        oldest.collect::<Option<Vec<_>>>()?.into_iter().min()
    }

    fn check_invariants(&self) {
        if cfg!(debug_assertions) {
            let ascend = self.nodes.is_sorted_by(|a, b| a.id < b.id && a.epoch < b.epoch);
            assert!(ascend, "H4: remembered freezes out of order");
            let kept = self.nodes.iter().all(|node| node.epoch >= self.floor);
            assert!(kept, "H5: a remembered freeze is below the floor {}", self.floor.0);
        }
    }
}
