//! Deliberate breaks of the protocol, to see that the simulation would notice them.
//!
//! Without the feature `break` nothing is ever broken, the question is answered by the compiler, and what follows it is
//! not in the program. Not part of the public interface.

macro_rules! breaks {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// One rule that can be broken.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum Break {
            $($(#[$doc])* $name,)*
        }

        impl Break {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// As the command line spells it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

breaks! {
    /// What a publish would subsume is deleted before it is published.
    DeleteBeforePublish = "delete-before-publish",
    /// A pending checkpoint does not pin its base.
    BaseNotPinned = "base-not-pinned",
    /// A tombstone is left out if the key was born in the base itself: `<` for `≤`.
    BornBeforeBase = "born-before-base",
    /// A key that is put again is born anew although older records of it may be left.
    BornRestarted = "born-restarted",
    /// A restore reads all of its own key groups from an element that is listed for some of them.
    ElementWidened = "element-widened",
    /// A rewrite moves homes before its checkpoint is a base.
    RewriteStampedEarly = "rewrite-stamped-early",
    /// An acknowledgement of another generation counts.
    ForeignAcknowledged = "foreign-acknowledged",
    /// A sweep reads the sequence before it lists.
    SweepReadsFirst = "sweep-reads-first",
    /// A sweep appends no boundary.
    SweepWithoutBoundary = "sweep-without-boundary",
    /// A publish whose reply is lost counts as failed.
    LostReplyIsFailure = "lost-reply-is-failure",
    /// A coordinator whose number was taken by another goes on.
    FenceIgnored = "fence-ignored",
    /// A forced start owns what is there.
    ForcedStartOwns = "forced-start-owns",
    /// A coordinator that takes over does not know which ids were triggered.
    IdReused = "id-reused",
    /// Tombstones are never live, whatever they hide.
    TombstoneNeverLive = "tombstone-never-live",
}

/// Whether a rule is broken on purpose in this process.
#[cfg(not(feature = "break"))]
#[inline(always)]
#[must_use]
pub const fn is_broken(_: Break) -> bool {
    false
}

#[cfg(feature = "break")]
pub use switch::{break_rule, is_broken};

#[cfg(feature = "break")]
mod switch {
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::Break;

    const NOTHING: u8 = u8::MAX;

    static BROKEN: AtomicU8 = AtomicU8::new(NOTHING);

    /// Whether a rule is broken on purpose in this process.
    #[must_use]
    pub fn is_broken(rule: Break) -> bool {
        BROKEN.load(Ordering::Relaxed) == rule as u8
    }

    /// Breaks one rule from now on in this process, or none.
    pub fn break_rule(rule: Option<Break>) {
        BROKEN.store(rule.map_or(NOTHING, |rule| rule as u8), Ordering::Relaxed);
    }
}
