use super::*;
use lowtide_format::CheckpointId;

fn id(number: u64) -> CheckpointId {
    CheckpointId::new(number).unwrap()
}

/// A chain in which segment i was written by checkpoint i, before checkpoint `len + 1`.
fn chain(live_of_100: &[u64]) -> ChainStats {
    let newest = live_of_100.len() as u64;
    let segment = |(index, live): (usize, &u64)| SegmentStats {
        number: SegmentNumber(index as u32 + 1),
        checkpoint: id(index as u64 + 1),
        age_checkpoints: (newest - index as u64 - 1) as u32,
        live_puts: *live,
        live_bytes: live * 10,
        record_bytes: 1000,
        live_antimatter: 0,
        matter: Vec::new(),
        cold: false,
        indexed: false,
    };
    let delta = DeltaFigures { puts: 100, put_bytes: 1000, tombstone_bytes: 0 };
    ChainStats { segments: live_of_100.iter().enumerate().map(segment).collect(), delta }
}

fn numbers(plan: &RewritePlan) -> Vec<u32> {
    plan.victims.iter().map(|number| number.0).collect()
}

fn space(ratio: f64) -> BoundedRewriting {
    BoundedRewriting::exactly(Bound::SpaceAmplification { ratio })
}

#[test]
fn nothing_is_rewritten_while_the_bounds_hold() {
    let stats = chain(&[60, 60, 60]);
    for bound in [
        Bound::SpaceAmplification { ratio: 1.5 },
        Bound::MaxAge { checkpoints: 3 },
        Bound::MaxSegments { count: 4 },
    ] {
        let plan = BoundedRewriting::exactly(bound).plan(&stats);
        assert_eq!((numbers(&plan), plan.unmet), (Vec::new(), Vec::new()), "{bound:?}");
    }
    assert_eq!(Never.plan(&chain(&[1, 1, 1])), RewritePlan::none());
}

#[test]
fn a_bound_on_age_empties_exactly_the_segments_that_are_too_old() {
    let stats = chain(&[10, 90, 50, 50]);
    let plan = BoundedRewriting::exactly(Bound::MaxAge { checkpoints: 2 }).plan(&stats);
    assert_eq!(numbers(&plan), [1, 2]);
    assert_eq!(plan.bytes, 1000);
    assert!(!plan.full);
    let all = BoundedRewriting::exactly(Bound::MaxAge { checkpoints: 0 }).plan(&stats);
    assert_eq!(numbers(&all), [1, 2, 3, 4]);
    assert!(all.full, "nothing old is left");
}

#[test]
fn a_bound_on_space_stops_as_soon_as_it_holds() {
    // 5000 bytes retained, 3100 live; emptying the segment with 10 leaves 4100.
    let stats = chain(&[70, 10, 90, 40]);
    let plan = space(1.4).plan(&stats);
    assert_eq!(numbers(&plan), [2]);
    let tighter = space(1.2).plan(&stats);
    assert_eq!(numbers(&tighter), [2, 4]);
    assert_eq!(tighter.unmet, []);
    assert!(space(1.0).plan(&stats).full);
}

#[test]
fn the_budget_wins_and_the_bound_that_is_not_kept_is_reported() {
    let stats = chain(&[60, 50, 60, 60]);
    let bound = Bound::MaxAge { checkpoints: 1 };
    let budget = RewriteBudget::Bytes(1000);
    let plan = BoundedRewriting { budget, ..BoundedRewriting::exactly(bound) }.plan(&stats);
    assert_eq!(numbers(&plan), [1, 2], "the second is emptied in part only");
    assert_eq!((plan.bytes, plan.budget_bytes), (1000, 1000));
    assert_eq!(plan.unmet, [UnmetBound { bound, reached: 2.0 }]);
}

#[test]
fn a_victim_that_fits_the_budget_is_preferred_to_a_part_of_a_better_one() {
    let mut stats = chain(&[30, 20]);
    stats.segments[0].age_checkpoints = 100;
    let budget = RewriteBudget::Bytes(250);
    let plan = BoundedRewriting { budget, ..space(1.4) }.plan(&stats);
    assert_eq!(numbers(&plan), [2, 1]);
}

#[test]
fn a_bound_on_segments_counts_those_that_the_checkpoint_writes() {
    let stats = chain(&[50, 20, 90, 90]);
    let plan = BoundedRewriting::exactly(Bound::MaxSegments { count: 3 }).plan(&stats);
    assert_eq!(numbers(&plan), [2, 1], "with the delta 3 are left");
    let apart = BoundedRewriting {
        survivors: Survivors::Apart,
        ..BoundedRewriting::exactly(Bound::MaxSegments { count: 3 })
    };
    assert_eq!(numbers(&apart.plan(&stats)), [2, 1, 3], "a cold segment counts too");
}

#[test]
fn a_segment_whose_antimatter_is_still_needed_is_no_victim_until_its_matter_goes() {
    let mut stats = chain(&[90, 10, 50]);
    stats.segments[1].live_antimatter = 1;
    stats.segments[1].matter = vec![(id(1), id(1))];
    let plan = space(1.4).plan(&stats);
    assert_eq!(numbers(&plan), [3], "emptying 2 would free nothing");
    let plan = space(1.2).plan(&stats);
    assert_eq!(numbers(&plan), [3, 1, 2], "with 1 gone, 2 can go");
}

#[test]
fn a_segment_with_antimatter_alone_goes_with_its_matter() {
    let mut stats = chain(&[10, 0, 90]);
    stats.segments[1].live_antimatter = 5;
    stats.segments[1].matter = vec![(id(1), id(1))];
    // 4000 retained, 2000 live. Emptying 1 frees 900 of it and all of 2.
    let plan = space(1.1).plan(&stats);
    assert_eq!(numbers(&plan), [1]);
    assert_eq!(plan.unmet, []);
}

#[test]
fn of_two_equally_dead_segments_the_older_one_is_emptied() {
    for order in [VictimOrder::DecliningCost, VictimOrder::CostBenefit, VictimOrder::OldestFirst] {
        let plan = BoundedRewriting { order, ..space(1.3) }.plan(&chain(&[40, 90, 40, 90]));
        assert_eq!(numbers(&plan).first(), Some(&1), "{order:?}");
    }
    let greedy = BoundedRewriting { order: VictimOrder::Greedy, ..space(1.3) };
    assert_eq!(numbers(&greedy.plan(&chain(&[40, 90, 39, 90]))).first(), Some(&3));
}

#[test]
fn once_anything_is_rewritten_a_batch_is() {
    let stats = chain(&[20, 20, 20, 20, 20, 20, 20]);
    let alone = space(2.9).plan(&stats);
    assert_eq!(alone.victims.len(), 2);
    let batched = BoundedRewriting { batch_deltas: 0.9, ..space(2.9) }.plan(&stats);
    assert_eq!(batched.victims.len(), 5, "five times 200 bytes are at least 900");
}

#[test]
fn a_delta_of_nearly_everything_takes_the_rest_along() {
    let mut stats = chain(&[10, 15]);
    let policy = BoundedRewriting::default();
    let plan = policy.plan(&stats);
    assert!(plan.full);
    assert_eq!(numbers(&plan), [1, 2]);
    for segment in &mut stats.segments {
        (segment.live_bytes, segment.record_bytes) = (90_000, 100_000);
    }
    stats.delta.put_bytes = 40_000;
    assert_eq!(policy.plan(&stats).victims, []);
}

#[test]
fn a_small_state_in_many_segments_is_written_in_full() {
    let mut stats = chain(&[50; 20]);
    for segment in &mut stats.segments {
        (segment.live_bytes, segment.record_bytes) = (100, 110);
    }
    let plan =
        BoundedRewriting { budget: RewriteBudget::Unlimited, ..BoundedRewriting::default() }.plan(&stats);
    assert!(plan.full, "listing 20 segments costs more than 2,000 bytes");
    assert_eq!(
        BoundedRewriting { budget: RewriteBudget::Bytes(10), ..BoundedRewriting::default() }
            .plan(&stats)
            .victims,
        []
    );
}

#[test]
fn prospects_are_asked_for_only_when_a_victim_has_to_be_looked_for() {
    let mut stats = chain(&[20; 60]);
    let policy = BoundedRewriting { full_where_cheaper: false, ..BoundedRewriting::default() };
    let plan = policy.plan(&stats);
    assert!(plan.prospects.starts_with(&plan.victims));
    assert!(plan.prospects.len() > plan.victims.len());
    for segment in &mut stats.segments {
        segment.indexed = plan.prospects.contains(&segment.number);
    }
    let next = policy.plan(&stats);
    assert_eq!(next.prospects, []);
    assert!(next.victims.iter().all(|victim| plan.prospects.contains(victim)));
}

#[test]
fn the_usual_delta_is_not_that_of_an_idle_interval_nor_of_a_large_part() {
    let mut stats = chain(&[50; 20]);
    stats.delta = DeltaFigures::default();
    assert_eq!(stats.usual_delta_bytes(), 1000);
    stats.segments[19].record_bytes = 50_000;
    assert_eq!(stats.usual_delta_bytes(), 1000);
}

#[test]
fn only_a_bound_on_space_cuts_a_large_checkpoint_into_parts() {
    assert_eq!(BoundedRewriting::exactly(Bound::MaxAge { checkpoints: 4 }).part_bytes(1 << 30), None);
    assert_eq!(space(2.0).part_bytes(96 << 20), Some(1 << 20));
    assert_eq!(space(2.0).part_bytes(1000), Some(16 * 1024), "no part smaller than is worth an object");
}
