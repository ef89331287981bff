//! Write amplification as a function of space, by the model of `papers/low-tide.md`, section 3.

use lowtide::simulate::Workload;

/// Keys that change alike.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Class {
    /// Share of the keys, 0 to 1.
    keys: f64,
    /// Probability that one of them changes between two checkpoints.
    changes: f64,
}

/// Classes of keys, as many as describe the workload well.
pub(crate) fn classes(workload: Workload, keys: u32, changed_share: f64) -> Vec<Class> {
    let weights: Vec<(f64, f64)> = match workload {
        Workload::Hot { changes, keys } => vec![(keys, changes), (1.0 - keys, 1.0 - changes)],
        Workload::Zipf { exponent } => zipf_weights(keys, exponent),
        _ => vec![(1.0, 1.0)],
    };
    let keys = f64::from(keys);
    // Draws go on until so many distinct keys changed; find how many draws that takes.
    let distinct = |draws: f64| -> f64 {
        weights.iter().map(|(share, weight)| share * chance(draws, weight / (share * keys))).sum()
    };
    let draws = bisect(0.0, 1e3 * keys, |draws| distinct(draws) - changed_share);
    let class = |(share, weight): &(f64, f64)| Class {
        keys: *share,
        changes: chance(draws, weight / (share * keys)),
    };
    weights.iter().map(class).collect()
}

/// That a key drawn with this probability is among so many draws.
fn chance(draws: f64, probability: f64) -> f64 {
    1.0 - (-draws * probability).exp()
}

/// Ranks in bands that grow by a tenth: share of the keys, share of the draws.
fn zipf_weights(keys: u32, exponent: f64) -> Vec<(f64, f64)> {
    let weight =
        |from: u32, to: u32| (from..to).map(|rank| (f64::from(rank) + 1.0).powf(-exponent)).sum::<f64>();
    let total = weight(0, keys);
    let mut bands = Vec::new();
    let mut from = 0;
    while from < keys {
        let to = (from + 1 + from / 10).min(keys);
        bands.push((f64::from(to - from) / f64::from(keys), weight(from, to) / total));
        from = to;
    }
    bands
}

/// All changes in one log whose segments are emptied at one age: written ÷ changed at this retained ÷ live.
pub(crate) fn one_log(classes: &[Class], ratio: f64) -> f64 {
    let written = |age: f64| -> f64 { classes.iter().map(|class| class.keys * written_of(class, age)).sum() };
    let age = bisect(1.0, 1e7, |age| age * written(age) - ratio);
    written(age) / changed(classes)
}

/// Every class in a log of its own, the space between them shared out so that least is written.
pub(crate) fn separated(classes: &[Class], ratio: f64) -> f64 {
    // An age for each class; the marginal writes saved by a byte of space are the same for all.
    let age_at = |class: &Class, price: f64| {
        bisect_falling(1.0, 1e9, |age| {
            let step = age * 1e-4;
            let (before, after) = (written_of(class, age), written_of(class, age + step));
            let space = (age + step) * after - age * before;
            (before - after) / space.max(f64::MIN_POSITIVE) - price
        })
    };
    let space = |price: f64| -> f64 {
        let of_class = |class: &Class| {
            let age = age_at(class, price);
            class.keys * age * written_of(class, age)
        };
        classes.iter().map(of_class).sum()
    };
    let price = bisect_falling(1e-12, 1.0, |price| space(price) - ratio);
    let written: f64 = classes.iter().map(|class| class.keys * written_of(class, age_at(class, price))).sum();
    written / changed(classes)
}

/// Share of the class's keys that a checkpoint writes if its segments are emptied at this age: a record lives until
/// its key changes, with chance c at each checkpoint, or until the age, on average (1 − (1 − c)^age) ÷ c checkpoints.
fn written_of(class: &Class, age: f64) -> f64 {
    class.changes / (1.0 - (1.0 - class.changes).powf(age))
}

fn changed(classes: &[Class]) -> f64 {
    classes.iter().map(|class| class.keys * class.changes).sum()
}

/// Where a rising function is 0, by halving on a logarithmic scale.
fn bisect(low: f64, high: f64, rising: impl Fn(f64) -> f64) -> f64 {
    bisect_falling(low, high, |at| -rising(at))
}

/// Where a falling function is 0.
fn bisect_falling(mut low: f64, mut high: f64, falling: impl Fn(f64) -> f64) -> f64 {
    for _ in 0..80 {
        let middle = if low > 0.0 { (low * high).sqrt() } else { (low + high) / 2.0 };
        if falling(middle) > 0.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}
