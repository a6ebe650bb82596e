//! The candidate scan: its control row and rules, a page of groups with their members, and the gates that record.

use crate::core::scan::{Counts, GroupMember, GroupPage, JudgedGroup, JudgedMember, ScanPlace};
use crate::core::verdict::{RuleSet, VerdictRule};
use crate::error::{Context, Error, Kind, Result};
use crate::store::Session;
use crate::store::lease::Lease;
use crate::store::role::Writes;
use serde_json::Value;
use std::collections::BTreeSet;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

/// What a scan needs to know before a page.
pub struct ScanControl {
    pub shards: i32,
    pub stale_ms: i64,
    /// An invalidation is open.
    pub invalidated: bool,
    /// A group is past its time.
    pub stale: bool,
    pub version: i32,
    pub rules: RuleSet,
}

/// Which of how many scans, from 1 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    pub number: i32,
    pub of: i32,
}

/// How much one page reads.
#[derive(Debug, Clone, Copy)]
pub struct ScanLimits {
    pub groups: i64,
    pub members: i64,
}

/// What one step of an expansion did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expanded {
    pub marked: i64,
    /// Groups that this invalidation has marked and read, in all steps so far.
    pub total: i64,
    pub seen: i64,
    pub done: bool,
}

impl<R> Session<R> {
    pub async fn scan_control(&self) -> Result<ScanControl> {
        let row = self.one(include_str!("sql/scan/control.sql"), &[]).await.context("reading the rules")?;
        let rules: Option<Value> = row.try_get("rules")?;
        let rules: Vec<VerdictRule> = rules.map(serde_json::from_value).transpose()?.unwrap_or_default();
        let measurements: Vec<String> = row.try_get("measurements")?;
        let rules = RuleSet::compile(&rules, &BTreeSet::from_iter(measurements)).map_err(|e| {
            Error::new(Kind::Refused, format!("{e}; put it right with `gov-handoff rules apply`"))
        })?;
        Ok(ScanControl {
            shards: row.try_get("shards")?,
            stale_ms: row.try_get("stale_ms")?,
            invalidated: row.try_get("invalidated")?,
            stale: row.try_get("stale")?,
            version: row.try_get("version")?,
            rules,
        })
    }

    /// The next dirty groups of this scan behind `after`, and the ruleset version at the same moment.
    pub async fn scan_page(
        &self,
        after: &str,
        shard: Shard,
        size: ScanLimits,
    ) -> Result<(i32, Vec<GroupPage>)> {
        let params: [&(dyn ToSql + Sync); 5] =
            [&after, &shard.number, &shard.of, &size.groups, &size.members];
        let rows =
            self.rows(include_str!("sql/scan/page.sql"), &params).await.context("reading dirty groups")?;
        let mut groups: Vec<GroupPage> = Vec::new();
        let mut version = 0;
        for row in &rows {
            version = row.try_get("version")?;
            let key: String = row.try_get("group_key")?;
            if groups.last().is_none_or(|group| group.key != key) {
                groups.push(group_of(row, key)?);
            }
            if let (Some(group), Some(member)) = (groups.last_mut(), member_of(row)?) {
                group.members.push(member);
                group.more = i64::try_from(group.members.len()).unwrap_or(i64::MAX)
                    >= row.try_get::<_, i64>("at_most")?;
            }
        }
        Ok((version, groups))
    }
}

fn group_of(row: &Row, key: String) -> Result<GroupPage> {
    let dims: Value = row.try_get("dims")?;
    let departed = |class: &str| Ok::<i64, Error>(row.try_get::<_, Option<i64>>(class)?.unwrap_or(0));
    let departures: Vec<i64> = row.try_get::<_, Option<_>>("departures")?.unwrap_or_default();
    Ok(GroupPage {
        key,
        dims: dims.as_object().cloned().unwrap_or_default(),
        generation: row.try_get("generation")?,
        changes: row.try_get("changes")?,
        last_kind: row.try_get("last_kind")?,
        age: row.try_get("age")?,
        counts: Counts {
            members: row.try_get("members")?,
            accepted: row.try_get("accepted")?,
            rejected: row.try_get("rejected")?,
            retired: row.try_get("retired")?,
        },
        departed: Counts {
            members: i64::try_from(departures.len()).unwrap_or(i64::MAX),
            accepted: departed("departed_accepted")?,
            rejected: departed("departed_rejected")?,
            retired: departed("departed_retired")?,
        },
        departures,
        from: ScanPlace {
            version: row.try_get("scan_version")?,
            mark: row.try_get("scan_mark")?,
            key: row.try_get("scan_key")?,
        },
        anew: row.try_get("anew")?,
        members: Vec::new(),
        more: false,
    })
}

fn member_of(row: &Row) -> Result<Option<GroupMember>> {
    let Some(key) = row.try_get::<_, Option<String>>("candidate_key")? else { return Ok(None) };
    Ok(Some(GroupMember {
        key,
        mark: row.try_get("group_mark")?,
        generation: row.try_get("object_generation")?,
        was_group: row.try_get("scanned_group")?,
        was: row.try_get("counted_as")?,
        input: row.try_get("input_quality_state")?,
        input_reason: row.try_get("input_reason")?,
        retired: row.try_get("object_retired")?,
        last_kind: row.try_get("object_kind")?,
        age: row.try_get("object_age")?,
    }))
}

/// A page of verdicts, as it is recorded.
pub struct Verdicts<'a> {
    pub shard: Shard,
    pub version: i32,
    pub groups: &'a [JudgedGroup],
    pub begins: bool,
    pub ends: bool,
}

impl<R: Writes> Session<R> {
    pub async fn divide_scan(&self, lease: &Lease, shards: i32, stale_ms: i64) -> Result<()> {
        let params: [&(dyn ToSql + Sync); 5] = [&lease.worker, &lease.owner, &lease.term, &shards, &stale_ms];
        self.one(include_str!("sql/scan/divide.sql"), &params).await?;
        Ok(())
    }

    /// Expands the oldest open invalidation by up to `limit` groups. `None`: none is open.
    pub async fn expand_invalidation(&self, lease: &Lease, limit: i32) -> Result<Option<Expanded>> {
        let params: [&(dyn ToSql + Sync); 4] = [&lease.worker, &lease.owner, &lease.term, &limit];
        let row = self.optional(include_str!("sql/scan/expand.sql"), &params).await.context("expanding")?;
        row.map(|row| {
            Ok(Expanded {
                marked: row.try_get("marked")?,
                total: row.try_get("total")?,
                seen: row.try_get("seen")?,
                done: row.try_get("done")?,
            })
        })
        .transpose()
    }

    /// Marks groups that are past their time. Returns how many.
    pub async fn mark_stale(&self, lease: &Lease, shard: Shard, limit: i32) -> Result<i64> {
        let params: [&(dyn ToSql + Sync); 6] =
            [&lease.worker, &lease.owner, &lease.term, &limit, &shard.number, &shard.of];
        Ok(self.one(include_str!("sql/scan/stale.sql"), &params).await?.try_get(0)?)
    }

    /// Records a page of verdicts. Returns how many members were judged, and how many groups are clean now.
    pub async fn put_verdicts(&self, lease: &Lease, page: &Verdicts<'_>) -> Result<(i64, i64)> {
        let groups = page.groups;
        let members = || groups.iter().flat_map(|g| g.members.iter().map(move |m| (g, m)));
        let of_group = |f: fn(&JudgedGroup) -> Option<&str>| groups.iter().map(f).collect::<Vec<_>>();
        let of_member =
            |f: fn(&JudgedMember) -> Option<&str>| members().map(|(_, m)| f(m)).collect::<Vec<_>>();
        let departures: Vec<i64> = groups.iter().flat_map(|g| g.departures.iter().copied()).collect();
        let rows = i64::try_from(groups.len() + members().count()).unwrap_or(i64::MAX);
        let params: [&(dyn ToSql + Sync); 31] = [
            &lease.worker,
            &lease.owner,
            &lease.term,
            &page.shard.number,
            &page.shard.of,
            &page.version,
            &of_group(|g| Some(&g.key)),
            &groups.iter().map(|g| g.generation).collect::<Vec<_>>(),
            &groups.iter().map(|g| g.from.version).collect::<Vec<_>>(),
            &groups.iter().map(|g| g.from.mark).collect::<Vec<_>>(),
            &of_group(|g| Some(&g.from.key)),
            &groups.iter().map(|g| g.to.version).collect::<Vec<_>>(),
            &groups.iter().map(|g| g.to.mark).collect::<Vec<_>>(),
            &of_group(|g| Some(&g.to.key)),
            &groups.iter().map(|g| g.done).collect::<Vec<_>>(),
            &of_group(|g| g.verdict.verdict.as_deref()),
            &of_group(|g| g.verdict.rule.as_deref()),
            &of_group(|g| g.verdict.severity.as_deref()),
            &departures,
            &of_member(|m| Some(&m.member.key)),
            &members().map(|(g, _)| g.key.as_str()).collect::<Vec<_>>(),
            &members().map(|(_, m)| m.member.generation).collect::<Vec<_>>(),
            &of_member(|m| m.member.was_group.as_deref()),
            &of_member(|m| m.member.was.as_deref()),
            &of_member(|m| Some(m.class.name())),
            &of_member(|m| m.verdict.verdict.as_deref()),
            &of_member(|m| m.verdict.rule.as_deref()),
            &of_member(|m| m.verdict.severity.as_deref()),
            &rows,
            &page.begins,
            &page.ends,
        ];
        let row = self.one(include_str!("sql/scan/put.sql"), &params).await.context("recording verdicts")?;
        Ok((row.try_get(0)?, row.try_get(1)?))
    }
}
