//! Whether the rows of a source are all still there: every id that was handed off should have its row.
//!
//! Ids leave the open ranges one by one, so how many have left is known without looking at a row. Fewer rows than that
//! means that rows were deleted, or the table was emptied and its ids will come again. Identity is by key: a row that
//! comes again under an id that was handed off is taken for the same row and absorbed. That is why it is worth a finding.

/// One look, all in one snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conservation {
    /// Ids that left the open ranges because they were handed off.
    pub handed_off: i64,
    /// Ids that left them because nobody seemed to use them; a row that has one after all is one more.
    pub certified_away: i64,
    /// Rows below the tail that lie in no open range.
    pub rows: i64,
    /// The highest id that was handed off; `None` before the first.
    pub highest_handed_off: Option<i64>,
    /// The highest id that is there.
    pub highest: Option<i64>,
}

impl Conservation {
    #[must_use]
    pub fn holds(&self) -> bool {
        let more = self.rows.saturating_sub(self.handed_off);
        (0..=self.certified_away).contains(&more) && self.highest >= self.highest_handed_off
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_row_and_a_lower_end_are_noticed() {
        let whole = Conservation {
            handed_off: 7,
            certified_away: 0,
            rows: 7,
            highest_handed_off: Some(9),
            highest: Some(9),
        };
        assert!(whole.holds());
        assert!(Conservation { highest: Some(12), ..whole }.holds(), "new rows are not lost rows");
        assert!(!Conservation { rows: 6, ..whole }.holds());
        assert!(!Conservation { rows: 8, ..whole }.holds());
        assert!(Conservation { rows: 8, certified_away: 1, ..whole }.holds(), "an id was used after all");
        assert!(!Conservation { rows: 9, certified_away: 1, ..whole }.holds());
        assert!(!Conservation { highest: Some(3), ..whole }.holds());
        assert!(!Conservation { rows: 0, highest: None, ..whole }.holds());
        assert!(
            Conservation {
                handed_off: 0,
                certified_away: 0,
                rows: 0,
                highest_handed_off: None,
                highest: None
            }
            .holds(),
            "an empty source that nobody has read"
        );
    }
}
