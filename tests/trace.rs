//! `trace` tells the truth for a row in each of its possible states, for keys of every type, at the cost of index look-ups.

use serde_json::Value;

use crate::dead_letters::{CURE, POISON, policy};
use crate::support::sources::{register, rule, source};
use crate::support::{
    Daemon, Database, active, active_on, cli, connect, done, migrated, options, private_cluster,
};

/// Keys with everything that a shell, a terminal, SQL or JSON could take for its own.
const ODD: &str = "Điều 45 | §=% '\" \\ {id} $1 --; \u{1b}[2J\n";

async fn traced(db: &Database, of: &str, key: &str) -> Value {
    let ran = cli(&db.url, &["trace", of, key, "--json"]).await;
    let told: Value =
        serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {}{}", ran.out, ran.err));
    let settled = ["handed_off", "retired", "seeded", "skipped", "excluded", "set_aside"];
    let is_settled = settled.contains(&told["state"].as_str().expect("a state"));
    assert_eq!(ran.code, i32::from(!is_settled), "{told:#}");
    told
}

/// Traces a row and insists on its state and on words of the sentence.
async fn is(db: &Database, of: &str, key: &str, state: &str, says: &str) -> Value {
    let told = traced(db, of, key).await;
    assert_eq!(told["state"], state, "{of} {key}: {told:#}");
    let sentence = told["sentence"].as_str().expect("a sentence");
    assert!(sentence.contains(says), "{of} {key}: {sentence}");
    told
}

/// Writes a birth and returns its key.
async fn birth(db: &Database, code: &str) -> String {
    db.text(&format!(
        "insert into birth_registry (entity_code, collection_name, birth_payload) \
         values ('{code}', 'laws', '{{\"x\": \"canary-7f3a-in-the-content\"}}') returning id::text"
    ))
    .await
}

async fn once(db: &Database) {
    done(&db.url, &["run", "--once", "--mode", "poll"]).await;
}

async fn forget(db: &Database, key: &str) {
    let sql =
        "delete from event_outbox where event_domain = 'governance' and safe_payload ->> 'source_key' = ";
    db.sql(&format!("{sql}'{key}'")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_was_handed_off_is_told_by_its_path() {
    let db = active().await;
    let polled = birth(&db, "polled").await;
    let quick = [("GOV_HANDOFF_CERTIFY_INTERVAL", "200ms")];
    let mut poller = Daemon::running(&db, "poll", &quick).await;
    let covered = |key: &str| {
        format!(
            "select exists (select from v_governance_certificate_history h, birth_registry b where h.source_name = 'birth_registry' \
             and b.id = {key} and (h.certificate ->> 'frontier')::numeric > b.xmin::text::numeric)"
        )
    };
    db.until(&covered(&polled)).await;
    let told = is(&db, "birth_registry", &polled, "handed_off", "one signal, recorded by polling at 2").await;
    assert_eq!(poller.sigterm().await, 0);
    let facts = &told["facts"];
    assert_eq!(facts["signals"][0]["kind"], "governance.handoff.object_born");
    assert_eq!(facts["signals"][0]["address"], "laws:polled");
    assert!(facts["signals"][0]["feed_position"].is_i64(), "{facts}");
    assert_eq!(facts["groups"][0]["group"], "object_class=laws/source_registry=birth_registry");
    assert!(facts["row"]["transaction"].as_u64().is_some_and(|t| t > 700), "{facts}");

    // Each later path brings a row whose signal somebody deleted.
    forget(&db, &polled).await;
    let missing = is(&db, "birth_registry", &polled, "missing", "run `gov-handoff audit --full`").await;
    assert!(missing["facts"]["frontier"].as_u64() > facts["row"]["transaction"].as_u64(), "{missing}");
    cli(&db.url, &["audit", "--full"]).await;
    is(&db, "birth_registry", &polled, "handed_off", "by an audit").await;
    forget(&db, &polled).await;
    cli(&db.url, &["replay", "--source", "birth_registry", "--from", &polled, "--to", &polled]).await;
    is(&db, "birth_registry", &polled, "handed_off", "by an operator's replay").await;

    let quick = [("GOV_HANDOFF_CERTIFY_INTERVAL", "300ms"), ("GOV_HANDOFF_RECONCILE_INTERVAL", "1h")];
    let _daemon = Daemon::running(&db, "stream", &quick).await;
    db.sql(
        "insert into event_subscription (event_domain, recipient_ref) values ('governance', 'user:huyen')",
    )
    .await;
    let streamed = birth(&db, "streamed").await;
    db.until(&covered(&streamed)).await;
    let told = is(&db, "birth_registry", &streamed, "handed_off", "by the stream").await;
    // The first certificate that covers it, and no later one.
    let first = format!(
        "select (h.certificate ->> 'frontier') from v_governance_certificate_history h, birth_registry b \
         where h.source_name = 'birth_registry' and b.id = {streamed} and (h.certificate ->> 'frontier')::numeric > b.xmin::text::numeric \
         order by h.taken_at limit 1"
    );
    assert_eq!(told["facts"]["certificate"]["frontier"].to_string(), db.text(&first).await, "{told:#}");
    assert_eq!(told["facts"]["recipients"][0]["actor"], "user:huyen", "{told:#}");

    let people = cli(&db.url, &["trace", "birth_registry", &streamed]).await;
    let lines: Vec<_> = people.out.lines().collect();
    assert_eq!(lines.first(), Some(&&*format!("birth_registry {streamed}")), "{}", people.out);
    assert!(lines.last().is_some_and(|l| l.starts_with("handed off: one signal")), "{}", people.out);
    for what in ["recorded", "certified", "group", "recipients", "feed position"] {
        assert!(people.out.contains(what), "no {what}: {}", people.out);
    }
    for out in [&people.out, &told.to_string()] {
        assert!(!out.contains("canary"), "contents of a row are shown: {out}");
    }

    // Of a row that is gone only its signal's transaction is known, which is a later one.
    let covered = format!(
        "select exists (select from v_governance_certificate_history h, event_outbox o where h.source_name = 'birth_registry' \
         and o.safe_payload ->> 'source_key' = '{streamed}' and (h.certificate ->> 'frontier')::numeric > o.xmin::text::numeric)"
    );
    db.until(&covered).await;
    db.sql(&format!("delete from birth_registry where id = {streamed}")).await;
    let gone = is(&db, "birth_registry", &streamed, "handed_off", "the row is no longer in its table").await;
    assert!(gone["facts"]["certificate"].is_object(), "{gone:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_waits_says_for_what() {
    let db = migrated().await;
    done(&db.url, &["types", "activate", "object_born"]).await;
    let key = birth(&db, "a").await;
    let never = "no daemon runs gov_handoff_intake (never ran); start `gov-handoff run`";
    is(&db, "birth_registry", &key, "waiting", never).await;
    once(&db).await;
    is(&db, "birth_registry", &key, "handed_off", "by polling").await;

    // A kind that is inactive, beside one that is active.
    let half = db
        .text("insert into birth_registry (entity_code, collection_name, status) values ('half', 'laws', 'registered') returning id::text")
        .await;
    done(&db.url, &["pause", "gov_handoff_intake", "--reason", "month end"]).await;
    is(&db, "birth_registry", &half, "waiting", "is paused (month end); run `gov-handoff resume").await;
    done(&db.url, &["resume", "gov_handoff_intake"]).await;
    once(&db).await;
    let kind = "governance.handoff.object_registered";
    let says = format!(
        "{kind} is inactive (1 of 2 signals are handed off); run `gov-handoff types activate {kind}`"
    );
    is(&db, "birth_registry", &half, "captured", &says).await;
    done(&db.url, &["types", "activate", kind]).await;
    is(&db, "birth_registry", &half, "handed_off", "2 signals").await;

    // No rule knows it.
    let odd = "insert into registry_changelog (entity_type, entity_code, action) values ('no', 'x', 'such') returning id::text";
    let odd = db.text(odd).await;
    once(&db).await;
    is(&db, "registry_changelog", &odd, "unmapped", "no rule of registry_changelog matches").await;

    // A producer that is not trusted.
    let choosy = include_str!("../replication/sources.toml").replacen(
        "actor_ref = \"actor_ref\"\n",
        "actor_ref = \"actor_ref\"\ntrust = { producers = [\"importer\"] }\n",
        1,
    );
    register(&db.url, &choosy).await;
    let stranger = "insert into birth_registry (entity_code, collection_name, source_system) values ('s', 'laws', 'stranger') returning id::text";
    let stranger = db.text(stranger).await;
    once(&db).await;
    is(&db, "birth_registry", &stranger, "untrusted", "does not trust the producer stranger").await;
    done(&db.url, &["trust", "grant", "--source", "birth_registry", "--producer", "stranger"]).await;
    let promoted = db.text("select capture_payload::text from event_pending where event_type_hint = 'governance.handoff.retry'").await;
    assert!(promoted.contains("stranger") || promoted.contains(&stranger), "{promoted}");
    is(
        &db,
        "birth_registry",
        &stranger,
        "staged",
        "waiting for its turn (captured before its producer was trusted)",
    )
    .await;
    let _daemon = db.daemon("poll", &[]);
    db.until(
        "select not exists (select from event_pending where event_type_hint = 'governance.handoff.retry')",
    )
    .await;
    is(&db, "birth_registry", &stranger, "handed_off", "by a retry").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_the_database_rejects_is_followed_to_its_end() {
    let db = active().await;
    db.sql(POISON).await;
    db.sql(&policy(1_000, 3_600_000, 3_600_000)).await;
    let (staged, dead, dropped) =
        (birth(&db, "poison-1").await, birth(&db, "poison-2").await, birth(&db, "poison-3").await);
    let mut daemon = db.daemon("poll", &[]);
    db.until("select count(*) = 3 from event_pending where event_type_hint = 'governance.handoff.retry'")
        .await;
    assert_eq!(daemon.sigterm().await, 0);
    let told =
        is(&db, "birth_registry", &staged, "staged", "refused by the database (23514, constraint no_poison)")
            .await;
    assert!(told["facts"]["staged"]["next_attempt_at"].is_string(), "{told:#}");
    // Two of the three use their chances up, the third is handed off once the cause is gone.
    db.sql(&policy(2, 1, 1)).await;
    let due = format!(
        "update event_pending set process_after = now() where event_type_hint = 'governance.handoff.retry' \
         and capture_payload ->> 'source_key' <> '{staged}'"
    );
    db.sql(&due).await;
    let mut daemon = db.daemon("poll", &[]);
    db.until("select count(*) = 2 from iu_route_dead_letter where resolved_at is null").await;
    let told =
        is(&db, "birth_registry", &dead, "dead_letter", "rejected 2 times (refused_by_database)").await;
    let letter = told["facts"]["letter"]["id"].as_str().expect("a letter").to_owned();
    assert!(told["sentence"].as_str().expect("text").ends_with(&format!("gov-handoff dlq show {letter}`")));
    let other = traced(&db, "birth_registry", &dropped).await;
    let other = other["facts"]["letter"]["id"].as_str().expect("a letter").to_owned();
    done(&db.url, &["dlq", "discard", "--id", &other, "--reason", "a test", "--actor", "huyen"]).await;
    is(&db, "birth_registry", &dropped, "set_aside", "was discarded by huyen").await;
    db.sql(CURE).await;
    done(&db.url, &["dlq", "replay", "--id", &letter]).await;
    is(&db, "birth_registry", &dead, "handed_off", "by an operator's replay").await;
    db.sql(
        "update event_pending set process_after = now() where event_type_hint = 'governance.handoff.retry'",
    )
    .await;
    db.until(
        "select not exists (select from event_pending where event_type_hint = 'governance.handoff.retry')",
    )
    .await;
    is(&db, "birth_registry", &staged, "handed_off", "by a retry").await;
    assert_eq!(daemon.sigterm().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_needs_no_handoff_says_why() {
    let db = active().await;
    // Before the boundary: the source is removed and its rows are a backlog when it is registered again.
    done(&db.url, &["sources", "remove", "birth_registry"]).await;
    let (seeded, later) = (birth(&db, "seeded").await, "birth_registry");
    register(&db.url, include_str!("../replication/sources.toml")).await;
    is(&db, later, &seeded, "seeded", "becomes a candidate when the sweep has come to it").await;
    done(&db.url, &["backfill"]).await;
    is(&db, later, &seeded, "seeded", "its object laws:seeded is a candidate").await;
    db.sql("create table notes (id text primary key, body text)").await;
    db.sql("insert into notes values ('old', 'canary-7f3a-in-the-content')").await;
    let notes = source("notes", "text", &["id"])
        + "backlog = \"skip\"\n"
        + &rule("object_born", "note", "note:{id}", ["class", "note"]);
    register(&db.url, &notes).await;
    is(&db, "notes", "old", "skipped", "which is skipped").await;

    let key = birth(&db, "retired").await;
    once(&db).await;
    done(&db.url, &["audit", "--full"]).await;
    let signal =
        db.text("select id::text from verify.handoffs where event_subject_table = 'birth_registry'").await;
    is(&db, "event_outbox", &signal, "excluded", "the definition of event_outbox excludes this row").await;
    is(&db, "birth_registry", &key, "handed_off", "by polling").await;
    done(&db.url, &["retire", "--before", "2999-01-01"]).await;
    is(&db, "birth_registry", &key, "retired", "retention has removed its signals since").await;
    db.sql(&format!("delete from birth_registry where id = {key}")).await;
    is(&db, "birth_registry", &key, "retired", "retention").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_not_there_is_told_from_one_that_may_still_come() {
    let db = active().await;
    let first: i64 = birth(&db, "first").await.parse().expect("an id");
    let open = connect(&db.url).await;
    let insert = "begin; insert into birth_registry (entity_code, collection_name) values ('open', 'laws')";
    open.batch_execute(insert).await.expect("an open transaction");
    birth(&db, "last").await;
    let (late, above) = ((first + 1).to_string(), (first + 9).to_string());
    is(&db, "birth_registry", &above, "never_existed", "nothing of the source was read yet").await;
    once(&db).await;
    is(&db, "birth_registry", &above, "never_existed", "above all that were seen").await;
    is(&db, "birth_registry", "-7", "never_existed", "below all that were seen").await;
    is(&db, "birth_registry", &late, "not_committed", "may commit this one").await;
    open.batch_execute("rollback").await.expect("rolled back");
    // A daemon finds that nobody is left who could commit it.
    let _daemon = db.daemon(
        "poll",
        &[("GOV_HANDOFF_CERTIFY_INTERVAL", "200ms"), ("GOV_HANDOFF_RECONCILE_INTERVAL", "200ms")],
    );
    db.until(&format!("select exists (select from gov_worker_gap where source_name = 'birth_registry' and not hot and {late} between lo and hi)")).await;
    is(&db, "birth_registry", &late, "never_existed", "it was rolled back, or its id was never used").await;
}

/// An id in a range that was certified away is found by the frontier alone, not by the open ranges.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_the_certifying_pass_found_is_told_so() {
    let db = active().await;
    db.sql("update dot_config set value = '5' where key = 'governance.holes.kept'").await;
    let quick = [("GOV_HANDOFF_CERTIFY_INTERVAL", "200ms"), ("GOV_HANDOFF_RECONCILE_INTERVAL", "200ms")];
    let _daemon = db.daemon("poll", &quick);
    let births = |ids: &str| {
        format!(
            "insert into birth_registry (id, entity_code, collection_name) select g, 'h' || g, 'c' from generate_series({ids}) g"
        )
    };
    db.sql(&births("2, 100, 2")).await;
    db.until("select count(*) between 1 and 8 from gov_worker_gap where source_name = 'birth_registry'")
        .await;
    db.until("select certified_away > 0 from gov_worker_frontier where source_name = 'birth_registry'").await;
    db.sql(&births("11, 11")).await;
    db.until("select exists (select from verify.handoffs where safe_payload ->> 'captured_by' = 'certify')")
        .await;
    is(&db, "birth_registry", "11", "handed_off", "one signal, recorded by the certifying pass at 2").await;
}

/// Keys of every type, odd ones among them, through the frontier as well.
#[tokio::test(flavor = "multi_thread")]
async fn keys_of_every_type_are_found_and_wrong_ones_are_refused() {
    let db = active().await;
    db.sql("create table big (id bigint primary key, body text); create table marks (id uuid primary key, body text);
            create table notes (id text primary key, body text)").await;
    let of = |table: &str, id_type: &str| {
        source(table, id_type, &["id"])
            + &rule("object_born", table, &format!("{table}:{{id}}"), ["class", table])
    };
    register(&db.url, &(of("big", "int8") + &of("marks", "uuid") + &of("notes", "text"))).await;
    let uuid = "8c04f5f7-0000-4000-8000-00000000000a";
    db.sql(&format!("insert into big values (-9223372036854775808, 'canary'), (42, 'canary'); insert into marks values ('{uuid}', 'canary')")).await;
    db.client
        .execute("insert into notes values ($1, 'canary'), ('', 'canary')", &[&ODD])
        .await
        .expect("notes");
    once(&db).await;
    for (table, key) in [
        ("big", "-9223372036854775808"),
        ("big", "0042"),
        ("marks", uuid),
        ("marks", &uuid.to_uppercase()),
        ("notes", ODD),
        ("notes", ""),
    ] {
        let told = is(&db, table, key, "handed_off", "one signal").await;
        assert!(!told.to_string().contains("canary"), "{told:#}");
    }
    assert_eq!(traced(&db, "big", "0042").await["facts"]["key"], "42", "as the server writes it");
    let shown = cli(&db.url, &["trace", "notes", ODD]).await.out;
    assert!(!shown.contains('\u{1b}') && shown.contains("\\u{1b}[2J\\n"), "{shown:?}");
    let says = "a row that was rolled back cannot be told from one that never was";
    is(&db, "marks", "8c04f5f7-0000-4000-8000-00000000000b", "never_existed", says).await;
    is(&db, "notes", "nobody", "never_existed", says).await;

    for (arguments, says) in [
        (["no_such", "1"], "unknown source no_such; known are big, birth_registry"),
        (["birth_registry", "x"], "`x` is no key of birth_registry: expected an integer from -2147483648"),
        (["birth_registry", "2147483648"], "expected an integer from -2147483648 to 2147483647 (column id)"),
        (["big", "1,2"], "expected an integer from -9223372036854775808"),
        (["marks", "42"], "expected a UUID such as"),
    ] {
        let ran = cli(&db.url, &["trace", arguments[0], arguments[1]]).await;
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{arguments:?}: {}", ran.err);
        assert!(ran.err.starts_with("error: GH1") && ran.err.contains(says), "{arguments:?}: {}", ran.err);
    }
    let (eyes, nobody) = (format!("trace_eyes_{}", db.name), format!("trace_nobody_{}", db.name));
    db.sql(&format!("create role {eyes} login in role gov_handoff_observer; create role {nobody} login in role gov_handoff_operator")).await;
    for (role, says) in
        [(&eyes, "gov_handoff_worker or gov_handoff_operator"), (&nobody, "permission denied for table big")]
    {
        let ran = cli(&db.url_as(role), &["trace", "big", "42"]).await;
        assert!(
            ran.code == 2 && ran.err.starts_with("error: GH1300: ") && ran.err.contains(says),
            "{}",
            ran.err
        );
    }
}

/// A key that another row takes over is another row, and is told as such.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_took_a_used_key_is_told_from_the_row_before_it() {
    let db = active().await;
    let key = birth(&db, "first").await;
    once(&db).await;
    db.sql(&format!(
        "delete from birth_registry where id = {key}; insert into birth_registry (id, entity_code, collection_name) values ({key}, 'second', 'laws')"
    ))
    .await;
    let told = is(&db, "birth_registry", &key, "waiting", "").await;
    assert_eq!(told["facts"]["row"]["took_a_used_key"], true, "{told:#}");
    cli(&db.url, &["audit", "--full"]).await;
    let told = is(&db, "birth_registry", &key, "handed_off", "2 signals").await;
    let addresses: Vec<_> =
        told["facts"]["signals"].as_array().expect("signals").iter().map(|s| s["address"].clone()).collect();
    assert_eq!(addresses, ["laws:first", "laws:second"]);
}

/// Where the server keeps commit times, the trace tells how long the handoff took.
#[tokio::test(flavor = "multi_thread")]
async fn the_time_of_the_commit_is_told_where_the_server_keeps_it() {
    let settings = vec![("track_commit_timestamp".to_owned(), "on".to_owned())];
    let cluster = private_cluster(gov_handoff::embedded::ClusterOptions { settings, ..options() }).await;
    let db = active_on(&cluster).await;
    let key = birth(&db, "a").await;
    once(&db).await;
    let told = is(&db, "birth_registry", &key, "handed_off", "s after its commit").await;
    let at = format!(
        "select pg_xact_commit_timestamp(xmin) = '{}'::timestamptz from birth_registry",
        told["facts"]["row"]["committed_at"].as_str().expect("a time")
    );
    assert!(db.client.query_one(&at, &[]).await.expect("a time").get::<_, bool>(0), "{told:#}");
    assert_eq!(told["timeline"][0]["what"], "committed");
}

/// On tables of some size nothing is scanned, whatever state the row is in. The counters of the server are those of the
/// statements as they ran, with their parameters and plans: that is more than an EXPLAIN of each would show.
#[tokio::test(flavor = "multi_thread")]
async fn a_trace_goes_by_indexes_alone() {
    let db = active().await;
    db.births("b", 8_000).await;
    once(&db).await;
    done(&db.url, &["audit", "--full"]).await;
    done(&db.url, &["retire", "--before", "2999-01-01"]).await;
    db.births("c", 8_000).await;
    once(&db).await;
    db.sql("insert into event_pending (event_domain, event_type_hint, canonical_address, actor_ref, capture_payload)
            select 'governance', 'x', 'a', 'a', '{}' from generate_series(1, 8000);
            insert into iu_route_dead_letter (worker_name, event_domain, route_code, idempotency_key, failure_code)
            select 'gov_handoff_intake', 'governance', 'x', 'x:' || g, 'c' from generate_series(1, 8000) g;
            insert into gov_worker_gap (worker_name, source_name, lo, hi, hot)
            select 'gov_handoff_intake', 'x', g * 2, g * 2, false from generate_series(1, 8000) g;
            insert into gov_retired_signal (id) select gen_random_uuid() from generate_series(1, 8000);
            insert into gov_reused_key (subject, source_name) select gen_random_uuid(), 'x' from generate_series(1, 8000)").await;
    db.sql("vacuum analyze").await;
    let large = "select relname::text from pg_class where reltuples >= 5000 and relkind = 'r' and relnamespace = 'public'::regnamespace order by 1";
    let large = db.texts(large).await;
    for table in [
        "birth_registry",
        "event_outbox",
        "event_pending",
        "event_feed",
        "gov_candidate_state",
        "gov_worker_gap",
    ] {
        assert!(large.iter().any(|t| t == table), "{table} is small: {large:?}");
    }
    let read = async || {
        db.until("select not exists (select from pg_stat_activity where datname = current_database() and application_name like 'gov-handoff%')").await;
        db.sql("select pg_stat_force_next_flush()").await;
        let query = "select relname || ' ' || seq_tup_read from pg_stat_user_tables where relname = any (string_to_array($1, ' ')) order by 1";
        let rows = db.client.query(query, &[&large.join(" ")]).await.expect("the counters");
        rows.iter().map(|row| row.get(0)).collect::<Vec<String>>()
    };
    let fetched =
        "select sum(idx_tup_fetch)::bigint from pg_stat_user_tables where relname <> 'gov_worker_cursor'";
    let (before, fetched_before) = (read().await, db.number(fetched).await);
    for key in ["5", "12000", "99999", "-3"] {
        traced(&db, "birth_registry", key).await;
    }
    assert_eq!(read().await, before, "a table was scanned");
    let fetched = db.number(fetched).await - fetched_before;
    assert!(fetched < 4 * 500, "{fetched} rows were fetched by index for four traces");
}
