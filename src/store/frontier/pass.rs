//! One pass over the rows that were written since the frontier.

use crate::core::conservation::Conservation;
use crate::core::frontier::{Distrust, Window};
use crate::core::handoff::Source;
use crate::core::row::Row;
use crate::error::{Context, Error, Result};
use crate::store::frontier::careful::Careful;
use crate::store::frontier::{Frontier, Snapshot, TableFile, written_in};
use crate::store::give_way::{Lookout, gave_way};
use crate::store::read::{BATCH_BYTES, statement, text_row};
use crate::store::role::Reads;
use crate::store::session::answered;
use crate::store::{Session, quote};
use futures_util::{FutureExt, TryStreamExt};
use std::pin::Pin;
use std::time::Duration;
use tokio_postgres::types::ToSql;
use tokio_postgres::{IsolationLevel, Portal, RowStream, Transaction};

/// How long a scan may run until its next rows arrive; the same limit as in `sql/frontier/settings.sql`.
const LONGEST_SCAN: Duration = Duration::from_secs(600);

/// How often an idle transaction sends a sign of life; well below the idle timeout in `connect::READING`.
const SIGN_OF_LIFE: Duration = Duration::from_millis(500);

/// The size of the first request, when the width of the rows is not known yet.
const FIRST_ROWS: i32 = 500;

/// One frontier pass: a REPEATABLE READ snapshot, one scan of every row, and a portal over the selected rows.
pub struct FrontierRead<'a> {
    /// `None` after the pass gave way to a session that waited for its lock.
    pub(super) transaction: Option<Transaction<'a>>,
    pub(super) lookout: Lookout,
    /// `None` when no row is selected.
    pub(super) portal: Option<Portal>,
    /// Set if rows are read one by one where they cannot be read together.
    pub(super) careful: Option<Careful>,
    /// The number of rows in the table.
    there: i64,
    /// Rows that were requested and not read yet. They wait in the socket and use no memory of ours.
    fetched: Option<Pin<Box<RowStream>>>,
    /// The average size of a row in bytes, in the batch with the widest rows.
    width: usize,
    patience: Option<Duration>,
    pub snapshot: Snapshot,
    pub relation: TableFile,
    /// Why this pass compares every row; `None` if it reads only the rows since the frontier.
    pub full: Option<Distrust>,
}

impl<R: Reads> Session<R> {
    /// Opens a pass over every row that is not older than the recorded frontier. `carefully` is set when an earlier
    /// pass found rows that cannot be read.
    pub async fn read_frontier(
        &mut self,
        worker: &str,
        source: &Source,
        carefully: bool,
    ) -> Result<FrontierRead<'_>> {
        let known = self.frontier(worker, source.name()).await?;
        let (patience, mut lookout) = (self.patience, self.lookout());
        let begin = self.client.build_transaction().isolation_level(IsolationLevel::RepeatableRead);
        let transaction = answered(patience, begin.read_only(true).start()).await?;
        // This statement takes the snapshot, which holds for all statements that follow.
        let taken = transaction.query_one(include_str!("../sql/frontier/snapshot.sql"), &[]);
        let row = answered(patience, taken).await.context("taking a snapshot")?;
        let snapshot = Snapshot::from_row(&row)?;
        let relation = relation_read(&transaction, patience, source).await?;
        // Longer timeouts apply only from here on: the scan of a large table may take longer than a poll, but waiting
        // for its lock may not.
        let settings = transaction.batch_execute(include_str!("../sql/frontier/settings.sql"));
        answered(patience, settings).await?;
        let (full, predicate) = selected(known.as_ref(), &snapshot, relation);
        let (there, first) = scan(&transaction, patience, &mut lookout, source, &predicate).await?;
        let portal = match first {
            Some(first) => Some(bind(&transaction, patience, source, &predicate, &first, carefully).await?),
            None => None,
        };
        Ok(FrontierRead {
            transaction: Some(transaction),
            lookout,
            portal,
            careful: carefully.then(|| Careful::new(source)),
            there,
            fetched: None,
            width: 0,
            patience,
            snapshot,
            relation,
            full,
        })
    }
}

/// The reason to compare every row, if there is one, and the condition that selects rows.
fn selected(
    known: Option<&Frontier>,
    snapshot: &Snapshot,
    relation: TableFile,
) -> (Option<Distrust>, String) {
    let Some(frontier) = known else { return (Some(Distrust::First), "true".to_owned()) };
    match frontier.distrust(snapshot, Some(relation)) {
        None => (None, written_in(Window::new(frontier.xid, snapshot.next))),
        full => (full, "true".to_owned()),
    }
}

/// The number of rows in the table, and the place of the first selected row.
async fn scan(
    transaction: &Transaction<'_>,
    patience: Option<Duration>,
    lookout: &mut Lookout,
    source: &Source,
    predicate: &str,
) -> Result<(i64, Option<String>)> {
    let scan = statement::scan(source, predicate);
    let longest = patience.map(|p| p + LONGEST_SCAN);
    let scanned = lookout.unless(answered(longest, transaction.query_one(&scan, &[]))).await;
    let scanned = scanned.map_err(Error::of_source).context(format!("reading {}", source.name()))?;
    Ok((scanned.try_get("there")?, scanned.try_get("first")?))
}

/// A portal over the selected rows from the place `first` on, or over their places if the pass reads carefully.
async fn bind(
    transaction: &Transaction<'_>,
    patience: Option<Duration>,
    source: &Source,
    predicate: &str,
    first: &str,
    carefully: bool,
) -> Result<Portal> {
    let columns = if carefully { statement::PLACE.to_owned() } else { quote::text_columns(source) };
    let sql = statement::frontier(source, &columns, first, predicate, !carefully);
    let bound = answered(patience, transaction.bind(&sql, &[])).await;
    bound.map_err(Error::of_source).context(format!("reading {}", source.name()))
}

/// Finds the relation that this transaction reads as the source. The function first runs a read that returns no row: it
/// takes the lock that every swap, rewrite and truncation must wait for until the transaction ends. So the relation
/// found is the one that the pass compares, and a table that replaces it later is never recorded as read. The snapshot
/// may be older than a swap. Rows of the new table that the snapshot does not show were written at or above its xmin,
/// and the next pass selects those.
pub(in crate::store) async fn relation_read(
    transaction: &Transaction<'_>,
    patience: Option<Duration>,
    source: &Source,
) -> Result<TableFile> {
    let table = quote::table(&source.definition);
    let reading = || format!("reading {}", source.name());
    let lock = quote::fill(include_str!("../sql/frontier/relation_lock.sql"), &[("table", &table)]);
    answered(patience, transaction.batch_execute(&lock)).await.map_err(Error::of_source).context(reading())?;
    let params: [&(dyn ToSql + Sync); 1] = [&table];
    let found = transaction.query_one(include_str!("../sql/frontier/relation.sql"), &params);
    let row = answered(patience, found).await.map_err(Error::of_source).context(reading())?;
    Ok(TableFile { oid: row.try_get(0)?, filenode: row.try_get(1)? })
}

impl FrontierRead<'_> {
    /// The next rows, at most `limit` and about [`BATCH_BYTES`]. Empty when the pass is over.
    pub async fn next(&mut self, limit: i32) -> Result<Vec<Row>> {
        if self.careful.is_some() {
            return self.next_carefully(limit).await;
        }
        // Request only what fits a batch: the server waits to send rows that we do not read, and cannot be cancelled
        // meanwhile.
        let fit =
            i32::try_from(BATCH_BYTES.checked_div(self.width).unwrap_or(usize::MAX)).unwrap_or(i32::MAX);
        let limit = limit.min(if self.width == 0 { FIRST_ROWS } else { fit.max(1) });
        let transaction = self.transaction.as_ref().ok_or_else(gave_way)?;
        let Some(portal) = &self.portal else { return Ok(Vec::new()) };
        let longest = self.patience.map(|p| p + LONGEST_SCAN);
        let fetch = fetch(transaction, portal, &mut self.fetched, limit, longest);
        let (rows, bytes) = self.lookout.unless(fetch).await.map_err(Error::of_source)?;
        self.width = self.width.max(bytes.checked_div(rows.len()).unwrap_or(0));
        Ok(rows)
    }

    /// How long to wait for the next rows.
    pub(super) fn scan_patience(&self) -> Option<Duration> {
        self.patience.map(|p| p + LONGEST_SCAN)
    }

    /// Runs `work` while the transaction stays open. The server ends a transaction that is idle for two seconds,
    /// because its client may be stopped, so this function sends signs of life. If another session waits for the lock,
    /// the transaction ends and the next read reports that. `work` is completed in either case.
    pub async fn meanwhile<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        while let Some(transaction) = &self.transaction {
            let wanted = tokio::select! {
                done = &mut work => return done,
                () = self.lookout.noticed() => true,
                () = tokio::time::sleep(SIGN_OF_LIFE) => {
                    // An empty statement, sent without waiting: its answer comes after the rows in the socket. The next
                    // fetch reports any error of the session.
                    let _ = transaction.batch_execute("").now_or_never();
                    false
                }
            };
            if wanted {
                // Dropping both discards the rows and sends the rollback. Neither waits for the server.
                (self.fetched, self.transaction) = (None, None);
            }
        }
        work.await
    }

    /// Counts, in the same snapshot, whether every id that was handed off still has its row.
    pub async fn conservation(&mut self, worker: &str, source: &Source) -> Result<Option<Conservation>> {
        let definition = &source.definition;
        let Some((lowest, highest)) = definition.id.id_type.bounds() else { return Ok(None) };
        let sql = quote::fill(
            include_str!("../sql/frontier/conservation.sql"),
            &[("table", &quote::table(definition)), ("id", &quote::identifier(&definition.id.column))],
        );
        let params: [&(dyn ToSql + Sync); 5] = [&worker, &source.name(), &lowest, &highest, &self.there];
        let patience = self.patience.map(|p| p + LONGEST_SCAN);
        let transaction = self.transaction.as_ref().ok_or_else(gave_way)?;
        let row = self
            .lookout
            .unless(answered(patience, transaction.query_one(&sql, &params)))
            .await
            .map_err(Error::of_source)
            .context(format!("counting the rows of {}", source.name()))?;
        Ok(Some(Conservation {
            handed_off: row.try_get("handed_off")?,
            certified_away: row.try_get("certified_away")?,
            rows: row.try_get("rows")?,
            highest_handed_off: row.try_get("highest_handed_off")?,
            highest: row.try_get("highest")?,
        }))
    }

    pub async fn close(mut self) -> Result<()> {
        self.fetched = None;
        match self.transaction.take() {
            Some(transaction) => answered(self.patience, transaction.rollback()).await,
            None => Ok(()),
        }
    }
}

/// The next rows of a portal, and their size in bytes. Rows beyond one batch stay in `fetched`.
async fn fetch(
    transaction: &Transaction<'_>,
    portal: &Portal,
    fetched: &mut Option<Pin<Box<RowStream>>>,
    limit: i32,
    patience: Option<Duration>,
) -> Result<(Vec<Row>, usize)> {
    let (mut rows, mut bytes) = (Vec::new(), 0);
    loop {
        let asked = fetched.is_none();
        let stream = match fetched {
            Some(stream) => stream,
            None => {
                let stream = answered(patience, transaction.query_portal_raw(portal, limit)).await?;
                fetched.insert(Box::pin(stream))
            }
        };
        while let Some(row) = answered(patience, stream.try_next()).await? {
            let row = text_row(&row, 0)?;
            bytes += row.size();
            rows.push(row);
            if bytes > BATCH_BYTES {
                return Ok((rows, bytes));
            }
        }
        *fetched = None;
        // An earlier request may have nothing left. Only a new request without rows means the end.
        if asked || !rows.is_empty() {
            return Ok((rows, bytes));
        }
    }
}
