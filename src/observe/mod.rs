//! Metrics and probes, as text and over HTTP. This module changes nothing and does not slow the daemon down: it has its
//! own thread, runtime and session.

mod families;
mod health;
mod http;
mod job_families;
mod onlooker;

pub use families::names as metric_names;

use crate::config::Config;
use crate::error::Result;
use std::net::SocketAddr;

/// One scrape, for `gov-handoff metrics`.
pub async fn scrape(config: &Config) -> Result<String> {
    let store = onlooker::open(config).await?;
    onlooker::exposition(&store, config, 0).await
}

/// Serves the metrics and the probes until the process ends. An unusable address is an error at once.
pub fn serve(config: &Config, listen: SocketAddr) -> Result<()> {
    http::serve(config.clone(), listen)
}
