//! Birth's probe: a birth every 100 ms. While one waits, a second session asks whether a session of ours stands in the chain
//! of those that it waits for. All of ours together may do so for no longer than a second for each birth.
//!
//! A daemon that is stopped, or cut off, cannot give way; then the server has to end its session, within a few seconds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio_postgres::{Client, NoTls};

use crate::support::{done, fresh_database};

const EVERY: Duration = Duration::from_millis(100);
/// How long all of ours may stand in a birth's way.
const LONGEST: Duration = Duration::from_secs(1);
/// The same while a fault keeps the daemon from doing anything: what the server bounds, and a second.
const STOPPED: Duration = Duration::from_secs(6);

/// The probe's birth that waits, since when, and everybody of ours whom it waits for, however indirectly.
const CHAIN: &str = "
    with recursive chain (pid) as (
        select pid from pg_stat_activity where application_name = 'hostile probe' and state = 'active' and datname = current_database()
        union
        select unnest(pg_blocking_pids(c.pid)) from chain c)
    select p.query_start::text,
           (select string_agg(format('%s, %s for %s: %s', a.application_name, a.state, clock_timestamp() - a.xact_start, left(a.query, 200)), ' | ')
              from chain join pg_stat_activity a using (pid) where a.application_name like 'gov-handoff%')
      from pg_stat_activity p where p.application_name = 'hostile probe' and p.state = 'active' and p.wait_event_type = 'Lock'
       and p.datname = current_database()";

/// A birth that ours stood in the way of.
pub struct Blocked {
    pub began: SystemTime,
    pub time: Duration,
    pub who: String,
}

#[derive(Default)]
pub struct Measured {
    pub births: u64,
    pub slowest: Duration,
    /// Inserts that took longer than a second, for whatever reason.
    pub slow: u64,
    pub blocked: Vec<Blocked>,
    /// When the machine was too slow for an insert or a pause to say anything about the daemon.
    pub slow_machine: Vec<(SystemTime, SystemTime)>,
}

impl Measured {
    /// Whom of ours Birth had to wait for too long. `faults`: when something failed.
    pub fn blame(&self, faults: &[(SystemTime, SystemTime)]) -> Vec<String> {
        let too_long = |b: &&Blocked| {
            let ended = b.began + b.time;
            let stopped = faults.iter().any(|(from, to)| b.began <= *to && ended >= *from);
            b.time > if stopped { STOPPED } else { LONGEST }
        };
        self.blocked.iter().filter(too_long).map(|b| format!("{:.1?}: {}", b.time, b.who)).collect()
    }
}

pub struct Probe {
    stop: Arc<AtomicBool>,
    tasks: [tokio::task::JoinHandle<()>; 2],
    measured: Arc<Mutex<Measured>>,
}

impl Probe {
    pub fn start(url: &str) -> Self {
        let (stop, measured) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Measured::default())));
        let tasks = [
            tokio::spawn(bear(url.to_owned(), Arc::clone(&stop), Arc::clone(&measured))),
            tokio::spawn(sample(url.to_owned(), Arc::clone(&stop), Arc::clone(&measured))),
        ];
        Self { stop, tasks, measured }
    }

    pub async fn end(self) -> Measured {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.expect("the probe does not panic");
        }
        std::mem::take(&mut *self.measured.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

async fn open(url: &str, name: &str) -> Option<Client> {
    let mut config: tokio_postgres::Config = url.parse().ok()?;
    config.application_name(name);
    let (client, connection) = config.connect(NoTls).await.ok()?;
    tokio::spawn(connection);
    Some(client)
}

async fn bear(url: String, stop: Arc<AtomicBool>, measured: Arc<Mutex<Measured>>) {
    let mut session: Option<Client> = None;
    let mut n = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        if session.as_ref().is_none_or(Client::is_closed) {
            session = open(&url, "hostile probe").await;
        }
        if let Some(client) = &session {
            let (began, since) = (Instant::now(), SystemTime::now());
            n += 1;
            let birth = format!(
                "insert into birth_registry (entity_code, collection_name) values ('probe-{n}', 'c1')"
            );
            let born = client.batch_execute(&birth).await.is_ok();
            let took = began.elapsed();
            let mut measured = measured.lock().unwrap_or_else(PoisonError::into_inner);
            if born {
                measured.births += 1;
                measured.slowest = measured.slowest.max(took);
                measured.slow += u64::from(took > LONGEST);
            }
            if took > EVERY * 4 {
                measured.slow_machine.push((since, SystemTime::now()));
            }
        }
        let (began, since) = (Instant::now(), SystemTime::now());
        tokio::time::sleep(EVERY).await;
        if began.elapsed() > EVERY * 2 {
            let mut measured = measured.lock().unwrap_or_else(PoisonError::into_inner);
            measured.slow_machine.push((since, SystemTime::now()));
        }
    }
}

/// The birth that waited at the last look.
struct Waiting {
    birth: String,
    /// Its place among those that were blocked.
    entry: Option<usize>,
    /// When that look was, if somebody of ours was in the way.
    blocked_at: Option<Instant>,
}

/// Adds up, for each birth, how long any of ours stood in its way. A look that the server did not answer ends nothing.
async fn sample(url: String, stop: Arc<AtomicBool>, measured: Arc<Mutex<Measured>>) {
    let mut session: Option<Client> = None;
    let mut waiting: Option<Waiting> = None;
    while !stop.load(Ordering::Relaxed) {
        if session.as_ref().is_none_or(Client::is_closed) {
            session = open(&url, "hostile sampler").await;
        }
        if let Some(client) = &session
            && let Ok(seen) = client.query_opt(CHAIN, &[]).await
        {
            let now = Instant::now();
            let before = waiting.take();
            waiting = seen.map(|row| {
                let (birth, who): (String, Option<String>) = (row.get(0), row.get(1));
                let same = before.filter(|w| w.birth == birth);
                let mut now_waiting = same.unwrap_or(Waiting { birth, entry: None, blocked_at: None });
                if let Some(who) = &who {
                    let blocked = &mut measured.lock().unwrap_or_else(PoisonError::into_inner).blocked;
                    let entry = *now_waiting.entry.get_or_insert_with(|| {
                        let began = SystemTime::now();
                        blocked.push(Blocked { began, time: Duration::ZERO, who: String::new() });
                        blocked.len() - 1
                    });
                    blocked[entry].time += now_waiting.blocked_at.map_or(Duration::ZERO, |at| now - at);
                    blocked[entry].who.clone_from(who);
                }
                now_waiting.blocked_at = who.map(|_| now);
                now_waiting
            });
        }
        tokio::time::sleep(EVERY / 2).await;
    }
}

#[tokio::test]
async fn the_probe_tells_ours_from_others_and_adds_up_what_ours_block() {
    let database = fresh_database(None).await;
    done(&database.url, &["migrate"]).await;
    for (name, blamed) in [("gov-handoff reader", true), ("somebody else", false)] {
        // A migration waits for the reader, and every birth for the migration.
        let reader = open(&database.url, name).await.expect("a session");
        let migration = open(&database.url, "a migration").await.expect("a session");
        let read = "begin; lock table birth_registry in access share mode";
        reader.batch_execute(read).await.expect("a lock");
        let migrating = tokio::spawn(async move {
            let migrate = "begin; lock table birth_registry in access exclusive mode; rollback";
            migration.batch_execute(migrate).await
        });
        let waits = "select exists (select from pg_stat_activity where application_name = 'a migration' and wait_event_type = 'Lock' \
                     and datname = current_database())";
        database.until(waits).await;
        let probe = Probe::start(&database.url);
        // The fault itself: the reader blocks for longer than it may.
        tokio::time::sleep(LONGEST + EVERY * 6).await;
        reader.batch_execute("rollback").await.expect("released");
        migrating.await.expect("no panic").expect("migrated");
        // The birth that waited is over, and some more are measured.
        let births = "select count(*) from birth_registry";
        let before = database.number(births).await;
        database.until(&format!("select ({births}) > {before} + 2")).await;
        let measured = probe.end().await;
        assert!(measured.births > 0, "{name}");
        assert_eq!(measured.blame(&[]).len(), usize::from(blamed), "{name}");
        let always = (SystemTime::UNIX_EPOCH, SystemTime::now());
        assert!(measured.blame(&[always]).is_empty(), "{name}: a stopped daemon is given longer");
    }
}
