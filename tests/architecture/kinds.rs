//! SQLSTATEs and kinds of findings: each has one table, and the table is complete.

use super::{assert_none, files};
use std::collections::BTreeSet;
use std::path::Path;

use gov_handoff::core::dead_letter::code;
use gov_handoff::core::transaction::Surprise;

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
    for file in files("src")
        .iter()
        .filter(|f| f.is_in(&["src/store/", "src/error.rs", "src/error/states.rs", "src/error/convert.rs"]))
    {
        let words = file.shipped().split('"').filter(|word| is_state(word));
        found.extend(words.map(|word| format!("{}: {word}", file.path)));
    }
    assert_none("a SQLSTATE stands as a text; take the constant of `SqlState`", &found);
}

/// Where a kind of finding is named when it is raised, up to the quote before the name.
const RAISED: [&str; 5] = [
    "gov_handoff.gov_finding_raise('",
    "gov_handoff.gov_finding_sustain('",
    "gov_handoff.gov_emit_finding('",
    "kind: \"",
    "Flag::new(\"",
];
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
        let gates = ["gov_finding_raise(", "gov_finding_sustain(", "gov_emit_finding("];
        let calls = gates.map(|gate| format!("perform gov_handoff.{gate}"));
        if calls.iter().any(|call| text.split(call.as_str()).skip(1).any(|rest| !rest.starts_with('\''))) {
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
