//! `metrics`: one scrape to standard output, for a textfile collector or a look.

use crate::cli::output;
use crate::config::Config;
use crate::error::Result;
use crate::observe;
use std::process::ExitCode;

pub async fn run(config: &Config) -> Result<ExitCode> {
    output::line(observe::scrape(config).await?.trim_end());
    Ok(ExitCode::SUCCESS)
}
