//! The statements that read a source, each built in one place: whoever tries a definition asks the server the very same.

use crate::core::handoff::Source;
use crate::store::quote;
use crate::store::read::RangeDepth;

/// Where a row lies, alone.
pub const PLACE: &str = "t.ctid::text as place";

/// The key alone, under the name of the first column.
#[must_use]
pub fn key_column(source: &Source) -> String {
    format!("t.{}::text as c0", quote::identifier(&source.definition.id.column))
}

/// A page of the open ranges. `columns` are all that are read, or the key alone.
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

/// One look at every row of a table: how many, and where those begin that `frontier` selects.
#[must_use]
pub fn scan(source: &Source, frontier: &str) -> String {
    let places = [("table", &*quote::table(&source.definition)), ("frontier", frontier)];
    quote::fill(include_str!("../sql/frontier/scan.sql"), &places)
}

/// The rows that `frontier` selects, from the place `first` on; `spared` of those that the server can tell to be excluded.
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

/// Rows by their places, within the snapshot that told the places.
#[must_use]
pub fn by_place(source: &Source, columns: &str) -> String {
    let places = [("columns", columns), ("table", &*quote::table(&source.definition))];
    quote::fill(include_str!("../sql/read/places.sql"), &places)
}
