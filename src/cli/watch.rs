//! `watch`: the watchdog from outside. Exit code 1 when a worker is silent.

use crate::cli::output;
use crate::config::{Config, parse_span};
use crate::core::finding::Silence;
use crate::error::{Error, Policy, Result};
use crate::store::connect;
use crate::store::role::Writer;
use crate::store::watch::WorkerWatch;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

pub async fn run(config: &Config, interval: &str, once: bool, json: bool) -> Result<ExitCode> {
    let interval = parse_span(interval)
        .map_err(|problem| Error::config(format!("--interval is `{interval}`; {problem}")))?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut silent = false;
    loop {
        // The watchdog raises and resolves findings, so it needs more rights than an observer.
        let looked = async {
            let session = connect::open(&config.target, "gov-handoff watch").await?.into_role::<Writer>();
            session.watch().await
        };
        match looked.await {
            Ok(watched) => {
                silent = watched.iter().any(|w| w.verdict != Silence::Ok);
                if json { output::json(&watched)? } else { show(&watched) }
            }
            // The watchdog must outlive what it watches: after a restart of the server it asks again.
            Err(e) if !once && e.policy() == Policy::Retry => {
                tracing::warn!(error = %e.told(), "could not look")
            }
            Err(e) => return Err(e),
        }
        if once {
            break;
        }
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            () = tokio::time::sleep(interval) => {}
        }
    }
    Ok(ExitCode::from(u8::from(silent)))
}

fn show(watched: &[WorkerWatch]) {
    if watched.is_empty() {
        output::line("nobody to watch: no worker has declared a cadence");
        return;
    }
    let rows: Vec<_> = watched
        .iter()
        .map(|w| {
            let state = if w.resigned { "resigned" } else { "" };
            vec![
                w.verdict.name().to_owned(),
                w.worker.clone(),
                format!("{:.1} s", w.silent_seconds),
                format!("{:.1} s", w.cadence_seconds),
                state.to_owned(),
            ]
        })
        .collect();
    output::table(&["verdict", "worker", "silent for", "cadence", ""], &rows);
}
