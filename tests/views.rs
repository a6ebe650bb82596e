//! The views for alerts (004 §L) and the view of events of both outboxes (SPEC §15): what each shows, and what it leaves out.

use crate::read_state::feed;
use crate::support::{Database, connect, done, fresh_database, migrated};

/// An event of the outbox, so many hours ago.
async fn event(db: &Database, n: u32, domain: &str, stream: &str, severity: Option<&str>, hours: u32) {
    let severity = severity.map_or_else(|| "null".to_owned(), |s| format!("'{s}'"));
    db.sql(&format!(
        "insert into event_outbox (id, event_domain, event_type, event_stream, event_severity, canonical_address, actor_ref, source_system, occurred_at)
         values (lpad('{n}', 32, '0')::uuid, '{domain}', 'happened', '{stream}', {severity}, 'a{n}', 'svc:x', 'test', now() - interval '{hours} hours')"
    ))
    .await;
}

#[tokio::test]
async fn the_board_shows_every_event_and_the_alerts_those_of_a_day_with_who_acknowledged_them() {
    let db = migrated().await;
    db.sql("insert into event_subscription (recipient_ref) values ('user:an')").await;
    event(&db, 1, "system", "alert", Some("critical"), 30).await;
    event(&db, 2, "system", "alert", Some("warning"), 2).await;
    event(&db, 3, "dot", "task", Some("info"), 1).await;
    event(&db, 4, "iu", "update", None, 1).await;
    event(&db, 5, "dot", "task", Some("critical"), 0).await;
    let board = "select coalesce(string_agg(canonical_address || case when acknowledged then '!' else '' end, ' ' order by canonical_address), '') \
                 from v_event_universal_board";
    assert_eq!(db.text(board).await, "", "only events that have a position");
    feed(&db.client).await;
    db.sql("select fn_event_ack('user:an', lpad('2', 32, '0')::uuid)").await;
    assert_eq!(db.text(board).await, "a1 a2! a3 a4 a5");
    let positions = "select count(*) from v_event_universal_board v join event_feed f on (f.pos, f.event_id) = (v.pos, v.event_id)";
    assert_eq!(db.number(positions).await, 5);
    let alerts = "select string_agg(concat_ws(' ', canonical_address, event_severity, case when acknowledged then 'acknowledged' end), ', ' \
                  order by canonical_address) from v_event_alerts_recent";
    assert_eq!(db.text(alerts).await, "a2 warning acknowledged, a5 critical");
}

#[tokio::test]
async fn open_issues_are_shown_without_their_detail_and_resolved_ones_are_not() {
    let db = migrated().await;
    db.sql(
        "insert into system_issues (issue_kind, coalesce_key, severity, source_system, occurrence_count, resolved_at, detail) values
             ('mine', 'mine:1', 'high', 'gov-handoff', 3, null, '{\"inner\": 1}'), ('theirs', 'theirs:1', 'warning', 'other', 1, null, '{}'),
             ('over', 'over:1', 'high', 'other', 1, now(), '{}')",
    )
    .await;
    let shown = "select string_agg(concat_ws(' ', coalesce_key, severity, source_system, occurrence_count), ', ' order by coalesce_key) \
                 from v_health_open_issues where issue_kind in ('mine', 'theirs', 'over')";
    assert_eq!(db.text(shown).await, "mine:1 high gov-handoff 3, theirs:1 warning other 1");
    let columns = "select count(*) from information_schema.columns where table_name = 'v_health_open_issues' and column_name = 'detail'";
    assert_eq!(db.number(columns).await, 0);
}

const NOTIFICATIONS: &str = "create table iu_notification_event (id uuid primary key default gen_random_uuid(), event_type text not null, \
    event_stream text not null, unit_id uuid, canonical_address text not null, ref_id uuid, actor_ref text not null, source text not null, \
    payload jsonb not null default '{}', created_at timestamptz not null default now())";

#[tokio::test]
async fn events_of_the_live_notifications_stand_beside_those_of_the_outbox() {
    let alone = migrated().await;
    event(&alone, 1, "dot", "task", None, 0).await;
    let all = "select string_agg(concat_ws(' ', event_domain, event_type, event_subject_table, canonical_address, source_system), ', ' \
               order by event_domain) from v_event_unified";
    assert_eq!(alone.text(all).await, "dot happened a1 test", "without that table it is the outbox");

    let db = fresh_database(None).await;
    let live = connect(&db.url).await;
    live.batch_execute(NOTIFICATIONS).await.expect("the live table");
    done(&db.url, &["migrate"]).await;
    event(&db, 1, "dot", "task", None, 0).await;
    db.sql(
        "insert into iu_notification_event (event_type, event_stream, unit_id, canonical_address, actor_ref, source)
         values ('draft_created', 'review', gen_random_uuid(), 'iu://1', 'user:an', 'iu')",
    )
    .await;
    assert_eq!(db.text(all).await, "dot happened a1 test, iu draft_created information_unit iu://1 iu");
    let same = "select count(*) from v_event_unified v join iu_notification_event n on (n.id, n.unit_id, n.created_at) \
                = (v.event_id, v.event_subject_ref, v.occurred_at)";
    assert_eq!(db.number(same).await, 1);
}
