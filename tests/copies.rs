//! Parts of the gates that are written out more than once, because a call would cost a lone row too much: each copy must say
//! the same as the others.

use std::path::Path;

fn migrations() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("the migrations")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| !path.display().to_string().ends_with(".down.sql"))
        .collect();
    files.sort();
    let text = |path: &std::path::PathBuf| std::fs::read_to_string(path).expect("a migration");
    let all: Vec<_> = files.iter().map(text).collect();
    let code = all.iter().flat_map(|text| text.lines()).filter(|line| !line.trim_start().starts_with("--"));
    code.collect::<Vec<_>>().join(" ")
}

/// Every stretch of the text from `from` to before the first of `to`, with single blanks.
fn stretches(text: &str, from: &str, to: &[&str]) -> Vec<String> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let cut = |rest: &str| {
        let end = to.iter().filter_map(|to| rest.find(to)).min().unwrap_or(rest.len());
        rest[..end].trim().trim_end_matches([';', ')']).trim().to_owned()
    };
    text.split(from).skip(1).map(cut).collect()
}

#[track_caller]
fn assert_same(what: &str, copies: &[String], at_least: usize) {
    assert!(copies.len() >= at_least, "{what}: {} copies found, expected {at_least}", copies.len());
    for copy in &copies[1..] {
        assert_eq!(*copy, copies[0], "{what}: two copies differ");
    }
}

#[test]
fn every_gate_builds_the_same_payload() {
    let copies =
        stretches(&migrations(), "jsonb_build_object('object_type',", &["'captured_by', p_captured_by"]);
    // A batch has its values in the columns of `s` and in arrays by rule, a lone signal in parameters.
    let plain = |copy: &String| {
        let names = [
            ("r_source[s.rule]", "source"),
            ("r_change[s.rule]", "change"),
            ("r_source", "source"),
            ("r_change", "change"),
            ("s.grp", "group"),
            ("s_", ""),
            ("s.", ""),
        ];
        names.iter().fold(copy.clone(), |text, (from, to)| text.replace(from, to))
    };
    assert_same("the payload", &copies.iter().map(plain).collect::<Vec<_>>(), 3);
}

#[test]
fn every_gate_marks_groups_and_objects_alike() {
    let text = migrations();
    let ends = [" returning c."];
    let groups = stretches(&text, "on conflict (group_key) do update", &ends);
    assert_same("the mark of a group", &groups, 2);
    let objects = stretches(&text, "on conflict (candidate_key) do update", &ends);
    assert_same("the mark of an object", &objects, 2);
}

#[test]
fn every_fence_asks_the_same() {
    let text = migrations().replace("h.", "");
    let ends = [";", " returning"];
    let fences = stretches(&text, "where executor_name = p_worker and lease_owner = p_owner and", &ends);
    // To resign, a lease need not be fresh; everything else needs that.
    let (fresh, rest): (Vec<_>, Vec<_>) =
        fences.into_iter().partition(|fence| fence.contains("last_tick_at >"));
    assert_same("the fence", &fresh, 5);
    assert_eq!(rest.len(), 1, "only resigning does without a fresh lease: {rest:?}");
    assert!(fresh[0].starts_with(&rest[0]), "both name the owner and the term: {rest:?}");
}

#[test]
fn a_copy_that_differs_is_noticed() {
    let text = "a where x = 1; b where x = 1; c where x = 2;";
    let copies = stretches(text, "where", &[";"]);
    assert_eq!(copies, ["x = 1", "x = 1", "x = 2"]);
    assert!(std::panic::catch_unwind(|| assert_same("x", &copies, 3)).is_err());
}
