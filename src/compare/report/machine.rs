//! The machine, as far as it can be read; on systems without /proc little is said.

use std::fs;

/// What a reader needs to judge times: processor, number of cores, memory, system.
pub(super) fn description() -> String {
    let processor = field("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = field("/proc/meminfo", "MemTotal")
        .and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok())
        .map_or_else(String::new, |kib| format!(", {:.0} GiB of memory", kib as f64 / f64::from(1 << 20)));
    format!("{processor}, {cores} cores{memory}, {}", std::env::consts::OS)
}

/// The value of the first line `name : value` of a file.
fn field(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'))?;
    Some(value.trim().to_owned())
}
