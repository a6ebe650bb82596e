//! Objects of other owners that can interfere: names in the schemas we use, and triggers on the tables that the gates
//! write to.

use super::Looked;
use super::fix::fix;
use crate::core::doctor::{self, Check, Fix, ForeignTrigger};
use crate::store::{Session, quote};

impl<R> Session<R> {
    pub(super) async fn look_at_schemas(&self) -> Looked {
        let rows = self.rows(include_str!("../sql/doctor/schemas.sql"), &[]).await?;
        rows.iter()
            .map(|row| {
                let creators: Vec<String> = row.try_get("creators")?;
                let schema: String = row.try_get("schema")?;
                let mut revokes = Fix::default();
                for role in &creators {
                    let role = if role == "PUBLIC" { "public".to_owned() } else { quote::identifier(role) };
                    let places = [("schema", quote::identifier(&schema)), ("role", role)];
                    let places = places.each_ref().map(|(name, value)| (*name, value.as_str()));
                    revokes.sql.extend(fix(include_str!("../sql/doctor/fix_revoke_create.sql"), &places).sql);
                }
                Ok(doctor::creators(&schema, row.try_get("of_gates")?, &creators).fixed_by(revokes))
            })
            .collect()
    }

    pub(super) async fn look_at_triggers(&self) -> Looked {
        let rows = self.rows(include_str!("../sql/doctor/triggers.sql"), &[]).await?;
        if rows.is_empty() {
            return Ok(vec![Check::ok("triggers", "none of others on the tables that the gates write to")]);
        }
        rows.iter()
            .map(|row| {
                let owner = quote::identifier(row.try_get("table_owner")?);
                let trigger = ForeignTrigger {
                    table: row.try_get("table")?,
                    trigger: row.try_get("trigger")?,
                    function: row.try_get("function")?,
                    owner: row.try_get("owner")?,
                    trusted: row.try_get("trusted")?,
                    pinned: row.try_get("pinned")?,
                };
                // The server has quoted the function where it has to be.
                let places = [("function", trigger.function.as_str()), ("owner", &owner)];
                let mut both = Fix::default();
                if !trigger.trusted {
                    both.sql.extend(fix(include_str!("../sql/doctor/fix_trigger_owner.sql"), &places).sql);
                }
                if !trigger.pinned {
                    both.sql.extend(fix(include_str!("../sql/doctor/fix_trigger_pin.sql"), &places).sql);
                }
                Ok(doctor::foreign_trigger(&trigger).fixed_by(both))
            })
            .collect()
    }

    /// Triggers of others that write to the queue must be registered in `iu_sql_event_route`.
    pub(super) async fn look_at_trigger_routes(&self) -> Looked {
        let rows = self.rows(include_str!("../sql/doctor/trigger_routes.sql"), &[]).await?;
        if rows.is_empty() {
            return Ok(vec![Check::ok(
                "trigger routes",
                "no trigger is known to write to the queue without a route",
            )]);
        }
        rows.iter()
            .map(|row| {
                let (table, trigger): (String, String) = (row.try_get("table")?, row.try_get("trigger")?);
                let function: String = row.try_get("function")?;
                let places = [
                    ("code", quote::literal(&format!("trigger:{table}:{trigger}"))),
                    ("trigger", quote::literal(&trigger)),
                    ("event", quote::literal(row.try_get("event")?)),
                    ("function", quote::literal(&function)),
                ];
                let places = places.each_ref().map(|(name, value)| (*name, value.trim()));
                let route = fix(include_str!("../sql/doctor/fix_trigger_route.sql"), &places);
                Ok(doctor::trigger_without_route(&table, &trigger, &function).fixed_by(route))
            })
            .collect()
    }
}
