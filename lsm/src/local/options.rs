//! Settings of the RocksDB backend and what RocksDB is told because of them.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rocksdb::{
    BlockBasedOptions, BottommostLevelCompaction, Cache, CompactOptions, DBCompressionType, Options,
    RateLimiterMode, WriteBufferManager,
};

use super::gate::MergeGate;
use super::listener::{CompactionLog, Listener};
use crate::error::LsmError;
use crate::storm::StormOptions;

/// What an options hook may change: called once per database and once per state, after lowtide's own settings.
pub enum OptionsScope<'a> {
    /// Options of the whole database.
    Database(&'a mut Options),
    /// Options of one state's column family, with the name of the state.
    State(&'a str, &'a mut Options),
}

/// A user's own settings of RocksDB.
pub type OptionsHook = Arc<dyn Fn(OptionsScope<'_>) + Send + Sync>;

/// Settings of one RocksDB backend.
#[derive(Clone)]
pub struct LsmOptions {
    /// Where working directories are made. Everything in them can be lost: what counts lies in the store.
    pub directory: PathBuf,
    /// Bytes for block cache and write buffers of all states together. At least 1 MiB.
    pub memory_budget: u64,
    /// Size in bytes at which compaction closes a table; bounds what one changed key makes new.
    pub table_bytes_target: u64,
    /// Size in bytes of the first level; each further one is ten times as large.
    pub level_bytes_base: u64,
    /// So many flushed tables of a state lie side by side before they are merged into the first level, which makes
    /// about as many bytes new as that level has. More of them means fewer storms and slower reads. At least 2.
    pub flushes_per_merge: u16,
    /// Bytes per second that flushes and compactions may write; none for no limit.
    pub background_bytes_per_second: Option<u64>,
    /// A merge that would begin while a checkpoint is being written waits until it is, at most so long; none for no
    /// waiting. Leaves disk and network to the upload. Merges by hand do not wait.
    pub merge_delay_max: Option<Duration>,
    /// How many flushes and compactions run at a time.
    pub background_jobs: u16,
    /// When a checkpoint counts as a compaction storm.
    pub storm: StormOptions,
    /// A checkpoint says how many entries it has. Up to so many records it counts them one by one, beyond that it counts
    /// some key groups of each state and tells the rest from them, within some per cent.
    pub entries_counted_max: u64,
    /// Changes RocksDB's options after lowtide has set its own.
    pub hook: Option<OptionsHook>,
}

impl Default for LsmOptions {
    /// Working directories in the temporary directory, 128 MiB of memory, tables of 16 MiB, no rate limit.
    fn default() -> Self {
        Self {
            directory: std::env::temp_dir().join("lowtide"),
            memory_budget: 128 << 20,
            table_bytes_target: 16 << 20,
            level_bytes_base: 64 << 20,
            flushes_per_merge: 4,
            background_bytes_per_second: None,
            merge_delay_max: None,
            background_jobs: 2,
            storm: StormOptions::default(),
            entries_counted_max: 1 << 20,
            hook: None,
        }
    }
}

impl fmt::Debug for LsmOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LsmOptions")
            .field("directory", &self.directory)
            .field("memory_budget", &self.memory_budget)
            .field("table_bytes_target", &self.table_bytes_target)
            .field("level_bytes_base", &self.level_bytes_base)
            .field("flushes_per_merge", &self.flushes_per_merge)
            .field("background_bytes_per_second", &self.background_bytes_per_second)
            .field("merge_delay_max", &self.merge_delay_max)
            .field("background_jobs", &self.background_jobs)
            .finish_non_exhaustive()
    }
}

/// RocksDB's options, made once per backend and shared by all its states.
pub(crate) struct EngineOptions {
    pub(crate) database: Options,
    pub(crate) listener: Listener,
    state: Options,
    hook: Option<OptionsHook>,
}

impl EngineOptions {
    /// Translates `options`.
    pub(crate) fn new(options: &LsmOptions) -> Result<Self, LsmError> {
        let refuse = |option, problem| Err(LsmError::Option { option, problem });
        if options.memory_budget < 1 << 20 {
            return refuse("memory_budget", "it is below 1 MiB");
        }
        if options.table_bytes_target < 1 << 10 || options.level_bytes_base < options.table_bytes_target {
            return refuse("table_bytes_target", "it is below 1 KiB or above level_bytes_base");
        }
        if options.flushes_per_merge < 2 {
            return refuse("flushes_per_merge", "it is below 2");
        }
        let gate = MergeGate::new(options.merge_delay_max);
        let listener = Listener { log: CompactionLog::default(), gate };
        let memory = usize::try_from(options.memory_budget).unwrap_or(usize::MAX);
        let cache = Cache::new_lru_cache(memory);
        let mut database = Options::default();
        database.create_if_missing(true);
        // Without a log, column families flushed at different times would tell of different moments.
        database.set_atomic_flush(true);
        // What is not in a checkpoint is lost by design; flushing it on the way out is work for nobody.
        database.set_avoid_flush_during_shutdown(true);
        database.set_write_buffer_manager(&WriteBufferManager::new_write_buffer_manager_with_cache(
            memory / 2,
            false,
            cache.clone(),
        ));
        database.set_max_background_jobs(i32::from(options.background_jobs.max(1)));
        // Every checkpoint carries the manifest, so that it is not left to grow.
        database.set_max_manifest_file_size(32 << 10);
        database.set_stats_dump_period_sec(0);
        database.set_keep_log_file_num(1);
        database.set_log_level(rocksdb::LogLevel::Warn);
        database.add_event_listener(listener.clone());
        if let Some(bytes) = options.background_bytes_per_second {
            let bytes = i64::try_from(bytes).unwrap_or(i64::MAX).max(1);
            database.set_ratelimiter_with_mode(bytes, 100_000, 10, RateLimiterMode::KWritesOnly, false);
        }
        if let Some(hook) = &options.hook {
            hook(OptionsScope::Database(&mut database));
        }
        let mut state = database.clone();
        state.set_block_based_table_factory(&table_options(&cache));
        state.set_write_buffer_size((memory / 4).clamp(64 << 10, 64 << 20));
        state.set_target_file_size_base(options.table_bytes_target);
        state.set_max_bytes_for_level_base(options.level_bytes_base);
        state.set_level_compaction_dynamic_level_bytes(true);
        // Writers slow down and stop at RocksDB's usual distance from the merge.
        let flushes = i32::from(options.flushes_per_merge);
        state.set_level_zero_file_num_compaction_trigger(flushes);
        state.set_level_zero_slowdown_writes_trigger(flushes.saturating_mul(5).max(20));
        state.set_level_zero_stop_writes_trigger(flushes.saturating_mul(9).max(36));
        state.set_compression_type(DBCompressionType::Lz4);
        Ok(Self { database, listener, state, hook: options.hook.clone() })
    }

    /// Options of one state's column family.
    pub(crate) fn of_state(&self, name: &str) -> Result<Options, LsmError> {
        let mut options = self.state.clone();
        if let Some(hook) = &self.hook {
            hook(OptionsScope::State(name, &mut options));
        }
        if options.get_enable_blob_files() {
            let problem = "blob files are not part of checkpoints; leave them off";
            return Err(LsmError::Option { option: "hook", problem });
        }
        Ok(options)
    }
}

fn table_options(cache: &Cache) -> BlockBasedOptions {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(cache);
    table.set_bloom_filter(10.0, false);
    // Filters and indexes count towards the budget, those of the newest tables stay in memory.
    table.set_cache_index_and_filter_blocks(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    table
}

/// Rewrites everything in a range, whatever level it lies on, so that nothing deleted stays.
pub(crate) fn compact_away() -> CompactOptions {
    let mut options = CompactOptions::default();
    options.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
    options.set_exclusive_manual_compaction(false);
    options
}
