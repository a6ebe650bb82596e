//! Attacks that succeeded once, each by the name of what it did. They come from definitions, roles, retention and keys; faults of
//! processes and servers are in `hostile`.

use std::collections::BTreeSet;
use std::path::Path;

use crate::support::{Database, active, cli, connect, done, migrated};

/// Signals about births, emitted ones.
const SIGNALS: &str = "select count(*) from event_outbox where event_domain = 'governance' and event_subject_table = 'birth_registry' and event_stream <> 'health'";

/// A role that may do what a careless administrator lets everybody do, and its session.
async fn intruder(registry: &Database) -> tokio_postgres::Client {
    let role = format!("intruder_{}", registry.name);
    registry.sql(&format!("create role {role} login; grant create on schema public to {role}")).await;
    let (_, place) = registry.url.split_once('@').expect("a user in the URL");
    connect(&format!("postgres://{role}@{place}")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_may_create_in_public_runs_nothing_as_the_gates_or_the_daemon() {
    let registry = active().await;
    let intruder = intruder(&registry).await;
    // Each would be preferred to what is meant if its schema were searched: by exact types where ours need a cast, or by name.
    let trap = "
        create table public.caught (who text, what text);
        grant insert on public.caught to public;
        create function public.trap(what text) returns void language plpgsql as
            $$ begin insert into public.caught values (current_user, what); end $$;
        create function public.times(bigint, interval) returns interval language plpgsql as
            $$ begin perform public.trap('operator *'); return $1::float8 operator(pg_catalog.*) $2; end $$;
        create operator public.* (leftarg = bigint, rightarg = interval, function = public.times);
        create function public.has(jsonb, jsonb) returns boolean language plpgsql as
            $$ begin perform public.trap('operator ?'); return true; end $$;
        create operator public.? (leftarg = jsonb, rightarg = jsonb, function = public.has);
        create function public.joined(text, uuid) returns text language plpgsql as
            $$ begin perform public.trap('operator ||'); return $1 || $2::text; end $$;
        create operator public.|| (leftarg = text, rightarg = uuid, function = public.joined);
        create function public.gov_config_number(text, int, int, int) returns bigint language plpgsql as
            $$ begin perform public.trap('gov_config_number'); return $2; end $$;
        create function public.gov_lease_fence(text, text, bigint) returns void language plpgsql as
            $$ begin perform public.trap('gov_lease_fence'); end $$;
        create function public.left(text, bigint) returns text language plpgsql as
            $$ begin perform public.trap('left'); return $1; end $$;
        create type public.interval_text as (x int);
        create table public.unnest (id int);";
    intruder.batch_execute(trap).await.expect("traps");
    for mode in ["poll", "stream"] {
        let daemon = registry.daemon(mode, &[("GOV_HANDOFF_CERTIFY_INTERVAL", "200ms")]);
        registry.until_mode(mode).await;
        registry.births(mode, 20).await;
        registry.until_all_handed_off().await;
        registry.until("select count(*) = 5 from v_governance_certificate").await;
        registry.sql("select fn_governance_watch(); select fn_governance_route_worker_health()").await;
        drop(daemon);
    }
    for arguments in [
        &["audit", "--full"][..],
        &["status"],
        &["doctor"],
        &["retire", "--before", "2100-01-01"],
        &["replay", "--source", "birth_registry", "--from", "0"],
    ] {
        let ran = cli(&registry.url, arguments).await;
        assert!((0..2).contains(&ran.code), "{arguments:?} did not run: {}{}", ran.out, ran.err);
    }
    let caught = registry.texts("select distinct what || ' as ' || who from public.caught").await;
    assert_eq!(caught, Vec::<String>::new());
}

/// Whoever owns a source owns its types and its name. A cast of such a type, or a view under that name, would run as the reader.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_owns_a_source_runs_nothing_as_the_daemon() {
    let registry = active().await;
    // What a sequence was asked for is not taken back with the transaction.
    registry
        .sql(
            "create sequence public.calls; create type public.mood as enum ('fine');
             create function public.tell(public.mood) returns text language plpgsql as
                 $$ begin perform nextval('public.calls'); return 'told'; end $$;
             create table public.owned (id int primary key, label public.mood);
             insert into public.owned values (1, 'fine')",
        )
        .await;
    let definition = std::env::temp_dir().join(format!("gov-handoff-owned-{}.toml", registry.name));
    let toml = "[[source]]\nname = \"owned\"\nid = { column = \"id\", type = \"int4\" }\ncolumns = [\"id\", \"label\"]\n
        [[source.rule]]\nkind = \"governance.handoff.object_born\"\nobject_type = \"{label}\"\nobject_ref = \"{label}:{id}\"
        group = [[\"object_class\", \"{label}\"]]\n";
    std::fs::write(&definition, toml).expect("a file");
    done(&registry.url, &["sources", "apply", definition.to_str().expect("a path")]).await;
    let _daemon = registry.daemon("poll", &[("GOV_HANDOFF_CERTIFY_INTERVAL", "200ms")]);
    let handed_off = "select exists (select from event_outbox where canonical_address = 'fine:";
    registry.until(&format!("{handed_off}1')")).await;
    registry
        .sql("create cast (public.mood as text) with function public.tell(public.mood); insert into public.owned values (2, 'fine')")
        .await;
    registry.until(&format!("{handed_off}2')")).await;
    registry
        .sql(
            "begin; alter table public.owned rename to was;
             create view public.owned as select id, (public.tell(label) || 'x')::text as label, xmin, ctid, tableoid from public.was; commit",
        )
        .await;
    let finding = "select exists (select from system_issues where coalesce_key = 'source_unreadable:owned' and resolved_at is null)";
    let called = "select count(*) from public.calls where is_called";
    assert_eq!(registry.number(called).await, 0, "by the cast");
    registry.until(finding).await;
    assert_eq!(registry.number(called).await, 0, "by the daemon");
    cli(&registry.url, &["audit", "--full"]).await;
    assert_eq!(registry.number(called).await, 0, "by the audit");
    // The replay gets as far as the source, and is refused there.
    let replay = cli(&registry.url, &["replay", "--source", "owned", "--from", "0"]).await;
    assert!(replay.code == 2 && !replay.err.contains("Usage"), "{}{}", replay.out, replay.err);
    let doctor = cli(&registry.url, &["doctor"]).await;
    assert!(doctor.code < 2, "{}{}", doctor.out, doctor.err);
    assert_eq!(registry.number(called).await, 0, "by a replay or the doctor");
    std::fs::remove_file(definition).expect("removed");
}

/// Every function of ours looks in the system's schema alone, or was parsed once and for all when it was made.
#[tokio::test]
async fn no_function_of_ours_searches_a_schema_that_others_may_write_to() {
    let registry = active().await;
    let loose = "select p.oid::regprocedure::text from pg_proc p
                  where (p.pronamespace in ('gov_handoff'::regnamespace, 'public'::regnamespace) or p.proowner = 'gov_handoff_owner'::regrole)
                    and p.prosqlbody is null
                    and not coalesce(p.proconfig @> array['search_path=pg_catalog, pg_temp'], false)";
    assert_eq!(registry.texts(loose).await, Vec::<String>::new());
    let writable = "select r.rolname::text from pg_roles r
                     where has_schema_privilege(r.oid, 'gov_handoff', 'create') and not r.rolsuper";
    assert_eq!(registry.texts(writable).await, Vec::<String>::new());
    let temporary = "select proname::text from pg_proc where pronamespace in ('gov_handoff'::regnamespace, 'public'::regnamespace)
                      and (prosrc ~* 'create\\s+(local\\s+)?temp' or prosrc like '%pg_temp.%' or prosrc ~ 'advisory')";
    assert_eq!(registry.texts(temporary).await, Vec::<String>::new());
}

/// In functions and in statements every table and function of ours is named with its schema.
#[tokio::test]
async fn every_name_in_our_sql_is_qualified() {
    let registry = active().await;
    let names = "select c.relname::text from pg_class c where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'v')
                  union select p.proname::text from pg_proc p where p.pronamespace = 'gov_handoff'::regnamespace";
    let names: BTreeSet<String> = registry.texts(names).await.into_iter().collect();
    assert!(names.len() > 80, "{names:?}");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut wrong = Vec::new();
    let mut files = 0;
    let mut folders: Vec<_> = ["migrations", "src/store/sql", "src/cli/demo/sql", "src/cli/selftest/sql"]
        .map(|f| root.join(f))
        .into();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            files += 1;
            let text = std::fs::read_to_string(&path).expect("sql");
            for line in text.lines().filter(|line| !line.trim_start().starts_with("--")) {
                // What a comment on an object says is prose.
                let said = line.starts_with("comment on ").then(|| line.split_once(" is '")).flatten();
                let line = said.map_or(line, |(object, _)| object);
                wrong.extend(
                    unqualified(line, &names)
                        .map(|name| format!("{}: {name}: {}", path.display(), line.trim())),
                );
            }
        }
    }
    assert!(files > 150, "only {files} files of SQL were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Names that stand where a table or function is meant, without a schema: after a word that wants a table, or before a parenthesis.
fn unqualified<'l>(line: &'l str, names: &'l BTreeSet<String>) -> impl Iterator<Item = &'l str> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let starts = line.char_indices().filter(move |(at, c)| {
        is_part(*c) && !line[..*at].ends_with(|p: char| is_part(p) || p == '.' || p == '\'' || p == '"')
    });
    starts.filter_map(move |(at, _)| {
        let word = &line[at..];
        let word = &word[..word.find(|c: char| !is_part(c)).unwrap_or(word.len())];
        let before = line[..at].trim_end();
        let wants = ["from", "join", "into", "update", "using", "table"].iter().any(|w| before.ends_with(w));
        let calls = line[at + word.len()..].starts_with('(')
            && !before.ends_with("into")
            && !before.ends_with("function");
        (names.contains(word) && (wants || calls)).then_some(word)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_cannot_become_the_owner_by_a_temporary_table() {
    let registry = active().await;
    registry.births("b", 10).await;
    done(&registry.url, &["run", "--once", "--mode", "poll"]).await;
    done(&registry.url, &["audit", "--full"]).await;
    let role = format!("operator_{}", registry.name);
    registry
        .sql(&format!(
            "create role {role} login in role gov_handoff_operator; grant create on schema public to {role};
             create table public.caught (who text); grant insert on public.caught to public"
        ))
        .await;
    let (_, place) = registry.url.split_once('@').expect("a user in the URL");
    let operator = connect(&format!("postgres://{role}@{place}")).await;
    let trap = "
        create temp table gov_retired (id uuid, source text, number bigint, whole boolean);
        create function public.spring() returns trigger language plpgsql as
            $$ begin insert into public.caught values (current_user); return new; end $$;
        create trigger spring before insert or update on gov_retired for each row execute function public.spring();
        grant all on gov_retired to public";
    operator.batch_execute(trap).await.expect("a trap");
    let retire = "select gov_handoff.gov_outbox_retire('gov_handoff_intake', clock_timestamp(), 100)";
    let retired: i64 = operator.query_one(retire, &[]).await.expect("retired").get(0);
    assert!(retired > 0);
    assert_eq!(registry.number("select count(*) from public.caught").await, 0);
}

/// Every name that a gate looks up could also be a temporary object of its caller: a table with a trigger, a function, a type.
#[tokio::test(flavor = "multi_thread")]
async fn no_gate_of_an_operator_touches_what_the_operator_made_temporarily() {
    let registry = active().await;
    registry.births("b", 10).await;
    done(&registry.url, &["run", "--once", "--mode", "poll"]).await;
    done(&registry.url, &["audit", "--full"]).await;
    let role = format!("operator_{}", registry.name);
    registry
        .sql(&format!(
            "create role {role} login in role gov_handoff_operator; grant create on schema public to {role};
             create table public.caught (who text, what text); grant insert on public.caught to public"
        ))
        .await;
    let operator = connect(&registry.url_as(&role)).await;
    // Of the names of every table, and of those in the system's schema that gates read.
    let traps = "
        create function public.spring() returns trigger language plpgsql as
            $$ begin insert into public.caught values (current_user, tg_relid::regclass::text); return new; end $$;
        create function public.told(what text) returns text language plpgsql as
            $$ begin insert into public.caught values (current_user, what); return what; end $$;
        do $do$
        declare t text;
        begin
            for t in select c.relname from pg_class c
                      where c.relkind in ('r', 'v') and c.relname <> 'caught'
                        and (c.relnamespace in ('public'::regnamespace, 'gov_handoff'::regnamespace)
                             or c.relname in ('pg_class', 'pg_proc', 'pg_attribute', 'pg_roles', 'pg_stat_activity', 'pg_locks'))
            loop
                execute format('create temp table %I (x int default public.told(''x'')::int)', t);
                execute format('create trigger spring before insert or update or delete on pg_temp.%I
                                for each row execute function public.spring()', t);
                execute format('grant all on pg_temp.%I to public', t);
            end loop;
        end $do$;
        create function pg_temp.gov_lease_fence(text, text, bigint) returns void language sql as $$ select public.told('fence') $$;
        create function pg_temp.clock_timestamp() returns timestamptz language sql as $$ select public.told('clock')::timestamptz $$;
        create function pg_temp.now() returns timestamptz language sql as $$ select public.told('now')::timestamptz $$;
        create type pg_temp.jsonb as (x int);
        create domain pg_temp.timestamptz as text check (public.told('domain') is null);
        create domain pg_temp.uuid as text check (public.told('domain') is null)";
    operator.batch_execute(traps).await.expect("traps");
    let put = "select gov_handoff.gov_source_put(worker_name, source_name, metadata || '{\"trust\": {\"producers\": [\"q\"]}}', -2147483648, 2147483647)
                 from public.gov_worker_cursor where source_name = 'birth_registry' and metadata operator(pg_catalog.?) 'id'";
    for gate in [
        "select gov_handoff.gov_type_set_active('governance.handoff.object_born', false)",
        "select gov_handoff.gov_type_set_active('governance.handoff.object_born', true)",
        "select gov_handoff.gov_handoff_drain(null, null, null, 'governance.handoff.object_born', 10)",
        put,
        "select gov_handoff.gov_trust_set('gov_handoff_intake', 'birth_registry', 'p', true, 'me')",
        "select gov_handoff.gov_outbox_retire('gov_handoff_intake', pg_catalog.clock_timestamp(), 100)",
        "select gov_handoff.gov_pending_retire(pg_catalog.clock_timestamp(), 100)",
        "select gov_handoff.gov_notices_retire(pg_catalog.clock_timestamp(), 100)",
        "select gov_handoff.gov_dead_letter_lease('me', interval '1 minute')",
        "select gov_handoff.gov_dead_letter_resolve('{}', 'discarded', 'why', 'me')",
        "select gov_handoff.gov_worker_pause('gov_handoff_intake', true, 'me', 'why')",
        "select public.fn_governance_watch()",
        "select public.fn_governance_route_worker_health()",
    ] {
        operator.batch_execute(gate).await.unwrap_or_else(|e| panic!("{gate}: {e:?}"));
    }
    assert_eq!(
        registry.texts("select distinct what || ' as ' || who from public.caught").await,
        Vec::<String>::new()
    );
    assert_eq!(registry.number(SIGNALS).await, 0, "what was to be retired is retired");
    assert_eq!(registry.number("select count(*) from public.gov_worker_control where paused").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_retired_is_not_emitted_again_by_a_slot_that_stood_behind() {
    let registry = active().await;
    done(&registry.url, &["replication", "setup"]).await;
    registry.births("b", 20).await;
    done(&registry.url, &["run", "--once", "--mode", "poll"]).await;
    done(&registry.url, &["audit", "--full"]).await;
    let before = registry.number(SIGNALS).await;
    assert!(before >= 20);
    let generation = "select coalesce(sum(generation), 0)::bigint from gov_candidate_group";
    let marks = registry.number(generation).await;
    done(&registry.url, &["retire", "--before", "2100-01-01"]).await;
    assert_eq!(registry.number(SIGNALS).await, 0);
    // The slot still has all of them.
    done(&registry.url, &["run", "--once", "--mode", "stream"]).await;
    assert_eq!(
        (registry.number(SIGNALS).await, registry.number(generation).await),
        (0, marks),
        "by the stream"
    );
    // And so do open ranges, as after streaming, an audit and `retire`.
    registry
        .sql(
            "delete from gov_worker_gap where source_name = 'birth_registry';
              insert into gov_worker_gap (worker_name, source_name, lo, hi)
              values ('gov_handoff_intake', 'birth_registry', -2147483648, 2147483647)",
        )
        .await;
    done(&registry.url, &["run", "--once", "--mode", "poll"]).await;
    assert_eq!(
        (registry.number(SIGNALS).await, registry.number(generation).await),
        (0, marks),
        "by the ranges"
    );
    done(&registry.url, &["audit", "--full", "--check"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_retired_is_not_drained_from_a_capture_that_stayed_open() {
    let registry = migrated().await;
    registry.births("b", 5).await;
    done(&registry.url, &["run", "--once", "--mode", "poll"]).await;
    let waiting =
        "select count(*) from event_pending where processed_at is null and capture_payload ? 'source_key'";
    assert!(registry.number(waiting).await >= 5, "captured while the types are inactive");
    // The types are activated. Before anything is drained, the rows come again and are emitted.
    registry.sql("update event_type_registry set active = true where event_domain = 'governance'").await;
    registry
        .sql(
            "delete from gov_worker_gap where source_name = 'birth_registry';
             insert into gov_worker_gap (worker_name, source_name, lo, hi)
             values ('gov_handoff_intake', 'birth_registry', -2147483648, 2147483647);
             update event_pending set last_error = 'held' where processed_at is null and capture_payload ? 'source_key'",
        )
        .await;
    done(&registry.url, &["run", "--once", "--mode", "poll"]).await;
    let before = registry.number(SIGNALS).await;
    assert!(before >= 5, "emitted from the table");
    let audit = cli(&registry.url, &["audit", "--full"]).await;
    assert_eq!(audit.code, 1, "both places are noticed: {}", audit.out);
    done(&registry.url, &["retire", "--before", "2100-01-01"]).await;
    assert_eq!(registry.number(SIGNALS).await, 0);
    registry.sql("update event_pending set last_error = null where last_error = 'held'").await;
    let drain = "select sum(d.moved)::bigint from event_type_registry t,
                        lateral gov_handoff.gov_handoff_drain(null, null, null, t.event_type, 1000) d where t.event_domain = 'governance'";
    registry.number(drain).await;
    assert_eq!(registry.number(SIGNALS).await, 0, "no signal is emitted a second time");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_a_definition_that_is_no_longer_in_force_is_not_kept() {
    let registry = active().await;
    registry.births("b", 3).await;
    done(&registry.url, &["run", "--once", "--mode", "poll"]).await;
    let settings =
        [("GOV_HANDOFF_CERTIFY_INTERVAL", "100ms"), ("GOV_HANDOFF_FAILPOINT", "before_certificate:1:stop")];
    let daemon = registry.daemon("poll", &settings);
    daemon.stops().await;
    let latest = "select coalesce(string_agg(last_run_summary #>> '{certificate,taken_at}', ',' order by source_name), '')
                    from gov_worker_cursor where metadata ? 'id'";
    let before = registry.text(latest).await;
    registry
        .sql(
            "select gov_handoff.gov_source_put(worker_name, source_name,
                 jsonb_set(metadata, '{rule,0,kind}', '\"governance.handoff.count_changed\"'), -2147483648, 2147483647)
               from gov_worker_cursor where metadata ? 'id' and metadata #>> '{id,type}' = 'int4'",
        )
        .await;
    daemon.signal("CONT");
    registry
        .until(
            "select exists (select from event_outbox where event_type = 'governance.handoff.count_changed')",
        )
        .await;
    // The gate refuses the certificate; nothing else of this daemon was under way.
    daemon.says("a source was redefined, reading it again").await;
    registry.until(&format!("select ({latest}) <> '{before}'")).await;
    assert_ne!(registry.text(latest).await, before, "the pass was made again, and certified");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_was_mapped_before_a_definition_changed_is_mapped_again() {
    for mode in ["poll", "stream"] {
        let registry = active().await;
        let daemon = registry.capturing(mode, "1h").await;
        registry.births("before", 1).await;
        registry.until_all_handed_off().await;
        // Batches wait while a definition is put in force: what waits was mapped by the one before.
        let operator = connect(&registry.url).await;
        operator
            .batch_execute("begin; lock table gov_handoff.batches in access exclusive mode")
            .await
            .expect("a lock");
        registry.births("between", 1).await;
        let waits = "select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
                                       and application_name like 'gov-handoff%writer%')";
        registry.until(waits).await;
        let put = "select gov_handoff.gov_source_put(worker_name, source_name,
                       jsonb_set(metadata, '{rule,0,kind}', '\"governance.handoff.count_changed\"'), -2147483648, 2147483647)
                     from gov_worker_cursor where source_name = 'birth_registry' and metadata ? 'id'";
        operator.batch_execute(put).await.expect("redefined");
        operator.batch_execute("commit").await.expect("in force");
        registry
            .until("select exists (select from event_outbox where canonical_address = 'c1:between1')")
            .await;
        let kinds = registry
            .texts("select event_type from event_outbox where canonical_address = 'c1:between1'")
            .await;
        assert_eq!(kinds, ["governance.handoff.count_changed"], "{mode}");
        drop(daemon);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn births_that_take_the_ids_of_others_have_handoffs_of_their_own() {
    for mode in ["poll", "stream"] {
        let registry = active().await;
        let daemon = registry.daemon(mode, &[("GOV_HANDOFF_CERTIFY_INTERVAL", "300ms")]);
        registry.until_mode(mode).await;
        registry.births("first", 10).await;
        registry.until(&format!("select ({SIGNALS}) = 13")).await;
        registry.sql("truncate birth_registry restart identity").await;
        registry.births("reborn", 10).await;
        registry.until(&format!("select ({SIGNALS}) = 26")).await;
        let reborn = "select count(*) from event_outbox where safe_payload ->> 'object_ref' like '%:reborn%'";
        assert_eq!(registry.number(reborn).await, 13, "{mode}");
        registry.until("select exists (select from system_issues where coalesce_key = 'row_replaced:birth_registry')",
        )
        .await;
        let audit = cli(&registry.url, &["audit", "--full"]).await;
        assert_eq!(audit.code, 0, "{mode}: {}", audit.out);
        assert_eq!(registry.number(SIGNALS).await, 26, "{mode}: nothing twice");
        drop(daemon);
    }
}

/// The books corrupted by hand: a signal that is another row's. The audit says so and the row gets one of its own.
#[tokio::test(flavor = "multi_thread")]
async fn an_audit_notices_that_a_signal_is_about_another_row() {
    let registry = active().await;
    registry.births("b", 5).await;
    done(&registry.url, &["run", "--once", "--mode", "poll"]).await;
    done(&registry.url, &["audit", "--full"]).await;
    registry
        .sql(
            "update event_outbox set safe_payload = safe_payload || '{\"object_ref\": \"c9:somebody else\"}'
               where safe_payload ->> 'object_ref' = 'c2:b2'",
        )
        .await;
    let check = cli(&registry.url, &["audit", "--full", "--check"]).await;
    assert_eq!(check.code, 1, "{}", check.out);
    cli(&registry.url, &["audit", "--full"]).await;
    let own = "select count(*) from event_outbox where safe_payload ->> 'object_ref' = 'c2:b2'";
    assert_eq!(registry.number(own).await, 1);
    done(&registry.url, &["audit", "--full"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn advisory_locks_of_anybody_stop_no_handoff() {
    let registry = active().await;
    let intruder = intruder(&registry).await;
    let locks = "select pg_advisory_lock(6748001, n) from generate_series(0, 9) n; select pg_advisory_lock(6748002, n) from generate_series(0, 9) n";
    intruder.batch_execute(locks).await.expect("locks");
    let _daemon = registry.capturing("poll", "1h").await;
    registry.births("b", 10).await;
    registry.until_all_handed_off().await;
    for table in ["batches", "definitions"] {
        let lock = format!("begin; lock table gov_handoff.{table} in access share mode");
        assert!(intruder.batch_execute(&lock).await.is_err(), "{table}");
        intruder.batch_execute("rollback").await.expect("rolled back");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renamed_table_that_is_registered_again_is_recognised() {
    let registry = active().await;
    registry.births("b", 40).await;
    done(&registry.url, &["run", "--once", "--mode", "poll"]).await;
    let before = registry.number(SIGNALS).await;
    registry
        .sql("alter table birth_registry rename to born;
              select gov_handoff.gov_source_put(worker_name, source_name, metadata || '{\"table\": \"born\"}', -2147483648, 2147483647)
                from gov_worker_cursor where source_name = 'birth_registry' and metadata ? 'id';
              delete from gov_worker_gap where source_name = 'birth_registry';
              insert into gov_worker_gap (worker_name, source_name, lo, hi)
              values ('gov_handoff_intake', 'birth_registry', -2147483648, 2147483647)")
        .await;
    done(&registry.url, &["run", "--once", "--mode", "poll"]).await;
    let staged = "select count(*) from event_pending where event_type_hint = 'governance.handoff.retry'";
    let letters = "select count(*) from iu_route_dead_letter";
    assert_eq!((registry.number(staged).await, registry.number(letters).await), (0, 0));
    let signals = "select count(*) from event_outbox where event_domain = 'governance' and safe_payload ->> 'source' = 'birth_registry'";
    assert_eq!(registry.number(signals).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_took_the_key_of_one_that_still_waits_is_handed_off_once() {
    for mode in ["poll", "stream"] {
        let registry = active().await;
        registry
            .sql("select gov_handoff.gov_source_put(worker_name, source_name, metadata || '{\"trust\": {\"producers\": [\"good\"]}}', -2147483648, 2147483647)
                    from gov_worker_cursor where source_name = 'birth_registry' and metadata ? 'id'")
            .await;
        let daemon = registry.daemon(mode, &[("GOV_HANDOFF_CERTIFY_INTERVAL", "300ms")]);
        registry.until_mode(mode).await;
        let birth = |code: &str, producer: &str| {
            format!(
                "insert into birth_registry (entity_code, collection_name, source_system) values ('{code}', 'c', '{producer}')"
            )
        };
        registry.sql(&birth("old", "bad")).await;
        registry
            .until("select exists (select from event_pending where last_error = 'untrusted_source')")
            .await;
        registry.sql(&format!("truncate birth_registry restart identity; {}", birth("new", "good"))).await;
        let signals = "select count(*) from event_outbox where safe_payload ->> 'object_ref' = 'c:new'";
        registry.until(&format!("select ({signals}) > 0")).await;
        registry.sql(&birth("next", "good")).await;
        let certified = "select exists (select from gov_worker_cursor where source_name = 'birth_registry' \
                         and (last_run_summary #>> '{certificate,taken_at}')::timestamptz > ";
        let now = registry.text("select clock_timestamp()::text").await;
        registry.until(&format!("{certified} '{now}')")).await;
        assert_eq!(registry.number(signals).await, 1, "{mode}");
        // The capture of the row that is gone is tried again, by its key, which is the new row's.
        done(&registry.url, &["trust", "grant", "--source", "birth_registry", "--producer", "bad"]).await;
        let waiting = |what: &str| {
            format!("select not exists (select from event_pending where processed_at is null and {what})")
        };
        registry.until(&waiting("last_error = 'untrusted_source'")).await;
        registry.until(&waiting("event_type_hint = 'governance.handoff.retry'")).await;
        assert_eq!(registry.number(signals).await, 1, "{mode}: after the capture was promoted");
        drop(daemon);
        cli(&registry.url, &["audit", "--full"]).await;
        assert_eq!(registry.number(signals).await, 1, "{mode}: after an audit");
    }
}
