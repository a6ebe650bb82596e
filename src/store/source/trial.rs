//! The trial of a definition before it is accepted: the server gets the same statements that reading will use, for no
//! rows.

use crate::core::definition::SourceDefinition;
use crate::core::handoff::Source;
use crate::error::{Error, Kind, Result};
use crate::store::read::{Bound, RangeDepth, Span, statement};
use crate::store::role::Reads;
use crate::store::source::catalogue::Strategy;
use crate::store::{Session, quote};
use tokio_postgres::types::ToSql;

/// No worker has this name, so it has no open ranges and the page is empty.
const NOBODY: &str = "";
/// Selects no row, but is planned like a condition that does.
const NO_ROW: &str = "false";
const FIRST_PLACE: &str = "(0,0)";

impl<R> Session<R> {
    /// Prepares a definition as if it were registered; it need not be.
    pub async fn shaped(&self, definition: &SourceDefinition) -> Result<Source> {
        let mut source = Source::compile(definition.clone())?;
        let sql = quote::fill(
            include_str!("../sql/source/shape.sql"),
            &[("columns_of", &columns_of("$1::text", "$2::text", "$3::jsonb"))],
        );
        let columns = serde_json::to_value(&definition.columns)?;
        let params: [&(dyn ToSql + Sync); 3] = [&definition.schema, &definition.table(), &columns];
        let row = self.one(&sql, &params).await?;
        source.cast_apart = row.try_get::<_, Vec<String>>("cast_apart")?.into_iter().collect();
        source.plain_text = row.try_get::<_, Vec<String>>("plain_text")?.into_iter().collect();
        Ok(source)
    }
}

impl<R: Reads> Session<R> {
    /// Rejects a definition that does not fit the catalogue ([`check_source`](Self::check_source)), or with which the
    /// server cannot read rows.
    pub async fn accept_source(&self, definition: &SourceDefinition) -> Result<Strategy> {
        let strategy = self.check_source(definition).await?;
        let source = self.shaped(definition).await?;
        self.read_nothing(&source, &strategy).await.map_err(|e| {
            let place = format!("{}.{}", definition.schema, definition.table());
            // The message concerns the definition and quotes no row, so it may be repeated.
            let kind = if e.kind == Kind::Data { Kind::Catalogue } else { e.kind };
            let problem = format!(
                "source {}: the server cannot read {place} by this definition: {e}; correct the definition, or the table and its \
                 privileges",
                definition.name
            );
            Error::new(kind, problem)
        })?;
        Ok(strategy)
    }

    /// Runs every statement that reads rows, over no rows.
    async fn read_nothing(&self, source: &Source, strategy: &Strategy) -> Result<()> {
        if matches!(strategy, Strategy::Ranges { .. }) {
            self.rows_in_ranges(NOBODY, source, RangeDepth::All, 0, 1).await?;
        }
        self.rows_by_key(source, &[]).await?;
        self.rows_in_span(source, &Span::default(), None, 0, None).await?;
        if source.definition.order.is_some() {
            let since = Span { from: Some(Bound::Time("infinity".to_owned())), to: None };
            self.rows_in_span(source, &since, None, 0, None).await?;
        }
        // Includes the condition of the publication's row filter, if there is one.
        let columns = quote::text_columns(source);
        self.rows(&statement::frontier(source, &columns, FIRST_PLACE, NO_ROW, true), &[]).await?;
        self.statement(&statement::scan(source, NO_ROW)).await?;
        Ok(())
    }
}

/// The part of a statement that asks the catalogue about columns, with the expressions for schema, table and column
/// list.
#[must_use]
pub(super) fn columns_of(schema: &str, table: &str, columns: &str) -> String {
    let places = [("schema", schema), ("table", table), ("columns", columns)];
    quote::fill(include_str!("../sql/source/columns_of.sql"), &places)
}
