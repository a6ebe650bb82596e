//! The directions of ARCHITECTURE.md, kept by reading the sources as text.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use gov_handoff::core::dead_letter::code;
use gov_handoff::core::transaction::Surprise;

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
        self.path.ends_with("/tests.rs")
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
    &["handoff"],
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

#[test]
fn each_borrowed_crate_has_one_door() {
    for (needle, door) in [
        ("pgwire_replication::", "src/capture/stream/replication_session.rs"),
        ("use backoff::", "src/daemon/backoff.rs"),
        ("axum::", "src/observe/http.rs"),
        ("rustls::", "src/store/tls.rs"),
        ("toml::", "src/co"),
    ] {
        let found = offences(needle, |f| !f.is_in(&[door, "src/cli/sources.rs", "src/cli/subscriptions.rs"]));
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
fn statements_stand_in_sql_files() {
    let outside = |f: &File| !f.is_in(&["src/embedded", "src/store/quote.rs"]);
    for word in ["select ", "insert into ", "update ", "delete from ", "create ", "alter ", "drop "] {
        let found = offences(&format!("\"{word}"), outside);
        assert_none("a statement stands in code", &found);
    }
}

/// Every statement of `src/store/sql`, in whatever folder: its path, and its text without comments.
fn statements() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut folders = vec![root.join("src/store/sql")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of statements") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("a statement");
            let code: Vec<_> = text.lines().filter(|l| !l.trim_start().starts_with("--")).collect();
            let path = path.strip_prefix(root).expect("inside the crate").display().to_string();
            found.push((path, code.join("\n")));
        }
    }
    assert!(found.len() > 100, "only {} statements were found", found.len());
    found
}

#[test]
fn each_statement_stands_in_the_folder_of_its_subject() {
    let store = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store");
    for (path, _) in statements() {
        let parts: Vec<_> = path.split('/').collect();
        let ["src", "store", "sql", subject, _] = parts[..] else {
            panic!("{path} is in no subject's folder")
        };
        let there =
            store.join(subject).join("mod.rs").exists() || store.join(format!("{subject}.rs")).exists();
        assert!(there, "{path}: no module of the store is called {subject}");
    }
}

#[test]
fn statements_are_lowercase_and_never_skip_by_offset() {
    for (path, code) in statements() {
        assert!(!code.contains("SELECT") && !code.contains("FROM"), "{path} shouts");
        assert!(!code.to_lowercase().contains(" offset "), "{path} skips by offset");
    }
}

/// The arguments of each call of a gate, as they are written.
fn gate_calls(code: &str) -> Vec<Vec<String>> {
    let calls = code.split("gov_handoff.").skip(1).filter_map(|rest| {
        let (name, rest) = rest.split_once('(')?;
        name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_').then_some(rest)
    });
    calls.map(arguments).collect()
}

/// Splits at commas up to the parenthesis that ends the call; commas inside of parentheses and brackets separate nothing.
fn arguments(rest: &str) -> Vec<String> {
    let (mut depth, mut out) = (0, vec![String::new()]);
    for c in rest.chars() {
        match c {
            ')' if depth == 0 => break,
            ',' if depth == 0 => out.push(String::new()),
            _ => {
                depth += match c {
                    '(' | '[' => 1,
                    ')' | ']' => -1,
                    _ => 0,
                };
                if let Some(argument) = out.last_mut() {
                    argument.push(c);
                }
            }
        }
    }
    out
}

/// Whether a call leaves it to the reader to count more than three arguments.
fn must_be_counted(arguments: &[String]) -> bool {
    arguments.len() > 3 && !arguments.iter().all(|a| a.contains("=>"))
}

#[test]
fn gates_with_many_parameters_are_called_by_name() {
    let mut named = 0;
    for (path, code) in statements() {
        for call in gate_calls(&code) {
            assert!(!must_be_counted(&call), "{path} calls a gate with {} arguments by place", call.len());
            named += usize::from(call.len() > 3);
        }
    }
    assert!(named > 20, "only {named} calls with many arguments were found");
}

#[test]
fn a_call_by_place_is_noticed() {
    let counted = |code: &str| gate_calls(code).iter().any(|call| must_be_counted(call));
    assert!(counted("select gov_handoff.gov_a($1, $2, $3, $4)"));
    assert!(counted("select gov_handoff.gov_a(p_a => $1, p_b => $2, p_c => $3, $4)"));
    assert!(counted("select moved\n  from gov_handoff.gov_a(\n    $1, $2,\n    $3, coalesce($4, 0))"));
    assert!(!counted("select gov_handoff.gov_a($1, $2, coalesce($3, $4))"));
    assert!(!counted("select gov_handoff.gov_a(p_a => $1, p_b => $2, p_c => $3, p_d => f($4, $5))"));
}

#[test]
fn each_gate_is_defined_once() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(root).expect("the migrations") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("a migration");
        assert!(!text.contains("or replace"), "{} replaces what another step made", path.display());
        let made = text.lines().filter_map(|l| {
            l.strip_prefix("create function gov_handoff.").or(l.strip_prefix("create function public."))
        });
        names.extend(made.filter_map(|l| l.split_once('(')).map(|(name, _)| name.to_owned()));
    }
    // By name alone: the ways back drop them so, and a second one of the same name would stop them.
    names.sort();
    let all = names.len();
    names.dedup();
    assert!(all > 40 && names.len() == all, "{all} functions have {} names", names.len());
}

/// The states of our own that a script raises.
fn raised_states(script: &str) -> impl Iterator<Item = String> {
    script.split("errcode = '").skip(1).filter_map(|rest| rest.split('\'').next()).map(str::to_owned)
}

#[test]
fn every_state_of_the_gates_has_a_policy_and_is_raised() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    let mut raised = std::collections::BTreeSet::new();
    for entry in std::fs::read_dir(root).expect("the migrations") {
        let script = std::fs::read_to_string(entry.expect("an entry").path()).expect("a migration");
        raised.extend(raised_states(&script).filter(|state| state.starts_with("GH")));
    }
    let known = gov_handoff::error::GATE_STATES.iter().map(|(state, _)| (*state).to_owned()).collect();
    assert_eq!(raised, known);
}

#[test]
fn states_of_the_server_are_named_by_the_driver() {
    let is_state = |word: &str| {
        word.len() == 5
            && word.starts_with(|c: char| c.is_ascii_digit() || c == 'X')
            && word.chars().all(|c| c.is_ascii_digit() || c.is_ascii_uppercase())
    };
    let mut found = Vec::new();
    for file in files("src").iter().filter(|f| f.is_in(&["src/store/", "src/error.rs"])) {
        let words = file.shipped().split('"').filter(|word| is_state(word));
        found.extend(words.map(|word| format!("{}: {word}", file.path)));
    }
    assert_none("a SQLSTATE stands as a text; take the constant of `SqlState`", &found);
}

/// Where a kind of finding is named when it is raised, up to the quote before the name.
const RAISED: [&str; 4] =
    ["gov_handoff.gov_finding_raise('", "gov_handoff.gov_finding_sustain('", "kind: \"", "Flag::new(\""];
/// Kinds of other things: certificates, signals.
const OTHERS: [&str; 3] = ["audit", "certify", "governance.handoff.selftest"];

/// Where a kind stands in a variable when it is raised, and which it may be. A gate hands on the kind it was given, a flag the
/// one it was made with; neither names one.
const COMPUTED: [(&str, &[&str]); 8] = [
    ("src/capture/stream/follow.rs", &Surprise::CODES),
    ("src/cli/sources.rs", &[code::PAYLOAD, code::VECTOR]),
    ("migrations/0010_retry.sql", &[code::PAYLOAD, code::VECTOR]),
    ("migrations/0018_emit.sql", &[code::PAYLOAD, code::VECTOR]),
    ("migrations/0023_jobs.sql", &[code::PAYLOAD, code::VECTOR]),
    ("migrations/0005_findings.sql", &[]),
    ("src/daemon/finding_flag.rs", &[]),
    ("src/store/findings.rs", &[]),
];

#[test]
fn a_kind_of_finding_is_computed_only_where_the_list_says_which() {
    let mut found = BTreeSet::new();
    for file in files("src") {
        // The fields of each finding that is made, or taken apart.
        let made = file.shipped().split("Finding {").skip(1).filter_map(|rest| rest.split('}').next());
        if made.into_iter().any(|fields| {
            fields.contains("kind,")
                || fields.contains("kind: ") && !fields.contains("kind: \"") && !fields.contains("pub kind")
        }) {
            found.insert(file.path.clone());
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for entry in std::fs::read_dir(root.join("migrations")).expect("the migrations") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("a migration");
        let calls = ["perform gov_handoff.gov_finding_raise(", "perform gov_handoff.gov_finding_sustain("];
        if calls.iter().any(|call| text.split(call).skip(1).any(|rest| !rest.starts_with('\''))) {
            found.insert(path.strip_prefix(root).expect("ours").display().to_string());
        }
    }
    let listed: BTreeSet<_> = COMPUTED.iter().map(|(file, _)| (*file).to_owned()).collect();
    assert_eq!(found, listed);
}

#[test]
fn every_kind_of_finding_that_is_raised_is_known_by_name() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    let mut texts: Vec<_> = files("src").iter().map(|f| f.shipped().to_owned()).collect();
    for entry in std::fs::read_dir(root).expect("the migrations") {
        texts.push(std::fs::read_to_string(entry.expect("an entry").path()).expect("a migration"));
    }
    let mut raised = BTreeSet::new();
    for text in &texts {
        for from in RAISED {
            let names = text.split(from).skip(1).filter_map(|rest| rest.split(['\'', '"']).next());
            raised.extend(names.filter(|n| !OTHERS.contains(n)).map(str::to_owned));
        }
    }
    raised.extend(COMPUTED.iter().flat_map(|(_, kinds)| kinds.iter()).map(ToString::to_string));
    let known: Vec<_> = gov_handoff::core::finding::KINDS.iter().map(ToString::to_string).collect();
    assert_eq!(raised.into_iter().collect::<Vec<_>>(), known);
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
