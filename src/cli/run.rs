//! `run`: the daemon under signals.

use crate::config::Config;
use crate::error::Result;
use crate::intake;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

pub async fn run(config: Config, once: bool) -> Result<ExitCode> {
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
