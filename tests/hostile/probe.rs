//! Birth's probe: a birth every 100 ms. While one waits, a second session asks whether a session of ours stands in the chain
//! of those that it waits for. Nobody of ours may do so for longer than a second.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio_postgres::{Client, NoTls};

const EVERY: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(1);

/// Everybody of ours whom the probe waits for, however indirectly.
const CHAIN: &str = "
    with recursive chain (pid) as (
        select pid from pg_stat_activity where application_name = 'hostile probe' and state = 'active'
        union
        select unnest(pg_blocking_pids(c.pid)) from chain c)
    select a.pid, format('%s, %s for %s: %s', a.application_name, a.state, clock_timestamp() - a.xact_start, left(a.query, 200))
      from chain join pg_stat_activity a using (pid)
     where a.application_name like 'gov-handoff%'
     order by a.xact_start limit 1";

#[derive(Default)]
pub struct Measured {
    pub births: u64,
    pub slowest: Duration,
    /// Inserts that took longer than a second, whoever was to blame.
    pub slow: u64,
    /// Who of ours blocked Birth for longer than a second.
    pub blame: Vec<String>,
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
    while !stop.load(Ordering::Relaxed) {
        if session.as_ref().is_none_or(Client::is_closed) {
            session = open(&url, "hostile probe").await;
        }
        if let Some(client) = &session {
            let began = Instant::now();
            let birth = "insert into birth_registry (entity_code, collection_name) values ('probe', 'c1') on conflict do nothing";
            let born = client.batch_execute(birth).await.is_ok();
            let took = began.elapsed();
            let mut measured = measured.lock().unwrap_or_else(PoisonError::into_inner);
            if born {
                measured.births += 1;
                measured.slowest = measured.slowest.max(took);
                measured.slow += u64::from(took > LONGEST);
            }
        }
        tokio::time::sleep(EVERY).await;
    }
}

async fn sample(url: String, stop: Arc<AtomicBool>, measured: Arc<Mutex<Measured>>) {
    let mut session: Option<Client> = None;
    // Since when a session of ours stands in the way without a break.
    let mut since: Option<(i32, Instant)> = None;
    while !stop.load(Ordering::Relaxed) {
        if session.as_ref().is_none_or(Client::is_closed) {
            session = open(&url, "hostile sampler").await;
        }
        let seen = match &session {
            Some(client) => client.query_opt(CHAIN, &[]).await.ok().flatten(),
            None => None,
        };
        since = match (seen, since) {
            (None, _) => None,
            (Some(row), Some((pid, at))) if pid == row.get::<_, i32>(0) => {
                if at.elapsed() > LONGEST {
                    let told = format!("{:.1?}: {}", at.elapsed(), row.get::<_, String>(1));
                    measured.lock().unwrap_or_else(PoisonError::into_inner).blame.push(told);
                }
                Some((pid, at))
            }
            (Some(row), _) => Some((row.get(0), Instant::now())),
        };
        tokio::time::sleep(EVERY / 2).await;
    }
}
