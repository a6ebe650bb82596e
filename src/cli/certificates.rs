//! `certificates` and `retire`: shows what was certified, and removes certified signals.

use crate::cli::{output, time};
use crate::config::Config;
use crate::error::Result;
use crate::store::connect;
use indicatif::ProgressBar;
use serde_json::{Value, json};
use std::process::ExitCode;

const CHUNK: i32 = 2_000;

pub async fn run(config: &Config, history: i64, json: bool) -> Result<ExitCode> {
    let store = connect::open_observer(&config.target, "gov-handoff certificates").await?;
    let latest = store.certificates(&config.worker).await?;
    let history = store.certificate_history(history.clamp(0, 10_000)).await?;
    if json {
        output::json(&json!({ "latest": latest, "history": history }))?;
        return Ok(ExitCode::SUCCESS);
    }
    if latest.is_empty() {
        output::line(
            "no certificate yet; the daemon takes the first within a minute, `gov-handoff audit` at once",
        );
        return Ok(ExitCode::SUCCESS);
    }
    let header = ["source", "complete through", "frontier", "lsn", "by", "rows", "repaired", "digest"];
    output::table(&header, &latest.iter().map(row).collect::<Vec<_>>());
    if !history.is_empty() {
        output::line("\nhistory");
        output::table(&header, &history.iter().map(row).collect::<Vec<_>>());
    }
    Ok(ExitCode::SUCCESS)
}

fn row(certificate: &Value) -> Vec<String> {
    let text = |key: &str| match &certificate[key] {
        Value::String(s) => s.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    };
    let repaired: i64 =
        certificate["repaired"].as_object().map_or(0, |m| m.values().filter_map(Value::as_i64).sum());
    let by = if certificate["full"].as_bool() == Some(true) {
        format!("{}, full", text("kind"))
    } else {
        text("kind")
    };
    let digest: String = text("digest").chars().take(20).collect();
    vec![
        text("source"),
        text("taken_at"),
        text("frontier"),
        text("lsn"),
        by,
        text("rows_checked"),
        output::count(repaired),
        digest,
    ]
}

pub async fn retire(config: &Config, before: &str) -> Result<ExitCode> {
    time::check(before)?;
    let store = connect::open(&config.target, "gov-handoff retire").await?;
    let bar = ProgressBar::new_spinner();
    let signals = all(&bar, async || store.retire(&config.worker, before, CHUNK).await).await?;
    // After the signals: a capture may be removed once its signal is recorded or retired.
    let drained = all(&bar, async || store.retire_drained(before, CHUNK).await).await?;
    let notices = all(&bar, async || store.retire_notices(before, CHUNK).await).await?;
    bar.finish_and_clear();
    output::line(format_args!("{} certified signals retired", output::count(signals)));
    if drained > 0 {
        output::line(format_args!("{} drained captures removed", output::count(drained)));
    }
    if notices > 0 {
        let what = "old certificates, heartbeats and announcements removed";
        output::line(format_args!("{} {what}", output::count(notices)));
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs chunk after chunk until nothing is left. Returns the total.
async fn all(bar: &ProgressBar, chunk: impl AsyncFn() -> Result<i64>) -> Result<i64> {
    let mut total = 0;
    loop {
        let n = chunk().await?;
        if n == 0 {
            return Ok(total);
        }
        total += n;
        bar.inc(n.try_into().unwrap_or(0));
    }
}
