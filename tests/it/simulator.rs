//! The engine beside the simulator: the same changes under the same policy leave the same chain, record for record
//! and byte for byte.

use std::sync::Arc;

use lowtide::heap::chain::Chain;
use lowtide::heap::rewrite::{Bound, BoundedRewriting, ChainStats, Never, RewritePlan, RewritePolicy};
use lowtide::heap::{
    Acknowledgement, BaseMode, FreezeKind, FreezeRequest, HeapBackend, HeapOptions, ValueState, WriteOptions,
};
use lowtide::simulate::{Change, Purge, SimulateOptions, Simulation, Workload};
use lowtide::{CheckpointId, KeyGroupCount, ObjectName};

const CHECKPOINTS: u32 = 60;

/// A policy that decides on what both sides know beforehand: the engine cannot tell how many tombstones it will
/// write, and which entries were noted is not part of the accounting.
#[derive(Debug)]
struct Blind(Box<dyn RewritePolicy>);

impl RewritePolicy for Blind {
    fn plan(&self, stats: &ChainStats) -> RewritePlan {
        let mut stats = stats.clone();
        stats.delta.tombstone_bytes = 0;
        stats.segments.iter_mut().for_each(|segment| segment.indexed = false);
        self.0.plan(&stats)
    }
}

struct Engine {
    backend: HeapBackend,
    state: ValueState<u32, u32, u64>,
    base: Option<CheckpointId>,
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
        Self { backend, state, base: None }
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
        let acknowledgement = snapshot.finish(files).unwrap();
        self.backend.completed(id);
        self.base = Some(id);
        acknowledgement
    }
}

/// Encoded bytes of a put and of a tombstone, as long as ids differ by less than 128.
fn record_bytes() -> (u64, u64) {
    let mut engine = Engine::new(None);
    (0..2).for_each(|key| engine.make(Change::Put { key, namespace: 0 }));
    let first = engine.checkpoint();
    engine.make(Change::Remove { key: 0, namespace: 0 });
    let second = engine.checkpoint();
    let facts =
        |acknowledgement: &Acknowledgement| acknowledgement.chain.elements().last().unwrap().facts.clone();
    (facts(&first).put_bytes / 2, facts(&second).tombstone_bytes)
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

/// Runs both; returns the records rewritten and the tombstones written.
fn compare(workload: Workload, name: &str, policy: impl Fn() -> Box<dyn RewritePolicy>) -> (u64, u64) {
    let (put_bytes, tombstone_bytes) = record_bytes();
    let options = SimulateOptions {
        workload,
        keys: 2000,
        changed_share: 0.05,
        checkpoints: CHECKPOINTS,
        put_bytes,
        tombstone_bytes,
        ..SimulateOptions::default()
    };
    let mut simulation = Simulation::new(options);
    simulation.record_changes();
    let simulated_policy = Blind(policy());
    let mut engine = Engine::new(Some(Arc::new(Blind(policy()))));
    let (mut rewritten, mut tombstones) = (0, 0);
    for _ in 0..CHECKPOINTS {
        let row = simulation.checkpoint(&simulated_policy);
        simulation.take_changes().into_iter().for_each(|change| engine.make(change));
        let acknowledgement = engine.checkpoint();
        let (report, id) = (acknowledgement.report, acknowledgement.id);
        let counts = [report.puts - report.rewritten, report.rewritten, report.tombstones, report.clears];
        let expected = [row.puts, row.rewritten, row.tombstones, row.clears];
        assert_eq!(counts, expected, "{name}, {workload:?}: puts, rewritten, tombstones, clears of {id}");
        assert_eq!(report.rewritten_bytes, row.rewritten_bytes, "{name}, {workload:?}: {id}");
        // Clears stand outside the blocks, and their bytes are not counted.
        let written = row.written_bytes() - row.clears * tombstone_bytes;
        assert_eq!(report.record_bytes, written, "{name}, {workload:?}: record bytes of {id}");
        let simulated = figures(simulation.chain().unwrap());
        assert_eq!(figures(&acknowledgement.chain), simulated, "{name}, {workload:?}: the chain of {id}");
        rewritten += row.rewritten;
        tombstones += row.tombstones;
    }
    (rewritten, tombstones)
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
        WORKLOADS.into_iter().map(|workload| compare(workload, "never", || Box::new(Never)).1).sum();
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
        let rewritten: u64 = WORKLOADS.into_iter().map(|workload| compare(workload, &name, policy).0).sum();
        assert!(rewritten > 0, "{name}");
    }
}
