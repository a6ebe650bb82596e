//! What the documents claim of the code is there: the tests that they name, and the length that the README may have.

use std::collections::BTreeSet;
use std::path::Path;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The names of all functions under these folders.
fn functions(folders: &[&str]) -> BTreeSet<String> {
    let mut folders: Vec<_> = folders.iter().map(|f| root().join(f)).collect();
    let mut names = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = read(&path);
                let after = text.split("fn ").skip(1);
                names.extend(after.filter_map(|t| t.split(['(', '<']).next().map(str::to_owned)));
            }
        }
    }
    names
}

/// A guarantee is only as good as the test that fails without it, so a test that is renamed must be renamed here too.
#[test]
fn every_test_that_the_guarantees_name_exists() {
    let known = functions(&["tests", "src"]);
    let (mut named, mut wrong) = (0, Vec::new());
    for page in ["docs/guarantees.md", "docs/security.md"] {
        // A table may write the end of a name only: `…_while_streaming`.
        for word in read(&root().join(page)).split('`').skip(1).step_by(2) {
            let is_name = word
                .trim_start_matches('…')
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
            // Names of tests are sentences. Settings, columns and functions are shorter.
            if !is_name || word.matches('_').count() < 5 {
                continue;
            }
            named += 1;
            let there = match word.strip_prefix('…') {
                Some(end) => known.iter().any(|name| name.ends_with(end)),
                None => known.contains(word),
            };
            if !there {
                wrong.push(format!("{page}: {word}"));
            }
        }
    }
    assert!(named > 40, "only {named} names were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_readme_is_short() {
    let lines = read(&root().join("README.md")).lines().count();
    assert!(lines <= 120, "{lines} lines; what is more than an overview belongs to docs/");
}

#[test]
fn the_glossary_defines_each_term_once() {
    let page = read(&root().join("docs/glossary.md"));
    let heads = page.lines().filter_map(|l| l.strip_prefix("**")?.split_once("**").map(|(term, _)| term));
    let terms: Vec<_> = heads.map(str::to_lowercase).collect();
    let distinct: BTreeSet<_> = terms.iter().collect();
    assert!(terms.len() > 60, "only {} terms were found", terms.len());
    let twice = |term: &&&String| terms.iter().filter(|other| other == *term).count() > 1;
    let twice: Vec<_> = distinct.iter().filter(twice).collect();
    assert!(twice.is_empty(), "defined twice: {twice:?}");
}

/// Wordings that STYLE replaces, and how.
const ODD: [(&str, &str); 6] = [
    ("for ever", "indefinitely"),
    ("anew", "again"),
    ("whoever", "the actor by name"),
    ("is no superuser", "is not a superuser"),
    ("no row any more", "the row is gone"),
    ("at the very most", "at most"),
];

#[test]
fn documents_and_comments_use_plain_words() {
    let mut texts: Vec<(String, String)> = Vec::new();
    for page in std::fs::read_dir(root().join("docs")).expect("the pages") {
        let page = page.expect("an entry").path();
        texts.push((page.display().to_string(), read(&page)));
    }
    texts.extend(["README.md", "ARCHITECTURE.md"].map(|page| (page.to_owned(), read(&root().join(page)))));
    let mut folders = vec![root().join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let comments =
                    read(&path).lines().filter(|l| l.contains("//")).collect::<Vec<_>>().join("\n");
                texts.push((path.display().to_string(), comments));
            }
        }
    }
    let mut found = Vec::new();
    for (name, text) in &texts {
        let text = text.to_lowercase();
        let has = |odd: &str| {
            text.match_indices(odd).any(|(at, _)| {
                let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
                !part(text[..at].chars().next_back()) && !part(text[at + odd.len()..].chars().next())
            })
        };
        let odd = ODD.iter().filter(|(odd, _)| has(odd));
        found.extend(odd.map(|(odd, plain)| format!("{name}: `{odd}`, write `{plain}`")));
    }
    assert!(texts.len() > 200, "only {} texts were found", texts.len());
    assert!(found.is_empty(), "{}", found.join("\n"));
}
