//! Faults for tests: an object store that fails, cuts, stalls or dies where it is told to.
//!
//! A [`FaultStore`] wraps any object store and asks its [`Faults`] before every call. A plan picks
//! the n-th coming call of an operation on a class of objects and one of the cases a real store
//! shows: the call did not happen, it happened and its reply is lost, its body is cut, it never
//! returns, it waits. Nothing here looks at a clock or at chance, so a run repeats exactly.
//!
//! Owns: counting calls and deciding their fate. Does not own: what the store keeps (`object_store`),
//! what its callers make of an error (`format::store`).
//!
//! # Examples
//!
//! ```
//! use std::sync::Arc;
//! use lowtide::fault::{FaultMode, FaultOperation, FaultPlan, FaultStore};
//! use object_store::{ObjectStoreExt, memory::InMemory, path::Path};
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//! # runtime.block_on(async {
//! let store = FaultStore::new(Arc::new(InMemory::new()));
//! store.faults().plan(FaultPlan::first(FaultOperation::Put, FaultMode::After));
//! let name = Path::from("a/data/x");
//! assert!(store.put(&name, "bytes".into()).await.is_err(), "the reply is lost");
//! assert!(store.get(&name).await.is_ok(), "and yet it happened");
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```

mod plan;
mod power;
mod store;
mod upload;

pub use plan::{FaultClass, FaultMode, FaultOperation, FaultPlan, Faults};
pub use power::PowerCut;
pub use store::FaultStore;
