//! Histories of a backend against an ordered map: whatever happens, each checkpoint restores what was there at its
//! freeze.

mod every_history;
mod harness;
mod histories;
