//! `audit`: is anything missing?

use crate::cli::{known, output, replay};
use crate::config::Config;
use crate::core::handoff::Source;
use crate::error::Result;
use crate::store::lease::Kept;
use crate::store::rows::Span;
use crate::store::{Store, connect};
use crate::workers::audit::{self, Audit, Phase, Progress, Scope};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::process::ExitCode;
use std::sync::Arc;

/// Keys named on a terminal; the rest are in `--json`.
const SHOWN: usize = 20;

#[derive(Args)]
pub struct AuditCommand {
    /// Every row, in resumable chunks; else what is not older than the last certificate
    #[arg(long)]
    pub full: bool,
    /// Repair nothing
    #[arg(long)]
    pub check: bool,
    /// One source only
    #[arg(long)]
    pub source: Option<String>,
    /// Rows from this key or time on (with --full)
    #[arg(long, requires = "full")]
    pub since: Option<String>,
    #[arg(long)]
    pub json: bool,
}

pub async fn run(config: &Config, command: AuditCommand) -> Result<ExitCode> {
    let store = connect::open(&config.target, "gov-handoff audit").await?;
    store.refuse_standby().await?;
    let mut reader = connect::open(&config.target, "gov-handoff audit reader").await?;
    let sources = selected(&store, config, command.source.as_deref()).await?;
    let lease = audit::claim(&store).await?;
    let kept = Kept::keep(&config.target, &lease, audit::TTL);
    let mut results = Vec::new();
    for source in sources {
        let since = command.since.as_deref().map(|t| replay::bound(&source, t)).transpose()?;
        let scope = Scope { full: command.full, check: command.check, since: Span { from: since, to: None } };
        let bar = bar(&store, &source).await?;
        let name = source.name().to_owned();
        let audit = Audit {
            store: &store,
            reader: &mut reader,
            lease: &lease,
            intake: &config.worker,
            source,
            scope: &scope,
        };
        let progress =
            audit.run(|p| show(&bar, p)).await.map_err(|e| e.context(format!("audit of {name}")))?;
        bar.finish_and_clear();
        results.push((name, progress));
    }
    drop(kept);
    store.resign_lease(&lease).await?;
    if command.json {
        print_json(&results)?
    } else {
        print(&results, command.check)
    }
    let clean = results.iter().all(|(_, p)| p.clean());
    Ok(ExitCode::from(u8::from(!clean)))
}

async fn selected(store: &Store, config: &Config, name: Option<&str>) -> Result<Vec<Arc<Source>>> {
    let sources = store.sources(&config.worker).await?;
    match name {
        Some(name) => Ok(vec![known::source(&sources, name)?]),
        None => Ok(sources),
    }
}

async fn bar(store: &Store, source: &Source) -> Result<ProgressBar> {
    let bar = ProgressBar::new(store.row_estimate(source).await?.try_into().unwrap_or(0));
    if let Ok(style) =
        ProgressStyle::with_template("{msg:<40} {wide_bar} {human_pos}/{human_len} {per_sec} {eta}")
    {
        bar.set_style(style);
    }
    bar.set_message(source.name().to_owned());
    Ok(bar)
}

fn show(bar: &ProgressBar, progress: &Progress) {
    bar.set_position(progress.rows);
    if bar.length().is_some_and(|l| l < progress.rows) {
        bar.set_length(progress.rows);
    }
    if progress.phase == Phase::Signals {
        bar.set_message("looking for orphans");
    }
}

fn print_json(results: &[(String, Progress)]) -> Result<()> {
    let sources: Vec<_> =
        results.iter().map(|(name, p)| json!({ "source": name, "clean": p.clean(), "audit": p })).collect();
    output::json(&json!({ "clean": results.iter().all(|(_, p)| p.clean()), "sources": sources }))
}

fn print(results: &[(String, Progress)], check: bool) {
    let number = |n: u64| output::count(n.try_into().unwrap_or(i64::MAX));
    let row = |(name, p): &(String, Progress)| {
        let repaired = if check { "-".to_owned() } else { number(p.repaired) };
        vec![
            name.clone(),
            number(p.rows),
            number(p.missing),
            repaired,
            number(p.doubled),
            number(p.orphans),
            format!("{} ms", p.spent_ms),
        ]
    };
    let header = ["source", "rows", "missing", "repaired", "doubled", "orphans", "took"];
    output::table(&header, &results.iter().map(row).collect::<Vec<_>>());
    for (name, p) in results {
        for (word, keys, total) in
            [("missing", &p.missing_keys, p.missing), ("orphan", &p.orphan_keys, p.orphans)]
        {
            if total > 0 {
                let shown: Vec<_> = keys.iter().take(SHOWN).map(String::as_str).collect();
                let more = total - u64::try_from(shown.len()).unwrap_or(0);
                let rest = if more > 0 {
                    format!(" and {} more (--json names them)", number(more))
                } else {
                    String::new()
                };
                output::line(format_args!("{name} {word}: {}{rest}", shown.join(", ")));
            }
        }
    }
}
