//! From a checkpoint in the store back to state in memory, for any range of key groups.
//!
//! Owns: what is read, in which order, checked how. Does not own: what the records mean (the backend), which
//! checkpoint (`job`), who owns it then (`coordinator`).

mod plan;
mod reader;
mod shared;
mod source;

pub use plan::{PlannedFile, RestorePlan};
pub(crate) use reader::Readers;
pub use reader::{RestoreReader, RestoredValue, RestoringState};
pub(crate) use source::check_summary;
pub use source::{FetchedSegment, ProgressSink, ReadOptions, RestoreProgress, RestoreSource};
