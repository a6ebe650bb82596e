//! What the documents claim of the code is there: the tests that they name, the kinds of findings, the pages and sections that
//! they link to, and the length that the README may have.

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
        if page.is_file() {
            texts.push((page.display().to_string(), read(&page)));
        }
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

/// Each page, by its path from the root, with what it says outside of code.
fn pages() -> Vec<(String, String)> {
    let entries = std::fs::read_dir(root().join("docs")).expect("docs").map(|e| e.expect("a file").path());
    let mut pages: Vec<_> = entries.filter(|path| path.extension().is_some_and(|e| e == "md")).collect();
    pages.extend(["README.md", "ARCHITECTURE.md", "CHANGELOG.md"].map(|name| root().join(name)));
    let name = |path: &Path| path.strip_prefix(root()).expect("inside the crate").display().to_string();
    pages.iter().map(|path| (name(path), prose(&read(path)))).collect()
}

/// A page without its blocks of code.
fn prose(page: &str) -> String {
    let mut code = false;
    let outside = page.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !fence && !code
    });
    outside.collect::<Vec<_>>().join("\n")
}

/// The anchors of a page's headings, as GitHub and mdBook make them.
fn anchors(page: &str) -> BTreeSet<String> {
    let headings = page.lines().filter(|line| line.starts_with('#'));
    let anchor = |line: &str| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>()
    };
    headings.map(anchor).collect()
}

#[test]
fn every_page_is_listed_in_the_summary() {
    let summary = read(&root().join("docs/SUMMARY.md"));
    let listed: Vec<_> = summary.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    // sql-intro.md is the head of the generated sql.md.
    let apart = ["docs/SUMMARY.md", "docs/sql-intro.md"];
    for (path, _) in
        pages().iter().filter(|(path, _)| path.starts_with("docs/") && !apart.contains(&path.as_str()))
    {
        let name = path.trim_start_matches("docs/");
        assert_eq!(listed.iter().filter(|l| **l == name).count(), 1, "docs/SUMMARY.md lists {path} not once");
    }
    assert!(listed.len() > 15, "{listed:?}");
}

#[test]
fn every_link_leads_to_a_page_and_a_section_that_exist() {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for (path, text) in pages() {
        let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for link in links.filter(|link| !link.contains("://") && !link.contains(' ')) {
            seen += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let here = root().join(&path);
            let target = if file.is_empty() { here } else { here.with_file_name("").join(file) };
            let lacks = |anchor: &str| !anchors(&prose(&read(&target))).contains(anchor);
            if !target.exists() {
                wrong.push(format!("{path}: {link}: no such file"));
            } else if !anchor.is_empty() && lacks(anchor) {
                wrong.push(format!("{path}: {link}: no such section"));
            }
        }
    }
    assert!(seen > 100, "only {seen} links were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_kind_of_finding_has_a_section_and_every_section_a_kind() {
    let page = read(&root().join("docs/findings.md"));
    let sections: BTreeSet<_> = page.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    let kinds: BTreeSet<_> = gov_handoff::core::finding::KINDS.into_iter().collect();
    let missing: Vec<_> = kinds.difference(&sections).collect();
    let unknown: Vec<_> = sections.difference(&kinds).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "docs/findings.md lacks {missing:?} and has {unknown:?}"
    );
    for section in page.split("\n### ").skip(1) {
        let name = section.lines().next().unwrap_or_default();
        for part in ["*Severity:*", "*Ends:*", "*Means:*", "*Impact:*", "*To do:*", "```sh run"] {
            assert!(section.contains(part), "{name} has no {part}");
        }
    }
}

/// Keep a changelog, and semantic versions: https://keepachangelog.com, https://semver.org.
#[test]
fn the_changelog_is_kept() {
    let page = read(&root().join("CHANGELOG.md"));
    let sections: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert_eq!(sections.first(), Some(&"[Unreleased]"));
    for section in &sections[1..] {
        let (version, date) =
            section.split_once(" - ").unwrap_or_else(|| panic!("{section}: version and date"));
        let version = version.trim_matches(['[', ']']);
        assert!(
            version.split('.').filter(|n| n.parse::<u32>().is_ok()).count() == 3,
            "{version} is no version"
        );
        assert!(chrono::NaiveDate::parse_from_str(date, "%Y-%m-%d").is_ok(), "{date} is no date");
    }
    let known = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"];
    let unknown: Vec<_> = page
        .lines()
        .filter_map(|line| line.strip_prefix("### "))
        .filter(|kind| !known.contains(kind))
        .collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn a_wrong_link_and_a_wrong_anchor_would_be_noticed() {
    let page = "# Slot growth, and slot loss\n```sh\n# a comment\n```\n### `kind_a`\n";
    let found = anchors(&prose(page));
    assert_eq!(found, BTreeSet::from(["slot-growth-and-slot-loss".to_owned(), "kind_a".to_owned()]));
}
