//! The figures as lines of JSON, in the shape that the harness of the peers writes.
//!
//! Owns: names and order of the fields. Does not own: what a metric means (the suites).

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use serde::{Deserialize, Serialize, Serializer};

use super::spec::{PeerSpec, Suite};
use crate::compare::error::CompareError;

/// Takes a line as soon as its figure is known.
pub type LineSink<'a> = dyn FnMut(&Line) -> io::Result<()> + 'a;

/// What the lines of a run say about where it ran.
#[derive(Clone, Debug, PartialEq)]
pub struct Labels {
    /// Release of Flink; tables are made of lines that agree in it.
    pub flink: String,
    /// Virtual machine and its flags; tables are made of lines that agree in it.
    pub jvm: String,
    /// Load average when the run began.
    pub load1: f64,
}

#[derive(Deserialize)]
struct Seen {
    flink: String,
    jvm: String,
}

impl Labels {
    /// Those of this library, in tables of its own.
    #[must_use]
    pub fn own() -> Self {
        Self {
            flink: "none".to_owned(),
            jvm: concat!("lowtide-", env!("CARGO_PKG_VERSION")).to_owned(),
            load1: load(),
        }
    }

    /// Those of the first line of a file of figures, so that both come into the same tables.
    ///
    /// # Errors
    ///
    /// [`CompareError::Read`] if the file cannot be read or its first line is no figure.
    pub fn beside(file: &Path) -> Result<Self, CompareError> {
        let failed = |source| CompareError::Read { file: file.to_owned(), source };
        let mut line = String::new();
        BufReader::new(File::open(file).map_err(failed)?).read_line(&mut line).map_err(failed)?;
        let seen: Seen = serde_json::from_str(&line).map_err(|error| failed(error.into()))?;
        Ok(Self { flink: seen.flink, jvm: seen.jvm, load1: load() })
    }
}

/// The load average of the last minute; 0 where the system does not tell.
fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0.0)
}

/// One figure with everything that tells it apart.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// `rounds` or `micro`.
    pub suite: &'static str,
    /// See [`Labels::flink`].
    pub flink: String,
    /// See [`Labels::jvm`].
    pub jvm: String,
    /// Name of the engine.
    pub backend: String,
    /// See [`Labels::load1`].
    pub load1: f64,
    /// Keys.
    pub n: u64,
    /// Kind of the values.
    pub kind: &'static str,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// How updates choose their keys; of suite `rounds`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dist: Option<&'static str>,
    /// Updates a round in per cent of the keys; of suite `rounds`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upct: Option<f64>,
    /// Repetition, from 0.
    pub rep: u32,
    /// Step of the suite.
    pub phase: &'static str,
    /// Number of the checkpoint, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ckpt: Option<u32>,
    /// What was measured.
    pub metric: &'static str,
    /// What it came to.
    pub value: LineValue,
    /// What the value counts.
    pub unit: &'static str,
}

/// A figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LineValue {
    /// A number.
    Number(f64),
    /// 64 bits, which a JSON number would round: as 16 hexadecimal digits.
    Bits(u64),
}

impl Serialize for LineValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            LineValue::Number(number) if number.fract() == 0.0 && number.abs() < 1e15 => {
                serializer.serialize_i64(number as i64)
            }
            LineValue::Number(number) => serializer.serialize_f64(number),
            LineValue::Bits(bits) => serializer.serialize_str(&format!("{bits:016x}")),
        }
    }
}

impl fmt::Display for LineValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LineValue::Number(number) => write!(f, "{number}"),
            LineValue::Bits(bits) => write!(f, "\"{bits:016x}\""),
        }
    }
}

/// Where the suites put their figures.
pub(super) struct Out<'a> {
    /// What all lines have in common.
    blank: Line,
    sink: &'a mut LineSink<'a>,
    is_muted: bool,
}

/// A figure that belongs to a step: phase, checkpoint (0 for none), metric, value, unit.
pub(super) type Figure = (&'static str, u32, &'static str, f64, &'static str);

impl<'a> Out<'a> {
    pub(super) fn new(spec: &PeerSpec, labels: &Labels, backend: String, sink: &'a mut LineSink<'a>) -> Self {
        let is_rounds = spec.suite == Suite::Rounds;
        let blank = Line {
            suite: spec.suite.name(),
            flink: labels.flink.clone(),
            jvm: labels.jvm.clone(),
            backend,
            load1: labels.load1,
            n: spec.n,
            kind: spec.value.name(),
            value_bytes: spec.value.bytes(),
            dist: is_rounds.then(|| spec.dist.name()),
            upct: is_rounds.then_some(spec.upct),
            rep: 0,
            phase: "",
            ckpt: None,
            metric: "",
            value: LineValue::Number(0.0),
            unit: "",
        };
        Self { blank, sink, is_muted: false }
    }

    /// The engine.
    pub(super) fn backend(&self) -> &str {
        &self.blank.backend
    }

    /// Begins a repetition; none warms up, and nothing of it is written.
    pub(super) fn begin(&mut self, rep: Option<u32>) {
        self.is_muted = rep.is_none();
        self.blank.rep = rep.unwrap_or(0);
    }

    pub(super) fn figure(&mut self, figure: Figure) -> Result<(), CompareError> {
        let (phase, ckpt, metric, value, unit) = figure;
        self.write(Line { phase, metric, unit, value: LineValue::Number(value), ..self.line(ckpt) })
    }

    pub(super) fn checksum(&mut self, phase: &'static str, bits: u64) -> Result<(), CompareError> {
        let value = LineValue::Bits(bits);
        self.write(Line { phase, metric: "checksum", unit: "u64", value, ..self.line(0) })
    }

    fn line(&self, ckpt: u32) -> Line {
        Line { ckpt: (ckpt > 0).then_some(ckpt), ..self.blank.clone() }
    }

    fn write(&mut self, line: Line) -> Result<(), CompareError> {
        if self.is_muted {
            return Ok(());
        }
        (self.sink)(&line).map_err(|source| CompareError::Lines { source })
    }
}
