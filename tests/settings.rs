//! Settings and help as a person meets them: flags win over the environment, the environment over the file, the file over
//! the defaults of a command; and every command teaches by an example.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::process::Command;

use crate::support::{TemporaryFile, program};

fn said(mut command: Command) -> String {
    let output = command.output().expect("the program starts");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {out}{err}");
    out.into_owned()
}

/// What is in force by these flags, this environment and this file.
fn in_force(flags: &[&str], environment: &[(&str, &str)], file: &str) -> BTreeMap<String, String> {
    let file = TemporaryFile::new("settings.toml", file);
    let arguments = [&["config", "--json", "--config", file.path()], flags].concat();
    serde_json::from_str(&said(program(&arguments, environment))).expect("json")
}

const FILE: &str = r#"
    database_url = "postgres://filed:hunter2@file.example:7/files"
    mode = "poll"
    worker = "of_the_file"
    log = "debug"
    lease_ttl = "7s"
    create = false
"#;

#[test]
fn the_file_takes_effect_the_environment_beats_it_and_flags_beat_both() {
    let only = in_force(&[], &[], FILE);
    for (name, value) in [
        ("database_url", "postgres://filed:***@file.example:7/files"),
        ("mode", "poll"),
        ("worker", "of_the_file"),
        ("log", "debug"),
        ("lease_ttl", "7000ms"),
        ("create", "false"),
    ] {
        assert_eq!(only[name], value, "{name}");
    }
    let environment = [
        ("DATABASE_URL", "postgres://enviro@env.example/envs"),
        ("GOV_HANDOFF_MODE", "stream"),
        ("GOV_HANDOFF_LOG", "error"),
        ("GOV_HANDOFF_CREATE", "true"),
    ];
    let above = in_force(&[], &environment, FILE);
    for (name, value) in [
        ("database_url", "postgres://enviro@env.example:5432/envs"),
        ("mode", "stream"),
        ("worker", "of_the_file"),
        ("log", "error"),
        ("lease_ttl", "7000ms"),
        ("create", "true"),
    ] {
        assert_eq!(above[name], value, "{name}");
    }
    let flags = ["--database-url", "postgres://flag@flag.example/flags", "--log", "trace"];
    let top = in_force(&flags, &environment, FILE);
    for (name, value) in [
        ("database_url", "postgres://flag@flag.example:5432/flags"),
        ("mode", "stream"),
        ("log", "trace"),
        ("worker", "of_the_file"),
    ] {
        assert_eq!(top[name], value, "{name}");
    }
}

#[test]
fn without_a_word_about_it_config_shows_what_the_daemon_logs() {
    assert_eq!(in_force(&[], &[("PGUSER", "u")], "")["log"], "info");
}

#[test]
fn the_usual_variables_are_environment_and_beat_the_file() {
    let environment = [("PGHOST", "pg.example"), ("PGDATABASE", "pgs")];
    let found = in_force(&[], &environment, FILE);
    assert_eq!(found["database_url"], "postgres://filed:***@pg.example:7/pgs");
    assert_eq!(found["replication_url"], found["database_url"]);
    let file = format!("{FILE}\nreplication_url = \"postgres://streamer@file.example:7/files\"");
    let found = in_force(&[], &environment, &file);
    assert_eq!(found["replication_url"], "postgres://streamer@pg.example:7/pgs");
    let flags = ["--database-url", "postgres://flag@flag.example/flags"];
    assert_eq!(
        in_force(&flags, &environment, FILE)["database_url"],
        "postgres://flag@flag.example:5432/flags"
    );
}

#[test]
fn slot_and_publication_are_settings_of_every_command() {
    let environment = [("PGUSER", "u"), ("GOV_HANDOFF_SLOT", "of_the_environment")];
    let found = in_force(&["--slot", "mine", "--publication", "ours"], &environment, "");
    assert_eq!((found["slot"].as_str(), found["publication"].as_str()), ("mine", "ours"));
    for name in ["status", "doctor", "migrate", "replication"] {
        let help = said(program(&[name, "--help"], &[]));
        let (own, settings) = help.split_once("\nSettings:\n").expect("a heading");
        assert!(settings.contains("--slot <NAME>") && !own.contains("--database-url"), "{name}: {help}");
    }
}

#[test]
fn a_misspelt_variable_is_refused_and_an_empty_file_name_is_none() {
    let output =
        program(&["config"], &[("PGUSER", "u"), ("GOV_HANDOFF_MODES", "poll")]).output().expect("it runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("GOV_HANDOFF_MODES") && error.contains("GOV_HANDOFF_MODE?"), "{error}");
    assert!(said(program(&["config"], &[("PGUSER", "u"), ("GOV_HANDOFF_CONFIG", "")])).contains("(none)"));
}

#[test]
fn a_variable_that_is_no_text_does_no_harm() {
    let mut command = program(&["config"], &[("PGUSER", "u")]);
    command.env("SOMEBODY_ELSES", OsString::from_vec(vec![0xff, 0xfe]));
    assert!(said(command).contains("postgres://u@"));
}

/// The commands as `--help` lists them.
fn commands() -> Vec<String> {
    let help = said(program(&["--help"], &[]));
    let (_, list) = help.split_once("\nCommands:\n").expect("a list of commands");
    let names = list
        .lines()
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_command_has_help_with_an_example_of_itself() {
    let commands = commands();
    assert!(commands.len() >= 20, "{commands:?}");
    for name in commands {
        let help = said(program(&[&name, "--help"], &[]));
        assert!(
            help.contains("Example: ") && help.contains(&format!("gov-handoff {name}")),
            "{name}: {help}"
        );
    }
}

#[test]
fn the_completions_for_bash_are_what_bash_accepts() {
    let script = said(program(&["completions", "bash"], &[]));
    assert!(script.contains("gov-handoff") && script.contains("certificates"));
    let file = TemporaryFile::new("completions.bash", &script);
    let check = Command::new("bash").args(["-n", file.path()]).output().expect("bash runs");
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
}
