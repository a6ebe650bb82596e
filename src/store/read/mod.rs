//! Reading the rows of a source: by open ranges, by a stretch of keys, or by single keys. Reads are typed and bounded
//! and never use OFFSET. The rows written since the frontier are read by [`frontier`](super::frontier).

mod careful;
mod page;
pub mod statement;

use crate::core::id_ranges::Range;
use crate::core::row::Row;
use crate::error::Result;
use crate::store::Session;
use crate::store::role::Reads;
use crate::store::value::Text;
use std::time::Duration;
use tokio_postgres::types::ToSql;

/// The size in bytes at which a batch is cut. It limits memory when rows are wide, because a row is held several times
/// while it is applied. Five thousand ordinary rows are well below this size.
pub const BATCH_BYTES: usize = 2 << 20;

/// Rows in a page that is read carefully. The page is small because its rows are read again by their keys.
pub(super) const CAREFUL_PAGE: i64 = 200;

/// A row and the open range it was found in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub range: Range,
    pub row: Row,
}

/// Which ranges a pass probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RangeDepth {
    /// The tail, and the ranges that an open transaction may still fill.
    Hot,
    All,
}

/// One end of a stretch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bound {
    Key(String),
    Time(String),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Span {
    pub from: Option<Bound>,
    pub to: Option<Bound>,
}

impl<R> Session<R> {
    /// Sets a statement timeout for the rest of this session.
    pub async fn bound_reads(&self, timeout: Duration) -> Result<()> {
        let millis = timeout.as_millis().to_string();
        self.one(include_str!("../sql/session/statement_timeout.sql"), &[&millis]).await?;
        Ok(())
    }
}

impl<R: Reads> Session<R> {
    /// From now on this session reads nothing but tables. A source is a table when its definition is checked, but its
    /// owner may later replace the table with a view. The functions of that view would run with our privileges.
    pub async fn only_tables(mut self) -> Result<Self> {
        self.set_tables_only(true).await?;
        self.tables_only = true;
        Ok(self)
    }

    /// Runs a statement that reads a source, in a session that otherwise also reads our views.
    pub async fn rows_of_tables(
        &self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<tokio_postgres::Row>> {
        if self.tables_only {
            return self.rows(sql, params).await;
        }
        self.set_tables_only(true).await?;
        let rows = self.rows(sql, params).await;
        self.set_tables_only(false).await?;
        rows
    }

    async fn set_tables_only(&self, on: bool) -> Result<()> {
        self.rows(include_str!("../sql/session/tables_only.sql"), &[&on]).await?;
        Ok(())
    }
}

pub(super) fn text_row(row: &tokio_postgres::Row, skip: usize) -> Result<Row> {
    let text = |i| Ok(row.try_get::<_, Option<Text>>(i)?.map(|t| t.0));
    (skip..row.len()).map(text).collect::<Result<Vec<_>>>().map(Row::new)
}
