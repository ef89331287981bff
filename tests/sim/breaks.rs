//! Every rule that is broken on purpose is noticed.

use lowtide::broken::{Break, break_rule};
use lowtide::simulate::faults::{FaultOptions, simulate_faults};

#[test]
fn every_break_is_noticed_within_two_thousand_histories() {
    let mut missed = Vec::new();
    for rule in Break::ALL {
        break_rule(Some(*rule));
        let report =
            simulate_faults(&FaultOptions { seeds: 2_000, violations_max: 1, ..FaultOptions::default() });
        match report.violations.first() {
            Some(violation) => println!("{}: seed {}: {}", rule.name(), violation.seed, violation.rule),
            None => missed.push(rule.name()),
        }
    }
    break_rule(None);
    assert!(missed.is_empty(), "not noticed: {missed:?}");
}
