//! One session with the database: its connection, its prepared statements, and how long it waits for an answer.

use crate::config::Target;
use crate::error::codes::NO_ANSWER;
use crate::error::{Error, Result};
use crate::store::role::{Administers, Includes};
use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio_postgres::types::ToSql;
use tokio_postgres::{CancelToken, Client, Row, Statement};

/// What a second session needs to know to watch a session that reads.
pub(super) struct Watched {
    /// The very server that the session is with.
    pub target: Target,
    pub encrypted: bool,
    pub pid: i32,
    pub cancel: CancelToken,
}

/// What a session shares with the task of its connection.
pub(super) struct Attended {
    pub wanted: oneshot::Sender<()>,
    pub notified: Arc<Notify>,
}

/// A session with the database. The role `R` says what the session may do; see [`role`](crate::store::role).
pub struct Session<R> {
    pub(super) client: Client,
    prepared: Mutex<HashMap<String, Statement>>,
    /// How long a statement may stay unanswered before the connection counts as dead.
    pub(super) patience: Option<Duration>,
    major: u32,
    /// The session reads tables only and no views, for its whole life.
    pub(super) tables_only: bool,
    /// For the session that watches this one.
    pub(super) watched: Arc<Watched>,
    /// Notifications that the server sent to this session.
    notified: Arc<Notify>,
    listening: AtomicBool,
    /// Dropping it tells the task of the connection that nobody waits for an answer.
    _wanted: oneshot::Sender<()>,
    /// `fn() -> R`, because a session holds no value of type `R`.
    role: PhantomData<fn() -> R>,
}

impl<R> Session<R> {
    pub(super) fn new(client: Client, attended: Attended, major: u32, watched: Watched) -> Self {
        let (prepared, watched) = (Mutex::default(), Arc::new(watched));
        let (patience, tables_only, role) = (None, false, PhantomData);
        let Attended { wanted, notified } = attended;
        let listening = AtomicBool::new(false);
        Self {
            client,
            prepared,
            patience,
            major,
            tables_only,
            watched,
            notified,
            listening,
            _wanted: wanted,
            role,
        }
    }

    /// Gives up a part of what the session may do.
    #[must_use]
    pub fn into_role<Part>(self) -> Session<Part>
    where
        R: Includes<Part>,
    {
        let Self {
            client,
            prepared,
            patience,
            major,
            tables_only,
            watched,
            notified,
            listening,
            _wanted,
            role: _,
        } = self;
        let role = PhantomData;
        Session {
            client,
            prepared,
            patience,
            major,
            tables_only,
            watched,
            notified,
            listening,
            _wanted,
            role,
        }
    }

    /// The server's major version.
    #[must_use]
    pub fn major(&self) -> u32 {
        self.major
    }

    /// From now on a statement that is not answered within this time fails. Behind a proxy that keeps the connection
    /// open, a timeout is the only way to tell a dead server from a slow one.
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

    /// From now on an emitter wakes this session; see [`woken`](Self::woken).
    pub async fn listen_to_feed(&self) -> Result<()> {
        if !self.listening.load(Ordering::Relaxed) {
            self.answer(self.client.batch_execute(include_str!("sql/feed/listen.sql"))).await?;
            self.listening.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Waits for a notification. It is a hint to look sooner: without it, nothing is lost.
    pub async fn woken(&self) {
        self.notified.notified().await;
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
    /// For statements that the caller writes.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    pub fn client_mut(&mut self) -> &mut Client {
        &mut self.client
    }
}

/// Waits for an answer, at most `patience` if a limit is given.
pub(super) async fn answered<T>(
    patience: Option<Duration>,
    answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T> {
    let Some(patience) = patience else { return Ok(answer.await?) };
    match tokio::time::timeout(patience, answer).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(Error::of(&NO_ANSWER, format!("the server did not answer within {patience:?}"))),
    }
}
