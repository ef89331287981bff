//! The independent model: an ordered map that says what must be there after the restore.
//!
//! It owns the truth of the comparison: which entries exist, and how many bytes changed between two
//! checkpoints. It shares no code with the engine.

use std::collections::{BTreeMap, HashMap};

use super::event::{Event, Totals};

/// Where an entry lives: its state, key and namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Cell {
    /// State `aircraft`: by registration.
    Aircraft(String),
    /// State `routes`: by route, namespace the day.
    Route(String, u32),
    /// State `hours`: by carrier, namespace the hour.
    Hour(String, u32),
    /// State `entries`: by plain key.
    Entry(Vec<u8>),
}

impl Cell {
    fn bytes(&self) -> u64 {
        let length = match self {
            Cell::Aircraft(key) => key.len(),
            Cell::Route(key, _) | Cell::Hour(key, _) => key.len() + size_of::<u32>(),
            Cell::Entry(key) => key.len(),
        };
        length as u64
    }
}

/// What an entry holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Of the flight states.
    Totals(Totals),
    /// Of the plain state.
    Bytes(Vec<u8>),
}

impl Content {
    fn bytes(&self) -> u64 {
        match self {
            // The numbers as fixed-width fields: four of 4 bytes, two of 8.
            Content::Totals(totals) => 32 + totals.last_destination.len() as u64,
            Content::Bytes(bytes) => bytes.len() as u64,
        }
    }
}

/// What happened between two checkpoints, in bytes of keys, namespaces and values before any encoding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Interval {
    /// Events fed since the last checkpoint.
    pub(super) events: u64,
    /// Keys that were set or removed since the last checkpoint, each once; keys that came and went in
    /// between, and keys removed by a clear, do not count.
    pub(super) changed_keys: u64,
    /// Bytes of those keys, and of their new values.
    pub(super) changed_bytes: u64,
    /// Bytes of all entries at the checkpoint.
    pub(super) live_bytes: u64,
    /// Entries at the checkpoint.
    pub(super) entries: u64,
}

/// Expected entries, with what changed since the last checkpoint.
#[derive(Debug, Default)]
pub(super) struct Model {
    entries: BTreeMap<Cell, Content>,
    live_bytes: u64,
    events: u64,
    /// Cells touched since the last checkpoint, with whether they existed then.
    touched: HashMap<Cell, bool>,
}

impl Model {
    /// Follows one event.
    pub(super) fn apply(&mut self, event: &Event) {
        self.events += u64::from(event.is_counted());
        match event {
            Event::Departure(flight) => {
                if let Some(aircraft) = &flight.aircraft {
                    self.add(Cell::Aircraft(aircraft.clone()), flight);
                }
                self.add(Cell::Route(flight.route(), flight.day), flight);
                self.add(Cell::Hour(flight.carrier.clone(), flight.hour), flight);
            }
            Event::Expire { carrier, hour } => self.remove(Cell::Hour(carrier.clone(), *hour)),
            Event::Put { key, value } => self.put(Cell::Entry(key.clone()), Content::Bytes(value.clone())),
            Event::Remove { key } => self.remove(Cell::Entry(key.clone())),
            Event::Clear => self.clear_plain(),
            Event::Mark => {}
        }
    }

    fn add(&mut self, cell: Cell, flight: &super::event::Flight) {
        let mut totals = match self.entries.get(&cell) {
            Some(Content::Totals(totals)) => totals.clone(),
            _ => Totals::default(),
        };
        totals.add(flight);
        self.put(cell, Content::Totals(totals));
    }

    fn put(&mut self, cell: Cell, content: Content) {
        self.live_bytes += cell.bytes() + content.bytes();
        let old = self.entries.insert(cell.clone(), content);
        if let Some(old) = &old {
            self.live_bytes -= cell.bytes() + old.bytes();
        }
        self.touched.entry(cell).or_insert(old.is_some());
    }

    fn remove(&mut self, cell: Cell) {
        if let Some(old) = self.entries.remove(&cell) {
            self.live_bytes -= cell.bytes() + old.bytes();
            self.touched.entry(cell).or_insert(true);
        }
    }

    /// A clear is one event however many keys it empties: they leave the set of changed keys.
    fn clear_plain(&mut self) {
        let Self { entries, live_bytes, touched, .. } = self;
        entries.retain(|cell, content| {
            let stays = !matches!(cell, Cell::Entry(_));
            if !stays {
                *live_bytes -= cell.bytes() + content.bytes();
            }
            stays
        });
        touched.retain(|cell, _| !matches!(cell, Cell::Entry(_)));
    }

    /// Ends an interval at a checkpoint and sums it up. Costs O(keys changed since the last one).
    pub(super) fn checkpoint(&mut self) -> Interval {
        let mut interval = Interval {
            events: self.events,
            live_bytes: self.live_bytes,
            entries: self.entries.len() as u64,
            ..Interval::default()
        };
        for (cell, existed) in self.touched.drain() {
            let content = self.entries.get(&cell);
            if content.is_some() || existed {
                interval.changed_keys += 1;
                interval.changed_bytes += cell.bytes() + content.map_or(0, Content::bytes);
            }
        }
        self.events = 0;
        interval
    }

    /// Expected entries, in order.
    pub(super) fn entries(&self) -> impl ExactSizeIterator<Item = (&Cell, &Content)> {
        self.entries.iter()
    }

    /// What must be at `cell`.
    pub(super) fn get(&self, cell: &Cell) -> Option<&Content> {
        self.entries.get(cell)
    }

    /// Number of expected entries.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, value: &str) -> Event {
        Event::Put { key: key.into(), value: value.into() }
    }

    #[test]
    fn a_key_changed_twice_counts_once_with_its_last_value() {
        let mut model = Model::default();
        model.apply(&put("key", "a"));
        model.apply(&put("key", "long value"));
        let interval = model.checkpoint();
        assert_eq!((interval.changed_keys, interval.changed_bytes), (1, 13));
        assert_eq!((interval.live_bytes, interval.entries, interval.events), (13, 1, 2));
    }

    #[test]
    fn a_key_that_came_and_went_between_checkpoints_did_not_change() {
        let mut model = Model::default();
        model.apply(&put("key", "a"));
        model.apply(&Event::Remove { key: "key".into() });
        assert_eq!(model.checkpoint().changed_keys, 0);
        assert_eq!(model.len(), 0);
    }

    #[test]
    fn a_removed_key_counts_its_key_alone() {
        let mut model = Model::default();
        model.apply(&put("key", "a"));
        model.checkpoint();
        model.apply(&Event::Remove { key: "key".into() });
        let interval = model.checkpoint();
        assert_eq!((interval.changed_keys, interval.changed_bytes, interval.live_bytes), (1, 3, 0));
    }

    #[test]
    fn a_clear_empties_the_plain_state_and_counts_no_keys() {
        let mut model = Model::default();
        model.apply(&put("a", "1"));
        model.checkpoint();
        model.apply(&put("b", "1"));
        model.apply(&Event::Clear);
        model.apply(&put("c", "1"));
        let interval = model.checkpoint();
        assert_eq!((interval.changed_keys, interval.changed_bytes, interval.entries), (1, 2, 1));
        assert_eq!(model.get(&Cell::Entry("c".into())), Some(&Content::Bytes("1".into())));
    }
}
