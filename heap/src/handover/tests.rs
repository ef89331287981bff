//! Explores every interleaving of owner and readers over the shipped code, by loom.

#![expect(
    unsafe_code,
    reason = "loom's cell is not Sync by itself: it reports every access that is not ordered"
)]

use loom::cell::UnsafeCell;
use loom::thread;

use super::{Clock, Owner, Owners, Reader, Stamp};

/// A number whose every access is watched.
struct Watched(UnsafeCell<u64>);

// SAFETY: loom fails the model if two accesses are not ordered and one of them writes.
unsafe impl Sync for Watched {}

impl Watched {
    fn read(&self) -> u64 {
        // SAFETY: as above.
        self.0.with(|number| unsafe { *number })
    }

    fn write(&mut self, number: u64) {
        // SAFETY: as above.
        self.0.with_mut(|old| unsafe { *old = number });
    }
}

/// What is set aside for tickets, oldest first; a ticket that has taken its number is gone.
type Aside = Vec<(Stamp, Option<u64>)>;

/// By the door, or by the number where the lock is needed.
fn change(owners: &mut Owners<Watched, Aside>, clock: &Clock, tickets: &[Stamp], number: u64) {
    if let Some(data) = owners.write_behind(0, clock) {
        data.write(number);
        return;
    }
    let mut guard = owners.get_mut(0).unwrap().lock(clock);
    let free_through = guard.free_through();
    let (data, aside) = guard.parts();
    for ticket in tickets.iter().filter(|ticket| **ticket > free_through) {
        if aside.iter().all(|(of, _)| of != ticket) {
            aside.push((*ticket, Some(data.read())));
        }
    }
    data.write(number);
    guard.free();
}

/// Takes the number as of the ticket: from the data if the owner has not been here since, or what it set aside.
fn take(reader: &Reader<Watched, Aside>, ticket: Stamp) -> Option<u64> {
    let mut guard = reader.lock(ticket)?;
    let (data, aside) = guard.parts();
    let number = data.read();
    aside.push((ticket, None));
    Some(number)
}

#[test]
fn a_reader_sees_what_was_there_at_its_freeze_in_every_interleaving() {
    loom::model(|| {
        let mut clock = Clock::new();
        let owner = Owner::new(&clock, Watched(UnsafeCell::new(1)), Aside::new());
        let (reader, other_reader) = (owner.reader(), owner.reader());
        let mut owners = Owners::new(1);
        owners.push(owner);
        owners.lead(0, 0);
        change(&mut owners, &clock, &[], 2);
        let first = clock.freeze().unwrap();
        let writer = thread::spawn(move || take(&reader, first));
        change(&mut owners, &clock, &[first], 3);
        change(&mut owners, &clock, &[first], 4);
        let second = clock.freeze().unwrap();
        let other = thread::spawn(move || take(&other_reader, second));
        change(&mut owners, &clock, &[first, second], 5);
        change(&mut owners, &clock, &[first, second], 6);
        let (of_first, of_second) = (writer.join().unwrap(), other.join().unwrap());
        assert_eq!(owners.read_behind(0).unwrap().read(), 6);
        let mut guard = owners.get_mut(0).unwrap().lock(&clock);
        let (_, aside) = guard.parts();
        for (ticket, taken, expected) in [(first, of_first, 2), (second, of_second, 4)] {
            let kept = aside.iter().filter(|(of, number)| *of == ticket && number.is_some());
            let kept: Vec<u64> = kept.filter_map(|(_, number)| *number).collect();
            let all: Vec<u64> = taken.into_iter().chain(kept).collect();
            assert_eq!(all, [expected], "exactly once, and as of the freeze");
        }
    });
}
