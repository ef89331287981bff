//! Measures one row of the bars: `bars ROW [--entries N] [--rounds R] [--only KIND]`.
//!
//! Prints a line of JSON per figure on standard output, and the same for a reader on standard error.

use std::process::ExitCode;

use lowtide_peers::bars::{Scale, access, beside, encode, freeze, many, memory, restore};
use lowtide_peers::kinds::{Hundreds, Kind, Numbers, Pairs, Texts};

const USAGE: &str = "usage: bars access|chained|many|freeze|beside|encode|restore|memory|slowest [--entries N] [--rounds R] [--only KIND]";

/// What was asked for.
struct Request {
    row: String,
    scale: Scale,
    only: Option<String>,
}

impl Request {
    fn parse(mut words: impl Iterator<Item = String>) -> Option<Self> {
        let mut request =
            Self { row: words.next()?, scale: Scale { entries: 1_000_000, rounds: 7 }, only: None };
        while let Some(name) = words.next() {
            let value = words.next()?;
            match name.as_str() {
                "--entries" => request.scale.entries = value.parse().ok().filter(|entries| *entries > 0)?,
                "--rounds" => request.scale.rounds = value.parse().ok().filter(|rounds| *rounds > 0)?,
                "--only" => request.only = Some(value),
                _ => return None,
            }
        }
        Some(request)
    }

    fn access<T: Kind>(&self) {
        if self.only.as_deref().is_none_or(|only| only == T::NAME) {
            access::run::<T>(self.scale);
        }
    }
}

fn main() -> ExitCode {
    let Some(request) = Request::parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match request.row.as_str() {
        "access" => {
            request.access::<Numbers>();
            request.access::<Hundreds>();
            request.access::<Texts>();
            request.access::<Pairs>();
        }
        "chained" => access::run_chained(request.scale),
        "many" => many::run(request.scale),
        "freeze" => freeze::run(request.scale),
        "beside" => beside::run(request.scale),
        "slowest" => beside::run_slowest(request.scale),
        "memory" => memory::run(request.scale),
        "encode" => encode::run(request.scale),
        "restore" => restore::run(request.scale),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
