//! What goes wrong, by plan: the daemon, the slot, the publication, the server, the network. Each fault returns when it is
//! over: the server takes connections, a daemon runs, the proxy forwards.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use gov_handoff::embedded::{Cluster, StopMode};
use tokio_postgres::{Client, NoTls};

use super::proxy::Proxy;
use super::supervisor::Supervisor;
use crate::support::{Random, blocking};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// `kill -9` and a new one.
    Kill,
    /// Asked to end, and a new one.
    Terminate,
    Freeze,
    /// The same to the second instance, which shares the workers with the first one.
    KillSecond,
    TerminateSecond,
    FreezeSecond,
    SlotDropped,
    /// Somebody else has a slot of that name for a while.
    SlotTaken,
    PublicationDropped,
    PublicationNarrowed,
    ServerImmediate,
    ServerKilled,
    ServerRestarted,
    Stall,
    /// Silence, then a reset.
    StallThenReset,
    /// The connections of now are dead and do not say so; new ones work. They are reset in the end.
    Deaf,
    Truncate,
    Reset,
}

const DAEMON: [Fault; 6] = [
    Fault::Kill,
    Fault::Terminate,
    Fault::Freeze,
    Fault::KillSecond,
    Fault::TerminateSecond,
    Fault::FreezeSecond,
];
const SERVER: [Fault; 3] = [Fault::ServerImmediate, Fault::ServerKilled, Fault::ServerRestarted];
const SLOT: [Fault; 4] =
    [Fault::SlotDropped, Fault::SlotTaken, Fault::PublicationDropped, Fault::PublicationNarrowed];
const NETWORK: [Fault; 5] = [Fault::Stall, Fault::StallThenReset, Fault::Deaf, Fault::Truncate, Fault::Reset];

impl Fault {
    /// Of the network, which fails beside everything else.
    pub fn of_network(random: &mut Random) -> Self {
        random.pick(&NETWORK)
    }

    /// Of everything else.
    pub fn of_machines(random: &mut Random, streams: bool) -> Self {
        let kind = random.between(0, if streams { 2 } else { 1 });
        match kind {
            0 => random.pick(&DAEMON),
            1 => random.pick(&SERVER),
            _ => random.pick(&SLOT),
        }
    }

    pub fn any(random: &mut Random, streams: bool) -> Self {
        if random.percent(35) { Self::of_network(random) } else { Self::of_machines(random, streams) }
    }
}

/// Everything a fault can be done to.
pub struct World {
    pub cluster: Arc<Cluster>,
    pub proxy: Proxy,
    /// Runs all workers.
    pub daemon: Arc<Supervisor>,
    /// Runs all workers but the intake.
    pub second: Arc<Supervisor>,
    /// Not through the proxy.
    pub url: String,
    pub slot: String,
    /// When something failed, from the beginning to the end of each fault.
    pub windows: Mutex<Vec<(SystemTime, SystemTime)>>,
}

impl World {
    pub async fn suffer(&self, fault: Fault, random: &mut Random) {
        self.daemon.note(&format!("{fault:?} begins"));
        let began = SystemTime::now();
        let time = Duration::from_millis(random.between(300, 2_500));
        match fault {
            Fault::Kill => with(&self.daemon, Supervisor::kill).await,
            Fault::Terminate => with(&self.daemon, Supervisor::terminate).await,
            Fault::Freeze => with(&self.daemon, |daemon| daemon.freeze(Duration::from_secs(1))).await,
            Fault::KillSecond => with(&self.second, Supervisor::kill).await,
            Fault::TerminateSecond => with(&self.second, Supervisor::terminate).await,
            Fault::FreezeSecond => with(&self.second, |daemon| daemon.freeze(Duration::from_secs(1))).await,
            Fault::SlotDropped => self.drop_slot().await,
            Fault::SlotTaken => self.take_slot(time).await,
            Fault::PublicationDropped => self.ask("drop publication if exists gov_handoff").await,
            Fault::PublicationNarrowed => {
                self.ask("alter publication gov_handoff drop table birth_registry, event_outbox").await;
            }
            Fault::ServerImmediate => self.restart(StopMode::Immediate, time).await,
            Fault::ServerKilled => self.restart(StopMode::Kill, time).await,
            Fault::ServerRestarted => self.restart(StopMode::Fast, time).await,
            Fault::Stall => {
                self.proxy.stall();
                tokio::time::sleep(time).await;
                self.proxy.forward();
            }
            Fault::StallThenReset => {
                self.proxy.stall();
                tokio::time::sleep(time).await;
                self.proxy.reset();
                self.proxy.forward();
            }
            Fault::Deaf => {
                self.proxy.deafen();
                // Sometimes longer than anybody should wait for an answer.
                tokio::time::sleep(time * 3).await;
                self.proxy.reset();
            }
            Fault::Truncate => self.proxy.truncate(),
            Fault::Reset => self.proxy.reset(),
        }
        self.daemon.note(&format!("{fault:?} is over"));
        self.windows.lock().unwrap_or_else(PoisonError::into_inner).push((began, SystemTime::now()));
    }

    pub fn windows(&self) -> Vec<(SystemTime, SystemTime)> {
        self.windows.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn restart(&self, mode: StopMode, time: Duration) {
        let cluster = Arc::clone(&self.cluster);
        blocking(move || {
            cluster.stop(mode).expect("the server stops");
            std::thread::sleep(time / 3);
            if mode == StopMode::Kill {
                end_orphans(&cluster);
            }
            cluster.start_again().expect("the server comes back");
        })
        .await;
    }

    /// Anything that fails because the server is away, or the object is, is as good as done.
    async fn ask(&self, sql: &str) {
        if let Some(client) = self.admin().await {
            let _ = client.batch_execute(sql).await;
        }
    }

    async fn admin(&self) -> Option<Client> {
        let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await.ok()?;
        tokio::spawn(connection);
        Some(client)
    }

    /// Takes it from under whoever holds it; the daemon may be quick to come back, so more than once.
    async fn drop_slot(&self) {
        let Some(client) = self.admin().await else { return };
        let end = "select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = $1 and active_pid is not null";
        let drop =
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = $1";
        let deadline = Instant::now() + Duration::from_secs(2);
        while Instant::now() < deadline {
            let _ = client.query(end, &[&self.slot]).await;
            if client.query(drop, &[&self.slot]).await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn take_slot(&self, time: Duration) {
        let Some(client) = self.admin().await else { return };
        self.drop_slot().await;
        let _ = client.query("select pg_create_physical_replication_slot($1)", &[&self.slot]).await;
        tokio::time::sleep(time).await;
        let physical = "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = $1 and slot_type = 'physical'";
        let _ = client.query(physical, &[&self.slot]).await;
    }
}

async fn with(daemon: &Arc<Supervisor>, act: impl FnOnce(&Supervisor) + Send + 'static) {
    let daemon = Arc::clone(daemon);
    blocking(move || act(&daemon)).await;
}

/// A killed postmaster leaves its children to notice by themselves, which one that is busy may be slow to do; a machine
/// that loses its power leaves none. Those of this cluster work in its data directory.
fn end_orphans(cluster: &Cluster) {
    let Ok(home) = cluster.data_dir().canonicalize() else { return };
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        if std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == home) {
            let kill = format!("kill -9 {} 2>/dev/null", entry.file_name().to_string_lossy());
            let _ = std::process::Command::new("sh").args(["-c", &kill]).status();
        }
    }
}
