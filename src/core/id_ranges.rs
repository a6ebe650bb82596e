//! The open ranges of a source: the ids that were never seen.
//!
//! A transaction takes an id before it commits, so a late commit fills an id behind every cursor. A cursor therefore
//! cannot say which rows were handed off, but the set of unseen ids can. The set starts as all ids of the type. An id
//! leaves it only in the transaction that commits the handoff of the row with that id. So at any moment every id is
//! handed off or in a range, and a pass that probes all ranges in one snapshot finds every committed row that is
//! missing. The argument uses no clock, lock or transaction id.

/// A closed interval of ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Range {
    pub lo: i64,
    pub hi: i64,
}

/// How a batch changes the stored ranges: it removes the ranges that it read from and adds what is left of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replacement {
    pub closed: Vec<Range>,
    pub open: Vec<Range>,
}

impl Replacement {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.closed.is_empty()
    }

    /// The range that contains `id` after this replacement is stored. The row was read from `range`, perhaps before
    /// that.
    #[must_use]
    pub fn after(&self, range: Range, id: i64) -> Range {
        if !self.closed.contains(&range) {
            return range;
        }
        let at = self.open.partition_point(|open| open.hi < id);
        self.open.get(at).copied().unwrap_or(range)
    }
}

/// The ranges that a pass has read, as they are stored. A batch that is split takes its ids part by part.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenRanges(Vec<Range>);

impl OpenRanges {
    /// Sorts the ranges, which are disjoint. Duplicates (one per row read) are removed.
    pub fn new(ranges: impl IntoIterator<Item = Range>) -> Self {
        let mut ranges: Vec<_> = ranges.into_iter().collect();
        ranges.sort_unstable();
        ranges.dedup();
        Self(ranges)
    }

    /// Takes ids out. An id that is in no range was taken before and changes nothing.
    pub fn take(&mut self, ids: &[i64]) -> Replacement {
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        ids.dedup();
        let mut replacement = Replacement::default();
        let mut kept = Vec::with_capacity(self.0.len());
        let mut rest = ids.as_slice();
        for &range in &self.0 {
            rest = &rest[rest.partition_point(|&id| id < range.lo)..];
            let (inside, after) = rest.split_at(rest.partition_point(|&id| id <= range.hi));
            rest = after;
            if inside.is_empty() {
                kept.push(range);
                continue;
            }
            replacement.closed.push(range);
            let left = split(range, inside);
            kept.extend_from_slice(&left);
            replacement.open.extend(left);
        }
        self.0 = kept;
        replacement
    }

    #[must_use]
    pub fn ranges(&self) -> &[Range] {
        &self.0
    }
}

/// What is left of `range` without the ascending `ids` inside it.
fn split(range: Range, ids: &[i64]) -> Vec<Range> {
    let mut left = Vec::new();
    // `None` after the last id of the type was taken: no id follows it.
    let mut next = Some(range.lo);
    for &id in ids {
        if let Some(lo) = next.filter(|&lo| lo < id) {
            left.push(Range { lo, hi: id - 1 });
        }
        next = id.checked_add(1);
    }
    if let Some(lo) = next.filter(|&lo| lo <= range.hi) {
        left.push(Range { lo, hi: range.hi });
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn range(lo: i64, hi: i64) -> Range {
        Range { lo, hi }
    }

    #[test]
    fn the_tail_moves_and_leaves_holes() {
        let mut open = OpenRanges::new([range(i64::MIN, i64::MAX)]);
        let replacement = open.take(&[1, 2, 5]);
        assert_eq!(replacement.closed, [range(i64::MIN, i64::MAX)]);
        assert_eq!(replacement.open, [range(i64::MIN, 0), range(3, 4), range(6, i64::MAX)]);
    }

    #[test]
    fn the_limits_of_the_type_are_ids_like_any_other() {
        let mut open = OpenRanges::new([range(i64::MIN, i64::MAX)]);
        open.take(&[i64::MIN, i64::MAX]);
        assert_eq!(open.ranges(), [range(i64::MIN + 1, i64::MAX - 1)]);
    }

    #[test]
    fn a_row_read_ahead_lies_in_what_is_left_of_its_range() {
        let replacement = OpenRanges::new([range(1, 9), range(20, i64::MAX)]).take(&[3, 20, 21]);
        assert_eq!(replacement.after(range(1, 9), 4), range(4, 9));
        assert_eq!(replacement.after(range(20, i64::MAX), 30), range(22, i64::MAX));
        // Read after the commit, or from a range that the batch did not touch.
        assert_eq!(replacement.after(range(22, i64::MAX), 30), range(22, i64::MAX));
        assert_eq!(replacement.after(range(11, 12), 12), range(11, 12));
    }

    proptest! {
        #[test]
        fn every_id_is_taken_or_open(batches in prop::collection::vec(prop::collection::vec(-20i64..60, 0..12), 0..8)) {
            let mut open = OpenRanges::new([range(-20, 59)]);
            let mut stored: BTreeSet<Range> = open.ranges().iter().copied().collect();
            let mut taken = BTreeSet::new();
            for ids in batches {
                let replacement = open.take(&ids);
                for closed in &replacement.closed {
                    prop_assert!(stored.remove(closed), "closed a range that was not stored");
                }
                for opened in &replacement.open {
                    prop_assert!(stored.insert(*opened), "opened a range twice");
                }
                taken.extend(ids);
            }
            let covered: BTreeSet<i64> = stored.iter().flat_map(|r| r.lo..=r.hi).collect();
            prop_assert_eq!(stored.into_iter().collect::<Vec<_>>(), open.ranges().to_vec());
            for id in -20..60 {
                prop_assert!(taken.contains(&id) ^ covered.contains(&id), "id {} is in both or in neither", id);
            }
        }
    }
}
