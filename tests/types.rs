//! Register before emit: what an inactive type captures, what activation lets out, and that nothing comes twice.

use crate::dead_letters::{CURE, LETTERS, POISON, policy};
use crate::support::fixture::{ALL_KINDS, SIGNALS, TEN, UNMAPPED};
use crate::support::{Daemon, Database, cli, connect, done, migrated};

const GOVERNANCE: &str =
    "select count(*) from event_outbox where event_domain = 'governance' and event_stream <> 'health'";
const WAITING: &str = "select count(*) from event_pending where event_type_hint <> 'governance.handoff.certified' and processed_at is null";

/// Makes the poller read every row again, as if none had ever been seen.
async fn forget_the_ranges(db: &Database) {
    let forget = "delete from gov_worker_gap; delete from gov_worker_frontier;
                  insert into gov_worker_gap (worker_name, source_name, lo, hi)
                  select worker_name, source_name, -2147483648, 2147483647 from gov_worker_cursor
                   where metadata #>> '{id,type}' = 'int4'";
    db.client.batch_execute(forget).await.expect("forget");
}

#[tokio::test]
async fn inactive_types_are_captured_with_one_finding_each_and_drained_under_the_same_identities() {
    let db = migrated().await;
    db.client.batch_execute(ALL_KINDS).await.expect("the fixture");
    done(&db.url, &["run", "--mode", "poll", "--once"]).await;
    assert_eq!(db.number(GOVERNANCE).await, 0);
    assert_eq!(db.number(WAITING).await, SIGNALS + UNMAPPED);
    // Once more over everything: still one finding for each type, seen once.
    forget_the_ranges(&db).await;
    done(&db.url, &["run", "--mode", "poll", "--once"]).await;
    assert_eq!(db.number(WAITING).await, SIGNALS + UNMAPPED);
    let findings = "select replace(detail ->> 'event_type', 'governance.handoff.', '') from system_issues
                     where issue_kind = 'handoff_unregistered_type' and resolved_at is null and occurrence_count = 1 order by 1";
    let mut expected = TEN.to_vec();
    expected.push("unmapped");
    assert_eq!(db.texts(findings).await, expected);
    assert_eq!(db.number("select count(*) from system_issues").await, 11);

    let captured = "select id::text from event_pending where event_type_hint <> 'governance.handoff.certified' and last_error is null order by 1";
    let before = db.texts(captured).await;
    // Whatever scanned the groups meanwhile: letting old handoffs out is no news of them.
    db.client
        .batch_execute(
            "update gov_candidate_group set dirty = false; update gov_candidate_state set dirty = false",
        )
        .await
        .expect("scan");
    done(&db.url, &["types", "activate", "--all"]).await;
    let signals = "select id::text from event_outbox where event_domain = 'governance' and event_stream <> 'health' order by 1";
    assert_eq!(db.texts(signals).await, before);
    let same = "select count(*) from event_outbox o join event_pending p using (id)
                 where o.event_type = p.event_type_hint and o.event_subject_ref = p.entity_ref
                   and o.safe_payload = p.capture_payload - 'event_stream' - 'event_severity'
                   and o.occurred_at = (p.capture_payload ->> 'occurred_at')::timestamptz
                   and o.event_severity is not distinct from p.capture_payload ->> 'event_severity'";
    assert_eq!(db.number(same).await, SIGNALS);
    assert_eq!(db.number(WAITING).await, UNMAPPED, "what no rule knows stays where it is");
    let open = "select count(*) from system_issues where issue_kind = 'handoff_unregistered_type' and resolved_at is null";
    assert_eq!(db.number(open).await, 1, "only the unmapped rows are still a finding");
    let dirty = "select (select count(*) from gov_candidate_group where dirty) + (select count(*) from gov_candidate_state where dirty)";
    assert_eq!(db.number(dirty).await, 0, "the drain marks nothing");

    // Delivered again, active and then inactive: nothing is recorded, captured or marked.
    for word in ["activate", "deactivate"] {
        done(&db.url, &["types", word, "--all"]).await;
        for source in ["birth_registry", "registry_changelog", "pivot_definitions", "governance_ruleset"] {
            done(&db.url, &["replay", "--source", source, "--from", "-2147483648"]).await;
        }
        forget_the_ranges(&db).await;
        // A daemon, not `--once`: it delivers without asking first what is missing.
        let mut daemon = Daemon::running(&db, "poll", &[]).await;
        db.until("select not exists (select from gov_worker_gap where hi - lo = 4294967295)").await;
        assert_eq!(daemon.sigterm().await, 0);
        assert_eq!(db.texts(signals).await, before, "{word}");
        assert_eq!(
            db.number(
                "select count(*) from event_pending where event_type_hint <> 'governance.handoff.certified'"
            )
            .await,
            SIGNALS + UNMAPPED,
            "{word}"
        );
        assert_eq!(db.number(WAITING).await, UNMAPPED, "{word}");
        assert_eq!(db.number(dirty).await, 0, "{word}: a group that was scanned clean stays clean");
        assert_eq!(db.number(open).await, 1, "{word}");
    }
}

#[tokio::test]
async fn what_is_in_the_outbox_is_not_captured_when_its_type_is_taken_out_of_service() {
    let db = migrated().await;
    done(&db.url, &["types", "activate", "--all"]).await;
    db.client.batch_execute(ALL_KINDS).await.expect("the fixture");
    done(&db.url, &["run", "--mode", "poll", "--once"]).await;
    assert_eq!(db.number(GOVERNANCE).await, SIGNALS);
    db.client.batch_execute("update gov_candidate_group set dirty = false").await.expect("scan");
    done(&db.url, &["types", "deactivate", "--all"]).await;
    forget_the_ranges(&db).await;
    let mut daemon = Daemon::running(&db, "poll", &[]).await;
    db.until("select not exists (select from gov_worker_gap where hi - lo = 4294967295)").await;
    // A new birth is captured; what was emitted stays as it is.
    db.client
        .batch_execute(
            "insert into birth_registry (id, entity_code, collection_name) values (100, 'new', 'fresh')",
        )
        .await
        .expect("a birth");
    db.until(&format!("select count(*) > {UNMAPPED} from event_pending where event_type_hint <> 'governance.handoff.certified'")).await;
    assert_eq!(daemon.sigterm().await, 0);
    assert_eq!(
        db.number(
            "select count(*) from event_pending where event_type_hint <> 'governance.handoff.certified'"
        )
        .await,
        UNMAPPED + 1
    );
    assert_eq!(db.number(GOVERNANCE).await, SIGNALS);
    let dirty = "select dims ->> 'object_class' from gov_candidate_group where dirty";
    assert_eq!(db.texts(dirty).await, ["fresh"]);
}

#[tokio::test]
async fn a_daemon_that_streams_drains_what_an_activation_lets_out() {
    let db = migrated().await;
    let daemon = Daemon::running(&db, "stream", &[("GOV_HANDOFF_LEASE_TTL", "1s")]).await;
    db.client.batch_execute(ALL_KINDS).await.expect("the fixture");
    db.until(&format!(
        "select count(*) = {} from event_pending where event_type_hint <> 'governance.handoff.certified'",
        SIGNALS + UNMAPPED
    ))
    .await;
    // As an operator's SQL would: without the command, which drains by itself.
    let activate = "select gov_handoff.gov_type_set_active('governance.handoff.object_born', true)";
    db.client.query_one(activate, &[]).await.expect("activate");
    db.until("select count(*) = 5 from event_outbox where event_domain = 'governance' and event_stream <> 'health'").await;
    db.until(&format!(
            "select count(*) = {} from event_pending where event_type_hint <> 'governance.handoff.certified' and processed_at is null",
            SIGNALS + UNMAPPED - 5
        ),
    )
    .await;
    drop(daemon);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_certificates_that_nobody_asked_for_the_latest_of_each_source_waits() {
    let db = migrated().await;
    let quick = [("GOV_HANDOFF_LEASE_TTL", "1s"), ("GOV_HANDOFF_CERTIFY_INTERVAL", "100ms")];
    let mut daemon = Daemon::running(&db, "poll", &quick).await;
    let kept =
        "select count(*) from registry_changelog where source_system = 'gov-handoff' and action = 'certified'
                 and entity_code = 'birth_registry'";
    let waiting = "select count(*) from event_pending where event_type_hint = 'governance.handoff.certified' and processed_at is null";
    let emitted = "select count(*) from event_outbox where event_type = 'governance.handoff.certified' and event_subject_table = 'birth_registry'";
    for again in 0..2 {
        for round in 1..=3 {
            // A certificate that says something new is one for the history.
            let (before, insert) = (
                db.number(kept).await,
                "insert into birth_registry (entity_code, collection_name) values ('a', 'c')",
            );
            db.client.batch_execute(insert).await.expect("a birth");
            db.until(&format!("select ({kept}) > {before}")).await;
            let of_births = format!("{waiting} and entity_table = 'birth_registry'");
            assert_eq!(db.number(&of_births).await, 1, "round {round}");
            assert!(db.number(waiting).await <= 5, "one of each source");
        }
        let latest = "select exists (select from event_pending p join gov_worker_cursor c on c.source_name = p.entity_table
              where p.event_type_hint = 'governance.handoff.certified' and p.processed_at is null and c.source_name = 'birth_registry'
                and (p.capture_payload ->> 'frontier')::bigint >= all (select (o.safe_payload ->> 'frontier')::bigint from event_outbox o
                       where o.event_type = 'governance.handoff.certified' and o.event_subject_table = 'birth_registry'))";
        assert_eq!(db.text(&format!("select ({latest})::text")).await, "true");
        assert!(done(&db.url, &["certificates"]).await.contains("birth_registry"));
        // Deactivated and activated once more: the next to wait is another one.
        done(&db.url, &["types", "activate", "certified"]).await;
        assert_eq!(db.number(waiting).await, 0);
        done(&db.url, &["types", "deactivate", "certified"]).await;
        assert!(db.number(emitted).await > again, "let out when asked for");
    }
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_captured_row_that_the_outbox_refuses_holds_up_no_other() {
    let db = migrated().await;
    db.sql(&policy(3, 1, 1)).await;
    db.sql(
        "insert into birth_registry (entity_code, collection_name, status)
         select case when g = 7 then 'poison' else 'e' || g end, 'laws', 'registered' from generate_series(1, 20) g",
    )
    .await;
    done(&db.url, &["run", "--mode", "poll", "--once"]).await;
    assert_eq!(db.number(WAITING).await, 40);
    db.sql(POISON).await;
    db.sql("update gov_candidate_group set dirty = false; update gov_candidate_state set dirty = false")
        .await;
    // Of two types, so that the first does not hold up the second.
    let activated = cli(&db.url, &["types", "activate", "object_born", "object_registered"]).await;
    assert_eq!(activated.code, 1, "{}{}", activated.out, activated.err);
    assert_eq!(activated.out.matches("19 captured handoffs drained").count(), 2, "{}", activated.out);
    assert_eq!(activated.out.matches("1 were refused by the outbox").count(), 2, "{}", activated.out);
    assert_eq!(db.number(GOVERNANCE).await, 38);
    let staged = "select last_error from event_pending where event_type_hint = 'governance.handoff.retry'";
    assert_eq!(
        db.texts(staged).await,
        ["refused by the database (23514, constraint no_poison)"],
        "one row, whatever it comes to"
    );
    // The daemon gives it its further chances; then it is a letter, and nothing waits for a type any more.
    let mut daemon = Daemon::running(&db, "poll", &[]).await;
    db.until(&format!("select ({LETTERS}) = 1 and ({WAITING}) = 0")).await;
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
    done(&db.url, &["audit", "--full", "--check"]).await;
    db.sql(CURE).await;
    done(&db.url, &["dlq", "replay", "--all"]).await;
    assert_eq!(db.number(GOVERNANCE).await, 40);
    let dirty = "select count(*) from gov_candidate_group where dirty";
    assert_eq!(db.number(dirty).await, 0, "it was marked when it was captured, and scanned since");
}

#[tokio::test]
async fn a_refused_capture_whose_cause_is_mended_is_let_out_and_marks_nothing_again() {
    let db = migrated().await;
    db.sql(
        "insert into birth_registry (entity_code, collection_name) values ('poison', 'laws'), ('e', 'laws')",
    )
    .await;
    done(&db.url, &["run", "--mode", "poll", "--once"]).await;
    db.sql(POISON).await;
    db.sql("update gov_candidate_group set dirty = false; update gov_candidate_state set dirty = false")
        .await;
    assert_eq!(cli(&db.url, &["types", "activate", "object_born"]).await.code, 1);
    db.sql(CURE).await;
    done(&db.url, &["run", "--mode", "poll", "--once"]).await;
    assert_eq!((db.number(GOVERNANCE).await, db.number(WAITING).await), (2, 0));
    assert_eq!(db.number("select count(*) from gov_candidate_group where dirty").await, 0);
}

#[tokio::test]
async fn who_drains_or_promotes_is_the_holder_of_a_fresh_lease_or_an_operator() {
    let db = migrated().await;
    let drain = |lease: &str| {
        format!("select gov_handoff.gov_handoff_drain({lease}, 'governance.handoff.object_born', 10)")
    };
    let promote = |lease: &str| format!("select gov_handoff.gov_trust_promote({lease}, 10)");
    for role in ["worker", "operator"] {
        let create = format!("create role drains_{role}_{0} login in role gov_handoff_{role}", db.name);
        db.sql(&create).await;
    }
    let worker = connect(&db.url_as(&format!("drains_worker_{}", db.name))).await;
    let code = async |statement: &str| {
        let refused = worker.batch_execute(statement).await.expect_err(statement);
        refused.code().map(|c| c.code().to_owned()).unwrap_or_default()
    };
    let claim =
        |ttl: &str| format!("select gov_handoff.gov_lease_claim('gov_handoff_intake', 'me', '{ttl}')");
    worker.batch_execute(&claim("1 minute")).await.expect("a lease");
    let (held, former) = ("'gov_handoff_intake', 'me', 1", "'gov_handoff_intake', 'other', 1");
    for gate in [drain(held), promote(held)] {
        worker.batch_execute(&gate).await.expect("the holder");
    }
    for gate in [drain(former), promote(former)] {
        assert_eq!(code(&gate).await, "GH001", "{gate}");
    }
    for gate in [drain("null, null, null"), promote("'gov_handoff_intake', null, null")] {
        assert_eq!(code(&gate).await, "42501", "{gate}");
        let operator = connect(&db.url_as(&format!("drains_operator_{}", db.name))).await;
        operator.batch_execute(&gate).await.expect("an operator");
    }
    // Expired, though nobody took it: not renewed, not fenced through, and claimed again under another term.
    db.sql("update queue_heartbeat set last_tick_at = clock_timestamp() - interval '2 minutes'").await;
    assert_eq!(code(&drain(held)).await, "GH001");
    let renewed = "select gov_handoff.gov_lease_renew('gov_handoff_intake', 'me', 1)::text";
    assert_eq!(db.text(renewed).await, "false");
    worker.batch_execute(&claim("1 minute")).await.expect("a new term");
    let term = "select metadata ->> 'term' from queue_heartbeat where executor_name = 'gov_handoff_intake'";
    assert_eq!(db.text(term).await, "2");
    assert_eq!(code(&drain(held)).await, "GH001");
    worker.batch_execute(&drain("'gov_handoff_intake', 'me', 2")).await.expect("the holder");
}
