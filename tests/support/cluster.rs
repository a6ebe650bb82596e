//! One PostgreSQL for the whole test process, and private ones for tests that stop or reconfigure a server.
//!
//! The shared cluster is a static and so never dropped; its guard process clears up when this process ends.

use std::sync::OnceLock;

use gov_handoff::embedded::{Cluster, ClusterOptions};
use tokio_postgres::{Client, NoTls};

/// The options of every test's cluster. Without fsync, because no test cuts the power of the machine. Slots and senders
/// suffice for every test that streams at the same time.
pub fn options() -> ClusterOptions {
    ClusterOptions {
        fsync: false,
        max_connections: 300,
        max_wal_senders: 60,
        max_replication_slots: 60,
        ..ClusterOptions::default()
    }
}

/// The shared cluster. The call blocks while the first caller starts it; without a PostgreSQL the test fails.
pub fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| Cluster::start(options()).expect("the shared cluster starts"))
}

/// A cluster that this test may stop, kill and restart.
pub async fn private_cluster(options: ClusterOptions) -> Cluster {
    blocking(move || Cluster::start(options)).await.expect("a private cluster starts")
}

/// Runs blocking work, such as starting and stopping servers, beside the async tasks.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("blocking work does not panic")
}

/// Connects by any URL; the connection's task ends with the client.
pub async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("connect");
    tokio::spawn(connection);
    client
}
