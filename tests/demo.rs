//! The demo: it ends with a verdict computed from the tables, which holds, and which can fail.

use gov_handoff::cli::demo::verdict::DemoVerdict;

use crate::support::{Database, Ran, cli, done, fresh_database};

/// The number behind a word of the printed verdict.
fn told(text: &str, word: &str) -> i64 {
    let line = text.lines().rev().find(|l| l.trim_start().starts_with(word));
    let line = line.unwrap_or_else(|| panic!("no line begins with {word} in:\n{text}"));
    let number = line.trim_start()[word.len()..].split_whitespace().next().unwrap_or_default();
    number.replace(',', "").parse().unwrap_or_else(|e| panic!("{number}: {e} in:\n{text}"))
}

/// A database with three births and a change, all handed off.
async fn handed_off() -> Database {
    let db = fresh_database(None).await;
    done(&db.url, &["migrate"]).await;
    done(&db.url, &["types", "activate", "--all"]).await;
    db.client
        .batch_execute(
            "insert into birth_registry (entity_code, collection_name, status)
             values ('a', 'species', 'registered'), ('b', 'species', 'new'), ('c', 'species', 'new');
             insert into registry_changelog (entity_type, entity_code, action) values ('weather', 'w', 'seen')",
        )
        .await
        .expect("insert");
    done(&db.url, &["run", "--mode", "poll", "--once"]).await;
    db
}

#[tokio::test]
async fn the_demo_ends_with_nothing_missing_and_nothing_twice() {
    let Ran { code, out: text, err } = cli("", &["demo", "--plain", "--seconds", "8"]).await;
    assert_eq!(code, 0, "{text}\n{err}");
    assert!(told(&text, "births") > 500, "{text}");
    assert!(told(&text, "changelog rows") > 100, "{text}");
    for word in ["missing", "twice", "never born"] {
        assert_eq!(told(&text, word), 0, "{text}");
    }
    // It showed what it promised: both paths carried rows, and the fall back said why.
    assert!(text.contains("polling, because"), "{text}");
    assert!(!text.contains(" 0 poll") && !text.contains(" 0 stream"), "{text}");
}

#[tokio::test]
async fn the_demo_stops_after_the_rows_asked_for() {
    let Ran { code, out: text, err } = cli("", &["demo", "--plain", "--rows", "1500"]).await;
    assert_eq!(code, 0, "{text}\n{err}");
    let rows = told(&text, "births") + told(&text, "changelog rows");
    assert!((1_500..2_000).contains(&rows), "{rows} rows: {text}");
}

#[tokio::test]
async fn the_verdict_fails_when_a_handoff_is_missing() {
    let db = handed_off().await;
    let whole = DemoVerdict::of(&db.client).await.expect("a verdict");
    assert_eq!((whole.births, whole.changes, whole.due, whole.handed_off), (3, 1, 5, 5));
    assert_eq!((whole.exit_code(), whole.by_poll), (0, 5));
    let gone = "delete from event_outbox where event_type like '%object_born' and safe_payload ->> 'source_key' = '2'";
    assert_eq!(db.client.execute(gone, &[]).await.expect("delete"), 1);
    let verdict = DemoVerdict::of(&db.client).await.expect("a verdict");
    assert_eq!((verdict.missing, verdict.twice, verdict.exit_code()), (1, 0, 1));
    assert_eq!(told(&verdict.to_string(), "missing"), 1);
    // A capture counts as much as a signal.
    db.client.execute("delete from event_pending", &[]).await.expect("delete");
    assert_eq!(DemoVerdict::of(&db.client).await.expect("a verdict").missing, 2);
}

#[tokio::test]
async fn the_verdict_fails_when_a_handoff_is_there_twice_or_its_row_was_never_born() {
    let db = handed_off().await;
    let copy = "insert into event_outbox (event_domain, event_type, event_stream, canonical_address, actor_ref, source_system,
                    safe_payload)
                select event_domain, event_type, event_stream, canonical_address, actor_ref, source_system,
                       safe_payload || jsonb_build_object('source_key', $1::text)
                  from event_outbox where event_type like '%object_born' and safe_payload ->> 'source_key' = '2'";
    db.client.execute(copy, &[&"3"]).await.expect("copy");
    let verdict = DemoVerdict::of(&db.client).await.expect("a verdict");
    assert_eq!((verdict.missing, verdict.twice, verdict.unborn, verdict.exit_code()), (0, 1, 0, 1));
    db.client.execute(copy, &[&"99"]).await.expect("copy");
    let verdict = DemoVerdict::of(&db.client).await.expect("a verdict");
    assert_eq!((verdict.twice, verdict.unborn, verdict.exit_code()), (1, 1, 1));
}
