//! `status`: one verdict, and what it rests on. The exit code agrees with the words.

use crate::cli::output;
use crate::config::{Config, parse_span};
use crate::core::standing::{State, Verdict};
use crate::core::worker_state::WorkerState;
use crate::error::{Error, Policy, Result};
use crate::store::full_audit::AuditStatus;
use crate::store::status::{FindingStatus, JobsStatus, SourceStatus, Status, StreamStatus, WorkerStatus};
use crate::store::worker::FamilyMember;
use crate::store::{Session, connect, role};
use crate::workers;
use clap::Args;
use serde::Serialize;
use std::io::IsTerminal;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

#[derive(Args)]
pub struct StatusCommand {
    /// Print JSON instead of text; docs/status.md describes it
    #[arg(long)]
    json: bool,
    /// Show it again and again, until interrupted
    #[arg(long)]
    watch: bool,
    /// How often, with --watch
    #[arg(long, default_value = "2s", requires = "watch")]
    interval: String,
}

/// The output in JSON.
#[derive(Serialize)]
struct Shown<'a> {
    verdict: &'a Verdict,
    #[serde(flatten)]
    status: &'a Status,
}

pub async fn run(config: &Config, command: &StatusCommand) -> Result<ExitCode> {
    if !command.watch {
        let session = connect::open_observer(&config.target, "gov-handoff status").await?;
        return Ok(ExitCode::from(look(&session, config, PrintForm::of(command)).await?.exit_code()));
    }
    let every = parse_span(&command.interval)
        .map_err(|problem| Error::config(format!("--interval is `{}`; {problem}", command.interval)))?;
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let form = PrintForm::of(command);
    if form == PrintForm::Screen {
        output::part("\u{1b}[2J");
    }
    let mut session = None;
    loop {
        let state = match again(&mut session, config, form).await {
            Ok(state) => state,
            // The server is away for a while: nothing can be told, and the next look may tell again.
            Err(e) if e.policy() == Policy::Retry => {
                session = None;
                let told = format!("{}: {}", State::CannotTell.name(), e.told());
                form.print(|| output::line(told));
                State::CannotTell
            }
            Err(e) => return Err(e),
        };
        tokio::select! {
            _ = terminate.recv() => return Ok(ExitCode::from(state.exit_code())),
            _ = interrupt.recv() => return Ok(ExitCode::from(state.exit_code())),
            () = tokio::time::sleep(every) => {}
        }
    }
}

/// How a look is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PrintForm {
    Json,
    /// One after another.
    Text,
    /// On a terminal with --watch: each picture over the last one.
    Screen,
}

impl PrintForm {
    fn of(command: &StatusCommand) -> Self {
        match command {
            StatusCommand { json: true, .. } => Self::Json,
            StatusCommand { watch: true, .. } if std::io::stdout().is_terminal() => Self::Screen,
            _ => Self::Text,
        }
    }

    fn print(self, picture: impl FnOnce()) {
        if self == Self::Screen { output::redraw(picture) } else { picture() }
    }
}

async fn again(
    session: &mut Option<Session<role::Onlooker>>,
    config: &Config,
    form: PrintForm,
) -> Result<State> {
    let session = match session {
        Some(session) => session,
        None => session.insert(connect::open_observer(&config.target, "gov-handoff status").await?),
    };
    look(session, config, form).await
}

async fn look(session: &Session<role::Onlooker>, config: &Config, form: PrintForm) -> Result<State> {
    let mut status = session.status(&config.worker, &config.slot, config.audit_every).await?;
    workers::complete(config, &mut status.workers);
    let verdict = status.verdict(&config.worker);
    if form == PrintForm::Json {
        output::json(&Shown { verdict: &verdict, status: &status })?;
    } else {
        form.print(|| {
            output::line(&verdict.sentence);
            output::line("");
            show(&status);
        });
    }
    Ok(verdict.state)
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
    show_jobs(&status.jobs);
    output::line("");
    show_family(&status.workers);
    output::line("");
    show_sources(&status.sources);
    output::line("");
    show_audits(&status.audits);
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

fn show_jobs(jobs: &JobsStatus) {
    let oldest =
        jobs.oldest_ready_seconds.map_or_else(String::new, |age| format!(", the oldest for {age:.0} s"));
    output::line(format_args!(
        "jobs      {}{} ready{oldest}, {} running, {} deferred, {} blocked, {} overdue, {} dead letters; {} executors alive, {} silent",
        if jobs.at_least { "at least " } else { "" },
        output::count(jobs.ready),
        output::count(jobs.running),
        output::count(jobs.deferred),
        output::count(jobs.blocked),
        output::count(jobs.overdue),
        output::count(jobs.dead_letters),
        jobs.executors_alive,
        jobs.executors_silent
    ));
}

fn show_family(workers: &[FamilyMember]) {
    let number = |n: Option<i64>| n.map_or_else(|| "-".to_owned(), output::count);
    let row = |w: &FamilyMember| {
        vec![
            State::of_worker(w.state).word().to_owned(),
            w.worker.clone(),
            match (w.state, &w.paused_because) {
                (WorkerState::Paused, Some(why)) => format!("paused: {why}"),
                (state, _) => state.name().to_owned(),
            },
            w.tick_age_seconds.map_or_else(|| "-".to_owned(), |age| format!("{age:.0} s")),
            number(w.rows_seen),
            number(w.effects),
            number(w.dead_lettered),
            w.phase.clone().unwrap_or_else(|| "-".to_owned()),
        ]
    };
    let rows: Vec<_> = workers.iter().map(row).collect();
    output::table(&["", "worker", "state", "ticked", "rows", "effects", "dead", "phase"], &rows);
}

fn show_sources(sources: &[SourceStatus]) {
    let row = |s: &SourceStatus| {
        vec![
            if s.complete_through.is_some() { State::Ok } else { State::CannotTell }.name().to_owned(),
            s.source.clone(),
            s.complete_through.clone().unwrap_or_else(|| "not proven yet".to_owned()),
            output::count(s.rows_seen),
            output::count(s.signals),
            output::count(s.dead_lettered),
            output::count(s.open_ranges),
            match (&s.backlog, s.backlog_rows) {
                (Some(policy), Some(rows)) if rows > 0 => format!("{policy} {}", output::count(rows)),
                _ => "-".to_owned(),
            },
            s.watermark_id.clone().unwrap_or_else(|| "-".to_owned()),
            s.watermark_at.clone().unwrap_or_else(|| "-".to_owned()),
        ]
    };
    let rows: Vec<_> = sources.iter().map(row).collect();
    output::table(
        &[
            "",
            "source",
            "complete through",
            "rows",
            "signals",
            "dead",
            "holes",
            "backlog",
            "last id",
            "last time",
        ],
        &rows,
    );
}

fn show_audits(audits: &[AuditStatus]) {
    let number = |n: Option<i64>| n.map_or_else(|| "-".to_owned(), output::count);
    let row = |a: &AuditStatus| {
        let audited = a.started_at.clone().unwrap_or_else(|| "not yet".to_owned());
        vec![
            a.source.clone(),
            match a.rows_so_far {
                Some(rows) if a.unfinished => {
                    format!("{audited}, again: {} rows so far", output::count(rows))
                }
                _ => audited,
            },
            a.due_at.clone().unwrap_or_else(|| "never".to_owned()),
            number(a.missing),
            number(a.doubled),
            number(a.orphans),
        ]
    };
    let rows: Vec<_> = audits.iter().map(row).collect();
    output::table(&["source", "audited in full", "due", "missing", "doubled", "orphans"], &rows);
}

fn show_findings(findings: &[FindingStatus]) {
    let row = |f: &FindingStatus| {
        vec![
            f.severity.clone(),
            f.key.clone(),
            f.since.clone().unwrap_or_else(|| "-".to_owned()),
            format!("x{}", f.occurrences),
        ]
    };
    let rows: Vec<_> = findings.iter().map(row).collect();
    output::table(&["severity", "finding", "since", "times"], &rows);
}
