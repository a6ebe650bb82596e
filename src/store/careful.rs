//! Reading around rows that the server cannot send: one character without an equivalent in UTF-8, one damaged value. What a
//! page cannot be read for is found by halving it. The row itself comes back as its key and a reason
//! ([`Row::unreadable`]), so that every path sets it aside or knows that it is, and the other rows come back as ever.

use crate::core::handoff::Source;
use crate::core::row::Row;
use crate::error::{Context, Error, Kind, Result};
use crate::store::give_way::gave_way;
use crate::store::rows::{Depth, Found, FrontierRead, Span, text_row};
use crate::store::{Store, answered, quote, reading};
use std::collections::HashMap;
use std::time::Duration;
use tokio_postgres::Transaction;
use tokio_postgres::types::ToSql;

/// Rows per page that is read with care. They are read by their keys, all at once, so there are few of them.
const PAGE: i64 = 200;

impl Store {
    /// The next rows in the open ranges from the id `from` on, in key order. None when there are no more.
    pub async fn rows_in_ranges(
        &self,
        worker: &str,
        source: &Source,
        depth: Depth,
        from: i64,
        limit: i64,
    ) -> Result<Vec<Found>> {
        let columns = quote::text_columns(source);
        match self.range_page(worker, source, &columns, depth, from, limit).await {
            Err(e) if e.of_contents() => {}
            read => return read,
        }
        let key = reading::key_column(source);
        let found = self.range_page(worker, source, &key, depth, from, limit.min(PAGE)).await?;
        let mut rows = self.rows_of(source, found.iter().map(|f| &f.row)).await?;
        // Whatever is gone by now stays in its range.
        let read = |f: Found| Some(Found { row: rows.remove(f.row.get(0)?)?, range: f.range });
        Ok(found.into_iter().filter_map(read).collect())
    }

    /// A stretch of the source in key order, after `after` if given. None when there are no more.
    pub async fn rows_in_span(
        &self,
        source: &Source,
        span: &Span,
        after: Option<&str>,
        limit: i64,
        certified: Option<u64>,
    ) -> Result<Vec<(bool, Row)>> {
        let columns = quote::text_columns(source);
        match self.span_page(source, &columns, span, after, limit, certified).await {
            Err(e) if e.of_contents() => {}
            read => return read,
        }
        let key = reading::key_column(source);
        let mut last = after.map(str::to_owned);
        loop {
            let keys =
                self.span_page(source, &key, span, last.as_deref(), limit.min(PAGE), certified).await?;
            let Some((_, end)) = keys.last() else { return Ok(vec![]) };
            last = end.get(0).map(str::to_owned);
            let mut rows = self.rows_of(source, keys.iter().map(|(_, row)| row)).await?;
            let read = |(fresh, row): (bool, Row)| Some((fresh, rows.remove(row.get(0)?)?));
            let read: Vec<_> = keys.into_iter().filter_map(read).collect();
            // If every one of them is gone by now there may still be others behind them.
            if !read.is_empty() {
                return Ok(read);
            }
        }
    }

    /// Reads the rows with these keys, as every path reads rows.
    pub async fn rows_by_key(&self, source: &Source, keys: &[String]) -> Result<Vec<Row>> {
        let sql = reading::by_key(source);
        let reading = |e: Error| e.of_source().context(format!("reading {}", source.name()));
        let (mut rows, mut stack) = (Vec::new(), vec![keys]);
        while let Some(keys) = stack.pop() {
            match self.rows_of_tables(&sql, &[&keys]).await.map_err(reading) {
                Ok(read) => {
                    for row in &read {
                        rows.push(text_row(row, 0)?);
                    }
                }
                Err(e) if e.of_contents() && !keys.is_empty() => match keys {
                    [key] => rows.push(unreadable(source, key.clone(), e)),
                    _ => {
                        let (left, right) = keys.split_at(keys.len() / 2);
                        stack.extend([right, left]);
                    }
                },
                Err(e) => return Err(e),
            }
        }
        Ok(rows)
    }

    /// The rows whose keys are the first columns of `keys`, by key.
    async fn rows_of<'k>(
        &self,
        source: &Source,
        keys: impl Iterator<Item = &'k Row>,
    ) -> Result<HashMap<String, Row>> {
        let keys: Vec<String> = keys.filter_map(|row| row.get(0).map(str::to_owned)).collect();
        let rows = self.rows_by_key(source, &keys).await?;
        Ok(rows.into_iter().map(|row| (source.key(&row).to_owned(), row)).collect())
    }
}

/// A frontier pass that reads the places of rows first, and then the rows at them, all in one snapshot.
pub(super) struct Careful {
    source: Source,
    /// The places of rows whose very key cannot be read.
    lost: Vec<String>,
}

impl Careful {
    pub fn new(source: &Source) -> Self {
        Self { source: source.clone(), lost: Vec::new() }
    }
}

impl FrontierRead<'_> {
    /// As [`next`](Self::next), of a pass that is read with care.
    pub(super) async fn next_carefully(&mut self, limit: i32) -> Result<Vec<Row>> {
        let limit = limit.min(i32::try_from(PAGE).unwrap_or(i32::MAX));
        loop {
            let places = self.places(limit).await?;
            if places.is_empty() {
                return Ok(vec![]);
            }
            let rows = self.rows_at(&places).await?;
            if !rows.is_empty() {
                return Ok(rows);
            }
        }
    }

    /// A row without a key has no name to be set aside by: then the pass does not count, though all others are handed off.
    pub fn complete(&self) -> Result<()> {
        let Some(Careful { source, lost }) = &self.careful else { return Ok(()) };
        let Some(first) = lost.first() else { return Ok(()) };
        let problem = format!(
            "source {}: the key of {} row(s) cannot be read, the first at ctid {first}; repair the row, all others are handed off",
            source.name(),
            lost.len()
        );
        Err(Error::new(Kind::Catalogue, problem).of_source())
    }

    async fn places(&mut self, limit: i32) -> Result<Vec<String>> {
        let patience = self.scan_patience();
        let transaction = self.transaction.as_ref().ok_or_else(gave_way)?;
        let Some(portal) = &self.portal else { return Ok(vec![]) };
        let fetched = answered(patience, transaction.query_portal(portal, limit));
        let fetched = self.lookout.unless(fetched).await.map_err(Error::of_source)?;
        fetched.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    async fn rows_at(&mut self, places: &[String]) -> Result<Vec<Row>> {
        let patience = self.scan_patience();
        let transaction = self.transaction.as_ref().ok_or_else(gave_way)?;
        let Some(careful) = &mut self.careful else { return Ok(vec![]) };
        self.lookout.unless(careful.halves(transaction, patience, places)).await
    }
}

impl Careful {
    async fn halves(
        &mut self,
        transaction: &Transaction<'_>,
        patience: Option<Duration>,
        places: &[String],
    ) -> Result<Vec<Row>> {
        let source = &self.source;
        let whole = reading::by_place(source, &quote::text_columns(source));
        let key = reading::by_place(source, &reading::key_column(source));
        let (mut rows, mut stack) = (Vec::new(), vec![places]);
        while let Some(places) = stack.pop() {
            let e = match attempt(transaction, patience, &whole, places).await {
                Ok(read) => {
                    rows.extend(read);
                    continue;
                }
                Err(e) if e.of_contents() => e,
                Err(e) => return Err(e),
            };
            let [place] = places else {
                let (left, right) = places.split_at(places.len() / 2);
                stack.extend([right, left]);
                continue;
            };
            match attempt(transaction, patience, &key, places).await {
                Ok(keys) => {
                    let keys = keys.iter().filter_map(|row| row.get(0).map(str::to_owned));
                    let code = e.code.unwrap_or_default();
                    rows.extend(keys.map(|key| source.unreadable(key, code.clone())));
                }
                Err(e) if e.of_contents() => self.lost.push(place.clone()),
                Err(e) => return Err(e),
            }
        }
        Ok(rows)
    }
}

/// Rows at these places. If that fails the transaction goes on without it.
async fn attempt(
    transaction: &Transaction<'_>,
    patience: Option<Duration>,
    sql: &str,
    places: &[String],
) -> Result<Vec<Row>> {
    let does = |sql: &'static str| answered(patience, transaction.batch_execute(sql));
    does(include_str!("sql/read/savepoint.sql")).await?;
    let params: [&(dyn ToSql + Sync); 1] = [&places];
    match answered(patience, transaction.query(sql, &params)).await.map_err(Error::of_source) {
        Ok(rows) => {
            does(include_str!("sql/read/savepoint_release.sql")).await?;
            rows.iter().map(|row| text_row(row, 1)).collect()
        }
        Err(e) if e.code.is_some() => {
            does(include_str!("sql/read/savepoint_back.sql"))
                .await
                .context("after a row that cannot be read")?;
            Err(e)
        }
        Err(e) => Err(e),
    }
}

fn unreadable(source: &Source, key: String, e: Error) -> Row {
    source.unreadable(key, e.code.unwrap_or_default())
}
