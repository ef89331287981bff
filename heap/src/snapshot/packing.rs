//! Which files of the base are to be copied into one object, and where they are then.
//!
//! Owns: the figures that the policy decides on. Does not own: the choice (`rewrite`), copying (the caller).

use hashbrown::HashMap;
use lowtide_format::{FileEntry, ObjectName};

use super::{HeapSnapshot, chain_of};
use crate::chain::{Element, SegmentFile};
use crate::error::HeapError;
use crate::rewrite::{ObjectStats, PackStats};

impl HeapSnapshot {
    /// The files of the base whose bytes are to be copied into one new object, in the order of its parts; seldom any.
    /// `files` are the new segments' files, as for [`finish`](Self::finish).
    ///
    /// Whether they are copied is up to the caller: if so, tell it by [`packed`](Self::packed) before finishing.
    /// Cost: that of listing the chain.
    ///
    /// # Errors
    ///
    /// [`HeapError::FilesMismatch`], [`HeapError::WrongStep`] if it was not written.
    pub fn packing(&self, files: &[FileEntry]) -> Result<Vec<FileEntry>, HeapError> {
        let parts = &self.parts;
        let Some(output) = &self.output else {
            return Err(HeapError::WrongStep { id: parts.id, done: "packed before it was written" });
        };
        let (Some(_), Some(policy)) = (&parts.base, &parts.policy) else { return Ok(Vec::new()) };
        let chain = chain_of(parts, output, files)?;
        let objects = by_object(chain.elements());
        let figures = |elements: &Vec<&Element>| ObjectStats {
            segments: elements.iter().map(|element| element.facts.number).collect(),
            record_bytes: elements.iter().map(|element| element.facts.record_bytes()).sum(),
            listed_bytes: files_of(elements).map(|file| file.entry.length).sum(),
            object_bytes: files_of(elements).map(|file| file.object_bytes).max().unwrap_or_default(),
            can_move: elements.iter().all(|element| {
                element.id() < parts.id && element.facts.file.as_ref().is_some_and(|it| it.summary.is_some())
            }),
        };
        let stats =
            PackStats { objects: objects.iter().map(figures).collect(), budget_bytes: output.budget_left };
        let chosen = policy.pack(&stats);
        let chosen = chosen.into_iter().filter_map(|at| objects.get(at));
        Ok(chosen.flat_map(|elements| files_of(elements)).map(|file| file.entry.clone()).collect())
    }

    /// The files that [`packing`](Self::packing) named were copied to `places`, in this order, all of them in one object
    /// and nothing else in it. The checkpoint will list them there.
    pub fn packed(&mut self, files: &[FileEntry], places: &[FileEntry]) {
        let object_bytes = places.iter().map(|place| place.offset.saturating_add(place.length)).max();
        let moved = files.iter().zip(places).map(|(file, place)| {
            let (entry, object_bytes) = (place.clone(), object_bytes.unwrap_or_default());
            (file.id(), SegmentFile { entry, summary: None, object_bytes })
        });
        self.moved = moved.collect();
    }
}

fn files_of<'a>(elements: &'a [&Element]) -> impl Iterator<Item = &'a SegmentFile> {
    elements.iter().filter_map(|element| element.facts.file.as_ref())
}

/// The elements by the object that their bytes are in, in the order of their oldest.
fn by_object(elements: &[Element]) -> Vec<Vec<&Element>> {
    let mut objects: Vec<Vec<&Element>> = Vec::new();
    let mut places: HashMap<&ObjectName, usize> = HashMap::new();
    for element in elements {
        let Some(file) = &element.facts.file else { continue };
        let at = *places.entry(&file.entry.object).or_insert_with(|| {
            objects.push(Vec::new());
            objects.len() - 1
        });
        if let Some(object) = objects.get_mut(at) {
            object.push(element);
        }
    }
    objects
}
