//! `demo`: a private PostgreSQL, concurrent writers, the real daemon; a slot lost, a process killed, a verdict.

mod board;
mod frame;
mod run;
mod sample;
mod screen;
mod script;
mod stage;
pub mod verdict;
mod writers;

use crate::cli::output;
use crate::error::Result;
use clap::Args;
use console::style;
use indicatif::{ProgressBar, ProgressStyle};
use run::Run;
use stage::Stage;
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use verdict::DemoVerdict;

#[derive(Args)]
pub struct DemoCommand {
    /// How long to write births
    #[arg(long, default_value_t = 30)]
    pub seconds: u64,
    /// Stop writing after this many rows instead
    #[arg(long)]
    pub rows: Option<u64>,
    /// No live view; only what happens and the verdict
    #[arg(long)]
    pub plain: bool,
}

pub async fn run(command: DemoCommand) -> Result<ExitCode> {
    let told = interruptions()?;
    introduce(&command);
    let mut stage = prepare().await?;
    let outcome = perform(&command, &mut stage, told).await;
    if outcome.is_err() {
        output::line(stage.daemon_said());
    }
    stage.clear().await?;
    let verdict = outcome?;
    output::line(format_args!("\n{verdict}\n"));
    next_steps();
    Ok(ExitCode::from(verdict.exit_code()))
}

fn introduce(command: &DemoCommand) {
    let end = command.rows.map_or_else(
        || format!("{} seconds", command.seconds),
        |n| format!("{} rows", output::count(n.try_into().unwrap_or(i64::MAX))),
    );
    output::line(format_args!(
        "\n  For {end} rows are born in a private PostgreSQL, from several writers\n  \
         at once, and the daemon hands each to governance: streaming, then with its\n  \
         slot taken away, then killed. At the end every row is counted against every\n  handoff.\n"
    ));
}

/// Sets the stage with the very commands that a first session begins with.
async fn prepare() -> Result<Stage> {
    let stage = step("starting a private PostgreSQL", Stage::start()).await?;
    step("gov-handoff migrate", stage.command(&["migrate"])).await?;
    step("gov-handoff types activate --all", stage.command(&["types", "activate", "--all"])).await?;
    output::line("");
    Ok(stage)
}

async fn step<T>(name: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    let spinner = ProgressBar::new_spinner().with_message(name.to_owned());
    if let Ok(looks) = ProgressStyle::with_template("  {spinner:.cyan} {msg}") {
        spinner.set_style(looks);
    }
    spinner.enable_steady_tick(Duration::from_millis(80));
    let begun = std::time::Instant::now();
    let done = work.await;
    spinner.finish_and_clear();
    let (mark, took) = (if done.is_ok() { style("✔").green() } else { style("✘").red() }, begun.elapsed());
    output::line(format_args!("  {mark} {name}  {}", style(format!("{:.1} s", took.as_secs_f64())).dim()));
    done
}

async fn perform(
    command: &DemoCommand,
    stage: &mut Stage,
    told: watch::Receiver<u32>,
) -> Result<DemoVerdict> {
    stage.start_daemon()?;
    let mut run = Run::begin(command, stage, told).await?;
    run.play().await?;
    run.settle().await
}

/// Counts the requests to stop: the first ends the writing, the second the waiting.
fn interruptions() -> Result<watch::Receiver<u32>> {
    let (send, told) = watch::channel(0);
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
            }
            send.send_modify(|n| *n += 1);
        }
    });
    Ok(told)
}

fn next_steps() {
    output::line(format_args!("  {}", style("On a database of your own:").bold()));
    for (what, why) in [
        ("export DATABASE_URL=postgres://user:password@host/database", ""),
        ("gov-handoff migrate", "set up tables, load default sources"),
        ("gov-handoff types activate --all", "emit signals, captured until then"),
        ("gov-handoff run", "stream where possible, poll where not"),
        ("gov-handoff status", "see how it fares"),
    ] {
        output::line(format_args!("    {what:<34} {}", style(why).dim()).to_string().trim_end());
    }
    output::line("");
}
