//! What one call or command looks at is bounded, and it says so where it stops: the delayed lane, candidates by verdict, the
//! board, an author's own events, a page of the sweep.

use crate::support::sources::register;
use crate::support::{Daemon, Database, active, cli, done, migrated};

/// Rows that were read of these tables: from end to end, and by an index.
async fn rows_read(db: &Database, tables: &str) -> (i64, i64) {
    db.sql("select pg_stat_force_next_flush()").await;
    let of = |column: &str, view: &str| {
        format!("select coalesce(sum({column}), 0)::bigint from {view} where relname in ({tables})")
    };
    (
        db.number(&of("seq_tup_read", "pg_stat_user_tables")).await,
        db.number(&of("idx_tup_read", "pg_stat_user_indexes")).await,
    )
}

#[tokio::test]
async fn a_call_for_the_delayed_lane_reads_what_is_due_and_not_the_100_000_that_wait() {
    const LANE: &str = "'event_delayed', 'event_delayed_group'";
    let db = migrated().await;
    let emit = "select fn_event_emit(p_domain => 'iu', p_type => 'piece_moved', p_subject_table => 'piece', \
                p_subject_ref => md5('piece' || g)::uuid, p_address => 'piece://' || g, p_actor => 'svc:import', \
                p_source_system => 'test', p_lane => 'delayed') from generate_series(1, 1200) g";
    db.sql(&format!(
        "insert into event_type_registry (event_domain, event_type, event_stream, active) values ('iu', 'piece_moved', 'update', true);
         {emit};
         update event_delayed set emitted_at = now() - interval '1 hour';
         insert into event_delayed (pending_id, event_domain, group_ref, emitted_at, gathered)
             select md5('waits' || g)::uuid, 'iu', 'piece:' || md5('waits' || g)::uuid, now() + interval '1 hour', true
               from generate_series(1, 100000) g;
         insert into event_delayed_group select d.event_domain, d.group_ref, d.emitted_at, d.emitted_at, 1 from event_delayed d where d.gathered"
    ))
    .await;
    db.sql("analyze event_delayed, event_delayed_group, event_pending").await;
    db.sql("select * from gov_handoff.gov_tick_gather(now())").await;
    // Pieces without a key are groups of one: they leave five hundred at a time.
    for pieces in [500, 500, 200, 0] {
        let before = rows_read(&db, LANE).await;
        let call = "select done from gov_handoff.gov_tick_delayed(now())";
        assert_eq!(db.number(call).await, pieces);
        let after = rows_read(&db, LANE).await;
        assert_eq!(after.0, before.0, "a table was read from end to end");
        let read = after.1 - before.1;
        // An entry of an index whose row left a moment ago is still passed, in each index.
        assert!(read < 10 * pieces + 10_000, "{read} entries of indexes were read for {pieces} pieces");
    }
    assert_eq!(db.number("select count(*) from event_outbox where event_type = 'piece_moved'").await, 1_200);
    assert_eq!(db.number("select count(*) from event_delayed").await, 100_000);
}

#[tokio::test]
async fn a_list_of_a_rare_verdict_looks_at_so_many_candidates_and_says_where_to_go_on() {
    let db = migrated().await;
    let put = |from: u32, to: u32, group: &str, verdict: &str| {
        format!(
            "insert into gov_candidate_state (candidate_key, ruleset_version, object_type, group_key, group_mark, candidate_verdict)
             select 'o:' || lpad(g::text, 7, '0'), 1, 'o', '{group}', g, '{verdict}' from generate_series({from}, {to}) g"
        )
    };
    db.sql(&put(1, 100_010, "g", "usual")).await;
    db.sql(&put(100_011, 100_012, "g", "rare")).await;
    db.sql("analyze gov_candidate_state").await;
    for group in [&[][..], &["--group", "g"]] {
        let asked = ["candidates", "--verdict", "rare", "--json"];
        let before = rows_read(&db, "'gov_candidate_state'").await;
        let first = cli(&db.url, &[&asked[..], group].concat()).await;
        let after = rows_read(&db, "'gov_candidate_state'").await;
        assert_eq!((first.code, first.out.trim()), (0, "[]"), "{}", first.err);
        assert!(
            first
                .err
                .contains("looked at 100,000 candidates; there may be more: go on with --after 'o:0100000'"),
            "{}",
            first.err
        );
        assert_eq!(after.0, before.0, "the table was read from end to end");
        assert!(after.1 - before.1 < 101_000, "{} candidates were looked at", after.1 - before.1);
        let rest = [&asked[..], group, &["--after", "o:0100000"]].concat();
        let rest = cli(&db.url, &rest).await;
        assert!(rest.out.contains("o:0100011") && rest.out.contains("o:0100012"), "{}", rest.out);
        assert_eq!(rest.err, "", "nothing is left");
        let one =
            cli(&db.url, &[&asked[..], group, &["--after", "o:0100000", "--limit", "1"]].concat()).await;
        assert!(
            one.err.contains("go on with --after 'o:0100011'") && !one.out.contains("o:0100012"),
            "{}",
            one.err
        );
    }
}

/// A feed of 100,100 events. All but a few are for somebody else.
async fn a_long_feed() -> Database {
    let db = migrated().await;
    db.sql(
        "insert into event_subscription (recipient_ref, event_domain, event_type) values ('user:an', 'dot', 'common'), ('user:chi', 'dot', 'rare');
         insert into event_outbox (id, event_domain, event_type, event_stream, canonical_address, actor_ref, source_system)
             select md5('e' || n)::uuid, 'dot', case n when 1 then 'rare' else 'common' end, 'update', 'dot:' || n,
                    case when n in (2, 100050) then 'user:chi' else 'svc:x' end, 'test'
               from unnest('{1, 2, 100050}'::int[]) n;
         insert into event_feed (pos, event_id, event_domain, event_type, event_stream, actor_ref)
             select n, md5('e' || n)::uuid, 'dot', case n when 1 then 'rare' else 'common' end, 'update',
                    case when n in (2, 100050) then 'user:chi' else 'svc:x' end
               from generate_series(1, 100100) n;
         analyze event_feed",
    )
    .await;
    db
}

#[tokio::test]
async fn a_board_that_stops_looking_says_from_where_to_go_on() {
    let db = a_long_feed().await;
    let board = async |before: &str| {
        let asked = format!(
            "select coalesce(string_agg(concat_ws(' ', pos, canonical_address, state), ', ' order by pos desc), '') \
             from fn_event_board('user:chi', p_limit => 1000, p_before => {before})"
        );
        db.text(&asked).await
    };
    let first = board("null").await;
    assert!(first.starts_with("100050 dot:100050 implicit_self, "), "{first}");
    let (_, last) = first.split_once(", ").expect("two rows");
    let (place, state) = last.split_once(' ').expect("a position and a state");
    assert_eq!(state, "more", "{first}");
    assert_eq!(board(place).await, "2 dot:2 implicit_self, 1 dot:1 unread");
}

#[tokio::test]
async fn own_events_are_looked_for_among_the_latest_positions_and_the_others_everywhere() {
    let db = a_long_feed().await;
    let unread = async |own: bool| {
        let asked = format!(
            "select coalesce(string_agg(pos::text, ' ' order by pos), '') from fn_event_unread('user:chi', p_include_self => {own})"
        );
        db.text(&asked).await
    };
    assert_eq!(unread(false).await, "1");
    let before = rows_read(&db, "'event_feed'").await;
    assert_eq!(unread(true).await, "1 100050");
    let after = rows_read(&db, "'event_feed'").await;
    assert_eq!(after.0, before.0, "the feed was read from end to end");
    assert!(after.1 - before.1 < 101_000, "{} entries were read", after.1 - before.1);
    db.sql("select fn_event_mark_read('user:chi', array[md5('e100050')::uuid])").await;
    assert_eq!(unread(true).await, "1");
    db.sql("select fn_event_mark_unread('user:chi', array[md5('e100050')::uuid])").await;
    assert_eq!(unread(true).await, "1 100050");
}

/// Issue 12: no read of the sweep takes longer than `read_timeout`, whose default is 5 s; nor after an error, when the page has
/// another session.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_of_the_sweep_is_bounded_also_after_an_error() {
    let db = active().await;
    done(&db.url, &["sources", "remove", "birth_registry"]).await;
    db.sql("insert into birth_registry (entity_code, collection_name) select 'old' || g, 'c' from generate_series(1, 200) g").await;
    register(&db.url, include_str!("../replication/sources.toml")).await;
    let holder = crate::support::connect(&db.url).await;
    holder.batch_execute("begin; lock table birth_registry in access exclusive mode").await.expect("a lock");
    let settings = [
        ("GOV_HANDOFF_WORKERS", "gov_backfill_sweep"),
        ("GOV_HANDOFF_READ_TIMEOUT", "150ms"),
        ("GOV_HANDOFF_LEASE_TTL", "2s"),
    ];
    let daemon = Daemon::start(&db.url, &["--mode", "poll"], &settings);
    let halved = || daemon.log().matches("is done again in smaller parts").count();
    // Without a bound the first read would wait for the lock, and nothing would be said.
    daemon.says("is done again in smaller parts").await;
    let ended = "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = current_database() \
                 and wait_event_type = 'Lock' and query like '%birth_registry%'";
    db.until(&format!("select ({ended}) > 0")).await;
    let said = halved();
    crate::support::until("the next session bounds its reads as well", async || halved() > said).await;
    holder.batch_execute("rollback").await.expect("let go");
    db.until("select count(*) = 200 from gov_candidate_state").await;
}
