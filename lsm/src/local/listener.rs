//! RocksDB's event listener: finished compactions, the causes of storms; and compactions that are made to wait.

use std::sync::{Arc, Mutex, PoisonError};

use rocksdb::event_listener::{CompactionJobInfo, DBCompactionReason, EventListener};

use super::gate::MergeGate;
use crate::storm::Compaction;

/// More than these between two checkpoints are not remembered, the smallest going first.
const COMPACTIONS_MAX: usize = 64;

/// The compactions since the last look. Clones share the list.
#[derive(Clone, Default)]
pub(crate) struct CompactionLog(Arc<Mutex<Vec<Compaction>>>);

impl CompactionLog {
    /// Takes the compactions out, the largest output first.
    pub(crate) fn take(&self) -> Vec<Compaction> {
        let mut list = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        list.sort_by_key(|compaction| std::cmp::Reverse(compaction.output_bytes));
        list
    }
}

/// What a database reports to, and what its compactions pass.
#[derive(Clone, Default)]
pub(crate) struct Listener {
    pub(crate) log: CompactionLog,
    pub(crate) gate: MergeGate,
}

impl EventListener for Listener {
    fn on_compaction_begin(&self, info: &CompactionJobInfo) {
        // Whoever merges by hand waits for it, perhaps before the checkpoint is written.
        if info.compaction_reason() != DBCompactionReason::KManualCompaction {
            self.gate.pass();
        }
    }

    fn on_compaction_completed(&self, info: &CompactionJobInfo) {
        let name = info.cf_name().unwrap_or_default();
        let name = String::from_utf8_lossy(&name);
        let compaction = Compaction {
            state: super::engine::state_of_family(&name).unwrap_or(&name).to_owned(),
            // RocksDB's names begin with the K of its constants.
            reason: info.compaction_reason().as_str().trim_start_matches('K').to_owned(),
            from_level: info.base_input_level(),
            to_level: info.output_level(),
            input_bytes: info.total_input_bytes(),
            output_bytes: info.total_output_bytes(),
        };
        let mut list = self.log.0.lock().unwrap_or_else(PoisonError::into_inner);
        if list.len() >= COMPACTIONS_MAX {
            let smallest = list.iter().enumerate().min_by_key(|(_, compaction)| compaction.output_bytes);
            if let Some((at, _)) = smallest {
                list.swap_remove(at);
            }
        }
        list.push(compaction);
    }
}
