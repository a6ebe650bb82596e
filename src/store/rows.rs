//! Reading source rows: by open ranges, by frontier, by a stretch of keys. Typed, bounded, never OFFSET.

use crate::core::conservation::Conservation;
use crate::core::frontier::{Distrust, Window, distrust};
use crate::core::gap::Range;
use crate::core::handoff::Source;
use crate::core::lsn::Lsn;
use crate::core::row::Row;
use crate::error::{Context, Error, Kind, Result};
use crate::store::careful::Careful;
use crate::store::give_way::{Lookout, gave_way};
use crate::store::lease::Lease;
use crate::store::value::{Text, from_pg, to_pg};
use crate::store::{Store, answered, quote, reading};
use futures_util::{FutureExt, TryStreamExt};
use std::pin::Pin;
use std::time::Duration;
use tokio_postgres::types::ToSql;
use tokio_postgres::{IsolationLevel, Portal, RowStream, Transaction};

/// A batch is cut at this many bytes too, so that wide rows do not cost more memory than many narrow ones: a row is held
/// several times over while it is applied. Five thousand ordinary rows are well below it.
pub const BATCH_BYTES: usize = 2 << 20;

/// How long a scan may run before its next rows come; the server's own bound of `sql/frontier/settings.sql`.
const LONGEST_SCAN: Duration = Duration::from_secs(600);

/// How often a transaction that waits says that it is there; well below the server's bound of `connect::READING`.
const SIGN_OF_LIFE: Duration = Duration::from_millis(500);

/// How many rows of unknown width are asked for first.
const FIRST_ROWS: i32 = 500;

/// A stretch whose read gave way is read again this often, after a pause each time. Whoever waited has had their turn by then.
const READ_AGAIN: u32 = 20;
const TURN_OF_OTHERS: Duration = Duration::from_millis(500);

/// A row and the open range it was found in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub range: Range,
    pub row: Row,
}

/// Which ranges a pass probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// The tail and the holes somebody may still fill.
    Hot,
    All,
}

impl Store {
    /// From now on no statement of this session may take longer.
    pub async fn bound_reads(&self, timeout: Duration) -> Result<()> {
        let millis = timeout.as_millis().to_string();
        self.one(include_str!("sql/session/statement_timeout.sql"), &[&millis]).await?;
        Ok(())
    }

    /// From now on this session reads nothing but tables. A source is a table when its definition is checked; its owner may put
    /// a view in its place at any later moment, and what that calls would run with our rights.
    pub async fn only_tables(mut self) -> Result<Self> {
        self.set_tables_only(true).await?;
        self.tables_only = true;
        Ok(self)
    }

    /// What a statement brings that reads a source, also in a session that goes on to read views of ours.
    pub async fn rows_of_tables(
        &self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<tokio_postgres::Row>> {
        if self.tables_only {
            return self.rows(sql, params).await;
        }
        self.set_tables_only(true).await?;
        let rows = self.rows(sql, params).await;
        self.set_tables_only(false).await?;
        rows
    }

    async fn set_tables_only(&self, on: bool) -> Result<()> {
        self.rows(include_str!("sql/session/tables_only.sql"), &[&on]).await?;
        Ok(())
    }

    /// A page of the open ranges from the id `from` on, in key order. Fewer than `limit` means there are no more, unless bytes
    /// ran out.
    pub(super) async fn range_page(
        &self,
        worker: &str,
        source: &Source,
        columns: &str,
        depth: Depth,
        from: i64,
        limit: i64,
    ) -> Result<Vec<Found>> {
        let sql = reading::ranges(source, columns, depth);
        let statement = self.statement(&sql).await.map_err(Error::of_source);
        let statement = statement.context(format!("source {}", source.name()))?;
        let params: [&(dyn ToSql + Sync); 4] = [&worker, &source.name(), &limit, &from];
        let reading = async {
            let stream = self.answer(self.client.query_raw(&statement, params)).await?;
            let mut stream = std::pin::pin!(stream);
            let (mut found, mut bytes) = (Vec::new(), 0);
            while let Some(row) = self.answer(stream.try_next()).await? {
                let range = Range { lo: row.try_get(0)?, hi: row.try_get(1)? };
                let row = text_row(&row, 2)?;
                bytes += row.size();
                found.push(Found { range, row });
                if bytes > BATCH_BYTES {
                    break; // What is left stays in its range and is read next.
                }
            }
            Ok(found)
        };
        let found = self.lookout().unless(reading).await;
        found.map_err(|e: Error| e.of_source().context(format!("reading {}", source.name())))
    }

    /// A stretch of the source in key order, after `after` if given. None when there are no more; fewer than `limit` may also
    /// mean that bytes ran out.
    pub(super) async fn span_page(
        &self,
        source: &Source,
        columns: &str,
        span: &Span,
        after: Option<&str>,
        limit: i64,
        certified: Option<u64>,
    ) -> Result<Vec<(bool, Row)>> {
        let definition = &source.definition;
        let id = quote::identifier(&definition.id.column);
        let id_type = definition.id.id_type.sql_name();
        let beyond = |op: &str, key: &str| format!("t.{id} {op}{}::{id_type}", quote::literal(key));
        let bound = |op: &str, bound: &Option<Bound>| -> Result<String> {
            match (bound, &definition.order) {
                (None, _) => Ok("true".to_owned()),
                (Some(Bound::Key(key)), _) => Ok(beyond(op, key)),
                (Some(Bound::Time(time)), Some(order)) => {
                    let column = format!("t.{}", quote::identifier(&order.column));
                    let zone = order.zone.to_string();
                    let at = match order.order_type {
                        crate::core::definition::OrderType::Timestamptz => column,
                        crate::core::definition::OrderType::Timestamp => {
                            format!("({column} at time zone{})", quote::literal(&zone))
                        }
                    };
                    Ok(format!("{at} {op}{}::timestamptz", quote::literal(time)))
                }
                (Some(Bound::Time(_)), None) => Err(Error::config(format!(
                    "source {} has no order column; give keys, not times",
                    source.name()
                ))),
            }
        };
        let sql = quote::fill(
            include_str!("sql/read/span.sql"),
            &[
                ("columns", columns),
                ("table", &quote::table(definition)),
                ("id", &id),
                ("fresh", &certified.map_or_else(|| "true".to_owned(), younger_than)),
                ("after", &after.map_or_else(|| "true".to_owned(), |key| beyond(">", key))),
                ("from", &bound(">=", &span.from)?),
                ("to", &bound("<=", &span.to)?),
            ],
        );
        let mut left = READ_AGAIN;
        loop {
            match self.lookout().unless(self.stretch(&sql, limit)).await {
                Err(e) if e.kind == Kind::SourceLocked && e.code.is_none() && left > 0 => {
                    left -= 1;
                    tokio::time::sleep(TURN_OF_OTHERS).await;
                }
                read => {
                    return read
                        .map_err(|e: Error| e.of_source().context(format!("reading {}", source.name())));
                }
            }
        }
    }

    async fn stretch(&self, sql: &str, limit: i64) -> Result<Vec<(bool, Row)>> {
        let stream = self.answer(self.client.query_raw(sql, [&limit])).await?;
        let mut stream = std::pin::pin!(stream);
        let (mut rows, mut bytes) = (Vec::new(), 0);
        while let Some(row) = self.answer(stream.try_next()).await? {
            let (fresh, row) = (row.try_get("fresh")?, text_row(&row, 1)?);
            bytes += row.size();
            rows.push((fresh, row));
            if bytes > BATCH_BYTES {
                break;
            }
        }
        Ok(rows)
    }
}

/// Selects rows whose inserting transaction is not older than `frontier`, when there is no snapshot to say where they end.
fn younger_than(frontier: u64) -> String {
    format!("age(t.xmin) <= age('{frontier}'::xid8::xid)")
}

/// Up to so many transactions are listed one by one. A list is the cheaper of the two, until it no longer fits the processor's
/// caches: measured on a million rows, 1.3 times a bare count with a thousand ids, 1.7 with sixty thousand; bytes take 1.6.
const LISTED: u32 = 16_384;

/// Selects rows that a transaction of this window inserted. Transaction ids have no order, but they are equal or not, and as
/// bytes they have one. The server may share such a scan among several processes, which it may not with `age`.
#[must_use]
pub fn written_in(window: Window) -> String {
    if window.width() <= LISTED {
        let ids: Vec<String> = window.ids().map(|id| id.to_string()).collect();
        return format!("t.xmin = any ('{{{}}}'::xid[])", ids.join(","));
    }
    let bytes = |xid: u32| format!("{}::bytea", quote::literal(&format!("\\x{xid:08x}")));
    let either = if window.wraps() { "or" } else { "and" };
    format!("xidsend(t.xmin) >={} {either} xidsend(t.xmin) <{}", bytes(window.first), bytes(window.end))
}

/// One end of a stretch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bound {
    Key(String),
    Time(String),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Span {
    pub from: Option<Bound>,
    pub to: Option<Bound>,
}

/// What a snapshot covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Every transaction below it has ended; what is not visible here was written at or above it.
    pub xmin: u64,
    pub next: u64,
    pub system_identifier: String,
    pub lsn: Option<Lsn>,
    pub taken_at: String,
}

/// The relation that is read under a source's table name, and the file its rows are in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relation {
    pub oid: u32,
    pub filenode: Option<u32>,
}

/// How far a source was compared, on which server and in which relation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frontier {
    pub xid: u64,
    pub system_identifier: String,
    pub relation: Option<Relation>,
}

impl Frontier {
    /// Why rows cannot be selected by it, seen from a snapshot and, where one is read, a relation.
    #[must_use]
    pub fn distrust(&self, snapshot: &Snapshot, relation: Option<Relation>) -> Option<Distrust> {
        let same_server = self.system_identifier == snapshot.system_identifier;
        let same_table = relation.is_none() || relation == self.relation;
        distrust(self.xid, snapshot.next, same_server, same_table)
    }
}

/// One frontier pass: a REPEATABLE READ snapshot, a look at every row, and a portal over those that are selected.
pub struct FrontierRead<'a> {
    /// None after it gave way.
    pub(super) transaction: Option<Transaction<'a>>,
    pub(super) lookout: Lookout,
    /// None when nothing is selected.
    pub(super) portal: Option<Portal>,
    /// Rows are read one by one where they cannot be read together.
    pub(super) careful: Option<Careful>,
    /// How many rows the table has in all.
    there: i64,
    /// Rows that were asked for and not yet taken: they wait in the socket, not in memory.
    fetched: Option<Pin<Box<RowStream>>>,
    /// How many bytes a row had on average in the widest batch.
    width: usize,
    patience: Option<Duration>,
    pub snapshot: Snapshot,
    pub relation: Relation,
    /// Why everything is compared, if it is.
    pub full: Option<Distrust>,
}

impl Store {
    pub async fn frontier(&self, worker: &str, source: &str) -> Result<Option<Frontier>> {
        let row = self.optional(include_str!("sql/frontier/recorded.sql"), &[&worker, &source]).await?;
        row.map(|row| {
            let (oid, filenode): (Option<u32>, _) = (row.try_get(2)?, row.try_get(3)?);
            let relation = oid.map(|oid| Relation { oid, filenode });
            Ok(Frontier { xid: parse_xid(row.try_get(0)?)?, system_identifier: row.try_get(1)?, relation })
        })
        .transpose()
    }

    /// Opens a pass over every row not older than the recorded frontier. `carefully`: some of them cannot be read, as a pass
    /// before this one found out.
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
        // The snapshot is taken by this statement and holds for all that follow.
        let taken = transaction.query_one(include_str!("sql/frontier/snapshot.sql"), &[]);
        let row = answered(patience, taken).await.context("taking a snapshot")?;
        let snapshot = Snapshot::from_row(&row)?;
        let relation = relation_read(&transaction, patience, source).await?;
        // A sequential scan of a large table may take longer than a poll is allowed to; waiting for the table's lock may not.
        answered(patience, transaction.batch_execute(include_str!("sql/frontier/settings.sql"))).await?;
        let full = match &known {
            Some(frontier) => frontier.distrust(&snapshot, Some(relation)),
            None => Some(Distrust::First),
        };
        let predicate = match &known {
            Some(frontier) if full.is_none() => written_in(Window::new(frontier.xid, snapshot.next)),
            _ => "true".to_owned(),
        };
        let reading = || format!("reading {}", source.name());
        let scan = reading::scan(source, &predicate);
        let longest = patience.map(|p| p + LONGEST_SCAN);
        let scanned = lookout.unless(answered(longest, transaction.query_one(&scan, &[]))).await;
        let scanned = scanned.map_err(Error::of_source).context(reading())?;
        let there = scanned.try_get("there")?;
        let portal = match scanned.try_get::<_, Option<&str>>("first")? {
            Some(first) => {
                let columns = if carefully { reading::PLACE.to_owned() } else { quote::text_columns(source) };
                let sql = reading::frontier(source, &columns, first, &predicate, !carefully);
                let bound = answered(patience, transaction.bind(&sql, &[])).await;
                Some(bound.map_err(Error::of_source).context(reading())?)
            }
            None => None,
        };
        let careful = carefully.then(|| Careful::new(source));
        let transaction = Some(transaction);
        let (fetched, width) = (None, 0);
        Ok(FrontierRead {
            transaction,
            lookout,
            portal,
            careful,
            there,
            fetched,
            width,
            patience,
            snapshot,
            relation,
            full,
        })
    }

    /// What a snapshot taken now covers.
    pub async fn snapshot(&self) -> Result<Snapshot> {
        Snapshot::from_row(&self.one(include_str!("sql/frontier/snapshot.sql"), &[]).await?)
    }

    /// Moves the frontier after everything below it, in this relation, was handed off.
    pub async fn advance_frontier(
        &self,
        lease: &Lease,
        source: &Source,
        snapshot: &Snapshot,
        relation: Relation,
    ) -> Result<()> {
        let frontier = snapshot.xmin.to_string();
        let (system, lsn) = (&snapshot.system_identifier, snapshot.lsn.map(to_pg));
        let params: [&(dyn ToSql + Sync); 10] = [
            &lease.worker,
            &lease.owner,
            &lease.term,
            &source.name(),
            &frontier,
            system,
            &lsn,
            &relation.oid,
            &relation.filenode,
            &source.version,
        ];
        self.one(include_str!("sql/frontier/advance.sql"), &params).await?;
        Ok(())
    }
}

/// Which relation this transaction reads as the source. Reading from it comes first, though nothing is read: that takes the
/// lock which every swap, rewrite and truncation has to wait for, until the transaction ends. So what is answered is what the
/// pass compares, and a table that takes its place later is never recorded as seen. The snapshot may be older than a swap;
/// rows of the new table that it does not show were written at or above its xmin, which the next pass selects.
async fn relation_read(
    transaction: &Transaction<'_>,
    patience: Option<Duration>,
    source: &Source,
) -> Result<Relation> {
    let table = quote::table(&source.definition);
    let reading = || format!("reading {}", source.name());
    let lock = quote::fill(include_str!("sql/frontier/relation_lock.sql"), &[("table", &table)]);
    answered(patience, transaction.batch_execute(&lock)).await.map_err(Error::of_source).context(reading())?;
    let params: [&(dyn ToSql + Sync); 1] = [&table];
    let found = transaction.query_one(include_str!("sql/frontier/relation.sql"), &params);
    let row = answered(patience, found).await.map_err(Error::of_source).context(reading())?;
    Ok(Relation { oid: row.try_get(0)?, filenode: row.try_get(1)? })
}

impl Snapshot {
    fn from_row(row: &tokio_postgres::Row) -> Result<Self> {
        if row.try_get::<_, bool>("recovering")? {
            return Err(Error::new(
                Kind::Catalogue,
                "this is a standby; its snapshot cannot certify anything, connect to the primary",
            ));
        }
        Ok(Self {
            xmin: parse_xid(row.try_get("xmin")?)?,
            next: parse_xid(row.try_get("xmax")?)?,
            system_identifier: row.try_get("system_identifier")?,
            lsn: row.try_get::<_, Option<_>>("lsn")?.map(from_pg),
            taken_at: row.try_get("taken_at")?,
        })
    }
}

impl FrontierRead<'_> {
    /// The next rows, at most `limit` and about [`BATCH_BYTES`]; none when the pass is over.
    pub async fn next(&mut self, limit: i32) -> Result<Vec<Row>> {
        if self.careful.is_some() {
            return self.next_carefully(limit).await;
        }
        // Not more than fit a batch: what we do not take the server waits to send, and meanwhile it cannot be cancelled.
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

    /// How long the next rows may take to come.
    pub(super) fn scan_patience(&self) -> Option<Duration> {
        self.patience.map(|p| p + LONGEST_SCAN)
    }

    /// Does something else while the transaction waits. The server ends a transaction that says nothing for a few seconds,
    /// because whoever holds it may be stopped; so we say that we are not. If somebody waits for it, it ends, and the next
    /// read says so; what was begun is done to its end.
    pub async fn meanwhile<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        while let Some(transaction) = &self.transaction {
            let wanted = tokio::select! {
                done = &mut work => return done,
                () = self.lookout.noticed() => true,
                () = tokio::time::sleep(SIGN_OF_LIFE) => {
                    // An empty statement, sent and not waited for: its answer comes after the rows that wait in the socket.
                    // What is wrong with the session is told to whoever fetches next.
                    let _ = transaction.batch_execute("").now_or_never();
                    false
                }
            };
            if wanted {
                // Dropping them discards the rows and sends the rollback, neither of which is waited for.
                (self.fetched, self.transaction) = (None, None);
            }
        }
        work.await
    }

    /// Whether every id that was handed off still has its row, in the same snapshot.
    pub async fn conservation(&mut self, worker: &str, source: &Source) -> Result<Option<Conservation>> {
        let definition = &source.definition;
        let Some((lowest, highest)) = definition.id.id_type.bounds() else { return Ok(None) };
        let sql = quote::fill(
            include_str!("sql/frontier/conservation.sql"),
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

/// The next rows of a portal, and their bytes. What is beyond a batch stays in `fetched`.
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
        // What was left of an earlier request may have been nothing; only a new one that brings none is the end.
        if asked || !rows.is_empty() {
            return Ok((rows, bytes));
        }
    }
}

pub(super) fn text_row(row: &tokio_postgres::Row, skip: usize) -> Result<Row> {
    let text = |i| Ok(row.try_get::<_, Option<Text>>(i)?.map(|t| t.0));
    (skip..row.len()).map(text).collect::<Result<Vec<_>>>().map(Row::new)
}

fn parse_xid(text: &str) -> Result<u64> {
    text.parse().map_err(|_| Error::new(Kind::Internal, format!("`{text}` is no transaction id")))
}
