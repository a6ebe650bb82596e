//! Sources of a test's own, written in TOML and registered beside those that are there.

use super::{TemporaryFile, done};

/// Registers sources by `sources apply`.
pub async fn register(url: &str, sources: &str) {
    done(url, &["sources", "apply", TemporaryFile::new("sources.toml", sources).path()]).await;
}

/// The head of a source whose key is its column `id`; rules follow.
pub fn source(table: &str, id_type: &str, columns: &[&str]) -> String {
    format!(
        "[[source]]\nname = \"{table}\"\nid = {{ column = \"id\", type = \"{id_type}\" }}\ncolumns = {columns:?}\n"
    )
}

/// A rule that fires for every row of the source above it; `group` is one dimension and its value.
pub fn rule(kind: &str, object_type: &str, object_ref: &str, group: [&str; 2]) -> String {
    format!(
        "[[source.rule]]\nkind = \"governance.handoff.{kind}\"\nobject_type = \"{object_type}\"\n\
         object_ref = \"{object_ref}\"\ngroup = [{group:?}]\n"
    )
}
