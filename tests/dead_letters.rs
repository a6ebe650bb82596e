//! Dead-letter, never drop; refuse, never retry for ever: what becomes of a row that the database refuses.

use crate::support::adopted::adopted;
use crate::support::process::{Registry, until as wait};
use crate::support::{TestDb, cli, cli_with, connect, done, migrated, number, text, texts, until};

/// Refuses one key, in the outbox: the row is in order, and cannot be handed off.
const POISON: &str =
    "alter table event_outbox add constraint no_poison check (canonical_address not like '%poison%')";
const CURE: &str = "alter table event_outbox drop constraint no_poison";
const STAGED: &str = "select count(*) from event_pending where event_type_hint = 'governance.handoff.retry'";
const LETTERS: &str = "select count(*) from iu_route_dead_letter where resolved_at is null";
const SIGNALS: &str =
    "select count(*) from event_outbox where event_domain = 'governance' and event_stream <> 'health'";

fn policy(attempts: u32, base_ms: u32, cap_ms: u32) -> String {
    format!(
        "update dot_config set value = case key when 'event.retry.max_attempts' then '{attempts}'
                when 'event.retry.base_ms' then '{base_ms}' else '{cap_ms}' end where key like 'event.retry.%'"
    )
}

/// Types active, one key refused, and this policy.
async fn poisoned(attempts: u32, base_ms: u32, cap_ms: u32) -> Registry {
    let registry = Registry::new().await;
    registry.sql(POISON).await;
    registry.sql(&policy(attempts, base_ms, cap_ms)).await;
    registry
}

const BIRTHS: &str = "insert into birth_registry (entity_code, collection_name)
    select case when g = 57 then 'poison' else 'e' || g end, 'c' from generate_series(1, 100) g";

async fn finding(registry: &Registry, key: &str) -> Option<String> {
    let open =
        format!("select severity from system_issues where coalesce_key = '{key}' and resolved_at is null");
    registry.text(&open).await
}

/// 001 §39.10 no. 4.
#[tokio::test]
async fn dlq_not_drop() {
    for mode in ["poll", "stream"] {
        let registry = poisoned(3, 20, 50).await;
        let daemon = registry.daemon(mode, &[("GOV_HANDOFF_RECONCILE_INTERVAL", "1h")]);
        registry.until_mode(mode).await;
        registry.sql(BIRTHS).await;
        wait("the poison is dead-lettered", async || registry.number(LETTERS).await == 1).await;
        let letter =
            "select route_code || ' ' || (event_snapshot ->> 'canonical_address') || ' ' || failure_code
                             || ' ' || attempts || ' ' || failure_detail from iu_route_dead_letter";
        let said = registry.text(letter).await.expect("a letter");
        assert_eq!(
            said,
            "birth_registry c:poison refused_by_database 3 refused by the database (23514, constraint no_poison)"
        );
        // The sweep completed: everything else is handed off, and nothing waits.
        registry.until_all_handed_off().await;
        assert_eq!(registry.number("select count(*) from verify.handoffs").await, 99, "{mode}");
        assert_eq!(registry.number(STAGED).await, 0, "{mode}");
        let counted = "select dead_lettered from gov_worker_cursor
                        where worker_name = 'gov_handoff_intake' and source_name = 'birth_registry'";
        assert_eq!(registry.number(counted).await, 1);
        assert_eq!(finding(&registry, "handoff_dlq:birth_registry").await.as_deref(), Some("high"));
        assert_eq!(finding(&registry, "cursor_dlq:gov_handoff_intake").await.as_deref(), Some("high"));
        if mode == "stream" {
            registry.until_stream_is_past_now().await;
        }
        // Visible, and accounted for.
        let status = crate::support::process::run(&registry.url, &["status"]).await;
        let status = String::from_utf8_lossy(&status.stdout).into_owned();
        assert!(status.contains("0 to be retried, 1 dead letters"), "{status}");
        drop(daemon);
        done(&registry.url, &["audit", "--full", "--check"]).await;
        registry.drop_slots().await;
    }
}

#[tokio::test]
async fn a_staged_row_holds_nothing_up_is_accounted_for_and_is_handed_off_once_the_cause_is_mended() {
    for mode in ["poll", "stream"] {
        let registry = poisoned(1_000, 20, 50).await;
        let daemon = registry.daemon(mode, &[("GOV_HANDOFF_RECONCILE_INTERVAL", "1h")]);
        registry.until_mode(mode).await;
        registry.sql(BIRTHS).await;
        let tried = "select coalesce(max(error_count), 0)::bigint from event_pending where event_type_hint = 'governance.handoff.retry'";
        wait("it was tried again", async || registry.number(tried).await >= 3).await;
        assert_eq!(registry.number("select count(*) from verify.handoffs").await, 99, "{mode}: its batch");
        // A poison row that is the last of its source: the watermark moves past it all the same.
        registry
            .sql("insert into birth_registry (entity_code, collection_name) values ('poison too', 'c')")
            .await;
        wait("both are staged", async || registry.number(STAGED).await == 2).await;
        let past = "select count(*) from gov_worker_cursor where source_name = 'birth_registry' and worker_name = 'gov_handoff_intake'
                       and last_watermark_id = (select max(id)::text from birth_registry)";
        wait("the watermark is past it", async || registry.number(past).await == 1).await;
        // The slot too: the position past the poison is durable, whatever becomes of the row.
        if mode == "stream" {
            registry.until_stream_is_past_now().await;
        }
        // What is staged is its address and the reason, and nothing of it is missing or a signal without a row.
        let staged = "select string_agg(canonical_address || ' ' || last_error, ', ' order by canonical_address)
                        from event_pending where event_type_hint = 'governance.handoff.retry' and process_after is not null";
        let refused = "refused by the database (23514, constraint no_poison)";
        assert_eq!(
            registry.text(staged).await.expect("staged"),
            format!("c:poison {refused}, c:poison too {refused}")
        );
        done(&registry.url, &["audit", "--full", "--check"]).await;
        done(&registry.url, &["audit", "--check"]).await;
        // Activation drains captures, and a staged row is none.
        done(&registry.url, &["types", "activate", "--all"]).await;
        assert_eq!(registry.number(STAGED).await, 2, "{mode}");
        registry.sql(CURE).await;
        wait("it is handed off", async || registry.number(STAGED).await == 0).await;
        registry.until_all_handed_off().await;
        let by = "select count(*) from verify.handoffs where safe_payload ->> 'captured_by' = 'retry'";
        assert_eq!(registry.number(by).await, 2, "{mode}");
        assert_eq!(registry.number("select count(*) from iu_route_dead_letter").await, 0, "{mode}");
        let seen = "select events_seen - (select count(*) from birth_registry) from gov_worker_cursor
                     where source_name = 'birth_registry' and worker_name = 'gov_handoff_intake'";
        assert_eq!(registry.number(seen).await, 0, "{mode}: each row counts as seen once");
        drop(daemon);
        registry.drop_slots().await;
    }
}

#[tokio::test]
async fn a_staged_row_that_vanishes_from_its_source_is_a_dead_letter_that_says_so() {
    let registry = poisoned(4, 1_000, 1_000).await;
    registry.sql(BIRTHS).await;
    let daemon = registry.daemon("poll", &[]);
    wait("it is staged", async || registry.number(STAGED).await == 1).await;
    registry.sql("delete from birth_registry where entity_code = 'poison'").await;
    wait("it is dead-lettered", async || registry.number(LETTERS).await == 1).await;
    let said = registry.text("select failure_code || ': ' || failure_detail from iu_route_dead_letter").await;
    assert_eq!(
        said.expect("a letter"),
        "source_row_vanished: the row is no longer in its source; before that: \
         refused by the database (23514, constraint no_poison)"
    );
    assert_eq!(registry.number(STAGED).await, 0);
    drop(daemon);
}

#[tokio::test]
async fn a_contract_violation_is_refused_at_once_and_never_retried() {
    let registry = poisoned(1_000, 1, 1).await;
    registry
        .sql("insert into registry_changelog (entity_type, entity_code, action) values (' ', 'x', 'retire')")
        .await;
    done(&registry.url, &["run", "--once", "--mode", "poll"]).await;
    let said = registry.text("select failure_code || ' ' || attempts from iu_route_dead_letter").await;
    assert_eq!(said.as_deref(), Some("blank_reference 1"));
    assert_eq!(registry.number(STAGED).await, 0);
}

#[tokio::test]
async fn a_single_run_gives_every_chance_at_once_and_a_policy_that_cannot_be_used_falls_back() {
    let db = migrated().await;
    done(&db.url, &["types", "activate", "--all"]).await;
    db.client.batch_execute(POISON).await.expect("a constraint");
    db.client
        .batch_execute(
            "update dot_config set value = 'many' where key = 'event.retry.max_attempts';
                        update dot_config set value = '-1' where key = 'event.retry.cap_ms'",
        )
        .await
        .expect("nonsense");
    db.client.batch_execute(BIRTHS).await.expect("births");
    let begun = std::time::Instant::now();
    done(&db.url, &["run", "--once", "--mode", "poll"]).await;
    assert!(begun.elapsed().as_secs() < 20, "it waits for nothing");
    assert_eq!(text(&db.client, "select attempts::text from iu_route_dead_letter").await, "5");
    assert_eq!(number(&db.client, SIGNALS).await, 99);
    let open = "select coalesce_key from system_issues where issue_kind = 'config_invalid' and resolved_at is null order by 1";
    assert_eq!(
        texts(&db.client, open).await,
        ["config_invalid:event.retry.cap_ms", "config_invalid:event.retry.max_attempts"]
    );
    // Mended: the next row is judged by it, and the finding ends.
    db.client.batch_execute(&policy(2, 1, 1)).await.expect("a policy");
    db.client
        .batch_execute("insert into birth_registry (entity_code, collection_name) values ('poison 2', 'c')")
        .await
        .expect("a birth");
    done(&db.url, &["run", "--once", "--mode", "poll"]).await;
    assert_eq!(texts(&db.client, open).await, Vec::<String>::new());
    assert_eq!(number(&db.client, "select count(*) from iu_route_dead_letter where attempts = 2").await, 1);
}

#[tokio::test]
async fn killed_between_any_two_steps_of_a_retry_nothing_is_missing_and_nothing_twice() {
    for mode in ["poll", "stream"] {
        // Refused for good: killed before the reader moves, before and after the letter.
        let registry = poisoned(2, 1, 1).await;
        registry.sql(BIRTHS).await;
        for (n, failpoint) in
            ["after_bisect:1", "retry_before_letter:1", "retry_after_letter:1"].iter().enumerate()
        {
            registry.daemon(mode, &[("GOV_HANDOFF_FAILPOINT", failpoint)]).end(failpoint).await;
            let (staged, letters) = (registry.number(STAGED).await, registry.number(LETTERS).await);
            let expected = if n < 2 { (1, 0) } else { (0, 1) };
            assert_eq!((staged, letters), expected, "{mode} {failpoint}: in one of the two, never in both");
        }
        let daemon = registry.daemon(mode, &[]);
        registry.until_all_handed_off().await;
        assert_eq!(registry.number("select count(*) from iu_route_dead_letter").await, 1, "{mode}");
        assert_eq!(registry.number(STAGED).await, 0, "{mode}");
        let counted = "select sum(dead_lettered)::bigint from gov_worker_cursor";
        assert_eq!(registry.number(counted).await, 1, "{mode}");
        drop(daemon);
        registry.drop_slots().await;
    }
    // Accepted at last: killed when the signal is recorded and the row still staged.
    let registry = poisoned(1_000, 1, 1).await;
    registry.sql(BIRTHS).await;
    registry.daemon("poll", &[("GOV_HANDOFF_FAILPOINT", "after_bisect:1")]).end("after_bisect").await;
    registry.sql(CURE).await;
    registry
        .daemon("poll", &[("GOV_HANDOFF_FAILPOINT", "retry_after_apply:1")])
        .end("retry_after_apply")
        .await;
    assert_eq!(registry.number(STAGED).await, 1);
    let daemon = registry.daemon("poll", &[]);
    wait("it leaves the staging", async || registry.number(STAGED).await == 0).await;
    registry.until_all_handed_off().await;
    assert_eq!(registry.number("select count(*) from verify.handoffs").await, 100);
    drop(daemon);
}

#[tokio::test]
async fn live_tables_of_an_older_shape_retry_and_dead_letter_too() {
    let db = adopted().await;
    done(&db.url, &["migrate"]).await;
    done(&db.url, &["types", "activate", "--all"]).await;
    db.client.batch_execute(POISON).await.expect("a constraint");
    db.client.batch_execute(&policy(3, 30, 30)).await.expect("a policy");
    db.client.batch_execute(BIRTHS).await.expect("births");
    let mut daemon = crate::support::Daemon::running(&db, "poll", &[]).await;
    until(&db.client, &format!("select ({LETTERS}) = 1")).await;
    assert_eq!(text(&db.client, "select attempts::text from iu_route_dead_letter").await, "3");
    assert_eq!(daemon.sigterm(), 0);
    db.client.batch_execute(CURE).await.expect("a cure");
    done(&db.url, &["dlq", "replay", "--all", "--actor", "huyen"]).await;
    let by = "select resolution || ' ' || (event_snapshot #>> '{resolution,by}') from iu_route_dead_letter";
    assert_eq!(text(&db.client, by).await, "replayed huyen");
    assert_eq!(number(&db.client, SIGNALS).await, 100);
}

#[tokio::test]
async fn the_depth_of_the_dead_letters_raises_the_severity() {
    let registry = poisoned(1, 1, 1).await;
    registry.sql("update dot_config set value = '2' where key = 'event.dlq.overflow'").await;
    let births = async |n: u32| {
        registry
            .sql(&format!(
                "insert into birth_registry (entity_code, collection_name) select 'poison' || g, 'c' from generate_series(1, {n}) g"
            ))
            .await;
        done(&registry.url, &["run", "--once", "--mode", "poll"]).await;
        finding(&registry, "handoff_dlq_overflow").await
    };
    assert_eq!(births(2).await, None);
    assert_eq!(births(1).await.as_deref(), Some("high"));
    assert_eq!(births(16).await.as_deref(), Some("high"));
    assert_eq!(births(1).await.as_deref(), Some("critical"), "ten times the limit");
    // Down to the limit it is over; down to nothing so is the other.
    let ids = "select id::text from iu_route_dead_letter order by first_failed_at, id limit 18";
    let ids: Vec<String> =
        registry.client.query(ids, &[]).await.expect("ids").iter().map(|r| r.get(0)).collect();
    let mut arguments = vec!["dlq", "discard", "--reason", "made for a test"];
    ids.iter().for_each(|id| arguments.extend(["--id", id]));
    done(&registry.url, &arguments).await;
    assert_eq!(finding(&registry, "handoff_dlq_overflow").await, None);
    assert_eq!(finding(&registry, "handoff_dlq:birth_registry").await.as_deref(), Some("high"));
    done(&registry.url, &["dlq", "supersede", "--all", "--reason", "made for a test"]).await;
    assert_eq!(finding(&registry, "handoff_dlq:birth_registry").await, None);
    assert_eq!(finding(&registry, "cursor_dlq:gov_handoff_intake").await, None);
}

/// Three poison births among others, dead-lettered; the types are active.
async fn with_letters() -> TestDb {
    let db = migrated().await;
    done(&db.url, &["types", "activate", "--all"]).await;
    db.client.batch_execute(POISON).await.expect("a constraint");
    db.client.batch_execute(&policy(1, 1, 1)).await.expect("a policy");
    db.client
        .batch_execute(
            "insert into birth_registry (id, entity_code, collection_name)
             values (1, 'poison a', 'c'), (2, 'fine', 'c'), (3, 'poison b', 'c'), (4, 'poison c', 'c');
             insert into registry_changelog (id, entity_type, entity_code, action) values (1, ' ', 'x', 'retire')",
        )
        .await
        .expect("rows");
    done(&db.url, &["run", "--once", "--mode", "poll"]).await;
    assert_eq!(number(&db.client, LETTERS).await, 4);
    db
}

async fn letter_of(db: &TestDb, key: i32) -> String {
    text(
        &db.client,
        &format!("select id::text from iu_route_dead_letter where idempotency_key = 'birth_registry:{key}'"),
    )
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
    assert_eq!(number(&db.client, attempts).await, 3);
    db.client.batch_execute(CURE).await.expect("a cure");
    done(&db.url, &["run", "--once", "--mode", "poll"]).await;
    assert_eq!(number(&db.client, LETTERS).await, 4);
    done(&db.url, &["audit", "--full"]).await;
    assert_eq!(number(&db.client, SIGNALS).await, 1);

    let dry = done(&db.url, &["dlq", "replay", "--source", "birth_registry", "--dry-run"]).await;
    assert!(dry.contains("nothing was changed"), "{dry}");
    assert_eq!(number(&db.client, SIGNALS).await, 1);
    let one = letter_of(&db, 3).await;
    done(&db.url, &["dlq", "replay", "--id", &one, "--actor", "huyen", "--reason", "mended"]).await;
    let identity = "select (id = gov_handoff_identity('birth_registry', 'int4', '3', 'governance.handoff.object_born'))::text
                      from event_outbox where safe_payload ->> 'source_key' = '3'";
    assert_eq!(text(&db.client, identity).await, "true");
    let closed = format!(
        "select resolution || ' ' || resolved_by || ' ' || (event_snapshot #>> '{{resolution,reason}}')
                            from iu_route_dead_letter where id = '{one}'"
    );
    assert_eq!(text(&db.client, &closed).await, "replayed huyen mended");
    assert_eq!(number(&db.client, LETTERS).await, 3);
    // Once more: it is not open any more.
    let again = cli(&db.url, &["dlq", "replay", "--id", &one]).await;
    assert!(again.code == 1 && again.err.contains("no open dead letter"), "{}{}", again.out, again.err);
    // The rest in bulk; the one that violates the contract stays.
    let rest = cli(&db.url, &["dlq", "replay", "--all", "--json"]).await;
    assert_eq!(rest.code, 1, "{}", rest.err);
    let said: serde_json::Value = serde_json::from_str(&rest.out).expect("json");
    assert_eq!(said["replayed"].as_array().map(Vec::len), Some(2), "{said}");
    assert_eq!(said["failed"][0]["code"], "blank_reference", "{said}");
    assert_eq!(number(&db.client, SIGNALS).await, 4);
    let marks = "select sum(changes)::bigint from gov_candidate_group";
    assert_eq!(number(&db.client, marks).await, 4, "each marks its group once");
    let open =
        "select coalesce_key from system_issues where issue_kind = 'handoff_dlq' and resolved_at is null";
    assert_eq!(texts(&db.client, open).await, ["handoff_dlq:registry_changelog"]);
    // A replayed letter vouches for nothing: a signal that is lost since is missing.
    db.client
        .batch_execute("delete from event_outbox where safe_payload ->> 'source_key' = '3'")
        .await
        .expect("a loss");
    assert_eq!(cli(&db.url, &["audit", "--full", "--check"]).await.code, 1);
    done(&db.url, &["run", "--once", "--mode", "poll"]).await;
    assert_eq!(cli(&db.url, &["audit", "--full"]).await.code, 1);
    assert_eq!(number(&db.client, SIGNALS).await, 4);
}

#[tokio::test]
async fn a_replay_killed_before_it_closes_its_letter_is_finished_by_the_next() {
    let db = with_letters().await;
    db.client.batch_execute(CURE).await.expect("a cure");
    let one = letter_of(&db, 1).await;
    let killed = cli_with(
        &db.url,
        &["dlq", "replay", "--id", &one],
        &[("GOV_HANDOFF_FAILPOINT", "replay_after_apply:1")],
    )
    .await;
    assert_eq!(killed.code, -1, "{}{}", killed.out, killed.err);
    assert_eq!((number(&db.client, SIGNALS).await, number(&db.client, LETTERS).await), (2, 4));
    db.client.batch_execute("update gov_candidate_group set dirty = false").await.expect("scan");
    db.client
        .batch_execute("update queue_heartbeat set lease_owner = null")
        .await
        .expect("its lease expires");
    done(&db.url, &["dlq", "replay", "--id", &one]).await;
    assert_eq!((number(&db.client, SIGNALS).await, number(&db.client, LETTERS).await), (2, 3));
    assert_eq!(number(&db.client, "select count(*) from gov_candidate_group where dirty").await, 0);
    // The gate believes nobody: a letter whose signals are not recorded is not replayed.
    let lie = format!(
        "select gov_dead_letter_replayed('w', 'o', 1, '{}', array[gen_random_uuid()], null, null)",
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
    assert_eq!(number(&db.client, LETTERS).await, 4);
    done(&db.url, &["dlq", "discard", "--id", &one, "--reason", "a test row", "--actor", "huyen"]).await;
    done(&db.url, &["dlq", "supersede", "--source", "birth_registry", "--reason", "written again"]).await;
    let how = "select string_agg(resolution || ' by ' || resolved_by || ': ' || (event_snapshot #>> '{resolution,reason}'), ', '
                                 order by idempotency_key) from iu_route_dead_letter where resolved_at is not null";
    assert_eq!(
        text(&db.client, how).await,
        "discarded by huyen: a test row, superseded by postgres: written again, superseded by postgres: written again"
    );
    let audit = "select string_agg(action || ' ' || actor_ref, ', ' order by id) from registry_changelog
                  where source_system = 'gov-handoff' and action like 'dead\\_letter\\_%'";
    assert_eq!(
        text(&db.client, audit).await,
        "dead_letter_discarded huyen, dead_letter_superseded postgres, dead_letter_superseded postgres"
    );
    let open =
        "select coalesce_key from system_issues where issue_kind = 'handoff_dlq' and resolved_at is null";
    assert_eq!(texts(&db.client, open).await, ["handoff_dlq:registry_changelog"]);
    // Decided about is decided: neither a run nor an audit hands them off, or makes a letter of them again.
    db.client.batch_execute(CURE).await.expect("a cure");
    db.client.batch_execute("delete from gov_worker_frontier").await.expect("look at everything again");
    done(&db.url, &["audit", "--full"]).await;
    assert_eq!((number(&db.client, SIGNALS).await, number(&db.client, LETTERS).await), (1, 1));
    let empty = done(&db.url, &["dlq", "replay", "--source", "birth_registry"]).await;
    assert_eq!(empty, "no open dead letters match; nothing to do\n");
    assert_eq!(done(&db.url, &["dlq", "list", "--all"]).await.lines().count(), 5);
}

#[tokio::test]
async fn the_operators_role_decides_about_letters_and_the_workers_does_not() {
    let db = with_letters().await;
    let roles = include_str!("../replication/roles.sql");
    let (operator, worker) = (format!("operator_{}", db.name), format!("dlq_worker_{}", db.name));
    db.client
        .batch_execute(&format!(
            "create role {operator} login in role gov_handoff_operator; create role {worker} login in role gov_handoff_worker; {roles}"
        ))
        .await
        .expect("roles");
    let theirs = cli(&db.url_as(&worker), &["dlq", "discard", "--all", "--reason", "r"]).await;
    assert!(theirs.code == 2 && theirs.err.contains("permission denied"), "{}", theirs.err);
    db.client.batch_execute(CURE).await.expect("a cure");
    let (a, b) = (letter_of(&db, 1).await, letter_of(&db, 3).await);
    let url = db.url_as(&operator);
    done(&url, &["dlq", "list"]).await;
    done(&url, &["dlq", "show", &a]).await;
    done(&url, &["dlq", "discard", "--id", &a, "--reason", "r"]).await;
    done(&url, &["dlq", "replay", "--id", &b]).await;
    let failed = cli(&url, &["dlq", "replay", "--code", "blank_reference"]).await;
    assert_eq!(failed.code, 1, "{}{}", failed.out, failed.err);
    done(&url, &["dlq", "supersede", "--all", "--reason", "r"]).await;
    assert_eq!(number(&db.client, LETTERS).await, 0);
    let by = format!("select count(*) from iu_route_dead_letter where resolved_by = '{operator}'");
    assert_eq!(number(&db.client, &by).await, 4);
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

/// A gate that locked the cursor first and one that locked the lease first would now and then wait for each other.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_locks_the_lease_and_a_cursor_locks_the_lease_first() {
    let db = migrated().await;
    let gates = [
        "select gov_dead_letter_put('gov_handoff_intake', 'me', 1, 'birth_registry', gen_random_uuid(), gen_random_uuid(), \
         'birth_registry:1', 'x', 'x', 1, '{}')",
        "select gov_certificate_put('gov_handoff_intake', 'me', 1, 'gov_handoff_intake', 'birth_registry', '{}', true)",
    ];
    let owner = connect(&db.url).await;
    owner
        .batch_execute("select gov_lease_claim('gov_handoff_intake', 'me', '1 minute')")
        .await
        .expect("a lease");
    for gate in gates {
        let cursor = connect(&db.url).await;
        let held = "begin; select from gov_worker_cursor where source_name = 'birth_registry' for update";
        cursor.batch_execute(held).await.expect("the cursor's row");
        let (url, statement) = (db.url.clone(), gate.to_owned());
        let waiting = tokio::spawn(async move { connect(&url).await.batch_execute(&statement).await });
        let waits = "select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' \
                     and query like 'select gov%')";
        until(&db.client, waits).await;
        let lease =
            "select from queue_heartbeat where executor_name = 'gov_handoff_intake' for update nowait";
        let busy = db.client.batch_execute(lease).await.expect_err("the lease is locked before the cursor");
        assert_eq!(busy.code().map(tokio_postgres::error::SqlState::code), Some("55P03"), "{gate}: {busy}");
        cursor.batch_execute("rollback").await.expect("the cursor's row is free");
        waiting.await.expect("a task").expect(gate);
    }
}
