//! The statements that read a source, each built in one place. A trial of a definition sends the same statements to the
//! server.

use crate::core::definition::{IdType, OrderType};
use crate::core::handoff::Source;
use crate::store::quote;
use crate::store::read::RangeDepth;

/// The place of a row, without its columns.
pub const PLACE: &str = "t.ctid::text as place";

/// The key alone, under the name of the first column.
#[must_use]
pub fn key_column(source: &Source) -> String {
    format!("t.{}::text as c0", quote::identifier(&source.definition.id.column))
}

/// A page of the open ranges. `columns` are all columns of the source, or the key alone.
#[must_use]
pub fn ranges(source: &Source, columns: &str, depth: RangeDepth) -> String {
    let definition = &source.definition;
    let hot = if depth == RangeDepth::Hot { "and g.hot" } else { "" };
    let (lowest, highest) = definition.id.id_type.bounds().unwrap_or((i64::MIN, i64::MAX));
    let bound = |id: i64| format!("'{id}'::bigint");
    quote::fill(
        include_str!("../sql/read/ranges.sql"),
        &[
            ("columns", columns),
            ("table", &quote::table(definition)),
            ("id", &quote::identifier(&definition.id.column)),
            ("lowest", &bound(lowest)),
            ("highest", &bound(highest)),
            ("hot", hot),
        ],
    )
}

/// Rows by their keys.
#[must_use]
pub fn by_key(source: &Source) -> String {
    let definition = &source.definition;
    quote::fill(
        include_str!("../sql/read/keys.sql"),
        &[
            ("columns", &quote::text_columns(source)),
            ("table", &quote::table(definition)),
            ("id", &quote::identifier(&definition.id.column)),
            ("id_type", definition.id.id_type.sql_name()),
        ],
    )
}

/// One scan of every row of a table: the number of rows, and the place of the first row that `frontier` selects.
#[must_use]
pub fn scan(source: &Source, frontier: &str) -> String {
    let places = [("table", &*quote::table(&source.definition)), ("frontier", frontier)];
    quote::fill(include_str!("../sql/frontier/scan.sql"), &places)
}

/// The rows that `frontier` selects, from the place `first` on. With `spared`, the server skips rows that it knows to
/// be excluded.
#[must_use]
pub fn frontier(source: &Source, columns: &str, first: &str, frontier: &str, spared: bool) -> String {
    let filter = quote::captured(source, "t.").filter(|_| spared);
    quote::fill(
        include_str!("../sql/frontier/rows.sql"),
        &[
            ("columns", columns),
            ("table", &quote::table(&source.definition)),
            ("first", &quote::literal(first)),
            ("frontier", frontier),
            ("filter", filter.as_deref().unwrap_or("true")),
        ],
    )
}

/// The time that a row bears, as `timestamptz`; null for a source without an order column.
#[must_use]
pub fn order_at(source: &Source) -> String {
    let Some(order) = &source.definition.order else { return "null::timestamptz".to_owned() };
    let column = format!("t.{}", quote::identifier(&order.column));
    match order.order_type {
        OrderType::Timestamptz => column,
        OrderType::Timestamp => {
            format!("({column} at time zone{})", quote::literal(&order.zone.to_string()))
        }
    }
}

/// Which rows there are: stretches of ids, or the key of every row.
#[must_use]
pub fn boundary(source: &Source) -> String {
    let definition = &source.definition;
    let number = match definition.id.id_type {
        IdType::Int4 => "bigint",
        IdType::Int8 => "numeric",
        IdType::Uuid | IdType::Text => {
            let places = [("table", &*quote::table(definition)), ("key", &key_column(source))];
            return quote::fill(include_str!("../sql/backlog/keys.sql"), &places);
        }
    };
    let (table, id) = (quote::table(definition), quote::identifier(&definition.id.column));
    let places = [("table", &*table), ("id", &id), ("at", &order_at(source)), ("number", number)];
    quote::fill(include_str!("../sql/backlog/islands.sql"), &places)
}

/// Rows by their places, in the snapshot in which the places were read.
#[must_use]
pub fn by_place(source: &Source, columns: &str) -> String {
    let places = [("columns", columns), ("table", &*quote::table(&source.definition))];
    quote::fill(include_str!("../sql/read/places.sql"), &places)
}
