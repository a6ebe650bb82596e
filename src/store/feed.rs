//! The feed: positions for events, passes over the outbox for events without one, and reading it.

use crate::core::frontier::{Distrust, Window};
use crate::error::{Context, Result};
use crate::store::frontier::{Snapshot, TableFile, written_in};
use crate::store::lease::Lease;
use crate::store::role::{Reads, Writes};
use crate::store::session::answered;
use crate::store::value::to_pg;
use crate::store::{Session, quote};
use serde::Serialize;
use std::time::Duration;
use tokio_postgres::types::ToSql;
use tokio_postgres::{IsolationLevel, Transaction};
use uuid::Uuid;

/// The name under which frontier, cursor and certificates of the feed are kept.
pub const FEED: &str = "event_feed";
/// Every event stands there.
const OUTBOX: &str = "public.event_outbox";
/// How long a scan of the outbox may take; the same limit as in `sql/feed/settings.sql`.
const LONGEST_SCAN: Duration = Duration::from_secs(600);

/// A page of the inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// Rows that left the inbox.
    pub taken: i64,
    /// Events that got a position.
    pub fed: i64,
}

/// What one snapshot shows of events without a position.
#[derive(Debug)]
pub struct Unfed {
    pub snapshot: Snapshot,
    pub relation: TableFile,
    /// Why the frontier cannot select events: all of them have to be compared.
    pub full: Option<Distrust>,
    /// Events written since the frontier that have no position.
    pub ids: Vec<Uuid>,
    /// There are more of them than were asked for.
    pub more: bool,
    pub events: i64,
    pub positions: i64,
}

/// A stretch of the outbox beside the feed.
#[derive(Debug, Default)]
pub struct Stretch {
    pub last: Option<Uuid>,
    pub events: i64,
    pub missing: Vec<Uuid>,
    /// The position says something else than the event.
    pub differing: Vec<Uuid>,
    /// Positions whose event is gone.
    pub orphans: Vec<Uuid>,
    /// Events with more than one position.
    pub doubled: Vec<Uuid>,
}

/// An event as a reader of the feed sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FeedEvent {
    pub pos: i64,
    pub event_id: String,
    pub event_domain: String,
    pub event_type: String,
    pub event_stream: String,
    pub event_severity: Option<String>,
    pub event_subject_table: Option<String>,
    pub event_subject_ref: Option<String>,
    pub actor_ref: String,
    pub canonical_address: Option<String>,
    pub occurred_at: Option<String>,
}

/// Which events a reader wants.
#[derive(Debug, Clone, Default)]
pub struct FeedFilter {
    pub domain: Option<String>,
    pub event_type: Option<String>,
    pub stream: Option<String>,
}

/// The ends of the feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedHead {
    /// The highest position that retention removed.
    pub low: i64,
    /// The highest position there is.
    pub last: i64,
}

impl<R> Session<R> {
    pub async fn feed_head(&self) -> Result<FeedHead> {
        let row = self.one(include_str!("sql/feed/head.sql"), &[]).await.context("reading the feed")?;
        Ok(FeedHead { low: row.try_get("low")?, last: row.try_get("last")? })
    }

    /// The next events above `after`; `None` begins with the oldest event that is kept.
    pub async fn read_feed(
        &self,
        after: Option<i64>,
        limit: i32,
        filter: &FeedFilter,
    ) -> Result<Vec<FeedEvent>> {
        let params: [&(dyn ToSql + Sync); 5] =
            [&after, &limit, &filter.domain, &filter.event_type, &filter.stream];
        let rows = self.rows(include_str!("sql/feed/read.sql"), &params).await.context("reading the feed")?;
        rows.iter()
            .map(|row| {
                Ok(FeedEvent {
                    pos: row.try_get("pos")?,
                    event_id: row.try_get("event_id")?,
                    event_domain: row.try_get("event_domain")?,
                    event_type: row.try_get("event_type")?,
                    event_stream: row.try_get("event_stream")?,
                    event_severity: row.try_get("event_severity")?,
                    event_subject_table: row.try_get("event_subject_table")?,
                    event_subject_ref: row.try_get("event_subject_ref")?,
                    actor_ref: row.try_get("actor_ref")?,
                    canonical_address: row.try_get("canonical_address")?,
                    occurred_at: row.try_get("occurred_at")?,
                })
            })
            .collect()
    }
}

impl<R: Reads> Session<R> {
    /// Looks for events that were written since the frontier of `worker` and have no position: at most `limit`.
    ///
    /// The argument is that of the frontier of a source: an event that this snapshot does not show was written by a
    /// transaction at or above the snapshot's xmin, so the next pass selects it.
    pub async fn unfed(&mut self, worker: &str, limit: usize) -> Result<Unfed> {
        let known = self.frontier(worker, FEED).await?;
        let (patience, mut lookout) = (self.patience, self.lookout());
        let begin = self.client.build_transaction().isolation_level(IsolationLevel::RepeatableRead);
        let transaction = answered(patience, begin.read_only(true).start()).await?;
        let taken = transaction.query_one(include_str!("sql/frontier/snapshot.sql"), &[]);
        let snapshot = Snapshot::from_row(&answered(patience, taken).await.context("taking a snapshot")?)?;
        let relation = relation(&transaction, patience).await?;
        let settings = transaction.batch_execute(include_str!("sql/feed/settings.sql"));
        answered(patience, settings).await?;
        let window = match &known {
            None => Err(Distrust::First),
            Some(frontier) => match frontier.distrust(&snapshot, Some(relation)) {
                Some(full) => Err(full),
                None => Ok(Window::new(frontier.xid, snapshot.next)),
            },
        };
        let mut unfed = Unfed {
            snapshot,
            relation,
            full: window.err(),
            ids: Vec::new(),
            more: false,
            events: 0,
            positions: 0,
        };
        if let Ok(window) = window {
            let selected =
                select(&transaction, patience.map(|p| p + LONGEST_SCAN), window, limit, &mut unfed);
            lookout.unless(selected).await?;
        }
        answered(patience, transaction.rollback()).await?;
        Ok(unfed)
    }

    /// Compares up to `limit` events from `from` on, in the order of their ids, with the feed.
    pub async fn compare_feed(&self, from: Uuid, limit: i64) -> Result<Stretch> {
        let params: [&(dyn ToSql + Sync); 2] = [&from, &limit];
        let row = self
            .one(include_str!("sql/feed/compare.sql"), &params)
            .await
            .context("comparing the outbox with the feed")?;
        Ok(Stretch {
            last: row.try_get("last")?,
            events: row.try_get("n")?,
            missing: row.try_get("missing")?,
            differing: row.try_get("differing")?,
            orphans: row.try_get("orphans")?,
            doubled: row.try_get("doubled")?,
        })
    }
}

/// The relation that this transaction reads as the outbox, and that nobody swaps before it ends.
async fn relation(transaction: &Transaction<'_>, patience: Option<Duration>) -> Result<TableFile> {
    let lock = quote::fill(include_str!("sql/frontier/relation_lock.sql"), &[("table", OUTBOX)]);
    answered(patience, transaction.batch_execute(&lock)).await.context("reading the outbox")?;
    let params: [&(dyn ToSql + Sync); 1] = [&OUTBOX];
    let found = transaction.query_one(include_str!("sql/frontier/relation.sql"), &params);
    let row = answered(patience, found).await.context("reading the outbox")?;
    Ok(TableFile { oid: row.try_get(0)?, filenode: row.try_get(1)? })
}

async fn select(
    transaction: &Transaction<'_>,
    patience: Option<Duration>,
    window: Window,
    limit: usize,
    unfed: &mut Unfed,
) -> Result<()> {
    let frontier = written_in(window);
    let scan = quote::fill(
        include_str!("sql/frontier/scan.sql"),
        &[("table", OUTBOX), ("frontier", frontier.as_str())],
    );
    let row = answered(patience, transaction.query_one(&scan, &[])).await.context("reading the outbox")?;
    unfed.events = row.try_get("there")?;
    let counted = transaction.query_one(include_str!("sql/feed/positions.sql"), &[]);
    unfed.positions = answered(patience, counted).await.context("counting the feed")?.try_get("positions")?;
    let Some(first) = row.try_get::<_, Option<String>>("first")? else { return Ok(()) };
    let (first, asked) = (quote::literal(&first), (limit + 1).to_string());
    let places = [("first", first.as_str()), ("frontier", &frontier), ("limit", &asked)];
    let sql = quote::fill(include_str!("sql/feed/unfed.sql"), &places);
    let rows = answered(patience, transaction.query(&sql, &[])).await.context("reading the outbox")?;
    unfed.ids = rows.iter().map(|row| Ok(row.try_get(0)?)).collect::<Result<_>>()?;
    unfed.more = unfed.ids.len() > limit;
    Ok(())
}

impl<R: Writes> Session<R> {
    /// Gives positions to events of the inbox, at most `limit`.
    pub async fn take_feed(&self, lease: &Lease, limit: i32, begins: bool) -> Result<Taken> {
        let params: [&(dyn ToSql + Sync); 5] = [&lease.worker, &lease.owner, &lease.term, &limit, &begins];
        let row = self.one(include_str!("sql/feed/take.sql"), &params).await.context("feeding")?;
        Ok(Taken { taken: row.try_get(0)?, fed: row.try_get(1)? })
    }

    /// Gives positions to those of these events that have none. Returns how many it gave.
    pub async fn add_feed(&self, lease: &Lease, ids: &[Uuid], begins: bool, ends: bool) -> Result<i64> {
        let params: [&(dyn ToSql + Sync); 6] =
            [&lease.worker, &lease.owner, &lease.term, &ids, &begins, &ends];
        Ok(self.one(include_str!("sql/feed/add.sql"), &params).await.context("feeding")?.try_get(0)?)
    }

    /// Notes that every event below the xmin of this snapshot has its position.
    pub async fn advance_feed(&self, lease: &Lease, snapshot: &Snapshot, relation: TableFile) -> Result<()> {
        let frontier = snapshot.xmin.to_string();
        let lsn = snapshot.lsn.map(to_pg);
        let params: [&(dyn ToSql + Sync); 10] = [
            &lease.worker,
            &lease.owner,
            &lease.term,
            &FEED,
            &frontier,
            &snapshot.system_identifier,
            &lsn,
            &relation.oid,
            &relation.filenode,
            &None::<Uuid>,
        ];
        self.one(include_str!("sql/frontier/advance.sql"), &params).await?;
        Ok(())
    }
}
