//! Databases of the shared cluster, and small questions to them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tokio_postgres::{Client, NoTls};

use super::{blocking, cluster, connect, fixture, program};

/// How long a condition may take to come true; far more than it needs, because machines are shared.
const PATIENCE: Duration = Duration::from_secs(60);

/// A database of the shared cluster that no other test uses. Slots belong to the whole cluster, so those of this
/// database are dropped with it: declare a daemon after its database.
pub struct TestDb {
    pub name: String,
    /// TCP; for the unix socket use `cluster().socket_url(&name)`.
    pub url: String,
    pub client: Client,
}

impl TestDb {
    /// The slot a daemon of this database takes unless told otherwise.
    pub fn slot(&self) -> String {
        format!("gov_handoff_{}", self.name)
    }

    pub async fn sql(&self, statements: &str) {
        self.client.batch_execute(statements).await.unwrap_or_else(|e| panic!("{statements}: {e:?}"));
    }

    /// The same database as another role.
    pub fn url_as(&self, role: &str) -> String {
        self.url.replacen("postgres@", &format!("{role}@"), 1)
    }
}

impl Drop for TestDb {
    fn drop(&mut self) {
        let (admin, name) = (cluster().url("postgres"), self.name.clone());
        // A runtime of its own: this one may be the one that is unwinding.
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(drop_slots(&admin, &name))
        });
        if let Ok(Err(e)) = dropped.join() {
            eprintln!("slots of {} are left behind: {e}", self.name);
        }
    }
}

async fn drop_slots(admin: &str, database: &str) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let (client, connection) = tokio_postgres::connect(admin, NoTls).await?;
    tokio::spawn(connection);
    let end = "select count(pg_terminate_backend(active_pid, 5000)) from pg_replication_slots \
               where database = $1 and active_pid is not null";
    client.query_one(end, &[&database]).await?;
    let drop =
        "select count(pg_drop_replication_slot(slot_name)) from pg_replication_slots where database = $1";
    client.query_one(drop, &[&database]).await?;
    Ok(())
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

/// A fresh database that `gov-handoff migrate` has been run on: a copy of one that is made once.
pub async fn migrated() -> TestDb {
    static TEMPLATE: tokio::sync::OnceCell<String> = tokio::sync::OnceCell::const_new();
    let make = || async {
        let name = "migrated".to_owned();
        let cluster = blocking(cluster).await;
        cluster.create_database(&name, None).await.expect("create the template");
        program::done(&cluster.url(&name), &["migrate"]).await;
        let client = connect(&cluster.url(&name)).await;
        client.batch_execute(fixture::LEAVE_ROOM).await.expect("leave room for given ids");
        name
    };
    fresh_database(Some(TEMPLATE.get_or_init(make).await)).await
}

/// Waits until a query answers true.
pub async fn until(client: &Client, condition: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let row = client.query_one(condition, &[]).await.expect("the condition is a query");
        if row.get::<_, Option<bool>>(0) == Some(true) {
            return;
        }
        assert!(Instant::now() < deadline, "still not true: {condition}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The first column of the first row.
pub async fn text(client: &Client, query: &str) -> String {
    client.query_one(query, &[]).await.unwrap_or_else(|e| panic!("{query}: {e:?}")).get(0)
}

pub async fn number(client: &Client, query: &str) -> i64 {
    client.query_one(query, &[]).await.unwrap_or_else(|e| panic!("{query}: {e:?}")).get(0)
}

/// The first column, a text, of every row.
pub async fn texts(client: &Client, query: &str) -> Vec<String> {
    let rows = client.query(query, &[]).await.unwrap_or_else(|e| panic!("{query}: {e:?}"));
    rows.iter().map(|row| row.get(0)).collect()
}
