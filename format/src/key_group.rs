//! Key groups: which group a key belongs to, and sets of groups.
//!
//! # Invariants
//!
//! - G1. A [`KeyGroupSet`] holds ranges in ascending order with at least one group between two of
//!   them, so that equal sets are equal values.

use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;

use crate::error::FormatError;
use crate::ids::parse_decimal;

/// Number of one key group, the unit of rescaling. Printed as `kg-003`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyGroup(pub u16);

impl fmt::Display for KeyGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kg-{:03}", self.0)
    }
}

impl FromStr for KeyGroup {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        let digits = text.strip_prefix("kg-").filter(|digits| digits.len() >= 3);
        let number = digits.and_then(|digits| {
            let short = digits.trim_start_matches('0');
            let padded = digits.len() == 3 || short.len() == digits.len();
            parse_decimal(if short.is_empty() { "0" } else { short }).filter(|_| padded)
        });
        number.and_then(|number| u16::try_from(number).ok()).map(Self).ok_or_else(|| {
            FormatError::InvalidName { text: text.to_owned(), expected: "a key group such as kg-003" }
        })
    }
}

/// How many key groups a job has, 1 to 32,768: part of the manifest, never changed silently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyGroupCount(NonZeroU16);

impl KeyGroupCount {
    /// The largest count.
    pub const MAX: u16 = 32_768;

    /// The count; `None` unless it is 1 to 32,768.
    #[must_use]
    pub const fn new(count: u16) -> Option<Self> {
        match NonZeroU16::new(count) {
            Some(count) if count.get() <= Self::MAX => Some(Self(count)),
            _ => None,
        }
    }

    /// The number, 1 to 32,768.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0.get()
    }

    /// All groups, from 0 to count − 1.
    #[must_use]
    pub const fn all(self) -> KeyGroupRange {
        KeyGroupRange { start: KeyGroup(0), end: KeyGroup(self.0.get() - 1) }
    }
}

impl fmt::Display for KeyGroupCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The key group of a key whose encoding has the xxh3-64 `hash`: hash modulo count.
#[must_use]
#[inline]
pub fn key_group(hash: u64, count: KeyGroupCount) -> KeyGroup {
    // The remainder is below 32,768.
    KeyGroup((hash % u64::from(count.get())) as u16)
}

/// Key groups from start to end, both included; never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyGroupRange {
    start: KeyGroup,
    end: KeyGroup,
}

impl KeyGroupRange {
    /// The groups `start` to `end`, both included; `None` if `end` is before `start`.
    #[must_use]
    pub const fn new(start: KeyGroup, end: KeyGroup) -> Option<Self> {
        if start.0 <= end.0 { Some(Self { start, end }) } else { None }
    }

    /// The groups of subtask `index` of `subtasks`: start = ⌈index · count ÷ subtasks⌉,
    /// end = ⌊((index + 1) · count − 1) ÷ subtasks⌋, which is the rule of Apache Flink.
    ///
    /// `None` if the index is not below the number of subtasks, or there are more subtasks than groups.
    #[must_use]
    pub fn of_subtask(index: u32, subtasks: u32, count: KeyGroupCount) -> Option<Self> {
        if index >= subtasks || subtasks > u32::from(count.get()) {
            return None;
        }
        let (index, subtasks, count) = (u64::from(index), u64::from(subtasks), u64::from(count.get()));
        let start = u16::try_from((index * count).div_ceil(subtasks)).ok()?;
        let end = u16::try_from(((index + 1) * count - 1) / subtasks).ok()?;
        Self::new(KeyGroup(start), KeyGroup(end))
    }

    /// The first group.
    #[must_use]
    pub const fn start(self) -> KeyGroup {
        self.start
    }

    /// The last group, included.
    #[must_use]
    pub const fn end(self) -> KeyGroup {
        self.end
    }

    /// How many groups, at least 1.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a range is never empty")]
    pub const fn len(self) -> u32 {
        self.end.0 as u32 - self.start.0 as u32 + 1
    }

    /// Whether the group is in the range.
    #[must_use]
    pub const fn contains(self, group: KeyGroup) -> bool {
        self.start.0 <= group.0 && group.0 <= self.end.0
    }

    /// The groups in both; `None` if there are none.
    #[must_use]
    pub fn intersect(self, other: Self) -> Option<Self> {
        Self::new(self.start.max(other.start), self.end.min(other.end))
    }

    /// The groups in ascending order.
    pub fn iter(self) -> impl ExactSizeIterator<Item = KeyGroup> + DoubleEndedIterator + use<> {
        // Held as u32 counts, because RangeInclusive has no exact size.
        let start = self.start.0;
        (0..self.len() as usize).map(move |offset| KeyGroup(start + offset as u16))
    }
}

impl fmt::Display for KeyGroupRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..={}", self.start, self.end)
    }
}

/// A set of key groups, as ranges: one range takes four bytes, any number of groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct KeyGroupSet {
    ranges: Vec<KeyGroupRange>,
}

impl KeyGroupSet {
    /// The empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self { ranges: Vec::new() }
    }

    /// The ranges, ascending, at least one group apart.
    #[must_use]
    pub fn ranges(&self) -> &[KeyGroupRange] {
        &self.ranges
    }

    /// Whether it has no group.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How many groups.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.ranges.iter().map(|range| range.len()).sum()
    }

    /// Whether the group is in the set. O(log ranges).
    #[must_use]
    pub fn contains(&self, group: KeyGroup) -> bool {
        let after = self.ranges.partition_point(|range| range.start <= group);
        after.checked_sub(1).and_then(|at| self.ranges.get(at)).is_some_and(|range| range.contains(group))
    }

    /// The groups in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = KeyGroup> + '_ {
        self.ranges.iter().flat_map(|range| range.iter())
    }

    /// The groups in both sets. O(ranges).
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        let mut both = Vec::new();
        let (mut mine, mut theirs) = (self.ranges.iter().peekable(), other.ranges.iter().peekable());
        while let (Some(&&a), Some(&&b)) = (mine.peek(), theirs.peek()) {
            both.extend(a.intersect(b));
            if a.end <= b.end {
                mine.next();
            } else {
                theirs.next();
            }
        }
        Self { ranges: both }
    }

    /// The groups in either set. O(ranges · log ranges).
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.ranges.iter().chain(&other.ranges).copied().collect()
    }

    /// The groups of this set that are not in the other. O(ranges).
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let mut rest = Vec::new();
        for range in &self.ranges {
            let mut start = u32::from(range.start.0);
            let end = u32::from(range.end.0);
            for taken in other.ranges.iter().filter_map(|taken| taken.intersect(*range)) {
                push_range(&mut rest, start, u32::from(taken.start.0));
                start = u32::from(taken.end.0) + 1;
            }
            push_range(&mut rest, start, end + 1);
        }
        Self { ranges: rest }
    }

    /// Whether every group of this set is in the other. O(ranges).
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.intersect(other) == *self
    }
}

/// Appends the groups in `start..end`, if any; both are at most 65,536.
fn push_range(ranges: &mut Vec<KeyGroupRange>, start: u32, end: u32) {
    let Some(last) = end.checked_sub(1) else { return };
    if let (Ok(start), Ok(last)) = (u16::try_from(start), u16::try_from(last)) {
        ranges.extend(KeyGroupRange::new(KeyGroup(start), KeyGroup(last)));
    }
}

impl From<KeyGroupRange> for KeyGroupSet {
    fn from(range: KeyGroupRange) -> Self {
        Self { ranges: vec![range] }
    }
}

impl FromIterator<KeyGroupRange> for KeyGroupSet {
    /// Unites the ranges, in whatever order they come and however they overlap.
    fn from_iter<I: IntoIterator<Item = KeyGroupRange>>(ranges: I) -> Self {
        let mut sorted: Vec<KeyGroupRange> = ranges.into_iter().collect();
        sorted.sort_unstable();
        let mut merged: Vec<KeyGroupRange> = Vec::new();
        for range in sorted {
            match merged.last_mut() {
                Some(last) if u32::from(range.start.0) <= u32::from(last.end.0) + 1 => {
                    last.end = last.end.max(range.end);
                }
                _ => merged.push(range),
            }
        }
        Self { ranges: merged }
    }
}

impl FromIterator<KeyGroup> for KeyGroupSet {
    fn from_iter<I: IntoIterator<Item = KeyGroup>>(groups: I) -> Self {
        groups.into_iter().map(|group| KeyGroupRange { start: group, end: group }).collect()
    }
}

impl fmt::Display for KeyGroupSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, range) in self.ranges.iter().enumerate() {
            write!(f, "{}{range}", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
