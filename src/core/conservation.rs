//! Conservation: every id that was handed off should still have its row.
//!
//! Ids leave the open ranges one by one, so the number of ids that have left is known without reading a row. If there
//! are fewer rows than that, rows were deleted, or the table was truncated and its ids will be used again. Identity is
//! by key: a new row with an id that was handed off is taken for the same row. Nothing is recorded for it, so this
//! deserves a finding.
//!
//! The certifying pass reads every row anyway and counts the rows, so each pass can compare both numbers.

/// The counts of a whole source, all in one snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conservation {
    /// Ids that left the open ranges because they were handed off.
    pub handed_off: i64,
    /// Ids that left the open ranges because no row seemed to use them. If a row has such an id after all, it adds one
    /// row.
    pub certified_away: i64,
    /// Rows whose id is in no open range.
    pub rows: i64,
    /// The highest id that was handed off; `None` if none was.
    pub highest_handed_off: Option<i64>,
    /// The highest id in the table.
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

/// What the last count of a source lacked, if anything.
///
/// A correct count after a wrong one is not good news. Deleted rows can only come back under ids that were handed off,
/// and then they are not handed off again. So every count reports what is missing, and an operator decides when it is
/// settled.
#[derive(Debug, Default)]
pub struct Ledger {
    /// The number of rows minus the number of ids, and whether the highest id is missing.
    lack: Option<(i64, bool)>,
}

impl Ledger {
    /// Enters a count. True if it lacks something else than the last count. A table that only grows still lacks the
    /// same rows.
    pub fn enter(&mut self, found: &Conservation) -> bool {
        let lack = (!found.holds()).then(|| (found.more(), found.ends_early()));
        std::mem::replace(&mut self.lack, lack) != lack && lack.is_some()
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
    fn what_is_gone_is_said_once() {
        let mut ledger = Ledger::default();
        assert!(!ledger.enter(&WHOLE));
        let gone = Conservation { rows: 5, ..WHOLE };
        assert!(ledger.enter(&gone));
        let longer = Conservation { handed_off: 17, rows: 15, ..gone };
        assert!(!ledger.enter(&longer), "the same two rows of a longer table");
        assert!(ledger.enter(&Conservation { rows: 4, ..WHOLE }), "one more");
        assert!(ledger.enter(&Conservation { highest: Some(3), ..WHOLE }), "it ends early");
        assert!(!ledger.enter(&WHOLE), "that it is even again says nothing");
        assert!(ledger.enter(&gone), "and gone again does");
    }
}
