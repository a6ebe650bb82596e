//! Trust: who is believed is the operator's to say; what an unknown producer writes is captured, visible, and dirties nothing.

use crate::support::sources::register;
use crate::support::{Daemon, Database, cli, connect, done, migrated, until};

const SIGNALS: &str =
    "select count(*) from event_outbox where event_domain = 'governance' and event_stream <> 'health'";
const UNTRUSTED: &str =
    "select count(*) from event_pending where last_error = 'untrusted_source' and processed_at is null";
const STAGED: &str = "select count(*) from event_pending where event_type_hint = 'governance.handoff.retry'";
const OPEN: &str = "select coalesce_key from system_issues where issue_kind = 'untrusted_source' and resolved_at is null order by 1";

/// The births believe `importer` and nobody else.
async fn choosy() -> Database {
    let db = migrated().await;
    let sources = include_str!("../replication/sources.toml").replacen(
        "actor_ref = \"actor_ref\"\n",
        "actor_ref = \"actor_ref\"\ntrust = { producers = [\"importer\"] }\n",
        1,
    );
    register(&db.url, &sources).await;
    db
}

async fn births(db: &Database, producer: &str, n: u32) {
    let insert = format!(
        "insert into birth_registry (entity_code, collection_name, source_system, status)
         select '{producer}-' || g, 'of {producer}', nullif('{producer}', 'nobody'), case g % 2 when 0 then 'registered' end
           from generate_series(1, {n}) g"
    );
    db.client.batch_execute(&insert).await.expect("births");
}

async fn dirty(db: &Database) -> Vec<String> {
    db.texts("select dims ->> 'object_class' from gov_candidate_group where dirty order by 1").await
}

async fn an_unknown_producer_waits_until_it_is_trusted(mode: &str) {
    let db = choosy().await;
    let quick = [("GOV_HANDOFF_LEASE_TTL", "1s"), ("GOV_HANDOFF_RECONCILE_INTERVAL", "300ms")];
    let mut daemon = Daemon::running(&db, mode, &quick).await;
    births(&db, "importer", 4).await;
    births(&db, "stranger", 4).await;
    births(&db, "nobody", 2).await;
    db.until(&format!(
        "select ({UNTRUSTED}) = 9 and (select count(*) = 15 from event_pending where entity_ref is not null)"
    ))
    .await;
    assert_eq!(
        db.texts(OPEN).await,
        ["untrusted_source:birth_registry:stranger", "untrusted_source:birth_registry:unknown"]
    );
    assert_eq!(dirty(&db).await, ["of importer"], "nothing untrusted dirties a group");
    assert_eq!(
        db.number("select count(*) from gov_candidate_state where object_type <> 'of importer'").await,
        0
    );
    // Activation lets out what is trusted, and nothing else.
    done(&db.url, &["types", "activate", "--all"]).await;
    db.until(&format!("select ({SIGNALS}) = 6")).await;
    assert_eq!(db.number(UNTRUSTED).await, 9);
    assert_eq!(db.number("select count(*) from event_outbox where source_system = 'stranger'").await, 0);

    let captured = db.texts("select id::text from event_pending where capture_payload ->> 'source_system' = 'stranger' order by 1").await;
    let list = done(&db.url, &["trust", "list"]).await;
    assert!(
        list.contains("importer") && list.contains("stranger (6)") && list.contains("unknown (3)"),
        "{list}"
    );
    let grant = ["trust", "grant", "--source", "birth_registry", "--producer", "stranger"];
    let dry = done(&db.url, &[&grant[..], &["--dry-run"]].concat()).await;
    assert!(dry.contains("would be trusted") && dry.contains("6 captured"), "{dry}");
    assert_eq!(db.number(UNTRUSTED).await, 9);
    let said = done(&db.url, &[&grant[..], &["--actor", "huyen"]].concat()).await;
    assert!(said.contains("4 captured rows are handed off"), "{said}");
    db.until(&format!("select ({SIGNALS}) = 12 and ({STAGED}) = 0")).await;
    let emitted = "select id::text from event_outbox where source_system = 'stranger' order by 1";
    assert_eq!(db.texts(emitted).await, captured, "the same identities");
    assert_eq!(dirty(&db).await, ["of importer", "of stranger"]);
    let changes = "select changes from gov_candidate_group where dims ->> 'object_class' = 'of stranger'";
    assert_eq!(db.number(changes).await, 6, "each once");
    db.until("select count(*) = 0 from system_issues where coalesce_key = 'untrusted_source:birth_registry:stranger' and resolved_at is null").await;
    assert_eq!(db.texts(OPEN).await, ["untrusted_source:birth_registry:unknown"]);
    assert_eq!(db.number(UNTRUSTED).await, 3, "the others wait on");
    // The running daemon goes by the new list, and by the one after it.
    db.until("select exists (select from queue_heartbeat where executor_name = 'gov_handoff_intake' and lease_owner is not null)").await;
    births(&db, "stranger", 1).await;
    db.until(&format!("select ({SIGNALS}) = 13 and ({UNTRUSTED}) = 3")).await;
    done(&db.url, &["trust", "revoke", "--source", "birth_registry", "--producer", "stranger"]).await;
    let applied = "select count(*) from event_pending where last_error = 'untrusted_source' and capture_payload ->> 'source_system' = 'stranger'";
    until(&format!("{mode}: the daemon takes the revocation up"), async || {
        births(&db, "stranger", 1).await;
        db.number(applied).await > 0
    })
    .await;
    db.until("select count(*) = 1 from system_issues where coalesce_key = 'untrusted_source:birth_registry:stranger' and resolved_at is null").await;
    // Every birth is captured or handed off by now, or the audit below would miss it.
    let recorded = "select count(*) = 0 from (select id::text from birth_registry except (
        select capture_payload ->> 'source_key' from event_pending where entity_table = 'birth_registry'
        union all select safe_payload ->> 'source_key' from event_outbox where event_subject_table = 'birth_registry')) missing";
    db.until(recorded).await;
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
    let audit = "select string_agg(action || ' ' || actor_ref, ', ' order by id) from registry_changelog
                  where source_system = 'gov-handoff' and action like 'trust%'";
    assert_eq!(db.text(audit).await, "trust_granted:stranger huyen, trust_revoked:stranger postgres");
    done(&db.url, &["audit", "--full", "--check"]).await;
}

#[tokio::test]
async fn an_unknown_producer_waits_until_it_is_trusted_while_polling() {
    an_unknown_producer_waits_until_it_is_trusted("poll").await;
}

#[tokio::test]
async fn an_unknown_producer_waits_until_it_is_trusted_while_streaming() {
    an_unknown_producer_waits_until_it_is_trusted("stream").await;
}

#[tokio::test]
async fn a_batch_that_was_mapped_by_the_old_list_is_promoted_by_the_daemon() {
    let db = choosy().await;
    done(&db.url, &["types", "activate", "--all"]).await;
    births(&db, "stranger", 2).await;
    done(&db.url, &["run", "--once", "--mode", "poll"]).await;
    assert_eq!(db.number(UNTRUSTED).await, 3);
    // The list changes behind the gate's back, as it does for a batch that is under way.
    db.client
        .batch_execute("update gov_worker_cursor set metadata = jsonb_set(metadata, '{trust,producers}', '[\"importer\", \"stranger\"]')
                         where source_name = 'birth_registry' and metadata ? 'id'")
        .await
        .expect("a list");
    done(&db.url, &["run", "--once", "--mode", "poll"]).await;
    assert_eq!((db.number(UNTRUSTED).await, db.number(SIGNALS).await), (0, 3));
    assert_eq!(db.texts(OPEN).await, Vec::<String>::new());
    assert_eq!(dirty(&db).await, ["of stranger"]);
}

/// A batch that found the finding open, and so raised none, and commits while the producer becomes trusted.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_batch_captures_while_its_producer_becomes_trusted_is_promoted_all_the_same() {
    let db = choosy().await;
    done(&db.url, &["types", "activate", "--all"]).await;
    // A lease that does not end while its row is held; and nothing but the batch that would wait for that row: no source that
    // is read by its frontier, and all certificates given.
    done(&db.url, &["sources", "remove", "event_outbox"]).await;
    let quiet = [("GOV_HANDOFF_LEASE_TTL", "30s"), ("GOV_HANDOFF_CERTIFY_INTERVAL", "1h")];
    let mut daemon = Daemon::running(&db, "poll", &quiet).await;
    births(&db, "stranger", 1).await;
    db.until(&format!("select ({UNTRUSTED}) = 1")).await;
    db.until("select count(*) = 4 from v_governance_certificate").await;
    // The fence comes last: whoever waits there has captured, and has looked whether there is a finding.
    let holder = connect(&db.url).await;
    holder
        .batch_execute(
            "begin; select from queue_heartbeat where executor_name = 'gov_handoff_intake' for update",
        )
        .await
        .expect("the lease's row");
    births(&db, "stranger", 1).await;
    let waiting = |what: &str| {
        format!(
            "select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' \
             and query like '%{what}%')"
        )
    };
    db.until(&waiting("gov_handoff_apply")).await;
    let (url, grant) =
        (db.url.clone(), ["trust", "grant", "--source", "birth_registry", "--producer", "stranger"]);
    let granted = tokio::spawn(async move { done(&url, &grant).await });
    // It waits for the batch, or it is through already and has left the batch behind.
    let through =
        "select exists (select from gov_worker_cursor where metadata #> '{trust,producers}' ? 'stranger')";
    db.until(&format!("select ({}) or ({through})", waiting("gov_trust_set"))).await;
    holder.batch_execute("rollback").await.expect("the lease's row is free");
    assert!(granted.await.expect("granted").contains("is trusted"));
    db.until(&format!("select ({SIGNALS}) = 2 and ({UNTRUSTED}) = 0 and ({STAGED}) = 0")).await;
    assert_eq!(db.texts(OPEN).await, Vec::<String>::new());
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
}

#[tokio::test]
async fn trust_is_the_operators_to_give_and_nonsense_is_refused() {
    let db = choosy().await;
    let (operator, worker) = (format!("trust_operator_{}", db.name), format!("trust_worker_{}", db.name));
    db.client
        .batch_execute(&format!(
            "create role {operator} login in role gov_handoff_operator; create role {worker} login in role gov_handoff_worker"
        ))
        .await
        .expect("roles");
    let grant = ["trust", "grant", "--source", "birth_registry", "--producer", "stranger"];
    let theirs = cli(&db.url_as(&worker), &grant).await;
    assert!(theirs.code == 2 && theirs.err.contains("permission denied"), "{}", theirs.err);
    let ours = done(&db.url_as(&operator), &grant).await;
    assert!(ours.contains("stranger is trusted"), "{ours}");
    assert!(done(&db.url_as(&operator), &grant).await.contains("was trusted already"));
    done(&db.url_as(&operator), &["trust", "list", "--json"]).await;
    done(
        &db.url_as(&operator),
        &["trust", "revoke", "--source", "birth_registry", "--producer", "stranger", "--json"],
    )
    .await;
    for more in [&[][..], &["--dry-run"]] {
        let asked = ["trust", "grant", "--source", "registry_changelog", "--producer", "x"];
        let refused = cli(&db.url, &[&asked[..], more].concat()).await;
        let problem = "no list of producers";
        assert!(refused.code == 1 && refused.err.contains(problem), "{} {}", refused.code, refused.err);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_of_a_removed_source_is_promoted_when_it_comes_back_and_trusts() {
    let db = choosy().await;
    births(&db, "stranger", 2).await;
    done(&db.url, &["run", "--mode", "poll", "--once"]).await;
    assert_eq!(db.texts(OPEN).await, ["untrusted_source:birth_registry:stranger"]);
    done(&db.url, &["sources", "remove", "birth_registry"]).await;
    assert_eq!(db.texts(OPEN).await, Vec::<String>::new());
    register(&db.url, include_str!("../replication/sources.toml")).await;
    let _daemon = Daemon::running(&db, "poll", &[("GOV_HANDOFF_LEASE_TTL", "1s")]).await;
    db.until(&format!("select ({UNTRUSTED}) = 0 and ({STAGED}) = 0")).await;
    db.until("select count(*) = 1 from gov_candidate_group where dirty and dims ->> 'object_class' = 'of stranger'").await;
    assert_eq!(db.texts(OPEN).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_promotion_goes_in_parts_and_a_batch_between_two_of_them_marks_what_it_emits() {
    let db = choosy().await;
    done(&db.url, &["types", "activate", "--all"]).await;
    births(&db, "stranger", 6).await;
    done(&db.url, &["run", "--once", "--mode", "poll"]).await;
    assert_eq!(db.number(UNTRUSTED).await, 9);
    // The list alone, as another instance would find it between two parts.
    let trust = "update gov_worker_cursor set metadata = jsonb_set(metadata, '{trust,producers}', '[\"importer\", \"stranger\"]')
                  where source_name = 'birth_registry' and worker_name = 'gov_handoff_intake'";
    db.client.batch_execute(trust).await.expect("trust");
    let part = "select moved from gov_handoff.gov_trust_promote('gov_handoff_intake', null, null, 4)";
    assert_eq!(db.number(part).await, 4);
    assert_eq!(db.number(UNTRUSTED).await, 5);
    assert_eq!(db.texts(OPEN).await.len(), 1, "some of it waits still");
    // Every row is delivered again, mapped by the new list, before the rest is promoted.
    db.client
        .batch_execute(
            "delete from gov_worker_gap where source_name = 'birth_registry';
             insert into gov_worker_gap (worker_name, source_name, lo, hi)
             values ('gov_handoff_intake', 'birth_registry', -2147483648, 2147483647)",
        )
        .await
        .expect("forget");
    done(&db.url, &["run", "--once", "--mode", "poll"]).await;
    assert_eq!((db.number(UNTRUSTED).await, db.number(STAGED).await), (0, 0));
    assert_eq!(db.texts(OPEN).await, Vec::<String>::new());
    assert_eq!(db.number(SIGNALS).await, 9);
    let marks =
        "select changes::bigint from gov_candidate_group where dims ->> 'object_class' = 'of stranger'";
    assert_eq!(db.number(marks).await, 9, "each signal marks its group once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_may_tell_its_producers_by_their_actors() {
    let db = migrated().await;
    let sources = include_str!("../replication/sources.toml").replacen(
        "actor_ref = \"actor_ref\"\n",
        "actor_ref = \"actor_ref\"\ntrust = { by = \"actor_ref\", producers = [\"linh\"] }\n",
        1,
    );
    register(&db.url, &sources).await;
    done(&db.url, &["types", "activate", "--all"]).await;
    let insert = "insert into birth_registry (entity_code, collection_name, source_system, actor_ref)
                  select a || g, 'of ' || a, 'one system', a from unnest(array['linh', 'mallory']) a, generate_series(1, 3) g";
    db.client.batch_execute(insert).await.expect("births");
    done(&db.url, &["run", "--once", "--mode", "poll"]).await;
    assert_eq!((db.number(SIGNALS).await, db.number(UNTRUSTED).await), (3, 3));
    assert_eq!(db.texts(OPEN).await, ["untrusted_source:birth_registry:mallory"]);
    assert_eq!(dirty(&db).await, ["of linh"]);
    let list = done(&db.url, &["trust", "list"]).await;
    assert!(list.contains("actor_ref") && list.contains("mallory (3)"), "{list}");
    // One system stands behind both: granting it would let everybody in, and does nothing here.
    done(&db.url, &["trust", "grant", "--source", "birth_registry", "--producer", "one system"]).await;
    assert_eq!(db.number(UNTRUSTED).await, 3);
    done(&db.url, &["trust", "grant", "--source", "birth_registry", "--producer", "mallory"]).await;
    done(&db.url, &["run", "--once", "--mode", "poll"]).await;
    assert_eq!((db.number(SIGNALS).await, db.number(UNTRUSTED).await), (6, 0));
    assert_eq!(db.texts(OPEN).await, Vec::<String>::new());
    assert_eq!(dirty(&db).await, ["of linh", "of mallory"]);
}
