//! The boundary of a source: which rows exist when it is registered. One snapshot says so.
//!
//! The rows are read and staged before the registration, which then only adopts what was staged. So the registration is
//! short, whatever the size of the table, and no batch of another source waits for it. The read takes the weakest lock on
//! the source, gives way to a session that waits for a stronger one, and never makes an insert wait.

use crate::core::certificate::Digest;
use crate::core::definition::{Backlog, SourceDefinition};
use crate::core::handoff::Source;
use crate::error::{Error, Kind, Result};
use crate::store::frontier::{Snapshot, TableFile, relation_read};
use crate::store::give_way::Lookout;
use crate::store::read::statement;
use crate::store::role::{Reads, Writes};
use crate::store::value::{Instant, Text};
use crate::store::{Session, quote};
use futures_util::TryStreamExt;
use serde_json::{Value, json};
use sha2::Digest as _;
use std::time::Duration;
use tokio_postgres::{IsolationLevel, Row, Transaction};
use uuid::Uuid;

/// How many ranges or keys are staged at once.
const PART: usize = 20_000;
/// How often a read begins again after it gave way, each time after a pause.
const READ_AGAIN: u32 = 20;
const TURN_OF_OTHERS: Duration = Duration::from_millis(500);

/// What was read of a source that is about to be registered.
#[derive(Debug, Clone)]
pub struct Boundary {
    /// The set that was staged. A backlog that is handed off has none.
    pub staged: Option<Uuid>,
    pub policy: Backlog,
    pub rows: u64,
    digest: String,
    shown: String,
    snapshot: Snapshot,
    relation: TableFile,
}

impl Boundary {
    /// In the form that the gate accepts.
    pub(super) fn to_json(&self) -> Value {
        let TableFile { oid, filenode } = self.relation;
        json!({
            "boundary": self.staged.map(|staged| staged.to_string()), "policy": self.policy.name(), "rows": self.rows, "digest": self.digest,
            "snapshot": self.shown, "frontier": self.snapshot.xmin.to_string(),
            "lsn": self.snapshot.lsn.map(|lsn| lsn.to_string()), "system_identifier": self.snapshot.system_identifier,
            "taken_at": self.snapshot.taken_at, "relation": oid, "filenode": filenode,
        })
    }
}

impl<R: Reads> Session<R> {
    /// The number of rows that a table has now.
    pub async fn count_rows(&self, definition: &SourceDefinition) -> Result<u64> {
        let sql =
            quote::fill(include_str!("../sql/backlog/count.sql"), &[("table", &quote::table(definition))]);
        let rows = self.rows_of_tables(&sql, &[]).await.map_err(Error::of_source)?;
        let count: Option<i64> = rows.first().map(|row| row.try_get(0)).transpose()?;
        Ok(count.unwrap_or(0).try_into().unwrap_or(0))
    }

    /// Reads and stages the boundary of a source. `writer` stages what this session reads; `seen` is called with the
    /// number of rows so far.
    pub async fn read_boundary<W: Writes>(
        &mut self,
        writer: &Session<W>,
        definition: &SourceDefinition,
        policy: Backlog,
        mut seen: impl FnMut(u64),
    ) -> Result<Boundary> {
        let source = Source::compile(definition.clone())?;
        let mut left = READ_AGAIN;
        loop {
            let staged = match policy {
                Backlog::HandOff => None,
                Backlog::Seed | Backlog::Skip => Some(writer.begin_boundary(source.name()).await?),
            };
            let read = self.boundary(writer, &source, policy, staged, &mut seen).await;
            let Err(e) = read else { return read };
            if let Some(staged) = staged {
                // Best effort: the next boundary removes what this one left behind.
                let _ = writer.forget_boundary(staged).await;
            }
            if e.kind != Kind::SourceLocked || left == 0 {
                return Err(e.context(format!("reading the backlog of {}", source.name())));
            }
            left -= 1;
            tokio::time::sleep(TURN_OF_OTHERS).await;
        }
    }

    async fn boundary<W: Writes>(
        &mut self,
        writer: &Session<W>,
        source: &Source,
        policy: Backlog,
        staged: Option<Uuid>,
        seen: &mut impl FnMut(u64),
    ) -> Result<Boundary> {
        let mut lookout = self.lookout();
        let begin = self.client.build_transaction().isolation_level(IsolationLevel::RepeatableRead);
        let transaction = begin.read_only(true).start().await?;
        // The first statement takes the snapshot, which holds for all that follow.
        let row = transaction.query_one(include_str!("../sql/frontier/snapshot.sql"), &[]).await?;
        let snapshot = Snapshot::from_row(&row)?;
        let shown =
            transaction.query_one(include_str!("../sql/backlog/snapshot.sql"), &[]).await?.try_get(0)?;
        let relation = relation_read(&transaction, None, source).await?;
        transaction.batch_execute(include_str!("../sql/frontier/settings.sql")).await?;
        let mut part = BoundaryPart::new(source, policy);
        let read = BoundaryRead { transaction: &transaction, lookout: &mut lookout };
        match staged {
            Some(staged) => read.stage(writer, source, staged, &mut part, seen).await?,
            None => part.rows = read.count(source).await?,
        }
        let (rows, digest) = (part.rows, part.digest());
        transaction.rollback().await?;
        Ok(Boundary { staged, policy, rows, digest, shown, snapshot, relation })
    }
}

struct BoundaryRead<'a, 't> {
    transaction: &'a Transaction<'t>,
    lookout: &'a mut Lookout,
}

impl BoundaryRead<'_, '_> {
    async fn count(self, source: &Source) -> Result<u64> {
        let table = quote::table(&source.definition);
        let sql = quote::fill(include_str!("../sql/backlog/count.sql"), &[("table", &table)]);
        let counted = async { Ok(self.transaction.query_one(&sql, &[]).await?) };
        let row = self.lookout.unless(counted).await.map_err(Error::of_source)?;
        Ok(row.try_get::<_, i64>(0)?.try_into().unwrap_or(0))
    }

    /// Stages while the server sends: it waits for us to read, and is not idle in its transaction.
    async fn stage<W: Writes>(
        self,
        writer: &Session<W>,
        source: &Source,
        staged: Uuid,
        part: &mut BoundaryPart<'_>,
        seen: &mut impl FnMut(u64),
    ) -> Result<()> {
        let sql = statement::boundary(source);
        let reading = async {
            let none: [i32; 0] = [];
            let stream = self.transaction.query_raw(&sql, none).await?;
            let mut stream = std::pin::pin!(stream);
            while let Some(row) = stream.try_next().await? {
                part.take(&row)?;
                if part.len() >= PART {
                    writer.stage_boundary(staged, part).await?;
                    seen(part.rows);
                }
            }
            if part.len() > 0 {
                writer.stage_boundary(staged, part).await?;
            }
            seen(part.rows);
            Ok(())
        };
        self.lookout.unless(reading).await.map_err(Error::of_source)
    }
}

/// What was read and is not staged yet, and the sums over everything.
struct BoundaryPart<'a> {
    source: &'a Source,
    ranges: bool,
    lo: Vec<i64>,
    hi: Vec<i64>,
    latest: Vec<Option<Instant>>,
    subjects: Vec<Uuid>,
    rows: u64,
    /// Over the subjects of the rows.
    of_keys: Digest,
    /// Over the ranges, which come in order.
    of_ranges: sha2::Sha256,
}

impl<'a> BoundaryPart<'a> {
    fn new(source: &'a Source, policy: Backlog) -> Self {
        Self {
            source,
            ranges: policy != Backlog::HandOff && source.id_type().bounds().is_some(),
            lo: Vec::new(),
            hi: Vec::new(),
            latest: Vec::new(),
            subjects: Vec::new(),
            rows: 0,
            of_keys: Digest::default(),
            of_ranges: sha2::Sha256::new(),
        }
    }

    fn len(&self) -> usize {
        self.lo.len() + self.subjects.len()
    }

    fn take(&mut self, row: &Row) -> Result<()> {
        if self.ranges {
            let (lo, hi): (i64, i64) = (row.try_get("lo")?, row.try_get("hi")?);
            self.lo.push(lo);
            self.hi.push(hi);
            self.latest.push(row.try_get("latest")?);
            self.rows += hi.abs_diff(lo).saturating_add(1);
            self.of_ranges.update(format!("{lo}:{hi},"));
        } else {
            let subject = self.source.identity.subject(&row.try_get::<_, Text>(0)?.0);
            self.subjects.push(subject);
            self.of_keys.add(subject);
            self.rows += 1;
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.lo.clear();
        self.hi.clear();
        self.latest.clear();
        self.subjects.clear();
    }

    /// The number of rows, and a digest of which they are.
    fn digest(self) -> String {
        if !self.ranges {
            return self.of_keys.to_string();
        }
        let hex: String = self.of_ranges.finalize().iter().take(16).map(|b| format!("{b:02x}")).collect();
        format!("{}:{hex}", self.rows)
    }
}

impl<R: Writes> Session<R> {
    async fn begin_boundary(&self, source: &str) -> Result<Uuid> {
        Ok(self.one(include_str!("../sql/backlog/begin.sql"), &[&source]).await?.try_get(0)?)
    }

    async fn stage_boundary(&self, staged: Uuid, part: &mut BoundaryPart<'_>) -> Result<()> {
        let BoundaryPart { lo, hi, latest, subjects, .. } = &*part;
        self.one(include_str!("../sql/backlog/stage.sql"), &[&staged, lo, hi, latest, subjects]).await?;
        part.clear();
        Ok(())
    }

    /// Removes what was staged and did not come into force.
    pub async fn forget_boundary(&self, staged: Uuid) -> Result<()> {
        self.one(include_str!("../sql/backlog/forget.sql"), &[&staged]).await?;
        Ok(())
    }
}
