//! `man`: the man pages, made from the same descriptions as the help.

use crate::cli::args::Arguments;
use crate::cli::{output, reference};
use crate::error::codes::CONFIG;
use crate::error::{Error, Result};
use clap::CommandFactory;
use std::path::Path;
use std::process::ExitCode;

pub fn run(folder: Option<&Path>, markdown: bool) -> Result<ExitCode> {
    if markdown {
        output::part(reference::page());
        return Ok(ExitCode::SUCCESS);
    }
    let command = Arguments::command();
    match folder {
        Some(folder) => {
            let cannot =
                |e| Error::of(&CONFIG, format!("cannot write man pages into {}: {e}", folder.display()));
            std::fs::create_dir_all(folder)
                .and_then(|()| clap_mangen::generate_to(command, folder))
                .map_err(cannot)?;
        }
        None => clap_mangen::Man::new(command).render(&mut std::io::stdout())?,
    }
    Ok(ExitCode::SUCCESS)
}
