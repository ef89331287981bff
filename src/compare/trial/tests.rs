//! The trial against contenders that do what they should, or one thing they should not.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use super::*;
use crate::compare::contender::Completed;
use crate::compare::model::{Cell, Content};
use crate::compare::{CompareError, Synthetic};

/// What a contender does wrong after its restore.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Flaw {
    None,
    Forgets,
    Invents,
    /// Shows one entry twice and another one never.
    ShowsTwice,
    /// Finds nothing by look-up, though it shows everything.
    Hides,
    KeepsAnOldValue,
}

struct Naive {
    flaw: Flaw,
}

struct Map {
    entries: BTreeMap<Vec<u8>, Vec<u8>>,
    file: PathBuf,
    flaw: Flaw,
    checkpoint: u64,
}

impl Entrant for Naive {
    fn name(&self) -> String {
        "naive".to_owned()
    }

    fn start(&self, place: &Place<'_>) -> crate::error::Result<Box<dyn Contender>> {
        fs::create_dir_all(place.directory.join("data")).unwrap();
        let file = place.directory.join("data/entries");
        Ok(Box::new(Map { entries: BTreeMap::new(), file, flaw: Flaw::None, checkpoint: 0 }))
    }

    fn restore(&self, place: &Place<'_>) -> crate::error::Result<Box<dyn Contender>> {
        let file = place.directory.join("data/entries");
        let entries: Vec<(Vec<u8>, Vec<u8>)> = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        let mut entries: BTreeMap<_, _> = entries.into_iter().collect();
        match self.flaw {
            Flaw::Forgets => drop(entries.pop_first()),
            Flaw::Invents => drop(entries.insert(b"invented".to_vec(), Vec::new())),
            Flaw::KeepsAnOldValue => *entries.values_mut().next().unwrap() = b"old".to_vec(),
            Flaw::None | Flaw::ShowsTwice | Flaw::Hides => {}
        }
        Ok(Box::new(Map { entries, file, flaw: self.flaw, checkpoint: 0 }))
    }
}

impl Contender for Map {
    fn feed(&mut self, events: Vec<Event>) -> crate::error::Result<()> {
        for event in events {
            match event {
                Event::Put { key, value } => drop(self.entries.insert(key, value)),
                Event::Remove { key } => drop(self.entries.remove(&key)),
                Event::Clear => self.entries.clear(),
                other => panic!("unexpected {other:?}"),
            }
        }
        Ok(())
    }

    fn freeze(&mut self) -> crate::error::Result<()> {
        self.checkpoint += 1;
        let entries: Vec<_> = self.entries.iter().collect();
        fs::write(&self.file, serde_json::to_vec(&entries).unwrap()).unwrap();
        Ok(())
    }

    fn begin_writing(&mut self) -> crate::error::Result<()> {
        Ok(())
    }

    fn complete(&mut self) -> crate::error::Result<Completed> {
        Ok(Completed { checkpoint: self.checkpoint, segments: 1, ..Completed::default() })
    }

    fn write_whole(&mut self) -> crate::error::Result<()> {
        Ok(())
    }

    fn get(&self, cell: &Cell) -> crate::error::Result<Option<Content>> {
        let Cell::Entry(key) = cell else { return Ok(None) };
        let found = self.entries.get(key).filter(|_| self.flaw != Flaw::Hides);
        Ok(found.cloned().map(Content::Bytes))
    }

    fn visit(&self, visit: &mut dyn FnMut(Cell, Content)) -> crate::error::Result<()> {
        let first = self.entries.iter().next();
        let entries = self.entries.iter().enumerate().map(|(index, entry)| match (self.flaw, index) {
            (Flaw::ShowsTwice, 1) => first.unwrap(),
            _ => entry,
        });
        entries.for_each(|(key, value)| visit(Cell::Entry(key.clone()), Content::Bytes(value.clone())));
        Ok(())
    }
}

fn trial(flaw: Flaw) -> Outcome {
    let synthetic = "n=50,value=20,update=10%,checkpoints=4".parse::<Synthetic>().unwrap();
    let input = Input::Synthetic(synthetic);
    let course = Course::read(&input, Cadence::default(), &mut |_| {}).unwrap();
    let directory = tempfile::tempdir().unwrap();
    run(&Naive { flaw }, &course, directory.path(), &mut |_| {}).unwrap()
}

#[test]
fn a_contender_that_comes_back_as_it_was_is_verified() {
    let outcome = trial(Flaw::None);
    assert!(outcome.summary.verified);
    assert_eq!((outcome.summary.entries, outcome.summary.checkpoints), (50, 5));
    assert_eq!(outcome.checkpoints[0].changed_keys, 50);
    assert!(outcome.checkpoints[1..].iter().all(|figures| figures.changed_keys <= 5));
    assert_eq!(outcome.summary.objects, 1);
}

#[test]
fn every_way_to_come_back_wrong_is_found() {
    for flaw in [Flaw::Forgets, Flaw::Invents, Flaw::ShowsTwice, Flaw::Hides, Flaw::KeepsAnOldValue] {
        let summary = trial(flaw).summary;
        assert!(!summary.verified && summary.mismatches > 0, "{flaw:?} went unnoticed");
    }
}

#[test]
fn an_input_without_events_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let input = Input::Operations { file: file.path().to_owned() };
    let refused = Course::read(&input, Cadence::default(), &mut |_| {}).err();
    assert!(matches!(refused, Some(CompareError::Empty)), "{refused:?}");
}

#[test]
fn damage_anywhere_in_the_input_is_found_before_anything_is_written() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "P\ta\t1\nC\tone\nQ\n").unwrap();
    let input = Input::Operations { file: file.path().to_owned() };
    let refused = Course::read(&input, Cadence::default(), &mut |_| {}).err();
    assert!(matches!(refused, Some(CompareError::Row { line: 3, .. })), "{refused:?}");
}
