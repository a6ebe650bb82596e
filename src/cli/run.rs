//! `run`: runs the daemon and handles signals.

use crate::config::Config;
use crate::core::certificate::REHEARSAL;
use crate::daemon::service_manager;
use crate::error::Result;
use crate::observe;
use crate::workers;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

pub async fn run(config: Config, once: bool) -> Result<ExitCode> {
    if config.worker == REHEARSAL {
        end_with_the_parent();
    }
    // A selftest runs beside the daemon whose settings it shares. A single run ends before a probe would ask.
    if let Some(listen) = config.listen
        && !once
        && config.worker != REHEARSAL
    {
        observe::serve(&config, listen, workers::complete)?;
    }
    let (shutdown, told) = watch::channel(false);
    if !once && config.worker != REHEARSAL {
        service_manager::keep_told(told.clone());
    }
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("asked to stop, draining");
        let _ = shutdown.send(true);
        // A second signal: the operator does not want to wait.
        interrupt.recv().await;
        std::process::exit(2);
    });
    workers::run(config, once, told).await?;
    Ok(ExitCode::SUCCESS)
}

/// Ends this process when a selftest that started it is killed: only the selftest holds our standard input open.
fn end_with_the_parent() {
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(2);
    });
}
