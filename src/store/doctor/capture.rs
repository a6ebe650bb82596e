//! Checks of the sources, the stream and the worker.

use super::fix::{drop_slot, fix};
use super::server::budget;
use super::{Looked, told};
use crate::config::Config;
use crate::core::doctor::{self, Check, Fix};
use crate::core::handoff::Source;
use crate::core::mode::{Intent, Mode};
use crate::error::{Kind, Result};
use crate::store::replication::UnusedSlot;
use crate::store::role::Reads;
use crate::store::source::catalogue::Strategy;
use crate::store::{Session, quote};
use std::sync::Arc;

impl<R> Session<R> {
    pub(super) async fn look_at_sources(&self, config: &Config) -> Looked {
        const NAME: &str = "sources";
        let sources = self.sources(&config.worker).await?;
        if sources.is_empty() {
            let none = Check::fail(NAME, "none is registered", "run `gov-handoff sources apply`");
            return Ok(vec![none.fixed_by(Fix::command("gov-handoff sources apply"))]);
        }
        let mut checks = Vec::new();
        for source in &sources {
            checks.push(match self.check_source(&source.definition).await {
                Ok(Strategy::Ranges { index }) => {
                    Check::ok(NAME, format!("{}: read by {index}", source.name()))
                }
                Ok(Strategy::Frontier { why }) => {
                    Check::ok(NAME, format!("{}: read by the frontier, {why}", source.name()))
                }
                Err(e) if e.kind == Kind::Privilege => Check::cannot_tell(NAME, e.to_string()),
                Err(e) => Check::fail(NAME, e.to_string(), "correct the table or the definition"),
            });
        }
        let (schemas, tables) = places(&sources);
        let hidden = self.rows(include_str!("../sql/doctor/row_security.sql"), &[&schemas, &tables]).await?;
        for row in &hidden {
            let advice = "give the daemon's role BYPASSRLS, or a policy will hide rows; until then reading is an error";
            let check = Check::fail("row security", format!("on {}", row.try_get::<_, String>(0)?), advice);
            let role = quote::identifier(config.target.user());
            checks.push(
                check.fixed_by(fix(include_str!("../sql/doctor/fix_row_security.sql"), &[("role", &role)])),
            );
        }
        if hidden.is_empty() {
            checks.push(Check::ok("row security", "hides no source from this role"));
        }
        Ok(checks)
    }

    pub(super) async fn look_at_publication(&self, config: &Config) -> Looked {
        const NAME: &str = "publication";
        if config.intent == Intent::Poll {
            return Ok(vec![]);
        }
        let sources = self.sources(&config.worker).await?;
        let Some(problem) = self.publication_problem(&config.publication, &sources).await? else {
            return Ok(vec![Check::ok(NAME, format!("{} carries the sources", config.publication))]);
        };
        let (schemas, tables) = places(&sources);
        let rows = self.rows(include_str!("../sql/doctor/owned.sql"), &[&schemas, &tables]).await?;
        let foreign = rows.iter().map(|r| Ok(r.try_get(0)?)).collect::<Result<Vec<String>>>()?;
        let creates: bool =
            self.one(include_str!("../sql/doctor/role.sql"), &[]).await?.try_get("creates")?;
        Ok(vec![if config.create && creates && foreign.is_empty() {
            Check::ok(NAME, format!("{problem}; the daemon will correct it"))
        } else {
            let right = match foreign.first() {
                Some(table) => format!("the role does not own {table}"),
                None if !creates => "the role has no CREATE on the database".to_owned(),
                None => "creation is switched off".to_owned(),
            };
            let advice = "have the owner run `gov-handoff replication setup`, or what `gov-handoff replication sql` prints; until then it polls";
            let publication = self.publication_statements(&config.publication, &sources).await?;
            let places = [("publication", publication.trim_end().trim_end_matches(';'))];
            let fix = fix(include_str!("../sql/doctor/fix_publication.sql"), &places);
            Check::warn(NAME, format!("{problem}, and {right}"), advice).fixed_by(fix)
        }])
    }

    pub(super) async fn look_at_slot(&self, config: &Config) -> Looked {
        const NAME: &str = "slot";
        if config.intent == Intent::Poll {
            return Ok(vec![]);
        }
        let slot = match self.slot(&config.slot, config.replication.database()).await {
            Err(e) if e.kind == Kind::Replication => {
                return Ok(vec![Check::fail(NAME, e.to_string(), "name another slot in the configuration")]);
            }
            slot => slot?,
        };
        let Some(slot) = slot else {
            let found = format!("{} does not exist", config.slot);
            return Ok(vec![if config.create {
                Check::ok(NAME, format!("{found}; the daemon will create it"))
            } else {
                let create = quote::fill(
                    include_str!("../sql/replication/slot_setup.sql"),
                    &[("slot", config.slot.as_str())],
                );
                let check =
                    Check::warn(NAME, found, "run `gov-handoff replication setup`; until then it polls");
                check.fixed_by(Fix::sql(vec![create.trim().to_owned()]))
            }]);
        };
        if slot.lost {
            let advice = "the daemon drops it, creates a new one and reads the missed rows from the tables";
            let found = format!("{}: the server removed log that the slot still needed", config.slot);
            return Ok(vec![Check::warn(NAME, found, advice).fixed_by(drop_slot(&config.slot))]);
        }
        let active = slot.active_pid.is_some();
        let read = if active { "read" } else { "not read by anybody" };
        let mut checks = vec![Check::ok(NAME, format!("{} at {}, {read}", config.slot, slot.confirmed))];
        if let Some(bytes) = slot.retained {
            // The budget that the daemon reported, if this role may read it; otherwise the budget of this
            // configuration.
            let said = self.optional(include_str!("../sql/status/worker.sql"), &[&config.worker]).await;
            let (said, rate) = match said {
                Ok(Some(row)) => (row.try_get::<_, Option<i64>>("slot_budget")?, row.try_get("slot_rate")?),
                _ => (None, None),
            };
            let check = doctor::retained(bytes, said.unwrap_or_else(|| budget(config)), rate, active);
            checks.push(if active { check } else { check.fixed_by(drop_slot(&config.slot)) });
        }
        Ok(checks)
    }

    /// Checked in every mode: a slot retains log whether the daemon polls or streams.
    pub(super) async fn look_at_unused_slots(&self, config: &Config) -> Looked {
        let unused = self.unused_slots(&config.slot).await?;
        let check = |s: &UnusedSlot| {
            doctor::unused_slot(&s.slot, s.retained_bytes, budget(config)).fixed_by(drop_slot(&s.slot))
        };
        Ok(unused.iter().map(check).collect())
    }

    pub(super) async fn look_at_worker(&self, config: &Config) -> Looked {
        const NAME: &str = "worker";
        let row = self.optional(include_str!("../sql/status/worker.sql"), &[&config.worker]).await?;
        let Some(row) = row else {
            return Ok(vec![
                Check::warn(NAME, "has never run", "start `gov-handoff run`")
                    .fixed_by(Fix::command("gov-handoff run")),
            ]);
        };
        let (age, owner): (f64, Option<String>) = (row.try_get("tick_age")?, row.try_get("lease_owner")?);
        let mode: Option<String> = row.try_get("mode")?;
        let reason: Option<String> = row.try_get("mode_reason")?;
        Ok(vec![match owner {
            None => Check::warn(NAME, format!("ended {age:.0} s ago"), "start `gov-handoff run`")
                .fixed_by(Fix::command("gov-handoff run")),
            Some(owner) if row.try_get::<_, Option<bool>>("alive")? != Some(true) => {
                let advice = "start `gov-handoff run`, or see why it cannot renew its lease";
                Check::fail(NAME, format!("{owner} holds the lease and is silent for {age:.0} s"), advice)
                    .fixed_by(Fix::command("gov-handoff run"))
            }
            Some(owner) => {
                let mode = Mode::of(mode.as_deref(), reason.as_deref());
                let why = reason.map(|r| format!(" ({r})")).unwrap_or_default();
                if matches!(mode, Mode::Polling { .. }) && config.intent != Intent::Poll {
                    let advice = "rows are still handed off, with the latency of polling; remove the cause to stream again";
                    Check::warn(NAME, format!("{owner} polls{why}"), advice)
                } else {
                    Check::ok(NAME, format!("{owner}, mode {}{why}, ticked {age:.1} s ago", mode.name()))
                }
            }
        }])
    }
}

impl<R: Reads> Session<R> {
    pub(super) async fn look_at_holes(&self, config: &Config) -> Looked {
        const NAME: &str = "open id ranges";
        let sources = self.sources(&config.worker).await?;
        let rows = self.rows(include_str!("../sql/doctor/holes.sql"), &[&config.worker]).await?;
        let mut checks = Vec::new();
        for row in &rows {
            let name: String = row.try_get("source_name")?;
            let unread = row.try_get("unread")?;
            match sources.iter().find(|s| s.name() == name).filter(|_| unread) {
                Some(source) => checks.extend(told(NAME, self.burnt_ids(source).await)?),
                None => {
                    let (open, hot, ids) = (row.try_get("open")?, row.try_get("hot")?, row.try_get("ids")?);
                    let fewer = fix(include_str!("../sql/doctor/fix_holes.sql"), &[]);
                    checks.push(doctor::holes(&name, open, hot, ids).fixed_by(fewer));
                }
            }
        }
        Ok(checks)
    }

    /// The open ranges that the first read of a source will leave.
    async fn burnt_ids(&self, source: &Source) -> Looked {
        let (table, id) = (quote::table(&source.definition), quote::identifier(&source.definition.id.column));
        let sql = quote::fill(include_str!("../sql/doctor/burnt.sql"), &[("table", &table), ("id", &id)]);
        let rows = self.rows_of_tables(&sql, &[]).await?;
        let Some(row) = rows.first() else { return Ok(Vec::new()) };
        let open = row.try_get("open")?;
        Ok(vec![doctor::holes(&format!("{}, not read yet", source.name()), open, open, row.try_get("ids")?)])
    }
}

/// Schemas and tables of the sources, as two arrays.
fn places(sources: &[Arc<Source>]) -> (Vec<&str>, Vec<&str>) {
    sources.iter().map(|s| (s.definition.schema.as_str(), s.definition.table())).unzip()
}
