//! Registered sources, and the state of reading them.

pub mod boundary;
pub mod catalogue;
mod trial;

use crate::core::definition::SourceDefinition;
use crate::core::handoff::Source;
use crate::error::codes::NOT_MIGRATED;
use crate::error::{Error, Result};
use crate::store::lease::Lease;
use crate::store::role::Writes;
use crate::store::value::Instant;
use crate::store::{Session, quote};
use boundary::Boundary;
use std::sync::Arc;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use trial::columns_of;

impl<R> Session<R> {
    /// The registered sources, ready to map rows. An error if one definition cannot be used.
    pub async fn sources(&self, worker: &str) -> Result<Vec<Arc<Source>>> {
        let Registered { sources, broken } = self.registered(worker).await?;
        broken.into_iter().next().map_or(Ok(sources), |(_, e)| Err(e))
    }

    /// As [`sources`](Self::sources), for a caller that continues with the usable sources.
    pub async fn registered(&self, worker: &str) -> Result<Registered> {
        let (schema, table) = (
            "coalesce(c.metadata ->> 'schema', 'public')",
            "coalesce(c.metadata ->> 'table', c.source_name)",
        );
        let sql = quote::fill(
            include_str!("../sql/source/list.sql"),
            &[("columns_of", &columns_of(schema, table, "c.metadata -> 'columns'"))],
        );
        let rows = self.rows(&sql, &[&worker]).await.map_err(|e| match e.state() {
            Some(SqlState::UNDEFINED_TABLE) => Error::of(
                &NOT_MIGRATED,
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

    pub async fn hot_ranges(&self, worker: &str, source: &str) -> Result<i64> {
        Ok(self.one(include_str!("../sql/source/hot_ranges.sql"), &[&worker, &source]).await?.try_get(0)?)
    }

    /// About how many rows a source has, for a progress bar.
    pub async fn row_estimate(&self, source: &Source) -> Result<i64> {
        let table = quote::table(&source.definition);
        Ok(self.one(include_str!("../sql/source/row_estimate.sql"), &[&table]).await?.try_get(0)?)
    }

    /// The transactions that may still fill an open range of `table`, and when the server was asked.
    pub async fn writers(&self, table: &str) -> Result<(ClockReading, Vec<String>)> {
        let row = self.one(include_str!("../sql/source/writers.sql"), &[&table]).await?;
        Ok((ClockReading(row.try_get("at")?), row.try_get("writers")?))
    }
}

impl<R: Writes> Session<R> {
    /// Registers or redefines sources, all or none. Returns `added`, `changed` or `unchanged` for each. `boundaries`: for
    /// each source that is new, what becomes of its backlog; without one, the backlog is handed off.
    pub async fn put_sources(
        &self,
        worker: &str,
        sources: &[SourceDefinition],
        boundaries: &[Option<Boundary>],
    ) -> Result<Vec<String>> {
        let names: Vec<_> = sources.iter().map(|s| s.name.as_str()).collect();
        let definitions = sources.iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>()?;
        let (lo, hi): (Vec<_>, Vec<_>) = sources.iter().map(|s| s.id.id_type.bounds().unzip()).unzip();
        let boundaries: Vec<_> = boundaries.iter().map(|b| b.as_ref().map(Boundary::to_json)).collect();
        let params: [&(dyn ToSql + Sync); 6] = [&worker, &names, &definitions, &lo, &hi, &boundaries];
        let rows = self.rows(include_str!("../sql/source/put.sql"), &params).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    pub async fn remove_source(&self, worker: &str, name: &str) -> Result<bool> {
        Ok(self.one(include_str!("../sql/source/remove.sql"), &[&worker, &name]).await?.try_get(0)?)
    }

    /// Makes ranges cold that were opened before `before`.
    pub async fn cool_ranges(&self, lease: &Lease, source: &str, before: ClockReading) -> Result<i64> {
        let params: [&(dyn ToSql + Sync); 5] = [&lease.worker, &lease.owner, &lease.term, &source, &before.0];
        Ok(self.one(include_str!("../sql/source/cool_ranges.sql"), &params).await?.try_get(0)?)
    }
}

/// The sources of a worker.
#[derive(Debug, Default)]
pub struct Registered {
    pub sources: Vec<Arc<Source>>,
    /// The sources whose stored definition cannot be used, each with the reason.
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

/// A reading of the database's clock. It is only meant to be passed back to the database.
#[derive(Debug, Clone, Copy)]
pub struct ClockReading(pub(in crate::store) Instant);
