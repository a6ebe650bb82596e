//! Whether the rows of a source are all still there: every id that was handed off should have its row.
//!
//! Ids leave the open ranges one by one, so how many have left is known without looking at a row. Fewer rows than that
//! means that rows were deleted, or the table was emptied and its ids will come again. Identity is by key: a row that
//! comes again under an id that was handed off is taken for the same row and absorbed. That is why it is worth a finding.
//!
//! The certifying pass meets every row once anyway and counts them on the way, so each pass has the whole equation.

/// One look at the whole source, all in one snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conservation {
    /// Ids that left the open ranges because they were handed off.
    pub handed_off: i64,
    /// Ids that left them because nobody seemed to use them; a row that has one after all is one more.
    pub certified_away: i64,
    /// Rows that lie in no open range.
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
    /// Every row is there, which was not so, or not known, before.
    Even,
}

/// What the last count of a source came to.
#[derive(Debug, Default)]
pub struct Ledger {
    last: Option<Balance>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Balance {
    Even,
    /// How many rows more than ids there were (fewer than none), and whether the table ended early.
    Uneven(i64, bool),
}

impl Ledger {
    /// Enters a count. What it lacks is compared with what the last one lacked: a table that grows lacks the same rows still.
    pub fn enter(&mut self, found: &Conservation) -> Entry {
        let balance =
            if found.holds() { Balance::Even } else { Balance::Uneven(found.more(), found.ends_early()) };
        match (self.last.replace(balance) == Some(balance), balance) {
            (true, _) => Entry::Nothing,
            (false, Balance::Even) => Entry::Even,
            (false, Balance::Uneven(..)) => Entry::Uneven,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: Conservation = Conservation {
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
    fn the_first_even_count_ends_what_a_predecessor_left_open_and_the_next_says_nothing() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.enter(&WHOLE), Entry::Even);
        assert_eq!(ledger.enter(&WHOLE), Entry::Nothing);
        let longer = Conservation { handed_off: 17, rows: 17, highest: Some(19), ..WHOLE };
        assert_eq!(ledger.enter(&longer), Entry::Nothing);
    }

    #[test]
    fn what_is_gone_is_said_once_and_is_over_when_it_is_back() {
        let mut ledger = Ledger::default();
        let gone = Conservation { rows: 5, ..WHOLE };
        assert_eq!(ledger.enter(&gone), Entry::Uneven);
        let longer = Conservation { handed_off: 17, rows: 15, ..gone };
        assert_eq!(ledger.enter(&longer), Entry::Nothing, "the same two rows of a longer table");
        assert_eq!(ledger.enter(&Conservation { rows: 4, ..WHOLE }), Entry::Uneven, "one more");
        assert_eq!(ledger.enter(&Conservation { highest: Some(3), ..WHOLE }), Entry::Uneven, "it ends early");
        assert_eq!(ledger.enter(&WHOLE), Entry::Even);
    }
}
