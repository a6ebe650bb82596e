//! `demo`: watch it work.

use crate::cli::args::DemoCommand;
use crate::error::Result;
use std::process::ExitCode;

pub async fn run(_command: DemoCommand) -> Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}
