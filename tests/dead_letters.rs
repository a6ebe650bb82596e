//! Dead-letter, never drop; refuse, never retry indefinitely: what becomes of a row that the database refuses.

use crate::support::adopted::adopted;
use crate::support::{Daemon, Database, active, cli, done, migrated, until};

/// Refuses one key, in the outbox: the row is in order, and cannot be handed off.
pub const POISON: &str =
    "alter table event_outbox add constraint no_poison check (canonical_address not like '%poison%')";
pub const CURE: &str = "alter table event_outbox drop constraint no_poison";
const STAGED: &str = "select count(*) from event_pending where event_type_hint = 'governance.handoff.retry'";
pub const LETTERS: &str = "select count(*) from iu_route_dead_letter where resolved_at is null";
const HANDOFFS: &str = "select count(*) from verify.handoffs";
pub const SIGNALS: &str =
    "select count(*) from event_outbox where event_domain = 'governance' and event_stream <> 'health'";

pub fn policy(attempts: u32, base_ms: u32, cap_ms: u32) -> String {
    format!(
        "update dot_config set value = case key when 'event.retry.max_attempts' then '{attempts}'
                when 'event.retry.base_ms' then '{base_ms}' else '{cap_ms}' end where key like 'event.retry.%'"
    )
}

/// Types active, one key refused, and this policy.
async fn poisoned(attempts: u32, base_ms: u32, cap_ms: u32) -> Database {
    let registry = active().await;
    registry.sql(POISON).await;
    registry.sql(&policy(attempts, base_ms, cap_ms)).await;
    registry
}

const BIRTHS: &str = "insert into birth_registry (entity_code, collection_name)
    select case when g = 57 then 'poison' else 'e' || g end, 'c' from generate_series(1, 100) g";

/// Those births, captured in this mode, with so many chances each.
async fn poisoned_births(mode: &str, attempts: u32) -> (Database, Daemon) {
    let registry = poisoned(attempts, 20, 50).await;
    let daemon = registry.capturing(mode, "1h").await;
    registry.sql(BIRTHS).await;
    (registry, daemon)
}

async fn finding(registry: &Database, key: &str) -> Option<String> {
    let open =
        format!("select severity from system_issues where coalesce_key = '{key}' and resolved_at is null");
    registry.text_if_any(&open).await
}

/// 001 §39.10 no. 4.
#[tokio::test]
async fn dlq_not_drop() {
    for mode in ["poll", "stream"] {
        let (registry, daemon) = poisoned_births(mode, 3).await;
        until("the poison is dead-lettered", async || registry.number(LETTERS).await == 1).await;
        let letter =
            "select route_code || ' ' || (event_snapshot ->> 'canonical_address') || ' ' || failure_code
                             || ' ' || attempts || ' ' || failure_detail from iu_route_dead_letter";
        let said = registry.text(letter).await;
        assert_eq!(
            said,
            "birth_registry c:poison refused_by_database 3 refused by the database (23514, constraint no_poison)"
        );
        // The sweep completed: everything else is handed off, and nothing waits.
        registry.until_all_handed_off().await;
        assert_eq!(registry.number(HANDOFFS).await, 99, "{mode}");
        assert_eq!(registry.number(STAGED).await, 0, "{mode}");
        let counted = "select dead_lettered from gov_worker_cursor
                        where worker_name = 'gov_handoff_intake' and source_name = 'birth_registry'";
        assert_eq!(registry.number(counted).await, 1);
        assert_eq!(finding(&registry, "handoff_dlq:birth_registry").await.as_deref(), Some("high"));
        assert_eq!(finding(&registry, "cursor_dlq:gov_handoff_intake").await.as_deref(), Some("high"));
        if mode == "stream" {
            registry.until_stream_is_past_now().await;
        }
        // Visible, and accounted for.
        let status = cli(&registry.url, &["status"]).await.out;
        assert!(status.contains("0 to be retried, 1 dead letters"), "{status}");
        drop(daemon);
        done(&registry.url, &["audit", "--full", "--check"]).await;
    }
}

#[tokio::test]
async fn a_staged_row_holds_nothing_up_is_accounted_for_and_is_handed_off_once_the_cause_is_mended() {
    for mode in ["poll", "stream"] {
        let (registry, daemon) = poisoned_births(mode, 1_000).await;
        let tried = "select coalesce(max(error_count), 0)::bigint from event_pending where event_type_hint = 'governance.handoff.retry'";
        until("it was tried again", async || registry.number(tried).await >= 3).await;
        assert_eq!(registry.number(HANDOFFS).await, 99, "{mode}: its batch");
        // A poison row that is the last of its source: the watermark moves past it all the same.
        registry
            .sql("insert into birth_registry (entity_code, collection_name) values ('poison too', 'c')")
            .await;
        until("both are staged", async || registry.number(STAGED).await == 2).await;
        let past = "select count(*) from gov_worker_cursor where source_name = 'birth_registry' and worker_name = 'gov_handoff_intake'
                       and last_watermark_id = (select max(id)::text from birth_registry)";
        until("the watermark is past it", async || registry.number(past).await == 1).await;
        // The slot too: the position past the poison is durable, whatever becomes of the row.
        if mode == "stream" {
            registry.until_stream_is_past_now().await;
        }
        // What is staged is its address and the reason, and nothing of it is missing or a signal without a row.
        let staged = "select string_agg(canonical_address || ' ' || last_error, ', ' order by canonical_address)
                        from event_pending where event_type_hint = 'governance.handoff.retry' and process_after is not null";
        let refused = "refused by the database (23514, constraint no_poison)";
        assert_eq!(registry.text(staged).await, format!("c:poison {refused}, c:poison too {refused}"));
        done(&registry.url, &["audit", "--full", "--check"]).await;
        done(&registry.url, &["audit", "--check"]).await;
        // Activation drains captures, and a staged row is none.
        done(&registry.url, &["types", "activate", "--all"]).await;
        assert_eq!(registry.number(STAGED).await, 2, "{mode}");
        registry.sql(CURE).await;
        until("it is handed off", async || registry.number(STAGED).await == 0).await;
        registry.until_all_handed_off().await;
        let by = "select count(*) from verify.handoffs where safe_payload ->> 'captured_by' = 'retry'";
        assert_eq!(registry.number(by).await, 2, "{mode}");
        assert_eq!(registry.number("select count(*) from iu_route_dead_letter").await, 0, "{mode}");
        let seen = "select events_seen - (select count(*) from birth_registry) from gov_worker_cursor
                     where source_name = 'birth_registry' and worker_name = 'gov_handoff_intake'";
        assert_eq!(registry.number(seen).await, 0, "{mode}: each row counts as seen once");
        drop(daemon);
    }
}

/// A trigger of the live outbox that refuses rows whose address ends in a code, with that code.
const BY_CODE: &str = "
create function verify.refuse() returns trigger language plpgsql as $$
begin
    if new.canonical_address like '%poison%' then
        raise exception 'a secret of %', new.canonical_address using errcode = right(new.canonical_address, 5);
    end if;
    return new;
end $$;
create trigger refuse before insert on event_outbox for each row execute function verify.refuse()";
/// Of the trigger's own making, of classes that no server uses for a row, and such as a broken gate would give.
const CODES: [&str; 8] = ["QL001", "20000", "27000", "0A000", "P0001", "42883", "42P01", "XX000"];

#[tokio::test]
async fn whatever_code_a_trigger_refuses_a_row_with_the_row_is_set_aside_and_the_rest_goes_on() {
    for mode in ["poll", "stream"] {
        let registry = active().await;
        registry.sql(&format!("{BY_CODE}; {}", policy(2, 1, 1))).await;
        let daemon = registry.capturing(mode, "1h").await;
        // Each alone in its batch, so that no other row shows that the gate works; then all of them among others.
        let alone =
            "insert into birth_registry (entity_code, collection_name) values ('poison alone 42883', 'c')";
        registry.sql(alone).await;
        until("it is dead-lettered", async || registry.number(LETTERS).await == 1).await;
        let births = format!(
            "insert into birth_registry (entity_code, collection_name)
             select case when g <= 8 then 'poison ' || ('{{{}}}'::text[])[g] else 'e' || g end, 'c'
               from generate_series(1, 60) g order by g % 7",
            CODES.join(",")
        );
        registry.sql(&births).await;
        until("all are dead-lettered", async || registry.number(LETTERS).await == 9).await;
        registry.until_all_handed_off().await;
        assert_eq!(registry.number(HANDOFFS).await, 52, "{mode}");
        // The code, and not what the trigger says, which may quote the row.
        let said = "select failure_detail from iu_route_dead_letter where event_snapshot ->> 'canonical_address' like 'c:poison _____'
                     order by failure_detail";
        let mut expected = CODES.map(|code| format!("refused by the database ({code})"));
        expected.sort();
        assert_eq!(registry.texts(said).await, expected, "{mode}");
        assert!(!daemon.log().contains("a secret of"), "{}", daemon.log());
        if mode == "stream" {
            registry.until_stream_is_past_now().await;
        }
        drop(daemon);
    }
}

#[tokio::test]
async fn a_gate_that_cannot_work_sets_no_row_aside() {
    for mode in ["poll", "stream"] {
        let registry = active().await;
        let daemon = registry.capturing(mode, "1h").await;
        registry.sql("alter table event_outbox rename column event_severity to was").await;
        registry.births("b", 20).await;
        // Again and again: it goes on trying.
        until("it says so", async || daemon.log().matches("event_severity").count() >= 3).await;
        assert_eq!((registry.number(STAGED).await, registry.number(LETTERS).await), (0, 0), "{mode}");
        registry.sql("alter table event_outbox rename column was to event_severity").await;
        registry.until_all_handed_off().await;
        assert_eq!((registry.number(STAGED).await, registry.number(LETTERS).await), (0, 0), "{mode}");
        drop(daemon);
    }
}

#[tokio::test]
async fn a_ruleset_version_that_is_no_number_is_a_finding_and_sets_no_row_aside() {
    let registry = active().await;
    let version = "select value from dot_config where key = 'governance.ruleset_version'";
    registry
        .sql("update dot_config set value = 'seven' where key = 'governance.ruleset_version'; select fn_governance_watch()")
        .await;
    let daemon = registry.capturing("stream", "1h").await;
    // Alone, several at once, and one that would bump it.
    registry.births("alone", 1).await;
    registry.until_all_handed_off().await;
    registry.births("more", 10).await;
    registry
        .sql("insert into registry_changelog (entity_type, entity_code, action) values ('policy', 'p', 'update')")
        .await;
    let bumped =
        "select count(*) from verify.handoffs where event_type = 'governance.handoff.policy_changed'";
    until("it is handed off", async || registry.number(bumped).await == 1).await;
    registry.until_stream_is_past_now().await;
    assert_eq!((registry.number(STAGED).await, registry.number(LETTERS).await), (0, 0));
    assert_eq!(
        registry.text_if_any(version).await.as_deref(),
        Some("seven"),
        "an operator says what it should be"
    );
    let key = "config_invalid:governance.ruleset_version";
    assert_eq!(finding(&registry, key).await.as_deref(), Some("warning"));
    registry.sql("update dot_config set value = '7' where key = 'governance.ruleset_version'").await;
    until("it can be used again", async || finding(&registry, key).await.is_none()).await;
    registry
        .sql("insert into registry_changelog (entity_type, entity_code, action) values ('policy', 'p', 'update')")
        .await;
    until("it is bumped", async || registry.text_if_any(version).await.as_deref() == Some("8")).await;
    drop(daemon);
}

#[tokio::test]
async fn a_staged_row_that_vanishes_from_its_source_is_a_dead_letter_that_says_so() {
    let registry = poisoned(4, 1_000, 1_000).await;
    registry.sql(BIRTHS).await;
    let daemon = registry.daemon("poll", &[]);
    until("it is staged", async || registry.number(STAGED).await == 1).await;
    registry.sql("delete from birth_registry where entity_code = 'poison'").await;
    until("it is dead-lettered", async || registry.number(LETTERS).await == 1).await;
    let said = registry.text("select failure_code || ': ' || failure_detail from iu_route_dead_letter").await;
    assert_eq!(
        said,
        "source_row_vanished: the row is no longer in its source; before that: \
         refused by the database (23514, constraint no_poison)"
    );
    assert_eq!(registry.number(STAGED).await, 0);
    drop(daemon);
}

#[tokio::test]
async fn a_contract_violation_is_refused_at_once_and_never_retried() {
    let registry = poisoned(1_000, 1, 1).await;
    registry
        .sql("insert into registry_changelog (entity_type, entity_code, action) values (' ', 'x', 'retire')")
        .await;
    done(&registry.url, &["run", "--once", "--mode", "poll"]).await;
    let said = registry.text("select failure_code || ' ' || attempts from iu_route_dead_letter").await;
    assert_eq!(said, "blank_reference 1");
    assert_eq!(registry.number(STAGED).await, 0);
}

#[tokio::test]
async fn a_single_run_gives_every_chance_at_once_and_a_policy_that_cannot_be_used_falls_back() {
    let db = migrated().await;
    done(&db.url, &["types", "activate", "--all"]).await;
    db.sql(POISON).await;
    db.sql(
        "update dot_config set value = 'many' where key = 'event.retry.max_attempts';
                        update dot_config set value = '-1' where key = 'event.retry.cap_ms'",
    )
    .await;
    db.sql(BIRTHS).await;
    let begun = std::time::Instant::now();
    done(&db.url, &["run", "--once", "--mode", "poll"]).await;
    assert!(begun.elapsed().as_secs() < 20, "it waits for nothing");
    assert_eq!(db.text("select attempts::text from iu_route_dead_letter").await, "5");
    assert_eq!(db.number(SIGNALS).await, 99);
    let open = "select coalesce_key from system_issues where issue_kind = 'config_invalid' and resolved_at is null order by 1";
    assert_eq!(
        db.texts(open).await,
        ["config_invalid:event.retry.cap_ms", "config_invalid:event.retry.max_attempts"]
    );
    // Mended: the next row is judged by it, and the finding ends.
    db.sql(&policy(2, 1, 1)).await;
    db.sql("insert into birth_registry (entity_code, collection_name) values ('poison 2', 'c')").await;
    done(&db.url, &["run", "--once", "--mode", "poll"]).await;
    assert_eq!(db.texts(open).await, Vec::<String>::new());
    assert_eq!(db.number("select count(*) from iu_route_dead_letter where attempts = 2").await, 1);
}

#[tokio::test]
async fn killed_between_any_two_steps_of_a_retry_nothing_is_missing_and_nothing_twice() {
    for mode in ["poll", "stream"] {
        // Refused for good: killed before the reader moves, before and after the letter.
        let registry = poisoned(2, 1, 1).await;
        registry.sql(BIRTHS).await;
        for (n, failpoint) in
            ["after_bisect:1", "retry_before_letter:1", "retry_after_letter:1"].iter().enumerate()
        {
            registry.daemon(mode, &[("GOV_HANDOFF_FAILPOINT", failpoint)]).dies_at(failpoint).await;
            let (staged, letters) = (registry.number(STAGED).await, registry.number(LETTERS).await);
            let expected = if n < 2 { (1, 0) } else { (0, 1) };
            assert_eq!((staged, letters), expected, "{mode} {failpoint}: in one of the two, never in both");
        }
        let daemon = registry.daemon(mode, &[]);
        registry.until_all_handed_off().await;
        assert_eq!(registry.number("select count(*) from iu_route_dead_letter").await, 1, "{mode}");
        assert_eq!(registry.number(STAGED).await, 0, "{mode}");
        let counted = "select sum(dead_lettered)::bigint from gov_worker_cursor";
        assert_eq!(registry.number(counted).await, 1, "{mode}");
        drop(daemon);
    }
    // Accepted at last: killed when the signal is recorded and the row still staged.
    let registry = poisoned(1_000, 1, 1).await;
    registry.sql(BIRTHS).await;
    registry.daemon("poll", &[("GOV_HANDOFF_FAILPOINT", "after_bisect:1")]).dies_at("after_bisect:1").await;
    registry.sql(CURE).await;
    registry
        .daemon("poll", &[("GOV_HANDOFF_FAILPOINT", "retry_after_apply:1")])
        .dies_at("retry_after_apply:1")
        .await;
    assert_eq!(registry.number(STAGED).await, 1);
    let daemon = registry.daemon("poll", &[]);
    until("it leaves the staging", async || registry.number(STAGED).await == 0).await;
    registry.until_all_handed_off().await;
    assert_eq!(registry.number(HANDOFFS).await, 100);
    drop(daemon);
}

#[tokio::test]
async fn live_tables_of_an_older_shape_retry_and_dead_letter_too() {
    let db = adopted().await;
    done(&db.url, &["migrate"]).await;
    done(&db.url, &["types", "activate", "--all"]).await;
    db.sql(POISON).await;
    db.sql(&policy(3, 30, 30)).await;
    db.sql(BIRTHS).await;
    let mut daemon = Daemon::running(&db, "poll", &[]).await;
    db.until(&format!("select ({LETTERS}) = 1")).await;
    assert_eq!(db.text("select attempts::text from iu_route_dead_letter").await, "3");
    assert_eq!(daemon.sigterm().await, 0);
    db.sql(CURE).await;
    done(&db.url, &["dlq", "replay", "--all", "--actor", "huyen"]).await;
    let by = "select resolution || ' ' || (event_snapshot #>> '{resolution,by}') from iu_route_dead_letter";
    assert_eq!(db.text(by).await, "replayed huyen");
    assert_eq!(db.number(SIGNALS).await, 100);
}

#[tokio::test]
async fn the_depth_of_the_dead_letters_raises_the_severity() {
    let registry = poisoned(1, 1, 1).await;
    registry.sql("update dot_config set value = '2' where key = 'event.dlq.overflow'").await;
    let births = async |n: u32| {
        registry
            .sql(&format!(
                "insert into birth_registry (entity_code, collection_name) select 'poison' || g, 'c' from generate_series(1, {n}) g"
            ))
            .await;
        done(&registry.url, &["run", "--once", "--mode", "poll"]).await;
        finding(&registry, "handoff_dlq_overflow").await
    };
    assert_eq!(births(2).await, None);
    assert_eq!(births(1).await.as_deref(), Some("high"));
    assert_eq!(births(16).await.as_deref(), Some("high"));
    assert_eq!(births(1).await.as_deref(), Some("critical"), "ten times the limit");
    // Down to the limit it is over; down to nothing so is the other.
    let ids = "select id::text from iu_route_dead_letter order by first_failed_at, id limit 18";
    let ids = registry.texts(ids).await;
    let mut arguments = vec!["dlq", "discard", "--reason", "made for a test"];
    ids.iter().for_each(|id| arguments.extend(["--id", id]));
    done(&registry.url, &arguments).await;
    assert_eq!(finding(&registry, "handoff_dlq_overflow").await, None);
    assert_eq!(finding(&registry, "handoff_dlq:birth_registry").await.as_deref(), Some("high"));
    done(&registry.url, &["dlq", "supersede", "--all", "--reason", "made for a test"]).await;
    assert_eq!(finding(&registry, "handoff_dlq:birth_registry").await, None);
    assert_eq!(finding(&registry, "cursor_dlq:gov_handoff_intake").await, None);
}

#[tokio::test]
async fn staged_rows_of_one_source_that_cannot_be_read_hold_up_no_other() {
    let registry = poisoned(1_000, 20, 50).await;
    let daemon = registry.capturing("poll", "1h").await;
    registry
        .sql("insert into birth_registry (entity_code, collection_name) values ('poison', 'c');
              insert into registry_changelog (entity_type, entity_code, action) values ('collection', 'poison', 'x');
              insert into pivot_definitions (pivot_code) values ('poison'), ('poison too')")
        .await;
    until("they are staged", async || registry.number(STAGED).await == 4).await;
    // Two of a source that is removed, one of them with a key that would have been none anyway.
    done(&registry.url, &["sources", "remove", "pivot_definitions"]).await;
    registry.sql("alter table birth_registry rename to away").await;
    registry.until_finding("source_unreadable").await;
    registry.sql(CURE).await;
    until("all but the birth leave the staging", async || registry.number(STAGED).await == 1).await;
    let letters = "select route_code || ' ' || failure_code from iu_route_dead_letter order by 1";
    assert_eq!(registry.texts(letters).await, ["pivot_definitions source_not_registered"; 2]);
    assert!(daemon.log().matches("staged rows cannot be read again").count() <= 2, "{}", daemon.log());
    registry.sql("alter table away rename to birth_registry").await;
    until("so does the birth", async || registry.number(STAGED).await == 0).await;
    assert_eq!(registry.number(HANDOFFS).await, 2);
    drop(daemon);
}

#[tokio::test]
async fn a_staged_key_that_is_none_of_its_source_is_a_dead_letter() {
    let registry = poisoned(1_000, 60_000, 60_000).await;
    let daemon = registry.capturing("poll", "1h").await;
    registry.sql("insert into birth_registry (entity_code, collection_name) values ('poison', 'c')").await;
    until("it is staged", async || registry.number(STAGED).await == 1).await;
    registry
        .sql("update event_pending set process_after = now(), capture_payload = capture_payload || '{\"source_key\": \"no number\"}'
               where event_type_hint = 'governance.handoff.retry'")
        .await;
    until("it is a letter", async || registry.number(LETTERS).await == 1).await;
    assert_eq!(registry.number(STAGED).await, 0);
    let said = registry.text("select failure_code from iu_route_dead_letter").await;
    assert_eq!(said, "unreadable_key");
    drop(daemon);
}
