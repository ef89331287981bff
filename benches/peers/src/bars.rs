//! The bars, one module a row of their table.

pub mod access;
pub mod beside;
pub mod encode;
pub mod freeze;
pub mod many;
pub mod memory;
pub mod restore;

/// How a bar is measured: entries, and rounds in which the subjects take turns.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Entries of the map.
    pub entries: u64,
    /// Rounds; the figure is the median over them.
    pub rounds: usize,
}
