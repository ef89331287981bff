//! Whole jobs under faults, thousands of short histories from seeds.
//!
//! `LOWTIDE_SIM_SEEDS` and `LOWTIDE_SIM_FIRST_SEED` ask for more, or for others. With the feature `break`, each rule of
//! the protocol is broken once on purpose, and has to be noticed.
#![cfg(feature = "cli")]

#[cfg(not(feature = "break"))]
mod histories;

#[cfg(feature = "break")]
mod breaks;
