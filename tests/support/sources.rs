//! Sources of a test's own: written in TOML, put into a file, registered beside those that are there.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use super::program::done;

/// A file that no other test has; it goes when dropped.
pub struct TemporaryFile(PathBuf);

impl TemporaryFile {
    /// The name is in its path, and so in what is said about it.
    pub fn new(name: &str, text: &str) -> Self {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("gov-handoff-{}-{number}-{name}", std::process::id()));
        std::fs::write(&path, text).expect("a file");
        Self(path)
    }

    pub fn path(&self) -> &str {
        self.0.to_str().expect("utf-8")
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// `sources apply`.
pub async fn register(url: &str, sources: &str) {
    done(url, &["sources", "apply", TemporaryFile::new("sources.toml", sources).path()]).await;
}

/// The head of a source whose key is its column `id`; rules follow.
pub fn source(table: &str, id_type: &str, columns: &[&str]) -> String {
    format!(
        "[[source]]\nname = \"{table}\"\nid = {{ column = \"id\", type = \"{id_type}\" }}\ncolumns = {columns:?}\n"
    )
}

/// A rule that fires for every row of the source it follows; `group` is one dimension and its value.
pub fn rule(kind: &str, object_type: &str, object_ref: &str, group: [&str; 2]) -> String {
    format!(
        "[[source.rule]]\nkind = \"governance.handoff.{kind}\"\nobject_type = \"{object_type}\"\n\
         object_ref = \"{object_ref}\"\ngroup = [{group:?}]\n"
    )
}
