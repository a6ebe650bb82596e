//! A fresh database for each test, and small questions to it.

use std::sync::atomic::{AtomicU32, Ordering};

use gov_handoff::embedded::Cluster;
use tokio::sync::OnceCell;
use tokio_postgres::{Client, NoTls};

use super::{blocking, cluster, connect, done, fixture, until_true};

/// A database that no other test uses.
pub struct Database {
    pub name: String,
    /// TCP; for the unix socket use `cluster().socket_url(&name)`.
    pub url: String,
    pub client: Client,
    /// Slots belong to a whole cluster. Those of the shared one are given back with their database.
    _slots: Option<Slots>,
}

impl Database {
    /// Connects to a database of a private cluster, however it was made.
    pub async fn at(name: &str, url: String) -> Self {
        let client = connect(&url).await;
        Self { name: name.to_owned(), url, client, _slots: None }
    }

    /// Connects again, after the server was away.
    pub async fn reconnect(&mut self) {
        self.client = connect(&self.url).await;
    }

    /// The same database as another role.
    pub fn url_as(&self, role: &str) -> String {
        self.url.replacen("postgres@", &format!("{role}@"), 1)
    }

    pub async fn sql(&self, statements: &str) {
        self.client.batch_execute(statements).await.unwrap_or_else(|e| panic!("{statements}: {e:?}"));
    }

    /// See [`number`].
    pub async fn number(&self, query: &str) -> i64 {
        number(&self.client, query).await
    }

    /// See [`text`].
    pub async fn text(&self, query: &str) -> String {
        text(&self.client, query).await
    }

    /// See [`texts`].
    pub async fn texts(&self, query: &str) -> Vec<String> {
        texts(&self.client, query).await
    }

    /// The first column, a text, of the first row; `None` if there is no row or it is null.
    pub async fn text_if_any(&self, query: &str) -> Option<String> {
        let row = self.client.query_opt(query, &[]).await.unwrap_or_else(|e| panic!("{query}: {e:?}"));
        row.and_then(|row| row.get(0))
    }

    /// Waits until a query answers true.
    pub async fn until(&self, query: &str) {
        until_true(&self.client, query).await;
    }

    /// Waits until a finding of this kind was raised, open or resolved since.
    pub async fn until_finding(&self, kind: &str) {
        self.until(&format!("select count(*) > 0 from system_issues where issue_kind = '{kind}'")).await;
    }

    /// Writes `n` births in one transaction; a third of them are registered, and so come to two handoffs.
    pub async fn births(&self, code: &str, n: u32) {
        let insert = "insert into birth_registry (entity_code, collection_name, status) select $1::text || g, 'c' || g % 5, \
                      case when g % 3 = 0 then 'registered' end from generate_series(1, $2::int) g";
        self.client.execute(insert, &[&code, &i32::try_from(n).expect("small")]).await.expect("births");
    }
}

/// The first column, a text, of the first row.
pub async fn text(client: &Client, query: &str) -> String {
    client.query_one(query, &[]).await.unwrap_or_else(|e| panic!("{query}: {e:?}")).get(0)
}

/// The first column, a bigint, of the first row.
pub async fn number(client: &Client, query: &str) -> i64 {
    client.query_one(query, &[]).await.unwrap_or_else(|e| panic!("{query}: {e:?}")).get(0)
}

/// The first column, a text, of every row.
pub async fn texts(client: &Client, query: &str) -> Vec<String> {
    let rows = client.query(query, &[]).await.unwrap_or_else(|e| panic!("{query}: {e:?}"));
    rows.iter().map(|row| row.get(0)).collect()
}

/// Makes a database in the shared cluster, empty or as a copy of `template`. It goes with the cluster.
pub async fn fresh_database(template: Option<&str>) -> Database {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let name = format!("test_{}", COUNTER.fetch_add(1, Ordering::Relaxed));
    let cluster = blocking(cluster).await;
    cluster.create_database(&name, template).await.expect("create a test database");
    let _slots = Some(Slots { database: name.clone() });
    Database { _slots, ..Database::at(&name, cluster.url(&name)).await }
}

/// A fresh database after `gov-handoff migrate`. Drawn ids leave room for those that fixtures give. Types are inactive.
pub async fn migrated() -> Database {
    static TEMPLATE: OnceCell<&str> = OnceCell::const_new();
    let make = async || {
        let cluster = blocking(cluster).await;
        cluster.create_database("migrated", None).await.expect("create the template");
        let url = cluster.url("migrated");
        done(&url, &["migrate"]).await;
        let client = connect(&url).await;
        client.batch_execute(fixture::LEAVE_ROOM).await.expect("leave room for given ids");
        "migrated"
    };
    fresh_database(Some(TEMPLATE.get_or_init(make).await)).await
}

/// A fresh database after `gov-handoff migrate`, with every type active and the view `verify.handoffs`. Ids begin at 1.
pub async fn active() -> Database {
    static TEMPLATE: OnceCell<&str> = OnceCell::const_new();
    let make = async || {
        active_as(blocking(cluster).await, "active").await;
        "active"
    };
    fresh_database(Some(TEMPLATE.get_or_init(make).await)).await
}

/// The same in a private cluster.
pub async fn active_on(cluster: &Cluster) -> Database {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    active_as(cluster, &format!("private_{}", COUNTER.fetch_add(1, Ordering::Relaxed))).await
}

/// The same under a name that another server may have too.
pub async fn active_as(cluster: &Cluster, name: &str) -> Database {
    cluster.create_database(name, None).await.expect("create a database");
    active_of(name, cluster.url(name)).await
}

/// The same of an empty database, however it was made.
pub async fn active_of(name: &str, url: String) -> Database {
    // Signals about rows; certificates and heartbeats are about the daemon itself.
    const HANDOFFS: &str = "create schema verify; create view verify.handoffs as select * from event_outbox
        where event_domain = 'governance' and event_type like 'governance.handoff.%' and event_type not in ('governance.handoff.certified', 'governance.handoff.heartbeat')";
    done(&url, &["migrate"]).await;
    done(&url, &["types", "activate", "--all"]).await;
    let database = Database::at(name, url).await;
    database.sql(HANDOFFS).await;
    database
}

/// Drops the slots that a database of the shared cluster still has.
struct Slots {
    database: String,
}

impl Drop for Slots {
    fn drop(&mut self) {
        let (admin, name) = (cluster().url("postgres"), self.database.clone());
        // A runtime of its own: the test's may be the one that is unwinding.
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(drop_slots(&admin, &name))
        });
        if let Ok(Err(e)) = dropped.join() {
            eprintln!("slots of {} are left behind: {e}", self.database);
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
