//! Objects of other owners that can interfere: names in the schemas we use, and triggers on the tables that the gates
//! write to.

use super::Looked;
use crate::core::doctor::{self, Check, ForeignTrigger};
use crate::store::Session;

impl<R> Session<R> {
    pub(super) async fn look_at_schemas(&self) -> Looked {
        let rows = self.rows(include_str!("../sql/doctor/schemas.sql"), &[]).await?;
        rows.iter()
            .map(|row| {
                let creators: Vec<String> = row.try_get("creators")?;
                Ok(doctor::creators(row.try_get("schema")?, row.try_get("of_gates")?, &creators))
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
                Ok(doctor::foreign_trigger(&ForeignTrigger {
                    table: row.try_get("table")?,
                    trigger: row.try_get("trigger")?,
                    function: row.try_get("function")?,
                    owner: row.try_get("owner")?,
                    trusted: row.try_get("trusted")?,
                    pinned: row.try_get("pinned")?,
                }))
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
                Ok(doctor::trigger_without_route(&table, &trigger, row.try_get("function")?))
            })
            .collect()
    }
}
