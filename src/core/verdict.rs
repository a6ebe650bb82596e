//! Verdict rules: tests over facts of a group or an object, and the verdict of the first rule that passes.
//!
//! This is the only evaluator. The scan reads a page of groups and objects, asks [`RuleSet::judge`] about each, and hands
//! the verdicts to a gate. Which rules there are is data (`gov_verdict_rule`).

use crate::core::definition::Grain;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeSet;

mod file;
mod test;

pub use file::{RuleFile, parse_file};
pub use test::{FactTest, VerdictTest};

/// What is known of a group or an object. A fact that is not known passes no test but `present = false`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RuleFacts {
    pub members: Option<i64>,
    pub accepted: Option<i64>,
    pub rejected: Option<i64>,
    pub pending: Option<i64>,
    /// Of a group: how many members. Of an object: 1 if it is retired, otherwise 0.
    pub retired: Option<i64>,
    pub changes: Option<i64>,
    /// Seconds since the latest change.
    pub age: Option<i64>,
    pub last_kind: Option<String>,
    /// Of an object: `pending`, `ok` or `rejected`.
    pub input: Option<String>,
    pub input_reason: Option<String>,
    /// The dimensions of the group, by name.
    pub dims: serde_json::Map<String, Value>,
}

/// A rule as an operator writes it, and as the database keeps it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VerdictRule {
    pub code: String,
    pub grain: Grain,
    /// Rules are asked in the order of priority, then of code.
    #[serde(default = "default_priority")]
    pub priority: i32,
    #[serde(default, rename = "when")]
    pub tests: Vec<FactTest>,
    pub verdict: String,
    #[serde(default)]
    pub severity: Option<String>,
    /// The rule holds only while this measurement is enabled.
    #[serde(default)]
    pub measurement: Option<String>,
    #[serde(default = "enabled")]
    pub enabled: bool,
}

fn default_priority() -> i32 {
    100
}

fn enabled() -> bool {
    true
}

/// Why a rule cannot be used. The message names the rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rule {code}: {problem}")]
pub struct RuleError {
    pub code: String,
    pub problem: String,
}

/// The outcome for one group or object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuleVerdict {
    /// `None`: no rule passed.
    pub verdict: Option<String>,
    pub rule: Option<String>,
    pub severity: Option<String>,
}

struct Compiled {
    rule: VerdictRule,
    tests: Vec<VerdictTest>,
}

/// Rules that are ready to judge, in their order.
pub struct RuleSet {
    groups: Vec<Compiled>,
    objects: Vec<Compiled>,
}

impl RuleSet {
    /// Checks all rules, and keeps those that hold: enabled, and without a measurement or with an enabled one.
    pub fn compile(rules: &[VerdictRule], measurements: &BTreeSet<String>) -> Result<Self, RuleError> {
        let mut compiled = rules.iter().map(compile).collect::<Result<Vec<_>, _>>()?;
        compiled.retain(|c| {
            c.rule.enabled && c.rule.measurement.as_ref().is_none_or(|needed| measurements.contains(needed))
        });
        compiled.sort_by(|a, b| (a.rule.priority, &a.rule.code).cmp(&(b.rule.priority, &b.rule.code)));
        let (groups, objects) = compiled.into_iter().partition(|c| c.rule.grain == Grain::Group);
        Ok(Self { groups, objects })
    }

    /// The verdict of the first rule whose tests all pass.
    #[must_use]
    pub fn judge(&self, grain: Grain, facts: &RuleFacts) -> RuleVerdict {
        let rules = if grain == Grain::Group { &self.groups } else { &self.objects };
        let passed = rules.iter().find(|rule| rule.tests.iter().all(|test| test.passes(facts)));
        passed.map_or_else(RuleVerdict::default, |Compiled { rule, .. }| RuleVerdict {
            verdict: Some(rule.verdict.clone()),
            rule: Some(rule.code.clone()),
            severity: rule.severity.clone(),
        })
    }
}

fn compile(rule: &VerdictRule) -> Result<Compiled, RuleError> {
    let wrong = |problem: String| RuleError { code: rule.code.clone(), problem };
    for (what, word) in [("code", &rule.code), ("verdict", &rule.verdict)] {
        if !is_word(word) {
            let problem =
                format!("expected a {what} of small letters, digits and underscores, found {word:?}");
            return Err(wrong(problem));
        }
    }
    if let Some(severity) = rule.severity.as_deref().filter(|s| !["info", "warning", "critical"].contains(s))
    {
        return Err(wrong(format!("expected the severity info, warning or critical, found {severity:?}")));
    }
    let tests = rule.tests.iter().map(|test| test.compile(rule.grain).map_err(&wrong));
    Ok(Compiled { tests: tests.collect::<Result<_, _>>()?, rule: rule.clone() })
}

fn is_word(text: &str) -> bool {
    let rest = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    text.len() <= 63 && text.starts_with(|c: char| c.is_ascii_lowercase()) && text.chars().all(rest)
}

#[cfg(test)]
mod tests;
