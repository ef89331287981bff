//! Histories of a backend against an ordered map: whatever happens, each checkpoint restores what was there at its
//! freeze.

mod amortised;
mod aside_tests;
mod batches;
mod every_history;
mod fault_tests;
mod harness;
mod histories;
mod threads;
