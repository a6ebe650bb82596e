//! The server, and databases made ready for a measure.

use crate::support::process::run;
use gov_handoff::embedded::{Cluster, ClusterOptions, Wanted};
use tokio_postgres::{Client, NoTls};

pub struct World {
    cluster: Cluster,
}

impl World {
    pub fn start() -> Self {
        let setting = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let settings = vec![
            // Latency is read from the server's own record of when each transaction committed.
            setting("track_commit_timestamp", "on"),
            // A checkpoint that falls into one measure and not into the other would decide the ratio; each measure
            // starts with one instead.
            setting("max_wal_size", "16GB"),
            setting("checkpoint_timeout", "1h"),
            setting("autovacuum", "off"),
        ];
        let options = ClusterOptions { version: Wanted::V16, settings, ..ClusterOptions::default() };
        Self { cluster: Cluster::start(options).expect("the benchmark's server starts") }
    }

    pub fn version(&self) -> &str {
        self.cluster.version()
    }

    pub fn url(&self, database: &str) -> String {
        self.cluster.url(database)
    }

    /// A database with the product installed and its types active.
    pub async fn install(&self, database: &str) -> Client {
        self.cluster.create_database(database, None).await.expect("create a database");
        let url = self.url(database);
        run(&url, &["migrate"]);
        run(&url, &["types", "activate", "--all"]);
        self.client(database).await
    }

    pub async fn copy(&self, template: &str, database: &str) {
        self.cluster.create_database(database, Some(template)).await.expect("copy a database");
    }

    pub async fn drop(&self, database: &str) {
        self.cluster.drop_database(database).await.expect("drop a database");
    }

    pub async fn client(&self, database: &str) -> Client {
        let (client, connection) =
            tokio_postgres::connect(&self.url(database), NoTls).await.expect("connect");
        tokio::spawn(connection);
        client
    }
}

/// Brings the server to the same rest before each measure: statistics, visibility, no dirty page.
pub async fn settle(client: &Client) {
    // One by one: a vacuum refuses to share a transaction.
    for statement in ["vacuum analyze", "checkpoint"] {
        client.batch_execute(statement).await.expect(statement);
    }
}

/// Births `from` to `to`, all of one commit: twenty collections, and a payload that must go nowhere.
pub fn births(from: u32, to: u32) -> String {
    format!(
        "insert into birth_registry (entity_code, collection_name, canonical_address, born_at, status, source_system, \
                                     actor_ref, birth_payload) \
         select 'E' || i, 'collection_' || lpad((i % 20)::text, 2, '0'), null, \
                timestamptz '2026-01-01' + i * interval '1 second', 'born', 'registrar', 'agent_' || i % 50, \
                jsonb_build_object('content', repeat(md5(i::text), 6)) \
           from generate_series({from}, {to}) i"
    )
}
