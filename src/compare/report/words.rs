//! What the figures mean, in sentences.

use crate::compare::figures::Summary;
use crate::compare::units::{bytes, micros, millis, times};

/// One paragraph about the comparison, as somebody would tell it who has looked at the figures.
pub(super) fn paragraph(summaries: &[Summary]) -> String {
    let mut sentences = vec![verified(summaries)];
    sentences.extend(written(summaries));
    sentences.extend(pauses(summaries));
    sentences.extend(speed(summaries));
    sentences.extend(restore(summaries));
    sentences.join(" ")
}

fn verified(summaries: &[Summary]) -> String {
    let wrong: Vec<&str> = names(summaries.iter().filter(|summary| !summary.verified)).collect();
    let entries = summaries.iter().map(|summary| summary.entries).max().unwrap_or(0);
    if wrong.is_empty() {
        return format!(
            "Every backend came back from its directory with all {entries} entries as the model has them."
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
        "{} wrote least, {} in all, {} of what {} wrote; its largest checkpoint after the first was {} the mean change, and what it \
         keeps is {} the live state.",
        least.backend,
        bytes(least.written_bytes as f64),
        format_args!("{:.0} %", 100.0 / factor),
        most.backend,
        times(least.largest_over_delta),
        times(least.retained_over_live),
    ))
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
