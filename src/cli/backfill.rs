//! `backfill`: seeds the backlogs now, or shows how far the daemon is with it.

use crate::cli::{known, output};
use crate::config::Config;
use crate::core::sweep::SweepPhase;
use crate::core::worker_state::WorkerState;
use crate::error::{Error, Kind, Result};
use crate::store::backlog::Decided;
use crate::store::role::Onlooker;
use crate::store::{Session, connect};
use crate::workers::backfill;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::process::ExitCode;
use std::time::Duration;
use tokio::sync::watch;

/// How often the bar moves.
const LOOK_EVERY: Duration = Duration::from_millis(300);

#[derive(Args)]
pub struct BackfillCommand {
    /// Only this source
    #[arg(long)]
    pub source: Option<String>,
    /// The most rows a second; 0 for no limit [default: the setting `backfill_rate`]
    #[arg(long, value_name = "N")]
    pub limit_rate: Option<u64>,
    /// Read sources that are done again as well, and mark what has no candidate
    #[arg(long)]
    pub again: bool,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
}

pub async fn run(mut config: Config, command: BackfillCommand) -> Result<ExitCode> {
    let store = connect::open_observer(&config.target, "gov-handoff backfill").await?;
    let seeded = of_interest(&store, None).await?;
    if let Some(name) = &command.source {
        let names: Vec<&str> = seeded.iter().map(|b| b.source.as_str()).collect();
        if names.is_empty() {
            return Err(Error::config(format!("no source has a backlog to seed, and so {name} has none")));
        }
        known::one_of("source with a backlog to seed", name, &names)?;
    }
    config.backfill.source.clone_from(&command.source);
    config.backfill.again = command.again;
    config.backfill_rate = command.limit_rate.unwrap_or(config.backfill_rate);
    let only = command.source.as_deref();
    if let Some(holder) = holder(&store).await? {
        refuse_options(&command, &holder)?;
        tracing::warn!(
            holder,
            "another instance has the lease of the sweep; this command shows its progress"
        );
        follow_other(&store, only).await?;
    } else if !seeded.is_empty() {
        follow_own(&store, config, only).await?;
    }
    let done = of_interest(&store, only).await?;
    report(&store, &done, command.json).await
}

/// The backlogs that are seeded; only the given source if there is one.
async fn of_interest(store: &Session<Onlooker>, only: Option<&str>) -> Result<Vec<Decided>> {
    let all = store.backlogs().await?.into_iter().filter(|b| b.phase.is_some());
    Ok(all.filter(|b| only.is_none_or(|only| b.source == only)).collect())
}

/// The instance that sweeps now, if there is one. An error if an operator has paused the sweep.
async fn holder(store: &Session<Onlooker>) -> Result<Option<String>> {
    let family = store.family().await?;
    let Some(sweep) = family.into_iter().find(|w| w.worker == backfill::NAME) else { return Ok(None) };
    if sweep.state == WorkerState::Paused {
        let problem = format!(
            "{} is paused; `gov-handoff resume {}` lets it work again",
            backfill::NAME,
            backfill::NAME
        );
        return Err(Error::new(Kind::Refused, problem));
    }
    let Some(owner) = Some(sweep).filter(|w| w.state == WorkerState::Running).and_then(|w| w.owner) else {
        return Ok(None);
    };
    Ok(store.is_connected(&owner).await?.then_some(owner))
}

fn refuse_options(command: &BackfillCommand, holder: &str) -> Result<()> {
    if !command.again && command.limit_rate.is_none() {
        return Ok(());
    }
    Err(Error::new(
        Kind::Refused,
        format!(
            "{holder} has the lease of the sweep, and --again and --limit-rate are for a run of one's own; stop that worker first \
             (`run --workers` names those that run), or set backfill_rate there"
        ),
    ))
}

/// Runs the sweep in this process, until nothing is left to do.
async fn follow_own(store: &Session<Onlooker>, config: Config, only: Option<&str>) -> Result<()> {
    let (_stop, told) = watch::channel(false);
    let bar = bar();
    let mut sweep = std::pin::pin!(backfill::run(config, true, told));
    loop {
        tokio::select! {
            ended = &mut sweep => {
                bar.finish_and_clear();
                return ended;
            }
            () = tokio::time::sleep(LOOK_EVERY) => show(&bar, &of_interest(store, only).await?),
        }
    }
}

/// Shows the progress of another instance until it is done.
async fn follow_other(store: &Session<Onlooker>, only: Option<&str>) -> Result<()> {
    let bar = bar();
    loop {
        let backlogs = of_interest(store, only).await?;
        if backlogs.iter().all(is_done) {
            bar.finish_and_clear();
            return Ok(());
        }
        show(&bar, &backlogs);
        if holder(store).await?.is_none() {
            bar.finish_and_clear();
            let problem = "the instance that swept is gone before it was done; run `gov-handoff backfill` again to go on where it was";
            return Err(Error::new(Kind::Refused, problem));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn is_done(backlog: &Decided) -> bool {
    backlog.phase == Some(SweepPhase::Incremental)
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    let shape = "{msg:<44} {wide_bar} {human_pos}/{human_len} {per_sec} {eta}";
    if let Ok(style) = ProgressStyle::with_template(shape) {
        bar.set_style(style);
    }
    bar
}

/// The first source that is not done.
fn show(bar: &ProgressBar, backlogs: &[Decided]) {
    let Some(backlog) = backlogs.iter().find(|b| !is_done(b)) else { return };
    bar.set_length(backlog.rows.try_into().unwrap_or(0));
    bar.set_message(format!("{} {}", backlog.source, backlog.phase.map_or("-", SweepPhase::name)));
    bar.set_position(backlog.rows_read.unwrap_or(0).try_into().unwrap_or(0));
}

async fn report(store: &Session<Onlooker>, done: &[Decided], json: bool) -> Result<ExitCode> {
    if json {
        output::json(&done)?;
    } else if done.is_empty() {
        output::line("no source has a backlog to seed");
    } else {
        let number = |n: Option<i64>| n.map_or_else(|| "-".to_owned(), output::count);
        let row = |b: &Decided| {
            vec![
                b.source.clone(),
                b.phase.map_or("", SweepPhase::name).to_owned(),
                output::count(b.rows),
                number(b.rows_read),
                number(b.candidates),
                b.taken_at.clone().unwrap_or_else(|| "-".to_owned()),
            ]
        };
        let header = ["source", "phase", "backlog", "rows read", "new candidates", "boundary"];
        output::table(&header, &done.iter().map(row).collect::<Vec<_>>());
    }
    let open = store.open_findings().await?;
    let left_out = |b: &Decided| open.iter().any(|f| f.key == format!("backlog_not_seeded:{}", b.source));
    for backlog in done.iter().filter(|b| left_out(b)) {
        tracing::warn!(
            source = backlog.source,
            "rows of the backlog have no candidate; `gov-handoff findings` says how many and why"
        );
    }
    Ok(ExitCode::from(u8::from(done.iter().any(left_out))))
}
