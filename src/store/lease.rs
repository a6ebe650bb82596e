//! The lease in `queue_heartbeat`: one writer per worker, by the database's clock.

use crate::config::Target;
use crate::core::lease::LeaseView;
use crate::error::{Context, Error, Kind, Result};
use crate::store::role::Writes;
use crate::store::{Session, connect};
use std::time::Duration;
use tokio::sync::watch;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

/// The worker name of dead letter replays. One replay runs at a time; the daemon continues meanwhile under its own
/// lease.
pub const LETTERS: &str = "gov_handoff_dlq";

/// The database does not say which of the two happened. The consequence for this instance is the same.
pub const EXPIRED: &str = "the lease expired, or was taken over";

/// The proof that this instance is the writer. The fence checks it in every commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub worker: String,
    pub owner: String,
    pub term: i64,
}

/// The three parts of a lease, for a gate that also accepts a call without a lease.
pub(super) fn parts(lease: Option<&Lease>) -> (Option<&str>, Option<&str>, Option<i64>) {
    lease.map_or((None, None, None), |l| (Some(&l.worker), Some(&l.owner), Some(l.term)))
}

/// The result of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    Held {
        lease: Lease,
        /// The former holder, if this claim was a takeover.
        former: Option<String>,
    },
    /// Another instance holds the lease.
    Taken(LeaseView),
}

impl<R> Session<R> {
    /// The recorded holder of the lease. The lease may have expired since.
    pub async fn lease_owner(&self, worker: &str) -> Result<Option<String>> {
        let row = self.optional(include_str!("sql/lease/owner.sql"), &[&worker]).await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?.flatten())
    }
}

impl<R: Writes> Session<R> {
    pub async fn claim_lease(&self, worker: &str, owner: &str, ttl: Duration) -> Result<Claim> {
        let ttl_ms = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
        let params: [&(dyn ToSql + Sync); 3] = [&worker, &owner, &ttl_ms];
        let row = self.one(include_str!("sql/lease/claim.sql"), &params).await.context("lease")?;
        let former: Option<String> = row.try_get("former")?;
        if let Some(former) = &former {
            self.end_sessions_of(former).await;
        }
        claimed(&row, worker, owner, ttl, former)
    }

    /// Ends the remaining sessions of a former holder, as far as they belong to this session's role. A holder that was
    /// stopped inside a transaction would otherwise keep its locks for as long as its machine runs. The fence holds
    /// without this, so a failure is only logged.
    pub async fn end_sessions_of(&self, former: &str) {
        let ended = async {
            let rows = self.rows(include_str!("sql/lease/end_former.sql"), &[&former]).await?;
            rows.iter().map(|row| Ok(row.try_get(0)?)).collect::<Result<Vec<String>>>()
        };
        match ended.await {
            Ok(ended) if ended.is_empty() => tracing::info!(former, "took the lease over"),
            Ok(ended) => tracing::warn!(former, ?ended, "took the lease over and ended its sessions"),
            Err(e) => {
                tracing::warn!(former, error = %e.told(), "could not end the sessions of the former holder")
            }
        }
    }

    /// Claims the lease for replaying dead letters, through the gate that an operator may use.
    pub async fn claim_letters(&self, owner: &str, ttl: Duration) -> Result<Claim> {
        let ttl_ms = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
        let params: [&(dyn ToSql + Sync); 2] = [&owner, &ttl_ms];
        let row = self.one(include_str!("sql/lease/claim_letters.sql"), &params).await.context("lease")?;
        let former: Option<String> = row.try_get("former")?;
        if let Some(former) = &former {
            self.end_sessions_of(former).await;
        }
        claimed(&row, LETTERS, owner, ttl, former)
    }

    /// Renews the lease and stores `report` with it.
    pub async fn renew_lease(&self, lease: &Lease, report: &serde_json::Value) -> Result<()> {
        let row = self
            .one(include_str!("sql/lease/renew.sql"), &[&lease.worker, &lease.owner, &lease.term, report])
            .await
            .context("renewing the lease")?;
        if row.try_get(0)? { Ok(()) } else { Err(Error::new(Kind::LeaseLost, EXPIRED)) }
    }

    pub async fn resign_lease(&self, lease: &Lease) -> Result<bool> {
        let row = self
            .one(include_str!("sql/lease/resign.sql"), &[&lease.worker, &lease.owner, &lease.term])
            .await?;
        Ok(row.try_get(0)?)
    }
}

/// Renews the lease of a command on a separate session, while the command's own session runs one long statement. The
/// renewal ends when this value is dropped, or when the lease has another owner or term. In the latter case the fence
/// stops the command.
pub struct Kept {
    task: tokio::task::JoinHandle<()>,
    stop: watch::Sender<bool>,
}

impl Kept {
    pub fn keep(target: &Target, lease: &Lease, ttl: Duration) -> Self {
        let (target, lease) = (target.clone(), lease.clone());
        let (stop, mut stopped) = watch::channel(false);
        let task = tokio::spawn(async move {
            let mut session = None;
            // Told to stop only between two claims: a claim that is under way is answered first.
            while tokio::time::timeout(ttl / 4, stopped.wait_for(|stop| *stop)).await.is_err() {
                if session.is_none() {
                    session = connect::open_within(&target, "gov-handoff lease", ttl / 2).await.ok();
                }
                let Some(store) = &session else { continue };
                // A claim of a lease that is ours and has not expired renews it. An operator may claim, too.
                let claim = if lease.worker == LETTERS {
                    store.claim_letters(&lease.owner, ttl).await
                } else {
                    store.claim_lease(&lease.worker, &lease.owner, ttl).await
                };
                match claim {
                    Ok(Claim::Held { lease: held, .. }) if held == lease => {}
                    Ok(_) => return,
                    Err(_) => session = None,
                }
            }
        });
        Self { task, stop }
    }

    /// Ends the renewal and waits for its end. Only then may the lease be resigned: a claim that arrives after the
    /// resignation would take the lease back, for a process that is about to end.
    pub async fn end(mut self) {
        let _ = self.stop.send(true);
        let _ = (&mut self.task).await;
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn claimed(row: &Row, worker: &str, owner: &str, ttl: Duration, former: Option<String>) -> Result<Claim> {
    let term = row.try_get("term")?;
    if row.try_get::<_, Option<bool>>("held")?.unwrap_or(false) {
        let lease = Lease { worker: worker.to_owned(), owner: owner.to_owned(), term };
        return Ok(Claim::Held { lease, former });
    }
    let age = Duration::from_millis(row.try_get::<_, i64>("age_ms")?.try_into().unwrap_or(0));
    Ok(Claim::Taken(LeaseView { owner: row.try_get("owner")?, term, age, ttl }))
}
