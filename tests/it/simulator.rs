//! The engine beside the simulator: the same changes under the same policy leave the same chain, record for record
//! and byte for byte.

use std::collections::BTreeSet;
use std::sync::Arc;

use lowtide::heap::chain::Chain;
use lowtide::heap::rewrite::{
    Bound, BoundedRewriting, ChainStats, Never, PackStats, RewriteBudget, RewritePlan, RewritePolicy,
};
use lowtide::heap::{
    Acknowledgement, BaseMode, FreezeKind, FreezeRequest, HeapBackend, HeapOptions, ValueState, WriteOptions,
};
use lowtide::simulate::{Change, Purge, SimulateOptions, Simulation, Workload};
use lowtide::{CheckpointId, KeyGroupCount, ObjectName};
use lowtide_format::FileEntry;

const CHECKPOINTS: u32 = 60;

/// A policy that decides on what both sides know beforehand: the engine cannot tell how many tombstones it will
/// write, which entries were noted is not part of the accounting, nor what segments take in a store. It rewrites no
/// segment in part: which entries that would take is each side's own affair.
#[derive(Debug)]
struct Blind(Box<dyn RewritePolicy>);

impl RewritePolicy for Blind {
    fn plan(&self, stats: &ChainStats) -> RewritePlan {
        let mut stats = stats.clone();
        stats.delta.tombstone_bytes = 0;
        stats.segments.iter_mut().for_each(|segment| segment.indexed = false);
        let mut plan = self.0.plan(&stats);
        let mut left = plan.budget_bytes;
        plan.victims.retain(|victim| {
            let segment = stats.segments.iter().find(|segment| segment.number == *victim).unwrap();
            let fits = segment.live_bytes <= left;
            left -= if fits { segment.live_bytes } else { 0 };
            fits
        });
        plan
    }

    fn pack(&self, stats: &PackStats) -> Vec<usize> {
        let mut stats = stats.clone();
        for object in &mut stats.objects {
            (object.listed_bytes, object.object_bytes) = (object.record_bytes, object.record_bytes);
        }
        self.0.pack(&stats)
    }

    fn part_bytes(&self, bytes: u64) -> Option<u64> {
        self.0.part_bytes(bytes)
    }
}

struct Engine {
    backend: HeapBackend,
    state: ValueState<u32, u32, u64>,
    base: Option<CheckpointId>,
    /// Record bytes of the segments that the last checkpoint copied into one object.
    copied_bytes: u64,
}

impl Engine {
    fn new(policy: Option<Arc<dyn RewritePolicy>>) -> Self {
        let key_groups = KeyGroupCount::new(4).unwrap();
        let mut backend = HeapBackend::new(HeapOptions {
            key_groups,
            range: key_groups.all(),
            base_mode: BaseMode::Confirmed,
        });
        backend.set_rewriting(policy);
        let state = backend.value_state("s").unwrap();
        Self { backend, state, base: None, copied_bytes: 0 }
    }

    fn make(&mut self, change: Change) {
        let mut state = self.backend.state_mut(self.state).unwrap();
        match change {
            Change::Put { key, namespace } => drop(state.put_in(namespace, key, 7).unwrap()),
            Change::Remove { key, namespace } => drop(state.delete_in(&namespace, &key)),
            Change::Clear { namespace } => state.clear_namespace(&namespace),
        }
    }

    fn checkpoint(&mut self) -> Acknowledgement {
        let id = self.base.map_or(CheckpointId::FIRST, |base| base.next().unwrap());
        let request = FreezeRequest { id, base: self.base, kind: FreezeKind::Checkpoint };
        let mut snapshot = self.backend.freeze(request).unwrap();
        let mut files = Vec::new();
        let mut keep = |segment: lowtide_format::FinishedSegment| {
            let object = ObjectName::new(&format!("{}-{}", id.get(), files.len()))?;
            files.push(segment.summary.file_entry(object));
            Ok(())
        };
        snapshot.write(&WriteOptions::default(), &mut keep).unwrap();
        let copies = snapshot.packing(&files).unwrap();
        let (object, mut offset) = (ObjectName::new(&format!("{}-pack", id.get())).unwrap(), 0);
        let mut places = Vec::new();
        for copy in &copies {
            places.push(FileEntry { object: object.clone(), offset, ..copy.clone() });
            offset += copy.length;
        }
        snapshot.packed(&copies, &places);
        let acknowledgement = snapshot.finish(files).unwrap();
        self.backend.completed(id);
        self.base = Some(id);
        let elements = acknowledgement.chain.elements().iter();
        let moved = elements.filter(|element| element.facts.file.as_ref().unwrap().entry.object == object);
        self.copied_bytes = moved.map(|element| element.facts.record_bytes()).sum();
        acknowledgement
    }

    /// Objects that a restore of the checkpoint opens.
    fn objects(&self, acknowledgement: &Acknowledgement) -> u64 {
        let elements = acknowledgement.chain.elements().iter();
        let objects = elements.map(|element| &element.facts.file.as_ref().unwrap().entry.object);
        objects.collect::<BTreeSet<_>>().len() as u64
    }
}

/// Encoded bytes of a put, a tombstone and a clear, as long as ids differ by less than 128.
fn record_bytes() -> [u64; 3] {
    let mut engine = Engine::new(None);
    (0..2).for_each(|key| engine.make(Change::Put { key, namespace: 0 }));
    let first = engine.checkpoint();
    engine.make(Change::Remove { key: 0, namespace: 0 });
    let second = engine.checkpoint();
    engine.make(Change::Clear { namespace: 0 });
    let third = engine.checkpoint();
    let facts =
        |acknowledgement: &Acknowledgement| acknowledgement.chain.elements().last().unwrap().facts.clone();
    [facts(&first).put_bytes / 2, facts(&second).tombstone_bytes, facts(&third).tombstone_bytes]
}

/// Of each element: its checkpoint, puts, their bytes, and what of it is live.
fn figures(chain: &Chain) -> Vec<[u64; 6]> {
    let of_element = |element: &lowtide::heap::chain::Element| {
        let (puts, bytes) = (element.facts.puts, element.facts.put_bytes);
        [element.id().get(), puts, bytes, element.live_puts, element.live_tombstones, element.live_clears]
    };
    let mut figures: Vec<_> = chain.elements().iter().map(of_element).collect();
    figures.sort_unstable();
    figures
}

/// The segment of a key in a first checkpoint that is cut: of four key groups of some 11 KiB, two reach the smallest part.
fn part_of(key: u32) -> u32 {
    u32::from(lowtide::key_group_of::<u32, u32>(&key, KeyGroupCount::new(4).unwrap()).0 / 2)
}

/// What both came to.
#[derive(Debug, Default)]
struct Done {
    rewritten: u64,
    tombstones: u64,
    copied_bytes: u64,
}

/// Runs both, which have to agree at every checkpoint.
fn compare(workload: Workload, name: &str, policy: impl Fn() -> Box<dyn RewritePolicy>) -> Done {
    let [put_bytes, tombstone_bytes, clear_bytes] = record_bytes();
    let options = SimulateOptions {
        workload,
        keys: 2000,
        changed_share: 0.05,
        checkpoints: CHECKPOINTS,
        put_bytes,
        tombstone_bytes,
        clear_bytes,
        shared_bytes_max: 0,
        ..SimulateOptions::default()
    };
    let mut simulation = Simulation::new(options);
    simulation.record_changes();
    simulation.cut_by(part_of);
    let simulated_policy = Blind(policy());
    let mut engine = Engine::new(Some(Arc::new(Blind(policy()))));
    let mut done = Done::default();
    for _ in 0..CHECKPOINTS {
        let row = simulation.checkpoint(&simulated_policy);
        simulation.take_changes().into_iter().for_each(|change| engine.make(change));
        let acknowledgement = engine.checkpoint();
        let (report, id) = (acknowledgement.report, acknowledgement.id);
        let counts = [report.puts - report.rewritten, report.rewritten, report.tombstones, report.clears];
        let expected = [row.puts, row.rewritten, row.tombstones, row.clears];
        assert_eq!(counts, expected, "{name}, {workload:?}: puts, rewritten, tombstones, clears of {id}");
        assert_eq!(report.rewritten_bytes, row.rewritten_bytes, "{name}, {workload:?}: {id}");
        let (written, copied) = (row.written_bytes() - row.packed_bytes, row.packed_bytes);
        assert_eq!(report.record_bytes, written, "{name}, {workload:?}: record bytes of {id}");
        assert_eq!(engine.copied_bytes, copied, "{name}, {workload:?}: copied bytes of {id}");
        assert_eq!(engine.objects(&acknowledgement), row.objects, "{name}, {workload:?}: objects of {id}");
        let simulated = figures(simulation.chain().unwrap());
        assert_eq!(figures(&acknowledgement.chain), simulated, "{name}, {workload:?}: the chain of {id}");
        done.rewritten += row.rewritten;
        done.tombstones += row.tombstones;
        done.copied_bytes += copied;
    }
    done
}

const WORKLOADS: [Workload; 7] = [
    Workload::Uniform,
    Workload::Hot { changes: 0.9, keys: 0.1 },
    Workload::Zipf { exponent: 0.99 },
    Workload::Churn { removed: 0.4 },
    Workload::Windows { purge: Purge::Remove },
    Workload::Windows { purge: Purge::Clear },
    Workload::Append,
];

#[test]
fn without_rewriting_the_engine_lists_what_the_simulator_does() {
    let tombstones: u64 =
        WORKLOADS.into_iter().map(|workload| compare(workload, "never", || Box::new(Never)).tombstones).sum();
    assert!(tombstones > 0);
}

#[test]
fn under_a_bound_the_engine_rewrites_and_lists_what_the_simulator_does() {
    let bounds = [
        Bound::SpaceAmplification { ratio: 2.0 },
        Bound::SpaceAmplification { ratio: 1.3 },
        Bound::MaxAge { checkpoints: 5 },
        Bound::MaxSegments { count: 8 },
    ];
    for bound in bounds {
        let policy = || -> Box<dyn RewritePolicy> { Box::new(BoundedRewriting::exactly(bound)) };
        let name = format!("{bound:?}");
        let rewritten: u64 =
            WORKLOADS.into_iter().map(|workload| compare(workload, &name, policy).rewritten).sum();
        assert!(rewritten > 0, "{name}");
    }
}

#[test]
fn under_a_budget_the_engine_rewrites_and_lists_what_the_simulator_does() {
    let budgets = [RewriteBudget::Bytes(1500), RewriteBudget::Deltas(0.5), RewriteBudget::Deltas(2.0)];
    for budget in budgets {
        let policy = || -> Box<dyn RewritePolicy> {
            Box::new(BoundedRewriting { budget, ..BoundedRewriting::default() })
        };
        let name = format!("{budget:?}");
        let rewritten: u64 =
            WORKLOADS.into_iter().map(|workload| compare(workload, &name, policy).rewritten).sum();
        assert!(rewritten > 0, "{name}");
    }
}

#[test]
fn under_a_bound_on_objects_the_engine_copies_what_the_simulator_does() {
    for (count, budget) in
        [(6, RewriteBudget::Unlimited), (20, RewriteBudget::Bytes(0)), (20, RewriteBudget::Deltas(2.0))]
    {
        let policy = || -> Box<dyn RewritePolicy> {
            let bounds = vec![Bound::SpaceAmplification { ratio: 2.0 }];
            Box::new(BoundedRewriting {
                bounds,
                budget,
                objects_max: Some(count),
                ..BoundedRewriting::default()
            })
        };
        let name = format!("{count} objects, {budget:?}");
        let copied: u64 =
            WORKLOADS.into_iter().map(|workload| compare(workload, &name, policy).copied_bytes).sum();
        assert!(copied > 0, "{name}");
    }
}
