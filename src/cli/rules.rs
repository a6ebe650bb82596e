//! `rules`: the verdict rules of the candidate scan.

use crate::cli::output;
use crate::config::Config;
use crate::core::definition::Grain;
use crate::core::verdict::{RuleFile, RuleSet, VerdictRule, parse_file};
use crate::error::{Error, Result};
use crate::store::connect;
use crate::store::role::Writer;
use crate::store::rules::RuleInForce;
use clap::{Args, Subcommand};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// How many groups `rules check` tries the rules on.
const SAMPLE: i64 = 10_000;

#[derive(Subcommand)]
pub enum RulesCommand {
    /// List the rules in force, in the order in which they are asked
    List {
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
    },
    /// Put the rules of a file in force; all groups are scanned again
    ///
    /// The file is the whole list: a rule that it does not name is removed, unless it is built in.
    Apply(RulesFile),
    /// Check a file, and show what its rules would say of the groups as they are; stores nothing
    Check(RulesFile),
}

#[derive(Args)]
pub struct RulesFile {
    /// A file in TOML
    pub file: PathBuf,
    /// Who decides [default: the database user]
    #[arg(long)]
    pub actor: Option<String>,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
}

pub async fn run(config: &Config, command: RulesCommand) -> Result<ExitCode> {
    match command {
        RulesCommand::List { json } => list(config, json).await,
        RulesCommand::Apply(file) => apply(config, &file).await,
        RulesCommand::Check(file) => check(config, &file).await,
    }
}

fn read(path: &Path) -> Result<RuleFile> {
    let said = |problem: String| Error::config(format!("{}: {problem}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|e| said(e.to_string()))?;
    parse_file(&text).map_err(said)
}

async fn list(config: &Config, json: bool) -> Result<ExitCode> {
    let store = connect::open(&config.target, "gov-handoff rules").await?;
    let (version, rules) = store.rules().await?;
    if json {
        output::json(&json!({ "ruleset_version": version, "rules": rules }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<_> = rules.iter().map(row).collect();
    output::table(&["grain", "priority", "rule", "tests", "verdict", "severity", "state"], &rows);
    output::line(format_args!("ruleset version {version}"));
    Ok(ExitCode::SUCCESS)
}

fn row(shown: &RuleInForce) -> Vec<String> {
    let rule = &shown.rule;
    let tests: Vec<_> = rule.tests.iter().filter_map(|test| serde_json::to_string(test).ok()).collect();
    let state = match (rule.enabled, shown.built_in) {
        (false, _) => "off",
        (true, true) => "built in",
        (true, false) => "on",
    };
    let grain = if rule.grain == Grain::Group { "group" } else { "object" };
    vec![
        grain.to_owned(),
        rule.priority.to_string(),
        rule.code.clone(),
        if tests.is_empty() { "always".to_owned() } else { tests.join(" ") },
        rule.verdict.clone(),
        rule.severity.clone().unwrap_or_default(),
        state.to_owned(),
    ]
}

async fn apply(config: &Config, command: &RulesFile) -> Result<ExitCode> {
    let file = read(&command.file)?;
    let store = connect::open(&config.target, "gov-handoff rules").await?.into_role::<Writer>();
    let (version, changed) = store.put_rules(&file.rules, command.actor.as_deref()).await?;
    if command.json {
        output::json(&json!({ "rules": file.rules.len(), "changed": changed, "ruleset_version": version }))?;
    } else if changed {
        output::line(format_args!(
            "{} rules are in force as ruleset version {version}; every group is scanned again",
            file.rules.len()
        ));
    } else {
        output::line(format_args!("nothing changed; ruleset version {version} is in force"));
    }
    Ok(ExitCode::SUCCESS)
}

async fn check(config: &Config, command: &RulesFile) -> Result<ExitCode> {
    let file = read(&command.file)?;
    let store = connect::open(&config.target, "gov-handoff rules").await?;
    let (_, in_force) = store.rules().await?;
    let rules = with_built_in(&file.rules, &in_force);
    // A measurement that is switched off may be switched on; the check takes every one for enabled.
    let all: BTreeSet<_> = rules.iter().filter_map(|rule| rule.measurement.clone()).collect();
    let set = RuleSet::compile(&rules, &all).map_err(|e| Error::config(e.to_string()))?;
    let groups = store.group_samples(SAMPLE).await?;
    let mut verdicts: BTreeMap<String, u64> = BTreeMap::new();
    let mut changed = 0_u64;
    for group in &groups {
        let verdict = set.judge(Grain::Group, &group.facts).verdict;
        changed += u64::from(verdict != group.verdict);
        *verdicts.entry(verdict.unwrap_or_else(|| "none".to_owned())).or_default() += 1;
    }
    let capped = i64::try_from(groups.len()).is_ok_and(|n| n >= SAMPLE);
    if command.json {
        output::json(&json!({
            "rules": file.rules.len(), "groups": groups.len(), "sample": capped, "changed": changed, "verdicts": verdicts,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    output::line(format_args!("{} rules are in order; nothing was stored", file.rules.len()));
    let rows: Vec<_> = verdicts.iter().map(|(verdict, n)| vec![verdict.clone(), n.to_string()]).collect();
    output::table(&["verdict", "groups"], &rows);
    let of = if capped { "the first " } else { "" };
    output::line(format_args!("{changed} of {of}{} groups would get another verdict", groups.len()));
    Ok(ExitCode::SUCCESS)
}

/// The list as it would be in force: the built-in rules stay where the file does not name them.
fn with_built_in(file: &[VerdictRule], in_force: &[RuleInForce]) -> Vec<VerdictRule> {
    let named: BTreeSet<_> = file.iter().map(|rule| &rule.code).collect();
    let kept = in_force.iter().filter(|shown| shown.built_in && !named.contains(&shown.rule.code));
    file.iter().cloned().chain(kept.map(|shown| shown.rule.clone())).collect()
}
