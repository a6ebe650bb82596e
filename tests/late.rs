//! Poll mode hands off whatever commits, in whatever order: behind the cursor, in holes, far away, prepared, and under
//! keys that have no order at all.

use gov_handoff::core::frontier::Window;
use gov_handoff::embedded::ClusterOptions;
use gov_handoff::store::frontier::written_in;

use crate::support::sources::{register, rule, source};
use crate::support::{Database, active, active_on, connect, options, private_cluster, until};

#[tokio::test]
async fn a_late_commit_behind_the_cursor_is_handed_off() {
    let registry = active().await;
    let late = connect(&registry.url).await;
    let insert = "insert into birth_registry (entity_code, collection_name, status) values";
    late.batch_execute(&format!(
        "begin; {insert} ('late', 'c', 'registered'); savepoint s; {insert} ('later', 'c', null)"
    ))
    .await
    .expect("an open transaction");
    let _daemon = registry.daemon("poll", &[]);
    registry.births("before", 100).await;
    registry.until_all_handed_off().await;
    let cursor =
        "select last_watermark_id::bigint from gov_worker_cursor where source_name = 'birth_registry'";
    let before = registry.number(cursor).await;
    assert_eq!(before, 102, "the cursor is past the open ids");
    late.batch_execute("commit").await.expect("commit");
    registry.until_all_handed_off().await;
    assert_eq!(
        registry
            .number("select count(*) from verify.handoffs where safe_payload ->> 'source_key' in ('1', '2')")
            .await,
        3
    );
    assert_eq!(registry.number(cursor).await, before, "the watermark never goes back");
}

#[tokio::test]
async fn rolled_back_ids_go_cold_and_stay_open_and_ids_by_hand_are_found_anywhere() {
    let registry = active().await;
    let _daemon = registry.daemon("poll", &[]);
    let insert = "insert into birth_registry (entity_code, collection_name) values ('gone', 'c')";
    registry.sql(&format!("begin; {insert}; {insert}; rollback")).await;
    registry.births("a", 5).await;
    registry.sql(&format!("begin; {insert}; rollback")).await;
    registry.births("b", 5).await;
    registry.until_all_handed_off().await;
    let cold = "select count(*) from gov_worker_gap where source_name = 'birth_registry' and not hot
                   and int8range(lo, hi, '[]') @> any (array[1::bigint, 2, 8])";
    until("the holes are cold", async || registry.number(cold).await >= 2).await;
    let by_hand = "insert into birth_registry (id, entity_code, collection_name) select unnest(array[-2147483648, -5, 0, 1, 8,
                   1000000, 2147483646, 2147483647]), 'hand', 'c'";
    registry.sql(by_hand).await;
    registry.until_all_handed_off().await;
    let open =
        "select count(*) from gov_worker_gap where source_name = 'birth_registry' and lo <= 2 and hi >= 2";
    assert_eq!(registry.number(open).await, 1, "an id that nobody used stays open");
    registry
        .sql("insert into birth_registry (id, entity_code, collection_name) values (2, 'filled', 'c')")
        .await;
    registry.until_all_handed_off().await;
}

#[tokio::test]
async fn a_prepared_transaction_is_handed_off_when_it_commits() {
    let settings = vec![("max_prepared_transactions".to_owned(), "5".to_owned())];
    let cluster = private_cluster(ClusterOptions { settings, ..options() }).await;
    let registry = active_on(&cluster).await;
    let insert = "insert into birth_registry (entity_code, collection_name) values ('prepared', 'c')";
    registry.sql(&format!("begin; {insert}; prepare transaction 'kept'")).await;
    registry.sql(&format!("begin; {insert}; prepare transaction 'undone'")).await;
    for mode in ["poll", "auto"] {
        let _daemon = registry.daemon(mode, &[]);
        registry.births(mode, 20).await;
        registry.until_all_handed_off().await;
    }
    assert_eq!(
        registry
            .number("select count(*) from verify.handoffs where safe_payload ->> 'source_key' in ('1', '2')")
            .await,
        0
    );
    let _daemon = registry.daemon("poll", &[]);
    registry.sql("commit prepared 'kept'").await;
    registry.sql("rollback prepared 'undone'").await;
    registry.until_all_handed_off().await;
    assert_eq!(
        registry
            .number("select count(*) from verify.handoffs where safe_payload ->> 'source_key' in ('1', '2')")
            .await,
        1
    );
}

/// A source whose keys have no order, `things`.
async fn registry_of_things() -> Database {
    let registry = active().await;
    registry.sql("create table things (id uuid primary key default gen_random_uuid(), code text)").await;
    let born =
        rule("object_born", "thing", "thing:{code}", ["object_class", "thing"]) + "stream = \"birth\"\n";
    register(&registry.url, &(source("things", "uuid", &["id", "code"]) + &born)).await;
    registry
}

/// How many things are not handed off exactly once.
const THINGS_OFF: &str = "select count(*) from things t where
    (select count(*) from verify.handoffs o where o.event_subject_table = 'things'
        and o.safe_payload ->> 'source_key' = t.id::text) <> 1";

#[tokio::test]
async fn a_uuid_keyed_source_hands_off_late_commits_by_its_frontier() {
    let registry = registry_of_things().await;
    let late = connect(&registry.url).await;
    late.batch_execute("begin; insert into things (code) values ('late'); savepoint a; insert into things (code) values ('later');
                        rollback to a; savepoint b; insert into things (code) values ('latest')")
        .await
        .expect("an open transaction");
    let writer: i64 =
        late.query_one("select pg_current_xact_id()::text::bigint", &[]).await.expect("its id").get(0);
    let _daemon = registry.daemon("poll", &[]);
    let frontier = "select coalesce(max(frontier::text::bigint), 0) from gov_worker_frontier where source_name = 'things'";
    for round in 0..3 {
        registry
            .sql(&format!("insert into things (code) select 'r{round}-' || g from generate_series(1, 50) g"))
            .await;
        until("the others are handed off", async || registry.number(THINGS_OFF).await == 0).await;
    }
    let before = registry.number(frontier).await;
    assert!((3..=writer).contains(&before), "the frontier {before} waits for the open transaction {writer}");
    late.batch_execute("commit").await.expect("commit");
    until("the late ones too", async || registry.number(THINGS_OFF).await == 0).await;
    assert_eq!(
        registry.number("select count(*) from verify.handoffs where event_subject_table = 'things'").await,
        152
    );
    until("the frontier moves on", async || registry.number(frontier).await > before).await;
}

#[tokio::test]
async fn holes_beyond_those_kept_are_left_to_the_frontier_which_finds_ids_in_them_and_rows_are_still_counted()
{
    let registry = active().await;
    registry.sql("update dot_config set value = '20' where key = 'governance.holes.kept'").await;
    let quick = [("GOV_HANDOFF_CERTIFY_INTERVAL", "200ms"), ("GOV_HANDOFF_RECONCILE_INTERVAL", "200ms")];
    let daemon = registry.daemon("poll", &quick);
    let births = |ids: &str| {
        format!(
            "insert into birth_registry (id, entity_code, collection_name) select g, 'h' || g, 'c' from generate_series({ids}) g"
        )
    };
    registry.sql(&births("2, 600, 2")).await;
    registry.until_all_handed_off().await;
    let ranges = "select count(*) from gov_worker_gap where source_name = 'birth_registry'";
    until("the holes are few", async || registry.number(ranges).await <= 23).await;
    let away = "select certified_away::bigint from gov_worker_frontier where source_name = 'birth_registry'";
    assert_eq!(registry.number(away).await + registry.number(ranges).await, 301, "each is one or the other");

    // Ids that are used after all, in what was certified away and in what was kept.
    registry.sql(&births("101, 599, 100")).await;
    registry.until_all_handed_off().await;
    let by = "select count(*) from verify.handoffs where safe_payload ->> 'captured_by' = 'certify'";
    assert!(registry.number(by).await >= 4, "the frontier found {}", registry.number(by).await);

    // Counting still tells: what is there is enough, and one row less is not.
    let uneven = "select count(*) from system_issues where issue_kind = 'source_not_conserved' and resolved_at is null";
    // Ten passes have counted since.
    for _ in 0..10 {
        registry.until_certified_again("birth_registry").await;
    }
    assert_eq!(registry.number(uneven).await, 0);
    registry
        .sql("delete from birth_registry where id in (select id from birth_registry order by id limit 20)")
        .await;
    until("rows are missed", async || registry.number(uneven).await == 1).await;
    drop(daemon);
}

#[tokio::test]
async fn no_commit_of_the_keyset_lane_carries_more_rows_than_the_configuration_allows() {
    let registry = active().await;
    registry.births("many", 110).await;
    let _daemon = registry.daemon("poll", &[("GOV_HANDOFF_BATCH_ROWS", "20")]);
    registry.until_all_handed_off().await;
    let most = "select max(n) from (select count(*) as n from event_outbox where event_subject_table = 'birth_registry' \
                  and event_type = 'governance.handoff.object_born' group by xmin::text) c";
    assert_eq!(registry.number(most).await, 20);
}

/// What selects young rows (`store::frontier::written_in`) against plain arithmetic, on ids that the server itself compares: few and
/// many transactions, and a window that runs over the end of what a row can carry.
#[tokio::test]
async fn a_window_of_transactions_selects_exactly_them_however_wide_it_is_and_wherever_it_lies() {
    const ROUND: u64 = 1 << 32;
    let registry = active().await;
    for frontier in [3, 1_000, ROUND - 5_000, ROUND - 40_000, 5 * ROUND - 7, 2 * ROUND + 12_345] {
        for width in [0, 1, 8, 9, 9_000, 16_384, 16_385, 60_000, 1_400_000_000] {
            let next = frontier + width;
            // Around both ends, half way, and half a round before and behind.
            let near = |id: u64| [id.saturating_sub(1), id, id + 1];
            let far = [frontier + width / 2, next + (1 << 31), (frontier + ROUND).saturating_sub(1 << 31)];
            let mut asked: Vec<u64> =
                near(frontier).into_iter().chain(near(next)).chain(far).map(|id| id % ROUND).collect();
            asked.sort_unstable();
            asked.dedup();
            let within = |id: &&u64| (**id + ROUND - frontier % ROUND) % ROUND < width;
            let expected: Vec<String> = asked.iter().filter(within).map(u64::to_string).collect();
            let list: Vec<String> = asked.iter().map(u64::to_string).collect();
            let query = format!(
                "select t.xmin::text from unnest('{{{}}}'::xid[]) as t (xmin) where {} order by t.xmin::text::bigint",
                list.join(","),
                written_in(Window::new(frontier, next))
            );
            let rows = registry.client.query(&query, &[]).await.expect("a condition the server understands");
            let selected: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
            assert_eq!(selected, expected, "from {frontier}, {width} wide");
        }
    }
}

#[tokio::test]
async fn a_frontier_that_many_transactions_have_passed_finds_every_row_in_whatever_page_it_lies() {
    let registry = registry_of_things().await;
    let things = |n: u32| {
        format!("insert into things (code) select repeat('x', 500) || g from generate_series(1, {n}) g")
    };
    // Pages at the start of the file that a rollback leaves free.
    registry.sql(&format!("begin; {}; rollback", things(200))).await;
    registry.sql(&things(200)).await;
    let daemon = registry.daemon("poll", &[]);
    until("those before", async || registry.number(THINGS_OFF).await == 0).await;
    drop(daemon);
    registry.sql("vacuum things").await;
    let late = connect(&registry.url).await;
    late.batch_execute("begin; insert into things (code) values ('late')")
        .await
        .expect("an open transaction");
    registry.sql(&things(10)).await;
    registry
        .sql("do $$ begin for i in 1..20000 loop perform pg_current_xact_id(); commit; end loop; end $$")
        .await;
    registry.sql(&things(50)).await;
    let early = "select count(*) from things n where age(n.xmin) < 20 and n.ctid < (select max(o.ctid) from things o where age(o.xmin) > 20000)";
    assert!(registry.number(early).await > 0, "some of the new rows lie before old ones");
    let daemon = registry.daemon("poll", &[]);
    until("those of then", async || registry.number(THINGS_OFF).await == 0).await;
    assert!(!daemon.log().contains("the frontier cannot be used"), "{}", daemon.log());
    late.batch_execute("commit").await.expect("commit");
    until("the late one too", async || registry.number(THINGS_OFF).await == 0).await;
    assert_eq!(registry.number("select count(*) from things").await, 261);
}
