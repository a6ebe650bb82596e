//! The hostile operator: a second cast that acts on definitions, trust, types, retention, tables, privileges and locks while
//! the writers write. Seeded; each act goes through the program's own commands or plain SQL, ends by itself, is undone, and
//! stands in the journal. `HOSTILE_ACTORS` chooses some by name.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::{RwLock, RwLockWriteGuard};
use tokio_postgres::{Client, NoTls};

use super::books::{self, TABLES};
use super::{queue, tables};
use crate::support::{Random, TemporaryFile, cli_within, connect};

/// Acts through the program's commands: one after the other, so that it is known which definition follows which.
const DECISIONS: [&str; 9] =
    ["redefine", "remove", "trust", "types", "retire", "replay", "audit", "audit-killed", "pause"];
/// A command that takes longer is killed, and asked again where it has to succeed.
const COMMAND: Duration = Duration::from_secs(20);
/// How long an undoing is tried while the server comes and goes.
const UNDOING: Duration = Duration::from_secs(40);
/// How long a redefinition waits for the rows before it.
const SETTLING: Duration = Duration::from_secs(6);

const CLASSES: [&str; 4] = ["a", "b", "c", "x"];
const PRODUCERS: [&str; 3] = ["p1", "p2", "p3"];

/// What a definition of one of the suite's own sources says.
#[derive(Clone)]
pub struct Definition {
    registered: bool,
    born: bool,
    registered_in: Vec<&'static str>,
    changed_in: Vec<&'static str>,
    excluded: Vec<&'static str>,
    producers: Option<Vec<&'static str>>,
    batch: u64,
}

impl Definition {
    fn first() -> Self {
        Self {
            registered: true,
            born: true,
            registered_in: vec!["a"],
            changed_in: vec!["b"],
            excluded: vec![],
            producers: None,
            batch: 5_000,
        }
    }

    fn any(random: &mut Random) -> Self {
        let some = |random: &mut Random, chance| {
            CLASSES.iter().copied().filter(|_| random.percent(chance)).collect::<Vec<_>>()
        };
        let mut definition = Self {
            registered: true,
            born: random.percent(60),
            registered_in: some(random, 40),
            changed_in: some(random, 40),
            excluded: some(random, 20),
            producers: random.percent(30).then(|| vec![random.pick(&PRODUCERS)]),
            batch: random.pick(&[1, 7, 500, 5_000]),
        };
        if definition.registered_in.is_empty() && definition.changed_in.is_empty() {
            definition.born = true;
        }
        definition
    }

    fn toml(&self, table: &str, id: &str) -> String {
        let mut text = format!(
            "[[source]]\nname = \"{table}\"\nid = {{ column = \"id\", type = \"{id}\" }}\n\
             columns = [\"id\", \"code\", \"class\", \"producer\", \"agent\", \"born_at\"]\nsource_system = \"producer\"\n\
             order = {{ column = \"born_at\", type = \"timestamptz\" }}\n\
             actor_ref = \"agent\"\nbatch_size = {}\n",
            self.batch
        );
        if !self.excluded.is_empty() {
            text += &format!("exclude = [{{ column = \"class\", one_of = {:?} }}]\n", self.excluded);
        }
        if let Some(producers) = &self.producers {
            text += &format!("trust = {{ by = \"source_system\", producers = {producers:?} }}\n");
        }
        let mut rule = |kind: &str, classes: Option<&[&str]>| {
            text += &format!(
                "[[source.rule]]\nkind = \"governance.handoff.{kind}\"\nobject_type = \"note\"\n\
                 object_ref = \"note:{{code}}\"\ngroup = [[\"scope\", \"hostile\"]]\n"
            );
            if let Some(classes) = classes {
                text += &format!("when = [{{ column = \"class\", one_of = {classes:?} }}]\n");
            }
        };
        if self.born {
            rule("object_born", None);
        }
        for (kind, classes) in
            [("object_registered", &self.registered_in), ("source_changed", &self.changed_in)]
        {
            if !classes.is_empty() {
                rule(kind, Some(classes));
            }
        }
        text
    }
}

/// Everything that the cast shares in a run.
pub struct Operators {
    pub url: String,
    pub seed: u64,
    /// Held by the writers of a table; taken alone where no row may be written meanwhile.
    gates: [RwLock<()>; 3],
    numbers: [AtomicI32; 3],
    current: Mutex<Vec<Definition>>,
    journal: Mutex<Vec<String>>,
    began: Instant,
    /// When an act delays signals on purpose.
    pub windows: Mutex<Vec<(SystemTime, SystemTime)>>,
    chosen: Option<Vec<String>>,
    /// How often each kind of act went through.
    done: Mutex<BTreeMap<&'static str, u64>>,
    /// The acts that each lane has still to play, so that each comes before any comes again.
    decks: [Mutex<Vec<&'static str>>; 3],
}

pub type Outcome = Result<(), String>;

impl Operators {
    /// Makes the tables, the books and the first definitions.
    pub async fn enter(url: &str, seed: u64) -> Arc<Self> {
        let client = connect(url).await;
        books::open(&client).await.expect("the books");
        queue::enter(&client).await;
        for (table, _) in TABLES {
            let own = format!("alter table {table} owner to {}", tables::DAEMON);
            client.batch_execute(&own).await.expect("the daemon's table");
        }
        let chosen = std::env::var("HOSTILE_ACTORS").ok();
        let chosen =
            chosen.map(|text| text.split(',').map(|name| name.trim().to_owned()).collect::<Vec<_>>());
        let known = |name: &String| {
            let name = name.as_str();
            DECISIONS.iter().chain(&tables::ACTS).chain(&queue::ACTS).any(|act| *act == name)
                || name == "advisory"
        };
        if let Some(unknown) = chosen.iter().flatten().find(|name| !known(name)) {
            panic!(
                "HOSTILE_ACTORS: {unknown} is none of {DECISIONS:?}, {:?}, {:?}, advisory",
                tables::ACTS,
                queue::ACTS
            );
        }
        let operators = Arc::new(Self {
            url: url.to_owned(),
            seed,
            gates: Default::default(),
            numbers: Default::default(),
            current: Mutex::new(vec![Definition::first(); 3]),
            journal: Mutex::default(),
            began: Instant::now(),
            windows: Mutex::default(),
            chosen,
            done: Mutex::default(),
            decks: Default::default(),
        });
        for table in 0..TABLES.len() {
            operators.define(table, Definition::first(), false).await.expect("the first definition");
        }
        operators
    }

    /// Writers of the suite's own tables, the decisions and the acts on tables, until the time is up.
    pub async fn act(self: &Arc<Self>, round: u64, until: Instant) {
        let stop = Arc::new(AtomicBool::new(false));
        let advisory = self
            .plays("advisory")
            .then(|| tokio::spawn(tables::hold_advisory_locks(Arc::clone(self), Arc::clone(&stop))));
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                tokio::spawn(tables::write(Arc::clone(self), [3_000 + writer, round], Arc::clone(&stop)))
            })
            .collect();
        let decisions = self.lane(&DECISIONS, 0, round, until, (50, 500));
        let on_tables = self.lane(&tables::ACTS, 1, round, until, (50, 400));
        let on_queue = self.lane(&queue::ACTS, 2, round, until, (50, 400));
        tokio::join!(decisions, on_tables, on_queue);
        stop.store(true, Ordering::Relaxed);
        for task in writers.into_iter().chain(advisory) {
            task.await.expect("an actor does not panic");
        }
        self.undo().await;
    }

    fn plays(&self, name: &str) -> bool {
        self.chosen.as_ref().is_none_or(|chosen| chosen.iter().any(|c| c == name))
    }

    async fn lane(&self, acts: &[&'static str], lane: usize, round: u64, until: Instant, pause: (u64, u64)) {
        let mut random = Random::at(self.seed, [3_100 + lane as u64, round]);
        let acts: Vec<_> = acts.iter().copied().filter(|name| self.plays(name)).collect();
        while !acts.is_empty() && Instant::now() < until {
            let (what, table) = (self.draw(lane, &acts, &mut random), random.between(0, 2) as usize);
            let began = Instant::now();
            self.note(&format!("{what} {} begins", TABLES[table].0));
            let outcome = match what {
                _ if DECISIONS.contains(&what) => self.decide(what, table, &mut random).await,
                _ if queue::ACTS.contains(&what) => queue::act(self, what, &mut random).await,
                _ => tables::act(self, what, table, &mut random).await,
            };
            match &outcome {
                Ok(()) => *locked(&self.done).entry(what).or_default() += 1,
                // The server was away, or somebody held the table: it is played again before the others are.
                Err(_) => locked(&self.decks[lane]).insert(0, what),
            }
            let taken = outcome.as_ref().err().filter(|e| e.contains("a role without privileges took"));
            assert!(taken.is_none(), "{taken:?}");
            let end = outcome.err().map_or_else(String::new, |e| format!(", failed: {e}"));
            self.note(&format!("{what} {} is over after {:.2?}{end}", TABLES[table].0, began.elapsed()));
            tokio::time::sleep(Duration::from_millis(random.between(pause.0, pause.1))).await;
        }
    }

    /// One of the acts that were not played since all of them were.
    fn draw(&self, lane: usize, acts: &[&'static str], random: &mut Random) -> &'static str {
        let mut deck = locked(&self.decks[lane]);
        if deck.is_empty() {
            deck.extend_from_slice(acts);
        }
        let place = random.next() % deck.len() as u64;
        deck.swap_remove(usize::try_from(place).unwrap_or(0))
    }

    /// The acts that were to be played and never went through.
    pub fn never(&self) -> Vec<&'static str> {
        let done = locked(&self.done);
        let all = DECISIONS.iter().chain(&tables::ACTS).chain(&queue::ACTS).copied();
        all.filter(|what| self.plays(what) && !done.contains_key(what)).collect()
    }

    /// How many acts went through.
    pub fn acts(&self) -> u64 {
        locked(&self.done).values().sum()
    }

    /// Times that say nothing about who was held up by whom.
    pub fn slow_machine(&self, times: Vec<(SystemTime, SystemTime)>) {
        locked(&self.windows).extend(times);
    }

    /// An act held signals up on purpose, from `began` until a moment from now.
    pub fn delayed_since(&self, began: SystemTime) {
        locked(&self.windows).push((began, SystemTime::now() + Duration::from_secs(2)));
    }

    async fn decide(&self, what: &str, table: usize, random: &mut Random) -> Outcome {
        let name = TABLES[table].0;
        match what {
            "redefine" => self.define(table, Definition::any(random), random.percent(50)).await,
            "remove" => {
                let before = self.definition(table);
                let gone = Definition { registered: false, ..before.clone() };
                self.define(table, gone, random.percent(50)).await?;
                tokio::time::sleep(Duration::from_millis(random.between(10, 600))).await;
                self.define(table, before, false).await
            }
            "trust" => {
                let producer = random.pick(&PRODUCERS);
                // Only a source with a list of producers has anybody to trust.
                let current = self.definition(table);
                if current.producers.is_none() {
                    let listed = Definition { producers: Some(PRODUCERS.to_vec()), ..current };
                    self.define(table, listed, false).await?;
                }
                for verb in ["revoke", "grant"] {
                    self.command(&["trust", verb, "--source", name, "--producer", producer], COMMAND).await?;
                }
                Ok(())
            }
            "types" => {
                let kind = random.pick(&["object_born", "object_registered", "source_changed"]);
                let began = SystemTime::now();
                let held = self.command(&["types", "deactivate", kind], COMMAND).await;
                tokio::time::sleep(Duration::from_millis(random.between(10, 700))).await;
                self.insist_on(&["types", "activate", kind]).await?;
                // What was captured is drained when the keeper looks next.
                self.delayed_since(began);
                held
            }
            "retire" => {
                // An integer key that another row took is told from the retired one by time alone, and only roughly: not if the
                // row was written, and not yet compared, when the signals of the key's neighbours were retired.
                let _quiet = self.settle(0).await.ok_or("the rows before it did not settle")?;
                let client = self.session().await?;
                let ago = random.between(0, 3_000);
                let sql = format!(
                    "select to_char(now() at time zone 'UTC' - interval '{ago} ms', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')"
                );
                let before: String = client.query_one(&sql, &[]).await.map_err(told)?.get(0);
                self.command(&["retire", "--before", &before], COMMAND).await
            }
            "replay" => {
                let from = if TABLES[table].1 == "int8" { "1" } else { "0" };
                let from =
                    if TABLES[table].1 == "uuid" { "00000000-0000-0000-0000-000000000000" } else { from };
                self.command(&["replay", "--source", name, "--from", from], COMMAND).await
            }
            "pause" => {
                let (members, began) = (gov_handoff::workers::FAMILY, SystemTime::now());
                let worker = members[usize::try_from(random.next()).unwrap_or(0) % members.len()].name;
                let paused = self.command(&["pause", worker, "--reason", "hostile"], COMMAND).await;
                tokio::time::sleep(Duration::from_millis(random.between(10, 1_500))).await;
                self.insist_on(&["resume", worker]).await?;
                self.delayed_since(began);
                paused
            }
            "audit" => self.command(&["audit", "--full"], COMMAND).await,
            _ => {
                let soon = Duration::from_millis(random.between(20, 600));
                let killed = self.command(&["audit", "--full"], soon).await;
                killed.or_else(|e| if e.contains("killed after") { Ok(()) } else { Err(e) })
            }
        }
    }

    fn definition(&self, table: usize) -> Definition {
        locked(&self.current)[table].clone()
    }

    /// Puts a definition into force and notes in the books when that began and when it was done. `settle`: the rows before
    /// it are all seen handed off first, so that they are due as the definition of their time says, and not as this one.
    async fn define(&self, table: usize, new: Definition, settle: bool) -> Outcome {
        let (name, id) = TABLES[table];
        let n = self.numbers[table].fetch_add(1, Ordering::Relaxed);
        let settled = if settle { self.settle(table).await.map(|(at, _)| at) } else { None };
        let said = settled.as_deref().unwrap_or("unsettled");
        self.note(&format!("definition {n} of {name} ({said}): {}", new.summary()));
        let settled = settled.map_or_else(
            || format!("coalesce((select max(settled) from verify.definition where source = '{name}'), '-infinity')"),
            |at| format!("'{at}'::timestamptz"),
        );
        let array = |classes: &[&str]| format!("'{{{}}}'", classes.join(","));
        self.insist(&format!(
            "insert into verify.definition (source, n, began, settled, registered, born, registered_in, changed_in, excluded)
             select '{name}', {n}, clock_timestamp(), {settled}, {}, {}, {}, {}, {} on conflict do nothing",
            new.registered,
            new.born,
            array(&new.registered_in),
            array(&new.changed_in),
            array(&new.excluded)
        ))
        .await?;
        if new.registered {
            let file = TemporaryFile::new("hostile.toml", &new.toml(name, id));
            self.insist_on(&["sources", "apply", file.path()]).await?;
        } else {
            // Removed by an earlier try of this act whose answer was lost: that is what was wanted.
            let removed = self.insist_on(&["sources", "remove", name]).await;
            if removed.as_ref().is_err_and(|e| !e.contains("no source")) {
                removed?;
            }
        }
        self.insist(&format!(
            "update verify.definition set returned = clock_timestamp() where source = '{name}' and n = {n} and returned is null"
        ))
        .await?;
        locked(&self.current)[table] = new;
        Ok(())
    }

    /// Waits, with the writers of the table at rest, until every row of it is handed off; through which moment that is so. The
    /// writers rest for as long as the caller holds what is returned.
    pub async fn settle(&self, table: usize) -> Option<(String, RwLockWriteGuard<'_, ()>)> {
        let alone = self.gates[table].write().await;
        let client = self.session().await.ok()?;
        let at: String = client.query_one("select clock_timestamp()::text", &[]).await.ok()?.get(0);
        let deadline = Instant::now() + SETTLING;
        while Instant::now() < deadline {
            if books::missing(&client, TABLES[table].0).await.ok()?.is_empty() {
                return Some((at, alone));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        None
    }

    pub async fn gate(&self, table: usize) -> tokio::sync::RwLockReadGuard<'_, ()> {
        self.gates[table].read().await
    }

    /// Puts everything back, whatever an act that failed has left.
    async fn undo(&self) {
        for table in 0..TABLES.len() {
            let current = self.definition(table);
            if !current.registered {
                let again = Definition { registered: true, ..current };
                self.define(table, again, false).await.expect("the source is registered again");
            }
        }
        self.insist_on(&["types", "activate", "--all"]).await.expect("the types are active again");
        for member in gov_handoff::workers::FAMILY {
            self.insist_on(&["resume", member.name]).await.expect("the workers work again");
        }
        tables::undo(self).await;
    }

    pub async fn session(&self) -> Result<Client, String> {
        let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await.map_err(told)?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// Tries until the server takes it: it may be away for a moment.
    pub async fn insist(&self, sql: &str) -> Outcome {
        let deadline = Instant::now() + UNDOING;
        loop {
            let done = match self.session().await {
                Ok(client) => {
                    let sql = format!("set lock_timeout = '3s'; {sql}");
                    client.batch_execute(&sql).await.map_err(told)
                }
                Err(e) => Err(e),
            };
            if done.is_ok() || Instant::now() > deadline {
                return done.map_err(|e| format!("{sql}: {e}"));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn insist_on(&self, arguments: &[&str]) -> Outcome {
        let deadline = Instant::now() + UNDOING;
        loop {
            let done = self.command(arguments, COMMAND).await;
            if done.is_ok() || Instant::now() > deadline {
                return done;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Runs a command of the program, and kills it when its time is up. Exit code 1 is an answer too.
    pub async fn command(&self, arguments: &[&str], limit: Duration) -> Outcome {
        let what = arguments.join(" ");
        let Some(ran) = cli_within(limit, &self.url, arguments, &[]).await else {
            return Err(format!("{what}: killed after {limit:?}"));
        };
        let asked = ["audit", "replay", "backfill"].iter().any(|command| what.starts_with(command));
        match ran.code {
            0 => Ok(()),
            1 if asked => Ok(()),
            code => Err(format!("{what}: {code} {}", ran.err.trim())),
        }
    }

    pub fn note(&self, text: &str) {
        let line = format!("{:8.3} {text}", self.began.elapsed().as_secs_f64());
        locked(&self.journal).push(line);
    }

    pub fn journal(&self, lines: usize) -> String {
        let journal = locked(&self.journal);
        journal[journal.len().saturating_sub(lines)..].join("\n")
    }

    /// How many acts there were, and how many failed.
    pub fn summary(&self) -> String {
        let journal = locked(&self.journal);
        let over = journal.iter().filter(|line| line.contains(" is over after ")).count();
        let failed = journal.iter().filter(|line| line.contains(", failed: ")).count();
        format!("{over} acts of operators, {failed} failed; went through: {:?}", locked(&self.done))
    }
}

impl Definition {
    fn summary(&self) -> String {
        let Self { registered, born, registered_in, changed_in, excluded, producers, batch } = self;
        format!(
            "registered {registered}, born {born}, object_registered {registered_in:?}, source_changed {changed_in:?}, \
             excluded {excluded:?}, producers {producers:?}, batch {batch}"
        )
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn told(e: impl std::error::Error) -> String {
    let cause = std::error::Error::source(&e).map(|s| format!(": {s}")).unwrap_or_default();
    format!("{e}{cause}")
}
