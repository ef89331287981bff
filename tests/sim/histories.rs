//! Nothing is broken: no history may show a violation, and no situation may be missing.

use lowtide::simulate::faults::{FaultOptions, Situation, simulate_faults};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn every_kept_checkpoint_survives_whatever_fails() {
    let first_seed = number("LOWTIDE_SIM_FIRST_SEED", 1);
    let seeds = number("LOWTIDE_SIM_SEEDS", 2_000);
    let report = simulate_faults(&FaultOptions { first_seed, seeds, ..FaultOptions::default() });
    for violation in &report.violations {
        println!("# seed {}: {}\n{}", violation.seed, violation.rule, violation.script);
    }
    let seeds_broken: Vec<u64> = report.violations.iter().map(|violation| violation.seed).collect();
    assert!(seeds_broken.is_empty(), "violations in seeds {seeds_broken:?}, their scripts are above");
    for situation in Situation::REQUIRED {
        let share = report.situations.share(situation);
        assert!(seeds < 1_000 || share >= 0.01, "{} was reached by {share:.4} only", situation.name());
    }
}
