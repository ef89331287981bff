//! `lowtide inspect`: what is in a directory, and why it is kept.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use comfy_table::{CellAlignment, LineStyle, Table, presets};
use lowtide::compare::units::{bytes, grouped};
use lowtide::{InspectedCheckpoint, InspectedJob, InspectedSubtask, Inspection, KeptFile, inspect};

use super::{FOUND_FAULT, Failure, block_on, places};

/// Show the jobs in a directory: checkpoints, segments, sizes, key groups, live counts.
#[derive(Debug, Args)]
pub(super) struct InspectArgs {
    /// A directory of checkpoints, or one that has such directories below it
    dir: PathBuf,
    /// Print everything as one JSON object
    #[arg(long)]
    json: bool,
}

/// Prints what is there, damage included; changes nothing.
pub(super) fn run(args: &InspectArgs) -> Result<ExitCode, Failure> {
    let store = places::store_at(&args.dir)?;
    let inspection = block_on(inspect(&store))??;
    if inspection.jobs.is_empty() {
        return Err(Failure::Usage(format!("no checkpoints in {} or below", args.dir.display())));
    }
    let mut out = io::stdout().lock();
    let printed = if args.json { print_json(&inspection, &mut out) } else { print(&inspection, &mut out) };
    printed.map_err(Failure::output)?;
    let sound = inspection.jobs.iter().all(|job| job.faults.is_empty());
    Ok(if sound { ExitCode::SUCCESS } else { FOUND_FAULT })
}

fn print_json(inspection: &Inspection, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, inspection)?;
    writeln!(out)
}

fn print(inspection: &Inspection, out: &mut impl Write) -> io::Result<()> {
    for (index, job) in inspection.jobs.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        print_job(job, out)?;
    }
    Ok(())
}

fn print_job(job: &InspectedJob, out: &mut impl Write) -> io::Result<()> {
    let directory = if job.directory.is_empty() { "." } else { &job.directory };
    let (data, meta) = (bytes(job.data_bytes as f64), bytes(job.meta_bytes as f64));
    writeln!(out, "{directory}: {data} of data, {meta} of manifests and coordinator objects")?;
    for checkpoint in &job.checkpoints {
        print_checkpoint(checkpoint, out)?;
    }
    for fault in &job.faults {
        let what = fault.checkpoint.as_deref().unwrap_or("the sequence");
        writeln!(out, "{what} cannot be shown: {}: {}", fault.kind, fault.problem)?;
    }
    if !job.files.is_empty() {
        writeln!(out, "{}", files(&job.files))?;
    }
    if !job.unlisted.is_empty() {
        let sum: u64 = job.unlisted.iter().map(|object| object.bytes).sum();
        let count = grouped(job.unlisted.len() as u64);
        let whose = match job.faults.is_empty() {
            true => "listed by no checkpoint: pending, or left for a sweep",
            false => "listed by none of these",
        };
        writeln!(out, "{count} objects of {} are {whose}", bytes(sum as f64))?;
    }
    Ok(())
}

fn print_checkpoint(checkpoint: &InspectedCheckpoint, out: &mut impl Write) -> io::Result<()> {
    let InspectedCheckpoint { id, kind, job, backend, key_groups, generation, .. } = checkpoint;
    let base = checkpoint.base.as_deref().unwrap_or("none");
    writeln!(
        out,
        "{id}: {kind} of job {job} on {backend}, base {base}, generation {generation}, {key_groups} key groups"
    )?;
    let (entries, states) = (grouped(checkpoint.entries), checkpoint.states.join(", "));
    let (new, listed) = (bytes(checkpoint.new_bytes as f64), bytes(checkpoint.listed_bytes as f64));
    writeln!(out, "  {entries} entries in {states}; wrote {new}, lists {listed}")?;
    for subtask in &checkpoint.subtasks {
        writeln!(out, "  subtask {}: {}", subtask.subtask, chain(subtask))?;
    }
    Ok(())
}

/// `kg-000..=kg-063, 120 entries, chain chk-1:100 chk-3:21`, the numbers being live records.
fn chain(subtask: &InspectedSubtask) -> String {
    let elements = subtask.chain.iter().map(|element| {
        let live = element.live_puts + element.live_tombstones + element.live_clears;
        format!(" {}:{live}", element.checkpoint)
    });
    let elements: String = elements.collect();
    let elements = if elements.is_empty() { " (empty)" } else { &elements };
    format!("{}, {} entries, chain{elements}", subtask.range, grouped(subtask.entries))
}

fn files(files: &[KeptFile]) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none()));
    table.set_header(["object", "of", "size", "puts", "tombstones", "clears", "live", "listed by"]);
    for file in files {
        table.add_row([
            file.object.clone(),
            file.checkpoint.clone(),
            bytes(file.bytes as f64),
            grouped(file.puts),
            grouped(file.tombstones),
            grouped(file.clears),
            grouped(file.live_records),
            file.listed_by.join(" "),
        ]);
    }
    for column in table.column_iter_mut().skip(2).take(5) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}
