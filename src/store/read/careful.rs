//! Reading around rows that the server cannot send, because of a character without an equivalent in UTF-8 or a damaged
//! value. A page that cannot be read is halved until the unreadable row is found. That row is returned as its key and a
//! reason ([`Row::unreadable`]), so every path can set it aside. All other rows are returned as usual.

use crate::core::handoff::Source;
use crate::core::row::Row;
use crate::error::{Error, Result};
use crate::store::read::{CAREFUL_PAGE, Found, RangeDepth, Span, statement, text_row};
use crate::store::role::Reads;
use crate::store::{Session, quote};
use std::collections::HashMap;

impl<R: Reads> Session<R> {
    /// The next rows in the open ranges from the id `from` on, in key order. Empty at the end.
    pub async fn rows_in_ranges(
        &self,
        worker: &str,
        source: &Source,
        depth: RangeDepth,
        from: i64,
        limit: i64,
    ) -> Result<Vec<Found>> {
        let columns = quote::text_columns(source);
        match self.range_page(worker, source, &columns, depth, from, limit).await {
            Err(e) if e.of_contents() => {}
            read => return read,
        }
        let key = statement::key_column(source);
        let found = self.range_page(worker, source, &key, depth, from, limit.min(CAREFUL_PAGE)).await?;
        let mut rows = self.rows_of(source, found.iter().map(|f| &f.row)).await?;
        // A row that was deleted meanwhile stays in its open range.
        let read = |f: Found| Some(Found { row: rows.remove(f.row.get(0)?)?, range: f.range });
        Ok(found.into_iter().filter_map(read).collect())
    }

    /// A page of the source in key order, after `after` if given. Empty at the end.
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
        let key = statement::key_column(source);
        let mut last = after.map(str::to_owned);
        loop {
            let keys = self
                .span_page(source, &key, span, last.as_deref(), limit.min(CAREFUL_PAGE), certified)
                .await?;
            let Some((_, end)) = keys.last() else { return Ok(vec![]) };
            last = end.get(0).map(str::to_owned);
            let mut rows = self.rows_of(source, keys.iter().map(|(_, row)| row)).await?;
            let read = |(fresh, row): (bool, Row)| Some((fresh, rows.remove(row.get(0)?)?));
            let read: Vec<_> = keys.into_iter().filter_map(read).collect();
            // If every row of this page was deleted meanwhile, there may still be rows after it.
            if !read.is_empty() {
                return Ok(read);
            }
        }
    }

    /// Reads the rows with these keys, in the same form as on every other path.
    pub async fn rows_by_key(&self, source: &Source, keys: &[String]) -> Result<Vec<Row>> {
        let sql = statement::by_key(source);
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

    /// The rows whose keys are in the first column of `keys`, indexed by key.
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

fn unreadable(source: &Source, key: String, e: Error) -> Row {
    source.unreadable(key, e.code.unwrap_or_default())
}
