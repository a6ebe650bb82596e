//! `findings`: what is wrong, or was. Exit code 1 when something high or critical is open.

use crate::cli::{known, output};
use crate::config::Config;
use crate::core::finding::KINDS;
use crate::error::Result;
use crate::store::connect;
use crate::store::findings::Issue;
use crate::store::role::Writer;
use clap::Args;
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::ExitCode;

/// Enough for a reader. Open and severe findings come first, and the output says when some are left out.
const SHOWN: i64 = 1_000;

#[derive(Args)]
pub struct FindingsCommand {
    /// Only what is open, which is the default
    #[arg(long, conflicts_with = "all")]
    pub open: bool,
    /// Resolved ones as well
    #[arg(long)]
    pub all: bool,
    /// Only of one kind, such as handoff_lag
    #[arg(long)]
    pub kind: Option<String>,
    /// Close one by hand; it comes back if its cause is still there
    #[arg(long, value_name = "KEY", conflicts_with_all = ["all", "kind", "json"])]
    pub resolve: Option<String>,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
}

pub async fn run(config: &Config, command: FindingsCommand) -> Result<ExitCode> {
    if let Some(key) = &command.resolve {
        let store = connect::open(&config.target, "gov-handoff findings").await?.into_role::<Writer>();
        let was_open = store.resolve(key, "resolved by hand").await?;
        output::line(format_args!("{key} {}", if was_open { "resolved" } else { "is not open" }));
        return Ok(ExitCode::from(u8::from(!was_open)));
    }
    let store = connect::open_observer(&config.target, "gov-handoff findings").await?;
    if let Some(kind) = command.kind.as_deref().filter(|kind| !KINDS.contains(kind)) {
        // A later version, or a foreign gate, may have raised kinds that this version does not know.
        let known = [store.finding_kinds().await?, KINDS.map(str::to_owned).to_vec()].concat();
        known::one_of("kind of finding", kind, &BTreeSet::from_iter(known).into_iter().collect::<Vec<_>>())?;
    }
    let mut findings = store.findings(command.kind.as_deref(), command.all, SHOWN + 1).await?;
    let more = findings.len() > usize::try_from(SHOWN).unwrap_or(usize::MAX);
    findings.truncate(usize::try_from(SHOWN).unwrap_or(usize::MAX));
    if command.json {
        output::json(&findings)?;
    } else if findings.is_empty() {
        output::line(if command.all { "nothing was ever found" } else { "nothing is open" });
    } else {
        let rows: Vec<_> = findings.iter().map(row).collect();
        output::table(&["severity", "finding", "times", "last seen", "state", "detail"], &rows);
    }
    if more {
        eprintln!("only the first {SHOWN} are shown; --kind narrows them down");
    }
    Ok(ExitCode::from(u8::from(findings.iter().any(Issue::is_grave))))
}

fn row(issue: &Issue) -> Vec<String> {
    let state = issue.resolution.as_ref().map_or_else(|| "open".to_owned(), |r| format!("resolved: {r}"));
    let detail = issue.detail.as_object().map_or_else(String::new, |detail| {
        let pairs = detail.iter().map(|(key, value)| match value {
            Value::String(text) => format!("{key}={text}"),
            other => format!("{key}={other}"),
        });
        pairs.collect::<Vec<_>>().join(" ")
    });
    let seen = issue.last_seen_at.get(..19).unwrap_or(&issue.last_seen_at).to_owned();
    vec![
        issue.severity.to_string(),
        issue.key.clone(),
        format!("x{}", issue.occurrences),
        seen,
        state,
        detail,
    ]
}
