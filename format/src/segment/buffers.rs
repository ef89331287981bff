//! Memory of segments that is used again.
//!
//! Owns: buffers whose segments nobody holds any more. Does not own: what is written into them (`writer`).
//!
//! A segment is as large as fresh memory is slow: the system hands it out page by page, and clears each of them. A writer
//! of many segments therefore takes the buffer of one that has been let go of, by the store or by whoever took it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;

/// So many buffers wait for their next use; more are given back to the system.
const SPARE_MAX: usize = 2;

/// Buffers of one series of segments. Clones share them; they go when the last clone does.
#[derive(Clone, Debug, Default)]
pub struct SegmentBuffers(Arc<Spare>);

type Spare = Mutex<Vec<Vec<u8>>>;

/// Nothing that is done under the lock can leave the list half changed.
fn lock(spare: &Spare) -> MutexGuard<'_, Vec<Vec<u8>>> {
    spare.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A buffer in use, on its way back.
struct Lent {
    buffer: Vec<u8>,
    home: Weak<Spare>,
}

impl SegmentBuffers {
    /// An empty buffer, with the memory of one that came back if there is any.
    pub(crate) fn take(&self) -> Vec<u8> {
        lock(&self.0).pop().unwrap_or_default()
    }

    /// The bytes of a buffer, which comes back once nobody holds them.
    pub(crate) fn lend(&self, buffer: Vec<u8>) -> Bytes {
        Bytes::from_owner(Lent { buffer, home: Arc::downgrade(&self.0) })
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(home) = self.home.upgrade() else { return };
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let mut spare = lock(&home);
        if spare.len() < SPARE_MAX {
            spare.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_once_nobody_holds_the_bytes() {
        let buffers = SegmentBuffers::default();
        let mut buffer = buffers.take();
        buffer.extend_from_slice(&[7; 1000]);
        let (start, bytes) = (buffer.as_ptr(), buffers.lend(buffer));
        let part = bytes.slice(10..20);
        drop(bytes);
        assert_eq!(buffers.take().capacity(), 0, "memory that somebody still reads was given out");
        assert_eq!(&part[..], [7; 10]);
        drop(part);
        let again = buffers.take();
        assert!(again.is_empty() && again.as_ptr() == start, "the memory did not come back");
    }

    #[test]
    fn few_buffers_wait_and_none_outlives_the_series() {
        let buffers = SegmentBuffers::default();
        let lent: Vec<Bytes> = (0..SPARE_MAX + 3).map(|_| buffers.lend(vec![1; 100])).collect();
        drop(lent);
        assert_eq!(lock(&buffers.0).len(), SPARE_MAX);
        let late = buffers.lend(vec![1; 100]);
        drop(buffers);
        drop(late);
    }
}
