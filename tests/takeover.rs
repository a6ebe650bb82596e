//! Attacks on the lease: locks of strangers, names that come again, and a holder that is stopped in the middle of its work.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use crate::support::{Daemon, connect, done, migrated, text};

const QUICK: [(&str, &str); 2] = [("GOV_HANDOFF_LEASE_TTL", "1s"), ("GOV_HANDOFF_POLL_INTERVAL", "100ms")];

#[tokio::test(flavor = "multi_thread")]
async fn an_advisory_lock_of_anybody_stops_no_claim() {
    let db = migrated().await;
    db.sql(
        "insert into queue_heartbeat (executor_name, executor_kind, lease_owner, metadata) \
             values ('gov_handoff_intake', 'external_worker', 'gone', '{\"term\": 7, \"ttl_ms\": 3600000}')",
    )
    .await;
    let stranger = connect(&db.url).await;
    stranger
        .batch_execute(
            "select pg_advisory_lock(6748002, hashtext(name)) from unnest('{gone,me}'::text[]) name; \
             select pg_advisory_lock(6748001, n) from generate_series(0, 9) n; \
             set application_name = 'gov-handoff keeper gone'",
        )
        .await
        .unwrap();
    db.sql("set statement_timeout = '10s'").await;
    let claim = "select concat_ws(' ', held, term, former) from gov_handoff.gov_lease_claim('gov_handoff_intake', 'me', '1 hour')";
    assert_eq!(db.text(claim).await, "t 8 gone", "the holder has no session");
    // It has one now, and whoever claims next finds it alive.
    let claim = claim.replace("'me'", "'you'");
    assert_eq!(text(&stranger, &claim).await, "f 8");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_of_another_role_does_not_speak_for_the_holder() {
    let db = migrated().await;
    db.sql("create role impostor login").await;
    let owner = "host-1-0123456789abcdef";
    let claim = |owner: &str| {
        format!(
            "select concat_ws(' ', held, term, former) from gov_handoff.gov_lease_claim('gov_handoff_intake', '{owner}', '1 hour')"
        )
    };
    let holder = connect(&db.url).await;
    assert_eq!(text(&holder, &claim(owner)).await, "t 1");
    let tagged = format!("set application_name = 'gov-handoff reader {}'", &owner[owner.len() - 12..]);
    let (impostor, beside) = (connect(&db.url_as("impostor")).await, connect(&db.url).await);
    impostor.batch_execute(&tagged).await.unwrap();
    beside.batch_execute(&tagged).await.unwrap();
    drop(holder);
    db.until("select count(*) = 3 from pg_stat_activity where datname = current_database()").await;
    assert_eq!(db.text(&claim("me")).await, "f 1", "another session of the holder's is there");
    drop(beside);
    db.until("select count(*) = 2 from pg_stat_activity where datname = current_database()").await;
    assert_eq!(db.text(&claim("me")).await, format!("t 2 {owner}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_takeover_ends_the_sessions_of_its_predecessor() {
    let db = migrated().await;
    let stopped = Daemon::running(&db, "stream", &QUICK).await;
    let owner =
        "select right(lease_owner, 12) from queue_heartbeat where executor_name = 'gov_handoff_intake'";
    let tag = db.text(owner).await;
    let theirs =
        format!("select count(*) from pg_stat_activity where application_name like 'gov-handoff % {tag}'");
    assert!(db.number(&theirs).await > 2);
    stopped.signal("STOP");
    let successor = Daemon::running(&db, "poll", &QUICK).await;
    db.until(&format!("select ({theirs}) = 0")).await;
    assert!(successor.log().contains("ended its sessions"), "{}", successor.log());
    let ours = format!(
        "select count(*) from pg_stat_activity where application_name like 'gov-handoff keeper %' and datname = '{}'",
        db.name
    );
    assert!(db.number(&ours).await > 0, "its own are left");
    // Once it goes on, it stands by.
    stopped.signal("CONT");
    db.until("select exists (select from system_issues where coalesce_key = 'cursor_lease_conflict:gov_handoff_intake:lost')").await;
}

/// SIGSTOP in the middle of a certifying pass leaves a transaction that has read the source. Whoever alters the source waits
/// for it, and every birth waits for them.
#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_daemon_does_not_block_birth() {
    let db = migrated().await;
    // The pass that is stopped is the first, and the other sources would come before this one.
    for other in ["registry_changelog", "pivot_definitions", "governance_ruleset", "event_outbox"] {
        done(&db.url, &["sources", "remove", other]).await;
    }
    let birth = "insert into birth_registry (entity_code, collection_name) values ('b', 'laws')";
    db.sql(birth).await;
    let stop = [&QUICK[..], &[("GOV_HANDOFF_FAILPOINT", "frontier_before_fetch:1:stop")]].concat();
    let stopped = Daemon::start(&db.url, &["--mode", "poll"], &stop);
    let held = format!(
        "select exists (select from pg_locks l join pg_stat_activity a using (pid) where a.datname = '{}' \
         and a.application_name like 'gov-handoff reader %' and l.relation = 'birth_registry'::regclass \
         and a.state = 'idle in transaction')",
        db.name
    );
    db.until(&held).await;
    let (migration, writer) = (connect(&db.url).await, connect(&db.url).await);
    // The promise is two seconds; the rest is the machine's.
    for session in [&migration, &writer] {
        session.batch_execute("set statement_timeout = '4s'").await.unwrap();
    }
    let (altered, born) = tokio::join!(
        migration.batch_execute("alter table birth_registry add column x int"),
        writer.batch_execute(birth)
    );
    altered.expect("the registry can be altered");
    born.expect("births go on");
    drop(stopped);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_replays_with_the_same_pid_cannot_both_hold_the_lease() {
    let db = migrated().await;
    // The shell becomes the program, whose process id is known beforehand, as it is in a container.
    let mut shell = Command::new("sh")
        .args(["-c", "echo $$; read go; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_gov-handoff")])
        .args(["replay", "--source", "birth_registry", "--from", "0"])
        .env("DATABASE_URL", &db.url)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("sh runs");
    let mut pid = String::new();
    BufReader::new(shell.stdout.take().expect("stdout")).read_line(&mut pid).expect("its id");
    let claim = format!(
        "select held::text from gov_handoff.gov_lease_claim('gov_handoff_replay', 'replay-{}', '1 minute')",
        pid.trim()
    );
    assert_eq!(db.text(&claim).await, "true");
    shell.stdin.take().expect("stdin").write_all(b"go\n").expect("go");
    let ended =
        tokio::task::spawn_blocking(move || shell.wait_with_output()).await.expect("waits").expect("ends");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(!ended.status.success() && said.contains("another replay is running"), "{said}");
    db.sql("update queue_heartbeat set lease_owner = null").await;
    done(&db.url, &["replay", "--source", "birth_registry", "--from", "0"]).await;
}
