//! What the comparison asks of a backend.

mod job;

use std::path::Path;
use std::time::Duration;

use super::event::Event;
use super::meter::Meter;
use super::model::{Cell, Content};
use crate::error::Result;

pub(super) use self::job::JobEntrant;

/// Something that takes part in a comparison: knows how to start empty and how to come back.
pub(super) trait Entrant {
    /// Name in the table.
    fn name(&self) -> String;

    /// Starts with no entries, writing to the place.
    fn start(&self, place: &Place<'_>) -> Result<Box<dyn Contender>>;

    /// Comes back with what the newest checkpoint at the place holds, knowing nothing else.
    fn restore(&self, place: &Place<'_>) -> Result<Box<dyn Contender>>;
}

/// Where a contender keeps its checkpoints.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    /// A directory of its own.
    pub(super) directory: &'a Path,
    /// Counts what goes there.
    pub(super) meter: &'a Meter,
}

/// A running backend. Dropping it loses what is in memory and cleans nothing up.
pub(super) trait Contender {
    /// Takes events over into its state. This, and nothing else, is what counts as updating.
    fn feed(&mut self, events: Vec<Event>) -> Result<()>;

    /// The synchronous phase of a checkpoint, on all subtasks.
    fn freeze(&mut self) -> Result<()>;

    /// Begins to write what was frozen, in the background.
    fn begin_writing(&mut self) -> Result<()>;

    /// Waits until the frozen checkpoint is complete and what it made needless is deleted.
    fn complete(&mut self) -> Result<Completed>;

    /// Writes all entries once, as a whole and beside the checkpoints.
    fn write_whole(&mut self) -> Result<()>;

    /// What it holds at a cell.
    fn get(&self, cell: &Cell) -> Result<Option<Content>>;

    /// Shows everything it holds, in no particular order.
    fn visit(&self, visit: &mut dyn FnMut(Cell, Content)) -> Result<()>;
}

/// What only the contender can tell about a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Completed {
    /// Its id.
    pub(super) checkpoint: u64,
    /// Time spent on writing, uploading and publishing, not on waiting for this call.
    pub(super) asynchronous: Duration,
    /// Puts written, rewritten ones included.
    pub(super) records: u64,
    /// Tombstones written.
    pub(super) tombstones: u64,
    /// Entries written again to empty an old segment.
    pub(super) rewritten: u64,
    /// Encoded bytes of those.
    pub(super) rewritten_bytes: u64,
    /// Records set aside because they changed before they were written.
    pub(super) set_aside: u64,
    /// Segments the manifest lists.
    pub(super) segments: u64,
    /// Whether the backend says that it was a compaction storm.
    pub(super) storm: bool,
    /// The largest compaction since the checkpoint before, in words; empty if there was none.
    pub(super) cause: String,
}
