//! `explain`: what an error code means, and the page that lists all of them.

use crate::cli::output;
use crate::error::codes::{CODES, page};
use crate::error::{Error, Result};
use std::process::ExitCode;

pub fn run(code: Option<&str>) -> Result<ExitCode> {
    let Some(wanted) = code else {
        output::part(page());
        return Ok(ExitCode::SUCCESS);
    };
    // A state of the gates, as a log of the server shows it, is explained by the code that stands for it.
    let same = |text: &str| text.eq_ignore_ascii_case(wanted);
    let Some(code) = CODES.iter().find(|c| same(c.id) || c.state.is_some_and(same)) else {
        return Err(Error::config(format!(
            "{wanted} is not a code of gov-handoff; write one such as {}",
            CODES[0].id
        )));
    };
    output::line(format_args!("{}  {}\n\nWhat to do: {}", code.id, code.means, code.what_to_do));
    Ok(ExitCode::SUCCESS)
}
