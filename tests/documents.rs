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
