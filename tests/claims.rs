//! Claims against the proof: the books are corrupted by hand, as only a superuser can, in each way in which a row could be
//! absent or a signal present wrongly; the certificate or the audit says so. What `proof`, `audit` and `adversary` show
//! (signals deleted, planted, about another object) is not repeated.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::proof::{COUNT_FROM_ONE, SIGNALS, births, json, keys, latest, of, once};
use crate::support::sources::{register, rule, source};
use crate::support::{Daemon, Database, cli, done, migrated};

const CHECK: [&str; 4] = ["audit", "--full", "--check", "--json"];
const FULL: [&str; 3] = ["audit", "--full", "--json"];

/// Ids from one on, so many births, handed off and proven.
async fn proven(n: u32) -> Database {
    let db = migrated().await;
    db.sql(COUNT_FROM_ONE).await;
    done(&db.url, &["types", "activate", "--all"]).await;
    db.sql(&births(n)).await;
    once(&db.url).await;
    assert_eq!(cli(&db.url, &FULL).await.code, 0);
    db
}

/// A daemon that certifies births from now on, until the condition holds.
async fn certifying_until(db: &Database, condition: &str) {
    let _daemon = Daemon::running(db, "poll", &[("GOV_HANDOFF_CERTIFY_INTERVAL", "200ms")]).await;
    db.until(condition).await;
}

async fn audited(db: &Database, arguments: &[&str], source: &str) -> (i32, Value) {
    let ran = cli(&db.url, arguments).await;
    assert!(ran.code == 0 || ran.code == 1, "{arguments:?}: {}{}", ran.out, ran.err);
    (ran.code, of(&json(&ran.out), source).clone())
}

fn set(keys: &[&str]) -> BTreeSet<String> {
    keys.iter().map(|key| (*key).to_owned()).collect()
}

async fn signals(db: &Database) -> i64 {
    db.number(&format!("select count(*) from event_outbox where {SIGNALS}")).await
}

/// Texts with our separators in them, as keys of a source of its own.
async fn add_texts(db: &Database) {
    db.sql("create table texts (id text primary key, code text not null, born_at timestamptz default clock_timestamp())").await;
    register_texts(db).await;
}

async fn register_texts(db: &Database) {
    let order = "order = { column = \"born_at\", type = \"timestamptz\" }\n";
    let born = rule("object_born", "text", "text:{code}", ["object_class", "text"]);
    register(&db.url, &(source("texts", "text", &["id", "code", "born_at"]) + order + &born)).await;
}

/// Item 5: whatever brings a signal again after retention took it, the audit does not take it for the first.
#[tokio::test(flavor = "multi_thread")]
async fn a_signal_that_is_there_again_after_retention_is_doubled() {
    let db = proven(12).await;
    add_texts(&db).await;
    db.sql("insert into texts (id, code) select 'k' || i, 't' || i from generate_series(1, 4) i").await;
    once(&db.url).await;
    assert_eq!(cli(&db.url, &FULL).await.code, 0);
    db.sql(&format!("create table kept as select * from event_outbox where {SIGNALS}")).await;
    done(&db.url, &["retire", "--before", "2999-01-01"]).await;
    assert_eq!(signals(&db).await, 0);
    assert_eq!(cli(&db.url, &CHECK).await.code, 0);
    db.sql("insert into event_outbox select * from kept where event_type like '%object_born' and safe_payload ->> 'source_key' in ('5', '7', 'k2')",
    )
    .await;
    let (code, births) = audited(&db, &CHECK, "birth_registry").await;
    assert_eq!((code, keys(&births["doubled_keys"])), (1, set(&["5", "7"])), "{births}");
    let (_, texts) = audited(&db, &CHECK, "texts").await;
    assert_eq!(keys(&texts["doubled_keys"]), set(&["k2"]), "{texts}");
}

/// Item 5, the other way round: retention's books speak of a signal that was never removed.
#[tokio::test(flavor = "multi_thread")]
async fn a_mark_of_retention_for_a_signal_that_is_still_there_is_noticed() {
    let db = proven(9).await;
    db.sql(
        "insert into gov_retired_range (source_name, lo, hi) values ('birth_registry', 2, 2);
         insert into gov_retired_signal (id, source_name)
         select id, 'birth_registry' from event_outbox where safe_payload ->> 'source_key' = '4'",
    )
    .await;
    let (code, found) = audited(&db, &CHECK, "birth_registry").await;
    assert_eq!((code, keys(&found["doubled_keys"])), (1, set(&["2", "4"])), "{found}");
}

/// Item 6: ranges that were closed over a row without a handoff. The frontier does not ask them.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_the_ranges_pass_over_is_found_by_the_certificate() {
    let db = proven(10).await;
    db.sql("delete from gov_worker_gap where source_name = 'birth_registry'").await;
    db.sql(&births(3)).await;
    certifying_until(&db, &format!("select count(*) = 10 + 3 + 3 + 1 from event_outbox where {SIGNALS}"))
        .await;
    assert_eq!(cli(&db.url, &CHECK).await.code, 0);
}

/// Item 6: ranges and frontier were both moved over it. Only its signals can tell, and the audit asks them.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_ranges_and_frontier_pass_over_is_found_by_the_audit() {
    let db = proven(10).await;
    db.sql(&births(2)).await;
    db.sql("delete from gov_worker_gap where source_name = 'birth_registry' and hi > 10;
         insert into gov_worker_gap (worker_name, source_name, lo, hi) values ('gov_handoff_intake', 'birth_registry', 13, 2147483647);
         insert into gov_worker_frontier (worker_name, source_name, frontier, system_identifier, relation, filenode)
         select 'gov_handoff_intake', 'birth_registry', pg_snapshot_xmin(pg_current_snapshot()), system_identifier::text,
                'birth_registry'::regclass, pg_relation_filenode('birth_registry')
           from pg_control_system()
         on conflict (worker_name, source_name) do update set frontier = excluded.frontier",
    )
    .await;
    let (code, found) = audited(&db, &CHECK, "birth_registry").await;
    assert_eq!((code, keys(&found["missing_keys"])), (1, set(&["11", "12"])), "{found}");
    let (code, found) = audited(&db, &FULL, "birth_registry").await;
    assert_eq!((code, found["missing"].as_u64()), (1, Some(2)), "{found}");
    let repaired = &latest(&db.url, "birth_registry").await["repaired"];
    assert_eq!(
        repaired.as_object().map(|r| r.values().filter_map(Value::as_u64).sum::<u64>()),
        Some(2),
        "{repaired}"
    );
    assert_eq!(cli(&db.url, &FULL).await.code, 0);
}

/// Item 6: ranges closed over ids that no row has say that more was handed off than there is.
#[tokio::test(flavor = "multi_thread")]
async fn ids_that_left_the_ranges_without_a_row_are_a_finding() {
    let db = proven(10).await;
    db.sql("update gov_worker_gap set lo = 21 where source_name = 'birth_registry' and lo = 11").await;
    let found = "select exists (select from system_issues where coalesce_key = 'source_not_conserved:birth_registry' \
                 and resolved_at is null and (detail ->> 'handed_off')::int = 20 and (detail ->> 'rows')::int = 10)";
    certifying_until(&db, found).await;
}

/// Item 6: whose definition is in force is asked at every commit; versions that are exchanged or made up stop nothing for good.
#[tokio::test(flavor = "multi_thread")]
async fn versions_that_are_exchanged_by_hand_lose_and_double_nothing() {
    let db = proven(5).await;
    for mode in ["poll", "stream"] {
        let before = signals(&db).await;
        let daemon = Daemon::running(&db, mode, &[("GOV_HANDOFF_CERTIFY_INTERVAL", "300ms")]).await;
        db.sql("begin; set constraints all deferred;
             create temp table swapped on commit drop as
                 select a.source_name, b.version from gov_source_version a join gov_source_version b
                     on (a.source_name, b.source_name) in (('birth_registry', 'registry_changelog'), ('registry_changelog', 'birth_registry'));
             update gov_source_version v set version = gen_random_uuid() where source_name in ('birth_registry', 'registry_changelog');
             update gov_source_version v set version = s.version from swapped s where s.source_name = v.source_name; commit",
        )
        .await;
        db.sql(&births(3)).await;
        db.until(&format!("select count(*) = {} from event_outbox where {SIGNALS}", before + 4)).await;
        db.sql("update gov_source_version set version = gen_random_uuid()").await;
        db.sql(&births(3)).await;
        db.until(&format!("select count(*) = {} from event_outbox where {SIGNALS}", before + 8)).await;
        drop(daemon);
    }
    let (code, found) = audited(&db, &CHECK, "birth_registry").await;
    assert_eq!(code, 0, "{found}");
}

/// Item 8: a signal, or a capture, that is about another row than the one that has its key. Not the audit but the next comparison
/// of these rows says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_signal_about_another_row_is_found_by_the_certificate() {
    let db = proven(9).await;
    done(&db.url, &["types", "deactivate", "object_born"]).await;
    db.sql(&births(3)).await;
    once(&db.url).await;
    db.sql(
        "update event_outbox set safe_payload = safe_payload || '{\"object_ref\": \"laws:somebody\"}'
           where event_type like '%object_born' and safe_payload ->> 'source_key' = '4';
         update event_pending set capture_payload = capture_payload || '{\"object_ref\": \"laws:somebody\"}'
          where event_type_hint like '%object_born' and capture_payload ->> 'source_key' = '11';
         delete from gov_worker_frontier",
    )
    .await;
    let repaired = "select coalesce(sum((certificate #>> '{repaired,replaced}')::int), 0) = 2 from gov_certificate_log \
                    where source_name = 'birth_registry'";
    certifying_until(&db, repaired).await;
    let own = "select capture_payload ->> 'object_ref' from event_pending \
               where event_type_hint like '%object_born' and capture_payload ->> 'source_key' in ('4', '11') order by id";
    assert_eq!(db.texts(own).await.len(), 3, "both have one of their own beside what stood there");
    let said = "select count(*) from system_issues where coalesce_key = 'row_replaced:birth_registry' and resolved_at is null";
    assert_eq!(db.number(said).await, 1);
    assert_eq!(cli(&db.url, &FULL).await.code, 0);
}

/// Item 8: what a signal is about is still known after the source was redefined, or removed and registered again.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_took_a_key_is_found_though_its_source_was_redefined_or_registered_again() {
    let db = proven(1).await;
    add_texts(&db).await;
    let head = source("texts", "text", &["id", "code", "born_at"])
        + "order = { column = \"born_at\", type = \"timestamptz\" }\n";
    let born = rule("object_born", "text", "text:{code}", ["object_class", "text"]);
    let other = rule("source_changed", "text", "text:{code}", ["object_class", "text"]);
    let about = |code: &str| {
        format!(
            "select count(*) from event_outbox where event_type like '%object_born' and safe_payload ->> 'object_ref' = 'text:{code}'"
        )
    };
    db.sql("insert into texts (id, code) values ('k', 'first')").await;
    once(&db.url).await;
    for (code, again) in [("redefined", false), ("registered", true)] {
        // As of a truncated table within one certifying interval.
        db.sql(&format!(
            "begin; delete from texts; insert into texts (id, code) values ('k', '{code}'); commit"
        ))
        .await;
        if again {
            done(&db.url, &["sources", "remove", "texts"]).await;
            register(&db.url, &(head.clone() + &born)).await;
        } else {
            register(&db.url, &(head.clone() + &born + &other)).await;
        }
        once(&db.url).await;
        assert_eq!(db.number(&about(code)).await, 1, "{code}");
    }
    assert_eq!(db.number(&about("first")).await, 1);
    let (_, found) = audited(&db, &CHECK, "texts").await;
    assert_eq!((found["missing"].as_u64(), found["doubled"].as_u64()), (Some(0), Some(0)), "{found}");
}

/// Item 8: and though the signal of the row before was retired in between.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_took_a_key_is_found_though_the_signals_of_the_other_were_retired() {
    let db = proven(6).await;
    db.sql("delete from birth_registry where id = 6;
         insert into birth_registry (id, entity_code, collection_name, born_at) values (6, 'reborn', 'laws', clock_timestamp())",
    )
    .await;
    done(&db.url, &["retire", "--before", "2999-01-01"]).await;
    let left = format!("select safe_payload ->> 'object_ref' from event_outbox where {SIGNALS}");
    certifying_until(&db, &format!("select exists ({left})")).await;
    assert_eq!(db.texts(&left).await, ["laws:reborn"]);
    assert_eq!(cli(&db.url, &FULL).await.code, 0);
    assert_eq!(db.texts(&left).await, ["laws:reborn"]);
}

/// Item 8: a letter stands for its row, and not for another that took the key.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_took_the_key_of_a_dead_letter_is_found() {
    let db = proven(2).await;
    add_texts(&db).await;
    let letters = "select count(*) from iu_route_dead_letter where route_code = 'texts'";
    // A row that is refused as well is accounted for by the same letter, and not looked for again and again.
    for (code, signals) in [("repeat('x', 1100000)", 0), ("'reborn'", 1), ("repeat('y', 1100000)", 1)] {
        let reborn =
            format!("begin; delete from texts; insert into texts (id, code) values ('k', {code}); commit");
        db.sql(&reborn).await;
        once(&db.url).await;
        let found = format!(
            "select count(*) from event_outbox where {SIGNALS} and safe_payload ->> 'source' = 'texts'"
        );
        assert_eq!((db.number(letters).await, db.number(&found).await), (1, signals), "{code}");
    }
    let (_, found) = audited(&db, &CHECK, "texts").await;
    assert_eq!(found["missing"].as_u64(), Some(0), "{found}");
}

/// Item 9: keys that imitate other keys and what we put behind them. Each is named by itself.
#[tokio::test(flavor = "multi_thread")]
async fn every_hostile_key_is_missed_by_its_own_name() {
    let db = proven(1).await;
    add_texts(&db).await;
    db.sql("insert into texts (id, code)
         select k, 'c' || row_number() over () from unnest(array['k', 'k' || chr(31) || 'governance.handoff.object_born',
             'k:governance.handoff.object_born', '1:k', 'texts:k', 'k%3A', 'k:', 'k' || chr(31), '']) k",
    )
    .await;
    once(&db.url).await;
    assert_eq!(cli(&db.url, &FULL).await.code, 0);
    for key in db.texts("select id from texts order by id").await {
        let quoted = key.replace('\'', "''");
        db.sql(&format!("delete from event_outbox where safe_payload ->> 'source' = 'texts' and safe_payload ->> 'source_key' = '{quoted}'"),
        )
        .await;
        let (code, found) = audited(&db, &FULL, "texts").await;
        assert_eq!((code, keys(&found["missing_keys"])), (1, set(&[&key])), "{found}");
    }
    let (code, found) = audited(&db, &CHECK, "texts").await;
    assert_eq!(code, 0, "{found}");
}

/// Item 12: what is recorded under the same identity is recorded, whatever table it was read from; and what is not is missed.
#[tokio::test(flavor = "multi_thread")]
async fn signals_of_a_table_under_another_name_are_known_by_their_identity() {
    let db = proven(8).await;
    db.sql("update event_outbox set event_subject_table = 'before_it_was_renamed' where safe_payload ->> 'source' = 'birth_registry'",
    )
    .await;
    let before = signals(&db).await;
    let (code, found) = audited(&db, &FULL, "birth_registry").await;
    assert_eq!((code, signals(&db).await), (0, before), "{found}");
    db.sql("delete from event_outbox where safe_payload ->> 'source_key' = '3'").await;
    let (code, found) = audited(&db, &FULL, "birth_registry").await;
    assert_eq!((code, keys(&found["missing_keys"])), (1, set(&["3"])), "{found}");
    assert_eq!(signals(&db).await, before);
}

/// The registers that an audit of the source in full found changed past the gates.
async fn changed(db: &Database, source: &str) -> Vec<String> {
    let (code, found) = audited(db, &CHECK, source).await;
    let registers: Vec<String> = serde_json::from_value(found["registers"].clone()).expect("registers");
    assert!(code == 1 || registers.is_empty(), "{found}");
    registers
}

/// Texts as a source that is registered when rows are there: they are its backlog.
fn texts_with_backlog() -> String {
    source("texts", "text", &["id", "code"])
        + "backlog = \"skip\"\n"
        + &rule("object_born", "text", "text:{code}", ["object_class", "text"])
}

/// A boundary that was widened over a row keeps it from being handed off, and the audit takes it for backlog. What the set should
/// amount to says so, also where as much was taken out at the other end.
#[tokio::test(flavor = "multi_thread")]
async fn a_boundary_that_was_widened_over_a_row_is_found_by_the_audit() {
    let db = migrated().await;
    db.sql(COUNT_FROM_ONE).await;
    done(&db.url, &["types", "activate", "--all"]).await;
    done(&db.url, &["sources", "remove", "birth_registry"]).await;
    db.sql(&births(6)).await;
    db.sql("create table texts (id text primary key, code text not null); insert into texts select 'k' || i, 'b' || i from generate_series(1, 4) i")
        .await;
    done(&db.url, &["sources", "apply"]).await;
    register(&db.url, &texts_with_backlog()).await;
    // Honestly: after a replay, and registered again.
    cli(&db.url, &["replay", "--source", "birth_registry", "--from", "3", "--to", "4"]).await;
    cli(&db.url, &["replay", "--source", "texts", "--from", "k2", "--to", "k2"]).await;
    for source in ["birth_registry", "texts"] {
        assert_eq!(changed(&db, source).await, [""; 0], "{source}");
        done(&db.url, &["sources", "remove", source]).await;
    }
    done(&db.url, &["sources", "apply"]).await;
    register(&db.url, &texts_with_backlog()).await;
    let held = "select string_agg(held || ' ' || held_sum, ', ' order by source_name) from gov_source_boundary where policy <> 'hand_off' and row_count > 0";
    assert!(db.text(held).await.starts_with("4 28, 3 "), "{}", db.text(held).await);
    for source in ["birth_registry", "texts"] {
        assert_eq!(changed(&db, source).await, [""; 0], "{source}");
    }
    let born = "insert into birth_registry (id, entity_code, collection_name, born_at) values (7, 'late', 'laws', '2000-01-01'); insert into texts values ('late', 'late')";
    db.sql(&format!(
        "create table kept as select * from gov_backlog_range;
         update gov_backlog_range set hi = 7 where hi = 6;
         insert into gov_backlog_key (boundary, subject)
         select boundary, gov_handoff.gov_handoff_identity('texts', 'text', 'late') from gov_source_boundary where source_name = 'texts';
         {born}"
    ))
    .await;
    once(&db.url).await;
    let late = format!(
        "select count(*) from event_outbox where {SIGNALS} and safe_payload ->> 'object_ref' like '%:late'"
    );
    assert_eq!(db.number(&late).await, 0, "the forged boundary hides them");
    for source in ["birth_registry", "texts"] {
        assert_eq!(changed(&db, source).await, ["backlog"], "{source}");
    }
    let told = cli(&db.url, &["audit", "--full", "--source", "birth_registry"]).await;
    assert!(told.code == 1 && told.out.contains("backlog"), "{}", told.out);
    // As many rows as before, but not the same.
    db.sql("update gov_backlog_range set lo = lo + 1 where lo = 1").await;
    assert_eq!(changed(&db, "birth_registry").await, ["backlog"]);
    // With the boundary back as it was, the row is missing, and repaired.
    db.sql("delete from gov_backlog_range; insert into gov_backlog_range select * from kept").await;
    let (_, found) = audited(&db, &FULL, "birth_registry").await;
    assert_eq!(
        (keys(&found["missing_keys"]), found["registers"].as_array().map(Vec::len)),
        (set(&["7"]), Some(0)),
        "{found}"
    );
    assert_eq!(changed(&db, "birth_registry").await, [""; 0]);
}

/// A mark of retention for a signal that never existed keeps it from being made, and the audit takes it for retired.
#[tokio::test(flavor = "multi_thread")]
async fn a_mark_of_retention_for_a_row_without_a_signal_is_found_by_the_audit() {
    let db = proven(9).await;
    add_texts(&db).await;
    db.sql("insert into texts (id, code) select 'k' || i, 't' || i from generate_series(1, 4) i").await;
    // Honestly: retired twice, in portions, with keys that are retired again and keys of which other signals are left.
    for round in 1..=2 {
        once(&db.url).await;
        cli(&db.url, &FULL).await;
        done(&db.url, &["retire", "--before", "2999-01-01"]).await;
        for source in ["birth_registry", "texts"] {
            assert_eq!(changed(&db, source).await, [""; 0], "{source} {round}");
        }
        db.sql(&births(3)).await;
        db.sql(&format!("insert into texts (id, code) values ('again{round}', 'a')")).await;
        db.sql("delete from birth_registry where id = 6; insert into birth_registry (id, entity_code, collection_name, born_at)
                values (6, 'reborn', 'laws', clock_timestamp()); delete from gov_worker_frontier")
            .await;
    }
    once(&db.url).await;
    done(&db.url, &["sources", "remove", "texts"]).await;
    register_texts(&db).await;
    for source in ["birth_registry", "texts"] {
        assert_eq!(changed(&db, source).await, [""; 0], "{source}");
    }
    let forge = [
        ("birth_registry", "insert into gov_retired_range (source_name, lo, hi) values ('birth_registry', 100, 100)", "delete from gov_retired_range where lo = 100"),
        (
            "texts",
            "insert into gov_retired_signal (id, source_name)
             values (gov_handoff.gov_handoff_identity('texts', 'text', 'late', 'governance.handoff.object_born'), 'texts')",
            "delete from gov_retired_signal where id = gov_handoff.gov_handoff_identity('texts', 'text', 'late', 'governance.handoff.object_born')",
        ),
        // The mark excuses the row whatever source it names, or none.
        (
            "texts",
            "insert into gov_retired_signal (id) values (gov_handoff.gov_handoff_identity('texts', 'text', 'late', 'governance.handoff.object_born'))",
            "delete from gov_retired_signal where source_name is null",
        ),
        // As many marks as before, but not the same.
        (
            "birth_registry",
            "update gov_retired_range set lo = lo + 1, hi = hi + 1 where (source_name, lo) = (select source_name, max(lo) from gov_retired_range where source_name = 'birth_registry' group by 1)",
            "update gov_retired_range set lo = lo - 1, hi = hi - 1 where (source_name, lo) = (select source_name, max(lo) from gov_retired_range where source_name = 'birth_registry' group by 1)",
        ),
    ];
    for (source, corrupt, mend) in forge {
        db.sql(corrupt).await;
        assert_eq!(changed(&db, source).await, ["retired"], "{corrupt}");
        db.sql(mend).await;
        assert_eq!(changed(&db, source).await, [""; 0], "{corrupt}");
    }
    // Such a row is not handed off, and not missing either.
    db.sql(
        "insert into gov_retired_range (source_name, lo, hi) values ('birth_registry', 100, 100);
            insert into birth_registry (id, entity_code, collection_name) values (100, 'late', 'laws')",
    )
    .await;
    once(&db.url).await;
    assert_eq!(changed(&db, "birth_registry").await, ["retired"]);
    let (_, found) = audited(&db, &CHECK, "birth_registry").await;
    assert_eq!(found["missing"].as_u64(), Some(0), "{found}");
    // Nobody reads the output of the worker, so it says the same as a finding of the source.
    let worker = [("GOV_HANDOFF_WORKERS", "gov_periodic_full_audit"), ("GOV_HANDOFF_AUDIT_EVERY", "1s")];
    let _daemon = Daemon::eager(&db.url, "poll", &worker);
    db.until(
        "select exists (select from system_issues where coalesce_key = 'audit_discrepancy:birth_registry' and resolved_at is null \
         and detail -> 'registers' = '[\"retired\"]')",
    )
    .await;
}
