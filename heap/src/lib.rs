//! The versioned copy-on-write state map of lowtide: typed entries in memory, frozen in microseconds, written as
//! squashed deltas by another thread.
//!
//! Owns: entries, changed sets, removal logs, freezes and what they are owed, the chain of segments that restores a
//! backend, and the policies that keep it short. Does not own: files, stores and their transport; who triggers a
//! checkpoint and what becomes of it. No I/O, no clock, no randomness here.
//!
//! # Invariants
//!
//! Each is numbered where it is explained, and checked there: V1–V2 (`handover`), H1 (`epochs`), H2–H3 (`origins`),
//! H4–H5 (`lineage`), H6–H7 (`removals`), H8–H10 (`piece`), H11 (`owed`), H12 (`directory`), H13 (`listing`), H14 (`clears`), A1–A2 (`pages`),
//! C1–C4 ([`chain`]).

mod backend;
mod bitmap;
pub mod chain;
mod clears;
mod codecs;
mod directory;
mod encode;
mod epochs;
mod erased;
mod error;
mod filling;
mod handover;
mod ledger;
mod lineage;
mod listing;
mod map;
#[cfg(test)]
mod model;
mod open;
mod origins;
mod overlay;
mod owed;
mod pages;
mod piece;
mod places;
mod prefetch;
mod removals;
mod restore;
pub mod rewrite;
mod shards;
mod snapshot;
mod state;
mod turn;

pub use backend::{FreezeKind, FreezeRequest, HeapBackend, HeapFigures, HeapOptions, OPEN_SNAPSHOTS_MAX};
pub use encode::Antimatter;
pub use error::{HeapError, HeapErrorKind};
pub use lineage::BaseMode;
pub use restore::{ElementBlocks, HeapRestore, RestoreReader, RestoredFile, RestoringState, WhenReady};
pub use snapshot::{
    Acknowledgement, CancelToken, HeapSnapshot, SegmentSink, WriteOptions, WriteReport, WrittenSegment,
};
pub use state::{Entry, EntryRef, StateMut, StateRef, ValueState};
