//! Requests that no client of good will would send. Whatever comes in, nothing in the database changes, the process stays up, and the
//! next honest request is answered.

use std::time::Duration;

use crate::metrics::ask;
use crate::page::listening;
use crate::support::{Random, active, seed};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Pieces of which requests are made: methods, targets, versions, headers and breaks, right and wrong.
const PIECES: [&str; 44] = [
    "GET ",
    "HEAD ",
    "POST ",
    "DELETE ",
    "OPTIONS ",
    "CONNECT ",
    "TRACE ",
    "\u{1}",
    "G",
    " ",
    "/",
    "/api/status",
    "/metrics",
    "/livez",
    "/readyz",
    "/../../etc/passwd",
    "/%2e%2e/%00",
    "/api/status?x=';drop table event_outbox;--",
    "*",
    "http://evil.example/",
    "//",
    "?",
    "#",
    "%ff%fe",
    " HTTP/1.1",
    " HTTP/1.0",
    " HTTP/9.9",
    "\r\n",
    "\n",
    "\r\n\r\n",
    "Host: localhost",
    "Host: ",
    "Host: evil.example",
    "Content-Length: 99999999999999999999",
    "Content-Length: -1",
    "Content-Length: 5",
    "Transfer-Encoding: chunked",
    "Connection: upgrade\r\nUpgrade: h2c",
    "Expect: 100-continue",
    "Authorization: Basic ====",
    "Authorization: Bearer \u{80}",
    "Range: bytes=0-",
    "0\r\n\r\n",
    "ffffffffffffffff\r\n",
];

/// One request: pieces in a random order, sometimes cut, sometimes very long, sometimes mere noise.
fn request(random: &mut Random) -> Vec<u8> {
    let mut out = Vec::new();
    if random.percent(60) {
        out.extend(b"GET / HTTP/1.1\r\nHost: localhost\r\n");
    }
    for _ in 0..random.below(12) {
        if random.percent(90) {
            out.extend(random.pick(&PIECES).as_bytes());
        } else {
            out.extend((0..random.below(300)).map(|_| u8::try_from(random.below(256)).expect("a byte")));
        }
    }
    if random.percent(5) {
        out.extend(std::iter::repeat_n(b'a', 100_000));
    }
    if random.percent(60) {
        out.extend(b"\r\n\r\n");
    }
    out
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_changes_anything_or_brings_the_process_down() {
    let db = active().await;
    let (mut daemon, at) = listening(&db, &[]).await;
    db.sql("select gov_handoff.gov_finding_raise('row_replaced', 'row_replaced:x', 'high')").await;
    // What a request could change. The daemon's own ticks and certificates are not among it.
    let state = "select md5(string_agg(t::text, ',' order by t::text)) from (
        select 'o' || count(*) from event_outbox where event_type not in ('governance.handoff.certified', 'governance.handoff.heartbeat')
        union all select 'p' || count(*) from event_pending
        union all select 'i' || coalesce_key || coalesce(resolution, '') from system_issues where issue_kind = 'row_replaced'
        union all select 'd' || count(*) from iu_route_dead_letter union all select 'j' || count(*) from job_queue
        union all select 'c' || key || value from dot_config union all select 's' || source_name from gov_worker_cursor
        union all select 'w' || worker_name || paused from gov_worker_control) as t (t)";
    let before = db.text(state).await;
    let seed = seed();
    let mut random = Random::new(seed);
    let mut answered = 0;
    for round in 0..40 {
        let asked = (0..20).map(|_| request(&mut random)).collect::<Vec<_>>().into_iter().map(|request| {
            let at = at.clone();
            async move {
                let Ok(mut stream) = TcpStream::connect(&at).await else { return 0 };
                // The other side may hang up in the middle: that is an answer, too.
                let _ = stream.write_all(&request).await;
                let _ = stream.shutdown().await;
                let mut answer = Vec::new();
                let read =
                    tokio::time::timeout(Duration::from_secs(12), stream.read_to_end(&mut answer)).await;
                assert!(read.is_ok(), "seed {seed}: no answer to {:?}", String::from_utf8_lossy(&request));
                usize::from(answer.starts_with(b"HTTP/1."))
            }
        });
        answered += futures_util::future::join_all(asked).await.into_iter().sum::<usize>();
        if round % 10 == 9 {
            assert_eq!(ask(&at, "GET", "/livez").await.status, 200, "seed {seed}");
        }
    }
    assert!(answered > 100, "seed {seed}: only {answered} of 800 were answered");
    assert_eq!(ask(&at, "GET", "/").await.status, 200, "seed {seed}");
    assert_eq!(db.text(state).await, before, "seed {seed}");
    let log = daemon.log();
    assert!(!log.contains("panicked") && !log.contains("no longer"), "seed {seed}: {log}");
    assert_eq!(daemon.sigterm().await, 0, "seed {seed}: {}", daemon.log());
}
