//! The candidate scan: from a page of groups and members to verdicts and counts.
//!
//! ```text
//!   group ─▶ members behind the place of the scan ─▶ a verdict and a class each ─▶ counts ─▶ verdict of the group
//! ```
//!
//! The counts of a group are carried on: a member adds its class and takes away the class in which it was counted before.
//! So a scan costs as much as what was marked, not as much as the group has members.

use crate::core::definition::Grain;
use crate::core::verdict::{RuleFacts, RuleSet, RuleVerdict};
use serde_json::{Map, Value};

/// How a member counts in its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    Pending,
    Accepted,
    Rejected,
    Retired,
}

impl Class {
    /// A retired member is not an accepted one, whatever the input gate found.
    #[must_use]
    pub fn of(retired: bool, input: &str) -> Self {
        match input {
            _ if retired => Self::Retired,
            "ok" => Self::Accepted,
            "rejected" => Self::Rejected,
            _ => Self::Pending,
        }
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Accepted => "accepted",
            Self::Rejected => "rejected",
            Self::Retired => "retired",
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub members: i64,
    pub accepted: i64,
    pub rejected: i64,
    pub retired: i64,
}

impl Counts {
    fn add(&mut self, class: &str, n: i64) {
        self.members += n;
        match class {
            "accepted" => self.accepted += n,
            "rejected" => self.rejected += n,
            "retired" => self.retired += n,
            _ => {}
        }
    }
}

/// A member as it was read.
#[derive(Debug, Clone)]
pub struct GroupMember {
    pub key: String,
    pub mark: i64,
    pub generation: i64,
    pub was_group: Option<String>,
    pub was: Option<String>,
    pub input: String,
    pub input_reason: Option<String>,
    pub retired: bool,
    pub last_kind: Option<String>,
    pub age: Option<i64>,
}

/// How far the scan of a group has come.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScanPlace {
    pub version: Option<i32>,
    pub mark: i64,
    pub key: String,
}

/// A group as it was read, with the members behind the place of its scan.
#[derive(Debug, Clone)]
pub struct GroupPage {
    pub key: String,
    pub dims: Map<String, Value>,
    pub generation: i64,
    pub changes: i64,
    pub last_kind: Option<String>,
    pub age: Option<i64>,
    pub counts: Counts,
    /// Members that left the group and are still in its counts.
    pub departed: Counts,
    pub departures: Vec<i64>,
    pub from: ScanPlace,
    /// The scan begins with the first member.
    pub anew: bool,
    pub members: Vec<GroupMember>,
    /// There may be more members than were read.
    pub more: bool,
}

#[derive(Debug, Clone)]
pub struct JudgedMember {
    pub member: GroupMember,
    pub class: Class,
    pub verdict: RuleVerdict,
}

#[derive(Debug, Clone)]
pub struct JudgedGroup {
    pub key: String,
    pub generation: i64,
    pub from: ScanPlace,
    pub to: ScanPlace,
    /// This page reaches the end of the group.
    pub done: bool,
    pub departures: Vec<i64>,
    pub verdict: RuleVerdict,
    pub members: Vec<JudgedMember>,
}

/// Judges the members of a group that were read, and the group as it is with them.
#[must_use]
pub fn judge(rules: &RuleSet, version: i32, page: GroupPage) -> JudgedGroup {
    let mut counts = page.counts;
    counts.members -= page.departed.members;
    counts.accepted -= page.departed.accepted;
    counts.rejected -= page.departed.rejected;
    counts.retired -= page.departed.retired;
    let to = reached(version, &page);
    let members: Vec<_> = page.members.into_iter().map(|m| judge_member(rules, &page.dims, m)).collect();
    for JudgedMember { member, class, .. } in &members {
        counts.add(class.name(), 1);
        if let (Some(group), Some(was)) = (&member.was_group, &member.was)
            && *group == page.key
        {
            counts.add(was, -1);
        }
    }
    let facts = RuleFacts {
        members: Some(counts.members),
        accepted: Some(counts.accepted),
        rejected: Some(counts.rejected),
        retired: Some(counts.retired),
        pending: Some(counts.members - counts.accepted - counts.rejected - counts.retired),
        changes: Some(page.changes),
        age: page.age,
        last_kind: page.last_kind,
        dims: page.dims,
        ..RuleFacts::default()
    };
    JudgedGroup {
        key: page.key,
        generation: page.generation,
        from: page.from,
        to,
        done: !page.more,
        departures: page.departures,
        verdict: rules.judge(Grain::Group, &facts),
        members,
    }
}

/// The place after this page. At the end of the group it lies behind every mark up to the generation that was read: what is
/// marked later has a higher mark.
fn reached(version: i32, page: &GroupPage) -> ScanPlace {
    let begun = if page.anew { Some(version) } else { page.from.version };
    let ends = ScanPlace { version: begun, mark: page.generation + 1, key: String::new() };
    match page.members.last() {
        Some(last) if page.more && last.mark <= page.generation => {
            ScanPlace { version: begun, mark: last.mark, key: last.key.clone() }
        }
        _ => ends,
    }
}

fn judge_member(rules: &RuleSet, dims: &Map<String, Value>, member: GroupMember) -> JudgedMember {
    let facts = RuleFacts {
        retired: Some(i64::from(member.retired)),
        age: member.age,
        last_kind: member.last_kind.clone(),
        input: Some(member.input.clone()),
        input_reason: member.input_reason.clone(),
        dims: dims.clone(),
        ..RuleFacts::default()
    };
    let class = Class::of(member.retired, &member.input);
    JudgedMember { class, verdict: rules.judge(Grain::Object, &facts), member }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::verdict::VerdictRule;
    use std::collections::BTreeSet;

    fn page(members: Vec<GroupMember>, more: bool) -> GroupPage {
        GroupPage {
            key: "g".to_owned(),
            dims: Map::new(),
            generation: 9,
            changes: 4,
            last_kind: None,
            age: None,
            counts: Counts { members: 3, accepted: 2, rejected: 1, retired: 0 },
            departed: Counts { members: 1, accepted: 1, ..Counts::default() },
            departures: vec![7],
            from: ScanPlace { version: Some(1), mark: 5, key: String::new() },
            anew: false,
            members,
            more,
        }
    }

    fn member(key: &str, mark: i64, was: Option<(&str, &str)>, input: &str, retired: bool) -> GroupMember {
        GroupMember {
            key: key.to_owned(),
            mark,
            generation: 1,
            was_group: was.map(|(group, _)| group.to_owned()),
            was: was.map(|(_, class)| class.to_owned()),
            input: input.to_owned(),
            input_reason: None,
            retired,
            last_kind: None,
            age: None,
        }
    }

    fn rules() -> RuleSet {
        let rule = |code: &str, n: i64| VerdictRule {
            code: code.to_owned(),
            grain: Grain::Group,
            priority: 1,
            tests: vec![
                serde_json::from_value(serde_json::json!({ "fact": "accepted", "equals": n }))
                    .expect("a test"),
            ],
            verdict: code.to_owned(),
            severity: None,
            measurement: None,
            enabled: true,
        };
        RuleSet::compile(&[rule("none", 0), rule("one", 1), rule("two", 2)], &BTreeSet::new()).expect("rules")
    }

    #[test]
    fn a_member_is_counted_once_however_often_it_is_judged() {
        // Two accepted, one of which has left; one is retired now, one comes from another group.
        let members = vec![
            member("a", 6, Some(("g", "accepted")), "ok", true),
            member("b", 7, Some(("h", "accepted")), "ok", false),
            member("c", 8, None, "ok", false),
        ];
        let judged = judge(&rules(), 1, page(members, false));
        assert_eq!(judged.verdict.verdict.as_deref(), Some("two"));
        assert_eq!(judged.to, ScanPlace { version: Some(1), mark: 10, key: String::new() });
    }

    #[test]
    fn a_part_of_a_group_ends_at_its_last_member() {
        let judged = judge(&rules(), 3, page(vec![member("a", 6, None, "pending", false)], true));
        assert_eq!(judged.to, ScanPlace { version: Some(1), mark: 6, key: "a".to_owned() });
        assert!(!judged.done);
        // A member that was marked late through another group has the highest mark: the place does not go there.
        let judged = judge(&rules(), 3, page(vec![member("a", i64::MAX, None, "pending", false)], true));
        assert_eq!(judged.to.mark, 10);
    }
}
