//! What onlookers are told, by text and over HTTP: metrics and health. Nothing here changes anything, and nothing here is in
//! the daemon's way: a thread, a runtime and a session of its own.

mod families;
mod health;
mod http;
mod onlooker;

use crate::config::Config;
use crate::error::Result;
use std::net::SocketAddr;

/// One scrape, for `gov-handoff metrics`.
pub async fn scrape(config: &Config) -> Result<String> {
    let store = onlooker::open(config).await?;
    Ok(families::exposition(&store.metrics(&config.worker, &config.slot).await?))
}

/// Serves `GET /metrics` and `GET /healthz` from now to the end of the process. An address that cannot be had is an error now.
pub fn serve(config: &Config, listen: SocketAddr) -> Result<()> {
    http::serve(config.clone(), listen)
}
