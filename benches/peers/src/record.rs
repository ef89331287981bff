//! What a bar came to, as one JSON object a line on standard output.

use serde::{Deserialize, Serialize};

/// One measurement held against a bar, or a figure beside it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// Row of the table of bars.
    pub bar: String,
    /// What exactly was measured.
    pub case: String,
    /// What it came to.
    pub value: f64,
    /// What `value` counts: `ratio`, `us`, `GB/s`.
    pub unit: String,
    /// The bar; none for a figure that only explains.
    pub limit: Option<f64>,
    /// Whether `value` has to be at least the limit, rather than at most.
    pub at_least: bool,
    /// The two sides of the ratio, or what else a reader needs.
    pub detail: String,
    /// Whether it is of a program that does strictly less, and only tells whether the bar can be met.
    #[serde(default)]
    pub least: bool,
}

impl Record {
    /// A figure without a bar.
    #[must_use]
    pub fn new(bar: &str, case: &str, (value, unit): (f64, &str)) -> Self {
        Self {
            bar: bar.to_owned(),
            case: case.to_owned(),
            value,
            unit: unit.to_owned(),
            limit: None,
            at_least: false,
            detail: String::new(),
            least: false,
        }
    }

    /// It has to be at most this.
    #[must_use]
    pub fn at_most(self, limit: f64) -> Self {
        Self { limit: Some(limit), at_least: false, ..self }
    }

    /// It has to be at least this.
    #[must_use]
    pub fn at_least(self, limit: f64) -> Self {
        Self { limit: Some(limit), at_least: true, ..self }
    }

    /// What a reader needs beside the figure.
    #[must_use]
    pub fn detail(self, detail: String) -> Self {
        Self { detail, ..self }
    }

    /// It is of a program that does strictly less.
    #[must_use]
    pub fn least(self, least: bool) -> Self {
        Self { least, ..self }
    }

    /// Whether this is the row of `other`, measured on a program that does strictly less, and misses the bar as well.
    #[must_use]
    pub fn is_limit_of(&self, other: &Self) -> bool {
        self.least && (&self.bar, &self.case) == (&other.bar, &other.case) && self.is_met() == Some(false)
    }

    /// Whether the bar is met; none without a bar.
    #[must_use]
    pub fn is_met(&self) -> Option<bool> {
        let limit = self.limit?;
        Some(if self.at_least { self.value >= limit } else { self.value <= limit })
    }

    /// Prints it as a line of JSON, and for a reader on standard error.
    pub fn print(&self) {
        let verdict = match self.is_met() {
            None => "",
            Some(true) => "  pass",
            Some(false) => "  FAIL",
        };
        eprintln!(
            "{:<10} {:<44} {:>9.3} {}{verdict}  {}",
            self.bar, self.case, self.value, self.unit, self.detail
        );
        if let Ok(line) = serde_json::to_string(self) {
            println!("{line}");
        }
    }
}
