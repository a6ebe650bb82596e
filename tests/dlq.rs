//! `dlq`: what an operator decides about dead letters, and what becomes of it.

use crate::dead_letters::{CURE, LETTERS, POISON, SIGNALS, policy};
use crate::support::{Database, cli, cli_with, connect, done, migrated};

/// Three poison births among others, dead-lettered; the types are active.
async fn with_letters() -> Database {
    let db = migrated().await;
    done(&db.url, &["types", "activate", "--all"]).await;
    db.sql(POISON).await;
    db.sql(&policy(1, 1, 1)).await;
    db.sql("insert into birth_registry (id, entity_code, collection_name)
             values (1, 'poison a', 'c'), (2, 'fine', 'c'), (3, 'poison b', 'c'), (4, 'poison c', 'c');
             insert into registry_changelog (id, entity_type, entity_code, action) values (1, ' ', 'x', 'retire')").await;
    done(&db.url, &["run", "--once", "--mode", "poll"]).await;
    assert_eq!(db.number(LETTERS).await, 4);
    db
}

async fn signals_and_letters(db: &Database) -> (i64, i64) {
    (db.number(SIGNALS).await, db.number(LETTERS).await)
}

/// Of which sources letters are a finding.
async fn complained_of(db: &Database) -> Vec<String> {
    let open =
        "select coalesce_key from system_issues where issue_kind = 'handoff_dlq' and resolved_at is null";
    db.texts(open).await
}

async fn letter_of(db: &Database, key: i32) -> String {
    db.text(&format!(
        "select id::text from iu_route_dead_letter where idempotency_key = 'birth_registry:{key}'"
    ))
    .await
}

#[tokio::test]
async fn a_replay_hands_off_under_the_same_identity_and_one_that_fails_stays_open() {
    let db = with_letters().await;
    // Nothing replays by itself, mended or not; and what is open is no reason for an audit to repair.
    let failed = cli(&db.url, &["dlq", "replay", "--source", "birth_registry"]).await;
    assert_eq!(failed.code, 1, "{}{}", failed.out, failed.err);
    assert!(failed.out.contains("0 of 3 dead letters replayed"), "{}", failed.out);
    assert!(failed.out.contains("constraint no_poison"), "{}", failed.out);
    let attempts = "select count(*) from iu_route_dead_letter where attempts = 2 and resolved_at is null and route_code = 'birth_registry'";
    assert_eq!(db.number(attempts).await, 3);
    db.sql(CURE).await;
    done(&db.url, &["run", "--once", "--mode", "poll"]).await;
    assert_eq!(db.number(LETTERS).await, 4);
    done(&db.url, &["audit", "--full"]).await;
    assert_eq!(db.number(SIGNALS).await, 1);

    let dry = done(&db.url, &["dlq", "replay", "--source", "birth_registry", "--dry-run"]).await;
    assert!(dry.contains("nothing was changed"), "{dry}");
    assert_eq!(db.number(SIGNALS).await, 1);
    let one = letter_of(&db, 3).await;
    done(&db.url, &["dlq", "replay", "--id", &one, "--actor", "huyen", "--reason", "mended"]).await;
    let identity = "select (id = gov_handoff.gov_handoff_identity('birth_registry', 'int4', '3', 'governance.handoff.object_born'))::text
                      from event_outbox where safe_payload ->> 'source_key' = '3'";
    assert_eq!(db.text(identity).await, "true");
    let closed = format!(
        "select resolution || ' ' || resolved_by || ' ' || (event_snapshot #>> '{{resolution,reason}}')
                            from iu_route_dead_letter where id = '{one}'"
    );
    assert_eq!(db.text(&closed).await, "replayed huyen mended");
    assert_eq!(db.number(LETTERS).await, 3);
    // Once more: it is not open any more.
    let again = cli(&db.url, &["dlq", "replay", "--id", &one]).await;
    assert!(again.code == 1 && again.err.contains("no open dead letter"), "{}{}", again.out, again.err);
    // The rest in bulk; the one that violates the contract stays.
    let rest = cli(&db.url, &["dlq", "replay", "--all", "--json"]).await;
    assert_eq!(rest.code, 1, "{}", rest.err);
    let said: serde_json::Value = serde_json::from_str(&rest.out).expect("json");
    assert_eq!(said["replayed"].as_array().map(Vec::len), Some(2), "{said}");
    assert_eq!(said["failed"][0]["code"], "blank_reference", "{said}");
    assert_eq!(db.number(SIGNALS).await, 4);
    let marks = "select sum(changes)::bigint from gov_candidate_group";
    assert_eq!(db.number(marks).await, 4, "each marks its group once");
    assert_eq!(complained_of(&db).await, ["handoff_dlq:registry_changelog"]);
    // A replayed letter vouches for nothing: a signal that is lost since is missing.
    db.sql("delete from event_outbox where safe_payload ->> 'source_key' = '3'").await;
    assert_eq!(cli(&db.url, &["audit", "--full", "--check"]).await.code, 1);
    done(&db.url, &["run", "--once", "--mode", "poll"]).await;
    assert_eq!(cli(&db.url, &["audit", "--full"]).await.code, 1);
    assert_eq!(db.number(SIGNALS).await, 4);
}

#[tokio::test]
async fn a_replay_killed_before_it_closes_its_letter_is_finished_by_the_next() {
    let db = with_letters().await;
    db.sql(CURE).await;
    let one = letter_of(&db, 1).await;
    let killed = cli_with(
        &db.url,
        &["dlq", "replay", "--id", &one],
        &[("GOV_HANDOFF_FAILPOINT", "replay_after_apply:1")],
    )
    .await;
    assert_eq!(killed.code, -1, "{}{}", killed.out, killed.err);
    assert_eq!(signals_and_letters(&db).await, (2, 4));
    db.sql("update gov_candidate_group set dirty = false").await;
    db.sql("update queue_heartbeat set lease_owner = null").await;
    done(&db.url, &["dlq", "replay", "--id", &one]).await;
    assert_eq!(signals_and_letters(&db).await, (2, 3));
    assert_eq!(db.number("select count(*) from gov_candidate_group where dirty").await, 0);
    // The gate believes nobody: a letter whose signals are not recorded is not replayed.
    let lie = format!(
        "select gov_handoff.gov_dead_letter_replayed('w', 'o', 1, '{}', array[gen_random_uuid()], null, null)",
        letter_of(&db, 3).await
    );
    let refused = db.client.batch_execute(&lie).await.expect_err("refused");
    assert_eq!(refused.code().map(tokio_postgres::error::SqlState::code), Some("GH003"));
}

#[tokio::test]
async fn letters_are_listed_shown_discarded_and_superseded_with_a_reason_and_a_name() {
    let db = with_letters().await;
    let list = done(&db.url, &["dlq", "list"]).await;
    assert_eq!(list.lines().count(), 5, "{list}");
    let code = done(&db.url, &["dlq", "list", "--code", "blank_reference", "--since", "2020-01-01"]).await;
    assert!(code.lines().count() == 2 && code.contains("registry_changelog"), "{code}");
    let none = done(&db.url, &["dlq", "list", "--source", "pivot_definitions"]).await;
    assert_eq!(none, "no open dead letters match\n");
    let wrong = cli(&db.url, &["dlq", "list", "--since", "yesterday or so"]).await;
    assert!(wrong.code == 2 && wrong.err.contains("is no time"), "{}", wrong.err);
    let one = letter_of(&db, 1).await;
    let shown = done(&db.url, &["dlq", "show", &one]).await;
    assert!(shown.contains("c:poison a") && shown.contains("governance.handoff.object_born"), "{shown}");

    for command in ["discard", "supersede"] {
        let bare = cli(&db.url, &["dlq", command, "--all"]).await;
        assert!(bare.code == 2 && bare.err.contains("--reason"), "{}", bare.err);
        let nothing = cli(&db.url, &["dlq", command, "--reason", "why not"]).await;
        assert!(nothing.code == 2 && nothing.err.contains("which dead letters"), "{}", nothing.err);
    }
    let dry = done(&db.url, &["dlq", "discard", "--all", "--reason", "r", "--dry-run"]).await;
    assert_eq!(dry, "4 of 4 dead letters would be discarded; nothing was changed\n");
    assert_eq!(db.number(LETTERS).await, 4);
    done(&db.url, &["dlq", "discard", "--id", &one, "--reason", "a test row", "--actor", "huyen"]).await;
    done(&db.url, &["dlq", "supersede", "--source", "birth_registry", "--reason", "written again"]).await;
    let how = "select string_agg(resolution || ' by ' || resolved_by || ': ' || (event_snapshot #>> '{resolution,reason}'), ', '
                                 order by idempotency_key) from iu_route_dead_letter where resolved_at is not null";
    assert_eq!(
        db.text(how).await,
        "discarded by huyen: a test row, superseded by postgres: written again, superseded by postgres: written again"
    );
    let audit = "select string_agg(action || ' ' || actor_ref, ', ' order by id) from registry_changelog
                  where source_system = 'gov-handoff' and action like 'dead\\_letter\\_%'";
    assert_eq!(
        db.text(audit).await,
        "dead_letter_discarded huyen, dead_letter_superseded postgres, dead_letter_superseded postgres"
    );
    assert_eq!(complained_of(&db).await, ["handoff_dlq:registry_changelog"]);
    // Decided about is decided: neither a run nor an audit hands them off, or makes a letter of them again.
    db.sql(CURE).await;
    db.sql("delete from gov_worker_frontier").await;
    done(&db.url, &["audit", "--full"]).await;
    assert_eq!(signals_and_letters(&db).await, (1, 1));
    let empty = done(&db.url, &["dlq", "replay", "--source", "birth_registry"]).await;
    assert_eq!(empty, "no open dead letters match; nothing to do\n");
    assert_eq!(done(&db.url, &["dlq", "list", "--all"]).await.lines().count(), 5);
}

#[tokio::test]
async fn the_operators_role_decides_about_letters_and_the_workers_does_not() {
    let db = with_letters().await;
    let roles = include_str!("../replication/roles.sql");
    let (operator, worker) = (format!("operator_{}", db.name), format!("dlq_worker_{}", db.name));
    db.sql(&format!(
            "create role {operator} login in role gov_handoff_operator; create role {worker} login in role gov_handoff_worker; {roles}"
        )).await;
    let theirs = cli(&db.url_as(&worker), &["dlq", "discard", "--all", "--reason", "r"]).await;
    assert!(theirs.code == 2 && theirs.err.contains("permission denied"), "{}", theirs.err);
    db.sql(CURE).await;
    let (a, b) = (letter_of(&db, 1).await, letter_of(&db, 3).await);
    let url = db.url_as(&operator);
    done(&url, &["dlq", "list"]).await;
    done(&url, &["dlq", "show", &a]).await;
    done(&url, &["dlq", "discard", "--id", &a, "--reason", "r"]).await;
    done(&url, &["dlq", "replay", "--id", &b]).await;
    let failed = cli(&url, &["dlq", "replay", "--code", "blank_reference"]).await;
    assert_eq!(failed.code, 1, "{}{}", failed.out, failed.err);
    done(&url, &["dlq", "supersede", "--all", "--reason", "r"]).await;
    assert_eq!(db.number(LETTERS).await, 0);
    let by = format!("select count(*) from iu_route_dead_letter where resolved_by = '{operator}'");
    assert_eq!(db.number(&by).await, 4);
    // Replaying writes through the gate alone: the operator can write no table either.
    let client = connect(&url).await;
    for statement in [
        "delete from event_outbox",
        "update iu_route_dead_letter set attempts = 0",
        "delete from event_pending",
    ] {
        let error = client.batch_execute(statement).await.expect_err(statement);
        assert_eq!(error.code().map(tokio_postgres::error::SqlState::code), Some("42501"), "{statement}");
    }
}

#[tokio::test]
async fn a_replay_does_not_emit_again_what_retention_took_of_its_row_before() {
    let db = migrated().await;
    done(&db.url, &["types", "activate", "object_born"]).await;
    db.sql(&policy(1, 1, 1)).await;
    db.sql("insert into birth_registry (id, entity_code, collection_name, status) values (1, 'a', 'c', 'registered')").await;
    done(&db.url, &["run", "--once", "--mode", "poll"]).await;
    // One of its two signals is in the outbox; the other was captured, and is refused when it is drained.
    db.sql("alter table event_outbox add constraint no_poison check (event_type not like '%registered') not valid").await;
    assert_eq!(cli(&db.url, &["types", "activate", "object_registered"]).await.code, 1);
    done(&db.url, &["run", "--once", "--mode", "poll"]).await;
    assert_eq!(signals_and_letters(&db).await, (1, 1));
    done(&db.url, &["audit", "--full"]).await;
    let out = done(&db.url, &["retire", "--before", "2999-01-01"]).await;
    assert!(out.contains("1 certified signal"), "{out}");
    assert_eq!(db.number("select count(*) from gov_retired_range").await, 0, "the letter is left of the key");
    db.sql(CURE).await;
    done(&db.url, &["dlq", "replay", "--all"]).await;
    assert_eq!(signals_and_letters(&db).await, (1, 0));
    let which = "select event_type from event_outbox where event_subject_ref is not null";
    assert_eq!(db.text(which).await, "governance.handoff.object_registered");
    done(&db.url, &["audit", "--full", "--check"]).await;
}
