//! What a service manager hears over a real unix socket: ready when the daemon holds its lease or stands by, alive while its
//! loops turn, stopping when it was asked to end.

use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gov_handoff::embedded::StopMode;

use crate::support::{Daemon, blocking, done, migrated, options, private_cluster};

/// Longer than any message of a daemon that turns keeps a manager waiting: its watchdog is `WATCHDOG`, and it tells four times in it.
const SILENCE: Duration = Duration::from_secs(8);
const WATCHDOG: &str = "4000000";
/// How long a test waits for what it expects.
const PATIENCE: Duration = Duration::from_secs(60);

/// The manager's end of the socket, in the abstract namespace: it leaves no file behind.
struct Manager {
    socket: UnixDatagram,
    name: String,
}

impl Manager {
    fn new(test: &str) -> Self {
        let name = format!("gov-handoff-{}-{test}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let socket = UnixDatagram::bind_addr(&address).expect("a socket");
        socket.set_read_timeout(Some(SILENCE)).expect("a timeout");
        Self { socket, name: format!("@{name}") }
    }

    fn start(&self, url: &str, more: &[(&str, &str)]) -> Daemon {
        let told = [("NOTIFY_SOCKET", self.name.as_str()), ("WATCHDOG_USEC", WATCHDOG)];
        Daemon::eager(url, "poll", &[&told[..], more].concat())
    }

    /// The next message; none after a silence.
    fn next(&self) -> Option<String> {
        let mut buffer = [0; 4096];
        match self.socket.recv(&mut buffer) {
            Ok(length) => Some(String::from_utf8_lossy(&buffer[..length]).into_owned()),
            Err(e) if e.kind() == ErrorKind::WouldBlock => None,
            Err(e) => panic!("{e}"),
        }
    }

    /// All messages up to the first that says this.
    fn until(&self, says: &str) -> Vec<String> {
        let (begun, mut heard) = (Instant::now(), Vec::new());
        while begun.elapsed() < PATIENCE {
            heard.extend(self.next());
            if heard.last().is_some_and(|message| message.lines().any(|line| line == says)) {
                return heard;
            }
        }
        panic!("never {says}: {heard:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_ready_when_it_holds_or_stands_by_alive_while_it_turns_and_says_that_it_stops() {
    let db = migrated().await;
    for (test, standby) in [("holds", false), ("stands-by", true)] {
        let writer = if standby { Some(db.daemon("poll", &[])) } else { None };
        if let Some(writer) = &writer {
            writer.captures(&db.url, "poll").await;
        }
        let manager = Manager::new(test);
        let mut daemon = manager.start(&db.url, &[]);
        let heard = blocking(move || {
            let mut heard = manager.until("READY=1");
            for _ in 0..3 {
                heard.extend(manager.until("WATCHDOG=1"));
            }
            (heard, manager)
        });
        let (heard, manager) = heard.await;
        assert_eq!(heard.iter().filter(|m| m.contains("READY=1")).count(), 1, "{heard:?}");
        daemon.signal("TERM");
        let heard = blocking(move || manager.until("STOPPING=1")).await;
        assert!(!heard.is_empty());
        assert!(daemon.end("asked to end").await.success(), "{}", daemon.log());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_goes_away_is_no_reason_to_start_the_daemon_again() {
    let cluster = Arc::new(private_cluster(options()).await);
    cluster.create_database("away", None).await.expect("a database");
    let url = cluster.url("away");
    done(&url, &["migrate"]).await;
    let manager = Manager::new("away");
    let mut daemon = manager.start(&url, &[]);
    let (ready, manager) = blocking(move || (manager.until("READY=1"), manager)).await;
    assert!(ready[0].contains("waits for the database"), "{ready:?}");
    let server = cluster.clone();
    blocking(move || server.stop(StopMode::Fast)).await.expect("it stops");
    daemon.says("cannot connect").await;
    let (heard, _manager) = blocking(move || {
        let heard: Vec<_> = (0..8).flat_map(|_| manager.until("WATCHDOG=1")).collect();
        (heard, manager)
    })
    .await;
    assert!(heard.iter().all(|message| message == "WATCHDOG=1"), "{heard:?}");
    assert!(daemon.has_ended().is_none(), "{}", daemon.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_finds_no_database_when_it_starts_ends_and_was_never_ready() {
    let manager = Manager::new("nowhere");
    let mut daemon = manager.start("postgres://u@127.0.0.1:1/d", &[]);
    assert_eq!(daemon.end("no database").await.code(), Some(2), "{}", daemon.log());
    let heard = blocking(move || std::iter::from_fn(|| manager.next()).collect::<Vec<_>>()).await;
    assert!(!heard.is_empty() && heard.iter().all(|message| !message.contains("READY")), "{heard:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_that_hangs_ends_the_watchdogs_messages() {
    let db = migrated().await;
    let manager = Manager::new("hangs");
    let stalls = [("GOV_HANDOFF_FAILPOINT", "table lane:30:stall"), ("GOV_HANDOFF_TEST_PATIENCE", "4s")];
    let daemon = manager.start(&db.url, &stalls);
    let silent = blocking(move || {
        manager.until("READY=1");
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if manager.next().is_none() {
                return true;
            }
        }
        false
    });
    assert!(silent.await, "the manager was told that all is well: {}", daemon.log());
}
