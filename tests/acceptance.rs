//! The seven acceptance tests of 001 §39.10, under the names they have there.
//!
//! | | |
//! |---|---|
//! | `resumability`, `type_generality`, `lease_safety`, `scale` | here |
//! | `dlq_not_drop` | `dead_letters.rs`, beside the other tests of poison rows |
//! | `heartbeat` | `watch.rs`, beside the other tests of the watchdog |
//! | `no_ui_scan` | `no_ui_scan.rs` |

use gov_handoff::embedded::ClusterOptions;

use crate::instances::Company;
use crate::support::fixture::LEAVE_ROOM;
use crate::support::{active, active_on, cli, options, private_cluster, under_writers, until};

/// As many births as production has.
const ALL: i64 = 1_037_724;

/// Notes each step of a cursor: what it had seen and where it stood.
const STEPS: &str = "
create table verify.steps (n bigserial, source text, seen bigint, ts timestamptz, id text);
create function verify.step() returns trigger language plpgsql security definer as $$
begin
    insert into verify.steps (source, seen, ts, id) values (new.source_name, new.events_seen - old.events_seen,
        new.last_watermark_ts, new.last_watermark_id);
    return null;
end $$;
create trigger witness after update on gov_worker_cursor for each row
    when (new.worker_name = 'gov_handoff_intake' and new.events_seen > old.events_seen) execute function verify.step();
create table verify.recorded (n bigint);
create function verify.record() returns trigger language plpgsql security definer as $$
begin
    insert into verify.recorded select count(*) from fresh where safe_payload ? 'source_key';
    return null;
end $$;
create trigger witness after insert on event_outbox referencing new table as fresh for each statement
    execute function verify.record();";

/// 001 §39.10, number 1.
#[tokio::test(flavor = "multi_thread")]
async fn resumability() {
    const BIRTHS: i64 = 60_000;
    let registry = active().await;
    registry.sql(STEPS).await;
    let insert = format!(
        "insert into birth_registry (entity_code, collection_name) select 'e' || g, 'c' || g % 7 from generate_series(1, {BIRTHS}) g"
    );
    registry.sql(&insert).await;
    let seen = "select events_seen from gov_worker_cursor where source_name = 'birth_registry'";
    let mut kills = 0;
    for share in [5, 3, 2] {
        let daemon = registry.daemon("poll", &[("GOV_HANDOFF_BATCH_ROWS", "500")]);
        until("it is on its way", async || registry.number(seen).await > BIRTHS / share - 2_000).await;
        drop(daemon);
        kills += i32::from(registry.number(seen).await < BIRTHS);
    }
    assert!(kills > 1, "killed in mid-sweep {kills} times");
    assert_eq!(cli(&registry.url, &["run", "--mode", "poll", "--once"]).await.code, 0);
    // Exactly the remainder each time: over all lives together every row was read and recorded once, and nothing else.
    assert_eq!(registry.number(seen).await, BIRTHS, "rows read in committed batches");
    assert_eq!(registry.number("select sum(n)::bigint from verify.recorded").await, BIRTHS, "rows recorded");
    assert_eq!(registry.number("select count(*) from gov_candidate_state").await, BIRTHS);
    let keys =
        "select count(distinct (event_type, event_subject_table, event_subject_ref)) from verify.handoffs";
    assert_eq!(registry.number(keys).await, BIRTHS);
    registry.until_all_handed_off().await;
}

/// 001 §39.10, number 2: an int key, an int key beside a time without zone, a uuid key. Ids and times run against each other,
/// so that a watermark that compared the wrong way, or ids as text, would stop at another row.
#[tokio::test(flavor = "multi_thread")]
async fn type_generality() {
    let registry = active().await;
    registry.sql(LEAVE_ROOM).await;
    let daemon = registry.daemon("poll", &[("GOV_HANDOFF_RECONCILE_INTERVAL", "200ms")]);
    registry.until_mode("poll").await;
    for round in 0..3 {
        registry
            .sql(&format!(
                "insert into birth_registry (id, entity_code, collection_name, born_at)
                 select g, 'b' || g, 'c', timestamptz '2026-01-01 00:00+00' + g * interval '1 s' from generate_series({0}, {0} + 8) g;
                 insert into registry_changelog (id, entity_type, entity_code, action, \"timestamp\")
                 select g, 'collection', 'l' || g, 'update', timestamp '2026-01-01 00:00' + (g / 3) * interval '1 s'
                   from generate_series({0}, {0} + 8) g;",
                5 + round * 9
            ))
            .await;
        for g in 5 + round * 9..14 + round * 9 {
            registry
                .sql(&format!(
                    "insert into event_outbox (id, event_domain, event_type, event_stream, canonical_address, actor_ref, source_system, occurred_at)
                     values ('{:08x}-0000-4000-8000-000000000000', 'iu', 'draft_created', 'birth', 'iu://{g}', 'x', 'x',
                             timestamptz '2026-01-01 00:00+00' + {g} * interval '1 s')",
                    99 - g
                ))
                .await;
        }
        let tailed = "select count(*) from verify.handoffs
                       where event_subject_table in ('birth_registry', 'registry_changelog', 'event_outbox')";
        until("all three are tailed", async || registry.number(tailed).await == i64::from(27 * (round + 1)))
            .await;
        let cursors = "select string_agg(concat_ws(' ', source_name, metadata #>> '{id,type}', last_watermark_id,
                              to_char(last_watermark_ts at time zone 'UTC', 'MI:SS')), ', ' order by source_name)
                         from gov_worker_cursor where source_name in ('birth_registry', 'registry_changelog', 'event_outbox')";
        let last = 13 + round * 9;
        let expected = format!(
            "birth_registry int4 {last} 00:{last:02}, event_outbox uuid {:08x}-0000-4000-8000-000000000000 00:{last:02}, \
             registry_changelog int4 {last} 00:{:02}",
            99 - last,
            last / 3
        );
        until(&expected, async || registry.text_if_any(cursors).await.as_deref() == Some(&expected)).await;
    }
    let twice = "select count(*) - count(distinct (event_type, event_subject_ref)) from verify.handoffs";
    assert_eq!(registry.number(twice).await, 0);
    drop(daemon);
}

/// 001 §39.10, number 3. Two instances that are started at the same moment race for a lease that nobody has. (`instances` has
/// the ones that come later, and what happens when the holder fails.)
#[tokio::test(flavor = "multi_thread")]
async fn lease_safety() {
    let mut company = Company::racing(2, "poll", "1s").await;
    let (url, place) = (company.registry.url.clone(), company.place().await);
    under_writers(&url, 23, 3, async {
        // The holder renews its lease many times over, and the other asks for it all the while.
        company.until_somebody_wrote_since(place + 40).await;
        let other = company.standby().await;
        company.until_it_asks(other).await;
        company.until_it_asks(other).await;
    })
    .await;
    company.registry.until_all_handed_off().await;
    assert!(company.registry.verdict().await.expected > 50, "the writers wrote");
    company.assert_all_run();
    let registry = &company.registry;
    let who = "select count(distinct instance) from verify.effects";
    assert_eq!(registry.number(who).await, 1, "one processes");
    assert_eq!(registry.number("select max(term) from verify.fences").await, 1, "and is left to it");
    let works = "select count(*) from pg_stat_activity where datname = current_database()
                    and application_name ~ '^gov-handoff (writer|reader) '";
    assert_eq!(
        registry.number(works).await,
        2,
        "the other backs off: it has no session to read or write with"
    );
    company.assert_one_writer().await;
}

/// 001 §39.10, number 6.
#[tokio::test(flavor = "multi_thread")]
async fn scale() {
    // The server itself writes down what it was asked, and how long it took; parameters are of no interest here.
    let settings = [
        ("log_min_duration_statement", "0"),
        ("log_parameter_max_length", "0"),
        ("log_line_prefix", "%a|"),
        ("max_wal_size", "8GB"),
        ("synchronous_commit", "off"),
    ];
    let settings = settings.map(|(k, v)| (k.to_owned(), v.to_owned())).to_vec();
    let cluster = private_cluster(ClusterOptions { settings, ..options() }).await;
    let registry = active_on(&cluster).await;
    registry.sql(STEPS).await;
    registry
        .sql(&format!(
            "insert into birth_registry (entity_code, collection_name, born_at)
             select 'e' || g, 'c' || g % 50, timestamptz '2026-01-01 00:00+00' + g * interval '1 ms' from generate_series(1, {ALL}) g"
        ))
        .await;
    let swept = cli(&registry.url, &["run", "--mode", "poll", "--once"]).await;
    assert_eq!(swept.code, 0, "{}", swept.err);

    let signals = "select count(*) from verify.handoffs where event_type = 'governance.handoff.object_born'";
    assert_eq!(registry.number(signals).await, ALL);
    assert_eq!(registry.number("select count(distinct event_subject_ref) from verify.handoffs").await, ALL);
    assert_eq!(registry.number("select count(*) from gov_candidate_state").await, ALL);
    let outside = "select count(*) from verify.steps
                    where seen > 5000 or seen < 2000 and n < (select max(n) from verify.steps)";
    assert_eq!(registry.number(outside).await, 0, "batches of two to five thousand");
    let back = "select count(*) from (select (ts, id::bigint) < lag((ts, id::bigint)) over (order by n) as back from verify.steps) x where back";
    assert_eq!(registry.number(back).await, 0, "the cursor never goes back");
    assert_eq!(registry.number("select max(id::bigint) from verify.steps").await, ALL, "and reaches the end");

    let log = std::fs::read_to_string(cluster.log_path()).expect("the server's log");
    let asked = asked_by("gov-handoff reader", &log);
    let took = |entry: &String| entry.split("duration: ").nth(1)?.split(' ').next()?.parse::<f64>().ok();
    let slowest = asked.iter().filter_map(took).fold(0.0, f64::max);
    println!("{} entries about the reader, the slowest {slowest:.0} ms", asked.len());
    assert!(slowest < 5_000.0, "a read took {slowest} ms");
    let by_range = asked.iter().filter(|entry| entry.contains("cross join lateral")).count();
    assert!(by_range > 200 && slowest > 0.0, "the log tells of {by_range} reads");
    assert_eq!(asked.iter().find(|entry| entry.contains("offset")), None);
}

/// Log entries about a session of this name, in lower case and without the statements' comments.
fn asked_by(name: &str, log: &str) -> Vec<String> {
    let mut entries: Vec<(bool, String)> = Vec::new();
    for line in log.lines() {
        // The lines of a statement follow its first one, indented.
        if !line.starts_with('\t') {
            entries.push((line.starts_with(&format!("{name} ")), String::new()));
        }
        if let Some((_, entry)) = entries.last_mut() {
            entry.push_str(line.split(" -- ").next().unwrap_or(line).trim_start_matches("\t-- "));
            entry.push('\n');
        }
    }
    entries.into_iter().filter(|(ours, _)| *ours).map(|(_, entry)| entry.to_lowercase()).collect()
}
