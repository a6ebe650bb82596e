//! `schedules`: a file is made so, compared and refused; schedules are paused and resumed. In text and in JSON, with the codes.

use serde_json::{Value, json};

use crate::support::{Database, TemporaryFile, cli, done, migrated};

const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/replication/schedules.toml");

fn file(text: &str) -> TemporaryFile {
    TemporaryFile::new("schedules.toml", text)
}

/// A schedule with this name and these further lines.
fn schedule(name: &str, more: &str) -> String {
    format!("[[schedule]]\nname = \"{name}\"\nexecutor = \"DOT\"\nkind = \"measure\"\n{more}\n")
}

/// Runs `schedules` with JSON; the exit code, and each schedule with its change.
async fn changes(url: &str, arguments: &[&str]) -> (i32, Vec<(String, String, Value)>) {
    let ran = cli(url, &[&["schedules"], arguments, &["--json"]].concat()).await;
    let said: Value = serde_json::from_str(&ran.out)
        .unwrap_or_else(|e| panic!("{arguments:?}: {e}: {}{}", ran.out, ran.err));
    let of = |c: &Value| {
        let text = |name: &str| c[name].as_str().expect("a text").to_owned();
        (text("name"), text("change"), c["reason"].clone())
    };
    (ran.code, said["changes"].as_array().expect("changes").iter().map(of).collect())
}

fn unrefused(name: &str, change: &str) -> (String, String, Value) {
    (name.to_owned(), change.to_owned(), Value::Null)
}

async fn applied() -> Database {
    let db = migrated().await;
    done(&db.url, &["schedules", "apply", SAMPLE, "--actor", "user:an"]).await;
    db
}

#[tokio::test]
async fn the_sample_is_applied_once_and_then_unchanged() {
    let db = migrated().await;
    assert!(done(&db.url, &["schedules", "list"]).await.contains("there are no schedules"));
    let two = |change: &str| vec![unrefused("nightly-marks", change), unrefused("measure", change)];
    // A dry run and a check leave nothing behind.
    assert_eq!(changes(&db.url, &["apply", SAMPLE, "--dry-run"]).await, (0, two("created")));
    assert_eq!(changes(&db.url, &["check", SAMPLE]).await, (1, two("created")));
    assert_eq!(db.number("select count(*) from queue_schedule").await, 0);

    assert_eq!(changes(&db.url, &["apply", SAMPLE, "--actor", "user:an"]).await, (0, two("created")));
    assert_eq!(
        db.text("select min(changed_by) || max(changed_by) from queue_schedule").await,
        "user:anuser:an"
    );
    assert_eq!(changes(&db.url, &["apply", SAMPLE]).await, (0, two("unchanged")));
    assert_eq!(changes(&db.url, &["check", SAMPLE]).await, (0, two("unchanged")));

    let listed: Value =
        serde_json::from_str(&done(&db.url, &["schedules", "list", "--json"]).await).expect("JSON");
    assert_eq!(listed[0]["every"], "00:15:00", "{listed}");
    assert_eq!(
        (&listed[1]["name"], &listed[1]["zone"], &listed[1]["domain"], &listed[1]["paused"]),
        (&json!("nightly-marks"), &json!("Asia/Ho_Chi_Minh"), &json!("iu"), &json!(false))
    );
    // 02:30 in a zone seven hours ahead.
    let next = listed[1]["next_run_at"].as_str().expect("a time");
    assert_eq!(
        db.text(&format!("select ('{next}'::timestamptz at time zone 'UTC')::time::text")).await,
        "19:30:00"
    );
    let text = done(&db.url, &["schedules", "list"]).await;
    assert!(text.contains("30 2 * * * Asia/Ho_Chi_Minh") && text.contains("every 00:15:00"), "{text}");
}

#[tokio::test]
async fn a_file_changes_what_it_names_and_says_what_it_does_not() {
    let db = applied().await;
    let other = file(&schedule("measure", "every = \"20 minutes\""));
    let path = other.path();
    let expected = vec![unrefused("measure", "changed"), unrefused("nightly-marks", "not in the file")];
    assert_eq!(changes(&db.url, &["check", path]).await, (1, expected.clone()));
    let text = done(&db.url, &["schedules", "apply", path, "--dry-run"]).await;
    assert!(text.contains("stays") && text.contains("nothing was changed"), "{text}");
    assert_eq!(db.text("select every::text from queue_schedule where name = 'measure'").await, "00:15:00");
    assert_eq!(changes(&db.url, &["apply", path]).await, (0, expected));
    assert_eq!(db.text("select every::text from queue_schedule where name = 'measure'").await, "00:20:00");
    assert_eq!(db.number("select count(*) from queue_schedule where not paused").await, 2);
}

#[tokio::test]
async fn one_that_the_database_refuses_holds_up_no_other() {
    let db = migrated().await;
    let text = [
        schedule("a", "cron = \"61 * * * *\""),
        schedule("b", "cron = \"* * * * *\"\nzone = \"Europe/Atlantis\""),
        schedule("c", "every = \"soon\""),
        schedule("d", "every = \"1 hour\"\npayload = { body = \"x\" }"),
        schedule("e", "every = \"1 hour\""),
    ]
    .concat();
    let file = file(&text);
    for arguments in [["check", file.path()], ["apply", file.path()]] {
        let (code, answers) = changes(&db.url, &arguments).await;
        let said: Vec<_> = answers.iter().map(|(name, change, _)| format!("{name} {change}")).collect();
        assert_eq!(
            (code, said.join(", ").as_str()),
            (1, "a refused, b refused, c refused, d refused, e created")
        );
        for (answer, why) in
            answers.iter().zip(["minute", "not a zone: Europe/Atlantis", "soon", "payload: "])
        {
            assert!(answer.2.as_str().is_some_and(|reason| reason.contains(why)), "{why}: {answer:?}");
        }
    }
    assert_eq!(db.texts("select name from queue_schedule").await, ["e"]);
}

#[tokio::test]
async fn a_pause_is_begun_and_ended_once_each_and_a_file_does_not_end_it() {
    let db = applied().await;
    let said = |arguments: &'static [&'static str]| {
        let url = db.url.clone();
        async move { done(&url, &[&["schedules"], arguments].concat()).await }
    };
    assert!(said(&["pause", "measure", "--actor", "user:an"]).await.contains("is paused"));
    assert_eq!(
        db.text("select paused || ' ' || changed_by from queue_schedule where name = 'measure'").await,
        "true user:an"
    );
    assert!(said(&["pause", "measure"]).await.contains("was paused already"));
    assert!(said(&["list"]).await.lines().any(|line| line.contains("measure") && line.contains("paused")));
    assert_eq!(changes(&db.url, &["apply", SAMPLE]).await.1[1], unrefused("measure", "unchanged"));
    assert_eq!(db.text("select paused::text from queue_schedule where name = 'measure'").await, "true");

    let resumed: Value = serde_json::from_str(&said(&["resume", "measure", "--json"]).await).expect("JSON");
    assert_eq!(resumed, json!({ "schedule": "measure", "paused": false, "changed": true }));
    assert!(said(&["resume", "measure"]).await.contains("was not paused"));
    assert_eq!(db.number("select count(*) from queue_schedule where paused").await, 0);
}

#[tokio::test]
async fn what_is_wrong_is_refused_in_one_line_with_its_code() {
    let db = migrated().await;
    db.sql(
        "create role schedules_cli_nobody login; create role schedules_cli_observer login in role gov_handoff_observer",
    )
    .await;
    let (nobody, observer) = (db.url_as("schedules_cli_nobody"), db.url_as("schedules_cli_observer"));
    let mot = file(&schedule("a", "every = \"1 hour\"").replace("DOT", "MOT"));
    let agent = file(&schedule("a", "every = \"1 hour\"").replace("DOT", "agent"));
    let cron = file(&schedule("a", "cron = \"* * *\""));
    let zone = file(&schedule("a", "cron = \"* * * * *\"\nzone = \"CEST\""));
    let field = file(&schedule("a", "evry = \"1 hour\""));
    for (url, arguments, code, said) in [
        (&db.url, ["apply", mot.path()], "GH1012", "schedule a: MOT is not an executor"),
        (&db.url, ["check", agent.path()], "GH1012", "known are DOT, Agent"),
        (&db.url, ["apply", cron.path()], "GH1000", "schedule a: a cron expression has five fields"),
        (&db.url, ["apply", zone.path()], "GH1000", "not a zone: CEST"),
        (&db.url, ["apply", field.path()], "GH1000", "line 5: unknown field `evry`"),
        (&db.url, ["apply", "/nonexistent.toml"], "GH1000", "cannot read /nonexistent.toml"),
        (&db.url, ["pause", "nothing"], "GH1809", "there is no schedule nothing"),
        (&db.url, ["resume", "nothing"], "GH1809", "there is no schedule nothing"),
        (&nobody, ["apply", SAMPLE], "GH1300", "permission denied"),
        (&observer, ["apply", SAMPLE], "GH1300", "permission denied"),
        (&observer, ["check", SAMPLE], "GH1300", "permission denied"),
    ] {
        let ran = cli(url, &[&["schedules"], &arguments[..]].concat()).await;
        let first = ran.err.lines().next().unwrap_or_default();
        assert!(
            first.starts_with(&format!("error: {code}: ")) && first.contains(said),
            "{arguments:?}: {}",
            ran.err
        );
        assert_eq!(ran.code, if code.starts_with("GH18") { 1 } else { 2 }, "{arguments:?}");
    }
    assert_eq!(db.number("select count(*) from queue_schedule").await, 0);
    // An observer looks.
    done(&db.url, &["schedules", "apply", SAMPLE]).await;
    assert!(done(&observer, &["schedules", "list"]).await.contains("nightly-marks"));
    assert_eq!(cli(&observer, &["schedules", "pause", "measure"]).await.code, 2);
    assert_eq!(db.number("select count(*) from queue_schedule where paused").await, 0);
    // Roles belong to the whole server.
    db.sql("drop owned by schedules_cli_nobody, schedules_cli_observer; drop role schedules_cli_nobody, schedules_cli_observer")
        .await;
}
