//! The directions of ARCHITECTURE.md, kept by reading the sources as text.

mod kinds;
mod shape;
mod statements;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

struct File {
    path: String,
    text: String,
}

impl File {
    /// The part that ships: inline tests may do what they need.
    fn shipped(&self) -> &str {
        self.text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default()
    }

    fn is_in(&self, places: &[&str]) -> bool {
        places.iter().any(|p| self.path.starts_with(p))
    }

    fn is_test(&self) -> bool {
        self.path.ends_with("/tests.rs") || self.path.contains("/tests/")
    }
}

fn files(under: &str) -> Vec<File> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = vec![root.join(under)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a source folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = std::fs::read_to_string(&path).expect("a source file");
                let path = path.strip_prefix(root).expect("inside the crate").display().to_string();
                found.push(File { path, text });
            }
        }
    }
    assert!(!found.is_empty(), "nothing found under {under}");
    found
}

/// Lines outside comments that hold `needle`, in shipped code of files that `applies` to.
fn offences(needle: &str, applies: impl Fn(&File) -> bool) -> Vec<String> {
    let mut out = Vec::new();
    for file in files("src").iter().filter(|f| !f.is_test() && applies(f)) {
        for (n, line) in file.shipped().lines().enumerate() {
            if line.contains(needle) && !line.trim_start().starts_with("//") {
                out.push(format!("{}:{}: {}", file.path, n + 1, line.trim()));
            }
        }
    }
    out
}

#[track_caller]
fn assert_none(what: &str, offences: &[String]) {
    assert!(offences.is_empty(), "{what}:\n{}", offences.join("\n"));
}

#[test]
fn every_file_opens_by_saying_what_it_is() {
    for file in files("src").iter().chain(&files("tests")).chain(&files("benches")) {
        assert!(file.text.starts_with("//! "), "{} does not open with a `//!`", file.path);
    }
}

#[test]
fn the_core_imports_nothing_of_ours_but_the_core() {
    let core = |f: &File| f.is_in(&["src/core/"]);
    let found: Vec<_> =
        offences("crate::", core).into_iter().filter(|l| !l.contains("crate::core")).collect();
    assert_none("core depends on the shell", &found);
}

#[test]
fn the_core_is_pure() {
    let impure = [
        "tokio",
        "tracing::",
        "std::env",
        "Instant::now",
        "SystemTime",
        "Utc::now",
        "std::fs",
        "std::net",
        "new_v4",
    ];
    for needle in impure {
        assert_none(&format!("core uses {needle}"), &offences(needle, |f| f.is_in(&["src/core/"])));
    }
}

#[test]
fn nothing_imports_the_command_line() {
    let outside = |f: &File| !f.is_in(&["src/cli/", "src/main.rs", "src/lib.rs"]);
    assert_none("somebody imports cli", &offences("cli::", outside));
}

/// The layers from the bottom up. A module imports those before it and itself, never one behind it.
const LAYERS: [&[&str]; 12] = [
    &["core"],
    &["error"],
    &["config", "embedded"],
    &["failpoint", "instance"],
    &["meter", "pulse"],
    &["store"],
    &["handoff", "queue"],
    &["daemon", "audit", "observe"],
    &["capture"],
    &["workers"],
    &["cli"],
    &["main", "lib"],
];

fn layer(module: &str) -> usize {
    LAYERS
        .iter()
        .position(|l| l.contains(&module))
        .unwrap_or_else(|| panic!("{module} stands in no layer; add it to LAYERS and to ARCHITECTURE.md"))
}

/// The modules that a file imports, as paths behind `crate::`; groups are taken apart.
fn imports(file: &File) -> Vec<String> {
    let mut out = Vec::new();
    for line in file.shipped().lines().map(str::trim_start).filter(|l| !l.starts_with("//")) {
        for rest in line.split("crate::").skip(1) {
            let path = rest
                .split(|c: char| !(c.is_alphanumeric() || "_:{, ".contains(c)))
                .next()
                .unwrap_or_default();
            match path.split_once('{') {
                Some((stem, names)) => {
                    let names = names.split(',').map(str::trim).filter(|n| !n.is_empty());
                    out.extend(names.map(|name| format!("{stem}{name}")));
                }
                None => out.push(path.trim_end_matches([':', ' ', ',']).to_owned()),
            }
        }
    }
    out
}

/// `src/daemon/keeper.rs` is `daemon::keeper`, `src/audit/mod.rs` is `audit`.
fn module_of(path: &str) -> String {
    let path = path.trim_start_matches("src/").trim_end_matches(".rs").trim_end_matches("/mod");
    path.replace('/', "::")
}

#[test]
fn no_module_imports_one_above_it() {
    let mut found = Vec::new();
    for file in files("src").iter().filter(|f| !f.is_test()) {
        let own = module_of(&file.path);
        let top = own.split("::").next().unwrap_or_default().to_owned();
        for import in imports(file) {
            let other = import.split("::").next().unwrap_or_default();
            let known = LAYERS.iter().any(|l| l.contains(&other));
            if known && other != top && layer(other) >= layer(&top) {
                found.push(format!("{} imports {import}", file.path));
            }
        }
    }
    assert_none("an import points upwards", &found);
}

/// The file that an import means: the longest known module that its path begins with.
fn target<'m>(import: &str, modules: &'m BTreeSet<String>) -> Option<&'m String> {
    let mut parts: Vec<&str> = import.split("::").collect();
    while !parts.is_empty() {
        if let Some(module) = modules.get(&parts.join("::")) {
            return Some(module);
        }
        parts.pop();
    }
    None
}

#[test]
fn no_two_modules_import_each_other() {
    let files: Vec<_> = files("src").into_iter().filter(|f| !f.is_test()).collect();
    let modules: BTreeSet<String> = files.iter().map(|f| module_of(&f.path)).collect();
    let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in &files {
        let own = module_of(&file.path);
        let edges = graph.entry(own.clone()).or_default();
        for import in imports(file) {
            // A part may name its whole, and a whole its parts: they are read together.
            if let Some(other) = target(&import, &modules)
                && *other != own
                && !own.starts_with(&format!("{other}::"))
                && !other.starts_with(&format!("{own}::"))
            {
                edges.insert(other.clone());
            }
        }
    }
    assert!(graph.values().map(BTreeSet::len).sum::<usize>() > 300, "too few imports were found");
    // Take away, again and again, what imports nothing that is left, and what nothing that is left imports.
    loop {
        let imported: BTreeSet<String> = graph.values().flatten().cloned().collect();
        let free: Vec<String> = graph
            .iter()
            .filter(|(m, to)| !imported.contains(*m) || to.iter().all(|t| !graph.contains_key(t)))
            .map(|(m, _)| m.clone())
            .collect();
        if free.is_empty() {
            break;
        }
        for module in free {
            graph.remove(&module);
        }
    }
    let left: Vec<_> = graph
        .iter()
        .map(|(m, to)| {
            format!("{m} -> {:?}", to.iter().filter(|t| graph.contains_key(*t)).collect::<Vec<_>>())
        })
        .collect();
    assert_none("modules import each other in a circle", &left);
}

#[test]
fn onlookers_only_look() {
    let onlookers = |f: &File| f.is_in(&["src/observe/"]);
    for door in ["handoff::", "daemon::", "capture::", "workers::", "open_writer"] {
        assert_none("an onlooker does more than look", &offences(door, onlookers));
    }
}

/// Workers that read rows of sources through the session of their pages. The input gate has a reader of its own beside it.
const READ_SOURCES: [&str; 3] = ["backfill.rs", "event_feed.rs", "full_audit.rs"];

#[test]
fn a_worker_that_reads_no_source_has_a_session_that_cannot() {
    let mut workers = 0;
    for file in files("src/workers") {
        let Some(role) = file.text.split("    type Role = role::").nth(1) else { continue };
        let reads = READ_SOURCES.iter().any(|name| file.path.ends_with(name));
        let wanted = if reads { "ReadWriter;" } else { "Writer;" };
        assert!(role.starts_with(wanted), "{}: the role of its session is not {wanted}", file.path);
        workers += 1;
    }
    assert!(workers >= 6, "only {workers} workers were found");
}

#[test]
fn each_borrowed_crate_has_one_door() {
    for (needle, door) in [
        ("pgwire_replication::", "src/capture/stream/replication_session.rs"),
        ("use backoff::", "src/daemon/backoff.rs"),
        ("axum::", "src/observe/http"),
        ("rustls::", "src/store/tls.rs"),
        ("toml::", "src/co"),
    ] {
        let found = offences(needle, |f| !f.is_in(&[door, "src/cli/toml_file.rs"]));
        let found: Vec<_> =
            found.into_iter().filter(|l| !l.contains("postgres_rustls::") || needle != "rustls::").collect();
        assert_none(&format!("{needle} is used outside {door}"), &found);
    }
}

#[test]
fn one_module_reads_the_environment() {
    let outside = |f: &File| !f.is_in(&["src/config.rs", "src/embedded"]);
    let found: Vec<_> = ["env::var", "env::vars"].iter().flat_map(|n| offences(n, outside)).collect();
    assert_none("the environment is read outside config", &found);
}

#[test]
fn the_page_explains_every_module() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("ARCHITECTURE.md")).expect("the page");
    let table: Vec<_> = page.lines().filter(|l| l.starts_with("| `")).collect();
    for module in LAYERS.iter().flat_map(|layer| layer.iter()).filter(|m| !["main", "lib"].contains(m)) {
        let named = [format!("`{module}/`"), format!("`{module}.rs`")];
        let there = table.iter().any(|line| named.iter().any(|name| line.contains(name)));
        assert!(there, "the table of ARCHITECTURE.md does not name {module}");
    }
    let heads: Vec<_> =
        page.split("\n*").skip(1).filter_map(|part| part.split_once(".*")).map(|(h, _)| h).collect();
    let distinct: BTreeSet<_> = heads.iter().collect();
    assert!(heads.len() > 10 && distinct.len() == heads.len(), "something is described twice: {heads:?}");
    assert!(page.lines().count() <= 160, "one page");
}

#[test]
fn every_path_that_the_documents_name_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut wrong = Vec::new();
    let mut named = 0;
    for page in ["README.md", "ARCHITECTURE.md"] {
        let text = std::fs::read_to_string(root.join(page)).expect("a page");
        let words = text.split(|c: char| c.is_whitespace() || "`()[],;|".contains(c));
        for word in words.map(|w| w.trim_end_matches('.')).filter(|w| w.contains('/') && w.ends_with(".rs")) {
            named += 1;
            if !root.join(word).exists() && !root.join("src").join(word).exists() {
                wrong.push(format!("{page}: {word}"));
            }
        }
    }
    assert!(named > 10, "only {named} paths were found");
    assert_none("a path that does not exist", &wrong);
}
