//! `audit`: is anything missing?

use crate::audit::{self, Audit, AuditPhase, Progress, Scope};
use crate::cli::{known, output, replay};
use crate::config::Config;
use crate::core::handoff::Source;
use crate::error::{Error, Result};
use crate::store::audit::Discrepancy;
use crate::store::feed::FEED;
use crate::store::lease::{Kept, Lease};
use crate::store::read::Span;
use crate::store::source::Registered;
use crate::store::{Reader, Store, connect};
use crate::workers::event_feed;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::process::ExitCode;
use std::sync::Arc;

/// Keys named on a terminal; all of them are in `--json`.
const SHOWN: i64 = 20;
/// Bytes of a long list of names that are buffered before they are printed.
const BUFFER: usize = 64 << 10;

#[derive(Args)]
pub struct AuditCommand {
    /// Check every row, in resumable chunks [default: rows not older than the last certificate]
    #[arg(long)]
    pub full: bool,
    /// Repair nothing
    #[arg(long)]
    pub check: bool,
    /// One source only; event_feed is the feed (with --full)
    #[arg(long)]
    pub source: Option<String>,
    /// Rows from this key on, or from a time such as 2026-11-16 or 2026-11-16T12:00:00Z (with --full)
    #[arg(long, requires = "full")]
    pub since: Option<String>,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
}

pub async fn run(config: &Config, command: AuditCommand) -> Result<ExitCode> {
    let store = connect::open(&config.target, "gov-handoff audit").await?;
    store.refuse_standby().await?;
    let mut reader = connect::open_reader(&config.target, "gov-handoff audit reader").await?;
    reader = reader.only_tables().await?;
    let feed = includes_feed(&store, &command).await?;
    let (sources, mut unreadable) = if command.source.as_deref() == Some(FEED) {
        (vec![], vec![])
    } else {
        selected(&store, config, command.source.as_deref()).await?
    };
    // All bounds are parsed before the lease is taken, so that a wrong one does not block another audit.
    let bound = |source: &Arc<Source>| command.since.as_deref().map(|t| replay::bound(source, t)).transpose();
    let bounds = sources.iter().map(bound).collect::<Result<Vec<_>>>()?;
    let lease = audit::claim(&store).await?;
    let kept = Kept::keep(&config.target, &lease, audit::TTL);
    let mut results = Vec::new();
    for (source, since) in sources.into_iter().zip(bounds) {
        let scope = Scope { full: command.full, check: command.check, since: Span { from: since, to: None } };
        let name = source.name().to_owned();
        match audit_one(config, &store, &mut reader, &lease, source, &scope).await {
            Ok(progress) => results.push((name, progress)),
            // The other sources are audited all the same.
            Err(e) if e.of_source => unreadable.push(e),
            Err(e) => return Err(e),
        }
    }
    if feed {
        let bar = progress_bar(FEED, reader.feed_head().await?.last);
        let progress = audit::audit_feed(&store, &reader, &lease, command.check, |p| show(&bar, p)).await?;
        bar.finish_and_clear();
        results.push((FEED.to_owned(), progress));
    }
    // The next audit deletes the names of this one, so they are printed before the lease is given back.
    let told = if command.json {
        print_json(&store, &results, command.full, unreadable.is_empty()).await
    } else {
        print(&store, &results, &command).await
    };
    kept.end().await;
    store.resign_lease(&lease).await?;
    told?;
    if let Some(first) = unreadable.first() {
        let all: Vec<_> = unreadable.iter().map(ToString::to_string).collect();
        return Err(Error::new(first.kind, all.join("; ")));
    }
    let clean = results.iter().all(|(_, p)| p.clean());
    Ok(ExitCode::from(u8::from(!clean)))
}

/// Whether the feed is compared with the outbox: in a full audit of everything, or if it is asked for.
async fn includes_feed(store: &Store, command: &AuditCommand) -> Result<bool> {
    match command.source.as_deref() {
        Some(FEED) if !command.full => Err(Error::config("the feed is compared in full; add --full")),
        Some(name) => Ok(name == FEED),
        None if !command.full || command.since.is_some() => Ok(false),
        // Without its worker nothing gives positions to the events of others.
        None => Ok(store.frontier(event_feed::NAME, FEED).await?.is_some()),
    }
}

/// Audits one source, with a progress bar.
async fn audit_one(
    config: &Config,
    store: &Store,
    reader: &mut Reader,
    lease: &Lease,
    source: Arc<Source>,
    scope: &Scope,
) -> Result<Progress> {
    let about = format!("audit of {}", source.name());
    let bar = match bar(store, &source).await.map_err(Error::of_source) {
        Err(e) if e.of_source => return Err(e.context(about)),
        bar => bar?,
    };
    let (intake, resumable) = (config.worker.as_str(), audit::RESUMABLE);
    let audit = Audit { store, reader, lease, intake, source, scope, resumable };
    let audited = audit.run(|p| show(&bar, p)).await.map_err(|e| e.context(about));
    bar.finish_and_clear();
    audited
}

/// The sources to audit, and an error for each source whose definition cannot be used.
async fn selected(
    store: &Store,
    config: &Config,
    name: Option<&str>,
) -> Result<(Vec<Arc<Source>>, Vec<Error>)> {
    let Registered { sources, broken } = store.registered(&config.worker).await?;
    let mut broken = broken.into_iter();
    match name {
        Some(name) => match broken.find(|(broken, _)| broken == name) {
            Some((_, e)) => Err(e),
            None => Ok((vec![known::source(&sources, name)?], vec![])),
        },
        None => Ok((sources, broken.map(|(_, e)| e).collect())),
    }
}

async fn bar(store: &Store, source: &Source) -> Result<ProgressBar> {
    Ok(progress_bar(source.name(), store.row_estimate(source).await?))
}

fn progress_bar(name: &str, rows: i64) -> ProgressBar {
    let bar = ProgressBar::new(rows.try_into().unwrap_or(0));
    if let Ok(style) =
        ProgressStyle::with_template("{msg:<40} {wide_bar} {human_pos}/{human_len} {per_sec} {eta}")
    {
        bar.set_style(style);
    }
    bar.set_message(name.to_owned());
    bar
}

fn show(bar: &ProgressBar, progress: &Progress) {
    bar.set_position(progress.rows);
    if bar.length().is_some_and(|l| l < progress.rows) {
        bar.set_length(progress.rows);
    }
    if progress.phase != AuditPhase::Rows {
        bar.set_message("looking for orphans");
    }
}

/// `all`: every source could be read. Keys are printed as they are read, because there may be a million of them.
async fn print_json(store: &Store, results: &[(String, Progress)], full: bool, all: bool) -> Result<()> {
    let clean = all && results.iter().all(|(_, p)| p.clean());
    output::note_json();
    output::part(format_args!("{{\"clean\":{clean},\"sources\":["));
    for (i, (name, p)) in results.iter().enumerate() {
        let (comma, source) = (if i > 0 { "," } else { "" }, serde_json::to_string(name)?);
        let audit = serde_json::to_string(p)?;
        let fields = audit.strip_suffix('}').unwrap_or(&audit);
        output::part(format_args!(
            "{comma}\n{{\"source\":{source},\"clean\":{},\"audit\":{fields}",
            p.clean()
        ));
        for verdict in Discrepancy::ALL {
            let mut text = format!(",\"{}_keys\":[", verdict.name());
            let mut first = true;
            let each = |key: &str| {
                text.push_str(if std::mem::take(&mut first) { "" } else { "," });
                text.push_str(&serde_json::to_string(key)?);
                if text.len() > BUFFER {
                    output::part(&text);
                    text.clear();
                }
                Ok(())
            };
            store.audit_names(name, full, verdict, i64::MAX, each).await?;
            output::part(format_args!("{text}]"));
        }
        output::part("}}");
    }
    output::line("]}");
    Ok(())
}

async fn print(store: &Store, results: &[(String, Progress)], command: &AuditCommand) -> Result<()> {
    let number = |n: u64| output::count(n.try_into().unwrap_or(i64::MAX));
    let row = |(name, p): &(String, Progress)| {
        let repaired = if command.check { "-".to_owned() } else { number(p.repaired) };
        vec![
            name.clone(),
            number(p.rows),
            number(p.backlog),
            number(p.missing),
            repaired,
            number(p.doubled),
            number(p.orphans),
            format!("{} ms", p.spent_ms),
        ]
    };
    let header = ["source", "rows", "backlog", "missing", "repaired", "doubled", "orphans", "took"];
    output::table(&header, &results.iter().map(row).collect::<Vec<_>>());
    for (name, p) in results {
        if let Some(since) = &p.terms.since {
            output::line(format_args!("{name}: rows from {since} on; those before it were not looked at"));
        }
        for register in &p.registers {
            output::line(format_args!(
                "{name}: the register of its {register} rows was changed past the gates; rows in it count as accounted for"
            ));
        }
        for (verdict, total) in Discrepancy::ALL.into_iter().zip([p.missing, p.doubled, p.orphans]) {
            let mut shown = Vec::new();
            let each = |key: &str| {
                shown.push(key.to_owned());
                Ok(())
            };
            if total > 0 {
                store.audit_names(name, command.full, verdict, SHOWN, each).await?;
                let more = total - u64::try_from(shown.len()).unwrap_or(0).min(total);
                let rest = if more > 0 {
                    format!(" and {} more (audit --json names all of them)", number(more))
                } else {
                    String::new()
                };
                output::line(format_args!("{name} {}: {}{rest}", verdict.name(), shown.join(", ")));
            }
        }
    }
    Ok(())
}
