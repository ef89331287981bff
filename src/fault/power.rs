//! The end of a machine as its store sees it.
//!
//! A store that syncs before it reports success loses nothing that it reported; what a power cut can
//! still do is to keep or lose the one write that was under way. So a cut is a write that is kept or
//! lost, after which no call returns; whoever opens the wrapped store again sees what survived.

use super::plan::FaultMode;

/// When the power goes, and what becomes of the write under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerCut {
    /// Number of writes (puts, deletes, multipart steps) that still report success.
    pub writes_before: u64,
    /// Whether the write after those reached the medium before the machine died.
    pub last_write_kept: bool,
}

/// Whether the machine runs.
#[derive(Debug)]
pub(super) enum Power {
    /// It runs, until the cut if one is planned.
    On { cut: Option<PowerCut> },
    /// It is dead.
    Off,
}

impl Default for Power {
    fn default() -> Self {
        Self::On { cut: None }
    }
}

impl Power {
    /// What the power does to the next call; `None`: nothing.
    pub(super) fn meet(&mut self, writes: bool) -> Option<FaultMode> {
        match self {
            Self::Off => Some(FaultMode::Hang),
            Self::On { cut: Some(cut) } if writes => {
                if let Some(left) = cut.writes_before.checked_sub(1) {
                    cut.writes_before = left;
                    return None;
                }
                let kept = cut.last_write_kept;
                *self = Self::Off;
                // A kept write is carried out and then never returns: its caller is dead.
                Some(if kept { FaultMode::After } else { FaultMode::Hang })
            }
            Self::On { .. } => None,
        }
    }
}
