//! The page and `GET /api/status` on a real server.

use std::collections::BTreeSet;

use crate::metrics::{Page, address, ask, until_status};
use crate::support::{Daemon, Database, active, cli, within};
use gov_handoff::store::connect;
use gov_handoff::store::overview::STATEMENTS;
use serde_json::Value;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub const EAGER: [(&str, &str); 3] = [
    ("GOV_HANDOFF_LEASE_TTL", "1s"),
    ("GOV_HANDOFF_CERTIFY_INTERVAL", "1s"),
    ("GOV_HANDOFF_POLL_INTERVAL", "50ms"),
];

/// Something in every section of the page, some of it hostile.
pub const POPULATED: &str = "
insert into iu_route_dead_letter (worker_name, event_domain, route_code, idempotency_key, failure_code)
values ('gov_handoff_intake', 'governance', 'birth_registry', 'birth_registry:<script>alert(1)</script>', 'refused');
select gov_handoff.gov_finding_raise('row_replaced', 'row_replaced:a''b\"<i>; rm -rf x', 'high');
select fn_executor_register('hermes_batch_a', 'Hermes', 'user:huyen');
select fn_job_subscribe('hermes_batch_a', p_job_kind => 'verify_mark', p_max_parallel => 4, p_actor => 'user:huyen');
select fn_executor_heartbeat('hermes_batch_a');
select fn_job_enqueue('verify_mark', 'job-' || g, 'Hermes', p_actor => 'user:huyen') from generate_series(1, 5) g;
insert into job_overdue (job_id, deadline_at) select id, now() - interval '1 minute' from job_queue limit 1;
insert into event_read_mark (actor_ref, event_domain, event_stream, through) values ('user:huyen', 'governance', 'signal', 0);
insert into gov_verdict_tally (worker_name, grain, verdict, n) values ('gov_candidate_scan', 'group', 'single', 12), ('gov_candidate_scan', 'object', 'accepted', 40);
insert into gov_candidate_group (group_key, dirty_reason, dirtied_at) values ('laws', 'object_born', now())";

pub async fn listening(db: &Database, more: &[(&str, &str)]) -> (Daemon, String) {
    let daemon =
        Daemon::start(&db.url, &["--mode", "poll", "--listen", "127.0.0.1:0"], &[&EAGER[..], more].concat());
    let at = address(&daemon).await;
    daemon.captures(&db.url, "poll").await;
    (daemon, at)
}

/// Asks with these header lines, each ended.
async fn ask_with(at: &str, request: &str) -> Page {
    let mut stream = TcpStream::connect(at).await.expect("it listens");
    stream.write_all(request.as_bytes()).await.expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect(&answer);
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).expect(head);
    Page { status, head: head.to_lowercase(), body: body.to_owned() }
}

pub async fn status(at: &str) -> Value {
    let page = ask(at, "GET", "/api/status").await;
    serde_json::from_str(&page.body).unwrap_or_else(|e| panic!("{e}: {}", page.body))
}

/// Asks until the status holds; gives it.
pub async fn until_status_is(at: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    within(Duration::from_secs(60), what, async || {
        let status = status(at).await;
        if holds(&status) { Ok(status) } else { Err(status.to_string().chars().take(3000).collect()) }
    })
    .await
}

/// The paths of every leaf, as in `sources[].source`. What is free in its form ends a path.
fn paths(value: &Value, path: &str, into: &mut BTreeSet<String>) {
    const FREE: [&str; 2] = ["workers[].progress", "certificates[]"];
    match value {
        _ if FREE.contains(&path) => drop(into.insert(path.to_owned())),
        Value::Object(map) => {
            for (key, value) in map {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                paths(value, &path, into);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| paths(item, &format!("{path}[]"), into)),
        _ => drop(into.insert(path.to_owned())),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn page_and_api_show_everything_escaped_and_as_documented() {
    let db = active().await;
    db.sql(POPULATED).await;
    let slot = format!("gov_handoff_unused_{}", db.name);
    db.sql(&format!("select pg_create_logical_replication_slot('{slot}', 'pgoutput')")).await;
    let (mut daemon, at) = listening(&db, &[]).await;
    db.births("b", 3).await;
    let seen = until_status_is(&at, "everything is shown", |s| {
        s["certificates"].as_array().is_some_and(|c| c.len() == 5)
            && s["sources"][0]["signals"].as_i64() > Some(0)
            && s["mode_history"][0]["mode"] == "poll"
            && s["history"]["samples"].as_array().is_some_and(|samples| !samples.is_empty())
    })
    .await;
    assert_eq!(seen["verdict"]["state"], "wrong", "{}", seen["verdict"]);
    assert_eq!(seen["letters"][0]["key"], "birth_registry:<script>alert(1)</script>");
    assert_eq!((&seen["lanes"][0]["ready"], &seen["jobs"]["executors_alive"]), (&5.into(), &1.into()));

    // The document names each key of the answer, and no other.
    let document =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/api.md")).expect("docs/api.md");
    let documented: BTreeSet<String> = document
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .map(str::to_owned)
        .collect();
    let mut answered = BTreeSet::new();
    paths(&seen, "", &mut answered);
    // In mode poll there is no slot, and its keys are null as a whole.
    answered.remove("stream");
    let stream = |path: &&String| !path.starts_with("stream.");
    let missing: Vec<_> = documented.iter().filter(stream).filter(|path| !answered.contains(*path)).collect();
    let unknown: Vec<_> = answered.iter().filter(|path| !documented.contains(*path)).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "not answered: {missing:?}; not documented: {unknown:?}"
    );

    let page = ask(&at, "GET", "/").await;
    assert_eq!(page.status, 200, "{}", page.body);
    for header in [
        "content-security-policy: default-src 'none'; style-src 'sha256-",
        "frame-ancestors 'none'",
        "x-content-type-options: nosniff",
        "x-frame-options: deny",
        "referrer-policy: no-referrer",
        "cache-control: no-store",
        "content-type: text/html; charset=utf-8",
    ] {
        assert!(page.head.contains(header), "{header} is not in {}", page.head);
    }
    for shown in [
        "<h1 id=\"state\">Wrong</h1>",
        "birth_registry:&lt;script&gt;alert(1)&lt;/script&gt;",
        "gov-handoff findings --resolve &#39;row_replaced:a&#39;\\&#39;&#39;b&quot;&lt;i&gt;; rm -rf x&#39;",
        "hermes_batch_a",
        "gov_candidate_scan",
        ">laws</code>",
        "user:huyen",
        "Skip to the verdict",
    ] {
        assert!(page.body.contains(shown), "{shown} is not in {}", page.body);
    }
    assert!(!page.body.contains("<script>alert") && !page.body.contains("<i>"), "{}", page.body);
    // No address of another machine, no attribute that a policy would have to allow.
    for foreign in ["https://", "src=", " style=", " onclick="] {
        assert!(!page.body.contains(foreign), "{foreign} is in the page");
    }
    assert_eq!(ask(&at, "HEAD", "/").await.body, "");
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"] {
        for path in ["/", "/api/status"] {
            assert_eq!(ask(&at, method, path).await.status, 405, "{method} {path}");
        }
    }
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn page_and_api_agree_with_status_in_each_state() {
    let db = active().await;
    let (_daemon, at) = listening(&db, &[]).await;
    let shows = async |state: &str, title: &str| {
        let seen = until_status_is(&at, state, |s| s["verdict"]["state"] == state).await;
        let page = within(Duration::from_secs(20), title, async || {
            let page = ask(&at, "GET", "/").await.body;
            if page.contains(&format!("<h1 id=\"state\">{title}</h1>")) { Ok(page) } else { Err(page) }
        })
        .await;
        (seen, page)
    };
    let (seen, page) = shows("ok", "Ok").await;
    let told = cli(&db.url, &["status"]).await;
    assert!(told.code == 0 && told.out.starts_with("Everything committed before "), "{}", told.out);
    assert!(
        seen["verdict"]["sentence"].as_str().is_some_and(|s| s.starts_with("Everything committed before "))
    );
    assert!(page.contains("No finding is open.") && page.contains("No dead letter is open."), "{page}");
    db.sql("select gov_handoff.gov_worker_pause('gov_handoff_intake', true, 'month end', 'user:huyen')")
        .await;
    let (seen, page) = shows("off", "Off on purpose").await;
    assert!(seen["verdict"]["since"].is_string() && page.contains("month end"), "{page}");
    db.sql("select gov_handoff.gov_worker_pause('gov_handoff_intake', false, null, null)").await;
    shows("ok", "Ok").await;
    db.sql("select gov_handoff.gov_finding_raise('slot_lost', 'slot_lost:x', 'warning')").await;
    let (_, page) = shows("wrong", "Wrong").await;
    assert!(page.contains("<code>slot_lost:x</code>") && page.contains("gov-handoff certificates"), "{page}");
    // While the views cannot be read, nobody can tell. The page says so above what was last known.
    db.sql("alter view v_governance_summary rename to v_elsewhere").await;
    let why = until_status(&at, "/api/status", 503).await;
    let seen: Value = serde_json::from_str(&why).expect(&why);
    assert_eq!(
        (&seen["verdict"]["state"], seen["error"].is_string()),
        (&"cannot_tell".into(), true),
        "{why}"
    );
    assert_eq!(seen["sources"].as_array().map(Vec::len), Some(5), "{why}");
    let page = until_status(&at, "/", 503).await;
    assert!(page.contains("Cannot tell") && page.contains("may be out of date"), "{page}");
    db.sql("alter view v_elsewhere rename to v_governance_summary; select gov_handoff.gov_finding_resolve('slot_lost:x', 'done')").await;
    shows("ok", "Ok").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_names_and_missing_tokens_see_nothing() {
    let db = active().await;
    let (mut named_daemon, at) = listening(&db, &[("GOV_HANDOFF_LISTEN_HOSTS", "gov.example.org")]).await;
    let named = async |path: &str, host: &str| {
        ask_with(&at, &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")).await
    };
    for path in ["/", "/api/status", "/metrics", "/livez", "/nowhere"] {
        let page = named(path, "evil.example").await;
        assert!(page.status == 421 && !page.body.contains("gov_handoff"), "{path}: {}", page.body);
    }
    for host in ["localhost", "gov.example.org", "[::1]:9642"] {
        assert_eq!(named("/", host).await.status, 200, "{host}");
    }
    // The next daemon captures only after this one has given the lease back.
    assert_eq!(named_daemon.sigterm().await, 0, "{}", named_daemon.log());
    let (_guarded, at) = listening(&db, &[("GOV_HANDOFF_LISTEN_TOKEN", "0123456789abcdef-secret")]).await;
    let with = async |path: &str, word: &str| {
        ask_with(&at, &format!("GET {path} HTTP/1.1\r\nHost: x.example\r\n{word}Connection: close\r\n\r\n"))
            .await
    };
    for path in ["/", "/api/status", "/metrics", "/nowhere"] {
        for word in [
            "",
            "Authorization: Bearer 0123456789abcdef-secreT\r\n",
            "Cookie: token=0123456789abcdef-secret\r\n",
        ] {
            let page = with(path, word).await;
            assert!(
                page.status == 401 && page.head.contains("www-authenticate: bearer"),
                "{path}: {}",
                page.head
            );
        }
    }
    let shown = "Authorization: Bearer 0123456789abcdef-secret\r\n";
    assert_eq!(with("/api/status", shown).await.status, 200);
    assert_eq!(with("/livez", "").await.body, "ok\n");
    assert!(with("/livez", shown).await.body.ends_with("loops turn\n"));
    for path in ["/readyz", "/healthz"] {
        let page = with(path, "").await;
        assert!(!page.body.contains("lease"), "{path}: {}", page.body);
    }
    // Neither the settings nor the log show the secret.
    let shown = crate::support::cli_with(
        &db.url,
        &["config"],
        &[("GOV_HANDOFF_LISTEN_TOKEN", "0123456789abcdef-secret")],
    )
    .await;
    assert!(
        !shown.out.contains("abcdef-secret") && !_guarded.log().contains("abcdef-secret"),
        "{}",
        shown.out
    );
    let weak =
        crate::support::cli_with(&db.url, &["config"], &[("GOV_HANDOFF_LISTEN_TOKEN", "hunter2")]).await;
    assert!(weak.code == 2 && !weak.err.contains("hunter2"), "{}", weak.err);
}

/// Tables that grow with the rows of the sources, the groups and the jobs.
const RAW: &str = "'event_outbox', 'event_feed', 'event_pending', 'birth_registry', 'registry_changelog', 'gov_candidate_group', \
                   'gov_candidate_state', 'job_queue', 'job_ready', 'job_transition', 'job_running', 'gov_certificate_log'";

/// Rows that statements of other sessions have read of the raw tables so far, by scans and by indexes.
async fn read_so_far(db: &Database) -> i64 {
    let sum = format!(
        "select (select coalesce(sum(seq_tup_read), 0) from pg_stat_user_tables where relname in ({RAW}))::bigint \
              + (select coalesce(sum(idx_tup_read), 0) from pg_stat_user_indexes where relname in ({RAW}))::bigint"
    );
    db.sql("select pg_stat_clear_snapshot()").await;
    db.number(&sum).await
}

/// How many rows of the raw tables one look reads. Its session is gone when this returns, and so its counts are in.
async fn one_look(db: &Database) -> i64 {
    let before = read_so_far(db).await;
    let layer = gov_handoff::config::Layer::from(|name| (name == "database_url").then(|| db.url.clone()));
    let config = gov_handoff::config::Config::load(layer, None, gov_handoff::config::Layer::default())
        .expect("settings");
    let session = connect::open_observer(&config.target, "gov-handoff look").await.expect("a session");
    session.overview(&config.worker, &config.slot, config.audit_every).await.expect("a look");
    drop(session);
    db.until("select not exists (select from pg_stat_activity where datname = current_database() and application_name like 'gov-handoff look%')").await;
    read_so_far(db).await - before
}

const GROWN: &str = "
set session_replication_role = replica;
insert into event_outbox (id, event_domain, event_type, event_stream, event_severity, canonical_address, actor_ref, source_system, event_subject_table, event_subject_ref)
select gen_random_uuid(), 'governance', 'governance.handoff.object_born', 'birth', 'info', 'x', 'x', 'x', 't', gen_random_uuid() from generate_series(1, 20000);
insert into event_feed (pos, event_id, event_domain, event_type, event_stream, actor_ref)
select $N + row_number() over (), id, event_domain, event_type, event_stream, actor_ref from event_outbox o where not exists (select from event_feed f where f.event_id = o.id);
insert into gov_candidate_group (group_key, dirty) select 'g' || $N + g, true from generate_series(1, 20000) g;
insert into job_lane (job_kind, priority) values ('k', 0) on conflict do nothing;
insert into job_ready (lane_id, job_id) select (select min(lane_id) from job_lane), gen_random_uuid() from generate_series(1, 20000) g;
insert into event_read_mark (actor_ref, event_domain, event_stream, through) values ('r', 'governance', 'birth', 0) on conflict do nothing;
reset session_replication_role";

#[tokio::test(flavor = "multi_thread")]
async fn a_look_reads_no_more_however_much_there_is() {
    let db = active().await;
    let vacuum = [
        "vacuum analyze event_outbox",
        "vacuum analyze event_feed",
        "vacuum analyze gov_candidate_group",
        "vacuum analyze job_ready",
    ];
    let grown = async |n: &str| {
        db.sql(&GROWN.replace("$N", n)).await;
        for statement in vacuum {
            db.sql(statement).await;
        }
        one_look(&db).await
    };
    let (once, thrice) = (grown("0").await, {
        db.sql(&GROWN.replace("$N", "100000")).await;
        grown("200000").await
    });
    // Each count stops: at ten thousand for groups and for a lane, at a thousand for a reader.
    assert!(once > 10_000 && once < 40_000, "{once} rows of the raw tables");
    assert!(thrice <= once + once / 10, "{once} rows, then {thrice}");
    // No plan has to scan a whole table that grows. A table that is empty here, as job_queue is, would be scanned by choice.
    db.sql("set enable_seqscan = off").await;
    for (name, statement) in STATEMENTS {
        let plan = db
            .texts(&format!("explain (costs off) {}", statement.replace("$1", "'gov_handoff_intake'")))
            .await
            .join("\n");
        for table in RAW.split(", ").map(|t| t.trim_matches('\'')) {
            assert!(!plan.contains(&format!("Seq Scan on {table}")), "{name} scans {table}:\n{plan}");
        }
    }
}
