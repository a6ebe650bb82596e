//! `status` is a verdict: its first line, its exit code and its JSON say the same, in each of the four states.

use crate::support::{Daemon, cli, done, migrated, program, signal, within};
use serde_json::Value;
use std::io::Read;
use std::process::Stdio;
use std::time::Duration;

/// The first line, the exit code, and the verdict in JSON, which have to agree. Two looks are two moments: where something changed
/// between them it looks again.
async fn verdict(url: &str) -> (String, i32, Value) {
    let (text, json) = within(Duration::from_secs(30), "text and JSON agree", async || {
        let (text, json) = (cli(url, &["status"]).await, cli(url, &["status", "--json"]).await);
        if text.code == json.code { Ok((text, json)) } else { Err(format!("{}{}", text.out, json.out)) }
    })
    .await;
    let shown: Value = serde_json::from_str(&json.out).expect(&json.out);
    let code = match shown["verdict"]["state"].as_str().expect("a state") {
        "ok" | "off" => 0,
        "wrong" => 1,
        "cannot_tell" => 2,
        other => panic!("{other}"),
    };
    assert_eq!(json.code, code, "{shown}");
    (text.out.lines().next().unwrap_or_default().to_owned(), code, shown)
}

/// Looks until the verdict has this exit code and its sentence these words.
async fn until_verdict(url: &str, code: i32, words: &str) -> Value {
    within(Duration::from_secs(60), words, async || {
        let (line, found, shown) = verdict(url).await;
        if found == code && line.contains(words) { Ok(shown) } else { Err(format!("{found} {line}")) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_line_says_how_things_stand_and_the_exit_code_agrees() {
    let db = migrated().await;
    until_verdict(&db.url, 2, "gov_handoff_intake has never run here").await;
    let eager = [("GOV_HANDOFF_LEASE_TTL", "1s"), ("GOV_HANDOFF_CERTIFY_INTERVAL", "1s")];
    let mut daemon = Daemon::start(&db.url, &["--mode", "poll"], &eager);
    daemon.captures(&db.url, "poll").await;
    let shown = until_verdict(&db.url, 0, "Everything committed before ").await;
    assert!(
        shown["verdict"]["sentence"]
            .as_str()
            .expect("a sentence")
            .contains(" is handed off (5 sources, proven ")
    );
    // Complete through the source that is behind most, and no further.
    let sources = shown["sources"].as_array().expect("sources");
    let oldest = sources.iter().map(|s| s["complete_through"].as_str().expect("a time")).min();
    assert_eq!(shown["verdict"]["complete_through"].as_str(), oldest);
    // The claim is true of a row: it was committed before a time that is claimed, so it is handed off.
    db.sql("insert into birth_registry (entity_code, collection_name) values ('claimed', 'laws')").await;
    let committed = db.text("select to_char(clock_timestamp() at time zone 'UTC' + interval '1 s', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')").await;
    within(Duration::from_secs(60), "it is complete through the birth", async || {
        let (line, _, shown) = verdict(&db.url).await;
        let through = shown["verdict"]["complete_through"].as_str().unwrap_or_default().to_owned();
        if through > committed { Ok(()) } else { Err(line) }
    })
    .await;
    assert_eq!(
        db.number("select count(*) from event_pending where canonical_address = 'laws:claimed'").await,
        1
    );

    // Off on purpose is neither well nor wrong.
    done(&db.url, &["pause", "gov_handoff_intake", "--reason", "month end"]).await;
    until_verdict(&db.url, 0, "gov_handoff_intake is paused on purpose since 20").await;
    done(&db.url, &["resume", "gov_handoff_intake"]).await;
    until_verdict(&db.url, 0, "Everything committed before ").await;

    db.sql("select gov_handoff.gov_finding_raise('slot_lost', 'slot_lost:x', 'warning', '{}'::jsonb, false)")
        .await;
    let shown = until_verdict(&db.url, 1, "1 finding is open, the oldest since ").await;
    assert!(
        shown["verdict"]["since"].is_string()
            && shown["verdict"]["sentence"].as_str().is_some_and(|s| s.contains("slot_lost"))
    );
    done(&db.url, &["findings", "--resolve", "slot_lost:x"]).await;
    until_verdict(&db.url, 0, "Everything committed before ").await;

    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
    let (line, code, shown) = verdict(&db.url).await;
    assert!(code == 1 && line.starts_with("Nothing is handed off since "), "{line}");
    assert!(line.contains("Everything committed before") && shown["verdict"]["since"].is_string(), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_shows_it_again_and_ends_with_the_last_verdict() {
    let db = migrated().await;
    let mut command = program(&["status", "--watch", "--interval", "100ms"], &[]);
    let mut child = command.env("DATABASE_URL", &db.url).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut out = child.stdout.take().expect("its output");
    let seen = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
    let kept = std::sync::Arc::clone(&seen);
    let reader = std::thread::spawn(move || {
        let mut some = [0; 4096];
        while let Ok(n @ 1..) = out.read(&mut some) {
            kept.lock().expect("no panic").push_str(&String::from_utf8_lossy(&some[..n]));
        }
    });
    within(Duration::from_secs(30), "it is shown three times", async || {
        let times = seen.lock().expect("no panic").matches("has never run here").count();
        if times >= 3 { Ok(()) } else { Err(times.to_string()) }
    })
    .await;
    signal(child.id(), "INT");
    assert_eq!(child.wait().expect("it ends").code(), Some(2));
    reader.join().expect("read to the end");
    assert!(!seen.lock().expect("no panic").contains('\u{1b}'), "into a pipe go no codes for a terminal");
}
