//! Which files the checkpoints of a job need, who owns them, and what may be deleted.
//!
//! Pure: no I/O, no clock, no randomness. The [`Registry`] is told what is listed and what is let go, and answers
//! with the objects that nothing lists any more; the caller deletes them.
//!
//! # Invariants
//!
//! - R1. Known: every file that a holder lists is in the catalogue, and every file in the catalogue is listed by at
//!   least one holder. A file that nothing lists is forgotten in the same step in which its release is returned.
//! - R2. Whole: an object is known exactly as long as one of its files is; it is returned for deletion once, when the
//!   last of its parts is let go.
//! - R3. Derived: the parent of a holder's set is a holder that exists. Parents only make a release cheap; what is
//!   returned never depends on them.
//! - R4. Owned: an object of [`Owner::Foreign`] is never returned for deletion.
//!
//! The reference count of a file is the number of sets that hold it. There is no counter to go wrong: the sets are
//! asked.

mod catalogue;
mod claim;
mod error;
mod fileset;
mod rebuild;
mod registry;
mod retention;

pub use claim::Owner;
pub use error::{RegistryError, RegistryErrorKind};
pub use rebuild::Rebuilding;
pub use registry::{FreeObject, Holder, Listing, PinId, Registry, Released};
pub use retention::Retention;
