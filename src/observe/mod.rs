//! Metrics and health, as text and over HTTP. This module changes nothing and does not slow the daemon down: it has its
//! own thread, runtime and session.

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

/// Serves `GET /metrics` and `GET /healthz` until the process ends. An unusable address is an error at once.
pub fn serve(config: &Config, listen: SocketAddr) -> Result<()> {
    http::serve(config.clone(), listen)
}
