//! The candidate scan: verdicts as an independent model gives them, marks that arrive meanwhile, scans that share the groups.

use std::time::Duration;

use crate::support::{
    Daemon, Database, Random, TemporaryFile, active, candidate_store_equals_model, cli_with, connect, done,
    seed,
};

/// Intake, input gate and scan; the backlog has tests of its own.
pub const ALL: (&str, &str) = ("GOV_HANDOFF_WORKERS", "gov_handoff_intake,gov_input_gate,gov_candidate_scan");
const QUICK: [(&str, &str); 3] =
    [ALL, ("GOV_HANDOFF_LEASE_TTL", "2s"), ("GOV_HANDOFF_POLL_INTERVAL", "50ms")];

/// Everything that is there, through every worker, once.
pub async fn run_once(db: &Database) {
    let ran = cli_with(&db.url, &["run", "--once", "--mode", "poll"], &[ALL]).await;
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
}

/// A database whose births are trusted only of `a` and `b`.
async fn with_producers() -> Database {
    let db = active().await;
    let sources = include_str!("../replication/sources.toml").replacen(
        "actor_ref = \"actor_ref\"\n",
        "actor_ref = \"actor_ref\"\ntrust = { by = \"source_system\", producers = [\"a\", \"b\"] }\n",
        1,
    );
    done(&db.url, &["sources", "apply", TemporaryFile::new("sources.toml", &sources).path()]).await;
    db
}

/// Random rows of both sources: few codes and instants, so that objects are born twice, move, tie and retire.
async fn write_randomly(db: &Database, random: &mut Random) {
    for _ in 0..random.between(10, 60) {
        let collection = random.pick(&["person", "plant", "axis", "policy"]);
        let code = random.below(12);
        let hour = random.below(6);
        let system = random.pick(&["'a'", "'b'", "'c'", "null"]);
        if random.percent(45) {
            let status = if random.percent(30) { "'registered'" } else { "null" };
            let at = if random.percent(10) {
                "null".to_owned()
            } else {
                format!("timestamptz '2026-01-01 00:00Z' + {hour} * interval '1 hour'")
            };
            db.sql(&format!(
                "insert into birth_registry (entity_code, collection_name, status, source_system, born_at)
                 values ('E{code}', '{collection}', {status}, {system}, {at})"
            ))
            .await;
        } else {
            let action = random.pick(&["register", "recount", "retire", "migrate", "edit", "supersede"]);
            let entity =
                random.pick(&["person", "plant", "collection", "axis", "policy", "owner", "ruleset"]);
            db.sql(&format!(
                "insert into registry_changelog (entity_type, entity_code, action, source_system, \"timestamp\")
                 values ('{entity}', 'E{code}', '{action}', {system}, timestamp '2026-01-01' + {hour} * interval '1 hour')"
            ))
            .await;
        }
    }
}

/// Sometimes another list of producers, other checks, or other rules.
async fn decide_randomly(db: &Database, random: &mut Random) {
    if random.percent(50) {
        let verb = random.pick(&["grant", "revoke"]);
        let producer = random.pick(&["a", "b", "c"]);
        done(&db.url, &["trust", verb, "--source", "birth_registry", "--producer", producer]).await;
    }
    if random.percent(40) {
        let check = random.pick(&["key_not_unique", "provenance_untrusted"]);
        done(&db.url, &["checks", random.pick(&["enable", "disable"]), check]).await;
    }
    if random.percent(60) {
        let mut rules = String::new();
        for code in ["one", "two", "three", "four"] {
            let (grain, test) = random.pick(&[
                ("group", "fact = \"members\", at_least = 3"),
                ("group", "fact = \"rejected\", at_least = 1"),
                ("group", "fact = \"retired\", at_least = 2"),
                ("group", "fact = \"changes\", at_most = 4"),
                ("group", "fact = \"last_kind\", one_of = [\"object_retired\", \"count_changed\"]"),
                ("group", "dimension = \"object_class\", equals = \"person\", not = true"),
                ("object", "fact = \"retired\", equals = true"),
                ("object", "fact = \"input\", equals = \"rejected\""),
                ("object", "fact = \"last_kind\", equals = \"object_registered\""),
                ("object", "dimension = \"lifecycle\", present = true"),
            ]);
            let (verdict, priority) = (random.pick(&["odd", "large", "old"]), random.between(1, 3));
            rules += &format!(
                "[[rule]]\ncode = \"{code}\"\ngrain = \"{grain}\"\npriority = {priority}\nverdict = \"{verdict}\"\nwhen = [{{ {test} }}]\n"
            );
        }
        done(&db.url, &["rules", "apply", TemporaryFile::new("rules.toml", &rules).path()]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn random_births_changes_retirements_rules_and_trust_end_as_the_model_says() {
    let seed = seed();
    println!("GOV_HANDOFF_TEST_SEED={seed}");
    let mut random = Random::new(seed);
    let db = with_producers().await;
    for _ in 0..5 {
        write_randomly(&db, &mut random).await;
        if random.percent(50) {
            run_once(&db).await;
        }
        decide_randomly(&db, &mut random).await;
        run_once(&db).await;
        candidate_store_equals_model(&db).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_that_arrives_while_its_group_is_scanned_is_still_dirty_afterwards() {
    let db = active().await;
    db.sql("insert into birth_registry (entity_code, collection_name) values ('first', 'c')").await;
    let stop = [
        &QUICK[..],
        &[("GOV_HANDOFF_LEASE_TTL", "60s"), ("GOV_HANDOFF_FAILPOINT", "scan_before_put:1:stop")],
    ]
    .concat();
    let daemon = Daemon::start(&db.url, &["--mode", "poll"], &stop);
    // Stopped between reading the group and recording the verdict: all of the process, with its intake and its gate.
    db.until("select exists (select from gov_candidate_group where dirty)").await;
    let state = format!("/proc/{}/stat", daemon.pid());
    crate::support::until("it is stopped", async || {
        std::fs::read_to_string(&state).is_ok_and(|stat| stat.contains(") T "))
    })
    .await;
    // Another hand marks the group in the meantime: what it marks is the store's to keep.
    db.sql(
        "select gov_handoff.gov_candidate_seed('birth_registry', '{77}', '{governance.handoff.object_born}', '{c}', '{c:late}',
            '{object_class=c/source_registry=birth_registry}', array['{\"object_class\": \"c\"}'::jsonb], array[now()])",
    )
    .await;
    let generation = db.number("select generation from gov_candidate_group").await;
    daemon.signal("CONT");
    // If the scan had cleared the mark, nothing would ever look at the second member.
    db.until("select not dirty and members = 2 from gov_candidate_group").await;
    assert!(db.number("select generation from gov_candidate_group").await >= generation);
    assert_eq!(
        db.number("select count(*) from gov_candidate_state where scanned_group is null or dirty").await,
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn scans_that_share_the_groups_count_every_member_once_also_when_their_number_changes() {
    let db = active().await;
    let mut random = Random::new(seed());
    for shards in ["3", "1", "2"] {
        let environment = [&QUICK[..], &[("GOV_HANDOFF_SCAN_SHARDS", shards)]].concat();
        // Two instances of different opinions: the holder of the first lease decides.
        let mut daemon = Daemon::start(&db.url, &["--mode", "poll"], &environment);
        let mut other = Daemon::start(
            &db.url,
            &["--mode", "poll"],
            &[&QUICK[..], &[("GOV_HANDOFF_SCAN_SHARDS", "4")]].concat(),
        );
        for _ in 0..4 {
            write_randomly(&db, &mut random).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(other.sigterm().await, 0, "{}", other.log());
        assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
        run_once(&db).await;
        candidate_store_equals_model(&db).await;
    }
}

/// A lease of the scan, held by this test.
async fn leased(db: &Database) -> i64 {
    db.number(
        "select term from gov_handoff.gov_lease_claim('gov_candidate_scan', 'this test', interval '1 hour')",
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_division_or_of_another_scan_is_refused() {
    let db = active().await;
    db.births("x", 3).await;
    run_once(&db).await;
    let term = leased(&db).await;
    let put = |shard: i32, shards: i32| {
        format!(
            "select judged from gov_handoff.gov_scan_put('gov_candidate_scan', 'this test', {term}, {shard}, {shards}, 1,
                (select array_agg(group_key) from gov_candidate_group), (select array_agg(generation) from gov_candidate_group),
                (select array_agg(scan_version) from gov_candidate_group), (select array_agg(scan_mark) from gov_candidate_group),
                (select array_agg(scan_key) from gov_candidate_group), (select array_agg(1) from gov_candidate_group),
                (select array_agg(scan_mark) from gov_candidate_group), (select array_agg(''::text) from gov_candidate_group),
                (select array_agg(true) from gov_candidate_group), (select array_agg('v'::text) from gov_candidate_group),
                (select array_agg('r'::text) from gov_candidate_group), (select array_agg(null::text) from gov_candidate_group),
                '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', 0, true, true)"
        )
    };
    let client = connect(&db.url).await;
    client.batch_execute(&put(1, 1)).await.expect("the division in force");
    for (shard, shards) in [(1, 2), (2, 1)] {
        let refused = client.batch_execute(&put(shard, shards)).await.expect_err("another division");
        assert_eq!(refused.code().map(|code| code.code()), Some("GH002"), "{refused:?}");
    }
    // A page that holds the division keeps a new one waiting until its commit.
    let pager = connect(&db.url).await;
    pager.batch_execute(&format!("begin; {}", put(1, 1))).await.expect("a page");
    let divide = "set lock_timeout = '300ms'; update gov_scan_control set shards = 2";
    assert!(client.batch_execute(divide).await.is_err(), "the page has the division");
    pager.batch_execute("rollback").await.expect("rollback");
    client.batch_execute(divide).await.expect("nobody has it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_verdict_is_one_event_captured_until_its_type_is_active() {
    let db = active().await;
    done(&db.url, &["types", "deactivate", "governance/governance.candidate.verdict_changed"]).await;
    let events = "select count(*) from event_pending where event_type_hint = 'governance.candidate.verdict_changed' and processed_at is null";
    db.sql("insert into birth_registry (entity_code, collection_name) values ('a', 'c')").await;
    run_once(&db).await;
    assert_eq!(db.number(events).await, 1, "a group of one; the first verdict of an object is no change");
    db.sql("insert into birth_registry (entity_code, collection_name) values ('b', 'c')").await;
    run_once(&db).await;
    run_once(&db).await;
    assert_eq!(db.number(events).await, 2, "single, then candidate");
    db.sql("insert into registry_changelog (entity_type, entity_code, action, \"timestamp\") values ('c', 'a', 'retire', now() at time zone 'UTC')")
        .await;
    run_once(&db).await;
    let group = "select verdict from gov_candidate_group where group_key like '%birth_registry'";
    assert_eq!(db.text(group).await, "single", "the retired one has left");
    assert_eq!(
        db.number("select retired from gov_candidate_group where group_key like '%lifecycle%'").await,
        1
    );
    done(&db.url, &["types", "activate", "governance/governance.candidate.verdict_changed"]).await;
    run_once(&db).await;
    let emitted =
        "select count(*) from event_outbox where event_type = 'governance.candidate.verdict_changed'";
    assert!(db.number(emitted).await >= 4, "{}", db.number(emitted).await);
    candidate_store_equals_model(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_verdict_past_its_time_is_made_again() {
    let db = active().await;
    db.births("x", 7).await;
    run_once(&db).await;
    let before = db.text("select max(scanned_at)::text from gov_candidate_state").await;
    let ran =
        cli_with(&db.url, &["run", "--once", "--mode", "poll"], &[ALL, ("GOV_HANDOFF_STALE_AFTER", "1h")])
            .await;
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(db.text("select max(scanned_at)::text from gov_candidate_state").await, before, "not yet");
    db.sql("update gov_candidate_group set stale_after = now() - interval '1 second'").await;
    run_once(&db).await;
    let again = format!("select count(*) from gov_candidate_state where scanned_at <= '{before}'");
    assert_eq!(db.number(&again).await, 0, "every member was judged again");
    candidate_store_equals_model(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_or_gate_that_stops_is_silent_and_a_paused_one_is_not() {
    let db = active().await;
    let daemon = Daemon::running(&db, "poll", &QUICK).await;
    for worker in ["gov_input_gate", "gov_candidate_scan"] {
        db.until(&format!("select exists (select from queue_heartbeat where executor_name = '{worker}' and lease_owner is not null and metadata ? 'cadence_ms')")).await;
    }
    done(&db.url, &["pause", "gov_candidate_scan"]).await;
    daemon.says("paused").await;
    db.sql("select fn_governance_watch()").await;
    let open = |worker: &str| {
        format!(
            "select exists (select from system_issues where resolved_at is null and issue_kind ~ 'silent' and coalesce_key like '%{worker}')"
        )
    };
    for worker in ["gov_input_gate", "gov_candidate_scan"] {
        db.until(&format!("select not ({})", open(worker))).await;
    }
    done(&db.url, &["resume", "gov_candidate_scan"]).await;
    daemon.signal("STOP");
    for worker in ["gov_input_gate", "gov_candidate_scan"] {
        db.until(&format!(
            "select exists (select from fn_governance_watch(clock_timestamp() + interval '8 seconds')
                            where worker_name = '{worker}' and verdict <> 'ok') and ({})",
            open(worker)
        ))
        .await;
    }
    daemon.signal("CONT");
    for worker in ["gov_input_gate", "gov_candidate_scan"] {
        db.until(&format!("select not ({})", open(worker))).await;
    }
}

/// A scan with nothing to do looks every few milliseconds. That must not cost more the more groups there are.
#[tokio::test(flavor = "multi_thread")]
async fn a_scan_with_nothing_to_do_reads_no_group() {
    let db = crate::invalidation::with_groups(5_000).await;
    let once = ["run", "--once", "--mode", "poll"];
    let scan = [("GOV_HANDOFF_WORKERS", "gov_candidate_scan")];
    assert_eq!(cli_with(&db.url, &once, &scan).await.code, 0);
    db.sql("vacuum analyze gov_candidate_group").await;
    db.sql("select pg_stat_force_next_flush()").await;
    let read = "select seq_tup_read + coalesce(idx_tup_fetch, 0) from pg_stat_user_tables where relname = 'gov_candidate_group'";
    let before = db.number(read).await;
    assert_eq!(cli_with(&db.url, &once, &scan).await.code, 0);
    // One group past its time is found, and no more than it is read.
    db.sql("update gov_candidate_group set stale_after = now() - interval '1 second' where group_key = (select max(group_key) from gov_candidate_group)")
        .await;
    assert_eq!(cli_with(&db.url, &once, &scan).await.code, 0);
    db.until("select not exists (select from gov_candidate_group where dirty or stale_after < now())").await;
    db.sql("select pg_stat_force_next_flush()").await;
    let groups = db.number(read).await - before;
    assert!(
        groups < 7_000,
        "{groups} rows were read; the update and the wait of this test read up to 5,001 of them"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn candidates_and_groups_are_listed_page_by_page() {
    let db = active().await;
    db.births("x", 10).await;
    run_once(&db).await;
    let mut seen: Vec<String> = Vec::new();
    loop {
        let last = seen.last().cloned().unwrap_or_default();
        let page = done(&db.url, &["candidates", "--json", "--limit", "3", "--after", &last]).await;
        let page: serde_json::Value = serde_json::from_str(&page).expect("json");
        let keys = page
            .as_array()
            .expect("a list")
            .iter()
            .map(|c| c["candidate"].as_str().expect("a key").to_owned());
        let before = seen.len();
        seen.extend(keys);
        if seen.len() == before {
            break;
        }
    }
    assert_eq!(seen.len(), 10);
    let member = done(
        &db.url,
        &[
            "candidates",
            "--json",
            "--group",
            "object_class=c1/source_registry=birth_registry",
            "--verdict",
            "accepted",
        ],
    )
    .await;
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&member).expect("json").as_array().map(Vec::len),
        Some(2)
    );
    let groups = done(&db.url, &["groups"]).await;
    assert!(groups.contains("candidate") && groups.contains("object_class=c0"), "{groups}");
    assert!(!done(&db.url, &["groups", "--dirty"]).await.contains("object_class"), "nothing is dirty");
    assert_eq!(
        db.number("select n from v_gov_coverage where measure = 'object_verdict' and class = 'accepted'")
            .await,
        10
    );
}
