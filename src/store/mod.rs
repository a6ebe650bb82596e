//! The sole owner of SQL. Every statement stands in `sql/`, every write goes through a function gate.

pub mod apply;
pub mod catalogue;
pub mod connect;
pub mod cursor;
pub mod findings;
pub mod lease;
pub mod migrate;
pub mod proof;
pub mod quote;
pub mod replication;
pub mod rows;
pub mod status;
pub mod types;
mod value;

use crate::error::Result;
use std::collections::HashMap;
use std::sync::Mutex;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};

/// A session with the database and the statements it has prepared.
pub struct Store {
    client: Client,
    prepared: Mutex<HashMap<String, Statement>>,
}

impl Store {
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client, prepared: Mutex::new(HashMap::new()) }
    }

    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    pub fn client_mut(&mut self) -> &mut Client {
        &mut self.client
    }

    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Prepares once per session.
    async fn statement(&self, sql: &str) -> Result<Statement> {
        let known = self.prepared.lock().map(|p| p.get(sql).cloned()).unwrap_or_default();
        if let Some(statement) = known {
            return Ok(statement);
        }
        let statement = self.client.prepare(sql).await?;
        if let Ok(mut prepared) = self.prepared.lock() {
            prepared.insert(sql.to_owned(), statement.clone());
        }
        Ok(statement)
    }

    async fn rows(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
        let statement = self.statement(sql).await?;
        Ok(self.client.query(&statement, params).await?)
    }

    async fn one(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Row> {
        let statement = self.statement(sql).await?;
        Ok(self.client.query_one(&statement, params).await?)
    }

    async fn optional(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Option<Row>> {
        let statement = self.statement(sql).await?;
        Ok(self.client.query_opt(&statement, params).await?)
    }
}
