//! A frontier pass over a table with rows that the server cannot send. The pass reads the places (`ctid`) of the rows
//! first, then the rows at those places. It halves a group of rows until the unreadable row is found.

use crate::core::handoff::Source;
use crate::core::row::Row;
use crate::error::{Context, Error, Kind, Result};
use crate::store::frontier::FrontierRead;
use crate::store::give_way::gave_way;
use crate::store::quote;
use crate::store::read::{CAREFUL_PAGE, statement, text_row};
use crate::store::session::answered;
use std::time::Duration;
use tokio_postgres::Transaction;
use tokio_postgres::types::ToSql;

/// A frontier pass that reads the places of rows first and then the rows, all in one snapshot.
pub(super) struct Careful {
    source: Source,
    /// The places of rows whose key cannot be read.
    lost: Vec<String>,
}

impl Careful {
    pub fn new(source: &Source) -> Self {
        Self { source: source.clone(), lost: Vec::new() }
    }
}

impl FrontierRead<'_> {
    /// As [`next`](Self::next), for a pass that reads carefully.
    pub(super) async fn next_carefully(&mut self, limit: i32) -> Result<Vec<Row>> {
        let limit = limit.min(i32::try_from(CAREFUL_PAGE).unwrap_or(i32::MAX));
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

    /// A row whose key cannot be read cannot become a dead letter, because nothing identifies it. The pass then does
    /// not count as complete, although all other rows are handed off.
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
        let whole = statement::by_place(source, &quote::text_columns(source));
        let key = statement::by_place(source, &statement::key_column(source));
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

/// Reads the rows at these places. If the read fails, the transaction continues from a savepoint.
async fn attempt(
    transaction: &Transaction<'_>,
    patience: Option<Duration>,
    sql: &str,
    places: &[String],
) -> Result<Vec<Row>> {
    let does = |sql: &'static str| answered(patience, transaction.batch_execute(sql));
    does(include_str!("../sql/read/savepoint.sql")).await?;
    let params: [&(dyn ToSql + Sync); 1] = [&places];
    match answered(patience, transaction.query(sql, &params)).await.map_err(Error::of_source) {
        Ok(rows) => {
            does(include_str!("../sql/read/savepoint_release.sql")).await?;
            rows.iter().map(|row| text_row(row, 1)).collect()
        }
        Err(e) if e.code.is_some() => {
            does(include_str!("../sql/read/savepoint_back.sql"))
                .await
                .context("after a row that cannot be read")?;
            Err(e)
        }
        Err(e) => Err(e),
    }
}
