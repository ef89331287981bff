//! Lines of the peer suites, read back: medians of what was seen, by engine.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::measure::median;

/// The fields of a line that ratios are made of.
#[derive(Clone, Debug, Deserialize)]
pub struct PeerLine {
    /// `rounds` or `micro`.
    pub suite: String,
    /// Engine.
    pub backend: String,
    /// Keys.
    pub n: u64,
    /// Kind of the values.
    pub kind: String,
    /// Per cent of updates a round.
    pub upct: Option<f64>,
    /// How keys are chosen.
    pub dist: Option<String>,
    /// Step of the suite.
    pub phase: String,
    /// Number of the checkpoint.
    pub ckpt: Option<u32>,
    /// What was measured.
    pub metric: String,
    /// What it came to; a checksum is text.
    pub value: serde_json::Value,
}

/// What tells two sets of figures apart: suite and workload, then engine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Setting {
    /// Suite, keys, values and, for rounds, the choice of keys and the share of updates.
    pub workload: String,
    /// The engine.
    pub engine: String,
}

/// All figures of one setting.
#[derive(Clone, Debug, Default)]
pub struct Figures(Vec<PeerLine>);

/// Puts lines of JSON together by setting; a line that is none of a suite is left out.
#[must_use]
pub fn by_setting(texts: &[String]) -> BTreeMap<Setting, Figures> {
    let mut settings: BTreeMap<Setting, Figures> = BTreeMap::new();
    for line in texts.iter().flat_map(|text| text.lines()) {
        let Ok(line) = serde_json::from_str::<PeerLine>(line) else { continue };
        let mut workload = format!("{}, {} keys, {}", line.suite, line.n, line.kind);
        if let (Some(dist), Some(upct)) = (&line.dist, line.upct) {
            workload += &format!(", {dist} {upct} %");
        }
        let setting = Setting { workload, engine: line.backend.clone() };
        settings.entry(setting).or_default().0.push(line);
    }
    settings
}

impl Figures {
    fn values(&self, phase: &str, metric: &str) -> impl Iterator<Item = f64> {
        let of_it =
            move |line: &&PeerLine| line.phase == phase && line.metric == metric && line.ckpt != Some(1);
        self.0.iter().filter(of_it).filter_map(|line| line.value.as_f64())
    }

    /// The median over repetitions and over the checkpoints after the first.
    #[must_use]
    pub fn median(&self, phase: &str, metric: &str) -> Option<f64> {
        let values: Vec<f64> = self.values(phase, metric).collect();
        (!values.is_empty()).then(|| median(values))
    }

    /// The largest over repetitions and over the checkpoints after the first.
    #[must_use]
    pub fn largest(&self, phase: &str, metric: &str) -> Option<f64> {
        self.values(phase, metric).reduce(f64::max)
    }
}
