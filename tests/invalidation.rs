//! A handoff that concerns many groups.

use std::time::{Duration, Instant};

use crate::scan::{ALL, run_once};
use crate::support::{Daemon, Database, active, cli_with, done};

/// As many as the issue asks for.
const GROUPS: i64 = 100_000;

/// So many groups with one candidate each, and their input accepted.
pub async fn with_groups(n: i64) -> Database {
    let db = active().await;
    db.sql(&format!(
        "do $$ begin for b in 0..{n}/5000 - 1 loop
           perform gov_handoff.gov_marks_put(1, g.k, g.d, g.t, g.r, g.c, g.a, g.o, g.k, g.s, g.i, g.r, g.t)
              from (select array_agg('g=' || lpad(x::text, 7, '0')) k, array_agg(jsonb_build_object('g', x::text)) d, array_agg(now()) t,
                           array_agg('governance.handoff.object_born'::text) r, array_agg(1) c, array_agg('o:' || x) a,
                           array_agg('o'::text) o, array_agg('birth_registry'::text) s, array_agg(x::text) i
                      from generate_series(b * 5000, b * 5000 + 4999) x) g;
         end loop; end $$;
         update gov_candidate_state set input_quality_state = 'ok';
         analyze gov_candidate_state, gov_candidate_group"
    ))
    .await;
    db
}

/// From the insert until the batch that carries it is committed.
async fn batch(db: &Database, insert: &str, committed: &str) -> Duration {
    let begun = Instant::now();
    db.sql(insert).await;
    db.until(committed).await;
    begun.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ruleset_change_over_all_groups_is_one_row_for_the_intake_and_every_group_is_scanned_whatever_is_killed()
 {
    let db = with_groups(GROUPS).await;
    let scan = ("GOV_HANDOFF_WORKERS", "gov_candidate_scan");
    let once = ["run", "--once", "--mode", "poll"];
    assert_eq!(cli_with(&db.url, &once, &[scan]).await.code, 0);
    let single = "select count(*) from gov_candidate_group where verdict = 'single' and not dirty";
    assert_eq!(db.number(single).await, GROUPS);

    // The intake alone: its batch with the ruleset costs no more than its batch without.
    let mut daemon = Daemon::running(&db, "poll", &[("GOV_HANDOFF_POLL_INTERVAL", "20ms")]).await;
    let (mut plain, mut ruleset) = (Duration::MAX, Duration::MAX);
    for n in 1..=3 {
        let change = |entity: &str| {
            format!(
                "insert into registry_changelog (entity_type, entity_code, action, \"timestamp\") values ('{entity}', 'x{n}', 'edit', now())"
            )
        };
        let seen = |kind: &str| {
            format!("select count(*) = {n} from event_outbox where event_type = 'governance.handoff.{kind}'")
        };
        plain = plain.min(batch(&db, &change("axis"), &seen("axis_introduced")).await);
        ruleset = ruleset.min(batch(&db, &change("ruleset"), &seen("ruleset_changed")).await);
    }
    assert!(
        ruleset < plain * 4 + Duration::from_millis(100),
        "{ruleset:?} with the ruleset, {plain:?} without"
    );
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
    assert_eq!(db.number("select count(*) from gov_invalidation where done_at is null").await, 3);
    // The count stops at ten thousand; that all of them are dirty is what the view says.
    assert_eq!(db.number("select gov_handoff.gov_dirty_groups()").await, 10_000, "dirty from the commit on");
    assert!(db.number("select count(*) from v_gov_dirty").await >= GROUPS, "dirty from the commit on");
    let shown = done(&db.url, &["groups", "--dirty", "--limit", "5"]).await;
    assert!(shown.contains("ruleset_changed"), "{shown}");

    // Killed at random places, and started again.
    for place in [
        "expand_after:3",
        "scan_before_put:2",
        "scan_after_put:5",
        "expand_after:9",
        "scan_after_put:40",
        "scan_before_put:60",
    ] {
        let killed = cli_with(
            &db.url,
            &once,
            &[scan, ("GOV_HANDOFF_FAILPOINT", place), ("GOV_HANDOFF_LEASE_TTL", "2s")],
        )
        .await;
        assert!(killed.code == -1 || killed.code == 0, "{place}: {} {}", killed.code, killed.err);
    }
    assert_eq!(cli_with(&db.url, &once, &[scan, ("GOV_HANDOFF_LEASE_TTL", "2s")]).await.code, 0);
    let version = db.number("select gov_handoff.gov_ruleset_version()::bigint").await;
    assert_eq!(version, 4, "each change is a version");
    assert_eq!(db.number("select count(*) from v_gov_dirty").await, 0);
    let scanned =
        format!("select count(*) from gov_candidate_group where scanned_version = {version} and not dirty");
    assert_eq!(db.number(&scanned).await, db.number("select count(*) from gov_candidate_group").await);
    let rows = format!(
        "select count(*) from gov_candidate_state where ruleset_version = {version} and not dirty and counted_as is not null"
    );
    assert_eq!(db.number(&rows).await, db.number("select count(*) from gov_candidate_state").await);
    let counted = "select count(*) from gov_candidate_group g where members <> (select count(*) from gov_candidate_state c where c.group_key = g.group_key)";
    assert_eq!(db.number(counted).await, 0, "nothing is counted twice");
    let tally = "select sum(n)::bigint from gov_verdict_tally where grain = 'object'";
    assert_eq!(
        db.number(tally).await,
        db.number("select count(*) from gov_candidate_state where candidate_verdict is not null").await
    );
    assert_eq!(
        db.number("select count(*) from system_issues where issue_kind = 'group_invalidation_storm'").await,
        1,
        "and it was said"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scope_marks_the_groups_that_have_its_dimensions_and_no_others() {
    let db = active().await;
    db.sql(
        "insert into registry_changelog (entity_type, entity_code, action, \"timestamp\") values
              ('policy', 'p', 'edit', now()), ('policy', 'q', 'edit', now()), ('owner', 'p', 'grant', now())",
    )
    .await;
    run_once(&db).await;
    let before = db.text("select max(scanned_at)::text from gov_candidate_group").await;
    db.sql("insert into registry_changelog (entity_type, entity_code, action, \"timestamp\") values ('law', 'p', 'edit', now())").await;
    run_once(&db).await;
    let again = format!("select group_key from gov_candidate_group where scanned_at > '{before}' order by 1");
    assert_eq!(db.texts(&again).await, ["owner_scope=owner/scope=p", "scope=p"]);
    let version = "select scanned_version::bigint from gov_candidate_group where group_key = 'owner_scope=owner/scope=p'";
    assert_eq!(db.number(version).await, db.number("select gov_handoff.gov_ruleset_version()::bigint").await);
    let ran = cli_with(&db.url, &["groups", "--dirty"], &[ALL]).await;
    assert!(!ran.out.contains("scope="), "{}", ran.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalidations_that_follow_each_other_quickly_end_and_keep_no_group_waiting() {
    let db = with_groups(20_000).await;
    let all = [ALL, ("GOV_HANDOFF_POLL_INTERVAL", "20ms"), ("GOV_HANDOFF_THROTTLE_PAUSE", "10ms")];
    let mut daemon = Daemon::running(&db, "poll", &all).await;
    for n in 0..20 {
        db.sql(&format!("insert into governance_ruleset (ruleset_code) values ('r{n}')")).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let done = "select count(*) = 0 from v_gov_dirty";
    let handed_off =
        "select count(*) = 20 from event_outbox where event_type = 'governance.handoff.ruleset_changed'";
    db.until(&format!("select ({handed_off}) and ({done})")).await;
    let last = "select gov_handoff.gov_ruleset_version()";
    let behind = format!("select count(*) from gov_candidate_group where scanned_version <> ({last})");
    assert_eq!(db.number(&behind).await, 0);
    assert_eq!(db.number("select count(*) from gov_invalidation where done_at is null").await, 0);
    // The storm is said, and ends; the intake never rests for it.
    let storms = |state: &str| {
        format!(
            "select count(*) > 0 from system_issues where coalesce_key = 'group_invalidation_storm:gov_candidate_scan' and resolved_at is {state}"
        )
    };
    db.until(&storms("not null")).await;
    assert!(!daemon.log().contains("the pace changed"), "{}", daemon.log());
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
}
