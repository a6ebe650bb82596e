//! The delayed lane, escalation and the broadcast watch, each rule under a clock of the test; ticks from many sessions at once.

use crate::read_state::feed;
use crate::support::{Database, connect, migrated};

/// A database in which the roll-ups of `iu` and the type `piece_moved` are active. The clock of the test begins at `T`.
async fn lane() -> Database {
    let db = migrated().await;
    db.sql(
        "insert into event_type_registry (event_domain, event_type, event_stream, active) values
             ('iu', 'piece_moved', 'update', true), ('system', 'server_down', 'alert', true);
         update event_type_registry set active = true where event_type = 'iu.rollup'",
    )
    .await;
    db
}

const T: &str = "timestamptz '2030-01-01 00:00:00+00'";

/// Emits a piece into the delayed lane, at so many seconds on the test's clock.
async fn piece(db: &Database, n: u32, group: Option<&str>, at: u32) {
    let payload =
        group.map_or_else(|| "{}".to_owned(), |group| format!("{{\"import_batch_ref\": \"{group}\"}}"));
    let emit = format!(
        "select fn_event_emit(p_domain => 'iu', p_type => 'piece_moved', p_subject_table => 'piece', \
         p_subject_ref => lpad('{n}', 32, '0')::uuid, p_address => 'piece://{n}', p_actor => 'svc:import', \
         p_source_system => 'test', p_payload => '{payload}', p_lane => 'delayed');
         update event_delayed set emitted_at = {T} + {at} * interval '1 second' where pending_id = \
             (select id from event_pending where canonical_address = 'piece://{n}')"
    );
    db.sql(&emit).await;
}

/// Ticks at so many seconds, and returns what the outbox has: the types with their numbers.
async fn tick(db: &Database, at: u32) -> String {
    db.sql(&format!("select * from fn_event_worker_tick({T} + {at} * interval '1 second')")).await;
    db.text(
        "select coalesce(string_agg(event_type || ' ' || coalesce(safe_payload ->> 'count', ''), ', ' order by event_type, safe_payload ->> 'count'), '') \
           from event_outbox where event_domain = 'iu'",
    )
    .await
}

#[tokio::test]
async fn pieces_wait_for_a_pause_and_below_the_threshold_are_released_as_they_are() {
    let db = lane().await;
    piece(&db, 1, Some("batch"), 0).await;
    assert_eq!(tick(&db, 60).await, "");
    piece(&db, 2, Some("batch"), 60).await;
    assert_eq!(tick(&db, 149).await, "", "90 s after the latest piece, not after the first");
    assert_eq!(tick(&db, 150).await, "piece_moved , piece_moved ");
    // The ids that the producer was given are the events'.
    assert_eq!(db.number("select count(*) from event_outbox o join event_pending p on p.id = o.id where p.processed_at is not null").await, 2);
    for table in ["event_delayed", "event_delayed_group"] {
        assert_eq!(db.number(&format!("select count(*) from {table}")).await, 0, "{table}");
    }
}

#[tokio::test]
async fn at_the_threshold_one_event_stands_for_the_pieces() {
    let db = lane().await;
    db.sql("insert into dot_config (key, value) values ('event.rollup.threshold.iu', '3')").await;
    for n in 1..=3 {
        piece(&db, n, Some("batch"), n).await;
    }
    piece(&db, 4, Some("other"), 1).await;
    piece(&db, 5, None, 1).await;
    piece(&db, 6, None, 1).await;
    assert_eq!(
        tick(&db, 100).await,
        "iu.rollup 3, piece_moved , piece_moved , piece_moved ",
        "pieces without a key are no group"
    );
    let said = "select concat_ws(' ', safe_payload ->> 'first_address', safe_payload ->> 'last_address', safe_payload -> 'types', \
                correlation_id, actor_ref, delivery_lane) from event_outbox where event_type = 'iu.rollup'";
    assert_eq!(db.text(said).await, "piece://1 piece://3 {\"piece_moved\": 3} batch svc:import immediate");
    // The same group again, later: another first piece, so another event.
    for n in 7..=9 {
        piece(&db, n, Some("batch"), 200).await;
    }
    assert!(tick(&db, 290).await.starts_with("iu.rollup 3, iu.rollup 3"));
    // Nobody can tell a piece again after its roll-up.
    piece(&db, 7, Some("batch"), 300).await;
    assert!(
        tick(&db, 1000)
            .await
            .starts_with("iu.rollup 3, iu.rollup 3, piece_moved , piece_moved , piece_moved ")
    );
}

#[tokio::test]
async fn a_steady_trickle_is_released_at_the_cap() {
    let db = lane().await;
    for n in 0..18 {
        piece(&db, n + 1, Some("batch"), n * 50).await;
        assert_eq!(tick(&db, n * 50).await, "", "piece {n}");
    }
    // Ten times 90 s after the first piece, although the latest came 50 s ago.
    assert_eq!(tick(&db, 899).await, "");
    assert_eq!(tick(&db, 900).await, "iu.rollup 18");
}

#[tokio::test]
async fn the_pause_is_the_domains_own_or_a_default_within_bounds() {
    let db = lane().await;
    for (set, value, waits) in [
        ("default", "10", 60),
        ("default", "20 minutes", 300),
        ("default", "nonsense", 90),
        ("iu", "30 s", 30),
        ("iu", "0", 0),
        ("iu", "600", 600),
    ] {
        db.sql("delete from dot_config where key like 'event.debounce.%'; delete from event_outbox; delete from event_pending").await;
        db.sql(&format!("insert into dot_config (key, value) values ('event.debounce.{set}', '{value}')"))
            .await;
        piece(&db, 1, Some("batch"), 1000).await;
        if waits > 0 {
            assert_eq!(tick(&db, 1000 + waits - 1).await, "", "{set} {value}");
        }
        assert_eq!(tick(&db, 1000 + waits).await, "piece_moved ", "{set} {value}");
    }
    db.until_finding("config_invalid").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_ticks_at_once_roll_up_once() {
    let db = lane().await;
    for n in 1..=40 {
        piece(&db, n, Some(if n % 2 == 0 { "even" } else { "odd" }), 0).await;
    }
    let mut sessions = Vec::new();
    for _ in 0..20 {
        sessions.push(connect(&db.url).await);
    }
    let call = format!("select * from fn_event_worker_tick({T} + interval '1 hour')");
    let ticks = sessions.iter().map(|session| async {
        for _ in 0..3 {
            session.batch_execute(&call).await.expect("a tick");
        }
    });
    futures_util::future::join_all(ticks).await;
    assert_eq!(tick(&db, 3600).await, "iu.rollup 20, iu.rollup 20");
}

/// A tick is one transaction. Wherever it ends, the pieces are in the lane or in the outbox.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_killed_in_the_middle_of_a_tick_loses_nothing() {
    let db = lane().await;
    for n in 1..=12 {
        piece(&db, n, Some("batch"), 0).await;
    }
    let killed = connect(&db.url).await;
    let pid = crate::support::number(&killed, "select pg_backend_pid()::bigint").await;
    killed
        .batch_execute(&format!("begin; select * from fn_event_worker_tick({T} + interval '1 hour')"))
        .await
        .expect("a tick that does not commit");
    // Meanwhile others tick, and neither wait nor do the same.
    assert_eq!(tick(&db, 3600).await, "");
    db.sql(&format!("select pg_terminate_backend({pid}, 5000)")).await;
    assert_eq!(db.number("select count(*) from event_delayed").await, 12);
    assert_eq!(tick(&db, 3600).await, "iu.rollup 12");
}

#[tokio::test]
async fn a_roll_up_of_an_inactive_type_waits_for_its_activation() {
    let db = lane().await;
    db.sql("update event_type_registry set active = false where event_type = 'iu.rollup'").await;
    for n in 1..=12 {
        piece(&db, n, Some("batch"), 0).await;
    }
    assert_eq!(tick(&db, 3600).await, "");
    assert_eq!(
        db.number(
            "select count(*) from event_pending where event_type_hint = 'iu.rollup' and processed_at is null"
        )
        .await,
        1
    );
}

/// A critical event about the server, as its producer emits it.
async fn critical(db: &Database, n: u32) {
    db.sql(&format!(
        "select fn_event_emit(p_domain => 'system', p_type => 'server_down', p_subject_table => 'server', \
         p_subject_ref => lpad('{n}', 32, '0')::uuid, p_address => 'server://{n}', p_actor => 'svc:monitor', p_source_system => 'test', \
         p_severity => 'critical')"
    ))
    .await;
    feed(&db.client).await;
}

#[tokio::test]
async fn a_critical_event_that_nobody_acknowledged_is_escalated_once_to_those_who_are_named() {
    let db = lane().await;
    db.sql(
        "insert into dot_config (key, value) values ('event.escalation.after.system', '5 minutes'), ('event.escalation.to', 'role:boss, user:an');
         insert into event_actor_member values ('role:boss', 'user:chief', 'test');
         insert into event_subscription (recipient_ref, event_domain) values ('user:binh', 'system')",
    )
    .await;
    critical(&db, 1).await;
    critical(&db, 2).await;
    tick(&db, 0).await;
    let first = "select id::text from event_outbox where canonical_address = 'server://1' and event_type = 'server_down'";
    let first = db.text(first).await;
    db.sql(&format!("select fn_event_ack('user:binh', '{first}')")).await;
    let escalated = "select count(*) from event_outbox where event_type = 'server_down_unacked'";
    tick(&db, 299).await;
    assert_eq!(db.number(escalated).await, 0);
    for at in [300, 300, 900, 9000] {
        tick(&db, at).await;
        feed(&db.client).await;
        assert_eq!(db.number(escalated).await, 1, "at {at} s");
    }
    let to = "select string_agg(r.actor_ref || ' ' || r.step_name, ', ' order by r.actor_ref) from event_outbox o, fn_event_recipients(o.id) r \
              where o.event_type = 'server_down_unacked' and o.canonical_address = 'server://2'";
    assert_eq!(
        db.text(to).await,
        "role:boss addressed, user:an addressed, user:binh domain_only, user:chief addressed"
    );
    let states = "select string_agg(state, ' ' order by state) from event_escalation";
    assert_eq!(db.text(states).await, "acknowledged escalated");
}

#[tokio::test]
async fn too_many_broadcasts_are_counted_and_raise_a_finding_that_ends() {
    let db = lane().await;
    let emit = async |kind: &str, n: u32| {
        db.sql(&format!(
            "insert into event_outbox (event_domain, event_type, event_stream, canonical_address, actor_ref, source_system) \
             select 'dot', '{kind}', 'update', 'a', 'svc:x', 'test' from generate_series(1, {n})"
        ))
        .await;
        feed(&db.client).await;
        db.sql("select * from fn_event_worker_tick()").await;
    };
    let open = "select count(*) from system_issues where issue_kind = 'subscription_broadcast' and resolved_at is null";
    emit("ran", 10).await;
    assert_eq!(db.number(open).await, 0, "nobody subscribes to anything: there is nothing to mend");
    db.sql("insert into event_subscription (recipient_ref, event_domain, event_type) values ('user:an', 'dot', 'ran')").await;
    emit("failed", 3).await;
    assert_eq!(db.number(open).await, 1);
    let used = "select string_agg(concat_ws(' ', event_type, events_24h, broadcast_events_24h), ', ' order by event_type) \
                from v_subscription_broadcast_used";
    assert_eq!(db.text(used).await, "failed 3 3, ran 10 10");
    emit("ran", 1000).await;
    assert_eq!(db.number(open).await, 0, "13 of 1,013 are few");
}
