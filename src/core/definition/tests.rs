//! The default definitions, as in the file and as in the database.

use super::*;
use crate::core::handoff::Source;
use crate::core::rule::KIND_PREFIX;
use crate::core::samples;
use std::collections::BTreeSet;

/// SPEC §4.
const KINDS: [&str; 10] = [
    "object_born",
    "object_registered",
    "collection_changed",
    "count_changed",
    "object_retired",
    "source_changed",
    "axis_introduced",
    "policy_changed",
    "authority_changed",
    "ruleset_changed",
];

const MINIMAL: &str = r#"
    [[source]]
    name = "s"
    id = { column = "id", type = "int8" }
    columns = ["id"]
"#;

fn refusal(text: &str) -> String {
    toml::from_str::<SourceFile>(text).expect_err("it was accepted").to_string()
}

#[test]
fn every_default_source_compiles() {
    let definitions = samples::definitions();
    assert!(!definitions.is_empty());
    for definition in definitions {
        let name = definition.name.clone();
        assert!(Source::compile(definition).is_ok(), "{name}");
    }
}

#[test]
fn the_default_rules_give_exactly_the_ten_kinds() {
    let definitions = samples::definitions();
    let found: BTreeSet<_> = definitions.iter().flat_map(|d| &d.rules).map(|r| r.kind.clone()).collect();
    let wanted: BTreeSet<_> = KINDS.iter().map(|kind| format!("{KIND_PREFIX}{kind}")).collect();
    assert_eq!(found, wanted);
}

#[test]
fn the_database_gives_back_what_the_file_said() {
    for definition in samples::definitions() {
        let stored = serde_json::to_value(&definition).expect("a definition is json");
        let read: SourceDefinition = serde_json::from_value(stored).expect("its own json is a definition");
        assert_eq!(read, definition);
    }
}

#[test]
fn the_defaults_are_the_documented_ones() {
    let file: SourceFile = toml::from_str(MINIMAL).expect("the least definition is one");
    let source = &file.sources[0];
    assert_eq!((source.schema.as_str(), source.table(), source.batch_size), ("public", "s", 5_000));
    assert_eq!((source.order.as_ref(), source.trust.producers.as_ref()), (None, None));
}

#[test]
fn an_unknown_key_is_refused_at_every_level() {
    let rule = "[[source.rule]]\nkind = 'k'\nobject_type = 't'\nobject_ref = 'r'\ngroup = [['a', 'b']]";
    assert!(toml::from_str::<SourceFile>(&format!("{MINIMAL}\n{rule}")).is_ok());
    for (text, key) in [
        (format!("sauce = 1\n{MINIMAL}"), "sauce"),
        (format!("{MINIMAL}\nbatchsize = 1"), "batchsize"),
        (format!("{MINIMAL}\norder = {{ column = 'id', type = 'timestamp', tz = 'UTC' }}"), "tz"),
        (format!("{MINIMAL}\nexclude = [{{ column = 'id', equal = 'x' }}]"), "equal"),
        (format!("{MINIMAL}\ntrust = {{ actors = [] }}"), "actors"),
        (format!("{MINIMAL}\n{rule}\npayload = '{{id}}'"), "payload"),
    ] {
        let message = refusal(&text);
        assert!(message.contains(&format!("`{key}`")), "{message}");
    }
}

#[test]
fn an_unknown_type_or_zone_is_refused() {
    assert!(refusal(&MINIMAL.replace("int8", "numeric")).contains("numeric"));
    let zone = format!("{MINIMAL}\norder = {{ column = 'id', type = 'timestamp', zone = 'Mars/Base' }}");
    assert!(refusal(&zone).contains("Mars/Base"));
}
