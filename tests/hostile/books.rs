//! The verdict about the suite's own tables: which rows are due under which definition, in SQL that shares nothing with the
//! product's own.
//!
//! Schema `verify` holds what happened. Every definition is noted with the moments when `sources apply` began and returned;
//! every row with the moment of its commit, before a truncation or a rewrite takes it away; every recording by a trigger, with
//! the moment when its transaction began. A row is known by its `code`, so two rows that bear one key after each other are
//! two rows, and each needs handoffs of its own.
//!
//! A batch is recorded under the definition that mapped it or not at all. So the definition that was in force when a signal was
//! recorded must ask for that signal, and all that it asks for must be recorded. Near the moment of a redefinition two may have
//! been in force, and no more. Definitions before the row's commit never count.
//!
//! A row without any signal is right only if a definition of its time or later leaves it out, and not one that came into force
//! when the row was already seen complete (`settled`). A source that is removed and registered again reads all its rows again,
//! except those that retention took.
//!
//! A signal that no rule asked for (`unmapped`) names its row by the key only, and is taken for any row that bore it.

use tokio_postgres::{Client, Error};

use crate::support::{connect, done, options, private_cluster};

/// Tables of the suite's own, each with another type of key.
pub const TABLES: [(&str, &str); 3] =
    [("hostile_notes", "int8"), ("hostile_uuids", "uuid"), ("hostile_texts", "text")];

const OPEN: &str = "
    create schema verify;
    create table verify.definition (
        source text, n int, began timestamptz not null, returned timestamptz, settled timestamptz not null,
        registered boolean not null, born boolean not null, registered_in text[] not null, changed_in text[] not null,
        excluded text[] not null, primary key (source, n));
    create table verify.row (
        source text, code text, key text not null, class text, committed timestamptz not null, poison boolean not null,
        gone boolean not null default false, primary key (source, code));
    create index on verify.row (source, key);
    create table verify.recorded (
        place text not null, source text, key text, kind text not null, object_ref text, at timestamptz not null default now(),
        n bigint generated always as identity);
    create index on verify.recorded (source, key);
    create table verify.retired (source text, key text, kind text, object_ref text, created_at timestamptz);
    create function verify.due(d verify.definition, p_class text) returns text[] language sql immutable as $$
        select case when not d.registered or p_class = any (d.excluded) then '{}'::text[]
               else coalesce(nullif(array_remove(array[
                        case when d.born then 'object_born' end,
                        case when p_class = any (d.registered_in) then 'object_registered' end,
                        case when p_class = any (d.changed_in) then 'source_changed' end], null), '{}'), array['unmapped'])
               end $$;
    create function verify.remember() returns trigger language plpgsql security definer set search_path = pg_catalog as $$
        begin
            if tg_op = 'DELETE' and tg_table_name = 'event_pending' then
                insert into verify.recorded (place, source, key, kind, object_ref)
                values ('released', old.capture_payload ->> 'source', old.capture_payload ->> 'source_key',
                        replace(old.event_type_hint, 'governance.handoff.', ''), old.capture_payload ->> 'object_ref');
            elsif tg_op = 'DELETE' then
                if old.event_domain = 'governance' and old.safe_payload ? 'source_key' then
                    insert into verify.retired values (old.safe_payload ->> 'source', old.safe_payload ->> 'source_key',
                        replace(old.event_type, 'governance.handoff.', ''), old.safe_payload ->> 'object_ref', old.created_at);
                end if;
            elsif tg_table_name = 'event_outbox' then
                insert into verify.recorded (place, source, key, kind, object_ref)
                values ('outbox', new.safe_payload ->> 'source', new.safe_payload ->> 'source_key',
                        replace(new.event_type, 'governance.handoff.', ''), new.safe_payload ->> 'object_ref');
            else
                insert into verify.recorded (place, source, key, kind, object_ref)
                values ('captured', new.capture_payload ->> 'source', new.capture_payload ->> 'source_key',
                        replace(new.event_type_hint, 'governance.handoff.', ''), new.capture_payload ->> 'object_ref');
            end if;
            return null;
        end $$;
    create trigger verify_retired after delete on event_outbox for each row execute function verify.remember();
    create trigger verify_recorded after insert on event_outbox for each row
        when (new.event_domain = 'governance' and new.safe_payload ? 'source_key') execute function verify.remember();
    create trigger verify_captured after insert on event_pending for each row
        when (new.event_domain = 'governance' and new.capture_payload ? 'source_key'
              and new.event_type_hint <> 'governance.handoff.retry') execute function verify.remember();
    -- A capture of an untrusted producer is released when the producer is trusted, and its row is handed off then: captured
    -- once more if its type is inactive. Retention takes only captures that were drained; those stay counted.
    create trigger verify_released after delete on event_pending for each row
        when (old.last_error = 'untrusted_source' and old.processed_at is null and old.capture_payload ? 'source_key')
        execute function verify.remember();
    create table hostile_notes (id bigint generated by default as identity primary key, code text not null, class text,
        producer text, agent text, padding varchar(100), born_at timestamptz default clock_timestamp());
    create table hostile_uuids (id uuid primary key default gen_random_uuid(), code text not null, class text,
        producer text, agent text, padding varchar(100), born_at timestamptz default clock_timestamp());
    create table hostile_texts (id text primary key, code text not null, class text,
        producer text, agent text, padding varchar(100), born_at timestamptz default clock_timestamp());";

/// Each row with the definition that was surely in force when it was committed, and from which on its rows were all read again
/// (`since`), unless retention took something of it.
const ROWS: &str = "
    select r.*, l.lo, greatest(l.lo, case when exists (select from verify.retired t where t.source = r.source and t.key = r.key)
                                          then 0 else g.again end) as since
      from verify.row r
     cross join lateral (select coalesce(max(d.n), 0) as lo from verify.definition d
                          where d.source = r.source and d.returned <= r.committed) l
     cross join lateral (select coalesce(max(d.n), 0) as again from verify.definition d
                           join verify.definition b on b.source = d.source and b.n = d.n - 1
                          where d.source = r.source and d.registered and not b.registered and b.began > r.committed) g";

/// Each signal of a row of the suite's own, when it was first recorded. What was captured is recorded, whenever it is drained.
const SIGNALS: &str = "
    select source, key, kind, object_ref, min(at) as at from verify.recorded
     where source like 'hostile\\_%' and place <> 'released' group by 1, 2, 3, 4";

/// Definitions that may have been in force at a moment: from when it was asked for until the next one was said to be.
const IN_FORCE: &str = "
    select d.source, d.n, d.began, d.settled, d.registered, d as says,
           (select min(x.returned) from verify.definition x where x.source = d.source and x.n > d.n) as until
      from verify.definition d";

pub async fn open(client: &Client) -> Result<(), Error> {
    client.batch_execute(OPEN).await
}

/// Notes the rows that a table has now. To be run under its lock before anything takes them away. A row whose commit has no
/// time would be due under no definition, so it is refused.
pub fn note(table: &str) -> String {
    format!(
        "insert into verify.row (source, code, key, class, committed, poison)
         select '{table}', left(code, 100), id::text, class, pg_xact_commit_timestamp(xmin), code like 'poison%'
           from {table} on conflict do nothing"
    )
}

/// Rows without the handoffs that the definition asks for which mapped them.
pub async fn missing(client: &Client, table: &str) -> Result<Vec<String>, Error> {
    client.batch_execute(&note(table)).await?;
    let sql = format!(
        "with r as materialized ({ROWS} where r.source = $1 and not r.gone),
              d as materialized ({IN_FORCE} where d.source = $1),
              had as materialized (select r.code, array_agg(distinct x.kind) as kinds, min(x.at) as first
                                     from ({SIGNALS}) x join r using (source, key)
                                    where x.object_ref = 'note:' || r.code or x.kind = 'unmapped' group by 1),
              -- Rows that some definition leaves out which may have mapped them.
              outside as materialized (select r.code from r where exists (
                    select from d where d.n >= r.since and d.registered and verify.due(d.says, r.class) = '{{}}'
                       and (d.n = r.lo or d.settled <= r.committed or r.since > r.lo))),
              heirs as materialized (select distinct r.code from r join verify.row o using (source, key) where o.code <> r.code)
         select format('%s %s (%s, class %s) committed %s under definition %s has %s since %s', r.source, left(r.key, 60), r.code,
                       r.class, r.committed, r.lo, coalesce(h.kinds, '{{}}'), h.first)
           from r left join had h using (code)
          where case when r.poison then h.kinds is null and not exists (select from outside o where o.code = r.code)
                  and not exists (select from event_pending p where p.event_type_hint = 'governance.handoff.retry'
                                     and p.capture_payload ->> 'source' = r.source and p.capture_payload ->> 'source_key' = r.key)
                  and not exists (select from iu_route_dead_letter l where l.route_code = r.source
                                     and (l.event_snapshot ->> 'source_key' = r.key or l.idempotency_key = r.source || ':' || r.key))
                when h.kinds is null then not exists (select from outside o where o.code = r.code)
                -- The key of another row: what that row has of the same kinds is taken for its own until a pass compares the two,
                -- under whatever definition is in force then.
                when exists (select from heirs where heirs.code = r.code) or 'unmapped' = any (h.kinds) then not exists (
                    select from d where d.n >= r.lo and d.registered and verify.due(d.says, r.class) <@ h.kinds)
                else not exists (
                    select from d where d.n >= r.lo and d.registered and d.began <= h.first
                       and (d.until is null or d.until >= h.first) and verify.due(d.says, r.class) <@ h.kinds) end
          order by r.committed limit 200"
    );
    Ok(client.query(&sql, &[&table]).await?.iter().map(|row| row.get(0)).collect())
}

/// Signals that are there twice, though one of them may have been retired, that no committed row accounts for, or that the
/// definition which was in force when they were recorded does not ask for.
pub async fn superfluous(client: &Client) -> Result<Vec<String>, Error> {
    for (table, _) in TABLES {
        client.batch_execute(&note(table)).await?;
    }
    let sql = format!(
        "with r as materialized ({ROWS}), d as materialized ({IN_FORCE}), had as materialized ({SIGNALS})
         select format('%s %s %s of %s was recorded twice: %s', kind, left(key, 60), object_ref, source,
                       string_agg(place || ' ' || at, ', ' order by n))
           from verify.recorded where source like 'hostile\\_%' group by source, key, kind, object_ref
         having count(*) filter (where place = 'outbox') > 1
             or count(*) filter (where place = 'captured') - count(*) filter (where place = 'released') > 1
             or max(n) filter (where place = 'captured') > min(n) filter (where place = 'outbox')
         union all
         select format('%s %s %s of %s has no committed row', h.kind, left(h.key, 60), left(h.object_ref, 100), h.source)
           from had h
          where not exists (select from r where r.source = h.source and r.key = h.key
                               and (r.poison or h.kind = 'unmapped' or 'note:' || r.code = h.object_ref))
         union all
         select format('%s %s %s of %s was recorded at %s, when no definition asked for it (the row is of definition %s)', h.kind,
                       left(h.key, 60), h.object_ref, h.source, h.at, r.lo)
           from had h join r on r.source = h.source and r.key = h.key and 'note:' || r.code = h.object_ref
          where not exists (select from d where d.source = r.source and d.n >= r.lo and h.kind = any (verify.due(d.says, r.class))
                               and d.began <= h.at and (d.until is null or d.until >= h.at))
         limit 200"
    );
    Ok(client.query(&sql, &[]).await?.iter().map(|row| row.get(0)).collect())
}

/// Seconds since the epoch when a row of a source that nobody acts on was committed, and when its first signal was recorded; now,
/// where there is none.
pub async fn unrelated(client: &Client) -> Result<Vec<(String, f64, f64)>, Error> {
    let sql = "
        with recorded as materialized (select source, key, min(at) as at from verify.recorded where place <> 'released' group by 1, 2),
        written as materialized (
            select 'birth_registry' as source, id::text as key, pg_xact_commit_timestamp(xmin) as at from birth_registry
            union all
            select 'registry_changelog', id::text, pg_xact_commit_timestamp(xmin) from registry_changelog
             where source_system is distinct from 'gov-handoff')
        select format('%s %s', w.source, w.key), extract(epoch from w.at)::float8,
               extract(epoch from coalesce(r.at, clock_timestamp()))::float8
          from written w left join recorded r using (source, key)";
    Ok(client.query(sql, &[]).await?.iter().map(|r| (r.get(0), r.get(1), r.get(2))).collect())
}

#[tokio::test]
async fn the_books_see_what_is_missing_twice_made_up_and_recorded_under_another_definition() {
    let settings = vec![("track_commit_timestamp".to_owned(), "on".to_owned())];
    let options = gov_handoff::embedded::ClusterOptions { settings, ..options() };
    let cluster = private_cluster(options).await;
    let url = cluster.url("postgres");
    done(&url, &["migrate"]).await;
    let client = connect(&url).await;
    open(&client).await.expect("books");
    let define = |n: i32, born: bool, excluded: &str| {
        format!(
            "insert into verify.definition values ('hostile_notes', {n}, clock_timestamp(), clock_timestamp(), '-infinity', true, {born}, \
             '{{a}}', '{{}}', '{{{excluded}}}')"
        )
    };
    let write = |id: i32, class: &str| {
        format!("insert into hostile_notes (id, code, class) values ({id}, 'n{id}', '{class}')")
    };
    let record = |id: i32, kind: &str| {
        format!(
            "insert into event_outbox (event_domain, event_type, event_stream, event_subject_table, event_subject_ref, canonical_address, \
                                       actor_ref, source_system, safe_payload)
             values ('governance', 'governance.handoff.{kind}', 'birth', 'hostile_notes', gen_random_uuid(), 'x', 'x', 'x', \
                     '{{\"source\": \"hostile_notes\", \"source_key\": \"{id}\", \"object_ref\": \"note:n{id}\"}}')"
        )
    };
    let told = async |kind: &str| {
        let lines = match kind {
            "missing" => missing(&client, "hostile_notes").await,
            _ => superfluous(&client).await,
        };
        lines.expect("the books").join("\n")
    };
    let play = async |sql: String| client.batch_execute(&sql).await.expect("sql");
    play(define(0, true, "x")).await;
    for (id, class) in [(1, "a"), (2, "b"), (3, "x")] {
        play(write(id, class)).await;
    }
    assert_eq!(told("missing").await.lines().count(), 2, "what is excluded is not missing");
    play(record(1, "object_born")).await;
    play(record(2, "object_born")).await;
    assert!(told("missing").await.contains("n1, class a"), "handed off in part");
    // Complete as another definition says, which came later and did not map it.
    play(define(1, false, "")).await;
    play(record(1, "object_registered")).await;
    assert_eq!((told("missing").await, told("superfluous").await), (String::new(), String::new()));
    play(write(4, "b")).await;
    play(record(4, "object_born")).await;
    assert!(told("superfluous").await.contains("no definition asked for it"), "under the definition before");
    play("delete from verify.recorded where key = '4'; delete from event_outbox where safe_payload ->> 'source_key' = '4'".to_owned()).await;
    play(record(9, "object_born")).await;
    assert!(told("superfluous").await.contains("has no committed row"));
    play(record(2, "object_born").replace("gen_random_uuid()", "'00000000-0000-0000-0000-000000000002'"))
        .await;
    assert!(told("superfluous").await.contains("was recorded twice"));
}
