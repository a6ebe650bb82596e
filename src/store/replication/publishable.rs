//! Which sources a publication can carry. A source that it cannot carry is read from its table; all others are
//! streamed.

use crate::core::handoff::Source;
use crate::error::{Error, Result};
use crate::store::Session;
use std::sync::Arc;
use tokio_postgres::types::ToSql;

#[derive(Debug, Default)]
pub struct Publishable {
    pub sources: Vec<Arc<Source>>,
    /// The sources that it cannot carry, each with the reason.
    pub left: Vec<(Arc<Source>, String)>,
}

impl<R> Session<R> {
    pub async fn publishable(&self, sources: &[Arc<Source>]) -> Result<Publishable> {
        let schemas: Vec<_> = sources.iter().map(|s| s.definition.schema.as_str()).collect();
        let tables: Vec<_> = sources.iter().map(|s| s.definition.table()).collect();
        let columns = sources
            .iter()
            .map(|s| serde_json::to_value(&s.definition.columns))
            .collect::<Result<Vec<_>, _>>()?;
        let params: [&(dyn ToSql + Sync); 3] = [&schemas, &tables, &columns];
        let rows = self.rows(include_str!("../sql/replication/publishable.sql"), &params).await?;
        let raw = self.streams_raw().await?;
        let mut out = Publishable::default();
        for (source, row) in sources.iter().zip(&rows) {
            let problem = match row.try_get::<_, Option<String>>(0)? {
                None if raw && !plain_names(source) => {
                    Some("its names are not plain ASCII, and the database's encoding is not UTF8".to_owned())
                }
                problem => problem,
            };
            match problem {
                Some(problem) => out.left.push((Arc::clone(source), problem)),
                None => out.sources.push(Arc::clone(source)),
            }
        }
        Ok(out)
    }

    /// Whether the stream delivers text in the encoding of the database. With UTF-8, which the replication client asks
    /// for, the server would end the stream at every character without an equivalent, after each restart again.
    pub async fn streams_raw(&self) -> Result<bool> {
        let row = self.one(include_str!("../sql/replication/server.sql"), &[]).await?;
        Ok(row.try_get::<_, String>("encoding")? != "UTF8")
    }

    /// Converts texts from the encoding of the database, as every other path reads them. For each: the text, or why it
    /// cannot be sent.
    pub async fn legible(&self, texts: &[&[u8]]) -> Result<Vec<Result<String, String>>> {
        let mut out = Vec::with_capacity(texts.len());
        let mut stack = vec![texts];
        while let Some(texts) = stack.pop() {
            match self.rows(include_str!("../sql/replication/legible.sql"), &[&texts]).await {
                Ok(rows) => {
                    for row in &rows {
                        out.push(Ok(row.try_get(0)?));
                    }
                }
                Err(Error { code: Some(code), .. }) if texts.len() == 1 && code.starts_with("22") => {
                    out.push(Err(code))
                }
                Err(e) if e.of_contents() => {
                    let (left, right) = texts.split_at(texts.len() / 2);
                    stack.extend([right, left]);
                }
                Err(e) => return Err(e),
            }
        }
        Ok(out)
    }
}

/// The stream sends the names of tables and columns in the encoding of the database, too.
fn plain_names(source: &Source) -> bool {
    let definition = &source.definition;
    definition.schema.is_ascii()
        && definition.table().is_ascii()
        && definition.columns.iter().all(|column| column.is_ascii())
}
