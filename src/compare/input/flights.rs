//! The flights of January 2013, built into the program.
//!
//! Source and licence: `data/flights/README.md`.

use std::collections::VecDeque;
use std::path::Path;

use chrono::NaiveDate;
use csv::StringRecord;
use flate2::read::GzDecoder;

use super::{Events, csv_reader, table_failure, until_failure};
use crate::compare::error::{CompareError, RowProblem};
use crate::compare::event::{Event, Flight};

const ROWS: &[u8] = include_bytes!("../../../data/flights/nycflights13-2013-01.csv.gz");
const NAME: &str = "data/flights/nycflights13-2013-01.csv.gz";
const COLUMNS: [&str; 10] =
    ["date", "sched", "carrier", "flight", "tailnum", "origin", "dest", "dep_delay", "arr_delay", "distance"];
/// Totals of a carrier and hour go once they are this old.
const HOURS_KEPT: u32 = 24;

/// The built-in flights, with the expiry of the hourly totals between them.
pub(super) fn built_in() -> Result<Events, CompareError> {
    let mut rows = csv_reader(GzDecoder::new(ROWS));
    let file = Path::new(NAME);
    let header = rows.headers().map_err(|error| table_failure(file, error))?;
    for column in COLUMNS {
        if !header.iter().any(|name| name == column) {
            let present = header.iter().map(str::to_owned).collect();
            return Err(CompareError::Column { file: file.to_owned(), column: column.to_owned(), present });
        }
    }
    let flights = rows.into_records().map(|row| {
        let file = Path::new(NAME);
        let row = row.map_err(|error| table_failure(file, error))?;
        let line = row.position().map_or(0, csv::Position::line);
        flight(&row).map_err(|problem| CompareError::Row { file: file.to_owned(), line, problem })
    });
    Ok(until_failure(Expiry { flights, kept: VecDeque::new(), due: None }))
}

fn flight(row: &StringRecord) -> Result<Flight, RowProblem> {
    let mut fields = [""; COLUMNS.len()];
    if row.len() != fields.len() {
        return Err(RowProblem::Fields { found: row.len(), expected: fields.len() });
    }
    for (field, text) in fields.iter_mut().zip(row) {
        *field = text;
    }
    let [date, sched, carrier, number, aircraft, origin, destination, departure, arrival, _distance] = fields;
    let day = NaiveDate::parse_from_str(date, "%Y%m%d")
        .ok()
        .and_then(|date| u32::try_from(date.to_epoch_days()).ok())
        .filter(|day| *day < 1 << 20)
        .ok_or_else(|| bad("date", date, "a date yyyymmdd from 1970 on"))?;
    let time: u32 = sched.parse().map_err(|_| bad("sched", sched, "a time hhmm"))?;
    if time >= 2400 || time % 100 >= 60 {
        return Err(bad("sched", sched, "a time hhmm"));
    }
    Ok(Flight {
        day,
        hour: day * 24 + time / 100,
        carrier: carrier.to_owned(),
        number: number.parse().map_err(|_| bad("flight", number, "a number"))?,
        aircraft: (!aircraft.is_empty()).then(|| aircraft.to_owned()),
        origin: origin.to_owned(),
        destination: destination.to_owned(),
        departure_delay_min: minutes("dep_delay", departure)?,
        arrival_delay_min: minutes("arr_delay", arrival)?,
    })
}

fn minutes(column: &'static str, text: &str) -> Result<Option<i32>, RowProblem> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| bad(column, text, "minutes or nothing"))
}

fn bad(column: &'static str, value: &str, expected: &'static str) -> RowProblem {
    RowProblem::Field { column, value: value.to_owned(), expected }
}

/// Puts the expiry of hourly totals between the flights: before a flight, everything that is a day old goes.
struct Expiry<I> {
    flights: I,
    /// Carriers and hours with totals, oldest hour first, each once.
    kept: VecDeque<(u32, String)>,
    /// The flight that waits until what it makes expire is out.
    due: Option<Flight>,
}

impl<I: Iterator<Item = Result<Flight, CompareError>>> Iterator for Expiry<I> {
    type Item = Result<Event, CompareError>;

    fn next(&mut self) -> Option<Self::Item> {
        let flight = match self.due.take() {
            Some(flight) => flight,
            None => match self.flights.next()? {
                Ok(flight) => flight,
                Err(error) => return Some(Err(error)),
            },
        };
        if let Some((hour, _)) = self.kept.front()
            && hour.saturating_add(HOURS_KEPT) <= flight.hour
            && let Some((hour, carrier)) = self.kept.pop_front()
        {
            self.due = Some(flight);
            return Some(Ok(Event::Expire { carrier, hour }));
        }
        let newest = self.kept.iter().rev().take_while(|(hour, _)| *hour == flight.hour);
        if !newest.into_iter().any(|(_, carrier)| *carrier == flight.carrier) {
            self.kept.push_back((flight.hour, flight.carrier.clone()));
        }
        Some(Ok(Event::Departure(flight)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn events() -> Vec<Event> {
        built_in().unwrap().collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn the_built_in_table_has_every_departure_of_january_2013() {
        let flights = events().into_iter().filter(|event| matches!(event, Event::Departure(_)));
        assert_eq!(flights.count(), 27_004);
    }

    #[test]
    fn an_hourly_total_goes_once_and_only_when_it_is_a_day_old() {
        let mut kept = BTreeSet::new();
        let mut now = 0;
        let mut expired = 0;
        for event in events() {
            match event {
                Event::Departure(flight) => {
                    assert!(kept.iter().all(|(hour, _)| hour + HOURS_KEPT > flight.hour));
                    now = flight.hour;
                    kept.insert((flight.hour, flight.carrier));
                }
                Event::Expire { carrier, hour } => {
                    assert!(kept.remove(&(hour, carrier)), "an hour that was not kept expired");
                    expired += 1;
                }
                other => panic!("unexpected {other:?}"),
            }
        }
        assert!(now > 0 && expired > 4_000, "{expired} hours expired");
    }

    #[test]
    fn a_row_names_the_column_that_cannot_be_read() {
        let row = ["20130101", "560", "UA", "1", "N1", "EWR", "IAH", "2", "11", "1400"];
        let problem = flight(&StringRecord::from(row.to_vec())).unwrap_err();
        assert_eq!(problem, bad("sched", "560", "a time hhmm"));
        let short = flight(&StringRecord::from(vec!["20130101"])).unwrap_err();
        assert_eq!(short, RowProblem::Fields { found: 1, expected: 10 });
    }
}
