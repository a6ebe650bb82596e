//! What the hostile operator does to the suite's own tables, in plain SQL: rename, truncate, rewrite, swap, row security,
//! privileges, columns, rows that cannot be handed off, locks, migrations of Birth's table and held transactions. And the
//! writers of these tables.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio_postgres::Client;

use super::books::{TABLES, note};
use super::operators::{Operators, Outcome, told};
use crate::support::Random;

pub const ACTS: [&str; 12] = [
    "rename",
    "truncate",
    "rewrite",
    "swap",
    "row-security",
    "privileges",
    "columns",
    "poison",
    "locks",
    "migration",
    "replication",
    "held",
];

/// The role that the daemon has; its privileges on the suite's own tables come and go.
pub const DAEMON: &str = "hostile_daemon";

pub async fn act(operators: &Operators, what: &str, table: usize, random: &mut Random) -> Outcome {
    let name = TABLES[table].0;
    let client = operators.session().await?;
    // An act that waits for somebody gives way: writers must not queue behind it for long.
    client.batch_execute("set lock_timeout = '400ms'").await.map_err(told)?;
    let pause = Duration::from_millis(random.between(10, 450));
    let run = async |sql: String| client.batch_execute(&sql).await.map_err(told);
    match what {
        "rename" => {
            run(format!("alter table {name} rename to {name}_away")).await?;
            tokio::time::sleep(pause).await;
            operators.insist(&rename_back(name)).await
        }
        "truncate" => truncate(operators, &client, table, random).await,
        "rewrite" => {
            drop(operators.settle(table).await);
            let size = random.between(100, 4_000);
            if random.percent(50) {
                return run(format!("vacuum full {name}")).await;
            }
            run(format!(
                "begin; lock table {name} in access exclusive mode; {}; alter table {name} alter padding type varchar({size}) \
                 using padding || ''; commit",
                note(name)
            ))
            .await
        }
        "swap" => swap(&client, name, TABLES[table].1).await,
        "row-security" => {
            run(format!("alter table {name} enable row level security, force row level security")).await?;
            tokio::time::sleep(pause).await;
            operators.insist(&open_rows(name)).await
        }
        "privileges" => {
            run(format!(
                "revoke select on {name} from {DAEMON}; grant select (id, code) on {name} to {DAEMON}"
            ))
            .await?;
            tokio::time::sleep(pause).await;
            operators.insist(&grant(name)).await
        }
        "columns" => {
            let extra = format!("extra_{}", random.between(0, 999_999));
            let named = random.pick(&["agent", "born_at"]);
            let change = match random.between(0, 2) {
                0 => format!("add column {extra} text default 'x'"),
                // Columns that the definition names: the source cannot be read until they are back, nor is it published.
                1 => format!("rename column {named} to {named}_away"),
                _ => "drop column agent cascade".to_owned(),
            };
            let began = std::time::SystemTime::now();
            run(format!("alter table {name} {change}")).await?;
            tokio::time::sleep(pause).await;
            let back = format!("alter table {name} drop column if exists {extra}; {}", columns_back(name));
            let back = operators.insist(&back).await;
            if change.contains("cascade") {
                // The table fell out of the publication, and so the stream ends.
                operators.delayed_since(began);
            }
            back
        }
        "poison" => {
            let code = format!("poison-{:x}", random.next());
            let contents = "'{\"password\": \"x\"}'";
            // Where the encoding has it, a byte that is no character of UTF-8; computed, so that no other server tries it.
            let byte = "convert_from(decode(format('8%s', 1), 'hex'), 'SQL_ASCII')";
            let (code, agent) = match random.between(0, 2) {
                0 => (format!("'{code}-' || repeat('x', 1100000)"), "'w'".to_owned()),
                1 => (format!("'{code}'"), contents.to_owned()),
                _ => (
                    format!("'{code}'"),
                    format!("case when getdatabaseencoding() = 'WIN1252' then {byte} else {contents} end"),
                ),
            };
            run(format!(
                "insert into hostile_notes (code, class, producer, agent) values ({code}, 'a', 'p1', {agent})"
            ))
            .await
        }
        "locks" => {
            let table = random.pick(&[name, name, "registry_changelog", "birth_registry"]);
            if random.percent(20) {
                return nobody(&client, seconds_of(pause)).await;
            }
            let mode = random.pick(&[
                "access share",
                "share",
                "share row exclusive",
                "exclusive",
                "access exclusive",
            ]);
            let seconds = seconds_of(pause);
            if random.percent(30) {
                let rows = format!("select from {name} limit 50 for update");
                return run(format!("begin; {rows}; select pg_sleep({seconds}); commit")).await;
            }
            let began = std::time::SystemTime::now();
            let held =
                run(format!("begin; lock table {table} in {mode} mode; select pg_sleep({seconds}); commit"))
                    .await;
            if table != name {
                operators.delayed_since(began);
            }
            held
        }
        "migration" => {
            // Whoever migrates Birth's table waits for its readers, and every birth waits behind the migration.
            // In one transaction, because what it waits for may be a prepared one, which ends with the round.
            let began = std::time::SystemTime::now();
            let migrated = run("set lock_timeout = '8s'; begin; \
                 alter table birth_registry add constraint hostile check (entity_code is not null) not valid; \
                 alter table birth_registry drop constraint hostile; commit"
                .to_owned())
            .await;
            operators.delayed_since(began);
            migrated
        }
        "replication" => {
            let began = std::time::SystemTime::now();
            run(format!("alter role {DAEMON} noreplication")).await?;
            // A session that streams keeps what it was allowed when it began.
            let end = "select pg_terminate_backend(active_pid) from pg_replication_slots where active_pid is not null";
            let ended = run(end.to_owned()).await;
            tokio::time::sleep(pause).await;
            operators.insist(&format!("alter role {DAEMON} replication")).await?;
            operators.delayed_since(began);
            ended
        }
        _ => {
            // A snapshot, an xid and a lock on a row, for longer than any lane waits.
            let seconds = random.between(500, 2_500);
            run(format!(
                "begin isolation level repeatable read; select count(*) from {name}; create temp table held (a int) on commit drop; \
                 select pg_sleep({seconds} / 1000.0); commit"
            ))
            .await
        }
    }
}

fn seconds_of(pause: Duration) -> f64 {
    pause.as_secs_f64()
}

/// Every table and advisory lock that a role without any privilege can take, each in the strongest mode it is allowed.
async fn nobody(client: &Client, seconds: f64) -> Outcome {
    let sql = format!(
        "set role hostile_nobody;
         do $$
         declare t record; m text;
         begin
             for t in select c.oid::regclass as name from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
                       where c.relkind in ('r', 'p', 'v') and n.nspname in ('public', 'gov_handoff') loop
                 foreach m in array array['access exclusive', 'share', 'row exclusive', 'row share', 'access share'] loop
                     begin
                         execute format('lock table %s in %s mode nowait', t.name, m);
                         raise exception 'a role without privileges took % in % mode', t.name, m using errcode = 'ZZ000';
                     exception when insufficient_privilege or lock_not_available or wrong_object_type then null;
                     end;
                 end loop;
             end loop;
             perform pg_advisory_xact_lock_shared(n) from generate_series(0, 50) n;
             perform pg_sleep({seconds});
         end $$;
         reset role"
    );
    client.batch_execute(&sql).await.map_err(told)
}

/// Takes all rows away; new ones take their keys, in the same transaction or after it.
async fn truncate(operators: &Operators, client: &Client, table: usize, random: &mut Random) -> Outcome {
    let name = TABLES[table].0;
    // Rows that go before they were handed off are nobody's loss but the table's.
    if random.percent(70) {
        drop(operators.settle(table).await);
    }
    let (code, many) = (format!("t{:x}", random.next()), random.between(2, 12));
    let again = match TABLES[table].1 {
        "int8" => format!(
            "insert into {name} (code, class, producer, agent) select '{code}-' || i, 'abcx'::char(4)::text, 'p1', 'w' \
             from generate_series(1, {many}) i"
        ),
        _ => format!(
            "insert into {name} (id, code, class, producer, agent) select key, '{code}-' || row_number() over (), 'a', 'p1', 'w' from taken"
        ),
    }
    .replace("'abcx'::char(4)::text", "(array['a', 'b', 'c', 'x'])[1 + i % 4]");
    let keep = format!("create temp table taken on commit drop as select id as key from {name} limit {many}");
    let sql = format!(
        "begin; lock table {name} in access exclusive mode; {}; {keep}; \
         update verify.row set gone = true where source = '{name}' and not gone; \
         truncate {name} restart identity; {again}; commit",
        note(name)
    );
    client.batch_execute(&sql).await.map_err(told)
}

/// Another table with the same rows takes its place.
async fn swap(client: &Client, name: &str, id: &str) -> Outcome {
    let identity = if id == "int8" {
        format!(
            "alter table {name} alter id add generated by default as identity; \
                 select setval(pg_get_serial_sequence('{name}', 'id'), coalesce((select max(id) from {name}), 0) + 1, false);"
        )
    } else {
        String::new()
    };
    let default = if id == "uuid" {
        format!("alter table {name} alter id set default gen_random_uuid();")
    } else {
        String::new()
    };
    let sql = format!(
        "begin; lock table {name} in access exclusive mode; {};
         alter table {name} rename to {name}_old;
         create table {name} (id {id} primary key, code text not null, class text, producer text, agent text, padding varchar(4000),
                              born_at timestamptz default clock_timestamp());
         insert into {name} (id, code, class, producer, agent, padding, born_at)
         select id, code, class, producer, agent, padding, born_at from {name}_old;
         drop table {name}_old; {identity} {default} alter table {name} owner to {DAEMON}; commit",
        note(name)
    );
    client.batch_execute(&sql).await.map_err(told)
}

fn rename_back(name: &str) -> String {
    format!(
        "do $$ begin if to_regclass('public.{name}') is null then alter table {name}_away rename to {name}; end if; end $$"
    )
}

fn columns_back(name: &str) -> String {
    let renamed = ["agent", "born_at"].map(|column| {
        format!(
            "if exists (select from pg_attribute where attrelid = '{name}'::regclass and attname = '{column}_away' and not attisdropped) then
                 alter table {name} rename column {column}_away to {column}; end if;"
        )
    });
    format!("do $$ begin {} end $$; alter table {name} add column if not exists agent text", renamed.concat())
}

fn open_rows(name: &str) -> String {
    format!("alter table {name} disable row level security, no force row level security")
}

fn grant(name: &str) -> String {
    format!(
        "grant all on {name} to {DAEMON}; revoke select (id, code) on {name} from {DAEMON}; grant all on {name} to {DAEMON}"
    )
}

/// Everything as it was at first, whatever an act that failed has left.
pub async fn undo(operators: &Operators) {
    for (name, _) in TABLES {
        for sql in [rename_back(name), columns_back(name), open_rows(name), grant(name)] {
            operators.insist(&sql).await.expect("the table is as it was");
        }
    }
    let role = format!("alter role {DAEMON} replication");
    operators.insist(&role).await.expect("the role is as it was");
}

/// The locks that gates of an earlier version took, held by a role that may nothing else.
pub async fn hold_advisory_locks(operators: Arc<Operators>, stop: Arc<AtomicBool>) {
    let locks = "set role hostile_nobody; select pg_advisory_lock(6748001, n) from generate_series(1, 3) n;
                 select pg_advisory_lock(6748002, n) from generate_series(0, 20) n";
    let mut session: Option<Client> = None;
    while !stop.load(Ordering::Relaxed) {
        if session.as_ref().is_none_or(Client::is_closed) {
            session = operators.session().await.ok();
            if let Some(client) = &session {
                let _ = client.batch_execute(locks).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Rows of every class and producer, in short and in held transactions, over as many connections as it takes.
pub async fn write(operators: Arc<Operators>, place: [u64; 2], stop: Arc<AtomicBool>) {
    let mut random = Random::at(operators.seed, place);
    let mut session: Option<Client> = None;
    while !stop.load(Ordering::Relaxed) {
        if session.as_ref().is_none_or(Client::is_closed) {
            session = operators.session().await.ok();
        }
        let table = usize::try_from(random.between(0, 2)).unwrap_or(0);
        let rows: Vec<_> = (0..random.between(1, 5)).map(|_| row(table, &mut random)).collect();
        let columns = if TABLES[table].1 == "int8" { "" } else { "id, " };
        let insert = format!(
            "insert into {} ({columns}code, class, producer, agent) values {}",
            TABLES[table].0,
            rows.join(", ")
        );
        let held = if random.percent(20) { random.between(20, 600) } else { 0 };
        if let Some(client) = &session {
            let _writing = operators.gate(table).await;
            let sql =
                format!("set lock_timeout = '2s'; begin; {insert}; select pg_sleep({held} / 1000.0); commit");
            if client.batch_execute(&sql).await.is_err() {
                session = None;
            }
        }
        tokio::time::sleep(Duration::from_millis(random.between(5, 80))).await;
    }
}

fn row(table: usize, random: &mut Random) -> String {
    let code = format!("n{:x}", random.next());
    let (class, producer) = (random.pick(&["a", "b", "c", "x"]), random.pick(&["p1", "p2", "p3"]));
    let key = match TABLES[table].1 {
        "int8" => String::new(),
        "uuid" => "gen_random_uuid(), ".to_owned(),
        _ => format!("{}, ", awkward(random)),
    };
    format!("({key}'{code}', '{class}', '{producer}', 'w')")
}

/// Text keys that a composed name or a careless quotation would confuse.
fn awkward(random: &mut Random) -> String {
    let stem = format!("{:x}", random.next() % 100_000_000);
    match random.between(0, 8) {
        0 => format!("'{stem}:object_born'"),
        1 => format!("'hostile_texts:{stem}'"),
        2 => format!("'{stem}%_%'"),
        3 => format!("'{stem}' || chr(31) || 'governance.handoff.object_born'"),
        4 => format!("'{stem}''\"`$$;--'"),
        5 => format!("'{stem}' || repeat('long ', 200)"),
        6 => format!("' {stem} ' || chr(10) || chr(9) || '\\n'"),
        7 => format!("'{stem}' || chr(31)"),
        _ => format!("'{stem}'"),
    }
}
