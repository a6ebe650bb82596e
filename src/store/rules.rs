//! Verdict rules as an operator sees and changes them.

use crate::core::verdict::{RuleFacts, VerdictRule};
use crate::error::{Context, Result};
use crate::store::Session;
use crate::store::role::Writes;
use serde::Serialize;
use serde_json::{Value, json};
use tokio_postgres::types::ToSql;

/// A rule in force, and who put it there.
#[derive(Debug, Clone, Serialize)]
pub struct RuleInForce {
    #[serde(flatten)]
    pub rule: VerdictRule,
    pub built_in: bool,
    pub changed_by: String,
    pub changed_at: String,
}

/// A group to try rules on.
pub struct GroupSample {
    pub key: String,
    pub facts: RuleFacts,
    pub verdict: Option<String>,
}

impl<R> Session<R> {
    /// The rules, and the ruleset version in force.
    pub async fn rules(&self) -> Result<(i32, Vec<RuleInForce>)> {
        let rows = self.rows(include_str!("sql/rules/list.sql"), &[]).await.context("reading the rules")?;
        let version = rows.first().map_or(Ok(0), |row| row.try_get("version"))?;
        let rule = |row: &tokio_postgres::Row| {
            let grain: String = row.try_get("grain")?;
            let tests: Value = row.try_get("tests")?;
            Ok(RuleInForce {
                rule: VerdictRule {
                    code: row.try_get("code")?,
                    grain: serde_json::from_value(json!(grain))?,
                    priority: row.try_get("priority")?,
                    tests: serde_json::from_value(tests)?,
                    verdict: row.try_get("verdict")?,
                    severity: row.try_get("severity")?,
                    measurement: row.try_get("measurement")?,
                    enabled: row.try_get("enabled")?,
                },
                built_in: row.try_get("built_in")?,
                changed_by: row.try_get("changed_by")?,
                changed_at: row.try_get("changed_at")?,
            })
        };
        Ok((version, rows.iter().map(rule).collect::<Result<_>>()?))
    }

    /// The first groups by key, with the counts of the last scan.
    pub async fn group_samples(&self, limit: i64) -> Result<Vec<GroupSample>> {
        let rows =
            self.rows(include_str!("sql/rules/facts.sql"), &[&limit]).await.context("reading groups")?;
        rows.iter()
            .map(|row| {
                let dims: Value = row.try_get("dims")?;
                let count = |column| row.try_get::<_, i64>(column);
                let (members, accepted) = (count("members")?, count("accepted")?);
                let (rejected, retired) = (count("rejected")?, count("retired")?);
                Ok(GroupSample {
                    key: row.try_get("group_key")?,
                    verdict: row.try_get("verdict")?,
                    facts: RuleFacts {
                        members: Some(members),
                        accepted: Some(accepted),
                        rejected: Some(rejected),
                        retired: Some(retired),
                        pending: Some(members - accepted - rejected - retired),
                        changes: Some(count("changes")?),
                        age: row.try_get("age")?,
                        last_kind: row.try_get("last_kind")?,
                        dims: dims.as_object().cloned().unwrap_or_default(),
                        ..RuleFacts::default()
                    },
                })
            })
            .collect()
    }
}

impl<R: Writes> Session<R> {
    /// Puts the list in force. Returns the ruleset version, and whether anything changed.
    pub async fn put_rules(&self, rules: &[VerdictRule], actor: Option<&str>) -> Result<(i32, bool)> {
        let list: Vec<Value> = rules
            .iter()
            .map(|r| {
                json!({
                    "code": r.code, "grain": r.grain, "priority": r.priority, "tests": r.tests, "verdict": r.verdict,
                    "severity": r.severity, "measurement": r.measurement, "enabled": r.enabled,
                })
            })
            .collect();
        let params: [&(dyn ToSql + Sync); 2] = [&Value::Array(list), &actor];
        let row = self.one(include_str!("sql/rules/put.sql"), &params).await.context("putting the rules")?;
        Ok((row.try_get(0)?, row.try_get(1)?))
    }
}
