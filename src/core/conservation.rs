//! Whether the rows of a source are all still there: every id that was handed off should have its row.
//!
//! Ids leave the open ranges one by one, so how many have left is known without looking at a row. Fewer rows than that
//! means that rows were deleted, or the table was emptied and its ids will come again. Identity is by key: a row that
//! comes again under an id that was handed off is taken for the same row and absorbed. That is why it is worth a finding.
//!
//! Counting all rows costs as much as the certifying pass beside which it is done. The equation holds for any stretch of
//! ids, so each pass counts one stretch, and a round of passes has counted them all.

use std::collections::BTreeMap;

/// How many passes make a round.
pub const STRETCHES: u32 = 10;

/// One look at one stretch, all in one snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conservation {
    pub lo: i64,
    pub hi: i64,
    /// Ids that left the open ranges because they were handed off.
    pub handed_off: i64,
    /// Ids that left them because nobody seemed to use them; a row that has one after all is one more.
    pub certified_away: i64,
    /// Rows of the stretch that lie in no open range.
    pub rows: i64,
    /// The highest id that was handed off; `None` before the first.
    pub highest_handed_off: Option<i64>,
    /// The highest id that is there.
    pub highest: Option<i64>,
}

impl Conservation {
    #[must_use]
    pub fn holds(&self) -> bool {
        (0..=self.certified_away).contains(&self.more()) && !self.ends_early()
    }

    fn more(&self) -> i64 {
        self.rows.saturating_sub(self.handed_off)
    }

    fn ends_early(&self) -> bool {
        self.highest < self.highest_handed_off
    }
}

/// What a count changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// Nothing that is not known.
    Nothing,
    /// Rows are gone, other than those that were.
    Uneven,
    /// A whole round without a missing row.
    Even,
}

/// The counts of a source, stretch by stretch.
#[derive(Debug, Default)]
pub struct Ledger {
    next: u32,
    /// Stretches in a row that were even.
    even: u32,
    /// By stretch, how many rows more than ids it had (fewer than none), and whether the table ended early.
    uneven: BTreeMap<u32, (i64, bool)>,
}

impl Ledger {
    /// The stretch to count next.
    #[must_use]
    pub fn next(&self) -> u32 {
        self.next
    }

    /// Enters the count of the stretch that was next. Its bounds move with the table's end, so what it lacks is compared, not
    /// where.
    pub fn enter(&mut self, found: &Conservation) -> Entry {
        let stretch = self.next;
        self.next = (stretch + 1) % STRETCHES;
        if found.holds() {
            self.uneven.remove(&stretch);
            self.even += 1;
            if self.even < STRETCHES {
                return Entry::Nothing;
            }
            self.even = 0;
            return Entry::Even;
        }
        self.even = 0;
        let lack = (found.more(), found.ends_early());
        if self.uneven.insert(stretch, lack) == Some(lack) { Entry::Nothing } else { Entry::Uneven }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: Conservation = Conservation {
        lo: 1,
        hi: 9,
        handed_off: 7,
        certified_away: 0,
        rows: 7,
        highest_handed_off: Some(9),
        highest: Some(9),
    };

    #[test]
    fn a_missing_row_and_a_lower_end_are_noticed() {
        assert!(WHOLE.holds());
        assert!(Conservation { highest: Some(12), ..WHOLE }.holds(), "new rows are not lost rows");
        assert!(!Conservation { rows: 6, ..WHOLE }.holds());
        assert!(!Conservation { rows: 8, ..WHOLE }.holds());
        let away = Conservation { certified_away: 1, ..WHOLE };
        assert!(away.holds());
        assert!(Conservation { rows: 8, ..away }.holds(), "an id was used after all");
        assert!(!Conservation { rows: 9, ..away }.holds());
        assert!(!Conservation { rows: 6, ..away }.holds());
        assert!(!Conservation { highest: Some(3), ..WHOLE }.holds());
        assert!(!Conservation { rows: 0, highest: None, ..WHOLE }.holds());
        let unread =
            Conservation { handed_off: 0, rows: 0, highest_handed_off: None, highest: None, ..WHOLE };
        assert!(unread.holds(), "an empty source that nobody has read");
    }

    #[test]
    fn every_stretch_has_its_turn_and_a_round_without_a_miss_is_even() {
        let mut ledger = Ledger::default();
        for stretch in 0..STRETCHES - 1 {
            assert_eq!(ledger.next(), stretch);
            assert_eq!(ledger.enter(&WHOLE), Entry::Nothing);
        }
        assert_eq!(ledger.enter(&WHOLE), Entry::Even);
        assert_eq!(ledger.next(), 0);
    }

    #[test]
    fn what_is_gone_is_said_once_and_is_over_a_round_after_it_is_back() {
        let mut ledger = Ledger::default();
        let gone = Conservation { rows: 5, ..WHOLE };
        assert_eq!(ledger.enter(&gone), Entry::Uneven);
        for _ in 1..STRETCHES {
            assert_eq!(ledger.enter(&WHOLE), Entry::Nothing);
        }
        let longer = Conservation { hi: 19, handed_off: 17, rows: 15, ..gone };
        assert_eq!(ledger.enter(&longer), Entry::Nothing, "the same two rows of a longer stretch");
        for _ in 1..STRETCHES {
            assert_eq!(ledger.enter(&WHOLE), Entry::Nothing);
        }
        assert_eq!(ledger.enter(&Conservation { rows: 4, ..WHOLE }), Entry::Uneven, "one more");
        for _ in 1..STRETCHES {
            assert_eq!(ledger.enter(&WHOLE), Entry::Nothing);
        }
        assert_eq!(ledger.enter(&WHOLE), Entry::Even);
    }
}
