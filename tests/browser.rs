//! The page in headless Chromium, by chromedriver's plain HTTP: what an operator sees of a running system. Screenshots are kept in
//! `target/pictures`. Where no browser is installed the test is left out, unless GOV_HANDOFF_REQUIRE_BROWSER is set.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::page::{POPULATED, listening, until_status_is};
use crate::support::{active, within};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// A chromedriver with one window. Dropping it ends both.
struct Browser {
    driver: Child,
    port: u16,
    session: String,
    profile: PathBuf,
}

impl Browser {
    /// `None` if there is none on this machine.
    async fn open(dark: bool) -> Option<Self> {
        if Command::new("chromedriver").arg("--version").output().is_err() {
            assert!(
                std::env::var_os("GOV_HANDOFF_REQUIRE_BROWSER").is_none(),
                "chromedriver is not installed"
            );
            eprintln!(
                "SKIPPED: no chromedriver (Debian: chromium, chromium-driver); the page was not seen in a browser"
            );
            return None;
        }
        let port =
            std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port();
        let profile = std::env::temp_dir().join(format!("gov-handoff-browser-{}-{port}", std::process::id()));
        let mut command = Command::new("chromedriver");
        command.arg(format!("--port={port}")).stdout(Stdio::null()).stderr(Stdio::null());
        let driver = command.spawn().expect("chromedriver starts");
        let mut browser = Self { driver, port, session: String::new(), profile };
        within(Duration::from_secs(30), "chromedriver is ready", async || {
            match browser.call("GET", "/status", &Value::Null).await {
                Ok(status) if status["ready"] == true => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
        let mut arguments: Vec<String> = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
            "--force-device-scale-factor=1",
        ]
        .map(str::to_owned)
        .to_vec();
        arguments.push(format!("--user-data-dir={}", browser.profile.display()));
        if dark {
            arguments.push("--blink-settings=preferredColorScheme=0".to_owned());
        }
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": { "args": arguments }, "goog:loggingPrefs": { "browser": "ALL" } } } });
        let opened =
            browser.call("POST", "/session", &wanted).await.unwrap_or_else(|e| panic!("no browser: {e}"));
        browser.session = format!("/session/{}", opened["sessionId"].as_str().expect("a session"));
        Some(browser)
    }

    /// Calls the driver; gives the value of its answer.
    async fn call(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.port,
            body.len()
        );
        let answer = tokio::time::timeout(Duration::from_secs(30), self.exchange(&request))
            .await
            .map_err(|_| format!("{method} {path}: no answer within 30 s"))?
            .map_err(|e| e.to_string())?;
        let value: Value = serde_json::from_slice(&answer)
            .map_err(|e| format!("{e}: {}", String::from_utf8_lossy(&answer)))?;
        match &value["value"]["error"] {
            Value::String(error) => Err(format!("{error}: {}", value["value"]["message"])),
            _ => Ok(value["value"].clone()),
        }
    }

    /// The body of the answer. The driver does not close the connection, so the body ends where its length says.
    async fn exchange(&self, request: &str) -> std::io::Result<Vec<u8>> {
        let mut stream = BufReader::new(TcpStream::connect(("127.0.0.1", self.port)).await?);
        stream.write_all(request.as_bytes()).await?;
        let (mut length, mut line) = (0, String::new());
        while line != "\r\n" {
            line.clear();
            if stream.read_line(&mut line).await? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            if let Some(said) = line.to_lowercase().strip_prefix("content-length:") {
                length = said.trim().parse().expect("a length");
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        Ok(body)
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let path = format!("{}{path}", self.session);
        self.call("POST", &path, &body).await.unwrap_or_else(|e| panic!("{path}: {e}"))
    }

    async fn size(&self, width: u32, height: u32) {
        self.post(
            "/goog/cdp/execute",
            json!({ "cmd": "Emulation.setDeviceMetricsOverride", "params": {
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500 } }),
        )
        .await;
    }

    async fn script(&self, script: &str) -> Value {
        self.post("/execute/sync", json!({ "script": script, "args": [] })).await
    }

    async fn text(&self) -> String {
        self.script("return document.body.innerText").await.as_str().unwrap_or_default().to_owned()
    }

    /// Waits until the page, as it renews itself, shows all of these words.
    async fn shows(&self, words: &[&str]) {
        within(Duration::from_secs(60), &words.join(", "), async || {
            let text = self.text().await;
            let missing: Vec<_> = words.iter().filter(|word| !text.contains(**word)).collect();
            if missing.is_empty() { Ok(()) } else { Err(format!("{missing:?} not in\n{text}")) }
        })
        .await;
    }

    /// Keeps a picture of the whole page.
    async fn picture(&self, name: &str, whole: bool) -> PathBuf {
        let shot = self
            .post(
                "/goog/cdp/execute",
                json!({ "cmd": "Page.captureScreenshot", "params": { "captureBeyondViewport": whole } }),
            )
            .await;
        let image = from_base64(shot["data"].as_str().expect("a picture"));
        assert!(image.starts_with(b"\x89PNG"));
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/pictures");
        std::fs::create_dir_all(&folder).expect("a folder for pictures");
        let path = folder.join(format!("{name}.png"));
        std::fs::write(&path, image).expect("the picture is kept");
        path
    }

    /// What the browser complained about.
    async fn complaints(&self) -> Vec<Value> {
        let log = self.post("/se/log", json!({ "type": "browser" })).await;
        log.as_array().cloned().unwrap_or_default()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The end of its session ends the browser; the driver alone would leave it behind.
        if let Ok(mut stream) = std::net::TcpStream::connect(("127.0.0.1", self.port)) {
            use std::io::{Read, Write};
            let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
            let _ = write!(
                stream,
                "DELETE {} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n",
                self.session
            );
            let _ = stream.read(&mut [0; 1]);
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
        let _ = std::fs::remove_dir_all(&self.profile);
    }
}

fn from_base64(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut out, mut bits, mut held) = (Vec::new(), 0_u32, 0);
    for byte in text.bytes().filter(|byte| *byte != b'=') {
        let value = ALPHABET.iter().position(|known| *known == byte).expect("base64");
        bits = (bits << 6) | u32::try_from(value).expect("six bits");
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push(u8::try_from((bits >> held) & 0xff).expect("a byte"));
        }
    }
    out
}

/// Takes away every way to scroll sideways, and says where one is.
const TOO_WIDE: &str = "const w = document.documentElement.clientWidth; return [...document.querySelectorAll('body *')]
    .filter(e => e.getBoundingClientRect().right > w + 1 && !e.closest('.sr, caption, thead, svg')).slice(0, 5).map(e => e.outerHTML.slice(0, 200))";

#[tokio::test(flavor = "multi_thread")]
async fn the_page_shows_what_happens_while_it_is_looked_at() {
    let Some(browser) = Browser::open(false).await else { return };
    let db = active().await;
    let (mut daemon, at) = listening(&db, &[("GOV_HANDOFF_MODE", "poll")]).await;
    db.births("b", 5).await;
    until_status_is(&at, "it is proven", |s| {
        s["verdict"]["state"] == "ok" && s["sources"][0]["signals"].as_i64() > Some(0)
    })
    .await;
    browser.size(1280, 900).await;
    browser.post("/url", json!({ "url": format!("http://{at}/") })).await;
    browser.shows(&["Ok", "Everything committed before", "birth_registry", "No dead letter is open."]).await;
    // Without leaving the page: a dead letter, a repaired miss, an overdue job, a stalled worker, an hostile key.
    db.sql(POPULATED).await;
    db.sql("select gov_handoff.gov_finding_raise('handoff_missed', 'handoff_missed:birth_registry', 'high'); \
            select gov_handoff.gov_finding_raise('job_overdue', 'job_overdue:verify_mark', 'warning'); \
            insert into queue_heartbeat (executor_name, executor_kind, last_tick_at, lease_owner, metadata) \
            values ('gov_candidate_scan', 'external_worker', now() - interval '1 hour', 'gone', '{\"term\": 3, \"ttl_ms\": 15000}') \
            on conflict (executor_name) do update set last_tick_at = excluded.last_tick_at, lease_owner = 'gone', metadata = excluded.metadata")
        .await;
    browser
        .shows(&[
            "Wrong",
            "<script>alert(1)</script>",
            "handoff_missed:birth_registry",
            "job_overdue:verify_mark",
            "silent",
            "hermes_batch_a",
            "Copy",
        ])
        .await;
    browser.picture("wrong", true).await;
    assert_eq!(browser.script(TOO_WIDE).await, json!([]));
    assert_eq!(browser.script("return document.getElementById('announce').textContent").await, "Wrong");

    // A phone: nothing to scroll sideways.
    browser.size(390, 844).await;
    browser.picture("phone", true).await;
    assert_eq!(browser.script(TOO_WIDE).await, json!([]));
    let scroll = "return document.documentElement.scrollWidth <= document.documentElement.clientWidth";
    assert_eq!(browser.script(scroll).await, true);

    // By keyboard: the first stop is the skip link, and it is seen there.
    browser.size(1280, 900).await;
    browser.script("document.activeElement?.blur(); window.scrollTo(0, 0)").await;
    browser
        .post(
            "/actions",
            json!({ "actions": [{ "type": "key", "id": "keys", "actions": [
        { "type": "keyDown", "value": "\u{e004}" }, { "type": "keyUp", "value": "\u{e004}" }] }] }),
        )
        .await;
    let first = "const e = document.activeElement; return [e.className, e.getBoundingClientRect().top >= 0]";
    assert_eq!(browser.script(first).await, json!(["skip", true]));

    // Every section has a heading, every table a caption and headed columns.
    let bare = "return [...document.querySelectorAll('section')].filter(s => !document.getElementById(s.getAttribute('aria-labelledby'))).length
        + [...document.querySelectorAll('table')].filter(t => !t.caption || t.querySelector('thead th:not([scope])')).length
        + [...document.querySelectorAll('svg[role=img]')].filter(s => !s.getAttribute('aria-label')).length";
    assert_eq!(browser.script(bare).await, 0);

    // A change of mode: the daemon is told to stream by its next life.
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
    let again = ["--mode", "auto", "--listen", &at];
    let mut streaming = crate::support::Daemon::start(&db.url, &again, &crate::page::EAGER);
    streaming.captures(&db.url, "stream").await;
    let modes = "return [...document.querySelectorAll('.modes li strong')].map(e => e.textContent)";
    within(Duration::from_secs(60), "the page shows the change of mode", async || {
        let modes = browser.script(modes).await;
        let polled = modes.as_array().is_some_and(|m| m.contains(&json!("poll")));
        if polled && modes[0] == "stream" { Ok(()) } else { Err(modes.to_string()) }
    })
    .await;
    browser.picture("streaming", true).await;
    let wrong: Vec<_> = browser
        .complaints()
        .await
        .into_iter()
        .filter(|entry| {
            // While the daemon was away the page asked for it; that the network failed then is what it should report.
            let message = entry["message"].as_str().unwrap_or_default();
            !message.contains("ERR_CONNECTION_REFUSED")
                && !message.contains("ERR_EMPTY_RESPONSE")
                && !message.contains("ERR_CONNECTION_RESET")
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    assert_eq!(streaming.sigterm().await, 0, "{}", streaming.log());
}
