//! Every kind of handoff through both paths: the same rows, whoever brought them.

use crate::support::fixture::{ALL_KINDS, SIGNALS, TEN, UNMAPPED};
use crate::support::sources::{register, rule, source};
use crate::support::{Daemon, Database, TemporaryFile, cli, done, migrated};

/// Everything a signal says but for who captured it and when it was written.
const SIGNALS_SAID: &str = "
select jsonb_build_array(id, event_domain, event_type, event_stream, event_severity, delivery_lane, event_subject_table,
           event_subject_ref, canonical_address, actor_ref, source_system, payload_classification,
           safe_payload - 'captured_by', occurred_at)::text
  from event_outbox where event_domain = 'governance' and event_stream <> 'health' order by 1";

const CAPTURES_SAID: &str = "
select jsonb_build_array(id, event_domain, event_type_hint, entity_table, entity_ref, canonical_address, actor_ref,
           capture_payload - 'captured_by', last_error, processed_at)::text
  from event_pending where event_type_hint <> 'governance.handoff.certified' order by 1";

/// Scopes may dirty a group once more when batches fall otherwise, so generations are no part of it.
const MARKS_SAID: &str = "
select jsonb_build_array(group_key, dims, dirty, changes, last_occurred_at)::text from gov_candidate_group order by 1";

const WHO: &str = "
select distinct p from (select safe_payload ->> 'captured_by' as p from event_outbox where event_domain = 'governance' and event_stream <> 'health'
                  union all select capture_payload ->> 'captured_by' from event_pending where event_type_hint <> 'governance.handoff.certified') as x order by 1";

async fn handed_off(mode: &str) -> (Database, Daemon) {
    let db = migrated().await;
    done(&db.url, &["types", "activate", "--all"]).await;
    // It is there before the rows are: what it streams it did not find by looking.
    let daemon = Daemon::running(
        &db,
        mode,
        &[("GOV_HANDOFF_RECONCILE_INTERVAL", "300ms"), ("GOV_HANDOFF_CERTIFY_INTERVAL", "1h")],
    )
    .await;
    // Nor is it certifying, which finds rows as well: that comes first, and then not for an hour.
    db.until("select count(*) = 5 from gov_worker_cursor where last_run_summary ? 'certificate'").await;
    db.client.batch_execute(ALL_KINDS).await.expect("the fixture");
    let all = format!(
        "select (select count(*) from event_outbox where event_domain = 'governance' and event_stream <> 'health') >= {SIGNALS} \
         and (select count(*) from event_pending where event_type_hint <> 'governance.handoff.certified') >= {UNMAPPED}"
    );
    db.until(&all).await;
    (db, daemon)
}

#[tokio::test]
async fn each_kind_and_the_unmapped_capture_are_the_same_rows_through_stream_and_poll() {
    let ((polled, _first), (streamed, _second)) = tokio::join!(handed_off("poll"), handed_off("stream"));
    for query in [SIGNALS_SAID, CAPTURES_SAID, MARKS_SAID] {
        let (by_poll, by_stream) = (polled.texts(query).await, streamed.texts(query).await);
        assert!(!by_poll.is_empty());
        assert_eq!(by_poll, by_stream);
    }
    assert_eq!(polled.texts(WHO).await, ["poll"]);
    assert_eq!(streamed.texts(WHO).await, ["stream"]);
    let kinds = "select distinct safe_payload ->> 'change_kind' from event_outbox where event_domain = 'governance' and event_stream <> 'health' order by 1";
    assert_eq!(polled.texts(kinds).await, TEN);
    for db in [&polled, &streamed] {
        let signals = "select count(*) from event_outbox where event_domain = 'governance' and event_stream <> 'health'";
        assert_eq!(db.number(signals).await, SIGNALS);
        assert_eq!(
            db.number(
                "select count(*) from event_pending where event_type_hint <> 'governance.handoff.certified'"
            )
            .await,
            UNMAPPED
        );
        assert_eq!(db.number("select count(*) from iu_route_dead_letter").await, 0);
    }
}

#[tokio::test]
async fn a_signal_has_the_names_that_other_programs_rely_on() {
    let db = migrated().await;
    done(&db.url, &["types", "activate", "--all"]).await;
    db.client.batch_execute(ALL_KINDS).await.expect("the fixture");
    done(&db.url, &["run", "--mode", "poll", "--once"]).await;
    let born = "
        select jsonb_build_object('domain', event_domain, 'type', event_type, 'stream', event_stream, 'table', event_subject_table,
                                  'address', canonical_address, 'payload', safe_payload)::text
          from event_outbox where event_type = 'governance.handoff.object_born' and safe_payload ->> 'source_key' = '1'";
    let born: serde_json::Value = serde_json::from_str(&db.texts(born).await[0]).expect("json");
    let expected = serde_json::json!({
        "domain": "governance", "type": "governance.handoff.object_born", "stream": "birth", "table": "birth_registry",
        "address": "laws:law-1",
        "payload": {
            "object_type": "laws", "object_ref": "laws:law-1", "canonical_address": "laws:law-1",
            "group_key": born["payload"]["group_key"], "change_kind": "object_born", "source": "birth_registry",
            "source_key": "1", "occurred_at": "2026-01-02T03:04:05.678901+00:00", "source_system": "importer",
            "actor_ref": "user:huyen", "captured_by": "poll",
        },
    });
    assert_eq!(born, expected);
    let unmapped = "select capture_payload ->> 'change_kind' || ' ' || entity_table || ' ' || last_error from event_pending
                     where event_type_hint <> 'governance.handoff.certified' and capture_payload ->> 'source_key' = '21'";
    assert_eq!(db.texts(unmapped).await, ["unmapped registry_changelog unmapped"]);
}

/// Births of every mixture of word, other word and NULL in three columns.
const MIXTURES: &str = "
insert into birth_registry (entity_code, collection_name, status, actor_ref, source_system)
select 'm', concat_ws('/', coalesce(s, 'null'), coalesce(a, 'null'), coalesce(p, 'null')), s, a, p
  from unnest(array['open', 'draft', null]) s, unnest(array['bot:1', 'me', null]) a, unnest(array['importer', null]) p;
insert into registry_changelog (id, entity_type, entity_code, action)
values (1, 'law', null, 'register'), (2, 'law', '', 'register'), (3, 'law', 'L3', 'register')";

#[tokio::test]
async fn null_is_excluded_alike_and_silent_codes_stay_apart_on_both_paths() {
    // Only what is open, not by a bot, and of a named producer: NULL fails a test, and so passes one that is turned around.
    let sources = include_str!("../replication/sources.toml").replacen(
        "actor_ref = \"actor_ref\"\n",
        "actor_ref = \"actor_ref\"\nexclude = [{ column = \"status\", equals = \"open\", not = true }, \
         { column = \"actor_ref\", prefix = \"bot:\" }, { column = \"source_system\", present = false }]\n",
        1,
    );
    for mode in ["poll", "stream"] {
        let db = migrated().await;
        register(&db.url, &sources).await;
        let often = [("GOV_HANDOFF_RECONCILE_INTERVAL", "200ms"), ("GOV_HANDOFF_CERTIFY_INTERVAL", "200ms")];
        let _daemon = Daemon::running(&db, mode, &often).await;
        db.client.batch_execute(MIXTURES).await.expect("the mixtures");
        let recorded = |table: &str| {
            format!(
                "select canonical_address from event_pending where entity_table = '{table}' and entity_ref is not null \
                     and event_type_hint <> 'governance.handoff.policy_changed' order by canonical_address collate \"C\""
            )
        };
        db.until("select count(*) = 6 from event_pending where entity_table = 'registry_changelog' and entity_ref is not null").await;
        // Passes over everything have been made since.
        let now = db.texts("select clock_timestamp()::text").await;
        db.until(&format!(
                "select exists (select from gov_worker_frontier where source_name = 'birth_registry' and certified_at > '{}')",
                now[0]
            ),
        )
        .await;
        let births = db.texts(&recorded("birth_registry")).await;
        assert_eq!(births, ["open/me/importer:m", "open/null/importer:m"], "{mode}");
        let changes = db.texts(&recorded("registry_changelog")).await;
        assert_eq!(changes, ["law:L3", "registry_changelog:1", "registry_changelog:2"], "{mode}");
        let blamed = "select count(*) from system_issues where issue_kind in ('handoff_missed', 'source_not_conserved')";
        assert_eq!(db.number(blamed).await, 0, "{mode}");
    }
}

/// Types whose cast to text is not what their output function writes, and some where it is.
const RENDERED: &str = "
create type mood as enum ('glad', 'sad');
create domain flag as boolean;
create table things (id int primary key, b boolean, f flag, c char(5), i inet, d cidr, n numeric(8, 2), day date, x \"char\",
                     m mood, j jsonb, a boolean[], v interval, w xml);
";
const RENDERED_ROWS: &str = "
insert into things values
    (1, true, true, 'ab', '10.0.0.1', '10.0.0.0/8', 1.5, '2026-02-03', 'z', 'glad', '{\"k\":[1,true]}', '{t,f,null}', '90 min',
     '<?xml version=\"1.0\" encoding=\"utf-8\"?><r/>'),
    (2, false, false, '', '10.0.0.1/24', '::1/128', 0, '0044-03-15 BC', '', 'sad', 'null', '{}', '-1 day', '<r>x</r>'),
    (3, null, null, null, null, null, null, null, null, null, null, null, null, null)";

#[tokio::test]
async fn a_column_of_any_type_reads_alike_on_both_paths() {
    let columns = ["id", "b", "f", "c", "i", "d", "n", "day", "x", "m", "j", "a", "v", "w"];
    let every = "{b}|{f}|{c}|{i}|{d}|{n}|{day}|{x}|{m}|{j}|{a}|{v}|{w}";
    // The rule on `true` fires by the text that the stream brings; the other for every row.
    let when = rule("object_registered", "thing", "{id}", ["flag", "{b}"])
        + "when = [{ column = \"b\", equals = \"t\" }, { column = \"c\", equals = \"ab   \" }, \
           { column = \"i\", one_of = [\"10.0.0.1\"] }]\n";
    let sources =
        source("things", "int4", &columns) + &rule("object_born", "thing", every, ["flag", "{f}"]) + &when;
    let said = "select capture_payload ->> 'change_kind' || ' ' || (capture_payload ->> 'object_ref')
                  from event_pending where entity_table = 'things' and entity_ref is not null order by 1";
    let mut paths = Vec::new();
    for mode in ["poll", "stream"] {
        let db = migrated().await;
        db.client.batch_execute(RENDERED).await.expect("a table");
        register(&db.url, &sources).await;
        let rarely = [("GOV_HANDOFF_RECONCILE_INTERVAL", "1h"), ("GOV_HANDOFF_CERTIFY_INTERVAL", "1h")];
        let mut daemon = Daemon::running(&db, mode, if mode == "poll" { &[] } else { &rarely }).await;
        db.client.batch_execute(RENDERED_ROWS).await.expect("rows");
        db.until(
            "select count(*) = 4 from event_pending where entity_table = 'things' and entity_ref is not null",
        )
        .await;
        paths.push(db.texts(said).await);
        daemon.sigterm().await;
        // The frontier and the audit read it alike as well: they find what is recorded, and nothing else to say.
        done(&db.url, &["run", "--mode", "poll", "--once"]).await;
        done(&db.url, &["audit", "--full"]).await;
        done(&db.url, &["replay", "--source", "things", "--from", "1"]).await;
        assert_eq!(db.texts(said).await, paths[paths.len() - 1], "{mode}");
    }
    assert_eq!(paths[0], paths[1]);
    let first = "object_born t|t|ab   |10.0.0.1|10.0.0.0/8|1.50|2026-02-03|z|glad|{\"k\": [1, true]}|{t,f,NULL}|01:30:00|";
    assert!(paths[0].iter().any(|said| said.starts_with(first)), "{:?}", paths[0]);
    assert!(paths[0].contains(&"object_registered 1".to_owned()), "{:?}", paths[0]);
}

#[tokio::test]
async fn a_test_is_written_with_the_text_that_the_server_writes() {
    let db = migrated().await;
    db.client.batch_execute(RENDERED).await.expect("a table");
    let head = source("things", "int4", &["id", "b", "c"]);
    let born = rule("object_born", "thing", "{id}", ["flag", "{b}"]);
    for (test, says) in [
        ("{ column = \"b\", equals = \"true\" }", "boolean writes as `t`"),
        ("{ column = \"b\", one_of = [\"f\", \"maybe\"] }", "`maybe`, which is no boolean"),
        ("{ column = \"c\", equals = \"ab\" }", "character(5) writes as `ab   `"),
    ] {
        let exclude = head.clone() + &format!("exclude = [{test}]\n") + &born;
        for definition in [exclude, head.clone() + &born + &format!("when = [{test}]\n")] {
            let file = TemporaryFile::new("sources.toml", &definition);
            let refused = cli(&db.url, &["sources", "apply", file.path()]).await;
            assert_eq!(refused.code, 2, "{}", refused.err);
            assert!(refused.err.contains(says), "{says}: {}", refused.err);
        }
    }
}
