//! Certificates, the whereabouts of signals, and retention: the data that the proof of completeness rests on.

use crate::core::certificate::Certificate;
use crate::core::dead_letter::{RETRY_KIND, letter_key};
use crate::core::handoff::{Handoff, Source};
use crate::core::time::PgInstant;
use crate::core::watermark::Key;
use crate::error::{Context, Error, Result};
use crate::store::lease::Lease;
use crate::store::role::{Reads, Writes};
use crate::store::value::Instant;
use crate::store::{Session, quote};
use serde_json::Value;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

/// One signal that a row should have, with the names under which it may be staged or dead-lettered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    pub id: Uuid,
    pub key: String,
    number: Option<i64>,
    staged: Uuid,
    letter: String,
    /// When the row was written, if the row says so. A dead letter that is older concerns another row.
    occurred: Option<PgInstant>,
}

impl Expected {
    /// One signal of the row with this key.
    #[must_use]
    pub fn new(source: &Source, key: &str, id: Uuid) -> Self {
        let number = Key::parse(source.id_type(), key).and_then(|k| k.as_int());
        Self::numbered(source, key, id, number)
    }

    /// As [`new`](Self::new), with the integer key by which retention remembers the row, if it has one.
    #[must_use]
    pub fn numbered(source: &Source, key: &str, id: Uuid, number: Option<i64>) -> Self {
        Self {
            id,
            number,
            staged: source.identity.signal(key, RETRY_KIND),
            letter: letter_key(source.name(), key),
            key: key.to_owned(),
            occurred: None,
        }
    }

    /// Sets the time at which the row was written.
    #[must_use]
    pub fn of(self, occurred: Option<PgInstant>) -> Self {
        Self { occurred, ..self }
    }
}

impl<R> Session<R> {
    /// Returns those of `expected` that are recorded nowhere.
    pub async fn unaccounted(&self, source: &str, expected: &[Expected]) -> Result<Vec<Uuid>> {
        let ids: Vec<_> = expected.iter().map(|e| e.id).collect();
        let letters: Vec<_> = expected.iter().map(|e| e.letter.as_str()).collect();
        let numbers: Vec<_> = expected.iter().map(|e| e.number).collect();
        let staged: Vec<_> = expected.iter().map(|e| e.staged).collect();
        let occurred: Vec<_> = expected.iter().map(|e| e.occurred.map(Instant)).collect();
        let params: [&(dyn ToSql + Sync); 6] = [&source, &ids, &letters, &numbers, &staged, &occurred];
        let rows = self.rows(include_str!("sql/proof/unaccounted.sql"), &params).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// Returns the signals that belong to replaced rows, each with whether the key is already noted as reused.
    pub async fn replaced(&self, source: &Source, handoffs: &[&Handoff]) -> Result<Vec<(Uuid, bool)>> {
        let ids: Vec<_> = handoffs.iter().map(|h| h.id).collect();
        let subjects: Vec<_> = handoffs.iter().map(|h| h.subject).collect();
        let objects: Vec<_> = handoffs.iter().map(|h| h.object_ref.as_str()).collect();
        let numbers: Vec<_> = handoffs.iter().map(|h| h.number).collect();
        let occurred: Vec<_> = handoffs.iter().map(|h| h.occurred_at.map(Instant)).collect();
        let params: [&(dyn ToSql + Sync); 6] =
            [&ids, &subjects, &objects, &numbers, &occurred, &source.version];
        let rows = self.rows(include_str!("sql/proof/replaced.sql"), &params).await?;
        rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
    }

    /// Returns those of `subjects` whose key is noted as reused.
    pub async fn reused(&self, subjects: &[Uuid]) -> Result<Vec<Uuid>> {
        let rows = self.rows(include_str!("sql/proof/reused.sql"), &[&subjects]).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// Returns those of `ids` that were retired while another signal of the same row was kept.
    pub async fn retired(&self, ids: &[Uuid]) -> Result<Vec<Uuid>> {
        let rows = self.rows(include_str!("sql/proof/retired.sql"), &[&ids]).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    pub async fn certificates(&self, worker: &str) -> Result<Vec<Value>> {
        let rows = self.rows(include_str!("sql/proof/certificates.sql"), &[&worker]).await?;
        rows.iter().map(|row| Ok(row.try_get("certificate")?)).collect()
    }

    pub async fn certificate_history(&self, limit: i64) -> Result<Vec<Value>> {
        let rows = self.rows(include_str!("sql/proof/certificate_history.sql"), &[&limit]).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    pub async fn watermark_at(&self, worker: &str, source: &str) -> Result<Option<PgInstant>> {
        let row = self.optional(include_str!("sql/proof/watermark.sql"), &[&worker, &source]).await?;
        Ok(row.map(|r| r.try_get::<_, Option<Instant>>(0)).transpose()?.flatten().map(|t| t.0))
    }
}

impl<R: Reads> Session<R> {
    /// Returns those of `keys` that no source row has.
    pub async fn absent_keys(&self, source: &Source, keys: &[String]) -> Result<Vec<String>> {
        let definition = &source.definition;
        let (table, id) = (quote::table(definition), quote::identifier(&definition.id.column));
        let places = [("table", table.as_str()), ("id", &id), ("id_type", definition.id.id_type.sql_name())];
        let sql = quote::fill(include_str!("sql/read/absent_keys.sql"), &places);
        let rows = self.rows_of_tables(&sql, &[&keys]).await.map_err(Error::of_source)?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }
}

impl<R: Writes> Session<R> {
    /// Notes that these keys were reused. `subjects` are the subjects that the keys have without a replacement.
    pub async fn note_reused(&self, lease: &Lease, source: &str, subjects: &[Uuid]) -> Result<()> {
        let Lease { worker, owner, term } = lease;
        self.one(include_str!("sql/proof/key_reused.sql"), &[worker, owner, term, &source, &subjects])
            .await?;
        Ok(())
    }

    /// Stores a certificate as the source's latest, and in the history if `history` is set. Refused if another definition
    /// than `version` is in force.
    pub async fn put_certificate(
        &self,
        lease: &Lease,
        worker: &str,
        certificate: &Certificate,
        history: bool,
        version: Option<Uuid>,
    ) -> Result<()> {
        let value = serde_json::to_value(certificate)?;
        let source = &certificate.source;
        let params: [&(dyn ToSql + Sync); 8] =
            [&lease.worker, &lease.owner, &lease.term, &worker, source, &value, &history, &version];
        self.one(include_str!("sql/proof/certificate_put.sql"), &params)
            .await
            .context("keeping a certificate")?;
        Ok(())
    }

    /// Removes one chunk of certified signals older than `before`; zero when none are left.
    pub async fn retire(&self, worker: &str, before: &str, limit: i32) -> Result<i64> {
        Ok(self
            .one(include_str!("sql/proof/retire_signals.sql"), &[&worker, &before, &limit])
            .await?
            .try_get(0)?)
    }

    /// Removes one chunk of captures that were drained before `before` and whose signals are accounted for.
    pub async fn retire_drained(&self, before: &str, limit: i32) -> Result<i64> {
        Ok(self.one(include_str!("sql/proof/retire_captures.sql"), &[&before, &limit]).await?.try_get(0)?)
    }

    /// Removes one chunk of our own notices (such as heartbeats) that are older than `before`; zero when none are left.
    pub async fn retire_notices(&self, before: &str, limit: i32) -> Result<i64> {
        Ok(self.one(include_str!("sql/proof/retire_notices.sql"), &[&before, &limit]).await?.try_get(0)?)
    }
}
