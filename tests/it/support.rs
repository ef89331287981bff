//! What several topics of the integration tests need.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use lowtide::fault::{FaultStore, Faults};
use lowtide::{Job, Store, ValueState};

/// Runs a test's future on a runtime of its own.
pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// The same store with faults in between.
pub(crate) fn faulty(store: &Store) -> (Store, Faults) {
    let faults = Faults::new();
    let wrapped = store.clone().wrapped(|inner| Arc::new(FaultStore::with_faults(inner, faults.clone())));
    (wrapped, faults)
}

/// A job of text keys and values in the void namespace, with its state `s`.
pub(crate) struct TextJob {
    pub(crate) job: Job,
    pub(crate) state: ValueState<String, String>,
}

impl TextJob {
    /// A job whose state `s` is registered.
    pub(crate) fn of(mut job: Job) -> Self {
        let state = job.value_state("s").unwrap();
        Self { job, state }
    }

    /// An empty job in `store`.
    pub(crate) async fn create(name: &str, subtasks: u32, store: &Store) -> Self {
        Self::of(Job::builder(name).subtasks(subtasks).key_groups(8).create(store).await.unwrap())
    }

    pub(crate) fn put(&mut self, key: &str, value: &str) {
        self.job.state_mut(&self.state).put(key.to_owned(), value.to_owned()).unwrap();
    }

    pub(crate) fn remove(&mut self, key: &str) -> Option<String> {
        self.job.state_mut(&self.state).remove(key).unwrap()
    }

    /// Everything in the state, sorted by key.
    pub(crate) fn dump(&self) -> BTreeMap<String, String> {
        let access = self.job.state(&self.state);
        access
            .iter()
            .unwrap()
            .map(|entry| {
                let (key, (), value) =
                    entry.map(|(key, _void, value)| (key.clone(), (), value.clone())).unwrap();
                (key, value)
            })
            .collect()
    }
}

/// Pairs as a map, to compare a dump with.
pub(crate) fn map_of(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}
