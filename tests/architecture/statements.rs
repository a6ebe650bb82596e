//! Statements and gates, read as text: where they stand, and how they are called.

use super::{File, assert_none, offences};
use std::path::Path;

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

/// Every function of the migrations: its name and its text up to the next statement.
fn gates() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root).expect("the migrations") {
        let text = std::fs::read_to_string(entry.expect("an entry").path()).expect("a migration");
        let code: Vec<_> = text.lines().filter(|l| !l.trim_start().starts_with("--")).collect();
        let code = code.join("\n");
        for gate in code.split("create function ").skip(1) {
            let name = gate.split('(').next().unwrap_or_default().to_owned();
            found.push((name, gate.split("\n$$;").next().unwrap_or_default().to_owned()));
        }
    }
    assert!(found.len() > 150, "only {} functions were found", found.len());
    found
}

/// What takes which lock, in the order of migrations/0002. Locks of the same place may come in any order.
const LOCKS: [(usize, &str); 10] = [
    (1, "from gov_handoff.batches"),
    (1, "lock table gov_handoff.batches"),
    (1, "gov_handoff.gov_batches_alone("),
    (2, "lock table gov_handoff.definitions"),
    (4, "gov_handoff.gov_marks_put("),
    (5, "gov_handoff.gov_feed_lock("),
    (5, "gov_handoff.gov_feed_append("),
    (5, "gov_handoff.gov_feed_signals("),
    (6, "gov_handoff.gov_lease_fence("),
    (7, "gov_handoff.gov_handoff_advance("),
];

/// The places of the locks that a gate takes, in the order of its text.
fn locks_of(gate: &str) -> Vec<usize> {
    let mut taken: Vec<(usize, usize)> = Vec::new();
    for (place, what) in LOCKS {
        taken.extend(gate.match_indices(what).map(|(at, _)| (at, place)));
    }
    taken.sort_unstable();
    taken.into_iter().map(|(_, place)| place).collect()
}

#[test]
fn every_gate_takes_its_locks_in_the_one_order() {
    let mut several = 0;
    for (name, gate) in gates() {
        let taken = locks_of(&gate);
        several += usize::from(taken.iter().any(|place| *place != taken[0]));
        assert!(
            taken.is_sorted(),
            "{name} takes locks in the order {taken:?}; migrations/0002 has the order"
        );
    }
    assert!(several > 10, "only {several} gates with several locks were found");
    assert!(!locks_of("lock table gov_handoff.definitions; perform from gov_handoff.batches;").is_sorted());
}

#[test]
fn every_lock_is_named_and_explained_in_one_place() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    let list = std::fs::read_to_string(root.join("0002_governance.sql")).expect("the list");
    let mut locks = 0;
    for entry in std::fs::read_dir(root).expect("the migrations") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("a migration");
        assert!(!text.contains("pg_advisory"), "{}: any role could take an advisory lock", path.display());
        // A table without columns is a lock.
        for line in text.lines().filter(|l| l.ends_with(" ();")) {
            let Some(name) = line.strip_prefix("create table gov_handoff.") else { continue };
            let name = name.trim_end_matches(" ();");
            assert!(
                list.contains(&format!("--   {name} ")),
                "migrations/0002 does not explain the lock {name}"
            );
            locks += 1;
        }
    }
    assert!(locks >= 4, "only {locks} locks were found");
}
