//! The checks of `doctor`. They only read the catalogue and our own tables. Each check stands alone, so a missing
//! privilege for one check does not affect the others.

mod capture;
mod fix;
mod others;
mod resources;
mod server;
mod waiting;

use crate::config::Config;
use crate::core::doctor::forecast::Shortage;
use crate::core::doctor::{Check, Fix};
use crate::error::{Error, Kind, Result};
use crate::store::role::Reads;
use crate::store::{Session, quote};
use std::time::Duration;
use tokio_postgres::error::SqlState;

/// The time limit of one check. A check that takes longer is reported as unknown.
const LONGEST_LOOK: Duration = Duration::from_secs(5);

/// What all checks found.
pub struct Examined {
    pub checks: Vec<Check>,
    /// What runs out first.
    pub ahead: Vec<Shortage>,
    /// Whether any migration is in force. If none is, only the server was looked at.
    pub installed: bool,
}

/// The result of one look: one check or several.
type Looked = Result<Vec<Check>>;

impl<R: Reads> Session<R> {
    /// All checks, in the order in which an operator would ask: the server first, then what is installed. `replication` is the session of
    /// the role that streams, `other` a second session like this one.
    pub async fn examine(
        &self,
        config: &Config,
        replication: Result<Self>,
        other: Option<&Self>,
    ) -> Result<Examined> {
        let settings = self.look_at_session().await;
        self.bound_reads(LONGEST_LOOK).await?;
        let mut all = Vec::new();
        let mut take = |name, looked: Looked| -> Result<()> {
            all.extend(told(name, looked)?);
            Ok(())
        };
        take("session settings", settings)?;
        take("pooler", self.look_at_pooler(other).await)?;
        take("server", self.look_at_server(config).await)?;
        take("idle_replication_slot_timeout", self.look_at_idle_timeout().await)?;
        take("disk for the log", self.look_at_disk(config).await)?;
        take("replication", look_at_replication(config, replication).await)?;
        take("frontier", self.look_at_frontier(config).await)?;
        take("prepared transactions", self.look_at_prepared().await)?;
        take("migrations", self.look_at_migrations().await)?;
        // Until `migrate` has run, every check below would only say again that nothing is there.
        if !self.is_installed().await? {
            return Ok(Examined { checks: all, ahead: vec![], installed: false });
        }
        take("role", self.look_at_role().await)?;
        take("shape", self.look_at_shape().await)?;
        take("schemas", self.look_at_schemas().await)?;
        take("triggers", self.look_at_triggers().await)?;
        take("trigger routes", self.look_at_trigger_routes().await)?;
        take("trace columns", self.look_at_causation().await)?;
        take("sources", self.look_at_sources(config).await)?;
        take("publication", self.look_at_publication(config).await)?;
        take("slot", self.look_at_slot(config).await)?;
        take("slots not in use", self.look_at_unused_slots(config).await)?;
        take("worker", self.look_at_worker(config).await)?;
        take("open id ranges", self.look_at_holes(config).await)?;
        take("event types", self.look_at_types().await)?;
        take("dead letters", self.look_at_dead_letters().await)?;
        take("findings", self.look_at_findings().await)?;
        take("executors", self.look_at_executors().await)?;
        let ahead = self.look_ahead(config).await;
        take("first to break", resources::ahead(&ahead))?;
        Ok(Examined { checks: all, ahead: ahead.unwrap_or_default(), installed: true })
    }
}

impl<R> Session<R> {
    /// What lets a paused worker work again.
    #[must_use]
    pub fn resumed_by(worker: &str) -> Fix {
        let worker = quote::literal(worker);
        fix::fix(include_str!("sql/doctor/fix_resume.sql"), &[("worker", worker.trim())])
    }

    /// What gives the server room for more connections.
    #[must_use]
    pub fn more_connections(most: i64) -> Fix {
        fix::setting("max_connections", &most.to_string()).after_restart()
    }

    /// How many connections are in use, and how many there may be.
    pub async fn connections(&self) -> Result<(i64, i64)> {
        let row = self.one(include_str!("sql/doctor/connections.sql"), &[]).await?;
        Ok((row.try_get("used")?, row.try_get("most")?))
    }
}

/// A look that is not permitted, or finds nothing to look at, is reported as such. Only a lost connection ends
/// `doctor`.
fn told(name: &'static str, looked: Looked) -> Looked {
    match looked {
        Err(e) if e.kind == Kind::Connection => Err(e),
        Err(e) => Ok(vec![Check::cannot_tell(name, why(&e))]),
        looked => looked,
    }
}

fn why(e: &Error) -> String {
    match e.state() {
        Some(SqlState::INSUFFICIENT_PRIVILEGE) => format!("no privilege ({e})"),
        Some(SqlState::UNDEFINED_TABLE) => "the governance tables are not here".to_owned(),
        Some(SqlState::QUERY_CANCELED) => format!("it took longer than {} s", LONGEST_LOOK.as_secs()),
        _ => e.to_string(),
    }
}

/// Whether the server can stream, and whether the role for streaming is allowed to.
async fn look_at_replication<R>(config: &Config, session: Result<Session<R>>) -> Looked {
    use crate::core::mode::Intent;
    const NAME: &str = "replication";
    if config.intent == Intent::Poll {
        return Ok(vec![Check::ok(NAME, "not asked for: mode is poll")]);
    }
    let checked = match session {
        Ok(store) => store.check_streaming().await,
        Err(e) => Err(e),
    };
    let advice = "until then it polls; `gov-handoff replication sql` prints what a DBA can run";
    Ok(vec![match checked {
        Ok(()) => Check::ok(NAME, format!("{} may stream", config.replication.user())),
        Err(e) => {
            let fix = match e.kind {
                Kind::Privilege => {
                    let role = quote::identifier(config.replication.user());
                    Some(fix::fix(include_str!("sql/doctor/fix_replication_role.sql"), &[("role", &role)]))
                }
                _ => None,
            };
            let check = if config.intent == Intent::Stream {
                Check::fail(NAME, e.to_string(), "or use mode auto")
            } else {
                Check::warn(NAME, e.to_string(), advice)
            };
            check.fixed_by(fix.unwrap_or_else(|| Fix::command("gov-handoff replication sql")))
        }
    }])
}
