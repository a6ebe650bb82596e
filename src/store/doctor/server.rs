//! Checks of the server, of the role, and of the installed schema against what this build expects.

use super::Looked;
use super::fix::{fix, setting, shape};
use crate::config::Config;
use crate::core::doctor::{self, Check, Fix};
use crate::core::mode::Intent;
use crate::store::{Session, migrate, quote};
use std::time::{SystemTime, UNIX_EPOCH};

impl<R> Session<R> {
    pub(super) async fn look_at_server(&self, config: &Config) -> Looked {
        let before = unix_seconds();
        let row = self.one(include_str!("../sql/doctor/server.sql"), &[&config.slot]).await?;
        // The server read its clock somewhere between our two readings.
        let ours = f64::midpoint(before, unix_seconds());
        let (slot, read): (bool, bool) = (row.try_get("slot_there")?, row.try_get("slot_read")?);
        let (must, may) = (config.intent == Intent::Stream, config.intent != Intent::Poll);
        let mut checks = vec![
            doctor::server_version(row.try_get("version")?),
            if row.try_get("recovering")? {
                Check::fail("primary", "the server is a standby", "connect to the primary")
            } else {
                Check::ok("primary", "the server takes writes")
            },
            doctor::wal_level(row.try_get("wal_level")?, must, may)
                .fixed_by(setting("wal_level", "logical").after_restart()),
        ];
        if may {
            let (slots, most) = (row.try_get("slots")?, row.try_get("most_slots")?);
            let more = |name, most: i64| setting(name, &(most + 10).to_string()).after_restart();
            let check = doctor::room("replication slots", "max_replication_slots", slots, most, slot);
            checks.push(check.fixed_by(more("max_replication_slots", most)));
            let (senders, most) = (row.try_get("senders")?, row.try_get("most_senders")?);
            let check = doctor::room("wal senders", "max_wal_senders", senders, most, read);
            checks.push(check.fixed_by(more("max_wal_senders", most)));
            let wanted = format!("{}MB", (budget(config) >> 20).max(1));
            let check = doctor::keep_size(row.try_get("keep_size")?, budget(config), slot, read);
            checks.push(check.fixed_by(setting("max_slot_wal_keep_size", &wanted)));
        }
        checks.push(doctor::clocks(ours - row.try_get::<_, f64>("clock")?));
        Ok(checks)
    }

    pub(super) async fn look_at_role(&self) -> Looked {
        const NAME: &str = "role";
        let row = self.one(include_str!("../sql/doctor/role.sql"), &[]).await?;
        let (role, groups): (String, Vec<String>) = (row.try_get("role")?, row.try_get("groups")?);
        if row.try_get("rolsuper")? {
            let advice = "fine for `migrate` and for looking; run the daemon as a member of gov_handoff_worker (replication/roles.sql)";
            return Ok(vec![Check::warn(NAME, format!("{role} is a superuser"), advice)]);
        }
        let of = if groups.is_empty() { "no group of ours".to_owned() } else { groups.join(", ") };
        Ok(vec![if row.try_get("runs")? {
            Check::ok(NAME, format!("{role}, member of {of}, may run the daemon"))
        } else {
            let advice =
                "fine for looking; to run the daemon grant gov_handoff_worker (replication/roles.sql)";
            let check = Check::warn(NAME, format!("{role}, member of {of}, may not run the daemon"), advice);
            check.fixed_by(if row.try_get("worker_role")? {
                let role = quote::identifier(&role);
                fix(include_str!("../sql/doctor/fix_grant_worker.sql"), &[("role", &role)])
            } else {
                Fix::command("gov-handoff migrate")
            })
        }])
    }

    /// Whether any migration is in force.
    pub(super) async fn is_installed(&self) -> crate::error::Result<bool> {
        Ok(self.one(include_str!("../sql/migrate/exists.sql"), &[&"gov_schema_version"]).await?.try_get(0)?)
    }

    pub(super) async fn look_at_migrations(&self) -> Looked {
        const NAME: &str = "migrations";
        if !self.is_installed().await? {
            let none = Check::fail(NAME, "none is in force", "run `gov-handoff migrate`");
            return Ok(vec![none.fixed_by(Fix::command("gov-handoff migrate"))]);
        }
        let rows = self.rows(include_str!("../sql/doctor/migrations.sql"), &[]).await?;
        let applied = rows
            .iter()
            .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
            .collect::<crate::error::Result<Vec<(i32, String)>>>()?;
        let (pending, foreign) = migrate::compare(&applied);
        Ok(vec![if !foreign.is_empty() {
            let advice = "run the build that applied them, or revert with it and migrate with this one";
            Check::fail(NAME, format!("of another build: {}", foreign.join(", ")), advice)
        } else if !pending.is_empty() {
            let pending = format!("pending: {}", pending.join(", "));
            Check::fail(NAME, pending, "run `gov-handoff migrate`")
                .fixed_by(Fix::command("gov-handoff migrate"))
        } else {
            Check::ok(NAME, format!("{} in force", applied.len()))
        }])
    }

    /// The daemon never alters a live table, so each difference is reported by name.
    pub(super) async fn look_at_shape(&self) -> Looked {
        const NAME: &str = "shape";
        let differences = self.shape_differences().await?;
        if differences.is_empty() {
            return Ok(vec![Check::ok(NAME, "the live tables are as the gates need them")]);
        }
        let advice =
            "gov-handoff never alters a live table: its owner has to, or the table will reject handoffs";
        let check = |d: migrate::ShapeDifference| {
            let fix = shape(&d.table, &d.column, &d.wanted, d.found.as_deref());
            Check::fail(NAME, d.to_string(), advice).fixed_by(fix)
        };
        Ok(differences.into_iter().map(check).collect())
    }

    pub(super) async fn look_at_causation(&self) -> Looked {
        const NAME: &str = "trace columns";
        let there: bool = self.one(include_str!("../sql/doctor/causation.sql"), &[]).await?.try_get(0)?;
        Ok(vec![if there {
            Check::ok(NAME, "event_outbox has causation_id")
        } else {
            let advice = "handoffs work without it, but chains of events cannot be followed, and cycles are detected by type only";
            let check = Check::warn(NAME, "event_outbox has no causation_id", advice);
            check.fixed_by(fix(include_str!("../sql/doctor/fix_causation.sql"), &[]))
        }])
    }
}

pub(super) fn budget(config: &Config) -> i64 {
    i64::try_from(config.wal_budget).unwrap_or(i64::MAX)
}

fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}
