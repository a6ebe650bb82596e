//! Certificates, what accounts for a signal, and retention: what the proof of no loss is read from and written to.

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

/// One signal that a row should have, with what accounts for it elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    pub id: Uuid,
    pub key: String,
    number: Option<i64>,
    staged: Uuid,
    letter: String,
    /// When its row came to be, if it says so: a letter that is older is about another row.
    occurred: Option<PgInstant>,
}

impl Expected {
    /// One signal of the row with this key.
    #[must_use]
    pub fn new(source: &Source, key: &str, id: Uuid) -> Self {
        let number = Key::parse(source.id_type(), key).and_then(|k| k.as_int());
        Self::numbered(source, key, id, number)
    }

    /// The same; `number` is what retention remembers its row by, if it does so by a number.
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

    /// The same of a row that came to be then.
    #[must_use]
    pub fn of(self, occurred: Option<PgInstant>) -> Self {
        Self { occurred, ..self }
    }
}

impl<R> Session<R> {
    /// Those of `expected` that are recorded nowhere at all.
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

    /// Those of a source's signals whose row took the key of another, each with whether the key is noted as reused.
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

    /// Those of `subjects` whose key is noted as reused.
    pub async fn reused(&self, subjects: &[Uuid]) -> Result<Vec<Uuid>> {
        let rows = self.rows(include_str!("sql/proof/reused.sql"), &[&subjects]).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// Those of `ids` that retention took although something else of their row was left.
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
    /// Those of `keys` that no source row has.
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
    /// Notes that rows took the keys of others, by the subjects that such keys have by themselves.
    pub async fn note_reused(&self, lease: &Lease, source: &str, subjects: &[Uuid]) -> Result<()> {
        let Lease { worker, owner, term } = lease;
        self.one(include_str!("sql/proof/key_reused.sql"), &[worker, owner, term, &source, &subjects])
            .await?;
        Ok(())
    }

    /// Keeps a certificate as the source's latest, and in the history if it is worth an entry.
    pub async fn put_certificate(
        &self,
        lease: &Lease,
        worker: &str,
        certificate: &Certificate,
        history: bool,
    ) -> Result<()> {
        let value = serde_json::to_value(certificate)?;
        let params: [&(dyn ToSql + Sync); 7] =
            [&lease.worker, &lease.owner, &lease.term, &worker, &certificate.source, &value, &history];
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

    /// Removes one chunk of what we said about ourselves before `before`; zero when nothing is left.
    pub async fn retire_notices(&self, before: &str, limit: i32) -> Result<i64> {
        Ok(self.one(include_str!("sql/proof/retire_notices.sql"), &[&before, &limit]).await?.try_get(0)?)
    }
}
