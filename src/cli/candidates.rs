//! `candidates` and `groups`: what was judged, and how. Both are bounded, and go on behind the last key that was shown.

use crate::cli::output;
use crate::config::Config;
use crate::error::Result;
use crate::store::candidates::{CandidateShown, GroupShown};
use crate::store::connect;
use clap::Args;
use std::process::ExitCode;

/// A command that asks for a verdict looks at this many candidates at most, and says so.
const LOOKED_AT: i64 = 100_000;

#[derive(Args)]
pub struct CandidatesCommand {
    /// Only the members of this group
    #[arg(long)]
    pub group: Option<String>,
    /// Only those with this verdict, among the next 100,000 candidates
    #[arg(long)]
    pub verdict: Option<String>,
    /// Go on behind this candidate
    #[arg(long, value_name = "CANDIDATE", default_value = "")]
    pub after: String,
    /// How many to show
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    pub limit: i64,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct GroupsCommand {
    /// Only those that are to be scanned, also for an invalidation that has not reached them yet
    #[arg(long)]
    pub dirty: bool,
    /// Go on behind this group
    #[arg(long, value_name = "GROUP", default_value = "")]
    pub after: String,
    /// How many to show
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    pub limit: i64,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
}

pub async fn candidates(config: &Config, command: &CandidatesCommand) -> Result<ExitCode> {
    let store = connect::open_observer(&config.target, "gov-handoff candidates").await?;
    let (group, verdict) = (command.group.as_deref(), command.verdict.as_deref());
    let (shown, stopped_at) = match verdict {
        None => (store.candidates(&command.after, group, command.limit).await?, None),
        Some(verdict) => {
            let limit = usize::try_from(command.limit).unwrap_or(usize::MAX);
            let found = store.candidates_with(verdict, &command.after, group, limit, LOOKED_AT).await?;
            (found.candidates, found.stopped_at)
        }
    };
    if command.json {
        output::json(&shown)?;
    } else {
        let rows: Vec<_> = shown.iter().map(candidate).collect();
        output::table(&["candidate", "group", "input", "verdict", "rule", "version", "state"], &rows);
    }
    match stopped_at {
        Some(place) => eprintln!(
            "looked at {} candidates; there may be more: go on with --after '{place}'",
            output::count(LOOKED_AT)
        ),
        None => more(shown.len(), command.limit, shown.last().map(|last| last.candidate.as_str())),
    }
    Ok(ExitCode::SUCCESS)
}

fn candidate(shown: &CandidateShown) -> Vec<String> {
    let input = shown
        .input_reason
        .as_ref()
        .map_or_else(|| shown.input.clone(), |why| format!("{}: {why}", shown.input));
    let state = [(shown.retired, "retired"), (shown.dirty, "dirty")];
    let state: Vec<_> = state.iter().filter(|(is, _)| *is).map(|(_, word)| *word).collect();
    vec![
        shown.candidate.clone(),
        shown.group.clone(),
        input,
        shown.verdict.clone().unwrap_or_default(),
        shown.rule.clone().unwrap_or_default(),
        shown.ruleset_version.to_string(),
        state.join(", "),
    ]
}

pub async fn groups(config: &Config, command: &GroupsCommand) -> Result<ExitCode> {
    let store = connect::open_observer(&config.target, "gov-handoff groups").await?;
    let shown = store.groups(&command.after, command.dirty, command.limit).await?;
    if command.json {
        output::json(&shown)?;
    } else {
        let rows: Vec<_> = shown.iter().map(group).collect();
        let header =
            ["group", "verdict", "members", "accepted", "rejected", "retired", "changes", "version", "dirty"];
        output::table(&header, &rows);
    }
    more(shown.len(), command.limit, shown.last().map(|last| last.group.as_str()));
    Ok(ExitCode::SUCCESS)
}

fn group(shown: &GroupShown) -> Vec<String> {
    let dirty = shown.dirty.then(|| shown.dirty_reason.clone().unwrap_or_else(|| "yes".to_owned()));
    let counts = [shown.members, shown.accepted, shown.rejected, shown.retired, shown.changes];
    let mut row = vec![shown.group.clone(), shown.verdict.clone().unwrap_or_default()];
    row.extend(counts.map(output::count));
    row.push(shown.ruleset_version.map(|version| version.to_string()).unwrap_or_default());
    row.push(dirty.unwrap_or_default());
    row
}

/// A list that was cut says how to go on.
fn more(shown: usize, limit: i64, last: Option<&str>) {
    if let Some(last) = last.filter(|_| i64::try_from(shown).is_ok_and(|n| n >= limit)) {
        eprintln!("only {limit} are shown; go on with --after '{last}'");
    }
}
