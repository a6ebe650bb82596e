//! A living reader gives way: whoever changes a source that we read, and every birth behind them, waits about half a second.

use std::time::{Duration, Instant};

use crate::support::sources::{register, rule, source};
use crate::support::{Daemon, Database, cli, connect, done, migrated};

const QUICK: [(&str, &str); 4] = [
    ("GOV_HANDOFF_POLL_INTERVAL", "100ms"),
    ("GOV_HANDOFF_CERTIFY_INTERVAL", "1h"),
    ("GOV_HANDOFF_READ_TIMEOUT", "60s"),
    ("GOV_HANDOFF_LEASE_TTL", "60s"),
];

/// The promise is about half a second; the rest is the machine's. The server itself would end an idle reader after two.
const PROMISE: Duration = Duration::from_millis(1500);

/// Our reader holds the table and has done so for this long.
fn reads(db: &Database, table: &str, state: &str, time: &str) -> String {
    format!(
        "select exists (select from pg_locks l join pg_stat_activity a using (pid) where a.datname = '{}' \
         and a.application_name like 'gov-handoff reader %' and l.relation = '{table}'::regclass and l.granted \
         and a.state = '{state}' and a.xact_start < clock_timestamp() - interval '{time}')",
        db.name
    )
}

/// Alters the table and writes into it behind that; how long the writer waited.
async fn altered(db: &Database, alter: &str, write: &str) -> Duration {
    let (migration, writer) = (connect(&db.url).await, connect(&db.url).await);
    for session in [&migration, &writer] {
        session.batch_execute("set statement_timeout = '10s'").await.expect("a bound");
    }
    let begun = Instant::now();
    let (altered, written) = tokio::join!(migration.batch_execute(alter), writer.batch_execute(write));
    altered.expect("the table can be altered");
    written.expect("births go on");
    begun.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn ddl_behind_a_long_scan_waits_no_longer_than_a_second() {
    let db = migrated().await;
    // The pass has to unpack and to take eight megabytes for each row; the rows are then set aside, being too large.
    db.sql(
        "create table wide_births (id uuid primary key default gen_random_uuid(), code text not null); \
         insert into wide_births (code) values (repeat('x', 8 << 20))",
    )
    .await;
    for _ in 0..10 {
        db.sql("insert into wide_births (code) select code from wide_births").await;
    }
    let definition =
        source("wide_births", "uuid", &["id", "code"]) + &rule("born", "birth", "{code}", ["code", "{code}"]);
    register(&db.url, &definition).await;
    let daemon = Daemon::running(&db, "poll", &QUICK).await;
    db.until(&reads(&db, "wide_births", "active", "550 ms")).await;
    let birth = "insert into wide_births (code) values ('b')";
    let waited = altered(&db, "alter table wide_births add column x int", birth).await;
    assert!(waited < PROMISE, "waited {waited:?}\n{}", daemon.log());
    // Nothing was wrong with the source, and it is read again.
    let found = "select count(*) from system_issues where issue_kind = 'source_unreadable'";
    assert_eq!(db.number(found).await, 0, "{}", daemon.log());
    db.sql("delete from wide_births where pg_column_size(code) > 1000").await;
    let born = "select count(*) = 1 from event_pending where entity_table = 'wide_births' and event_type_hint = 'governance.handoff.born'";
    db.until(born).await;
    assert!(daemon.log().contains("it gave way"), "{}", daemon.log());
    assert!(!daemon.log().contains("starting over"), "{}", daemon.log());
}

/// A source that is read by its frontier, and whose rows take five seconds to record. All the while the pass keeps its snapshot.
async fn slowly_recorded() -> Database {
    let db = migrated().await;
    db.sql("create table births_by_name (id uuid primary key default gen_random_uuid(), code text not null)")
        .await;
    let definition = source("births_by_name", "uuid", &["id", "code"])
        + &rule("born", "birth", "{code}", ["code", "{code}"]);
    register(&db.url, &definition).await;
    db.sql(
        "create function public.slowly() returns trigger language plpgsql as \
         $$ begin if new.entity_table = 'births_by_name' then perform pg_catalog.pg_sleep(5); end if; return new; end $$; \
         create trigger slowly before insert on event_pending for each row execute function public.slowly()",
    )
    .await;
    db
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pass_that_hands_off_slowly_keeps_its_snapshot_while_nobody_waits_for_it() {
    let db = slowly_recorded().await;
    db.sql("insert into births_by_name (code) values ('b')").await;
    let daemon = Daemon::running(&db, "poll", &QUICK).await;
    let passed = "select count(*) > 0 from gov_worker_frontier where source_name = 'births_by_name'";
    db.until(passed).await;
    let log = daemon.log();
    assert!(!log.contains("starting over") && !log.contains("gave way"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ddl_behind_a_pass_that_hands_off_slowly_waits_no_longer_than_a_second() {
    let db = slowly_recorded().await;
    let birth = "insert into births_by_name (code) values ('b')";
    db.sql(birth).await;
    let daemon = Daemon::running(&db, "poll", &QUICK).await;
    db.until(&reads(&db, "births_by_name", "idle in transaction", "50 ms")).await;
    let waited = altered(&db, "alter table births_by_name add column x int", birth).await;
    assert!(waited < PROMISE, "waited {waited:?}\n{}", daemon.log());
    // What was being recorded is recorded once, and the pass begins again.
    db.sql("drop trigger slowly on event_pending").await;
    let recorded = "select count(distinct capture_payload ->> 'source_key') = 2 from event_pending where entity_table = 'births_by_name'";
    db.until(recorded).await;
    assert!(daemon.log().contains("it gave way"), "{}", daemon.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publication_that_waits_for_one_table_holds_up_births_into_another_for_a_second_at_most() {
    let db = migrated().await;
    let (held, operator) = (connect(&db.url).await, connect(&db.url).await);
    // The publication locks the registry, then waits for the change log.
    held.batch_execute("begin; lock table registry_changelog in access exclusive mode")
        .await
        .expect("a lock");
    let url = db.url.clone();
    let setup = tokio::spawn(async move { cli(&url, &["replication", "setup"]).await });
    db.until(
        "select exists (select from pg_stat_activity where application_name like 'gov-handoff replication%' \
              and wait_event_type = 'Lock')",
    )
    .await;
    operator.batch_execute("set statement_timeout = '10s'").await.expect("a bound");
    let begun = Instant::now();
    operator
        .batch_execute("alter table birth_registry add column publication_waits int")
        .await
        .expect("altered");
    db.births("b", 1).await;
    assert!(begun.elapsed() < PROMISE, "a birth waited {:?}", begun.elapsed());
    let ran = setup.await.expect("it ends");
    assert_eq!(ran.code, 2, "{ran:?}");
    held.batch_execute("rollback").await.expect("the lock goes");
    done(&db.url, &["replication", "setup"]).await;
    db.drop_slots().await;
}
