//! Nothing twice: stream, poll and replay over the same rows at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{Daemon, cli, connect, done, migrated};

const WRITERS: i32 = 4;
const ROUNDS: i32 = 60;

/// Births and changes from several writers, some committed late, some rolled back.
async fn write(url: String, writer: i32) {
    let mut client = connect(&url).await;
    for round in 0..ROUNDS {
        let transaction = client.transaction().await.expect("begin");
        let births = "insert into birth_registry (entity_code, collection_name, status) \
                      select format('%s-%s-%s', $1::int, $2::int, n), 'c' || n % 3, case n % 2 when 0 then 'registered' end \
                      from generate_series(1, 5) n";
        transaction.execute(births, &[&writer, &round]).await.expect("births");
        let changes = "insert into registry_changelog (entity_type, entity_code, action) \
                       values ('species', format('s-%s-%s', $1::int, $2::int), 'retire')";
        transaction.execute(changes, &[&writer, &round]).await.expect("a change");
        if round % 10 == 9 {
            transaction.rollback().await.expect("rollback");
        } else {
            transaction.commit().await.expect("commit");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stream_and_poll_and_replay_over_the_same_rows_at_once_hand_nothing_off_twice() {
    let db = migrated().await;
    done(&db.url, &["types", "activate", "--all"]).await;
    let quick = [("GOV_HANDOFF_RECONCILE_INTERVAL", "50ms"), ("GOV_HANDOFF_BATCH_ROWS", "7")];
    let mut daemon = Daemon::running(&db, "auto", &quick).await;
    let over = Arc::new(AtomicBool::new(false));
    let replays = tokio::spawn({
        let (url, over) = (db.url.clone(), Arc::clone(&over));
        async move {
            let mut runs = 0;
            while !over.load(Ordering::Relaxed) {
                for source in ["birth_registry", "registry_changelog"] {
                    let ran = cli(&url, &["replay", "--source", source, "--from", "0"]).await;
                    // Now and then it is the first.
                    assert!(ran.code == 0 || ran.code == 1, "{}{}", ran.out, ran.err);
                    runs += 1;
                }
            }
            runs
        }
    });
    let writers: Vec<_> = (0..WRITERS).map(|w| tokio::spawn(write(db.url.clone(), w))).collect();
    for writer in writers {
        writer.await.expect("a writer");
    }
    let all = "select (select count(*) from event_outbox where event_domain = 'governance' and event_stream <> 'health')
                   >= (select count(*) + count(*) filter (where status = 'registered') from birth_registry)
                    + (select count(*) from registry_changelog where source_system is distinct from 'gov-handoff')";
    db.until(all).await;
    over.store(true, Ordering::Relaxed);
    assert!(replays.await.expect("the replays") > 0);
    // One more look by everybody, after everything is there.
    done(&db.url, &["replay", "--source", "birth_registry", "--from", "0"]).await;
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
    done(&db.url, &["run", "--mode", "poll", "--once"]).await;

    let births = db.number("select count(*) from birth_registry").await;
    assert_eq!(births, i64::from(WRITERS * (ROUNDS - ROUNDS / 10) * 5));
    let twice = "select count(*) from (select event_type, safe_payload ->> 'source', safe_payload ->> 'source_key'
                   from event_outbox where event_domain = 'governance' and event_stream <> 'health' group by 1, 2, 3 having count(*) > 1) x";
    assert_eq!(db.number(twice).await, 0);
    let signals = db.number("select count(*) from event_outbox where event_domain = 'governance' and event_stream <> 'health'",
    )
    .await;
    let due = "select (select count(*) + count(*) filter (where status = 'registered') from birth_registry)
                    + (select count(*) from registry_changelog where source_system is distinct from 'gov-handoff')";
    assert_eq!(signals, db.number(due).await);
    let changes = db.number("select sum(changes)::bigint from gov_candidate_group").await;
    assert_eq!(changes, signals, "a mark counts each handoff once");
    let counted = "select coalesce(string_agg(format('%s: %s of %s', g.group_key, g.changes, o.n), ', '), '')
                     from gov_candidate_group g
                     left join (select safe_payload ->> 'group_key' as k, count(*) as n from event_outbox
                                 where event_domain = 'governance' and event_stream <> 'health' group by 1) o on o.k = g.group_key
                    where g.changes is distinct from o.n or g.generation > g.changes";
    assert_eq!(db.text(counted).await, "");
    assert_eq!(
        db.number(
            "select count(*) from event_pending where event_type_hint <> 'governance.handoff.certified'"
        )
        .await,
        0
    );
    assert_eq!(db.number("select count(*) from iu_route_dead_letter").await, 0);
}
