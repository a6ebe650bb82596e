//! What audits and replays look for, and what they say of it: scope, names, strays, reasons, what was drained or retired.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::proof::{COUNT_FROM_ONE, SIGNALS, births, json, keys, latest, of, once};
use crate::support::{Database, cli, cli_with, done, migrated};

const DIRTY: &str = "select (select count(*) from gov_candidate_group where dirty) + (select count(*) from gov_candidate_state where dirty)";
const SCANNED: &str =
    "update gov_candidate_group set dirty = false; update gov_candidate_state set dirty = false";
const DRAINED: &str =
    "select count(*) from event_pending where entity_ref is not null and processed_at is not null";
const FULL: [&str; 5] = ["audit", "--full", "--json", "--source", "birth_registry"];
const CHECK: [&str; 6] = ["audit", "--full", "--check", "--json", "--source", "birth_registry"];

/// Ids from one on, so many of them handed off, and nothing of them still on its way.
async fn registry(active: &[&str], n: u32) -> Database {
    let db = migrated().await;
    db.sql(COUNT_FROM_ONE).await;
    if !active.is_empty() {
        done(&db.url, &[&["types", "activate"], active].concat()).await;
    }
    db.sql(&births(n)).await;
    once(&db.url).await;
    certified(&db).await;
    db
}

/// As after a certifying pass, however old the oldest transaction of other tests is: what is missing of older rows is not
/// waited for.
async fn certified(db: &Database) {
    db.sql("insert into gov_worker_frontier (worker_name, source_name, frontier, system_identifier) \
         select 'gov_handoff_intake', 'birth_registry', pg_snapshot_xmax(pg_current_snapshot()), system_identifier::text \
           from pg_control_system() \
         on conflict (worker_name, source_name) do update set frontier = excluded.frontier",
    )
    .await;
}

/// An audit that is killed at this point. Its lease is free afterwards, as when it has run out.
async fn killed(db: &Database, arguments: &[&str], failpoint: &str) {
    let ran = cli_with(&db.url, arguments, &[("GOV_HANDOFF_FAILPOINT", failpoint)]).await;
    assert_eq!(ran.code, -1, "{}{}", ran.out, ran.err);
    let free = "update queue_heartbeat set lease_owner = null where executor_name = 'gov_handoff_audit'";
    db.sql(free).await;
}

/// What an audit of births says, and with which code it ends.
async fn audited(db: &Database, arguments: &[&str]) -> (i32, Value) {
    let ran = cli(&db.url, arguments).await;
    assert!(ran.code == 0 || ran.code == 1, "{arguments:?}: {}{}", ran.out, ran.err);
    (ran.code, of(&json(&ran.out), "birth_registry").clone())
}

fn set(keys: &[&str]) -> BTreeSet<String> {
    keys.iter().map(|k| (*k).to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_captured_and_drained_and_then_lost_is_restored_and_marks_nothing_again() {
    let db = registry(&[], 1_000).await;
    done(&db.url, &["types", "activate", "--all"]).await;
    let all = format!("select id::text from event_outbox where {SIGNALS} order by id");
    let before = db.texts(&all).await;
    assert_eq!(before.len(), 1_333);
    assert_eq!(db.number(DRAINED).await, 1_333);
    db.sql(SCANNED).await;
    let lose = format!(
        "with gone as (delete from event_outbox where id in (select id from event_outbox where {SIGNALS} \
         order by random() limit 13) returning safe_payload) select distinct safe_payload ->> 'source_key' from gone"
    );
    let lost: BTreeSet<String> = db.texts(&lose).await.into_iter().collect();

    let (code, checked) = audited(&db, &CHECK).await;
    assert_eq!((code, keys(&checked["missing_keys"])), (1, lost.clone()), "{checked}");
    let (code, repaired) = audited(&db, &FULL).await;
    assert_eq!((code, keys(&repaired["missing_keys"])), (1, lost), "{repaired}");
    assert_eq!(db.texts(&all).await, before, "the same signals under the same ids");
    assert_eq!(audited(&db, &CHECK).await.0, 0);

    // The same while the types are out of service again: the captures are opened again, each once.
    db.texts(&lose).await;
    done(&db.url, &["types", "deactivate", "--all"]).await;
    assert_eq!(audited(&db, &FULL).await.0, 1);
    let waiting = "select count(*) from event_pending where entity_ref is not null and processed_at is null";
    assert_eq!(db.number(waiting).await, 13);
    assert_eq!(audited(&db, &CHECK).await.0, 0, "captured is not missing");
    done(&db.url, &["types", "activate", "--all"]).await;
    assert_eq!(db.texts(&all).await, before);
    assert_eq!(db.number(DIRTY).await, 0, "the groups were marked when the rows were captured");
}

#[tokio::test(flavor = "multi_thread")]
async fn retention_takes_drained_captures_with_their_signals_and_nothing_comes_twice() {
    let db = registry(&[], 30).await;
    done(&db.url, &["types", "activate", "--all"]).await;
    assert_eq!(audited(&db, &FULL).await.0, 0);
    db.sql(SCANNED).await;
    db.sql("delete from event_outbox where safe_payload ->> 'source_key' = '1'").await;
    let out = done(&db.url, &["retire", "--before", "2999-01-01"]).await;
    assert!(out.contains("39 certified signals retired"), "{out}");
    assert_eq!(db.number(DRAINED).await, 1, "a signal that is lost keeps its capture");
    let signals = format!("select count(*) from event_outbox where {SIGNALS}");
    once(&db.url).await;
    assert_eq!(db.number(&signals).await, 0);
    let (code, repaired) = audited(&db, &FULL).await;
    assert_eq!((code, keys(&repaired["missing_keys"])), (1, set(&["1"])), "{repaired}");
    assert_eq!(audited(&db, &FULL).await.0, 0);
    assert_eq!(db.number(&signals).await, 1);
    assert_eq!(db.number(DIRTY).await, 0);
    done(&db.url, &["retire", "--before", "2999-01-01"]).await;
    assert_eq!(db.number(DRAINED).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_audit_never_goes_on_where_one_of_other_rows_was_killed() {
    let db = registry(&[], 12_000).await;
    let lose = |key: &str| {
        format!(
            "delete from event_pending where capture_payload ->> 'source_key' = '{key}' \
             and event_type_hint = 'governance.handoff.object_born'"
        )
    };
    db.sql(&lose("10")).await;
    let since = |from: &'static str| [&CHECK[..], &["--since", from]].concat();
    killed(&db, &since("6000"), "audit_after_keep:1").await;
    let (code, whole) = audited(&db, &CHECK).await;
    assert_eq!((code, whole["rows"].as_u64()), (1, Some(12_000)), "{whole}");
    assert_eq!(keys(&whole["missing_keys"]), set(&["10"]));
    assert_eq!(whole["terms"]["depth"], "full");

    // By other rules, too, what was passed says nothing.
    killed(&db, &CHECK, "audit_after_keep:1").await;
    db.sql(&lose("20")).await;
    let redefine = "update gov_worker_cursor set metadata = jsonb_set(metadata, '{batch_size}', '1234') \
                    where worker_name = 'gov_handoff_intake' and source_name = 'birth_registry'";
    db.sql(redefine).await;
    assert_eq!(keys(&audited(&db, &CHECK).await.1["missing_keys"]), set(&["10", "20"]));

    // From a key or a time on, and never taken for all.
    let (code, part) = audited(&db, &since("6000")).await;
    assert_eq!((code, part["rows"].as_u64()), (0, Some(6_001)), "{part}");
    assert_eq!(audited(&db, &since("20")).await.1["missing"], 1);
    assert_eq!(audited(&db, &since("2999-01-01")).await.1["rows"], 0);
    assert_eq!(audited(&db, &since("2020-01-01")).await.1["rows"], 12_000);
    let said = done(&db.url, &["audit", "--full", "--source", "birth_registry", "--since", "6000"]).await;
    assert!(said.contains("rows from 6000 on; those before it were not looked at"), "{said}");
    let certificate = "select (capture_payload ->> 'full') || ' ' || (capture_payload ->> 'since') from event_pending \
                       where event_type_hint = 'governance.handoff.certified' and entity_table = 'birth_registry'";
    assert_eq!(db.text(certificate).await, "false 6000");
    let known = "select count(*) from v_governance_certificate c where c::text like '%birth_registry%' and c::text like '%audit%'";
    assert_eq!(db.number(known).await, 0, "and nothing is complete by it");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_key_is_named_once_however_many_are_missing_and_whenever_the_audit_is_killed() {
    let db = migrated().await;
    db.sql(COUNT_FROM_ONE).await;
    db.sql(&births(12_001)).await;
    certified(&db).await;
    killed(&db, &CHECK, "audit_after_keep:2").await;
    let (code, audit) = audited(&db, &CHECK).await;
    assert_eq!((code, audit["missing"].as_u64()), (1, Some(12_001)));
    let named: Vec<_> =
        audit["missing_keys"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    let wanted: Vec<_> = (1..=12_001).map(|key| key.to_string()).collect();
    assert_eq!(named, wanted);
    let said = cli(&db.url, &["audit", "--full", "--check", "--source", "birth_registry"]).await.out;
    assert!(said.contains("18, 19, 20 and 11,981 more (audit --json names all of them)"), "{said}");
    // What was kept of it is small, however much there is to name.
    let kept = "select max(length(last_run_summary::text))::bigint from gov_worker_cursor";
    assert!(db.number(kept).await < 5_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_that_is_gone_is_missing_and_comes_back() {
    let db = registry(&["--all"], 0).await;
    let blank = "insert into registry_changelog (id, entity_type, entity_code, action) values (1000, ' ', 'x', 'retire')";
    db.sql(blank).await;
    once(&db.url).await;
    let letters = "select count(*) from iu_route_dead_letter where resolved_at is null";
    assert_eq!(db.number(letters).await, 1);
    assert_eq!(cli(&db.url, &["audit", "--full"]).await.code, 0);
    db.sql("delete from iu_route_dead_letter").await;
    let checked = cli(&db.url, &["audit", "--full", "--check", "--json"]).await;
    assert_eq!(checked.code, 1, "{}", checked.err);
    assert_eq!(keys(&of(&json(&checked.out), "registry_changelog")["missing_keys"]), set(&["1000"]));
    assert_eq!(cli(&db.url, &["audit", "--full"]).await.code, 1);
    assert_eq!(db.number(letters).await, 1);
    assert_eq!(cli(&db.url, &["audit", "--full"]).await.code, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_that_we_never_recorded_are_doubled_or_orphans_whatever_they_name() {
    let db = registry(&["--all"], 10).await;
    // By what they say, by their subject alone, with keys that no row has, that are no keys, and without.
    let plant = "insert into event_outbox (id, event_domain, event_type, event_stream, event_subject_table, event_subject_ref, \
            canonical_address, actor_ref, source_system, safe_payload) \
        select p.id, 'governance', 'governance.handoff.object_born', 'birth', p.subject, gen_random_uuid(), 'a', 'a', 's', p.payload \
          from (values (gen_random_uuid(), 'birth_registry', '{\"source\": \"birth_registry\", \"source_key\": \"5\"}'::jsonb), \
                       (gen_random_uuid(), 'elsewhere', '{\"source\": \"birth_registry\", \"source_key\": \"999\"}'), \
                       (gen_random_uuid(), 'birth_registry', '{\"source_key\": \"998\"}'), \
                       (gen_random_uuid(), 'birth_registry', '{\"source\": \"birth_registry\", \"source_key\": \"no number\"}'), \
                       (gen_random_uuid(), 'birth_registry', '{\"source\": \"birth_registry\", \"source_key\": \"99999999999\"}'), \
                       ('00000000-0000-0000-0000-000000000000'::uuid, 'birth_registry', '{\"source\": \"birth_registry\"}'), \
                       (gen_random_uuid(), 'things', '{\"source\": \"things\", \"source_key\": \"5\"}')) as p (id, subject, payload); \
        insert into event_pending (id, event_domain, event_type_hint, entity_table, entity_ref, canonical_address, \
            actor_ref, capture_payload) \
        values (gen_random_uuid(), 'governance', 'governance.handoff.object_born', 'birth_registry', gen_random_uuid(), 'a', 'a', \
                '{\"source\": \"birth_registry\", \"source_key\": \"4\"}'), \
               (gen_random_uuid(), 'governance', 'governance.handoff.object_retired', 'birth_registry', gen_random_uuid(), 'a', 'a', \
                '{\"source\": \"birth_registry\", \"source_key\": \"7\"}')";
    assert_eq!(audited(&db, &CHECK).await.0, 0);
    db.sql(plant).await;
    for arguments in [&CHECK[..], &["audit", "--json"]] {
        let (code, audit) = audited(&db, arguments).await;
        assert_eq!((code, audit["missing"].as_u64()), (1, Some(0)), "{audit}");
        assert_eq!(keys(&audit["doubled_keys"]), set(&["4", "5"]), "{audit}");
        let nil = "00000000-0000-0000-0000-000000000000";
        assert_eq!(
            keys(&audit["orphan_keys"]),
            set(&["7", "998", "999", "99999999999", "no number", nil]),
            "{audit}"
        );
        assert_eq!((audit["doubled"].as_u64(), audit["orphans"].as_u64()), (Some(2), Some(6)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_was_handed_off_before_is_said_to_have_vanished() {
    let db = registry(&[], 3).await;
    db.sql("delete from event_pending where capture_payload ->> 'source_key' = '1'").await;
    // Written while nobody ran.
    db.sql(&births(2)).await;
    let (code, audit) = audited(&db, &FULL).await;
    assert_eq!((code, audit["repaired"].as_u64()), (1, Some(3)), "{audit}");
    let certificate = latest(&db.url, "birth_registry").await;
    assert_eq!(
        certificate["repaired"],
        serde_json::json!({ "vanished": 1, "not_yet_read": 2 }),
        "{certificate}"
    );
    let missed = "select count(*) from system_issues where issue_kind = 'handoff_missed'";
    assert_eq!(db.number(missed).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_capture_is_missed_though_another_signal_of_its_row_was_retired() {
    let db = registry(&["object_born"], 9).await;
    assert_eq!(audited(&db, &FULL).await.0, 0);
    let out = done(&db.url, &["retire", "--before", "2999-01-01"]).await;
    assert!(out.contains("9 certified signals retired"), "{out}");
    let ranges = "select lo || '..' || hi from gov_retired_range order by lo";
    assert_eq!(db.texts(ranges).await, ["1..2", "4..5", "7..8"]);
    let one_by_one = "select number::text from gov_retired_signal order by number";
    assert_eq!(db.texts(one_by_one).await, ["3", "6", "9"]);
    assert_eq!(audited(&db, &CHECK).await.0, 0);

    db.sql("delete from event_pending where capture_payload ->> 'source_key' = '3'").await;
    let (code, audit) = audited(&db, &FULL).await;
    assert_eq!((code, keys(&audit["missing_keys"])), (1, set(&["3"])), "{audit}");
    let signals = format!("select count(*) from event_outbox where {SIGNALS}");
    assert_eq!(db.number(&signals).await, 0, "what was retired is not emitted with the rest of its row");
    assert_eq!(audited(&db, &FULL).await.0, 0);
    // Registered again, neither the whole keys nor the others are read again.
    done(&db.url, &["sources", "remove", "birth_registry"]).await;
    done(&db.url, &["sources", "apply"]).await;
    once(&db.url).await;
    assert_eq!(db.number(&signals).await, 0);
    // The rest goes as well, and then the key is whole.
    done(&db.url, &["types", "activate", "--all"]).await;
    assert_eq!(audited(&db, &FULL).await.0, 0);
    done(&db.url, &["retire", "--before", "2999-01-01"]).await;
    let covered = "select count(*) from generate_series(1, 9) k where exists (select from gov_retired_range r where k between r.lo and r.hi)";
    assert_eq!(db.number(covered).await, 9);
    assert_eq!(audited(&db, &FULL).await.0, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_audit_that_is_killed_at_its_end_is_certified_and_counted_once() {
    let db = registry(&[], 5).await;
    db.sql("delete from event_pending where capture_payload ->> 'source_key' = '1'").await;
    killed(&db, &FULL, "audit_before_finish:1").await;
    let counted = "select coalesce(sum(repaired), 0)::bigint from gov_repair_total where reason = 'vanished'";
    assert_eq!(db.number(counted).await, 0);
    // The daemon has certified further meanwhile; what the audit says is about less.
    let certified = |frontier: &str| {
        format!(
            "update gov_worker_cursor set last_run_summary = jsonb_set(last_run_summary, '{{certificate}}', \
                 jsonb_build_object('source', source_name, 'kind', 'certify', 'taken_at', now(), 'system_identifier', \
                     (select system_identifier::text from pg_control_system()), 'frontier', {frontier}::text)) \
              where worker_name = 'gov_handoff_intake' and source_name = 'birth_registry'"
        )
    };
    db.sql(&certified("pg_current_xact_id()")).await;
    let (code, audit) = audited(&db, &FULL).await;
    assert_eq!((code, audit["repaired"].as_u64()), (1, Some(1)), "{audit}");
    assert_eq!(db.number(counted).await, 1);
    assert_eq!(latest(&db.url, "birth_registry").await["kind"], "certify");
    let history = "select count(*) from event_pending where event_type_hint = 'governance.handoff.certified' \
                   and entity_table = 'birth_registry' and capture_payload #>> '{repaired,vanished}' = '1'";
    assert_eq!(db.number(history).await, 1);

    db.sql(&certified("'3'")).await;
    assert_eq!(audited(&db, &FULL).await.0, 0);
    assert_eq!(latest(&db.url, "birth_registry").await["kind"], "audit", "this one reaches further");
    assert_eq!(db.number(counted).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_counts_what_is_missing_and_nothing_that_was_retired() {
    let db = registry(&["--all"], 10).await;
    assert_eq!(audited(&db, &FULL).await.0, 0);
    done(&db.url, &["retire", "--before", "2999-01-01"]).await;
    let signals = format!("select count(*) from event_outbox where {SIGNALS}");
    let replay = async |more: &[&str]| {
        let ran = cli(
            &db.url,
            &[&["replay", "--source", "birth_registry", "--json", "--from", "1"], more].concat(),
        )
        .await;
        let said = json(&ran.out);
        let counts = ["rows", "missing", "emitted"].map(|c| said[c].as_i64().expect("a count"));
        (ran.code, counts, db.number(&signals).await)
    };
    assert_eq!(replay(&["--dry-run"]).await, (0, [10, 0, 0], 0));
    assert_eq!(replay(&[]).await, (0, [10, 0, 0], 0));
    db.sql(&births(3)).await;
    assert_eq!(replay(&["--to", "12", "--dry-run"]).await, (1, [12, 2, 0], 0));
    assert_eq!(replay(&["--to", "12"]).await, (1, [12, 2, 2], 2));
    assert_eq!(replay(&["--to", "12"]).await, (0, [12, 0, 0], 2));
    // The thirteenth is registered as well.
    assert_eq!(replay(&["--dry-run"]).await, (1, [13, 2, 0], 2));
    assert_eq!(replay(&["--to", "2020-01-01"]).await, (0, [0, 0, 0], 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_audit_that_was_killed_days_ago_begins_anew() {
    let db = registry(&[], 12_000).await;
    killed(&db, &CHECK, "audit_after_keep:1").await;
    let lose = "delete from event_pending where capture_payload ->> 'source_key' = '10' \
                and event_type_hint = 'governance.handoff.object_born'";
    db.sql(lose).await;
    let older = "update gov_worker_cursor set last_run_summary = jsonb_set(last_run_summary, '{audit,started_at}', \
                     to_jsonb((now() - interval '2 days')::text)) where worker_name = 'gov_periodic_full_audit'";
    db.sql(older).await;
    let (code, audit) = audited(&db, &CHECK).await;
    assert_eq!((code, audit["rows"].as_u64()), (1, Some(12_000)), "{audit}");
    assert_eq!(keys(&audit["missing_keys"]), set(&["10"]));
}

/// Rows that come while nobody audits move the end of the chunk that was under way; what was repaired behind it is counted.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_repaired_before_a_kill_is_counted_though_the_chunk_ends_earlier_now() {
    let db = registry(&[], 0).await;
    db.sql("insert into birth_registry (id, entity_code, collection_name) select g * 10, 'e' || g, 'c' from generate_series(1, 6000) g",
    )
    .await;
    done(&db.url, &["run", "--once", "--mode", "poll"]).await;
    certified(&db).await;
    let lose = "delete from event_pending where capture_payload ->> 'source_key' in ('49980', '50000') \
                and event_type_hint = 'governance.handoff.object_born'";
    db.sql(lose).await;
    let full = ["audit", "--full", "--json", "--source", "birth_registry"];
    // The first thing kept is what is about to be repaired; by the second it is.
    killed(&db, &full, "audit_before_keep:2").await;
    let between = "insert into birth_registry (id, entity_code, collection_name) select 10 + g, 'b' || g, 'c' from generate_series(1, 9) g";
    db.sql(between).await;
    done(&db.url, &["run", "--once", "--mode", "poll"]).await;
    let (code, audit) = audited(&db, &full).await;
    assert_eq!(
        (code, audit["missing"].as_u64(), audit["repaired"].as_u64()),
        (1, Some(2), Some(2)),
        "{audit}"
    );
    assert_eq!(keys(&audit["missing_keys"]), set(&["49980", "50000"]));
}
