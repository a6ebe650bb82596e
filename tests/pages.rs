//! Pages that fail: halved until the bad item stands alone, which is set aside; a worker that goes on failing is reported and
//! costs no other worker anything.

use std::sync::OnceLock;

use gov_handoff::config::{Config, Layer};
use gov_handoff::daemon::pages::{self, PageContext, PageDone, PageWorker};
use gov_handoff::daemon::term::Term;
use gov_handoff::error::{Error, Result};
use gov_handoff::store::{Writer, role};
use std::time::Duration;
use tokio::sync::watch;

use crate::support::{Daemon, active, connect, migrated};

static URL: OnceLock<String> = OnceLock::new();

/// Divides by every item in turn; two of them cannot be divided by.
struct Items;

impl PageWorker for Items {
    type Role = role::Writer;

    fn new(_: &Term) -> Self {
        Self
    }

    async fn page(&mut self, _: &mut Writer, page: PageContext<'_>) -> Result<PageDone> {
        let client = connect(URL.get().expect("set")).await;
        let most = page.limit(64);
        client.execute("insert into sizes (most) values ($1)", &[&most]).await.expect("a note");
        let work = "with page as (select n from items where done is null order by n limit $1), \
                         worked as (update items i set done = 1000 / ((i.n - 37) * (i.n - 70)) from page where i.n = page.n returning 1) \
                    select count(*) from worked";
        let worked: i64 = client.query_one(work, &[&most]).await?.get(0);
        Ok(if worked > 0 { PageDone::more(worked.unsigned_abs()) } else { PageDone::idle(0, Duration::ZERO) })
    }

    async fn set_aside(&mut self, _: &mut Writer, page: PageContext<'_>, e: &Error) -> Result<bool> {
        assert_eq!((page.limit(64), e.code.as_deref()), (1, Some("22012")));
        let client = connect(URL.get().expect("set")).await;
        let aside = "update items set done = -1 where n = (select min(n) from items where done is null)";
        Ok(client.execute(aside, &[]).await? == 1)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_that_the_database_rejects_is_set_aside_and_every_other_is_worked_on() {
    let db = migrated().await;
    db.sql("create table sizes (at serial, most bigint); create table items (n bigint primary key, done bigint); \
            insert into items select g from generate_series(1, 200) g")
        .await;
    URL.set(db.url.clone()).expect("once");
    let layer = Layer::from(|name| (name == "database_url").then(|| db.url.clone()));
    let config = Config::load(layer, None, Layer::default()).expect("a configuration");
    let (_stop, told) = watch::channel(false);
    pages::run::<Items>(&config, "gov_test_items", true, told).await.expect("it ends");
    let aside = db.texts("select n::text from items where done = -1 order by n").await;
    assert_eq!(aside, ["37", "70"]);
    assert_eq!(db.number("select count(*) from items where done is null").await, 0);
    // It began with full pages, went down to one item, and grew again.
    assert_eq!(db.number("select most from sizes order by at limit 1").await, 64);
    assert_eq!(db.number("select min(most) from sizes").await, 1);
    let regrown = "select max(most) from sizes where at > (select max(at) from sizes where most = 1)";
    assert!(db.number(regrown).await > 8, "{:?}", db.texts("select most::text from sizes order by at").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_fails_all_the_time_is_reported_and_costs_no_other_anything() {
    let db = active().await;
    let settings = [
        ("GOV_HANDOFF_WORKERS", "gov_handoff_intake,gov_periodic_full_audit"),
        ("GOV_HANDOFF_AUDIT_EVERY", "1h"),
    ];
    let gate = "gov_handoff.gov_candidates_revalidate(text, text, bigint, interval, int)";
    db.sql(&format!("alter function {gate} rename to gov_elsewhere")).await;
    let mut daemon = Daemon::eager(&db.url, "poll", &settings);
    let finding = "system_issues where coalesce_key = 'worker_failing:gov_periodic_full_audit'";
    let open = format!("select count(*) from {finding} and resolved_at is null");
    db.until(&format!("select ({open}) = 1")).await;
    let about = db.text(&format!("select detail ->> 'last_error' from {finding}")).await;
    assert!(about.contains("42883"), "{about}");
    // It goes on failing. Each birth meanwhile is recorded as soon as ever, by the same holder of the same lease.
    let failures = format!("select (detail ->> 'failures_in_a_row')::bigint from {finding}");
    let (before, mut slowest) = (db.number(&failures).await, Duration::ZERO);
    for n in 1..=20_i64 {
        let began = std::time::Instant::now();
        db.births(&format!("b{n}-"), 1).await;
        db.until(&format!(
            "select count(*) >= {n} from event_outbox where event_subject_table = 'birth_registry'"
        ))
        .await;
        slowest = slowest.max(began.elapsed());
    }
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
    db.until(&format!("select ({failures}) > {before}")).await;
    let term = "select (metadata ->> 'term')::bigint from queue_heartbeat where executor_name = 'gov_handoff_intake'";
    assert_eq!(db.number(term).await, 1);
    let elsewhere = gate.replace("gov_candidates_revalidate", "gov_elsewhere");
    db.sql(&format!("alter function {elsewhere} rename to gov_candidates_revalidate")).await;
    db.until(&format!("select ({open}) = 0")).await;
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
}
