//! Candidates and groups, page by page, for people.

use crate::error::{Context, Result};
use crate::store::Session;
use serde::Serialize;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

#[derive(Debug, Clone, Serialize)]
pub struct CandidateShown {
    pub candidate: String,
    pub group: String,
    /// `pending`, `ok` or `rejected`.
    pub input: String,
    pub input_reason: Option<String>,
    pub verdict: Option<String>,
    pub rule: Option<String>,
    pub severity: Option<String>,
    pub ruleset_version: i32,
    pub retired: bool,
    pub dirty: bool,
    pub last_kind: Option<String>,
    pub scanned_at: Option<String>,
}

#[derive(Debug, Clone, Serialize)]
pub struct GroupShown {
    pub group: String,
    pub members: i64,
    pub accepted: i64,
    pub rejected: i64,
    pub retired: i64,
    pub changes: i64,
    pub verdict: Option<String>,
    pub severity: Option<String>,
    pub ruleset_version: Option<i32>,
    pub dirty: bool,
    pub dirty_reason: Option<String>,
    pub scanned_at: Option<String>,
}

/// What a walk for a verdict came to.
#[derive(Debug)]
pub struct VerdictWalk {
    pub candidates: Vec<CandidateShown>,
    /// The last candidate that was looked at, if the walk ended because it had looked at enough.
    pub stopped_at: Option<String>,
}

/// Candidates that one statement of a walk looks at: few, so that it is a walk of the index and not of the table.
const LOOKED_AT_ONCE: i64 = 2_000;

impl<R> Session<R> {
    /// The next candidates behind `after`, of one group or of all.
    pub async fn candidates(
        &self,
        after: &str,
        group: Option<&str>,
        limit: i64,
    ) -> Result<Vec<CandidateShown>> {
        let rows = match &group {
            None => self.rows(include_str!("sql/candidates/list.sql"), &[&after, &limit]).await,
            Some(group) => {
                self.rows(include_str!("sql/candidates/of_group.sql"), &[&after, &limit, group]).await
            }
        };
        rows.context("reading candidates")?.iter().map(candidate).collect()
    }

    /// The next candidates behind `after` with this verdict. No index has the verdicts, because every scan would have to
    /// maintain it. So the walk goes by key, in pages, and ends after `most` candidates.
    pub async fn candidates_with(
        &self,
        verdict: &str,
        after: &str,
        group: Option<&str>,
        limit: usize,
        most: i64,
    ) -> Result<VerdictWalk> {
        let (mut found, mut place, mut left) = (Vec::new(), after.to_owned(), most);
        while left > 0 {
            let page = left.min(LOOKED_AT_ONCE);
            let rows = match &group {
                None => {
                    self.rows(include_str!("sql/candidates/verdict.sql"), &[&place, &page, &verdict]).await
                }
                Some(group) => {
                    let params: [&(dyn ToSql + Sync); 4] = [&place, &page, &verdict, group];
                    self.rows(include_str!("sql/candidates/verdict_of_group.sql"), &params).await
                }
            };
            let rows = rows.context("reading candidates")?;
            let Some(first) = rows.first() else { break };
            let (looked, looked_to): (i64, Option<String>) =
                (first.try_get("looked")?, first.try_get("looked_to")?);
            for row in &rows {
                if row.try_get::<_, Option<&str>>("candidate_key")?.is_some() {
                    found.push(candidate(row)?);
                }
            }
            if found.len() >= limit {
                found.truncate(limit);
                return Ok(VerdictWalk { candidates: found, stopped_at: None });
            }
            let Some(looked_to) = looked_to.filter(|_| looked == page) else {
                return Ok(VerdictWalk { candidates: found, stopped_at: None });
            };
            place = looked_to;
            left -= page;
        }
        Ok(VerdictWalk { candidates: found, stopped_at: Some(place) })
    }

    /// The next groups behind `after`; with `dirty` only those that are to be scanned.
    pub async fn groups(&self, after: &str, dirty: bool, limit: i64) -> Result<Vec<GroupShown>> {
        let params: [&(dyn ToSql + Sync); 2] = [&after, &limit];
        let rows = if dirty {
            self.rows(include_str!("sql/candidates/dirty.sql"), &params).await
        } else {
            self.rows(include_str!("sql/candidates/groups.sql"), &params).await
        };
        rows.context("reading groups")?.iter().map(group).collect()
    }
}

fn candidate(row: &Row) -> Result<CandidateShown> {
    Ok(CandidateShown {
        candidate: row.try_get("candidate_key")?,
        group: row.try_get("group_key")?,
        input: row.try_get("input_quality_state")?,
        input_reason: row.try_get("input_reason")?,
        verdict: row.try_get("candidate_verdict")?,
        rule: row.try_get("verdict_rule")?,
        severity: row.try_get("severity")?,
        ruleset_version: row.try_get("ruleset_version")?,
        retired: row.try_get("retired")?,
        dirty: row.try_get("dirty")?,
        last_kind: row.try_get("last_kind")?,
        scanned_at: row.try_get("scanned_at")?,
    })
}

fn group(row: &Row) -> Result<GroupShown> {
    Ok(GroupShown {
        group: row.try_get("group_key")?,
        members: row.try_get("members")?,
        accepted: row.try_get("accepted")?,
        rejected: row.try_get("rejected")?,
        retired: row.try_get("retired")?,
        changes: row.try_get("changes")?,
        verdict: row.try_get("verdict")?,
        severity: row.try_get("severity")?,
        ruleset_version: row.try_get("scanned_version")?,
        dirty: row.try_get("dirty")?,
        dirty_reason: row.try_get("dirty_reason")?,
        scanned_at: row.try_get("scanned_at")?,
    })
}
