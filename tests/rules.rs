//! Verdict rules through the command line.

use crate::scan::run_once;
use crate::support::{Database, TemporaryFile, active, cli, cli_with, done};

const SUSPECT: &str = r#"
[[rule]]
code = "crowd"
grain = "group"
priority = 5
when = [{ fact = "members", at_least = 2 }, { dimension = "object_class", equals = "c1" }]
verdict = "crowded"
severity = "warning"
"#;

async fn verdict(db: &Database, class: &str) -> String {
    db.text(&format!("select verdict from gov_candidate_group where dims ->> 'object_class' = '{class}'"))
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_are_tried_applied_and_taken_back_and_every_group_is_scanned_under_the_new_version() {
    let db = active().await;
    db.births("x", 10).await;
    run_once(&db).await;
    let version = "select gov_handoff.gov_ruleset_version()::bigint";
    let first = db.number(version).await;
    let file = TemporaryFile::new("rules.toml", SUSPECT);
    let tried = done(&db.url, &["rules", "check", file.path()]).await;
    assert!(
        tried.contains("nothing was stored") && tried.contains("1 of 5 groups would get another verdict"),
        "{tried}"
    );
    assert_eq!(db.number(version).await, first);
    let applied = done(&db.url, &["rules", "apply", file.path()]).await;
    assert!(applied.contains("every group is scanned again"), "{applied}");
    assert!(done(&db.url, &["rules", "apply", file.path()]).await.contains("nothing changed"));
    assert_eq!(db.number(version).await, first + 1);
    assert_eq!(db.number("select count(*) from v_gov_dirty").await, 5, "dirty from the commit on");
    run_once(&db).await;
    assert_eq!(
        (verdict(&db, "c1").await.as_str(), verdict(&db, "c2").await.as_str()),
        ("crowded", "candidate")
    );
    let behind = format!("select count(*) from gov_candidate_state where ruleset_version <> {}", first + 1);
    assert_eq!(db.number(&behind).await, 0, "one row for each object, under the new version");
    let listed = done(&db.url, &["rules", "list"]).await;
    assert!(listed.contains("crowd") && listed.contains("built in"), "{listed}");

    // A file without it takes it back; a built-in rule can be switched off by its name.
    let off = "[[rule]]\ncode = \"several_accepted\"\ngrain = \"group\"\npriority = 1000\nverdict = \"candidate\"\nenabled = false\n";
    done(&db.url, &["rules", "apply", TemporaryFile::new("off.toml", off).path()]).await;
    run_once(&db).await;
    assert_eq!((verdict(&db, "c1").await.as_str(), verdict(&db, "c2").await.as_str()), ("single", "single"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_holds_only_while_its_measurement_is_enabled() {
    let db = active().await;
    db.sql("insert into measurement_registry (measurement_code, enabled) values ('m', false)").await;
    db.births("x", 10).await;
    let file = TemporaryFile::new("rules.toml", &format!("{SUSPECT}measurement = \"m\"\n"));
    done(&db.url, &["rules", "apply", file.path()]).await;
    run_once(&db).await;
    assert_eq!(verdict(&db, "c1").await, "candidate");
    db.sql("update measurement_registry set enabled = true;
            insert into registry_changelog (entity_type, entity_code, action, \"timestamp\") values ('ruleset', 'm', 'edit', now())").await;
    run_once(&db).await;
    assert_eq!(verdict(&db, "c1").await, "crowded");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_cannot_be_meant_is_refused_by_name_and_nothing_changes() {
    let db = active().await;
    for (text, said) in [
        ("[[rule]]\ncode = 1\n", "rules.toml"),
        (&SUSPECT.replace("members", "colour"), "rule crowd: expected a fact of a group"),
        (&SUSPECT.replace("severity", "loudness"), "unknown field `loudness`"),
        (&format!("{SUSPECT}{SUSPECT}"), "found it twice"),
    ] {
        let file = TemporaryFile::new("rules.toml", text);
        for verb in ["check", "apply"] {
            let refused = cli(&db.url, &["rules", verb, file.path()]).await;
            assert_eq!(refused.code, 2, "{text}");
            assert!(refused.err.contains(said), "{}", refused.err);
        }
    }
    assert_eq!(db.number("select count(*) from gov_verdict_rule where not built_in").await, 0);
    db.sql("create role rules_worker login; grant gov_handoff_worker to rules_worker").await;
    let file = TemporaryFile::new("rules.toml", SUSPECT);
    let refused = cli_with(&db.url_as("rules_worker"), &["rules", "apply", file.path()], &[]).await;
    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(refused.err.contains("permission denied"), "only an operator decides: {}", refused.err);
}
