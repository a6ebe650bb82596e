//! `replay`: hands a stretch of a source off again. Recorded signals stay as they are, because identities are the same.

use crate::cli::{known, output, time};
use crate::config::Config;
use crate::core::captured_by::CapturedBy;
use crate::core::handoff::Source;
use crate::error::{Error, Kind, Result};
use crate::handoff::deliver::{Delivery, Outcome};
use crate::handoff::mapped_row::MappedRow;
use crate::instance;
use crate::store::apply::Advance;
use crate::store::lease::{Claim, Kept, Lease};
use crate::store::read::{Bound, Span};
use crate::store::{Store, connect};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// Replays have a lease of their own, so that only one runs at a time while the daemon goes on.
const WORKER: &str = "gov_handoff_replay";
const TTL: Duration = Duration::from_secs(60);

#[derive(Args)]
pub struct ReplayCommand {
    /// The source whose rows are read again
    #[arg(long)]
    pub source: String,
    /// A key, or a time such as 2026-11-16 or 2026-11-16T12:00:00Z
    #[arg(long, allow_hyphen_values = true)]
    pub from: String,
    /// The same; the end of the source if not given
    #[arg(long, allow_hyphen_values = true)]
    pub to: Option<String>,
    /// Count what is missing, and record nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
}

pub async fn run(config: &Config, command: ReplayCommand) -> Result<ExitCode> {
    let store = connect::open_reader(&config.target, "gov-handoff replay").await?;
    store.refuse_standby().await?;
    let store = store.only_tables().await?;
    let sources = store.sources(&config.worker).await?;
    let source = known::source(&sources, &command.source)?;
    let span = Span {
        from: Some(bound(&source, &command.from)?),
        to: command.to.as_deref().map(|t| bound(&source, t)).transpose()?,
    };
    let lease = match store.claim_lease(WORKER, instance::owner(), TTL).await? {
        Claim::Held { lease, .. } => lease,
        Claim::Taken(view) => {
            let by = view.owner.unwrap_or_default();
            return Err(Error::new(
                Kind::Refused,
                format!("another replay is running ({by}); wait for it to end"),
            ));
        }
    };
    let kept = Kept::keep(&config.target, &lease, TTL);
    let replayed = replay(&store, &lease, &source, &span, command.dry_run).await;
    kept.end().await;
    store.resign_lease(&lease).await?;
    let (rows, missing, outcome) = replayed?;
    if command.json {
        output::json(&json!({
            "source": source.name(), "rows": rows, "missing": missing, "dry_run": command.dry_run,
            "emitted": outcome.emitted, "captured": outcome.captured, "staged": outcome.staged, "refused": outcome.refused,
        }))?;
    } else if command.dry_run {
        output::line(format_args!(
            "{} rows read, {} handoffs missing; nothing was recorded",
            output::count(rows),
            output::count(missing)
        ));
    } else {
        let (e, c) = (output::count(outcome.emitted), output::count(outcome.captured));
        let (s, r) = (output::count(outcome.staged), output::count(outcome.refused));
        output::line(format_args!(
            "{} rows read, {} handoffs were missing: {e} emitted, {c} captured, {s} to be retried, {r} set aside",
            output::count(rows),
            output::count(missing)
        ));
    }
    // As for an audit: 1 means that something was missing, even if it was handed off now.
    Ok(ExitCode::from(u8::from(missing > 0)))
}

async fn replay(
    store: &Store,
    lease: &Lease,
    source: &Arc<Source>,
    span: &Span,
    dry_run: bool,
) -> Result<(i64, i64, Outcome)> {
    let bar = ProgressBar::no_length();
    if let Ok(style) = ProgressStyle::with_template("replaying {spinner} {human_pos} rows {per_sec}") {
        bar.set_style(style);
    }
    let delivery = Delivery { store, lease, captured_by: CapturedBy::Replay };
    let (mut after, mut rows_read, mut missing, mut total) = (None::<String>, 0, 0, Outcome::default());
    loop {
        let limit = i64::from(source.definition.batch_size);
        let rows = store.rows_in_span(source, span, after.as_deref(), limit, None).await?;
        let rows: Vec<_> = rows.into_iter().map(|(_, row)| row).collect();
        let Some(last) = rows.last() else { break };
        after = Some(source.key(last).to_owned());
        rows_read += i64::try_from(rows.len()).unwrap_or(0);
        bar.inc(rows.len().try_into().unwrap_or(0));
        let mut rows: Vec<_> = rows.iter().map(|row| MappedRow::of(Arc::clone(source), row)).collect();
        if !dry_run {
            delivery.notice_replaced(&mut rows).await?;
        }
        // A signal is missing only if nothing accounts for it: a retired signal is not recorded, but not missing.
        let lacking = delivery.missing(rows).await?;
        missing += i64::try_from(lacking.signals).unwrap_or(0);
        if !dry_run {
            total += delivery.deliver(lacking.rows, Advance::Nothing).await?;
        }
    }
    bar.finish_and_clear();
    Ok((rows_read, missing, total))
}

/// A time, else a key of the source's type: a text may be both, and dates are rarely keys.
pub fn bound(source: &Source, text: &str) -> Result<Bound> {
    if time::is_time(text) {
        return Ok(Bound::Time(text.to_owned()));
    }
    if crate::core::watermark::Key::parse(source.id_type(), text).is_some() {
        return Ok(Bound::Key(text.to_owned()));
    }
    let wanted = source.id_type().sql_name();
    Err(Error::config(format!(
        "`{text}` is neither a key ({wanted}) nor a time; write for example 1200, or {}",
        time::EXPECTED
    )))
}
