//! What the suites ask of an engine.

use std::path::Path;
use std::time::Duration;

use super::workload::Kind;
use crate::error::Result;

/// The asynchronous part of a checkpoint, to be run on another thread while the engine goes on.
pub type Writing<W> = Box<dyn FnOnce() -> W + Send>;

/// A checkpoint after its synchronous part.
pub struct Frozen<W> {
    /// The rest of it.
    pub writing: Writing<W>,
    /// How long the task stood still, if a coordinator did something in the same call; otherwise the call is all there was.
    pub pause: Option<Duration>,
}

impl<W> Frozen<W> {
    /// Of an engine without a coordinator.
    pub fn alone(writing: impl FnOnce() -> W + Send + 'static) -> Self {
        Self { writing: Box::new(writing), pause: None }
    }
}

/// How many bytes a checkpoint took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointBytes {
    /// What the engine says this checkpoint added.
    pub claimed: u64,
    /// Everything the checkpoint refers to, as the engine says.
    pub state: u64,
    /// Everything that was written for it.
    pub new_files: u64,
    /// What lies in the checkpoint directory once the one before was dropped.
    pub retained: u64,
}

/// A map from u64 to values of one kind that can be made durable in a directory.
///
/// One checkpoint is retained. Open to engines that are no part of this library.
pub trait Engine<T: Kind>: Sized {
    /// What is known before it starts.
    type Setting;
    /// What writing a checkpoint leaves, for [`Engine::complete`]; failures are in it.
    type Written: Send + 'static;

    /// Its name in the lines.
    fn name(setting: &Self::Setting) -> String;

    /// Whether a checkpoint after which nothing changed writes everything again.
    fn repeats(setting: &Self::Setting) -> bool;

    /// Starts empty, in a directory of its own.
    ///
    /// # Errors
    ///
    /// The engine's own.
    fn create(setting: &Self::Setting, directory: &Path) -> Result<Self>;

    /// Comes back with what the newest checkpoint in the directory holds, knowing nothing else.
    ///
    /// # Errors
    ///
    /// The engine's own.
    fn recover(setting: &Self::Setting, directory: &Path) -> Result<Self>;

    /// Sets a value.
    ///
    /// # Errors
    ///
    /// The engine's own.
    fn put(&mut self, key: u64, value: T::Stored) -> Result<()>;

    /// Looks at a value; none if the key is absent.
    ///
    /// # Errors
    ///
    /// The engine's own.
    fn with<R>(&self, key: u64, look: impl FnOnce(&T::Stored) -> R) -> Result<Option<R>>;

    /// Removes a key.
    ///
    /// # Errors
    ///
    /// The engine's own.
    fn remove(&mut self, key: u64) -> Result<()>;

    /// Entries, counted as the engine counts them.
    ///
    /// # Errors
    ///
    /// The engine's own.
    fn count(&self) -> Result<u64>;

    /// Bytes of memory of tables and values; none if the engine cannot tell.
    fn memory_bytes(&self) -> Option<u64>;

    /// The synchronous part of a checkpoint.
    ///
    /// # Errors
    ///
    /// The engine's own.
    fn freeze(&mut self) -> Result<Frozen<Self::Written>>;

    /// Makes a written checkpoint count and drops the one before.
    ///
    /// # Errors
    ///
    /// What made writing fail, and the engine's own.
    fn complete(&mut self, written: Self::Written) -> Result<CheckpointBytes>;
}
