//! One PostgreSQL for the whole test process, and a fresh database for each test that asks.
//!
//! The cluster is a static and so never dropped; its guard process clears up when this process ends. Tests
//! that stop or reconfigure a server start a [`Cluster`] of their own instead ([`private_cluster`]).

pub mod process;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use gov_handoff::embedded::{Cluster, ClusterOptions};
use tokio_postgres::{Client, NoTls};

/// What tests start clusters with: no fsync, because no test cuts the power of the machine.
pub fn options() -> ClusterOptions {
    ClusterOptions { fsync: false, ..ClusterOptions::default() }
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

/// A database of the shared cluster that no other test uses.
pub struct TestDb {
    pub name: String,
    /// TCP; for the unix socket use `cluster().socket_url(&name)`.
    pub url: String,
    pub client: Client,
}

/// Makes a database, empty or as a copy of `template`. It goes with the cluster.
pub async fn fresh_database(template: Option<&str>) -> TestDb {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let name = format!("test_{}", COUNTER.fetch_add(1, Ordering::Relaxed));
    let cluster = blocking(cluster).await;
    cluster.create_database(&name, template).await.expect("create a test database");
    let url = cluster.url(&name);
    let client = connect(&url).await;
    TestDb { name, url, client }
}
