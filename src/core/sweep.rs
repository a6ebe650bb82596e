//! The place of a sweep over a backlog: its phase, the last key, and what it has counted. Stored with every page.

use crate::core::certificate::Digest;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SweepPhase {
    /// Every row of the backlog is marked.
    Seeding,
    /// Every row is read again, and what has no candidate is marked.
    Reconciling,
    /// Done.
    Incremental,
}

impl SweepPhase {
    /// By its name in `gov_worker_cursor.phase`.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        [Self::Seeding, Self::Reconciling, Self::Incremental].into_iter().find(|phase| phase.name() == name)
    }

    /// The name in `gov_worker_cursor.phase`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Seeding => "seeding",
            Self::Reconciling => "reconciling",
            Self::Incremental => "incremental",
        }
    }
}

/// What the rows of one page come to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Page {
    /// Rows of the backlog.
    pub rows: u64,
    pub refused: u64,
    pub unmapped: u64,
    pub untrusted: u64,
    pub digest: Digest,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SweepPlace {
    /// The set of rows that is swept.
    pub boundary: String,
    pub phase: SweepPhase,
    /// The last key that was read.
    pub after: Option<String>,
    /// Rows of the backlog that this phase has read.
    pub rows: u64,
    /// Objects that had no candidate before the sweep marked them.
    pub candidates: u64,
    /// Objects whose candidate was there and lost, as the second reading found.
    pub repaired: u64,
    pub refused: u64,
    pub unmapped: u64,
    pub untrusted: u64,
    /// Over the signals that the rows would have had.
    pub digest: String,
    pub spent_ms: u64,
    /// The definition that was in force at the end.
    pub version: Option<String>,
}

impl SweepPlace {
    #[must_use]
    pub fn begin(boundary: &str) -> Self {
        Self {
            boundary: boundary.to_owned(),
            phase: SweepPhase::Seeding,
            after: None,
            rows: 0,
            candidates: 0,
            repaired: 0,
            refused: 0,
            unmapped: 0,
            untrusted: 0,
            digest: Digest::default().to_string(),
            spent_ms: 0,
            version: None,
        }
    }

    /// Rows have no candidate, and may get one under another definition.
    #[must_use]
    pub fn left_out(&self) -> bool {
        self.refused + self.unmapped + self.untrusted > 0
    }

    /// The second reading of a sweep that is done, once more.
    #[must_use]
    pub fn again(self) -> Self {
        let (candidates, spent_ms) = (self.candidates, self.spent_ms);
        Self { phase: SweepPhase::Reconciling, candidates, spent_ms, ..Self::begin(&self.boundary) }
    }

    /// A page was read up to the key `end`, or the end of the backlog is reached. True if the sweep is done.
    pub fn advance(&mut self, end: Option<String>, page: &Page) -> bool {
        match end {
            Some(end) => {
                self.take(end, page);
                false
            }
            None => self.turn_over(),
        }
    }

    /// The page up to the key `end` was read.
    pub fn take(&mut self, end: String, page: &Page) {
        self.after = Some(end);
        self.rows += page.rows;
        self.refused += page.refused;
        self.unmapped += page.unmapped;
        self.untrusted += page.untrusted;
        let mut sum = Digest::parse(&self.digest).unwrap_or_default();
        sum.merge(page.digest);
        self.digest = sum.to_string();
    }

    /// The one row of the page was refused by the database.
    pub fn refuse(&mut self) {
        self.refused += 1;
    }

    /// The end of the backlog is reached. True if the sweep is done. The counts of the last reading stay.
    pub fn turn_over(&mut self) -> bool {
        self.after = None;
        if self.phase == SweepPhase::Seeding {
            *self = Self { repaired: self.repaired, ..self.clone().again() };
            return false;
        }
        self.phase = SweepPhase::Incremental;
        true
    }

    /// What the gate has counted and stored.
    pub fn created(&mut self, objects: i64, missing_only: bool) {
        let objects = u64::try_from(objects).unwrap_or(0);
        if missing_only {
            self.repaired += objects;
        } else {
            self.candidates += objects;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn a_sweep_reads_everything_twice_and_keeps_the_counts_of_the_second_reading() {
        let mut place = SweepPlace::begin("a set");
        let mut page = Page { rows: 3, untrusted: 1, ..Page::default() };
        page.digest.add(Uuid::from_u128(7));
        place.take("9".to_owned(), &page);
        place.created(2, false);
        assert!(!place.turn_over());
        assert_eq!((place.phase, place.rows, place.after.clone()), (SweepPhase::Reconciling, 0, None));
        assert_eq!((place.candidates, place.untrusted), (2, 0));
        place.take("9".to_owned(), &page);
        place.created(1, true);
        assert!(place.turn_over());
        assert_eq!(
            (place.phase, place.rows, place.candidates, place.repaired),
            (SweepPhase::Incremental, 3, 2, 1)
        );
        assert!(place.left_out());
        assert_eq!(Digest::parse(&place.digest), Some(page.digest));
        let again = place.clone().again();
        assert_eq!(
            (again.phase, again.rows, again.repaired, again.candidates),
            (SweepPhase::Reconciling, 0, 0, 2)
        );
        let stored = serde_json::to_value(&place).unwrap();
        assert_eq!(serde_json::from_value::<SweepPlace>(stored).unwrap(), place);
    }
}
