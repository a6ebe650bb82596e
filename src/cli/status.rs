//! `status`: the state of the worker and its sources. Exit code 1 when something is wrong.

use crate::cli::output;
use crate::config::Config;
use crate::error::Result;
use crate::store::connect;
use crate::store::status::{FindingStatus, SourceStatus, Status, StreamStatus, WorkerStatus};
use std::process::ExitCode;

pub async fn run(config: &Config, json: bool) -> Result<ExitCode> {
    let store = connect::open_observer(&config.target, "gov-handoff status").await?;
    let status = store.status(&config.worker, &config.slot).await?;
    if json {
        output::json(&status)?
    } else {
        show(&status)
    }
    let alive = status.worker.as_ref().is_some_and(|w| w.alive);
    let healthy = alive && status.dead_letters == 0 && !status.findings.iter().any(|f| f.severity != "info");
    Ok(ExitCode::from(u8::from(!healthy)))
}

fn show(status: &Status) {
    show_worker(status.worker.as_ref());
    if let Some(stream) = &status.stream {
        show_stream(stream);
    }
    for s in &status.unused_slots {
        output::line(format_args!(
            "slot      {} not in use, retains {}",
            s.slot,
            kibibytes(s.retained_bytes)
        ));
    }
    if let Some(holder) = &status.frontier_held_back_by {
        output::line(format_args!("frontier  held back by {holder}"));
    }
    show_waiting(status);
    output::line("");
    show_sources(&status.sources);
    if !status.findings.is_empty() {
        output::line("");
        show_findings(&status.findings);
    }
}

fn show_worker(worker: Option<&WorkerStatus>) {
    match worker {
        Some(w) if w.alive => {
            let owner = w.owner.as_deref().unwrap_or("-");
            output::line(format_args!(
                "worker    alive, {owner}, term {}, ticked {:.1} s ago",
                w.term.unwrap_or(0),
                w.tick_age_seconds
            ));
            output::line(format_args!("mode      {}", w.mode.as_deref().unwrap_or("starting")));
            if let Some(reason) = &w.reason {
                output::line(format_args!("because   {reason}"));
            }
            if let Some(pace) = &w.pace {
                output::line(format_args!("pace      {pace}"));
            }
            if let Some(lag) = w.lag_seconds {
                output::line(format_args!("lag       {lag:.1} s"));
            }
        }
        Some(w) => {
            output::line(format_args!("worker    not running, last ticked {:.0} s ago", w.tick_age_seconds))
        }
        None => output::line(format_args!("worker    has never run")),
    }
}

fn show_stream(s: &StreamStatus) {
    let budget = match (s.budget_bytes, s.seconds_to_budget) {
        (Some(b), Some(left)) => {
            format!(" of {} KiB, {left:.0} s to go at this rate", output::count(b / 1024))
        }
        (Some(b), None) => format!(" of {} KiB", output::count(b / 1024)),
        _ => String::new(),
    };
    output::line(format_args!(
        "slot      {} {}, durable {}, retains {}{budget}",
        s.slot,
        if s.active { "active" } else { "not active" },
        s.durable_lsn.as_deref().unwrap_or("-"),
        kibibytes(s.retained_bytes)
    ));
}

fn kibibytes(bytes: Option<i64>) -> String {
    bytes.map_or_else(|| "-".to_owned(), |b| format!("{} KiB", output::count(b / 1024)))
}

fn show_waiting(status: &Status) {
    output::line(format_args!(
        "waiting   {}{} captured, {} to be retried, {} dead letters, {} dirty groups, {} open findings",
        if status.at_least { "at least " } else { "" },
        output::count(status.captured_waiting),
        output::count(status.retrying),
        output::count(status.dead_letters),
        output::count(status.dirty_groups),
        status.open_findings
    ));
}

fn show_sources(sources: &[SourceStatus]) {
    let row = |s: &SourceStatus| {
        vec![
            s.source.clone(),
            output::count(s.rows_seen),
            output::count(s.signals),
            output::count(s.dead_lettered),
            output::count(s.open_ranges),
            s.watermark_id.clone().unwrap_or_else(|| "-".to_owned()),
            s.watermark_at.clone().unwrap_or_else(|| "-".to_owned()),
        ]
    };
    let rows: Vec<_> = sources.iter().map(row).collect();
    output::table(&["source", "rows", "signals", "dead", "holes", "last id", "last time"], &rows);
}

fn show_findings(findings: &[FindingStatus]) {
    let row = |f: &FindingStatus| vec![f.severity.clone(), f.key.clone(), format!("x{}", f.occurrences)];
    let rows: Vec<_> = findings.iter().map(row).collect();
    output::table(&["severity", "finding", "times"], &rows);
}
