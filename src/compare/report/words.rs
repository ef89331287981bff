//! What the figures mean, in sentences.

use crate::compare::figures::Summary;
use crate::compare::units::{bytes, grouped, micros, millis, times};

/// One paragraph about the comparison, as somebody would tell it who has looked at the figures.
pub(super) fn paragraph(summaries: &[Summary]) -> String {
    let mut sentences = vec![verified(summaries)];
    sentences.extend(written(summaries));
    sentences.extend(peaks(summaries));
    sentences.extend(pauses(summaries));
    sentences.extend(speed(summaries));
    sentences.extend(restore(summaries));
    sentences.extend(verdict(summaries));
    sentences.join(" ")
}

fn verified(summaries: &[Summary]) -> String {
    let wrong: Vec<&str> = names(summaries.iter().filter(|summary| !summary.verified)).collect();
    let entries = summaries.iter().map(|summary| summary.entries).max().unwrap_or(0);
    if wrong.is_empty() {
        return format!(
            "Every backend came back from its directory with all {} entries as the model has them.",
            grouped(entries)
        );
    }
    format!("Do not trust the rest: {} did not come back as the model has it.", wrong.join(" and "))
}

/// Who wrote least, by how much, and whether that is worth anything here.
fn written(summaries: &[Summary]) -> Option<String> {
    let least = least(summaries, |summary| summary.written_bytes as f64)?;
    let most = least_of(summaries, |summary| -(summary.written_bytes as f64))?;
    let factor = most.written_bytes as f64 / least.written_bytes.max(1) as f64;
    if factor < 1.5 {
        return Some(format!(
            "They wrote about the same, {} to {}: the state is small or changes as a whole, and increments gain little.",
            bytes(least.written_bytes as f64),
            bytes(most.written_bytes as f64)
        ));
    }
    Some(format!(
        "{} wrote least, {} in all, {:.0} % of what {} wrote, and keeps {} the live state.",
        least.backend,
        bytes(least.written_bytes as f64),
        100.0 / factor,
        most.backend,
        times(least.retained_over_live),
    ))
}

/// How large single checkpoints get, and what was behind the largest one of a backend that knows.
fn peaks(summaries: &[Summary]) -> Option<String> {
    let calmest = least(summaries, |summary| summary.new_over_live_max)?;
    let wildest = least_of(summaries, |summary| -summary.new_over_live_max)?;
    let share = |summary: &Summary| format!("{:.0} %", summary.new_over_live_max * 100.0);
    let mut text = format!(
        "After the first, no checkpoint of {} carried more than {} of the live state; the largest one of {} carried {}.",
        calmest.backend,
        share(calmest),
        wildest.backend,
        share(wildest)
    );
    for merged in summaries.iter().filter(|summary| !summary.storm_cause.is_empty()) {
        let counted = match merged.storms {
            0 => "None of its checkpoints is large enough to count as a compaction storm.".to_owned(),
            1 => "One of its checkpoints counts as a compaction storm.".to_owned(),
            storms => format!("{storms} of its checkpoints count as compaction storms."),
        };
        text.push_str(&format!(
            " What {} writes depends on what is merged between two checkpoints; before its largest one the largest merge was {}. \
             {counted}",
            merged.backend, merged.storm_cause
        ));
    }
    Some(text)
}

fn pauses(summaries: &[Summary]) -> Option<String> {
    let shortest = least(summaries, |summary| summary.pause_p99_us)?;
    let longest = least_of(summaries, |summary| -summary.pause_p99_us)?;
    if longest.pause_p99_us <= shortest.pause_p99_us * 2.0 {
        return Some(format!(
            "Pauses are alike, {} at the 99th percentile at most.",
            micros(longest.pause_p99_us)
        ));
    }
    Some(format!(
        "Pauses differ: at the 99th percentile {} for {} and {} for {}.",
        micros(shortest.pause_p99_us),
        shortest.backend,
        micros(longest.pause_p99_us),
        longest.backend
    ))
}

fn speed(summaries: &[Summary]) -> Option<String> {
    let fastest = least(summaries, |summary| -summary.updates_per_s)?;
    let slowest = least_of(summaries, |summary| summary.updates_per_s)?;
    let factor = fastest.updates_per_s / slowest.updates_per_s.max(f64::MIN_POSITIVE);
    (factor >= 1.5)
        .then(|| format!("{} took events {} as fast as {}.", fastest.backend, times(factor), slowest.backend))
}

fn restore(summaries: &[Summary]) -> Option<String> {
    let fastest = least(summaries, |summary| summary.restore_ms)?;
    Some(format!("The fastest restore was that of {}, {}.", fastest.backend, millis(fastest.restore_ms)))
}

/// What somebody who has to choose would take from it; said only where the figures agree.
fn verdict(summaries: &[Summary]) -> Option<String> {
    let of = |name: &str| summaries.iter().find(|summary| summary.backend == name && summary.verified);
    let heap = of("heap")?;
    if let Some(rocksdb) = of("rocksdb") {
        let cheaper = heap.updates_per_s >= rocksdb.updates_per_s
            && heap.pause_p99_us <= rocksdb.pause_p99_us
            && heap.written_bytes <= rocksdb.written_bytes;
        return Some(if cheaper {
            "State like this fits into memory, and there the heap is the cheaper one in access, pause and bytes; RocksDB is \
             for state that does not fit."
                .to_owned()
        } else {
            "Neither the heap nor RocksDB is the cheaper one in access, pause and bytes alike: what matters most has to \
             decide."
                .to_owned()
        });
    }
    let full = of("heap-full")?;
    Some(if full.written_bytes as f64 >= 1.5 * heap.written_bytes as f64 {
        "For state that changes like this, increments pay.".to_owned()
    } else {
        "For state that changes like this, full snapshots do as well.".to_owned()
    })
}

fn names<'a>(summaries: impl Iterator<Item = &'a Summary>) -> impl Iterator<Item = &'a str> {
    summaries.map(|summary| summary.backend.as_str())
}

/// The summary with the least figure, if there are two to compare.
fn least(summaries: &[Summary], figure: impl Fn(&Summary) -> f64) -> Option<&Summary> {
    if summaries.len() < 2 { None } else { least_of(summaries, figure) }
}

fn least_of(summaries: &[Summary], figure: impl Fn(&Summary) -> f64) -> Option<&Summary> {
    summaries.iter().min_by(|a, b| figure(a).total_cmp(&figure(b)))
}
