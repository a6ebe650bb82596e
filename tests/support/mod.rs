//! One PostgreSQL for the whole test process, and a fresh database for each test that asks.
//!
//! The cluster is a static and so never dropped; its guard process clears up when this process ends. Tests
//! that stop or reconfigure a server start a [`Cluster`] of their own instead ([`private_cluster`]).

pub mod adopted;
mod daemon;
mod database;
pub mod fixture;
pub mod process;
mod program;
pub mod sources;

use std::sync::OnceLock;

use gov_handoff::embedded::{Cluster, ClusterOptions};
use tokio_postgres::{Client, NoTls};

pub use daemon::Daemon;
pub use database::{TestDb, fresh_database, migrated, number, text, texts, until};
pub use program::{cli, cli_with, done};

/// What tests start clusters with: no fsync, because no test cuts the power of the machine. Slots and senders
/// for every test that streams at the same time.
pub fn options() -> ClusterOptions {
    ClusterOptions {
        fsync: false,
        max_connections: 300,
        max_wal_senders: 60,
        max_replication_slots: 60,
        ..ClusterOptions::default()
    }
}

/// The shared cluster. Blocks while the first caller starts it; without a PostgreSQL the test fails.
pub fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| Cluster::start(options()).expect("the shared cluster starts"))
}

/// A cluster that this test may stop, kill and restart.
pub async fn private_cluster(options: ClusterOptions) -> Cluster {
    blocking(move || Cluster::start(options)).await.expect("a private cluster starts")
}

/// Runs blocking work, such as starting and stopping servers, beside the async ones.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("blocking work does not panic")
}

/// Connects by any URL; the connection's task ends with the client.
pub async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("connect");
    tokio::spawn(connection);
    client
}
