//! The built program as a person runs it: arguments and environment in, two streams and an exit code out.

use std::process::{Command, Stdio};
use std::time::Duration;

/// No command may take longer; one that hangs fails its test instead of stopping all of them.
const LIMIT: Duration = Duration::from_secs(120);

/// The outcome of a command.
#[derive(Debug)]
pub struct Ran {
    /// -1 if a signal ended it.
    pub code: i32,
    pub out: String,
    pub err: String,
}

/// Runs `gov-handoff` against a database.
pub async fn cli(url: &str, arguments: &[&str]) -> Ran {
    cli_with(url, arguments, &[]).await
}

/// Runs `gov-handoff` against a database with more environment.
pub async fn cli_with(url: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Ran {
    let ran = cli_within(LIMIT, url, arguments, environment).await;
    ran.unwrap_or_else(|| panic!("{arguments:?} does not end"))
}

/// Runs `gov-handoff` against a database, and kills it after `limit`: then there is no outcome.
pub async fn cli_within(
    limit: Duration,
    url: &str,
    arguments: &[&str],
    environment: &[(&str, &str)],
) -> Option<Ran> {
    let mut command = tokio::process::Command::from(program(arguments, environment));
    command.env("DATABASE_URL", url).kill_on_drop(true).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("the program starts");
    let output = tokio::time::timeout(limit, child.wait_with_output()).await.ok()?.expect("output");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Some(Ran { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) })
}

/// Runs a command that must succeed; returns its standard output.
pub async fn done(url: &str, arguments: &[&str]) -> String {
    let ran = cli(url, arguments).await;
    assert_eq!(ran.code, 0, "{arguments:?}: {}{}", ran.out, ran.err);
    ran.out
}

/// The program with this environment and nothing of the test's own settings. It inherits only what it needs to find
/// other programs and PostgreSQL servers.
pub fn program(arguments: &[&str], environment: &[(&str, &str)]) -> Command {
    let inherited = std::env::vars().filter(|(name, _)| {
        ["PATH", "HOME", "TMPDIR"].contains(&name.as_str()) || name.starts_with("GOV_HANDOFF_PG_")
    });
    let mut command = Command::new(env!("CARGO_BIN_EXE_gov-handoff"));
    command
        .args(arguments)
        .env_clear()
        .envs(inherited)
        .env("NO_COLOR", "1")
        // The intake alone, unless a test asks for others: a test about marks must not race with a scan that clears them.
        .env("GOV_HANDOFF_WORKERS", "gov_handoff_intake")
        .envs(environment.iter().copied());
    // No file of the working directory is to matter either.
    command.current_dir(std::env::temp_dir()).stdin(Stdio::null());
    command
}

/// Sends a signal by the shell's own `kill`, because sending signals needs unsafe code here.
pub fn signal(pid: u32, name: &str) {
    let kill = format!("kill -s {name} {pid}");
    assert!(Command::new("sh").args(["-c", &kill]).status().expect("sh runs").success(), "{kill}");
}
