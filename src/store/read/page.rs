//! One page of rows, of the open ranges or of a stretch. A page with an unreadable row is an error here.

use crate::core::handoff::Source;
use crate::core::id_ranges::Range;
use crate::core::row::Row;
use crate::error::{Context, Error, Kind, Result};
use crate::store::read::{BATCH_BYTES, Bound, Found, RangeDepth, Span, statement, text_row};
use crate::store::role::Reads;
use crate::store::{Session, quote};
use futures_util::TryStreamExt;
use std::time::Duration;
use tokio_postgres::types::ToSql;

/// How often a stretch is read again after its read gave way, with a pause before each attempt for the session that
/// waited.
const READ_AGAIN: u32 = 20;
const TURN_OF_OTHERS: Duration = Duration::from_millis(500);

impl<R: Reads> Session<R> {
    /// A page of the open ranges from the id `from` on, in key order. Fewer rows than `limit` mean the end, or a full
    /// [`BATCH_BYTES`].
    pub(super) async fn range_page(
        &self,
        worker: &str,
        source: &Source,
        columns: &str,
        depth: RangeDepth,
        from: i64,
        limit: i64,
    ) -> Result<Vec<Found>> {
        let sql = statement::ranges(source, columns, depth);
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

    /// A page of the source in key order, after `after` if given. Empty at the end. Fewer rows than `limit` may also
    /// mean a full [`BATCH_BYTES`].
    pub(super) async fn span_page(
        &self,
        source: &Source,
        columns: &str,
        span: &Span,
        after: Option<&str>,
        limit: i64,
        certified: Option<u64>,
    ) -> Result<Vec<(bool, Row)>> {
        let sql = span_sql(source, columns, span, after, certified)?;
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

fn span_sql(
    source: &Source,
    columns: &str,
    span: &Span,
    after: Option<&str>,
    certified: Option<u64>,
) -> Result<String> {
    let definition = &source.definition;
    Ok(quote::fill(
        include_str!("../sql/read/span.sql"),
        &[
            ("columns", columns),
            ("table", &quote::table(definition)),
            ("id", &quote::identifier(&definition.id.column)),
            ("fresh", &certified.map_or_else(|| "true".to_owned(), younger_than)),
            ("after", &after.map_or_else(|| "true".to_owned(), |key| beyond(source, ">", key))),
            ("from", &bounded(source, ">=", span.from.as_ref())?),
            ("to", &bounded(source, "<=", span.to.as_ref())?),
        ],
    ))
}

/// The condition for one end of a stretch.
fn bounded(source: &Source, op: &str, bound: Option<&Bound>) -> Result<String> {
    let time = match bound {
        None => return Ok("true".to_owned()),
        Some(Bound::Key(key)) => return Ok(beyond(source, op, key)),
        Some(Bound::Time(time)) => time,
    };
    if source.definition.order.is_none() {
        let problem = format!("source {} has no order column; give keys, not times", source.name());
        return Err(Error::config(problem));
    }
    let at = statement::order_at(source);
    Ok(format!("{at} {op}{}::timestamptz", quote::literal(time)))
}

fn beyond(source: &Source, op: &str, key: &str) -> String {
    let id = &source.definition.id;
    format!("t.{} {op}{}::{}", quote::identifier(&id.column), quote::literal(key), id.id_type.sql_name())
}

/// Selects rows whose inserting transaction is not older than `frontier`. There is no snapshot here that bounds them
/// above.
fn younger_than(frontier: u64) -> String {
    format!("age(t.xmin) <= age('{frontier}'::xid8::xid)")
}
