//! One session with the database: its connection, the statements it has prepared, how long it waits for an answer.

use crate::config::Target;
use crate::error::{Error, Kind, Result};
use crate::store::role::{Administers, Includes};
use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio_postgres::types::ToSql;
use tokio_postgres::{CancelToken, Client, Row, Statement};

/// A session that reads, as another one sees it.
pub(super) struct Watched {
    pub target: Target,
    pub pid: i32,
    pub cancel: CancelToken,
}

/// A session with the database and the statements it has prepared. `R` says what it is for, and so what it can be asked; see
/// [`role`](crate::store::role).
pub struct Session<R> {
    pub(super) client: Client,
    prepared: Mutex<HashMap<String, Statement>>,
    /// How long a statement may go unanswered before the connection is taken for dead.
    pub(super) patience: Option<Duration>,
    major: u32,
    /// It reads no view, from its first statement to its last.
    pub(super) tables_only: bool,
    /// What another session needs to know to look after this one.
    pub(super) watched: Arc<Watched>,
    /// Its end tells the connection's task that nobody waits for an answer any more.
    _wanted: oneshot::Sender<()>,
    /// A function, because a session holds no value of its role.
    role: PhantomData<fn() -> R>,
}

impl<R> Session<R> {
    pub(super) fn new(client: Client, wanted: oneshot::Sender<()>, major: u32, watched: Watched) -> Self {
        let (prepared, watched) = (Mutex::default(), Arc::new(watched));
        let (patience, tables_only, role) = (None, false, PhantomData);
        Self { client, prepared, patience, major, tables_only, watched, _wanted: wanted, role }
    }

    /// The same session, which from now on can do no more than a part of what it could.
    #[must_use]
    pub fn into_role<Part>(self) -> Session<Part>
    where
        R: Includes<Part>,
    {
        let Self { client, prepared, patience, major, tables_only, watched, _wanted, role: _ } = self;
        Session { client, prepared, patience, major, tables_only, watched, _wanted, role: PhantomData }
    }

    /// The server's major version.
    #[must_use]
    pub fn major(&self) -> u32 {
        self.major
    }

    /// From now on a statement that is not answered within this time fails. A peer that is gone without a word, behind a
    /// proxy that keeps the connection up, cannot be told from a slow one in any other way.
    #[must_use]
    pub fn within(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    pub(super) async fn answer<T>(
        &self,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T> {
        answered(self.patience, answer).await
    }

    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Prepares once per session.
    pub(super) async fn statement(&self, sql: &str) -> Result<Statement> {
        let known = self.prepared.lock().map(|p| p.get(sql).cloned()).unwrap_or_default();
        if let Some(statement) = known {
            return Ok(statement);
        }
        let statement = self.answer(self.client.prepare(sql)).await?;
        if let Ok(mut prepared) = self.prepared.lock() {
            prepared.insert(sql.to_owned(), statement.clone());
        }
        Ok(statement)
    }

    pub(super) async fn rows(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
        let statement = self.statement(sql).await?;
        self.answer(self.client.query(&statement, params)).await
    }

    pub(super) async fn one(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Row> {
        let statement = self.statement(sql).await?;
        self.answer(self.client.query_one(&statement, params)).await
    }

    pub(super) async fn optional(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Option<Row>> {
        let statement = self.statement(sql).await?;
        self.answer(self.client.query_opt(&statement, params)).await
    }
}

impl<R: Administers> Session<R> {
    /// For statements of the caller's own.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    pub fn client_mut(&mut self) -> &mut Client {
        &mut self.client
    }
}

/// Waits for an answer no longer than `patience`, if there is any bound at all.
pub(super) async fn answered<T>(
    patience: Option<Duration>,
    answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T> {
    let Some(patience) = patience else { return Ok(answer.await?) };
    match tokio::time::timeout(patience, answer).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(Error::new(Kind::Connection, format!("the server did not answer within {patience:?}"))),
    }
}
