//! `exclude` means what the rules say, on every path. The server is asked to compare text only, and answers as the rules do.

use crate::support::sources::{register, rule, source};
use crate::support::{Database, Random, active, seed, until};
use gov_handoff::config::{Given, Target};
use gov_handoff::core::definition::{ColumnTest, SourceDefinition, SourceFile};
use gov_handoff::core::handoff::{Mapped, Source};
use gov_handoff::core::pgoutput::decode;
use gov_handoff::core::row::Row;
use gov_handoff::core::transaction::{Delivered, Encoding, Relations};
use gov_handoff::store::read::statement;
use gov_handoff::store::role::Admin;
use gov_handoff::store::{Session, connect, quote};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// A row of each is equal to the tested value for the server and is another text: only the rules decide.
const TABLE: &str = "
create collation insensitive (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
create table typed (id int primary key, amount numeric, code char(4), folded text collate insensitive, plain text, kind uuid);";
const ROWS: &str = "
insert into typed values (1, 1, 'a', 'x', 'k', null), (2, 1.0, 'a', 'y', 'k', null), (3, 2, 'abcd', 'SKIP', 'k', null),
    (4, 2, 'abcd', 'skip', 'k', null), (5, 2, 'abcd', 'y', 'skip', null), (6, 2, 'abcd', 'y', 'SKIP', null),
    (7, 2, 'abcd', 'y', 'k', 'aa000000-0000-0000-0000-000000000000'), (8, 2, 'abcd', 'y', null, null),
    (9, 2, 'abcd', 'y', 'pre-x', null), (10, 2, 'abcd', 'y', 'PRE-x', null)";

#[tokio::test]
async fn a_value_that_only_the_server_calls_equal_is_not_left_out_by_either_path() {
    let exclude =
        "exclude = [{ column = \"amount\", equals = \"1\" }, { column = \"folded\", equals = \"skip\" },
        { column = \"plain\", one_of = [\"skip\"] }, { column = \"plain\", prefix = \"pre\" },
        { column = \"kind\", prefix = \"aa\" }]\n";
    let columns = ["id", "amount", "code", "folded", "plain", "kind"];
    let sources =
        source("typed", "int4", &columns) + exclude + &rule("object_born", "t", "t:{id}", ["g", "{code}"]);
    for mode in ["poll", "stream"] {
        let registry = active().await;
        registry.sql(TABLE).await;
        register(&registry.url, &sources).await;
        let daemon = registry.capturing(mode, "1h").await;
        registry.sql(ROWS).await;
        registry.births("after", 1).await;
        until("what came after is there", async || {
            registry
                .number("select count(*) from verify.handoffs where canonical_address like '%after1'")
                .await
                > 0
        })
        .await;
        let due = "select string_agg(distinct safe_payload ->> 'source_key', ',') from verify.handoffs
                    where safe_payload ->> 'source' = 'typed'";
        until("exactly these are due", async || {
            registry.text_if_any(due).await.as_deref() == Some("10,2,3,6,8")
        })
        .await;
        let by = format!(
            "select count(*) from verify.handoffs where safe_payload ->> 'source' = 'typed' and safe_payload ->> 'captured_by' = '{mode}'"
        );
        assert_eq!(registry.number(&by).await, 5, "{mode}");
        drop(daemon);
    }
}

/// Types that a definition may read, each with values as SQL writes them. A row of nulls is added to all.
const TYPES: [(&str, &[&str]); 44] = [
    ("smallint", &["'0'", "'-1'", "'10'", "'1'"]),
    ("integer", &["'0'", "'1'", "'100'", "'-7'"]),
    ("bigint", &["'0'", "'9223372036854775807'", "'1'", "'12'"]),
    ("numeric", &["'1'", "'1.0'", "'1.00'", "'NaN'"]),
    ("numeric(6,2)", &["'1'", "'1.5'", "'100'", "'-1'"]),
    ("real", &["'1'", "'1.5'", "'-0'", "'Infinity'"]),
    ("double precision", &["'1'", "'0.1'", "'-0'", "'NaN'"]),
    ("boolean", &["'t'", "'f'", "'t'", "'f'"]),
    ("text", &["''", "'a'", "'A'", "'ab '"]),
    ("text", &["'x\\y'", "'it''s'", "'a%_'", "'ế'"]),
    ("text", &["' a'", "E'\\t'", "E'a\\nb'", "'e\u{301}'"]),
    ("text collate \"C\"", &["'a'", "'B'", "'\u{e9}'", "''"]),
    ("text collate insensitive", &["'a'", "'A'", "'skip'", "'SKIP'"]),
    ("text collate accentless", &["'a'", "'\u{e1}'", "'A'", "''"]),
    ("varchar", &["'a'", "'a '", "'A'", "''"]),
    ("varchar(4)", &["'abcd'", "'ab'", "' '", "''"]),
    ("varchar(4) collate insensitive", &["'abcd'", "'ABCD'", "'b'", "''"]),
    ("char(4)", &["'ab'", "'abcd'", "''", "'a'"]),
    ("char", &["'a'", "'b'", "' '", "'A'"]),
    ("\"char\"", &["'a'", "'b'", "''", "'A'"]),
    ("name", &["'a'", "'A'", "''", "'ab'"]),
    ("shade", &["'dark'", "'light'", "'dark'", "'li'"]),
    ("code", &["'a'", "'A'", "''", "'ab'"]),
    ("small", &["'1'", "'2'", "'10'", "'0'"]),
    ("pair", &["'(1,a)'", "'(1,)'", "'(,)'", "'(2,\"a b\")'"]),
    (
        "uuid",
        &[
            "'aa000000-0000-0000-0000-000000000000'",
            "'AB000000-0000-0000-0000-000000000000'",
            "'00000000-0000-0000-0000-000000000000'",
            "'a0000000-0000-0000-0000-00000000000a'",
        ],
    ),
    ("date", &["'2026-01-02'", "'infinity'", "'0044-03-15 BC'", "'2026-01-12'"]),
    ("time", &["'01:02:03'", "'24:00'", "'01:02'", "'00:00:00.1'"]),
    ("timetz", &["'01:02:03+02'", "'01:02:03+00'", "'24:00+00'", "'00:00-07:30'"]),
    ("timestamp", &["'2026-01-02 03:04:05'", "'infinity'", "'0044-03-15 BC'", "'2026-01-02'"]),
    ("timestamptz", &["'2026-01-02 03:04:05+07'", "'-infinity'", "'2026-01-01 20:04:05+00'", "'2026-01-02'"]),
    ("interval", &["'1 day'", "'24 hours'", "'1 mon'", "'-1 day 01:00'"]),
    ("inet", &["'10.0.0.1'", "'10.0.0.1/32'", "'10.0.0.0/8'", "'::1'"]),
    ("cidr", &["'10.0.0.0/8'", "'10.0.0.1/32'", "'::/0'", "'10.0.0.0/16'"]),
    (
        "macaddr",
        &["'08:00:2b:01:02:03'", "'08-00-2b-01-02-04'", "'ff:ff:ff:ff:ff:ff'", "'00:00:00:00:00:00'"],
    ),
    ("json", &["'{\"a\":1}'", "'{ \"a\": 1 }'", "'1'", "'null'"]),
    ("jsonb", &["'{\"a\":1}'", "'1'", "'1.0'", "'null'"]),
    ("bit(3)", &["'101'", "'000'", "'111'", "'100'"]),
    ("varbit", &["'1'", "''", "'101'", "'10'"]),
    ("money", &["'1'", "'1.50'", "'0'", "'-1'"]),
    ("oid", &["'0'", "'1'", "'10'", "'4294967295'"]),
    ("int4range", &["'[1,2)'", "'[1,1]'", "'empty'", "'(,)'"]),
    ("integer[]", &["'{1,2}'", "'{}'", "'{NULL}'", "'{{1}}'"]),
    ("text[]", &["'{a,b}'", "'{}'", "'{\"a,b\"}'", "'{NULL}'"]),
];
const MADE: &str = "
create collation insensitive (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
create collation accentless (provider = icu, locale = 'und-u-ks-level1-kc-true', deterministic = false);
create type shade as enum ('dark', 'light', 'li');
create domain code as text check (value <> 'forbidden');
create domain small as integer check (value < 1000);
create type pair as (n integer, t text)";

/// A table with a column of each type, c0 and so on; the rows of its sample, and one of nulls.
fn every_type() -> (String, String) {
    let columns: Vec<_> = TYPES.iter().enumerate().map(|(i, (sql, _))| format!("c{i} {sql}")).collect();
    let rows = (0..4).map(|n| {
        let values: Vec<_> =
            TYPES.iter().map(|(sql, values)| format!("{}::{}", values[n], bare(sql))).collect();
        format!("({}, {})", n + 1, values.join(", "))
    });
    let rows: Vec<_> = rows.collect();
    let table = format!("create table every (id int primary key, {})", columns.join(", "));
    (table, format!("insert into every values {}; insert into every (id) values (5)", rows.join(", ")))
}

fn bare(sql: &str) -> &str {
    sql.split(" collate").next().unwrap_or(sql)
}

fn definition(exclude: Vec<ColumnTest>) -> SourceDefinition {
    let columns: Vec<String> = (0..TYPES.len()).map(|i| format!("c{i}")).collect();
    let columns: Vec<&str> = ["id"].into_iter().chain(columns.iter().map(String::as_str)).collect();
    let text = source("every", "int4", &columns) + &rule("object_born", "e", "e:{id}", ["g", "{id}"]);
    let mut file: SourceFile = toml::from_str(&text).expect("a definition");
    SourceDefinition { exclude, ..file.sources.remove(0) }
}

async fn asked(store: &Session<Admin>, source: &Source, spared: bool) -> Vec<Row> {
    let sql = statement::frontier(source, &quote::text_columns(source), "(0,0)", "true", spared);
    let rows = store.client().query(&sql, &[]).await.unwrap_or_else(|e| panic!("{sql}: {e:?}"));
    let text = |row: &tokio_postgres::Row| (0..row.len()).map(|i| row.get::<_, Option<String>>(i)).collect();
    rows.iter().map(|row| Row::new(text(row))).collect()
}

fn ids<'r>(source: &Source, rows: impl IntoIterator<Item = &'r Row>) -> BTreeSet<String> {
    rows.into_iter().map(|row| source.key(row).to_owned()).collect()
}

fn kept<'r>(source: &'r Source, rows: &'r [Row]) -> impl Iterator<Item = &'r Row> {
    rows.iter().filter(|row| source.map(row) != Mapped::Excluded)
}

/// Every operator with the values of a column, and with their neighbours.
fn tests(column: &str, values: &BTreeSet<String>) -> Vec<ColumnTest> {
    let mut texts: BTreeSet<String> = values.clone();
    for value in values {
        let shorter = value.chars().take(value.chars().count() / 2).collect();
        texts.extend([
            value.to_uppercase(),
            value.to_lowercase(),
            format!("{value} "),
            value.trim().to_owned(),
            shorter,
        ]);
    }
    let test = || ColumnTest { column: column.to_owned(), ..ColumnTest::default() };
    let mut out = vec![
        ColumnTest { present: Some(true), ..test() },
        ColumnTest { present: Some(false), ..test() },
        ColumnTest { one_of: Some(vec![]), ..test() },
        ColumnTest { one_of: Some(values.iter().cloned().collect()), ..test() },
        ColumnTest { one_of: Some(values.iter().take(2).cloned().collect()), ..test() },
        ColumnTest { prefix: Some(String::new()), ..test() },
    ];
    for text in texts {
        out.push(ColumnTest { equals: Some(text.clone()), ..test() });
        out.push(ColumnTest { prefix: Some(text), ..test() });
    }
    let negated: Vec<_> = out.iter().map(|t| ColumnTest { not: true, ..t.clone() }).collect();
    out.extend(negated);
    out
}

/// Over no filter, what the rules keep; over the server's filter, the same, and it leaves nothing for them to do.
async fn agree(store: &Session<Admin>, all: &[Row], source: &Source) -> bool {
    let due = ids(source, kept(source, all));
    let spared = asked(store, source, true).await;
    let exclude = &source.definition.exclude;
    assert_eq!(ids(source, kept(source, &spared)), due, "{exclude:?}");
    let tested = exclude.iter().all(|t| {
        let values = t.equals.iter().chain(t.one_of.iter().flatten()).chain(&t.prefix);
        source.plain_text.contains(&t.column) && values.into_iter().all(|value| value.is_ascii())
    });
    if tested {
        assert_eq!(ids(source, &spared), due, "the filter alone: {exclude:?}");
    }
    tested
}

#[tokio::test(flavor = "multi_thread")]
async fn the_servers_filter_and_the_rules_agree_for_every_type_operator_and_value() {
    let registry = active().await;
    let (table, rows) = every_type();
    registry.sql(&format!("{MADE}; {table}")).await;
    let slot = format!("every_{}", registry.name);
    let target = Target::parse(Some(&registry.url), Given::Above, &HashMap::new()).expect("a target");
    let store = connect::open_patient(&target, "gov-handoff test").await.expect("a session");
    registry.sql(&rows).await;
    let plain = store.shaped(&definition(vec![])).await.expect("a source");
    let all = asked(&store, &plain, false).await;
    assert_eq!(all.len(), 5);
    let (mut accepted, mut tested, mut published) = (Vec::new(), 0, Vec::new());
    for (i, (sql, _)) in TYPES.iter().enumerate() {
        let values = all.iter().filter_map(|row| row.get(i + 1).map(str::to_owned)).collect();
        let before = accepted.len();
        for test in tests(&format!("c{i}"), &values) {
            let definition = definition(vec![test.clone()]);
            // Refused: the value is none of the type, or not as the server writes it.
            if store.accept_source(&definition).await.is_err() {
                continue;
            }
            let source = store.shaped(&definition).await.expect("a source");
            if agree(&store, &all, &source).await {
                tested += 1;
                published.push(source);
            }
            accepted.push(test);
        }
        assert!(accepted.len() - before >= 20, "{sql}: {}", accepted.len() - before);
    }
    assert!(tested > 200, "{tested} of {} are tested by the server", accepted.len());
    // Several at once.
    let seed = seed();
    println!("GOV_HANDOFF_TEST_SEED={seed}");
    let mut dice = Random::new(seed);
    for _ in 0..300 {
        let pick = |dice: &mut Random| {
            let at = dice.below(u64::try_from(accepted.len()).expect("few"));
            accepted[usize::try_from(at).expect("few")].clone()
        };
        let some = (0..=dice.below(3)).map(|_| pick(&mut dice)).collect();
        let source = store.shaped(&definition(some)).await.expect("a source");
        agree(&store, &all, &source).await;
    }
    streams_alike(&registry, &slot, &plain, &all, &published).await;
}

/// The same rows through publications with these filters: exactly those that are due arrive, with the text that is read.
async fn streams_alike(registry: &Database, slot: &str, plain: &Source, all: &[Row], filtered: &[Source]) {
    registry.sql("truncate every").await;
    let columns: Vec<_> = plain.definition.columns.iter().map(|c| quote::identifier(c)).collect();
    let publish = |name: &str, filter: &str| {
        format!(
            "create publication {name} for table every ({}) {filter} with (publish = 'insert');",
            columns.join(", ")
        )
    };
    let mut statements = publish("p_all", "");
    for (i, source) in filtered.iter().enumerate() {
        let filter = quote::captured(source, "").expect("a filter");
        statements += &publish(&format!("p_{i}"), &format!("where ({filter})"));
    }
    registry.sql(&statements).await;
    registry.sql(&format!("select pg_create_logical_replication_slot('{slot}', 'pgoutput')")).await;
    registry.sql("set timezone to 'UTC'; set datestyle to 'ISO,YMD'").await;
    registry.sql(&every_type().1).await;
    let streamed = async |publication: &str, source: &Source| {
        let changes = format!(
            "select data from pg_logical_slot_peek_binary_changes('{slot}', null, null, 'proto_version', '1',
                 'publication_names', '{publication}')"
        );
        let mut relations = Relations::new(&[Arc::new(source.clone())], Encoding::Utf8);
        let mut rows = Vec::new();
        for change in registry.client.query(&changes, &[]).await.expect("changes") {
            let change = decode(&change.get::<_, Vec<u8>>(0).into()).expect("a message");
            if let Delivered::Row(_, row) = relations.deliver(change).expect("no surprise") {
                rows.push(row);
            }
        }
        rows.sort_by_key(|row| source.key(row).to_owned());
        rows
    };
    let mut read: Vec<Row> = all.to_vec();
    read.sort_by_key(|row| plain.key(row).to_owned());
    let arrived = streamed("p_all", plain).await;
    for (row, other) in arrived.iter().zip(&read) {
        for (i, column) in plain.definition.columns.iter().enumerate() {
            assert_eq!(row.get(i), other.get(i), "{column} is the same text on both paths");
        }
    }
    assert_eq!(arrived.len(), read.len());
    for (i, source) in filtered.iter().enumerate() {
        let rows = streamed(&format!("p_{i}"), source).await;
        assert_eq!(ids(source, &rows), ids(source, kept(source, all)), "{:?}", source.definition.exclude);
    }
    registry.sql(&format!("select pg_drop_replication_slot('{slot}')")).await;
}
