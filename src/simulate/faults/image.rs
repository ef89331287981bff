//! What a job's state should be, and what has changed since which barrier.
//!
//! Owns: the ordered map that everything is compared with, and the bounds that it sets on a delta. Does not own: which
//! barrier is a base (`world`).

use std::collections::BTreeMap;
use std::fmt;

/// Names of the states that histories use.
const STATES: [&str; 2] = ["s", "t"];

/// A namespace of a state: the void one, or `w`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// 0 or 1.
    pub(super) state: u8,
    /// Whether it is the named namespace instead of the void one.
    pub(super) named: bool,
}

impl Place {
    /// Every place that there is.
    pub(super) const ALL: [Self; 4] = [
        Self { state: 0, named: false },
        Self { state: 0, named: true },
        Self { state: 1, named: false },
        Self { state: 1, named: true },
    ];

    /// The state's name.
    pub(super) fn state_name(self) -> &'static str {
        STATES.get(usize::from(self.state)).copied().unwrap_or("s")
    }
}

impl fmt::Display for Place {
    /// As commands about data spell it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "state={}", self.state_name())?;
        if self.named { f.write_str(" ns=w") } else { Ok(()) }
    }
}

/// A place and a key in it.
pub(super) type Spot = (Place, String);

/// The entries of a job at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Image(BTreeMap<Spot, String>);

impl Image {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Where entries are.
    pub(super) fn spots(&self) -> Vec<Spot> {
        self.0.keys().cloned().collect()
    }

    /// What `dump` prints for a place.
    pub(super) fn dump(&self, place: Place) -> String {
        let entries = self.0.iter().filter(|((at, _), _)| *at == place);
        let entries: Vec<String> = entries.map(|((_, key), value)| format!("{key}={value}")).collect();
        if entries.is_empty() { "(empty)".to_owned() } else { entries.join(" ") }
    }
}

/// What a delta may hold at most; its puts, without rewritten ones, are exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bound {
    /// Live entries that changed after the base.
    pub(super) puts: u64,
    /// Absent keys that were removed after the base.
    pub(super) tombstones: u64,
    /// Scopes that were cleared after the base; one clear per subtask for each.
    pub(super) scopes_cleared: u64,
    /// All live entries.
    pub(super) entries: u64,
}

/// The state of a running job: its entries and when each changed, counted from its start.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    image: Image,
    now: u64,
    changed: BTreeMap<Spot, u64>,
    removed: BTreeMap<Spot, u64>,
    /// By state, and namespace unless it was the whole state.
    cleared: BTreeMap<(u8, Option<bool>), u64>,
}

impl Memory {
    /// Restored from `image`; nothing has changed yet.
    pub(super) fn restored(image: Image) -> Self {
        Self { image, ..Self::default() }
    }

    pub(super) fn image(&self) -> &Image {
        &self.image
    }

    /// The present barrier.
    pub(super) fn barrier(&self) -> u64 {
        self.now
    }

    pub(super) fn put(&mut self, spot: Spot, value: String) {
        self.now += 1;
        self.changed.insert(spot.clone(), self.now);
        self.image.0.insert(spot, value);
    }

    pub(super) fn update(&mut self, spot: &Spot, suffix: &str) {
        if let Some(value) = self.image.0.get_mut(spot) {
            value.push_str(suffix);
            self.now += 1;
            self.changed.insert(spot.clone(), self.now);
        }
    }

    pub(super) fn remove(&mut self, spot: &Spot) {
        if self.image.0.remove(spot).is_some() {
            self.now += 1;
            self.removed.insert(spot.clone(), self.now);
        }
    }

    /// Clears one namespace of a state, or all of it.
    pub(super) fn clear(&mut self, state: u8, named: Option<bool>) {
        self.now += 1;
        self.cleared.insert((state, named), self.now);
        self.image
            .0
            .retain(|(place, _), _| place.state != state || named.is_some_and(|named| place.named != named));
    }

    /// What a delta from the barrier `base` to now may hold; from none everything.
    pub(super) fn bound(&self, base: Option<u64>) -> Bound {
        let entries = self.image.0.len() as u64;
        let Some(base) = base else { return Bound { puts: entries, entries, ..Bound::default() } };
        let after = |at: Option<&u64>| at.is_some_and(|at| *at > base);
        let puts = self.image.0.keys().filter(|spot| after(self.changed.get(*spot))).count() as u64;
        let absent = self.removed.iter().filter(|(spot, _)| !self.image.0.contains_key(*spot));
        let tombstones = absent.filter(|(_, at)| **at > base).count() as u64;
        let scopes_cleared = self.cleared.values().filter(|at| **at > base).count() as u64;
        Bound { puts, tombstones, scopes_cleared, entries }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spot(key: &str) -> Spot {
        (Place::ALL[0], key.to_owned())
    }

    #[test]
    fn a_delta_holds_what_changed_after_its_base() {
        let mut memory = Memory::default();
        memory.put(spot("a"), "1".to_owned());
        memory.put(spot("b"), "1".to_owned());
        let base = memory.barrier();
        memory.update(&spot("a"), "2");
        memory.update(&spot("absent"), "2");
        memory.remove(&spot("b"));
        assert_eq!(memory.bound(Some(base)), Bound { puts: 1, tombstones: 1, scopes_cleared: 0, entries: 1 });
        assert_eq!(memory.bound(Some(memory.barrier())), Bound { entries: 1, ..Bound::default() });
        assert_eq!(memory.bound(None), Bound { puts: 1, entries: 1, ..Bound::default() });
        assert_eq!(memory.image().dump(Place::ALL[0]), "a=12");
    }

    #[test]
    fn a_clear_empties_its_scope_only() {
        let mut memory = Memory::default();
        for place in Place::ALL {
            memory.put((place, "a".to_owned()), "1".to_owned());
        }
        memory.clear(0, Some(true));
        assert_eq!(memory.image().len(), 3);
        memory.clear(1, None);
        assert_eq!(memory.image().len(), 1);
        assert_eq!(memory.bound(Some(0)).scopes_cleared, 2);
    }
}
