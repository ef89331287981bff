//! Compares a restored contender with the model, both ways.

use std::collections::HashSet;

use super::contender::Contender;
use super::model::Model;
use crate::error::Result;

/// Counts the entries that differ from the model, are missing, or should not be there.
///
/// Iteration has to show every expected entry once and nothing else, and a look-up has to find the same. Costs
/// the memory of all keys.
pub(super) fn mismatches(contender: &dyn Contender, model: &Model) -> Result<u64> {
    let mut mismatches = 0;
    let mut shown = HashSet::with_capacity(model.len());
    contender.visit(&mut |cell, content| {
        let is_right = model.get(&cell) == Some(&content);
        let is_new = shown.insert(cell);
        mismatches += u64::from(!is_right || !is_new);
    })?;
    for (cell, content) in model.entries() {
        let is_found = contender.get(cell)?.as_ref() == Some(content);
        mismatches += u64::from(!is_found || !shown.contains(cell));
    }
    Ok(mismatches)
}
