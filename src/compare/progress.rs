//! How far a comparison has come.

/// A step forward, told to whoever watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress<'a> {
    /// Name of the backend, or `input`.
    pub backend: &'a str,
    /// What is going on.
    pub phase: Phase,
}

/// What a comparison is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// The input is read once, to know what has to come out.
    Reading {
        /// Events read so far.
        events: u64,
    },
    /// The backend takes events and checkpoints.
    Feeding {
        /// Events fed so far.
        events: u64,
        /// Events of the whole input.
        events_total: u64,
    },
    /// A fresh backend restores the last checkpoint.
    Restoring,
    /// Every entry is compared with the model.
    Verifying,
}
