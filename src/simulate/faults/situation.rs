//! Which situations histories reach, and how often.

use std::collections::BTreeMap;

/// Something that a history should meet now and then, or it would not be tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Situation {
    /// A checkpoint was aborted by request.
    Abort,
    /// A checkpoint expired.
    Expired,
    /// A subtask declined.
    Declined,
    /// A newer checkpoint overtook a pending one.
    Overtaken,
    /// A coordinator was lost and replaced.
    Failover,
    /// A restore into more subtasks.
    RescaleOut,
    /// A restore into fewer subtasks.
    RescaleIn,
    /// A restore that claimed.
    Claim,
    /// A restore that did not claim.
    NoClaim,
    /// A start in spite of what the directory held.
    Forced,
    /// A checkpoint that wrote unchanged entries again.
    Rewrite,
    /// A delta with a clear.
    Clear,
    /// A delta with a tombstone.
    Tombstone,
    /// A savepoint was completed.
    Savepoint,
    /// A publish whose reply was lost.
    LostReply,
    /// Another call to the store that failed.
    StoreFault,
    /// A call to the store that never returned.
    Hang,
    /// A coordinator that stood still while another took over, and then went on.
    PausedCoordinator,
    /// A coordinator that stood still and went on with nobody in between.
    Held,
    /// Subtasks that did not hear of the end of a checkpoint.
    LostNotices,
    /// A job that crashed with a checkpoint pending.
    CrashPending,
    /// A message for a checkpoint that was not pending any more.
    LateMessage,
    /// An acknowledgement that reached the coordinator of another generation.
    ForeignMessage,
    /// A sweep by the job itself.
    Sweep,
    /// A sweep by another process.
    SweepOutside,
    /// A sweep by another process with something happening half-way.
    SweepPaused,
    /// A base that was acknowledged and not published.
    AcknowledgedBase,
    /// Two checkpoints pending at once.
    Concurrent,
}

impl Situation {
    /// Those that a long run has to reach in at least one history of a hundred.
    pub const REQUIRED: [Self; 11] = [
        Self::Abort,
        Self::Overtaken,
        Self::Failover,
        Self::RescaleOut,
        Self::RescaleIn,
        Self::Claim,
        Self::Rewrite,
        Self::Clear,
        Self::LostReply,
        Self::PausedCoordinator,
        Self::AcknowledgedBase,
    ];

    /// In words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Abort => "abort",
            Self::Expired => "expired",
            Self::Declined => "declined",
            Self::Overtaken => "overtaken",
            Self::Failover => "failover",
            Self::RescaleOut => "rescale out",
            Self::RescaleIn => "rescale in",
            Self::Claim => "claim",
            Self::NoClaim => "no claim",
            Self::Forced => "forced start",
            Self::Rewrite => "rewrite",
            Self::Clear => "clear",
            Self::Tombstone => "tombstone",
            Self::Savepoint => "savepoint",
            Self::LostReply => "lost reply",
            Self::StoreFault => "store fault",
            Self::Hang => "hang",
            Self::PausedCoordinator => "paused coordinator",
            Self::Held => "held coordinator",
            Self::LostNotices => "lost notices",
            Self::CrashPending => "crash with a pending checkpoint",
            Self::LateMessage => "late message",
            Self::ForeignMessage => "foreign message",
            Self::Sweep => "sweep",
            Self::SweepOutside => "sweep from outside",
            Self::SweepPaused => "sweep with a pause",
            Self::AcknowledgedBase => "acknowledged base",
            Self::Concurrent => "concurrent checkpoints",
        }
    }
}

/// In how many histories each situation was reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Situations {
    histories: u64,
    reached: BTreeMap<Situation, u64>,
}

impl Situations {
    /// Counts one history.
    pub(super) fn add(&mut self, reached: impl IntoIterator<Item = Situation>) {
        self.histories += 1;
        for situation in reached {
            *self.reached.entry(situation).or_default() += 1;
        }
    }

    /// The share of the histories that reached a situation, 0 to 1.
    #[must_use]
    pub fn share(&self, situation: Situation) -> f64 {
        let reached = self.reached.get(&situation).copied().unwrap_or(0);
        reached as f64 / self.histories.max(1) as f64
    }

    /// Every situation that was reached, with its share.
    pub fn iter(&self) -> impl Iterator<Item = (Situation, f64)> + '_ {
        self.reached.keys().map(|situation| (*situation, self.share(*situation)))
    }
}
