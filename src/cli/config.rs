//! `config`: shows the settings in force.

use crate::cli::output;
use crate::config::{self, Config};
use crate::error::Result;
use std::process::ExitCode;

pub fn run(config: &Config, json: bool, table: bool) -> Result<ExitCode> {
    if table {
        output::line(config::table());
        output::part(config::options_table());
        return Ok(ExitCode::SUCCESS);
    }
    let pairs = config.pairs();
    if json {
        let map: serde_json::Map<_, _> = pairs.into_iter().map(|(k, v)| (k.to_owned(), v.into())).collect();
        output::json(&map)?;
    } else {
        let rows: Vec<_> = pairs.into_iter().map(|(k, v)| vec![k.to_owned(), v]).collect();
        output::table(&["setting", "value"], &rows);
    }
    Ok(ExitCode::SUCCESS)
}
