//! Metrics and health on a real server: what the tables say, repairs that no restart and no retention forgets, and pages that
//! cannot hurt.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gov_handoff::embedded::StopMode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::reasons::{EAGER, birth, handed_off, repaired, sql, streaming, take_the_stream_away};
use crate::support::fixture::{ALL_KINDS, CANARY};
use crate::support::{
    Daemon, PATIENCE, Random, blocking, cli, cli_with, connect, done, fresh_database, migrated, options,
    private_cluster, program, seed, until, within,
};

/// Series by name and labels, as `name{a=x,b=y}`.
type Scrape = BTreeMap<String, f64>;

/// Reads an exposition as strictly as the format allows; panics at whatever is not in it.
fn parse(text: &str) -> Scrape {
    assert!(text.ends_with('\n') && !text.contains("\n\n"), "every line ends, none is empty");
    let (mut series, mut families) = (Scrape::new(), Vec::<String>::new());
    let mut lines = text.lines().peekable();
    while let Some(help) = lines.next() {
        let (name, words) = help.strip_prefix("# HELP ").and_then(|h| h.split_once(' ')).expect(help);
        assert!(is_name(name) && name.starts_with("gov_handoff_") && !words.is_empty(), "{help}");
        assert!(!families.contains(&name.to_owned()), "{name} comes twice");
        let kind = lines.next().and_then(|l| l.strip_prefix("# TYPE ")).and_then(|t| t.strip_prefix(name));
        let kind = kind.unwrap_or_else(|| panic!("no type after {help}")).trim_start();
        assert!(["counter", "gauge", "histogram"].contains(&kind), "{kind}");
        assert_eq!(kind == "counter", name.ends_with("_total"), "{name} is a {kind}");
        assert_eq!(
            kind == "histogram",
            ["handoff_seconds", "apply_seconds"].iter().any(|h| name.ends_with(h)),
            "{name}"
        );
        families.push(name.to_owned());
        let before = series.len();
        while let Some(line) = lines.next_if(|l| !l.starts_with('#')) {
            let rest = line.strip_prefix(name).expect(line);
            let suffix = ["_bucket", "_sum", "_count"]
                .into_iter()
                .find(|s| kind == "histogram" && rest.starts_with(s));
            assert_eq!(kind == "histogram", suffix.is_some(), "{line}");
            let (name, rest) =
                (format!("{name}{}", suffix.unwrap_or_default()), &rest[suffix.unwrap_or_default().len()..]);
            let (labels, value) = if rest.starts_with('{') { labels(rest) } else { (Vec::new(), rest) };
            let value: f64 = value.strip_prefix(' ').expect(line).parse().expect(line);
            assert!(value >= 0.0, "{line}");
            let shown: Vec<_> = labels.iter().map(|(n, v)| format!("{n}={v}")).collect();
            let key = if shown.is_empty() { name.clone() } else { format!("{name}{{{}}}", shown.join(",")) };
            assert!(series.insert(key, value).is_none(), "{line} comes twice");
        }
        assert!(series.len() > before, "{name} has no sample");
    }
    series
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c == '_')
}

/// The labels of `{a="x",b="y"} 1`, and what follows them.
fn labels(text: &str) -> (Vec<(String, String)>, &str) {
    let (mut found, mut rest) = (Vec::new(), &text[1..]);
    loop {
        let (name, after) = rest.split_once("=\"").expect(text);
        assert!(is_name(name), "{text}");
        let (mut value, mut chars) = (String::new(), after.char_indices());
        let end = loop {
            match chars.next().expect(text) {
                (at, '"') => break at,
                (_, '\\') => value.push(match chars.next().expect(text).1 {
                    'n' => '\n',
                    c @ ('\\' | '"') => c,
                    c => panic!("\\{c} in {text}"),
                }),
                (_, c) => value.push(c),
            }
        };
        found.push((name.to_owned(), value));
        rest = &after[end + 1..];
        match rest.as_bytes().first() {
            Some(b',') => rest = &rest[1..],
            Some(b'}') => return (found, &rest[1..]),
            _ => panic!("{text}"),
        }
    }
}

async fn scraped(url: &str) -> Scrape {
    parse(&done(url, &["metrics"]).await)
}

/// Repairs of births by reason, those that were made.
fn repairs(scrape: &Scrape) -> BTreeMap<String, i64> {
    let ours = scrape.iter().filter_map(|(series, n)| {
        let rest = series.strip_prefix("gov_handoff_repairs_total{source=birth_registry,reason=")?;
        #[allow(clippy::cast_possible_truncation)]
        Some((rest.trim_end_matches('}').to_owned(), *n as i64)).filter(|(_, n)| *n > 0)
    });
    ours.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_observer_scrapes_what_the_tables_say_and_nothing_of_a_row() {
    let db = migrated().await;
    let role = format!("scraper_{}", db.name);
    db.sql(&format!("create role {role} login in role gov_handoff_observer")).await;
    let observer = db.url_as(&role);
    let before = scraped(&observer).await;
    assert_eq!(before["gov_handoff_lease_held"], 0.0);
    assert_eq!(before["gov_handoff_repairs_total{source=birth_registry,reason=missed_by_stream}"], 0.0);
    assert!(!before.contains_key("gov_handoff_lag_seconds"), "nobody has said");

    done(&db.url, &["types", "activate", "object_born"]).await;
    let mut daemon = Daemon::running(&db, "stream", &EAGER).await;
    db.sql(ALL_KINDS).await;
    // An id that is never used, and a letter and two findings that are open.
    db.sql("select nextval(pg_get_serial_sequence('birth_registry', 'id'))").await;
    db.sql(&birth("last", "now()")).await;
    db.sql("insert into iu_route_dead_letter (worker_name, event_domain, route_code, idempotency_key, failure_code) \
         values ('gov_handoff_intake', 'governance', 'birth_registry', 'birth_registry:x', 'x'); \
         select gov_handoff.gov_finding_raise('handoff_missed', 'handoff_missed:x' || n, 'high') from generate_series(1, 2) n").await;
    db.until("select count(*) = 5 from v_governance_certificate").await;
    db.until("select exists (select from event_outbox where canonical_address = 'laws:last')").await;
    db.until("select lag_ms is not null and slot_budget is not null from v_governance_worker").await;
    // The unused id is a hole once the tables were read behind the stream.
    let hole = "select exists (select from gov_worker_gap where source_name = 'birth_registry' \
                and lo > (select min(id) from birth_registry) and hi < (select max(id) from birth_registry))";
    db.until(hole).await;
    let running = scraped(&observer).await;
    for (series, value) in [
        ("gov_handoff_lease_held", 1.0),
        ("gov_handoff_lease_term", 1.0),
        ("gov_handoff_mode{mode=stream}", 1.0),
        ("gov_handoff_mode{mode=poll}", 0.0),
        ("gov_handoff_slot_active", 1.0),
        ("gov_handoff_slot_budget_bytes", 4096.0 * 1_048_576.0),
        ("gov_handoff_dead_letters_open", 1.0),
        ("gov_handoff_rows_retrying", 0.0),
        ("gov_handoff_findings_open{kind=handoff_missed,severity=high}", 2.0),
    ] {
        assert_eq!(running[series], value, "{series}");
    }
    for (series, most) in [
        ("gov_handoff_lease_age_seconds", 60.0),
        ("gov_handoff_lag_seconds", 60.0),
        ("gov_handoff_frontier_age_seconds{source=birth_registry}", 60.0),
        ("gov_handoff_frontier_age_transactions{source=birth_registry}", 1e6),
        ("gov_handoff_certificate_age_seconds{source=birth_registry}", 60.0),
        ("gov_handoff_slot_retained_bytes", 1e9),
    ] {
        assert!(running[series] < most, "{series}: {}", running[series]);
    }
    let holes = |state: &str| running[&format!("gov_handoff_holes{{source=birth_registry,state={state}}}")];
    assert!(holes("hot") + holes("cold") >= 1.0);
    let lsn = db.number("select (durable_lsn - '0/0'::pg_lsn)::bigint from v_governance_stream").await;
    #[allow(clippy::cast_precision_loss)]
    let lsn = lsn as f64;
    assert!((0.0..1e9).contains(&(lsn - running["gov_handoff_stream_durable_lsn_bytes"])));

    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
    let text = done(&observer, &["metrics"]).await;
    assert!(!text.contains(CANARY) && !text.contains("laws:"), "{text}");
    let stopped = parse(&text);
    let exact = |query: &'static str| db.number(query);
    let (seen, written) = (
        exact("select events_seen from gov_worker_cursor where source_name = 'birth_registry'").await,
        exact("select attempts_written from gov_worker_cursor where source_name = 'birth_registry'").await,
    );
    let policies = exact(
        "select count(*) from event_pending where event_type_hint = 'governance.handoff.policy_changed'",
    )
    .await;
    assert!(seen > 0 && written > 0 && policies > 0);
    for (series, value) in [
        ("gov_handoff_rows_seen_total{source=birth_registry}", seen),
        ("gov_handoff_signals_recorded_total{source=birth_registry}", written),
        ("gov_handoff_captured_waiting{type=governance.handoff.policy_changed}", policies),
        (
            "gov_handoff_ticks_total",
            exact("select ticks_total from v_governance_worker where worker_name = 'gov_handoff_intake'")
                .await,
        ),
        ("gov_handoff_lease_held", 0),
        ("gov_handoff_mode{mode=stream}", 0),
    ] {
        #[allow(clippy::cast_precision_loss)]
        let value = value as f64;
        assert_eq!(stopped[series], value, "{series}");
    }
    // A count that would cost more with what waits ends at its bound.
    db.sql("insert into event_pending (event_domain, event_type_hint, canonical_address, actor_ref) \
                     select 'governance', 'governance.handoff.axis_introduced', 'x', 'x' from generate_series(1, 10100)").await;
    let many = scraped(&observer).await;
    assert_eq!(many["gov_handoff_captured_waiting{type=governance.handoff.axis_introduced}"], 10_000.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn repairs_are_counted_once_and_for_ever() {
    let (db, mut daemon, role) = streaming(&EAGER).await;
    take_the_stream_away(&db, &daemon, &role).await;
    let late = connect(&db.url).await;
    sql(&late, &format!("begin; {}", birth("late", "now()"))).await;
    db.sql(&birth("quick", "now()")).await;
    handed_off(&db.client, "quick").await;
    sql(&late, "commit").await;
    db.sql(&birth("dated", "now() - interval '1 year'")).await;
    handed_off(&db.client, "late").await;
    handed_off(&db.client, "dated").await;
    let wanted = BTreeMap::from(
        [("back_dated", 1), ("late_commit", 1), ("not_yet_read", 1)].map(|(r, n)| (r.to_owned(), n)),
    );
    let mut last = 0;
    within(PATIENCE, "all repairs are counted", async || {
        let found = repairs(&scraped(&db.url).await);
        let total = found.values().sum::<i64>();
        assert!(total >= last, "{found:?} after {last}");
        last = total;
        if found == wanted { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
    assert_eq!(repaired(&db).await, wanted, "the certificates say the same");

    // A restart, and a history that is gone.
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
    let history = "delete from event_pending where event_type_hint = 'governance.handoff.certified'";
    db.sql(history).await;
    assert_eq!(repairs(&scraped(&db.url).await), wanted);
    db.sql(&format!("alter role {role} replication")).await;
    let mut daemon = Daemon::running(&db, "stream", &EAGER).await;
    db.until("select count(*) = 5 from v_governance_certificate where (certificate ->> 'taken_at')::timestamptz \
                       > (select last_tick_at - interval '1 hour' from v_governance_worker where worker_name = 'gov_handoff_intake')").await;
    assert_eq!(repairs(&scraped(&db.url).await), wanted);
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());

    // What an audit puts back counts as well, beside the rest and each time; a check counts nothing.
    let mut more = wanted.clone();
    for (times, code) in [(1, "quick"), (2, "late")] {
        db.sql(&format!("delete from event_pending where canonical_address = 'laws:{code}'")).await;
        assert_eq!(cli(&db.url, &["audit", "--full", "--check"]).await.code, 1);
        assert_eq!(repairs(&scraped(&db.url).await), more);
        assert_eq!(cli(&db.url, &["audit", "--full"]).await.code, 1);
        more.insert("vanished".to_owned(), times);
        assert_eq!(repairs(&scraped(&db.url).await), more);
    }

    // Nor is it forgotten with its source.
    done(&db.url, &["sources", "remove", "birth_registry"]).await;
    assert_eq!(repairs(&scraped(&db.url).await), more);
}

/// Where a daemon that listens on any port does.
pub async fn address(daemon: &Daemon) -> String {
    within(Duration::from_secs(30), "it listens", async || {
        let log = daemon.log();
        let (_, rest) = log.split_once("metrics at http://").ok_or_else(|| log.clone())?;
        Ok(rest.split('/').next().unwrap_or_default().to_owned())
    })
    .await
}

pub struct Page {
    pub status: u16,
    pub head: String,
    pub body: String,
}

pub async fn ask(address: &str, method: &str, path: &str) -> Page {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect(&answer);
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).expect(head);
    Page { status, head: head.to_lowercase(), body: body.to_owned() }
}

/// Asks until the answer has this status; gives the body.
pub async fn until_status(address: &str, path: &str, status: u16) -> String {
    within(PATIENCE, &format!("{path} answers {status}"), async || {
        let page = ask(address, "GET", path).await;
        if page.status == status { Ok(page.body) } else { Err(format!("{} {}", page.status, page.body)) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_answer_while_there_is_a_server_and_say_so_when_there_is_none() {
    let cluster = Arc::new(private_cluster(options()).await);
    cluster.create_database("pages", None).await.expect("a database");
    let url = cluster.url("pages");
    done(&url, &["migrate"]).await;
    let listen = ["--mode", "poll", "--listen", "127.0.0.1:0"];
    let daemon = Daemon::start(&url, &listen, &EAGER);
    let at = address(&daemon).await;
    daemon.captures(&url, "poll").await;
    let standby = Daemon::start(&url, &listen, &EAGER);
    let beside = address(&standby).await;

    let page = ask(&at, "GET", "/metrics").await;
    assert_eq!(page.status, 200, "{}", page.body);
    assert!(page.head.contains("content-type: text/plain; version=0.0.4"), "{}", page.head);
    assert_eq!(ask(&at, "HEAD", "/metrics").await.body, "");
    for page in [&at, &beside] {
        let said = until_status(page, "/healthz", 200).await;
        let (holder, rest) = said
            .strip_prefix("the lease is held by ")
            .and_then(|said| said.split_once(", "))
            .unwrap_or_else(|| panic!("{said}"));
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
        let number = holder.strip_prefix(&format!("{}-{}-", host.trim(), daemon.pid()));
        let number = number.unwrap_or_else(|| panic!("{said}"));
        assert!(number.len() == 32 && number.bytes().all(|b| b"0123456789abcdef".contains(&b)), "{said}");
        assert!(rest.starts_with("term 1, renewed "), "{said}");
    }
    assert_eq!(parse(&until_status(&beside, "/metrics", 200).await)["gov_handoff_mode{mode=poll}"], 1.0);
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"] {
        for path in ["/metrics", "/livez", "/readyz", "/healthz"] {
            assert_eq!(ask(&at, method, path).await.status, 405, "{method} {path}");
        }
    }
    assert_eq!(ask(&at, "GET", "/nowhere").await.status, 404);

    for mode in [StopMode::Fast, StopMode::Immediate] {
        let server = Arc::clone(&cluster);
        blocking(move || server.stop(mode)).await.expect("stop");
        for path in ["/metrics", "/readyz", "/healthz"] {
            let why = until_status(&at, path, 503).await;
            assert!(why.lines().count() == 1 && why.contains("cannot connect"), "{why}");
        }
        // A server that is away is no reason to start us again.
        let alive = ask(&at, "GET", "/livez").await;
        assert!(alive.status == 200 && alive.body.ends_with(" loops turn\n"), "{}", alive.body);
        let server = Arc::clone(&cluster);
        blocking(move || server.start_again()).await.expect("start");
        until_status(&at, "/healthz", 200).await;
        parse(&until_status(&at, "/metrics", 200).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn scrapes_share_one_look_one_session_and_a_deadline() {
    let db = migrated().await;
    let mut daemon = Daemon::start(&db.url, &["--mode", "poll", "--listen", "127.0.0.1:0"], &EAGER);
    let at = address(&daemon).await;
    daemon.captures(&db.url, "poll").await;
    // Many at once; and some that hang up, or never say what they want.
    let silent: Vec<_> = futures_util::future::join_all((0..8).map(|_| TcpStream::connect(&at))).await;
    let asked = (0..12).map(|_| async { ask(&at, "GET", "/metrics").await });
    let pages = futures_util::future::join_all(asked).await;
    assert!(pages.iter().all(|p| p.status == 200));
    let bodies: std::collections::BTreeSet<_> = pages.iter().map(|p| p.body.as_str()).collect();
    assert!(bodies.len() <= 2, "{} looks for twelve scrapes at once", bodies.len());
    let sessions = "select count(*) from pg_stat_activity where datname = current_database() and application_name like 'gov-handoff metrics %'";
    assert_eq!(db.number(sessions).await, 1);
    // A session that is ended is replaced without anybody noticing.
    db.sql(
        "select pg_terminate_backend(pid, 5000) from pg_stat_activity \
                     where datname = current_database() and application_name like 'gov-handoff metrics %'",
    )
    .await;
    until("a scrape looks again", async || {
        assert_eq!(ask(&at, "GET", "/metrics").await.status, 200);
        db.number(sessions).await == 1
    })
    .await;

    // Something that only a scrape reads is locked: a scrape ends by its deadline, and the daemon does not notice.
    let locker = connect(&db.url).await;
    sql(&locker, "begin; drop view v_governance_captured").await;
    let begun = Instant::now();
    let why = until_status(&at, "/metrics", 503).await;
    assert!(begun.elapsed() < Duration::from_secs(20) && why.lines().count() == 1, "{why}");
    assert_eq!(ask(&at, "GET", "/healthz").await.status, 200);
    db.sql(&birth("meanwhile", "now()")).await;
    handed_off(&db.client, "meanwhile").await;
    sql(&locker, "rollback").await;
    until_status(&at, "/metrics", 200).await;
    drop(silent);
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
    assert!(!daemon.log().contains("served no longer"), "{}", daemon.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_cannot_or_must_not_be_had_is_one_line() {
    let db = migrated().await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().map(|a| (taken, a.to_string())).expect("its address");
    for (listen, says) in [
        (taken.1.as_str(), "choose another `listen`"),
        ("0.0.0.0:0", "only loopback"),
        ("[::]:9642", "only loopback"),
        ("localhost", "such as 127.0.0.1:9642"),
    ] {
        for ran in [
            cli(&db.url, &["run", "--mode", "poll", "--listen", listen]).await,
            cli_with(&db.url, &["run", "--mode", "poll"], &[("GOV_HANDOFF_LISTEN", listen)]).await,
        ] {
            assert_eq!(ran.code, 2, "{listen}: {}{}", ran.out, ran.err);
            assert!(ran.err.contains(says) && ran.err.lines().count() == 1, "{listen}: {}", ran.err);
        }
    }
    assert_eq!(db.number("select count(*) from queue_heartbeat").await, 0, "nothing was begun");
    // A single run listens nowhere, so it does not fall over the daemon's port.
    let once =
        cli_with(&db.url, &["run", "--mode", "poll", "--once"], &[("GOV_HANDOFF_LISTEN", &taken.1)]).await;
    assert_eq!(once.code, 0, "{}", once.err);
    let shown = cli_with(&db.url, &["config"], &[("GOV_HANDOFF_LISTEN", "[::1]:9642")]).await.out;
    assert!(shown.contains("[::1]:9642"), "{shown}");

    let empty = fresh_database(None).await;
    let ran = cli(&empty.url, &["metrics"]).await;
    assert_eq!(ran.code, 2, "{}", ran.out);
    assert!(ran.err.contains("run `gov-handoff migrate` first") && ran.out.is_empty(), "{}", ran.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_that_stops_turning_fails_livez_by_name() {
    let db = migrated().await;
    for stalls in ["table lane:30", "keeper:5"] {
        let plan = format!("{stalls}:stall");
        let environment =
            [&EAGER[..], &[("GOV_HANDOFF_FAILPOINT", &*plan), ("GOV_HANDOFF_TEST_PATIENCE", "6s")]].concat();
        let daemon = Daemon::start(&db.url, &["--mode", "poll", "--listen", "127.0.0.1:0"], &environment);
        let at = address(&daemon).await;
        let url = |page: &str| format!("http://{at}{page}");
        let why = until_status(&at, "/livez", 503).await;
        let kind = stalls.split(':').next().expect("a name");
        assert!(why.contains(&format!("gov_handoff_intake {kind} has not turned for")), "{why}");
        // A probe without curl says the same, and tells no from nobody there.
        let ran = cli(&db.url, &["health", "--url", &url("/livez")]).await;
        assert!(ran.code == 1 && ran.out.contains(kind), "{} {}{}", ran.code, ran.out, ran.err);
        let text = ask(&at, "GET", "/metrics").await.body;
        let age = parse(&text)[&format!("gov_handoff_loop_age_seconds{{loop=gov_handoff_intake {kind}}}")];
        assert!(age > 5.0, "{age}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn health_asks_the_page_of_a_daemon_and_its_exit_code_is_the_answer() {
    let db = migrated().await;
    let mut daemon = Daemon::start(&db.url, &["--mode", "poll", "--listen", "127.0.0.1:0"], &EAGER);
    let at = address(&daemon).await;
    daemon.captures(&db.url, "poll").await;
    until_status(&at, "/readyz", 200).await;
    let asked = cli_with(&db.url, &["health"], &[("GOV_HANDOFF_LISTEN", &at)]).await;
    assert!(asked.code == 0 && asked.out.starts_with("the lease is held by "), "{}{}", asked.out, asked.err);
    // It asks no database, so it needs none: no URL and no user is set here, and the password file is not there.
    let bare = [("GOV_HANDOFF_LISTEN", &*at), ("PGPASSFILE", "/none")];
    let asked = tokio::process::Command::from(program(&["health"], &bare)).output().await.expect("it runs");
    assert_eq!(asked.status.code(), Some(0), "{}", String::from_utf8_lossy(&asked.stderr));
    for (url, says) in [
        (format!("http://{at}/nothing"), "status 404"),
        ("https://127.0.0.1/livez".to_owned(), "write one such as"),
        ("http://127.0.0.1:1/livez".to_owned(), "cannot be asked"),
        (db.url.replacen("postgres://postgres@", "http://", 1), "did not answer"),
    ] {
        let ran = cli(&db.url, &["health", "--url", &url]).await;
        assert!(ran.code == 2 && ran.err.contains(says), "{url}: {} {}", ran.code, ran.err);
    }
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
}

/// What stands in the tables that a request could conceivably change.
const STATE: &str =
    "select (select count(*) from event_outbox)::text || ' ' || (select count(*) from event_pending)
    || ' ' || (select count(*) from birth_registry) || ' ' || (select count(*) from registry_changelog)
    || ' ' || (select count(*) from system_issues) || ' ' || (select count(*) from gov_worker_cursor)
    || ' ' || (select coalesce(md5(string_agg(c::text, ',' order by c::text)), '') from dot_config c)
    || ' ' || (select count(*) from event_type_registry where active)";

#[tokio::test(flavor = "multi_thread")]
async fn no_request_however_malformed_changes_state_or_brings_the_process_down() {
    let db = migrated().await;
    let quiet = [
        ("GOV_HANDOFF_AUDIT_INTERVAL", "1h"),
        ("GOV_HANDOFF_HEARTBEAT_INTERVAL", "1h"),
        ("GOV_HANDOFF_CERTIFY_INTERVAL", "1h"),
    ];
    let mut daemon = Daemon::start(&db.url, &["--mode", "poll", "--listen", "127.0.0.1:0"], &quiet);
    let at = address(&daemon).await;
    daemon.captures(&db.url, "poll").await;
    db.until("select count(*) = 5 from v_governance_certificate").await;
    let before = db.text(STATE).await;
    let seed = seed();
    println!("GOV_HANDOFF_TEST_SEED={seed}");
    let mut random = Random::new(seed);
    let mut sent = 0;
    for request in hostile_requests(&mut random) {
        let Ok(mut stream) = TcpStream::connect(&at).await else {
            panic!("it listens no longer: {}", daemon.log())
        };
        // It may hang up before it has heard us out.
        let _ = stream.write_all(&request).await;
        let _ = stream.shutdown().await;
        let mut answer = Vec::new();
        let _ = tokio::time::timeout(
            Duration::from_secs(15),
            (&mut stream).take(1 << 20).read_to_end(&mut answer),
        )
        .await;
        let head = String::from_utf8_lossy(&answer);
        let status = head.split(' ').nth(1).and_then(|s| s.parse::<u16>().ok());
        assert!(
            head.is_empty()
                || status.is_some_and(|s| [200, 400, 404, 405, 414, 421, 431, 501, 503, 505].contains(&s)),
            "{head}"
        );
        sent += 1;
    }
    assert!(sent > 300, "only {sent} requests were sent");
    assert_eq!(ask(&at, "GET", "/livez").await.status, 200);
    until_status(&at, "/readyz", 200).await;
    assert_eq!(db.text(STATE).await, before);
    let only_looks =
        "select bool_and(current_setting('server_version') is not null)::text from pg_stat_activity
        where datname = current_database() and application_name like 'gov-handoff metrics %'";
    assert_eq!(db.text(only_looks).await, "true");
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
    assert!(!daemon.log().contains("panicked"), "{}", daemon.log());
}

/// Requests that are wrong in every way that is easily thought of, and then in ways that nobody thought of.
fn hostile_requests(random: &mut Random) -> Vec<Vec<u8>> {
    let long = "x".repeat(100_000);
    let mut all: Vec<Vec<u8>> = [
        String::new(),
        "\r\n\r\n".to_owned(),
        "GET".to_owned(),
        "GET / HTTP/9.9\r\n\r\n".to_owned(),
        "GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(),
        "GET /metrics%00 HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(),
        "GET /metrics?a=';drop table event_outbox;-- HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(),
        "GET http://elsewhere/metrics HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(),
        "POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n"
            .to_owned(),
        "POST /livez HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n"
            .to_owned(),
        "GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n".to_owned(),
        "GET /livez HTTP/1.1\r\nHost: localhost\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n".to_owned(),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
        "CONNECT h:1 HTTP/1.1\r\n\r\n".to_owned(),
        format!("GET /{long} HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        format!("GET /livez HTTP/1.1\r\nHost: localhost\r\n{long}: {long}\r\n\r\n"),
        format!("GET /livez HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(5_000)),
        "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(50),
    ]
    .map(String::into_bytes)
    .into();
    let seeds = [
        "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n",
        "HEAD /readyz HTTP/1.0\r\n\r\n",
        "DELETE /healthz HTTP/1.1\r\nHost: y\r\n\r\n{}",
    ];
    for n in 0..300 {
        let mut request = seeds[n % seeds.len()].as_bytes().to_vec();
        for _ in 0..=random.below(6) {
            let at = usize::try_from(random.below(request.len() as u64)).expect("small");
            let byte = u8::try_from(random.below(256)).expect("a byte");
            match random.below(4) {
                0 => request[at] = byte,
                1 => request.insert(at, byte),
                2 if request.len() > 1 => drop(request.remove(at)),
                _ => request.extend_from_within(at..),
            }
        }
        all.push(request);
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn histograms_count_what_this_process_streamed_and_applied() {
    let db = migrated().await;
    let mut daemon = Daemon::start(&db.url, &["--mode", "stream", "--listen", "127.0.0.1:0"], &EAGER);
    let at = address(&daemon).await;
    daemon.captures(&db.url, "stream").await;
    for n in 0..5 {
        db.sql(&birth(&format!("timed{n}"), "now()")).await;
        handed_off(&db.client, &format!("timed{n}")).await;
    }
    within(PATIENCE, "five transactions were timed", async || {
        let seen = parse(&until_status(&at, "/metrics", 200).await);
        let timed = |name: &str, part: &str| seen[&format!("gov_handoff_{name}_seconds{part}")];
        assert_eq!(timed("commit_to_handoff", "_bucket{le=+Inf}"), timed("commit_to_handoff", "_count"));
        assert!(
            timed("commit_to_handoff", "_bucket{le=60}") >= timed("commit_to_handoff", "_bucket{le=0.001}")
        );
        let (streamed, applied) = (timed("commit_to_handoff", "_count"), timed("apply", "_count"));
        let sums = timed("commit_to_handoff", "_sum") > 0.0 && timed("apply", "_sum") > 0.0;
        if streamed >= 5.0 && applied >= 5.0 && sums { Ok(()) } else { Err(format!("{streamed} {applied}")) }
    })
    .await;
    // Zeros, and times beside ages.
    let seen = parse(&until_status(&at, "/metrics", 200).await);
    assert_eq!(seen["gov_handoff_findings_open{kind=slot_lost,severity=warning}"], 0.0);
    assert_eq!(seen["gov_handoff_slot_wal_status{status=reserved}"], 1.0);
    assert_eq!(seen["gov_handoff_worker_state{worker=gov_handoff_intake,state=running}"], 1.0);
    let now = db.number("select extract(epoch from clock_timestamp())::bigint").await;
    #[allow(clippy::cast_precision_loss)]
    let ago = now as f64 - seen["gov_handoff_lease_renewed_timestamp_seconds"];
    assert!((-1.0..60.0).contains(&ago), "{ago}");
    assert!(seen["gov_handoff_collector_duration_seconds"] > 0.0);
    assert_eq!(seen["gov_handoff_collector_errors_total"], 0.0);
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
}
