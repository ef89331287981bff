//! What the inputs of the comparison are made of.
//!
//! Every input becomes a stream of [`Event`]s; a contender and the model each fold the same stream
//! into their own state.

use serde::{Deserialize, Serialize};

/// One step of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// An aircraft was scheduled to leave: adds to its aircraft, its route and day, its carrier and hour.
    Departure(Flight),
    /// The totals of a carrier and hour are a day old and go.
    Expire {
        /// Carrier code.
        carrier: String,
        /// Hours since 1970-01-01 00:00 local time.
        hour: u32,
    },
    /// Sets a key of the plain state.
    Put {
        /// Key, any bytes.
        key: Vec<u8>,
        /// Value, any bytes.
        value: Vec<u8>,
    },
    /// Removes a key of the plain state; absent is fine.
    Remove {
        /// Key, any bytes.
        key: Vec<u8>,
    },
    /// Removes every key of the plain state.
    Clear,
    /// The input asks for a checkpoint.
    Mark,
}

impl Event {
    /// Whether the event counts towards `--checkpoint-every` and `--limit`: marks and the expiry that
    /// departures bring about do not.
    pub(super) fn is_counted(&self) -> bool {
        !matches!(self, Event::Mark | Event::Expire { .. })
    }
}

/// One scheduled departure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flight {
    /// Days since 1970-01-01, local time.
    pub(super) day: u32,
    /// Hours since 1970-01-01 00:00, local time.
    pub(super) hour: u32,
    /// Carrier code.
    pub(super) carrier: String,
    /// Flight number of the carrier.
    pub(super) number: u32,
    /// Registration of the aircraft, where known.
    pub(super) aircraft: Option<String>,
    /// Airport code of the departure.
    pub(super) origin: String,
    /// Airport code of the arrival.
    pub(super) destination: String,
    /// Minutes late at departure; none: cancelled.
    pub(super) departure_delay_min: Option<i32>,
    /// Minutes late at arrival; none: cancelled or diverted.
    pub(super) arrival_delay_min: Option<i32>,
}

impl Flight {
    /// Name of the route, `JFK-MIA`.
    pub(super) fn route(&self) -> String {
        format!("{}-{}", self.origin, self.destination)
    }
}

/// What is kept per aircraft, per route and day, per carrier and hour: counts, sums, last values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Totals {
    /// Departures that took place.
    pub(super) departed: u32,
    /// Departures that were cancelled.
    pub(super) cancelled: u32,
    /// Sum of the departure delays, in minutes.
    pub(super) departure_delay_min: i64,
    /// Sum of the arrival delays, in minutes.
    pub(super) arrival_delay_min: i64,
    /// Number of the last flight.
    pub(super) last_flight: u32,
    /// Hour of the last flight, since 1970-01-01 00:00 local time.
    pub(super) last_hour: u32,
    /// Destination of the last flight.
    pub(super) last_destination: String,
}

impl Totals {
    /// Adds one flight.
    pub(super) fn add(&mut self, flight: &Flight) {
        match flight.departure_delay_min {
            Some(delay) => {
                self.departed += 1;
                self.departure_delay_min += i64::from(delay);
            }
            None => self.cancelled += 1,
        }
        self.arrival_delay_min += i64::from(flight.arrival_delay_min.unwrap_or(0));
        self.last_flight = flight.number;
        self.last_hour = flight.hour;
        self.last_destination.clone_from(&flight.destination);
    }

    /// The totals of one flight alone.
    pub(super) fn of(flight: &Flight) -> Self {
        let mut totals = Self::default();
        totals.add(flight);
        totals
    }
}
