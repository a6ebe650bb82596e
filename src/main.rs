//! The command line of gov-handoff: one exit code, one place that prints an error.

use std::process::ExitCode;

fn main() -> ExitCode {
    match gov_handoff::cli::run() {
        Ok(code) => code,
        Err(e) => {
            gov_handoff::cli::report(&e);
            ExitCode::from(e.kind.exit_code())
        }
    }
}
