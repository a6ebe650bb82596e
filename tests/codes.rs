//! Error codes and man pages: what the built program prints and writes, against what the documents promise.

use crate::support::{cli, cli_with, fresh_database, migrated};
use gov_handoff::error::codes::CODES;

#[tokio::test(flavor = "multi_thread")]
async fn every_error_that_is_printed_carries_its_code() {
    let db = migrated().await;
    let empty = fresh_database(None).await;
    let nowhere = "postgres://u@127.0.0.1:1/d";
    let no_database = db.url.replacen("/test_", "/no_test_", 1);
    db.sql("create role codes_nobody login").await;
    let nobody = db.url_as("codes_nobody");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = listener.local_addr().expect("its address").to_string();
    for (url, arguments, code, exit) in [
        (&*db.url, &["status", "--no-such-option"][..], "GH1009", 2),
        (&db.url, &["frobnicate"], "GH1009", 2),
        (&db.url, &["--log", "=x=", "status"], "GH1000", 2),
        ("postgres//u@h/d", &["status"], "GH1001", 2),
        (nowhere, &["status"], "GH1100", 2),
        (&no_database, &["status"], "GH1203", 2),
        (&empty.url, &["status"], "GH1501", 2),
        (&empty.url, &["metrics"], "GH1501", 2),
        (&nobody, &["status"], "GH1300", 2),
        (&db.url, &["explain", "GH9999"], "GH1000", 2),
        (&db.url, &["run", "--mode", "poll", "--listen", &taken], "GH1007", 2),
    ] {
        let ran = cli(url, arguments).await;
        let first = ran.err.lines().next().unwrap_or_default();
        assert!(first.starts_with(&format!("error: {code}: ")), "{arguments:?}: {}", ran.err);
        assert_eq!(ran.code, exit, "{arguments:?}");
    }
    let ran = cli_with(&db.url, &["config"], &[("GOV_HANDOFF_SLTO", "x")]).await;
    assert!(ran.err.starts_with("error: GH1008: ") && ran.code == 2, "{}", ran.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_prints_json_prints_its_error_as_json_too() {
    let ran = cli("postgres://u@127.0.0.1:1/d", &["status", "--json"]).await;
    let told: serde_json::Value = serde_json::from_str(&ran.out).expect(&ran.out);
    assert_eq!(told["error"]["code"], "GH1100");
    let message = told["error"]["message"].as_str().expect("a message");
    assert_eq!(ran.err.trim_end(), format!("error: GH1100: {message}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_code_is_explained_by_itself_and_by_the_state_it_stands_for() {
    for code in CODES {
        for name in [Some(code.id), code.state].into_iter().flatten() {
            let ran = cli("", &["explain", name]).await;
            assert!(
                ran.code == 0 && ran.out.contains(code.id) && ran.out.contains(code.what_to_do),
                "{name}: {}",
                ran.err
            );
        }
    }
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/errors.md")).expect("a page");
    assert_eq!(cli("", &["explain"]).await.out, page);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_has_a_man_page() {
    let folder = std::env::temp_dir().join(format!("gov-handoff-man-{}", std::process::id()));
    let path = folder.to_str().expect("a name");
    let ran = cli("", &["man", path]).await;
    assert_eq!(ran.code, 0, "{}", ran.err);
    let (mut waiting, mut seen) = (vec![Vec::new()], 0);
    while let Some(command) = waiting.pop() {
        // The help is asked, and not a list of ours: a command that is added later must have its page as well.
        let mut arguments: Vec<&str> = command.iter().map(String::as_str).collect();
        arguments.push("--help");
        let help = cli("", &arguments).await.out;
        let below = help.split_once("\nCommands:\n").map_or("", |(_, rest)| rest);
        for name in below.lines().take_while(|l| l.starts_with("  ")) {
            let name = name[2..].split(' ').next().unwrap_or_default();
            if !name.is_empty() && name != "help" {
                waiting.push(command.iter().cloned().chain([name.to_owned()]).collect());
            }
        }
        let page = folder.join(format!(
            "{}.1",
            ["gov-handoff".to_owned()].iter().chain(&command).cloned().collect::<Vec<_>>().join("-")
        ));
        let text = std::fs::read_to_string(&page).unwrap_or_else(|e| panic!("{}: {e}", page.display()));
        assert!(text.contains(".SH NAME") && text.contains(".SH SYNOPSIS"), "{}", page.display());
        seen += 1;
    }
    assert!(seen > 30, "only {seen} commands were found");
    std::fs::remove_dir_all(&folder).expect("removed");
    assert!(cli("", &["man"]).await.out.contains(".TH gov-handoff 1"));
    let refused = cli("", &["man", "/proc/no/such"]).await;
    assert!(refused.code == 2 && refused.err.contains("/proc/no/such"), "{}", refused.err);
}
