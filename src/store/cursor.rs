//! Registered sources, and the state each is read with.

use crate::core::continuity::Position;
use crate::core::definition::SourceDefinition;
use crate::core::handoff::Source;
use crate::core::lsn::Lsn;
use crate::error::{Context, Error, Kind, Result};
use crate::store::lease::Lease;
use crate::store::trial::columns_of;
use crate::store::value::{Instant, from_pg, to_pg};
use crate::store::{Store, quote};
use std::sync::Arc;

impl Store {
    /// The registered sources, ready to map rows; an error if the definition of one cannot be used.
    pub async fn sources(&self, worker: &str) -> Result<Vec<Arc<Source>>> {
        let Registered { sources, broken } = self.registered(worker).await?;
        broken.into_iter().next().map_or(Ok(sources), |(_, e)| Err(e))
    }

    /// The same for whoever goes on with the others.
    pub async fn registered(&self, worker: &str) -> Result<Registered> {
        let (schema, table) = (
            "coalesce(c.metadata ->> 'schema', 'public')",
            "coalesce(c.metadata ->> 'table', c.source_name)",
        );
        let sql = quote::fill(
            include_str!("sql/source/list.sql"),
            &[("columns_of", &columns_of(schema, table, "c.metadata -> 'columns'"))],
        );
        let rows = self.rows(&sql, &[&worker]).await.map_err(|e| match e.code.as_deref() {
            Some("42P01") => Error::new(
                Kind::Catalogue,
                "the governance tables are not here; run `gov-handoff migrate` first",
            ),
            _ => e.context("reading the sources"),
        })?;
        let mut registered = Registered::default();
        for row in &rows {
            let name: String = row.try_get(0)?;
            match loaded(&name, row) {
                Ok(source) => registered.sources.push(Arc::new(source)),
                Err(e) => registered.broken.push((name, e)),
            }
        }
        Ok(registered)
    }

    /// Registers or redefines sources, all of them or none; says of each `added`, `changed` or `unchanged`.
    pub async fn put_sources(&self, worker: &str, sources: &[SourceDefinition]) -> Result<Vec<String>> {
        let names: Vec<_> = sources.iter().map(|s| s.name.as_str()).collect();
        let definitions = sources.iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>()?;
        let (lo, hi): (Vec<_>, Vec<_>) = sources.iter().map(|s| s.id.id_type.bounds().unzip()).unzip();
        let rows =
            self.rows(include_str!("sql/source/put.sql"), &[&worker, &names, &definitions, &lo, &hi]).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    pub async fn remove_source(&self, worker: &str, name: &str) -> Result<bool> {
        Ok(self.one(include_str!("sql/source/remove.sql"), &[&worker, &name]).await?.try_get(0)?)
    }

    pub async fn stream_position(&self, slot: &str) -> Result<Option<Position>> {
        let row = self.optional(include_str!("sql/stream/position.sql"), &[&slot]).await?;
        row.map(|row| {
            Ok(Position {
                system_identifier: row.try_get(0)?,
                timeline: row.try_get(1)?,
                durable: from_pg(row.try_get(2)?),
            })
        })
        .transpose()
    }

    /// Binds the slot to a server and a starting position.
    pub async fn bind_stream(&self, lease: &Lease, slot: &str, at: &Position) -> Result<()> {
        let lsn = to_pg(at.durable);
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 7] =
            [&lease.worker, &lease.owner, &lease.term, &slot, &at.system_identifier, &at.timeline, &lsn];
        self.one(include_str!("sql/stream/bind.sql"), &params)
            .await
            .context("recording the stream's start")?;
        Ok(())
    }

    /// Records that nothing of ours is missing up to `lsn`.
    pub async fn confirm_stream(&self, lease: &Lease, slot: &str, lsn: Lsn) -> Result<()> {
        let lsn = to_pg(lsn);
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
            [&lease.worker, &lease.owner, &lease.term, &slot, &lsn];
        self.one(include_str!("sql/stream/confirm.sql"), &params).await?;
        Ok(())
    }

    /// Takes ranges opened before `before` off the hot list.
    pub async fn cool_ranges(&self, lease: &Lease, source: &str, before: ClockReading) -> Result<i64> {
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
            [&lease.worker, &lease.owner, &lease.term, &source, &before.0];
        Ok(self.one(include_str!("sql/source/cool_ranges.sql"), &params).await?.try_get(0)?)
    }

    pub async fn hot_ranges(&self, worker: &str, source: &str) -> Result<i64> {
        Ok(self.one(include_str!("sql/source/hot_ranges.sql"), &[&worker, &source]).await?.try_get(0)?)
    }

    /// Where the server's log ends now.
    pub async fn current_lsn(&self) -> Result<Lsn> {
        Ok(from_pg(self.one(include_str!("sql/stream/current_lsn.sql"), &[]).await?.try_get(0)?))
    }

    /// Writes a message to the log that a live stream brings back, and says where.
    pub async fn emit_probe(&self) -> Result<Lsn> {
        Ok(from_pg(self.one(include_str!("sql/stream/emit_probe.sql"), &[]).await?.try_get(0)?))
    }

    /// Has the log written to disk up to now, and says up to where.
    pub async fn flush_log(&self) -> Result<Lsn> {
        Ok(from_pg(self.one(include_str!("sql/stream/flush_log.sql"), &[]).await?.try_get(0)?))
    }

    /// Who may still fill a hole in `table`, and when that was asked.
    pub async fn writers(&self, table: &str) -> Result<(ClockReading, Vec<String>)> {
        let row = self.one(include_str!("sql/source/writers.sql"), &[&table]).await?;
        Ok((ClockReading(row.try_get("at")?), row.try_get("writers")?))
    }
}

/// The sources of a worker.
#[derive(Debug, Default)]
pub struct Registered {
    pub sources: Vec<Arc<Source>>,
    /// Those whose stored definition cannot be used, and why.
    pub broken: Vec<(String, Error)>,
}

fn loaded(name: &str, row: &tokio_postgres::Row) -> Result<Source> {
    let definition: SourceDefinition = serde_json::from_value(row.try_get(1)?)
        .map_err(|e| Error::config(format!("source {name}: its stored definition cannot be read: {e}")))?;
    let mut source = Source::compile_as(definition, row.try_get("version")?)?;
    source.cast_apart = row.try_get::<_, Vec<String>>("cast_apart")?.into_iter().collect();
    source.plain_text = row.try_get::<_, Vec<String>>("plain_text")?.into_iter().collect();
    Ok(source)
}

/// A reading of the database's clock, good for nothing but handing back to it.
#[derive(Debug, Clone, Copy)]
pub struct ClockReading(pub(in crate::store) Instant);
