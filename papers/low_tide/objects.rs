//! The tables about objects and about positional liveness.

use lowtide::heap::rewrite::{Bound, BoundedRewriting, RewritePolicy};
use lowtide::simulate::{SimulateOptions, Simulation, Workload, simulate};

use super::{HOT, Table, UNIFORM, ZIPF, cell, options, space};

/// Space 2 and one more bound.
fn and(bound: Bound) -> BoundedRewriting {
    let mut bounds = space(2.0).bounds;
    bounds.push(bound);
    BoundedRewriting { bounds, ..space(2.0) }
}

/// Fewer objects, by rewriting and by copying.
pub(super) fn objects() -> Table {
    let head = [
        "workload",
        "policy",
        "written ÷ changed",
        "copied ÷ changed",
        "retained ÷ live, mean",
        "waste ÷ retained, at most",
        "largest ÷ delta",
        "segments, mean",
        "objects, peak",
        "listing ÷ changed",
    ];
    let mut table = Table::new("6. Objects, 200,000 keys of 20 bytes", &head);
    let small = |workload, share: f64| SimulateOptions {
        changed_share: share,
        checkpoints: 6000,
        warmup: 4000,
        ..options(workload)
    };
    let loads = [
        ("uniform, 0.1 %", small(UNIFORM, 0.001)),
        ("hot 90/10, 0.1 %", small(HOT, 0.001)),
        ("uniform, 0.02 %", small(UNIFORM, 0.0002)),
        ("removals only, 0.01 %", small(Workload::Churn { removed: 1.0 }, 0.0001)),
        ("uniform, 1 %", options(UNIFORM)),
        ("Zipf 0.99, 1 %", options(ZIPF)),
    ];
    for (name, options) in loads {
        let mut row = |policy: &str, rewriting: &dyn RewritePolicy| {
            let report = simulate(&options, rewriting);
            table.row(&[
                name.to_owned(),
                policy.to_owned(),
                format!("{:.3}", report.write_amplification),
                format!("{:.3}", report.packed_share),
                cell(report.space_mean),
                cell(report.waste_peak),
                cell(report.largest_per_delta),
                format!("{:.0}", report.segments_mean),
                report.objects_peak.to_string(),
                cell(report.listing_share * report.write_amplification),
            ]);
        };
        row("space 2", &space(2.0));
        row("and 1,024 segments", &and(Bound::MaxSegments { count: 1024 }));
        row("and 1,024 objects", &and(Bound::MaxObjects { count: 1024 }));
        row("and 512 objects", &and(Bound::MaxObjects { count: 512 }));
        row("and 128 objects", &and(Bound::MaxObjects { count: 128 }));
        row("the default", &BoundedRewriting::default());
    }
    table
}

/// Bits that tell which of so many slots are live, at least: the entropy of the share.
fn bits(slots: u64, live: u64) -> f64 {
    let share = live as f64 / slots.max(1) as f64;
    let of = |share: f64| if share > 0.0 { -share * share.log2() } else { 0.0 };
    slots as f64 * (of(share) + of(1.0 - share))
}

/// What bitmaps of live slots in every manifest would take, beside the tombstones that they would save.
pub(super) fn positional() -> Table {
    let head = [
        "workload",
        "tombstones written ÷ changed",
        "tombstones retained ÷ live",
        "bitmaps ÷ changed, plain",
        "bitmaps ÷ changed, at their entropy",
    ];
    let mut table =
        Table::new("7. Positional liveness under the default, 200,000 keys of 20 bytes, 1 % changing", &head);
    let loads = [
        ("uniform", UNIFORM),
        ("hot 90/10", HOT),
        ("Zipf 0.99", ZIPF),
        ("uniform, a fifth removed", Workload::Churn { removed: 0.2 }),
        ("uniform, half removed", Workload::Churn { removed: 0.5 }),
    ];
    for (name, workload) in loads {
        let options = SimulateOptions { checkpoints: 800, warmup: 400, ..options(workload) };
        let mut simulation = Simulation::new(options.clone());
        let [mut changed, mut written, mut retained, mut live, mut plain, mut entropy] = [0.0_f64; 6];
        for checkpoint in 0..options.checkpoints {
            let row = simulation.checkpoint(&BoundedRewriting::default());
            if checkpoint < options.warmup {
                continue;
            }
            changed += row.delta_bytes as f64;
            written += (row.tombstones * options.tombstone_bytes) as f64;
            live += row.live_bytes as f64;
            for element in simulation.chain().into_iter().flat_map(|chain| chain.elements()) {
                let facts = &element.facts;
                retained += facts.tombstone_bytes as f64;
                plain += facts.puts as f64 / 8.0;
                entropy += bits(facts.puts, element.live_puts) / 8.0;
            }
        }
        table.row(&[
            name.to_owned(),
            format!("{:.3}", written / changed),
            format!("{:.3}", retained / live),
            cell(plain / changed),
            cell(entropy / changed),
        ]);
    }
    table
}
