//! That the stream maps rows as the table reads do, and each surprise.

use super::*;
use crate::core::definition::OrderType;
use crate::core::pgoutput::{RelationColumn, decode, encode};
use crate::core::samples;
use bytes::Bytes;
use proptest::prelude::*;

const ID: u32 = 16_385;

fn relation(table: &str, columns: &[&str]) -> Relation {
    let column =
        |name: &&str| RelationColumn { flags: 0, name: (*name).to_owned(), type_oid: 25, type_modifier: -1 };
    Relation {
        id: ID,
        namespace: "public".to_owned(),
        name: table.to_owned(),
        replica_identity: b'd',
        columns: columns.iter().map(column).collect(),
    }
}

fn relations() -> Relations {
    let sources: Vec<_> = samples::definitions().iter().map(|d| Arc::new(samples::source(&d.name))).collect();
    Relations::new(&sources, Encoding::Utf8)
}

fn text(value: &str) -> Datum {
    Datum::Text(Bytes::copy_from_slice(value.as_bytes()))
}

/// The columns of the source `pivot_definitions`.
const PIVOT: [&str; 6] = ["id", "pivot_code", "status", "created_at", "source_system", "actor_ref"];

fn pivots() -> Relations {
    let mut relations = relations();
    let described = relations.deliver(Change::Relation(relation("pivot_definitions", &PIVOT)));
    assert_eq!(described, Ok(Delivered::Nothing));
    relations
}

/// An insert that gives each column its own name as value.
fn named_after(columns: &[&str]) -> Change {
    Change::Insert { relation: ID, new: Tuple(columns.iter().map(|c| text(c)).collect()) }
}

fn pivot_row() -> Result<Delivered, Surprise> {
    Ok(Delivered::Row("pivot_definitions".into(), Row::new(PIVOT.map(|c| Some(c.to_owned())).to_vec())))
}

#[test]
fn a_table_that_is_no_source_is_a_surprise() {
    let mut relations = relations();
    let unknown = |namespace: &str, name: &str| Err(Surprise::UnknownRelation(format!("{namespace}.{name}")));
    assert_eq!(
        relations.deliver(Change::Relation(relation("payroll", &["id"]))),
        unknown("public", "payroll")
    );
    let elsewhere = Relation { namespace: "private".to_owned(), ..relation("pivot_definitions", &PIVOT) };
    assert_eq!(relations.deliver(Change::Relation(elsewhere)), unknown("private", "pivot_definitions"));
}

#[test]
fn a_change_of_a_table_that_was_not_described_is_a_surprise() {
    let mut relations = relations();
    let changes = [
        named_after(&PIVOT),
        Change::Update { relation: ID },
        Change::Delete { relation: ID },
        Change::Truncate { relations: vec![ID] },
    ];
    for change in changes {
        assert_eq!(relations.deliver(change), Err(Surprise::UndescribedRelation(ID)));
    }
}

#[test]
fn a_column_too_few_or_too_many_is_a_surprise() {
    let table = || "public.pivot_definitions".to_owned();
    let missing = relations().deliver(Change::Relation(relation("pivot_definitions", &PIVOT[..5])));
    assert_eq!(missing, Err(Surprise::MissingColumn { table: table(), column: "actor_ref".to_owned() }));
    let content = [&PIVOT[..], &["definition"]].concat();
    let extra = relations().deliver(Change::Relation(relation("pivot_definitions", &content)));
    assert_eq!(extra, Err(Surprise::ExtraColumn { table: table(), column: "definition".to_owned() }));
}

#[test]
fn what_is_not_an_insert_is_not_a_birth() {
    let mut relations = pivots();
    for (change, action) in [
        (Change::Update { relation: ID }, "update"),
        (Change::Delete { relation: ID }, "delete"),
        (Change::Truncate { relations: vec![ID] }, "truncate"),
    ] {
        let table = "public.pivot_definitions".to_owned();
        assert_eq!(relations.deliver(change), Ok(Delivered::NotABirth { table, action }));
    }
    assert_eq!(relations.deliver(Change::Truncate { relations: Vec::new() }), Ok(Delivered::Nothing));
    let other = Relation { id: ID + 1, ..relation("pivot_definitions", &PIVOT) };
    assert_eq!(relations.deliver(Change::Relation(other)), Ok(Delivered::Nothing));
    let table = "public.pivot_definitions, public.pivot_definitions".to_owned();
    let both = Change::Truncate { relations: vec![ID, ID + 1] };
    assert_eq!(
        relations.deliver(both),
        Ok(Delivered::NotABirth { table, action: "truncate" }),
        "each is named"
    );
}

#[test]
fn messages_about_no_row_deliver_nothing() {
    let mut relations = relations();
    for change in [Change::Begin, Change::Commit, Change::Type, Change::Origin, Change::Message] {
        assert_eq!(relations.deliver(change), Ok(Delivered::Nothing));
    }
}

#[test]
fn a_value_that_is_not_text_is_a_surprise() {
    let mut relations = pivots();
    let short = Tuple(vec![text("1")]);
    let with = |datum: Datum| {
        let mut values = vec![Datum::Null; PIVOT.len()];
        values[3] = datum;
        Tuple(values)
    };
    for new in [short, with(Datum::Unchanged), with(Datum::Binary(Bytes::from_static(b"1")))] {
        let delivered = relations.deliver(Change::Insert { relation: ID, new });
        assert_eq!(delivered, Err(Surprise::NotText("public.pivot_definitions".to_owned())));
    }
}

#[test]
fn a_column_dropped_and_added_again_is_found_in_its_new_place() {
    let mut relations = pivots();
    assert_eq!(relations.deliver(named_after(&PIVOT)), pivot_row());
    let mut moved = PIVOT;
    moved[1..].rotate_left(1);
    assert_eq!(
        relations.deliver(Change::Relation(relation("pivot_definitions", &moved))),
        Ok(Delivered::Nothing)
    );
    assert_eq!(relations.deliver(named_after(&moved)), pivot_row());
}

#[test]
fn after_a_refused_description_no_row_is_read_by_the_old_one() {
    let mut relations = pivots();
    let added = [&["definition"], &PIVOT[..]].concat();
    for columns in [&added[..], &PIVOT[1..]] {
        assert!(relations.deliver(Change::Relation(relation("pivot_definitions", columns))).is_err());
        assert_eq!(relations.deliver(named_after(columns)), Err(Surprise::UndescribedRelation(ID)));
        let again = relations.deliver(Change::Relation(relation("pivot_definitions", &PIVOT)));
        assert_eq!(again, Ok(Delivered::Nothing));
        assert_eq!(relations.deliver(named_after(&PIVOT)), pivot_row());
    }
}

/// Any text, and often one that a key, an order column or a rule takes for what it is.
fn value() -> impl Strategy<Value = Option<String>> {
    let telling = prop::sample::select(vec![
        "",
        " ",
        "42",
        "-1",
        "8c04f5f7-0000-4000-8000-000000000001",
        "2026-10-25 02:30:00",
        "infinity",
        "2026-01-02 03:04:05.6+07",
        "registered",
        "register",
        "recount",
        "retire",
        "collection",
        "law",
        "ruleset",
        "gov-handoff",
        "governance",
        "birth",
        "update",
    ]);
    prop_oneof![
        1 => Just(None),
        1 => any::<String>().prop_map(Some),
        3 => telling.prop_map(|v| Some(v.to_owned())),
    ]
}

/// A value that the type of the id or order column could have written, so that most rows get past both.
fn fitting(source: &Source, column: &str) -> BoxedStrategy<Option<String>> {
    let order = source.definition.order.as_ref().filter(|o| o.column == column);
    if column == source.definition.id.column {
        let key =
            if source.id_type().bounds().is_some() { "42" } else { "8c04f5f7-0000-4000-8000-000000000001" };
        prop_oneof![4 => Just(Some(key.to_owned())), 1 => value()].boxed()
    } else if let Some(order) = order {
        let at = match order.order_type {
            OrderType::Timestamptz => "2026-01-02 03:04:05.6+07",
            OrderType::Timestamp => "2026-10-25 02:30:00",
        };
        prop_oneof![4 => Just(Some(at.to_owned())), 1 => value()].boxed()
    } else {
        value().boxed()
    }
}

/// A source, a value for each of its columns, and the order in which the wire carries them.
fn sent_row() -> impl Strategy<Value = (Arc<Source>, Vec<Option<String>>, Vec<usize>)> {
    let names: Vec<_> = samples::definitions().into_iter().map(|d| d.name).collect();
    prop::sample::select(names).prop_flat_map(|name| {
        let source = Arc::new(samples::source(&name));
        let columns = source.definition.columns.clone();
        let values: Vec<_> = columns.iter().map(|c| fitting(&source, c)).collect();
        let order: Vec<_> = (0..columns.len()).collect();
        (Just(source), values, Just(order).prop_shuffle())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn both_paths_map_alike((source, values, order) in sent_row()) {
        let polled = Row::new(values.clone());
        let columns: Vec<_> = order.iter().map(|&i| source.definition.columns[i].as_str()).collect();
        let datum = |&i: &usize| values[i].as_deref().map_or(Datum::Null, text);
        let described = encode::relation(&relation(source.definition.table(), &columns));
        let inserted = encode::insert(ID, &Tuple(order.iter().map(datum).collect()));

        let mut relations = Relations::new(&[Arc::clone(&source)], Encoding::Utf8);
        let mut deliver = |bytes: Vec<u8>| relations.deliver(decode(&bytes.into()).expect("it is a message"));
        prop_assert_eq!(deliver(described), Ok(Delivered::Nothing));
        let Ok(Delivered::Row(name, streamed)) = deliver(inserted) else {
            return Err(TestCaseError::fail("the insert delivered no row"));
        };
        prop_assert_eq!(&*name, source.name());
        // A row prints no values, so the comparison of what they map to goes first: it says more.
        prop_assert_eq!(source.map(&streamed), source.map(&polled));
        prop_assert_eq!(source.watermark(&streamed), source.watermark(&polled));
        prop_assert_eq!(streamed, polled);
    }
}

#[test]
fn a_table_left_to_the_tables_is_passed_over_until_it_is_described_anew() {
    let mut relations = relations();
    assert_eq!(relations.leave_to_the_tables(), None, "nothing was surprising yet");
    assert!(relations.deliver(Change::Relation(relation("payroll", &["id"]))).is_err());
    assert!(relations.deliver(named_after(&["id"])).is_err(), "not by itself");
    assert_eq!(relations.leave_to_the_tables(), Some(Left { source: None }));
    assert_eq!(relations.deliver(named_after(&["id"])), Ok(Delivered::Nothing));
    assert_eq!(relations.deliver(Change::Truncate { relations: vec![ID] }), Ok(Delivered::Nothing));
    assert_eq!(
        relations.deliver(Change::Relation(relation("pivot_definitions", &PIVOT))),
        Ok(Delivered::Nothing)
    );
    assert_eq!(relations.rejoined().as_deref(), Some("pivot_definitions"));
    assert_eq!(relations.deliver(named_after(&PIVOT)), pivot_row());
    assert_eq!(relations.leave_to_the_tables(), None);
}

#[test]
fn a_table_that_surprises_is_left_with_its_source_and_the_others_are_delivered() {
    let mut relations = pivots();
    assert_eq!(
        relations.deliver(named_after(&PIVOT[..2])),
        Err(Surprise::NotText("public.pivot_definitions".into()))
    );
    let left = Some(Left { source: Some("pivot_definitions".into()) });
    assert_eq!(relations.leave_to_the_tables(), left);
    assert_eq!(relations.deliver(named_after(&PIVOT)), Ok(Delivered::Nothing), "left");
    assert!(relations.deliver(Change::Relation(relation("pivot_definitions", &PIVOT[1..]))).is_err());
    assert_eq!(relations.leave_to_the_tables(), left);
}

#[test]
fn text_of_another_encoding_is_left_to_the_server_and_ascii_is_not() {
    let sources: Vec<_> = samples::definitions().iter().map(|d| Arc::new(samples::source(&d.name))).collect();
    let mut relations = Relations::new(&sources, Encoding::Foreign);
    assert_eq!(
        relations.deliver(Change::Relation(relation("pivot_definitions", &PIVOT))),
        Ok(Delivered::Nothing)
    );
    assert_eq!(relations.deliver(named_after(&PIVOT)), pivot_row());
    let mut tuple: Vec<_> = PIVOT.iter().map(|c| text(c)).collect();
    tuple[1] = Datum::Text(Bytes::from_static(b"caf\xe9"));
    let Ok(Delivered::Foreign(source, values)) =
        relations.deliver(Change::Insert { relation: ID, new: Tuple(tuple) })
    else {
        panic!("a row of the database's own encoding");
    };
    assert_eq!((&*source, values[1].as_deref()), ("pivot_definitions", Some(&b"caf\xe9"[..])));
}
