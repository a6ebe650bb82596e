//! The shape of the code: how long a function and a file may be, and that a name or a word has one meaning.

use super::{File, assert_none, files, offences};
use std::collections::BTreeMap;

/// Lines of a function that still fit on a screen, from its signature to its end.
const SCREEN: usize = 60;
/// Lines of a file under `src`.
const FILE: usize = 400;
/// Lines of a file of tests or benches: one subject and its small helpers.
const FILE_OF_TESTS: usize = 620;

/// The name of the function that begins on this line.
fn function(line: &str) -> Option<&str> {
    const BEFORE: [&str; 6] = ["pub", "const", "async", "unsafe", "(super)", "(crate)"];
    let (before, rest) = line.split_once("fn ")?;
    let mut words = before.split_whitespace().map(|w| w.trim_start_matches("pub"));
    let begins = words.all(|w| w.is_empty() || BEFORE.contains(&w));
    begins.then(|| rest.split(['(', '<']).next().unwrap_or(rest))
}

/// Each function with more than so many lines. rustfmt puts the brace that ends one under its beginning.
fn long_functions(text: &str, most: usize) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (n, line) in lines.iter().enumerate() {
        let Some(name) = function(line) else { continue };
        let indent = &line[..line.len() - line.trim_start().len()];
        let end = format!("{indent}}}");
        let length = 1 + lines[n..].iter().position(|l| **l == end).unwrap_or(0);
        if length > most {
            found.push(format!("{}: {name} has {length} lines", n + 1));
        }
    }
    found
}

#[test]
fn no_function_is_longer_than_a_screen() {
    let mut found = Vec::new();
    for file in files("src") {
        found.extend(long_functions(&file.text, SCREEN).iter().map(|f| format!("{}:{f}", file.path)));
    }
    assert_none("cut it into named steps", &found);
}

#[test]
fn a_long_function_is_noticed() {
    let text = "impl A {\n    pub(super) async fn b<T>(\n        c: T,\n    ) {\n        if c {\n        }\n    }\n}\n";
    assert_eq!(long_functions(text, 5), ["2: b has 6 lines"]);
    assert!(long_functions(text, 6).is_empty());
    assert!(function("    // a fn of something").is_none());
}

#[test]
fn no_file_is_too_long_to_find_ones_way_in() {
    let too_long = |under: &str, most: usize| {
        let long = |f: &File| {
            (f.text.lines().count() > most).then(|| format!("{}: {}", f.path, f.text.lines().count()))
        };
        files(under).iter().filter_map(long).collect::<Vec<_>>()
    };
    assert_none("split it by subject", &too_long("src", FILE));
    assert_none(
        "split it by subject",
        &[too_long("tests", FILE_OF_TESTS), too_long("benches", FILE_OF_TESTS)].concat(),
    );
}

/// Names that stand twice on purpose: a role and the session of that role; the short form of a module's own `Result`.
const SHARED: [&str; 3] = ["Reader", "Writer", "Result"];

#[test]
fn a_name_of_a_type_has_one_meaning() {
    let mut homes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in files("src").iter().filter(|f| !f.is_test()) {
        for line in file.shipped().lines() {
            let line = line.strip_prefix("pub ").or(line.strip_prefix("pub(super) ")).unwrap_or(line);
            let line = line.strip_prefix("pub(crate) ").unwrap_or(line);
            let kinds = ["struct ", "enum ", "trait ", "type "];
            let Some(rest) = kinds.iter().find_map(|kind| line.strip_prefix(kind)) else { continue };
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            homes.entry(name).or_default().push(file.path.clone());
        }
    }
    assert!(homes.len() > 300, "only {} types were found", homes.len());
    let twice = |(name, homes): (&String, &Vec<String>)| {
        (homes.len() > 1 && !SHARED.contains(&name.as_str())).then(|| format!("{name}: {}", homes.join(", ")))
    };
    assert_none("give each a name of its own", &homes.iter().filter_map(twice).collect::<Vec<_>>());
}

/// What the wording of a message would be asked for, were a decision to rest on it.
const WORDING: [&str; 8] = [
    "message().contains(",
    "message().starts_with(",
    "message().ends_with(",
    "message() ==",
    "to_string().contains(",
    "to_string().starts_with(",
    "to_string().ends_with(",
    "about_row().contains(",
];

#[test]
fn nothing_is_decided_by_the_wording_of_a_message() {
    for needle in WORDING {
        assert_none(
            "a message is asked for its words; ask for a kind or a SQLSTATE",
            &offences(needle, |_| true),
        );
    }
}

/// What has a closed list of values, and so a type.
const CLOSED: [&str; 9] =
    ["state", "mode", "phase", "severity", "policy", "step", "change", "standing", "captured_by"];

#[test]
fn closed_lists_are_types_and_not_words() {
    let mut found = Vec::new();
    for what in CLOSED {
        for of in ["", ".as_str()", ".as_deref()", ".as_ref()"] {
            for (operator, word) in [("==", "\""), ("!=", "\""), ("==", "Some(\""), ("!=", "Some(\"")] {
                let needle = format!("{what}{of} {operator} {word}");
                found.extend(offences(&needle, |_| true));
            }
        }
    }
    assert_none("a word is compared; parse it into an enum where it comes in", &found);
}
