//! The hostile cases. Each writes, gets in the way, and waits until every row it committed was captured.

use crate::cli::selftest::child::{Daemon, Recipe};
use crate::cli::selftest::stage::Means;
use crate::cli::selftest::verdict::{CaseResult, RowCounts, judge};
use crate::core::mode::Intent;
use crate::error::Result;
use crate::store::role::Admin;
use crate::store::{Session, connect, quote};
use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    LateCommit,
    Savepoint,
    PreparedTransaction,
    BackDated,
    NullKey,
    RollbackThenVacuum,
    DroppedSlot,
    KillBeforeAcknowledge,
}

impl Case {
    pub const ALL: [Self; 8] = [
        Self::LateCommit,
        Self::Savepoint,
        Self::PreparedTransaction,
        Self::BackDated,
        Self::NullKey,
        Self::RollbackThenVacuum,
        Self::DroppedSlot,
        Self::KillBeforeAcknowledge,
    ];

    /// Also the label of its rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::LateCommit => "late_commit",
            Self::Savepoint => "savepoint",
            Self::PreparedTransaction => "prepared_transaction",
            Self::BackDated => "back_dated",
            Self::NullKey => "null_key",
            Self::RollbackThenVacuum => "rollback_then_vacuum",
            Self::DroppedSlot => "dropped_slot",
            Self::KillBeforeAcknowledge => "kill_before_acknowledge",
        }
    }
}

/// What a case is played with.
pub struct CaseStage<'a> {
    pub recipe: Recipe<'a>,
    pub means: &'a Means,
    pub store: &'a Session<Admin>,
    /// Another writer, whose transactions stay open.
    pub other: Session<Admin>,
    pub daemon: Daemon,
    pub patience: Duration,
}

impl CaseStage<'_> {
    pub async fn play(&mut self, case: Case) -> Result<CaseResult> {
        let label = case.name();
        match case {
            Case::LateCommit => {
                self.other.client().batch_execute("begin").await?;
                self.run(&self.other, include_str!("sql/write.sql"), label).await?;
                self.while_open(label).await
            }
            Case::Savepoint => {
                self.run(&self.other, include_str!("sql/savepoints.sql"), label).await?;
                self.while_open(label).await
            }
            Case::PreparedTransaction => self.prepared(label).await,
            Case::BackDated => {
                self.run(self.store, include_str!("sql/back_dated.sql"), label).await?;
                self.settled(label).await
            }
            Case::NullKey => {
                self.run(self.store, include_str!("sql/null_key.sql"), label).await?;
                self.settled(label).await
            }
            Case::RollbackThenVacuum => {
                self.run(self.store, include_str!("sql/rolled_back.sql"), label).await?;
                self.store.client().batch_execute(include_str!("sql/vacuum_births.sql")).await?;
                self.store.client().batch_execute(include_str!("sql/vacuum_objects.sql")).await?;
                self.write(label).await?;
                self.settled(label).await
            }
            Case::DroppedSlot => self.dropped_slot(label).await,
            Case::KillBeforeAcknowledge => self.killed(label).await,
        }
    }

    /// Other rows are written and handed off while a transaction is open; then it commits behind them.
    async fn while_open(&self, label: &str) -> Result<CaseResult> {
        self.write(label).await?;
        let verdict = self.settled(label).await?;
        self.other.client().batch_execute("commit").await?;
        if let CaseResult::Failed(problem) = verdict {
            return Ok(CaseResult::Failed(format!("while another transaction was open, {problem}")));
        }
        self.settled(label).await
    }

    async fn prepared(&self, label: &str) -> Result<CaseResult> {
        if !self.means.may_prepare {
            return Ok(CaseResult::Skipped("max_prepared_transactions is 0".to_owned()));
        }
        let client = self.other.client();
        client.batch_execute("begin").await?;
        self.run(&self.other, include_str!("sql/write.sql"), label).await?;
        client.batch_execute(include_str!("sql/prepare.sql")).await?;
        self.write(label).await?;
        let verdict = self.settled(label).await?;
        client.batch_execute(include_str!("sql/commit_prepared.sql")).await?;
        if let CaseResult::Failed(problem) = verdict {
            return Ok(CaseResult::Failed(format!("while a transaction was prepared, {problem}")));
        }
        self.settled(label).await
    }

    /// The slot is dropped under the stream. Rows are written meanwhile and afterwards, and the stream comes back.
    async fn dropped_slot(&mut self, label: &str) -> Result<CaseResult> {
        if self.recipe.mode == Intent::Poll {
            return Ok(CaseResult::Skipped("there is no slot in mode poll".to_owned()));
        }
        let config = self.recipe.config;
        let admin = connect::open_patient(&config.replication, "gov-handoff selftest").await?;
        self.write(label).await?;
        admin.release_slot(&config.slot).await?;
        self.write(label).await?;
        // The daemon may have taken the slot again already. Then the slot is released once more.
        let deadline = Instant::now() + self.patience;
        while let Err(e) = admin.drop_slot(&config.slot).await {
            if Instant::now() > deadline {
                return Ok(CaseResult::Failed(format!("the slot could not be dropped: {e}")));
            }
            admin.release_slot(&config.slot).await?;
        }
        self.write(label).await?;
        let verdict = self.settled(label).await?;
        if verdict != CaseResult::Passed {
            return Ok(verdict);
        }
        if let Err(e) = self.daemon.captures(self.store, "stream", self.patience).await {
            return Ok(CaseResult::Failed(format!("the stream did not come back: {e}")));
        }
        self.write(label).await?;
        self.settled(label).await
    }

    /// Kills the daemon as soon as its commit is visible, which is before the acknowledgement is sent. Rows are written
    /// while no daemon runs.
    async fn killed(&mut self, label: &str) -> Result<CaseResult> {
        self.write(label).await?;
        let verdict = self.settled(label).await?;
        self.daemon.kill().await;
        if verdict != CaseResult::Passed {
            return Ok(verdict);
        }
        self.write(label).await?;
        self.daemon = self.recipe.start()?;
        let wanted = if self.recipe.mode == Intent::Poll { "poll" } else { "stream" };
        if let Err(e) = self.daemon.captures(self.store, wanted, self.patience).await {
            return Ok(CaseResult::Failed(format!("the daemon did not come back: {e}")));
        }
        self.settled(label).await
    }

    async fn write(&self, label: &str) -> Result<()> {
        self.run(self.store, include_str!("sql/write.sql"), label).await
    }

    async fn run(&self, store: &Session<Admin>, sql: &str, label: &str) -> Result<()> {
        // An id below all others, another one in each mode.
        let number = if self.recipe.mode == Intent::Poll { "5" } else { "6" };
        let sql = quote::fill(sql, &[("label", label), ("number", number)]);
        Ok(store.client().batch_execute(&sql).await?)
    }

    /// Compares until every row was captured or the time is over.
    async fn settled(&self, label: &str) -> Result<CaseResult> {
        let deadline = Instant::now() + self.patience;
        loop {
            let rows = self.store.client().query(include_str!("sql/compare.sql"), &[&label]).await?;
            let rows: Vec<_> = rows
                .iter()
                .map(|row| {
                    Ok(RowCounts {
                        source: row.try_get("source")?,
                        key: row.try_get("key")?,
                        written: row.try_get("written")?,
                        captured: row.try_get("captured")?,
                    })
                })
                .collect::<Result<_>>()?;
            let verdict = judge(&rows);
            if verdict == CaseResult::Passed || Instant::now() >= deadline {
                return Ok(verdict);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
