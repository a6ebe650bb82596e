//! The page, metrics and probes, as text and over HTTP. This module changes nothing and does not slow the daemon down: it has its
//! own thread, runtime and session.

mod api;
mod families;
mod health;
mod history;
mod http;
mod job_families;
mod onlooker;
mod page;

pub use families::names as metric_names;
pub use onlooker::Complete;

use crate::config::Config;
use crate::error::Result;
use std::net::SocketAddr;

/// One scrape, for `gov-handoff metrics`.
pub async fn scrape(config: &Config) -> Result<String> {
    let store = onlooker::open(config).await?;
    onlooker::exposition(&store, config, 0).await
}

/// Serves the page, the metrics and the probes until the process ends. An unusable address is an error at once. `complete` adds the
/// workers that have never ticked.
pub fn serve(config: &Config, listen: SocketAddr, complete: Complete) -> Result<()> {
    http::serve(config.clone(), listen, complete)
}
