//! `run`: the daemon under signals.

use crate::config::Config;
use crate::core::certificate::REHEARSAL;
use crate::error::Result;
use crate::observe;
use crate::workers::intake;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

pub async fn run(config: Config, once: bool) -> Result<ExitCode> {
    if config.worker == REHEARSAL {
        end_with_the_parent();
    }
    // A rehearsal runs beside the daemon whose settings it shares, a single run is over before anybody asks.
    if let Some(listen) = config.listen
        && !once
        && config.worker != REHEARSAL
    {
        observe::serve(&config, listen)?;
    }
    let (shutdown, told) = watch::channel(false);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("asked to stop, draining");
        let _ = shutdown.send(true);
        // Asked twice: whoever asks does not want to wait.
        interrupt.recv().await;
        std::process::exit(2);
    });
    intake::run(config, once, told).await?;
    Ok(ExitCode::SUCCESS)
}

/// A selftest that is killed leaves no daemon behind: it holds our standard input open, and nobody else does.
fn end_with_the_parent() {
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(2);
    });
}
