//! Concurrent writers of every awkward kind. What an act writes is a function of the seed, the writer and the act's
//! number; whether it commits is the server's business, and an act that fails is simply over.
//!
//! Every row carries the name of its act (`w3-a17-r2`), so that a missing row can be traced to how it was written.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::support::Random;
use futures_util::SinkExt;
use tokio_postgres::{Client, Error, NoTls};

/// Enough to be concurrent, few enough for two cores.
pub const WRITERS: u64 = 7;

const BIRTH: &str = "birth_registry (entity_code, collection_name, status, source_system, actor_ref)";
const STATUSES: [&str; 4] = ["'registered'", "'draft'", "null", "'registered'"];
/// Every rule's words, words of two rules at once, and words that no rule knows.
const CHANGES: [(&str, &str); 20] = [
    ("species", "register"),
    ("collection", "update"),
    ("collection", "register"),
    ("species", "count_changed"),
    ("species", "recount"),
    ("species", "retire"),
    ("collection", "supersede"),
    ("species", "source_changed"),
    ("species", "migrate"),
    ("axis", "add"),
    ("pivot", "retire"),
    ("law", "update"),
    ("policy", "update"),
    ("normative", "recount"),
    ("jurisdiction", "update"),
    ("measurement", "update"),
    ("owner", "update"),
    ("approval", "update"),
    ("exception", "update"),
    ("something else", "entirely"),
];

/// What every writer did, by writer and act.
#[derive(Default)]
pub struct Journal(Mutex<HashMap<(u64, u64), String>>);

impl Journal {
    fn note(&self, writer: u64, act: u64, text: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert((writer, act), text);
    }

    /// How the row with this code was written.
    pub fn of(&self, code: &str) -> String {
        let mut parts = code.split('-');
        let mut number =
            |prefix| parts.next().and_then(|p| p.strip_prefix(prefix)).and_then(|n| n.parse().ok());
        let place = number("w").zip(number("a"));
        let acts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        place.and_then(|p| acts.get(&p).cloned()).unwrap_or_else(|| "not by a writer of ours".to_owned())
    }

    /// How many acts of each kind went through.
    pub fn summary(&self) -> String {
        let acts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = acts.values().filter(|text| text.contains("failed")).count();
        format!("{} acts, {failed} failed", acts.len())
    }
}

/// One writer: acts until told to stop, over as many connections as it takes.
pub async fn write(
    url: String,
    seed: u64,
    writer: u64,
    first: u64,
    stop: Arc<AtomicBool>,
    journal: Arc<Journal>,
) -> u64 {
    let mut act = first;
    let mut session: Option<Client> = None;
    while !stop.load(Ordering::Relaxed) {
        let client = match &mut session {
            Some(client) if !client.is_closed() => client,
            _ => match tokio_postgres::connect(&url, NoTls).await {
                Ok((client, connection)) => {
                    tokio::spawn(connection);
                    // An id that a prepared transaction has: it ends after all writers have, and must not be waited for.
                    let _ = client.batch_execute("set lock_timeout = '1s'").await;
                    session.insert(client)
                }
                Err(_) => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
        };
        let mut random = Random::at(seed, [writer + 1, act]);
        let one = Act { client, name: format!("w{writer}-a{act}"), random: &mut random };
        let (what, outcome) = one.perform().await;
        let end = match &outcome {
            Ok(()) => String::new(),
            Err(e) => format!(
                ", failed: {}",
                e.as_db_error().map_or_else(|| e.to_string(), |d| d.message().to_owned())
            ),
        };
        journal.note(writer, act, format!("{what}{end}"));
        if outcome.is_err() {
            // An open transaction of a failed act must not take the next one in.
            session = None;
        }
        act += 1;
        tokio::time::sleep(Duration::from_millis(random.between(2, 60))).await;
    }
    act
}

/// Quick rows of every source while the last fault of a round happens, so that it has something to lose.
pub async fn burst(url: String, seed: u64, round: u64, stop: Arc<AtomicBool>) {
    let mut random = Random::at(seed, [2_000, round]);
    let mut session: Option<Client> = None;
    loop {
        if session.as_ref().is_none_or(Client::is_closed) {
            session = match tokio_postgres::connect(&url, NoTls).await {
                Ok((client, connection)) => {
                    tokio::spawn(connection);
                    Some(client)
                }
                Err(_) => None,
            };
        }
        if let Some(client) = &session {
            let mut act = Act { client, name: format!("burst{round}"), random: &mut random };
            let rows = [act.birth_rows(3), act.change_rows(2), act.event_rows(2)].join("; ");
            let _ = client.batch_execute(&rows).await;
        }
        if stop.load(Ordering::Relaxed) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(15)).await;
    }
}

/// Ends what acts prepared and did not live to end, as its act would have.
pub async fn finish_prepared(client: &Client) -> Result<usize, Error> {
    let left =
        client.query("select gid from pg_prepared_xacts where database = current_database()", &[]).await?;
    for row in &left {
        let gid: String = row.get(0);
        let verb = if gid.ends_with("-undo") { "rollback" } else { "commit" };
        client.batch_execute(&format!("{verb} prepared '{gid}'")).await?;
    }
    Ok(left.len())
}

struct Act<'a> {
    client: &'a Client,
    name: String,
    random: &'a mut Random,
}

type Done = Result<(), Error>;

impl Act<'_> {
    async fn perform(mut self) -> (&'static str, Done) {
        let acts = [
            "single row",
            "single row",
            "many rows in one statement",
            "copy",
            "held open",
            "held open",
            "savepoints",
            "rolled back",
            "prepared",
            "back-dated",
            "no order key",
            "id far above",
            "id below zero",
            "id in a hole",
            "sequence jumps",
            "changes",
            "changes",
            "changes in a long transaction",
            "events of other domains",
            "events of other domains, held open",
            "rolled back, vacuumed, written again",
            "all tables at once",
            "definitions",
        ];
        let what = self.random.pick(&acts);
        let done = match what {
            "single row" => self.run(Self::births(1)).await,
            "many rows in one statement" => {
                let n = self.random.between(2, 50);
                self.run(Self::births(n)).await
            }
            "copy" => self.copy().await,
            "held open" => self.held(Self::births(2)).await,
            "savepoints" => self.savepoints().await,
            "rolled back" => {
                let n = self.random.between(1, 30);
                let rows = self.birth_rows(n);
                self.send(&format!("begin; {rows}; rollback")).await
            }
            "prepared" => self.prepared().await,
            "back-dated" => self.dated("now() - interval '400 days'").await,
            "no order key" => self.dated("null").await,
            "id far above" => {
                let id = 1_000_000_000 + self.random.between(0, 900_000_000);
                self.with_id(&id.to_string()).await
            }
            "id below zero" => {
                let id = self.random.between(1, 2_000_000_000);
                self.with_id(&format!("-{id}")).await
            }
            "id in a hole" => self.in_a_hole().await,
            "sequence jumps" => self.jump().await,
            "changes" => {
                let n = self.random.between(1, 20);
                self.run(Self::changes(n)).await
            }
            "changes in a long transaction" => self.held(Self::changes(3)).await,
            "events of other domains" => {
                let n = self.random.between(1, 10);
                self.run(Self::events(n)).await
            }
            "events of other domains, held open" => self.held(Self::events(2)).await,
            "rolled back, vacuumed, written again" => self.reuse_old_pages().await,
            "all tables at once" => {
                let rows = [self.birth_rows(2), self.change_rows(2), self.event_rows(2)].join("; ");
                let pause = self.pause();
                self.send(&format!("begin; {rows}; select pg_sleep({pause}); commit")).await
            }
            _ => self.definitions().await,
        };
        (what, done)
    }

    async fn send(&self, sql: &str) -> Done {
        self.client.batch_execute(sql).await
    }

    async fn run(&mut self, rows: impl FnOnce(&mut Self) -> String) -> Done {
        let rows = rows(self);
        self.send(&rows).await
    }

    /// Takes its ids and its time now, commits late: behind every cursor.
    async fn held(&mut self, rows: impl Fn(&mut Self) -> String) -> Done {
        let (first, second, pause) = (rows(self), rows(self), self.pause());
        self.send(&format!("begin; {first}; select pg_sleep({pause}); {second}; commit")).await
    }

    /// Seconds, mostly short.
    fn pause(&mut self) -> f64 {
        let longest = if self.random.percent(25) { 3_000 } else { 600 };
        Duration::from_millis(self.random.between(50, longest)).as_secs_f64()
    }

    fn births(n: u64) -> impl Fn(&mut Self) -> String {
        move |act| act.birth_rows(n)
    }

    fn changes(n: u64) -> impl Fn(&mut Self) -> String {
        move |act| act.change_rows(n)
    }

    fn events(n: u64) -> impl Fn(&mut Self) -> String {
        move |act| act.event_rows(n)
    }

    /// A row's code; the random part keeps rows of one act apart.
    fn code(&mut self) -> String {
        format!("{}-r{:x}", self.name, self.random.next())
    }

    fn birth_rows(&mut self, n: u64) -> String {
        let values: Vec<_> = (0..n)
            .map(|_| {
                let (code, status) = (self.code(), self.random.pick(&STATUSES));
                format!("('{code}', 'c{}', {status}, 'hostile', 'writer')", self.random.between(1, 9))
            })
            .collect();
        format!("insert into {BIRTH} values {}", values.join(", "))
    }

    fn change_rows(&mut self, n: u64) -> String {
        let values: Vec<_> = (0..n)
            .map(|_| {
                let (code, (entity, action)) = (self.code(), self.random.pick(&CHANGES));
                format!("('{entity}', '{code}', '{action}', 'hostile', 'writer')")
            })
            .collect();
        format!(
            "insert into registry_changelog (entity_type, entity_code, action, source_system, actor_ref) values {}",
            values.join(", ")
        )
    }

    fn event_rows(&mut self, n: u64) -> String {
        let values: Vec<_> = (0..n)
            .map(|_| {
                let domain = self.random.pick(&["iu", "tac", "kg", "piece", "health", "system"]);
                let stream = self.random.pick(&["birth", "update", "birth", "update", "comment"]);
                let id = uuid::Builder::from_random_bytes(
                    (u128::from(self.random.next()) << 64 | u128::from(self.random.next())).to_be_bytes(),
                );
                let id = id.into_uuid();
                format!(
                    "('{id}', '{domain}', 'happened', '{stream}', '{}', 'writer', 'hostile')",
                    self.code()
                )
            })
            .collect();
        format!(
            "insert into event_outbox (id, event_domain, event_type, event_stream, canonical_address, actor_ref, \
             source_system) values {}",
            values.join(", ")
        )
    }

    async fn copy(&mut self) -> Done {
        let mut text = String::new();
        for _ in 0..self.random.between(10, 200) {
            let code = self.code();
            let status = if self.random.percent(50) { "registered" } else { "\\N" };
            let _ = writeln!(text, "{code}\tc{}\t{status}\thostile\twriter", self.random.between(1, 9));
        }
        let sink = self.client.copy_in(&format!("copy {BIRTH} from stdin")).await?;
        let mut sink = std::pin::pin!(sink);
        sink.send(bytes::Bytes::from(text)).await?;
        sink.finish().await?;
        Ok(())
    }

    async fn savepoints(&mut self) -> Done {
        let [a, b, c, d] = std::array::from_fn(|_| self.birth_rows(2));
        let pause = self.pause();
        self.send(&format!(
            "begin; {a}; savepoint s; {b}; rollback to savepoint s; {c}; savepoint t; {d}; select pg_sleep({pause}); \
             release savepoint t; commit"
        ))
        .await
    }

    async fn prepared(&mut self) -> Done {
        let undo = self.random.percent(20);
        let gid = format!("{}{}", self.name, if undo { "-undo" } else { "" });
        let (births, changes, pause) = (self.birth_rows(2), self.change_rows(1), self.pause());
        let verb = if undo { "rollback" } else { "commit" };
        self.send(&format!("begin; {births}; {changes}; prepare transaction '{gid}'")).await?;
        tokio::time::sleep(Duration::from_secs_f64(pause)).await;
        self.send(&format!("{verb} prepared '{gid}'")).await
    }

    async fn dated(&mut self, at: &str) -> Done {
        let code = self.code();
        self.send(&format!(
            "insert into birth_registry (entity_code, collection_name, born_at) values ('{code}', 'c1', {at})"
        ))
        .await
    }

    async fn with_id(&mut self, id: &str) -> Done {
        let code = self.code();
        self.send(&format!(
            "insert into birth_registry (id, entity_code, collection_name) values ({id}, '{code}', 'c2') on conflict do nothing"
        ))
        .await
    }

    /// By hand, where a rolled back transaction or a jump of the sequence left room.
    async fn in_a_hole(&mut self) -> Done {
        let (code, at) = (self.code(), self.random.between(0, 1_000_000));
        self.send(&format!(
            "insert into birth_registry (id, entity_code, collection_name)
             select n, '{code}-' || n, 'c3'
               from (select (select last_value from birth_registry_id_seq) * {at} / 1000000 as start) s,
                    lateral generate_series(s.start, s.start + 200) n
              where n > 0 and not exists (select from birth_registry b where b.id = n)
              limit 2
             on conflict do nothing"
        ))
        .await
    }

    /// Mostly forward and far; sometimes back into what was burnt, where some of the next ids are taken.
    async fn jump(&mut self) -> Done {
        let by = if self.random.percent(70) {
            i64::try_from(self.random.between(1, 5_000)).unwrap_or(1)
        } else {
            -i64::try_from(self.random.between(1, 60)).unwrap_or(1)
        };
        self.send(&format!(
            "select setval('birth_registry_id_seq', greatest(1, last_value + {by})) from birth_registry_id_seq"
        ))
        .await?;
        self.run(Self::births(1)).await
    }

    /// New rows on pages that a scan has passed: what a scan of the heap's tail would not see.
    async fn reuse_old_pages(&mut self) -> Done {
        let (gone, kept) = (self.birth_rows(150), self.birth_rows(3));
        self.send(&format!("begin; {gone}; rollback")).await?;
        self.send("vacuum (index_cleanup on) birth_registry").await?;
        self.send(&kept).await
    }

    async fn definitions(&mut self) -> Done {
        let (pivot, ruleset) = (self.code(), self.code());
        self.send(&format!(
            "insert into pivot_definitions (pivot_code) values ('{pivot}');
             insert into governance_ruleset (ruleset_code, scope) values ('{ruleset}', 'all')"
        ))
        .await
    }
}
