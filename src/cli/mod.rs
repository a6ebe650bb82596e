//! Arguments to commands. One file per command, each short; nothing imports this module.

mod args;
mod audit;
mod backfill;
mod backlog;
mod candidates;
mod certificates;
mod checks;
mod config;
pub mod demo;
mod dlq;
mod doctor;
mod events;
mod executors;
mod explain;
mod findings;
mod health;
mod jobs;
mod known;
mod man;
mod metrics;
mod migrate;
mod output;
mod pause;
mod reference;
mod replay;
mod replication;
mod rules;
mod run;
mod schedules;
mod selftest;
mod settings;
mod sources;
mod status;
mod subscriptions;
mod time;
mod toml_file;
mod trace;
mod trust;
mod types;
mod watch;

use crate::config::{Config, colour, listen};
use crate::error::codes::COMMAND_LINE;
use crate::error::{Error, Kind, Result};
use args::{Arguments, Command};
use clap::{CommandFactory, Parser};
use serde_json::json;
use std::io::IsTerminal;
use std::process::ExitCode;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{EnvFilter, Layer};

/// Parses the command line and does what it says. Exit codes: 0 done, 1 a finding, 2 could not run.
pub fn run() -> Result<ExitCode> {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(e) => {
            refused_arguments(&e);
            return Ok(ExitCode::from(if e.use_stderr() { 2 } else { 0 }));
        }
    };
    if let Command::Completions { shell } = arguments.command {
        clap_complete::generate(shell, &mut Arguments::command(), "gov-handoff", &mut std::io::stdout());
        return Ok(ExitCode::SUCCESS);
    }
    match arguments.command {
        Command::Man { folder, markdown } => return man::run(folder.as_deref(), markdown),
        Command::Explain { code } => return explain::run(code.as_deref()),
        _ => {}
    }
    // One thread: the server does most of the work, and a row that moves between threads waits for each to wake up.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Error::new(Kind::Internal, format!("cannot start the runtime: {e}")))?;
    runtime.block_on(dispatch(arguments))
}

/// Prints why a command could not do its work: a line for people and, where JSON was asked for, an object for programs.
pub fn report(e: &Error) {
    eprintln!("error: {}", e.told());
    if std::env::args_os().any(|argument| argument == "--json") && !output::has_printed_json() {
        let code = e.stable_code();
        let told = json!({ "error": { "code": code.id, "kind": code.name.to_lowercase(), "message": e.to_string() } });
        output::line(format_args!("{told:#}"));
    }
}

/// Help and version go out as they are; a wrong argument is an error like any other, with a code.
fn refused_arguments(e: &clap::Error) {
    match e.to_string().strip_prefix("error: ") {
        Some(said) if e.use_stderr() => eprint!("error: {}: {said}", COMMAND_LINE.id),
        _ => drop(e.print()),
    }
}

async fn dispatch(arguments: Arguments) -> Result<ExitCode> {
    if let Command::Demo(demo) = arguments.command {
        return demo::run(demo).await;
    }
    let (settings, command) = (&arguments.settings, &arguments.command);
    if let Command::Health { url } = command {
        let listen = listen(command.layer(settings), settings.config.as_deref())?;
        return health::run(listen, url.as_deref()).await;
    }
    let config = Config::load(command.layer(settings), settings.config.as_deref(), command.defaults())?;
    log_to_stderr(&config)?;
    match arguments.command {
        Command::Migrate(command) => migrate::run(&config, command).await,
        Command::Sources(command) => sources::run(&config, command).await,
        Command::Types(command) => types::run(&config, command).await,
        Command::Rules(command) => rules::run(&config, command).await,
        Command::Checks(command) => checks::run(&config, command).await,
        Command::Candidates(command) => candidates::candidates(&config, &command).await,
        Command::Groups(command) => candidates::groups(&config, &command).await,
        Command::Run { once, .. } => run::run(config, once).await,
        Command::Backfill(command) => backfill::run(config, command).await,
        Command::Pause(command) => pause::run(&config, &command, true).await,
        Command::Resume(command) => pause::run(&config, &command, false).await,
        Command::Status(command) => status::run(&config, &command).await,
        Command::Metrics => metrics::run(&config).await,
        Command::Trace(command) => trace::run(&config, &command).await,
        Command::Doctor(command) => doctor::run(&config, &command).await,
        Command::Events(command) => events::run(&config, command).await,
        Command::Findings(command) => findings::run(&config, command).await,
        Command::Watch { interval, once, json } => watch::run(&config, &interval, once, json).await,
        Command::Replay(command) => replay::run(&config, command).await,
        Command::Replication { command } => replication::run(&config, command).await,
        Command::Dlq(command) => dlq::run(&config, command).await,
        Command::Subscriptions(command) => subscriptions::run(&config, command).await,
        Command::Jobs(command) => jobs::run(&config, command).await,
        Command::Executors(command) => executors::run(&config, command).await,
        Command::Schedules(command) => schedules::run(&config, command).await,
        Command::Trust(command) => trust::run(&config, command).await,
        Command::Audit(command) => audit::run(&config, command).await,
        Command::Certificates { history, json } => certificates::run(&config, history, json).await,
        Command::Retire { before } => certificates::retire(&config, &before).await,
        Command::Selftest(command) => selftest::run(&config, &arguments.settings, command).await,
        Command::Config { json, table } => config::run(&config, json, table),
        Command::Demo(_)
        | Command::Health { .. }
        | Command::Completions { .. }
        | Command::Man { .. }
        | Command::Explain { .. } => Ok(ExitCode::SUCCESS),
    }
}

/// Logs this crate's lines only. The transport logs errors that it also returns, and the driver logs the parameters of its
/// statements, which are row values. Neither may appear, whatever filter the operator sets. So a second filter is applied:
/// inside the operator's filter the longest target would win. The `log` crate, which the driver uses, is not bridged at all.
fn log_to_stderr(config: &Config) -> Result<()> {
    let filter = EnvFilter::try_new(&config.log)
        .map_err(|e| Error::config(format!("log is `{}`: {e}", config.log)))?;
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(colour(std::io::stderr().is_terminal()));
    let lines = if config.log_json { lines.json().boxed() } else { lines.with_target(false).boxed() };
    let subscriber = tracing_subscriber::registry()
        .with(lines)
        .with(filter)
        .with(filter_fn(|metadata| is_ours(metadata.target())));
    tracing::subscriber::set_global_default(subscriber).map_err(|e| Error::new(Kind::Internal, e.to_string()))
}

/// Whether a log line comes from this crate: its fields never hold row values.
fn is_ours(target: &str) -> bool {
    let rest = target.strip_prefix(env!("CARGO_CRATE_NAME"));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls `look` for a command and all below it.
    fn walk(command: &clap::Command, look: &mut dyn FnMut(&clap::Command)) {
        look(command);
        command.get_subcommands().for_each(|below| walk(below, look));
    }

    #[test]
    fn everything_that_can_be_given_is_described() {
        let mut command = Arguments::command();
        command.build();
        walk(&command, &mut |command| {
            let name = command.get_name();
            assert!(command.get_about().is_some(), "{name} has no description");
            for arg in command
                .get_arguments()
                .filter(|arg| name != "completions" && name != "help" || arg.is_global_set())
            {
                assert!(arg.get_help().is_some(), "{name}: {} has no description", arg.get_id());
            }
        });
    }

    #[test]
    fn settings_are_for_every_command_and_stand_apart_from_its_own_options() {
        let mut command = Arguments::command();
        command.build();
        for name in ["run", "status", "doctor", "migrate", "replication"] {
            let below = command.find_subcommand(name).unwrap();
            let settings: Vec<_> = below
                .get_arguments()
                .filter(|arg| arg.get_help_heading() == Some(settings::SETTINGS))
                .map(|arg| arg.get_id().as_str())
                .collect();
            let all = ["config", "database_url", "replication_url", "slot", "publication", "log"];
            assert!(
                all.iter().all(|one| settings.contains(one)) && settings.len() == all.len(),
                "{name}: {settings:?}"
            );
        }
    }

    #[test]
    fn only_this_crates_own_lines_are_logged() {
        for ours in ["gov_handoff", "gov_handoff::capture::stream"] {
            assert!(is_ours(ours), "{ours}");
        }
        for other in ["tokio_postgres::query", "pgwire_replication", "gov_handoff_else", "log", ""] {
            assert!(!is_ours(other), "{other}");
        }
    }
}
