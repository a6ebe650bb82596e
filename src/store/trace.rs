//! What is recorded about one key of one source. Each statement goes by a key or by an index, so a trace costs the same
//! on a million rows as on none.

use crate::core::dead_letter::{RETRY_KIND, letter_key};
use crate::core::handoff::Source;
use crate::core::time::PgInstant;
use crate::core::trace::{
    CaptureReason, RetiredSignal, TracedBacklog, TracedCapture, TracedCertificate, TracedGroup, TracedLetter,
    TracedObject, TracedRange, TracedSignal, TracedStaging,
};
use crate::core::watermark::Key;
use crate::error::{Context, Error, Kind, Result};
use crate::store::role::Reads;
use crate::store::value::Instant;
use crate::store::{Session, quote};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

/// The identities under which something may be recorded about a key.
pub struct NamesOfKey {
    /// Signals of every kind that there is, and the staged row.
    ids: Vec<Uuid>,
    staged: Uuid,
    /// All identities of an integer key lie between these two.
    between: Option<(Uuid, Uuid)>,
    key: String,
}

impl NamesOfKey {
    /// `kinds`: every kind that a signal may have. `more`: identities that the row has besides.
    #[must_use]
    pub fn of(source: &Source, key: &Key, kinds: &[String], more: &[Uuid]) -> Self {
        let text = key.to_string();
        let staged = source.identity.signal(&text, RETRY_KIND);
        let mut ids: Vec<_> = kinds.iter().map(|kind| source.identity.signal(&text, kind)).collect();
        ids.extend(more.iter().chain([&staged]));
        ids.sort_unstable();
        ids.dedup();
        Self { ids, staged, between: key.as_int().map(|id| source.identity.bounds_of(id)), key: text }
    }

    fn ends(&self) -> (Option<Uuid>, Option<Uuid>) {
        self.between.unzip()
    }
}

/// Captures, and the staged row among them.
#[derive(Debug, Default)]
pub struct WaitingOfKey {
    pub captures: Vec<TracedCapture>,
    pub staged: Option<TracedStaging>,
}

impl<R: Reads> Session<R> {
    /// The transaction that wrote the row with this key, as the row shows it.
    pub async fn writer_of(&self, source: &Source, key: &Key) -> Result<Option<i64>> {
        let id = &source.definition.id;
        let (table, column) = (quote::table(&source.definition), quote::identifier(&id.column));
        let places = [("table", table.as_str()), ("id", &column), ("id_type", id.id_type.sql_name())];
        let sql = quote::fill(include_str!("sql/trace/writer.sql"), &places);
        let rows = self.rows_of_tables(&sql, &[&key.to_string()]).await;
        let rows = rows.map_err(|e| e.of_source().context(format!("reading {}", source.name())))?;
        rows.first().map(|row| Ok(row.try_get("writer")?)).transpose()
    }
}

impl<R> Session<R> {
    /// The full number of a transaction, and when it committed, where the server knows that.
    pub async fn transaction(&self, short: i64) -> Result<(Option<u64>, Option<PgInstant>)> {
        let row = self.one(include_str!("sql/trace/transaction.sql"), &[&short]).await?;
        Ok((number(&row, "transaction")?, instant(&row, "committed_at")?))
    }

    pub async fn open_range_of(&self, worker: &str, source: &str, id: i64) -> Result<Option<TracedRange>> {
        let row = self.optional(include_str!("sql/trace/range.sql"), &[&worker, &source, &id]).await?;
        row.map(|row| {
            Ok(TracedRange {
                lo: row.try_get("lo")?,
                hi: row.try_get("hi")?,
                hot: row.try_get("hot")?,
                tail: row.try_get("tail")?,
                head: row.try_get("head")?,
                opened_at: instant(&row, "opened_at")?,
            })
        })
        .transpose()
    }

    /// The transaction below which everything of a source is handed off.
    pub async fn frontier_of(&self, worker: &str, source: &str) -> Result<Option<u64>> {
        let row = self.optional(include_str!("sql/trace/frontier.sql"), &[&worker, &source]).await?;
        row.map_or(Ok(None), |row| number(&row, "frontier"))
    }

    /// Every kind of handoff that a signal may have.
    pub async fn kinds_of_handoffs(&self) -> Result<Vec<String>> {
        let rows =
            self.rows(include_str!("sql/trace/kinds.sql"), &[]).await.context("reading the event types")?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    pub async fn signals_of(&self, names: &NamesOfKey) -> Result<Vec<TracedSignal>> {
        let (from, to) = names.ends();
        let params: [&(dyn ToSql + Sync); 4] = [&names.ids, &from, &to, &names.key];
        let rows = self.rows(include_str!("sql/trace/signals.sql"), &params).await;
        let mut signals = Vec::new();
        for row in &rows.context("reading the signals")? {
            signals.push(TracedSignal {
                id: row.try_get("id")?,
                kind: row.try_get("event_type")?,
                address: row.try_get("canonical_address")?,
                group: row.try_get("group_key")?,
                captured_by: row.try_get("captured_by")?,
                recorded_at: instant(row, "created_at")?,
                transaction: self.transaction(row.try_get("writer")?).await?.0,
                feed_position: row.try_get("pos")?,
            });
        }
        Ok(signals)
    }

    pub async fn captures_of(&self, names: &NamesOfKey, by_actor: bool) -> Result<WaitingOfKey> {
        let (from, to) = names.ends();
        let rows = self.rows(include_str!("sql/trace/captures.sql"), &[&names.ids, &from, &to]).await;
        let mut waiting = WaitingOfKey::default();
        for row in &rows.context("reading the captures")? {
            let (id, drained_at) = (row.try_get("id")?, instant(row, "processed_at")?);
            let last_error: Option<String> = row.try_get("last_error")?;
            if id == names.staged {
                waiting.staged = drained_at.is_none().then_some(TracedStaging {
                    attempts: row.try_get("error_count")?,
                    last_error,
                    staged_at: instant(row, "created_at")?,
                    next_attempt_at: instant(row, "next_attempt_at")?,
                });
                continue;
            }
            waiting.captures.push(TracedCapture {
                id,
                kind: row.try_get::<_, Option<String>>("kind")?.unwrap_or_default(),
                address: row.try_get("canonical_address")?,
                group: row.try_get("group_key")?,
                captured_by: row.try_get("captured_by")?,
                why: match last_error.as_deref() {
                    Some("untrusted_source") => CaptureReason::Untrusted,
                    Some("unmapped") => CaptureReason::Unmapped,
                    Some("refused_by_outbox") => CaptureReason::RefusedByOutbox,
                    _ => CaptureReason::InactiveType,
                },
                producer: row.try_get(if by_actor { "actor_ref" } else { "source_system" })?,
                captured_at: instant(row, "created_at")?,
                drained_at,
            });
        }
        Ok(waiting)
    }

    pub async fn letter_of(&self, worker: &str, source: &Source, key: &Key) -> Result<Option<TracedLetter>> {
        let letter = letter_key(source.name(), &key.to_string());
        let params: [&(dyn ToSql + Sync); 3] = [&worker, &source.name(), &letter];
        let row = self.optional(include_str!("sql/trace/letter.sql"), &params).await;
        row.context("reading the dead letter")?
            .map(|row| {
                let at = |name| Ok::<_, Error>(row.try_get::<_, Instant>(name)?.0);
                Ok(TracedLetter {
                    id: row.try_get("id")?,
                    code: row.try_get("failure_code")?,
                    attempts: row.try_get("attempts")?,
                    first_failed_at: at("first_failed_at")?,
                    last_failed_at: at("last_failed_at")?,
                    resolved_at: instant(&row, "resolved_at")?,
                    resolution: row.try_get("resolution")?,
                    resolved_by: row.try_get("resolved_by")?,
                })
            })
            .transpose()
    }

    /// When the last signal was recorded of those that retention removed for an integer key, if it removed all of them.
    pub async fn retired_key(&self, source: &str, id: i64) -> Result<Option<PgInstant>> {
        let row = self.optional(include_str!("sql/trace/retired.sql"), &[&source, &id]).await?;
        row.map_or(Ok(None), |row| instant(&row, "recorded_at"))
    }

    pub async fn retired_signals_of(&self, names: &NamesOfKey) -> Result<Vec<RetiredSignal>> {
        let rows = self.rows(include_str!("sql/trace/retired_signals.sql"), &[&names.ids]).await?;
        let retired = |row: &Row| {
            Ok(RetiredSignal { id: row.try_get("id")?, recorded_at: instant(row, "recorded_at")? })
        };
        rows.iter().map(retired).collect()
    }

    /// The boundary of the source, if a row with this key lies before it.
    pub async fn backlog_of(&self, source: &Source, key: &Key) -> Result<Option<TracedBacklog>> {
        let subject = source.identity.subject(&key.to_string());
        let params: [&(dyn ToSql + Sync); 3] = [&source.name(), &key.as_int(), &subject];
        let row = self.optional(include_str!("sql/trace/backlog.sql"), &params).await?;
        row.map(|row| {
            let policy: String = row.try_get("policy")?;
            let policy = policy.parse().map_err(|e| Error::new(Kind::Internal, e))?;
            Ok(TracedBacklog { policy, taken_at: instant(&row, "taken_at")? })
        })
        .transpose()
    }

    /// The first certificate that is complete through a later transaction than this one.
    pub async fn first_certificate(
        &self,
        worker: &str,
        source: &str,
        transaction: u64,
    ) -> Result<Option<TracedCertificate>> {
        let transaction = i64::try_from(transaction).unwrap_or(i64::MAX);
        let params: [&(dyn ToSql + Sync); 3] = [&worker, &source, &transaction];
        let row = self.optional(include_str!("sql/trace/certificate.sql"), &params).await;
        row.context("reading the certificates")?
            .map(|row| {
                Ok(TracedCertificate {
                    kind: row.try_get("kind")?,
                    taken_at: instant(&row, "taken_at")?,
                    frontier: number(&row, "frontier")?.unwrap_or_default(),
                    lsn: row.try_get("lsn")?,
                    may_be_later: row.try_get("may_be_later")?,
                })
            })
            .transpose()
    }

    /// A group and the object with this address, as far as there are such.
    pub async fn group_of(&self, group: &str, address: &str) -> Result<Option<TracedGroup>> {
        let row = self.optional(include_str!("sql/trace/group.sql"), &[&group, &address]).await;
        row.context("reading the group")?
            .map(|row| {
                let object = match row.try_get::<_, Option<String>>("candidate_key")? {
                    None => None,
                    Some(address) => Some(TracedObject {
                        address,
                        input: row.try_get("input_quality_state")?,
                        input_reason: row.try_get("input_reason")?,
                        verdict: row.try_get("candidate_verdict")?,
                        scanned_at: instant(&row, "object_scanned_at")?,
                    }),
                };
                Ok(TracedGroup {
                    group: group.to_owned(),
                    verdict: row.try_get("verdict")?,
                    dirty: row.try_get::<_, Option<bool>>("dirty")?.unwrap_or(false),
                    scanned_at: instant(&row, "scanned_at")?,
                    object,
                })
            })
            .transpose()
    }

    /// Whether an open finding says that the source cannot be read.
    pub async fn is_unreadable(&self, source: &str) -> Result<bool> {
        Ok(self.one(include_str!("sql/trace/unreadable.sql"), &[&source]).await?.try_get(0)?)
    }
}

fn instant(row: &Row, name: &str) -> Result<Option<PgInstant>> {
    Ok(row.try_get::<_, Option<Instant>>(name)?.map(|at| at.0))
}

/// A transaction's number.
fn number(row: &Row, name: &str) -> Result<Option<u64>> {
    Ok(row.try_get::<_, Option<i64>>(name)?.and_then(|n| n.try_into().ok()))
}
