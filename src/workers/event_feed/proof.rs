//! What proves that every event has its position: the counts of a sweep, the comparison of everything, the certificate.

use crate::audit::following;
use crate::core::certificate::{Certificate, Digest};
use crate::core::finding::Severity;
use crate::core::frontier::Distrust;
use crate::core::repair::Reason;
use crate::daemon::term::Term;
use crate::error::Result;
use crate::store::Store;
use crate::store::feed::{FEED, Unfed};
use crate::store::findings::Finding;
use crate::store::frontier::{Snapshot, TableFile};
use crate::store::lease::Lease;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Events compared by one statement.
const STRETCH: i64 = 5_000;
/// A certificate that says nothing new goes to the history this often.
const QUIET_HISTORY: Duration = Duration::from_secs(3600);
/// The finding about a feed that does not match the outbox.
const KEY: &str = "feed_not_conserved";

/// What is known of the feed's completeness under one lease.
#[derive(Default)]
pub struct FeedLedger {
    certified_at: Option<Instant>,
    history_at: Option<Instant>,
    /// Events that a sweep found since the last certificate.
    found: u64,
    /// Positions without an event that the last comparison found. Only an operator can remove them, so they must not lead
    /// to another comparison each time.
    orphans: i64,
    begun: bool,
}

/// A comparison of the whole outbox with the feed.
///
/// Events that a later snapshot shows may be compared as well, which does no harm. Events that the snapshot of its
/// beginning does not show were written at or above that snapshot's xmin, which becomes the frontier.
pub struct Comparison {
    snapshot: Snapshot,
    relation: TableFile,
    /// Why the frontier could not tell; `None` if it could.
    why: Option<Distrust>,
    /// The sweep found more events without a position than it takes. Otherwise, and if the frontier could tell, its counts
    /// disagreed.
    many: bool,
    from: Uuid,
    events: u64,
    missing: u64,
    orphans: u64,
    begun: Instant,
}

impl FeedLedger {
    /// Feeds what a sweep found. Returns a comparison to begin, if the sweep cannot prove that this was everything.
    pub async fn swept(
        &mut self,
        store: &Store,
        term: &Term,
        unfed: Unfed,
        chunk: usize,
    ) -> Result<Option<Comparison>> {
        let begun = Instant::now();
        if unfed.full.is_some() || unfed.more {
            return Ok(Some(Comparison::new(unfed, begun)));
        }
        for ids in unfed.ids.chunks(chunk) {
            let fed = store.add_feed(&term.lease, ids, true, true).await?;
            self.found += u64::try_from(fed).unwrap_or(0);
        }
        let without = i64::try_from(unfed.ids.len()).unwrap_or(i64::MAX);
        if unfed.positions != unfed.events - without + self.orphans {
            return Ok(Some(Comparison::new(unfed, begun)));
        }
        if self.certified_at.is_none_or(|at| at.elapsed() >= term.config.certify_interval) {
            let repaired = BTreeMap::from([(Reason::NotYetRead, std::mem::take(&mut self.found))]);
            let compared = FeedCompared {
                snapshot: unfed.snapshot,
                relation: unfed.relation,
                full: false,
                why: None,
                checked: u64::try_from(without).unwrap_or(0),
                repaired,
                took: begun.elapsed(),
            };
            self.certify(store, term, compared).await?;
        }
        Ok(None)
    }

    /// Ends a comparison: the frontier, the certificate, and the finding if anything was out of order.
    pub async fn compared(&mut self, store: &Store, term: &Term, ended: Comparison) -> Result<()> {
        let Comparison { snapshot, relation, why, many, events, missing, orphans, begun, .. } = ended;
        // On another server, with another table, and after many events came at once, events without a position are expected.
        let is_expected = why.is_some() || many;
        let surprising = !is_expected && missing > 0 || orphans > 0;
        if surprising {
            tracing::error!(missing, orphans, "the feed does not match the outbox");
            let detail = json!({
                "events_without_position": missing, "positions_without_event": orphans,
                "meaning": "rows of event_feed or event_outbox were removed by hand; missing positions were given again, under \
                            new numbers; `gov-handoff audit --full` names what is left",
            });
            let (key, severity) = (KEY.to_owned(), Severity::High);
            store.raise(&Finding { kind: "feed_not_conserved", key, severity, detail }).await?;
        } else {
            store.resolve(KEY, "compared in full without a difference").await?;
        }
        self.orphans = i64::try_from(orphans).unwrap_or(i64::MAX);
        self.found = 0;
        let reason = match (why, many) {
            (Some(_), _) => Reason::Backlog,
            (None, true) => Reason::NotYetRead,
            (None, false) => Reason::Vanished,
        };
        let repaired = BTreeMap::from([(reason, missing)]);
        let took = begun.elapsed();
        let compared = FeedCompared { snapshot, relation, full: true, why, checked: events, repaired, took };
        self.certify(store, term, compared).await
    }

    async fn certify(&mut self, store: &Store, term: &Term, compared: FeedCompared) -> Result<()> {
        if !std::mem::replace(&mut self.begun, true) {
            // The certificate stands in the cursor, which the first page makes.
            store.add_feed(&term.lease, &[], false, true).await?;
        }
        let certificate = compared.certificate();
        let news = certificate.repaired_total() > 0;
        let history = news || self.history_at.is_none_or(|at| at.elapsed() > QUIET_HISTORY);
        store.advance_feed(&term.lease, &compared.snapshot, compared.relation).await?;
        store.put_certificate(&term.lease, &term.lease.worker, &certificate, history, None).await?;
        self.certified_at = Some(Instant::now());
        if history {
            self.history_at = Some(Instant::now());
        }
        Ok(())
    }
}

/// What a certificate says.
struct FeedCompared {
    snapshot: Snapshot,
    relation: TableFile,
    /// Every event was compared.
    full: bool,
    why: Option<Distrust>,
    checked: u64,
    repaired: BTreeMap<Reason, u64>,
    took: Duration,
}

impl FeedCompared {
    fn certificate(&self) -> Certificate {
        let repaired: BTreeMap<_, _> =
            self.repaired.iter().filter(|(_, n)| **n > 0).map(|(reason, n)| (*reason, *n)).collect();
        let total: u64 = repaired.values().sum();
        Certificate {
            source: FEED.to_owned(),
            kind: "certify",
            full: self.full,
            since: None,
            full_because: self.why,
            frontier: self.snapshot.xmin.to_string(),
            system_identifier: self.snapshot.system_identifier.clone(),
            lsn: self.snapshot.lsn.map(|lsn| lsn.to_string()),
            taken_at: self.snapshot.taken_at.clone(),
            rows_checked: self.checked,
            already_recorded: self.checked.saturating_sub(total),
            backlog: 0,
            repaired,
            duplicates: None,
            digest: Digest::default(),
            duration_ms: u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

impl Comparison {
    fn new(unfed: Unfed, begun: Instant) -> Self {
        let Unfed { snapshot, relation, full: why, more: many, .. } = unfed;
        Self { snapshot, relation, why, many, from: Uuid::nil(), events: 0, missing: 0, orphans: 0, begun }
    }

    /// Compares one stretch and feeds what has no position. Returns whether that was the last one.
    pub async fn stretch(&mut self, store: &Store, lease: &Lease, chunk: usize) -> Result<bool> {
        let stretch = store.compare_feed(self.from, STRETCH).await?;
        for ids in stretch.missing.chunks(chunk) {
            let fed = store.add_feed(lease, ids, self.missing == 0, false).await?;
            self.missing += u64::try_from(fed).unwrap_or(0);
        }
        self.events += u64::try_from(stretch.events).unwrap_or(0);
        self.orphans += stretch.orphans.len() as u64;
        let next = stretch.last.and_then(following).filter(|_| stretch.events == STRETCH);
        self.from = next.unwrap_or(self.from);
        Ok(next.is_none())
    }

    pub fn progress(&self) -> Value {
        json!({ "events": self.events, "missing": self.missing, "orphans": self.orphans })
    }
}
