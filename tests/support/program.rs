//! The built program as a person runs it: arguments and environment in, two streams and an exit code out.

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

/// No command may take longer; one that hangs fails its test instead of stopping all of them.
const LIMIT: Duration = Duration::from_secs(120);

/// What a command came to.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

/// Runs `gov-handoff` against a database.
pub async fn cli(url: &str, arguments: &[&str]) -> Ran {
    cli_with(url, arguments, &[]).await
}

/// The same with more environment.
pub async fn cli_with(url: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Ran {
    let mut command = Command::from(command(url, arguments, environment));
    let child = command.kill_on_drop(true).stdout(Stdio::piped()).spawn().expect("the program starts");
    let output = tokio::time::timeout(LIMIT, child.wait_with_output());
    let output = output.await.unwrap_or_else(|_| panic!("{arguments:?} does not end")).expect("output");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    // Killed by a signal: no code.
    Ran { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

/// Runs a command that must succeed; gives its standard output.
pub async fn done(url: &str, arguments: &[&str]) -> String {
    let ran = cli(url, arguments).await;
    assert_eq!(ran.code, 0, "{arguments:?}: {}{}", ran.out, ran.err);
    ran.out
}

/// The program with nothing of this process's own settings but where to find things.
pub(super) fn command(url: &str, arguments: &[&str], environment: &[(&str, &str)]) -> std::process::Command {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_gov-handoff"));
    let inherited =
        std::env::vars().filter(|(name, _)| name.starts_with("PG") || name.starts_with("GOV_HANDOFF_"));
    inherited.for_each(|(name, _)| {
        command.env_remove(name);
    });
    command.args(arguments).env("DATABASE_URL", url).env("NO_COLOR", "1").envs(environment.iter().copied());
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    command
}
