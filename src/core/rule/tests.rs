//! Templates, column tests, and the reasons to reject a rule.

use super::*;
use crate::core::handoff::Source;
use crate::core::samples;

/// A source `s` of the columns `id`, `a` and `b`, with one rule.
fn definition() -> SourceDefinition {
    let text = r#"
        name = "s"
        id = { column = "id", type = "int8" }
        columns = ["id", "a", "b"]
        [[rule]]
        kind = "governance.handoff.k"
        object_type = "{a}"
        object_ref = "{a}:{b}"
        group = [["a", "{a}"]]
    "#;
    toml::from_str(text).expect("the definition is well formed")
}

fn row(a: Option<&str>, b: Option<&str>) -> Row {
    Row::new([Some("1"), a, b].map(|v| v.map(str::to_owned)).to_vec())
}

fn template(text: &str) -> Result<Template, DefinitionError> {
    Columns(&definition()).template(text, "rule k")
}

fn test_on_a(test: ColumnTest) -> Result<Test, DefinitionError> {
    Columns(&definition()).test(&ColumnTest { column: "a".to_owned(), ..test }, "rule k")
}

/// Why the definition is rejected after `change` was applied to its rule.
fn refusal(change: impl FnOnce(&mut RuleDefinition)) -> String {
    let mut definition = definition();
    change(&mut definition.rules[0]);
    Source::compile(definition).expect_err("it was accepted").to_string()
}

#[test]
fn templates_mix_constants_and_columns() {
    let row = row(Some("x"), Some("y"));
    for (text, rendered) in [
        ("", ""),
        ("constant", "constant"),
        ("{a}", "x"),
        ("{a}{b}", "xy"),
        ("<{a}:{b}>", "<x:y>"),
        ("người {a}", "người x"),
    ] {
        assert_eq!(template(text).map(|t| t.render(&row)), Ok(rendered.to_owned()), "{text}");
    }
}

#[test]
fn doubled_braces_are_literal() {
    let row = row(Some("x"), None);
    for (text, rendered) in [("{{a}}", "{a}"), ("{{{a}}}", "{x}"), ("}}{{", "}{"), ("{a}}}", "x}")] {
        assert_eq!(template(text).map(|t| t.render(&row)), Ok(rendered.to_owned()), "{text}");
    }
}

#[test]
fn a_lone_brace_is_refused_whichever_side_is_missing() {
    for text in ["}", "a}", "{a}}", "{", "{a", "x{", "{a}{b", "{{{a"] {
        let message = template(text).expect_err(text).to_string();
        assert!(message.contains("without") && message.contains(text), "{message}");
    }
}

#[test]
fn a_value_with_braces_is_not_read_as_a_template() {
    assert_eq!(template("{a}").map(|t| t.render(&row(Some("{b}"), Some("y")))), Ok("{b}".to_owned()));
}

#[test]
fn null_renders_empty_and_makes_a_template_absent() {
    let template = template("{a}:{b}").expect("the template is well formed");
    assert_eq!(template.render(&row(Some("x"), None)), "x:");
    assert_eq!(template.render_present(&row(Some("x"), None)), None);
    assert_eq!(template.render_present(&row(Some("x"), Some(""))), Some("x:".to_owned()));
    assert_eq!(template.render_whole(&row(Some("x"), Some("y"))), Some("x:y".to_owned()));
    for silent in [None, Some(""), Some(" ")] {
        assert_eq!(template.render_whole(&row(Some("x"), silent)), None);
    }
}

#[test]
fn each_form_of_test_and_its_negation() {
    let equals = ColumnTest { equals: Some("x".to_owned()), ..Default::default() };
    let one_of = ColumnTest { one_of: Some(vec!["w".to_owned(), "x".to_owned()]), ..Default::default() };
    let none_of = ColumnTest { one_of: Some(Vec::new()), ..Default::default() };
    let present = ColumnTest { present: Some(true), ..Default::default() };
    let absent = ColumnTest { present: Some(false), ..Default::default() };
    let prefix = ColumnTest { prefix: Some("x".to_owned()), ..Default::default() };
    // Of the values "x", "xy", "", NULL.
    for (test, passes) in [
        (equals, [true, false, false, false]),
        (one_of, [true, false, false, false]),
        (none_of, [false, false, false, false]),
        (present, [true, true, true, false]),
        (absent, [false, false, false, true]),
        (prefix, [true, true, false, false]),
    ] {
        for (value, passes) in [Some("x"), Some("xy"), Some(""), None].into_iter().zip(passes) {
            let row = row(value, Some("x"));
            let outcome = |not| test_on_a(ColumnTest { not, ..test.clone() }).map(|t| t.passes(&row));
            assert_eq!(outcome(false), Ok(passes), "{test:?} on {value:?}");
            assert_eq!(outcome(true), Ok(!passes), "not {test:?} on {value:?}");
        }
    }
}

#[test]
fn a_test_has_exactly_one_form() {
    let none = ColumnTest::default();
    let x = Some("x".to_owned());
    let two = ColumnTest { equals: x.clone(), prefix: x, ..Default::default() };
    let mixed = ColumnTest { one_of: Some(Vec::new()), present: Some(true), ..Default::default() };
    for test in [none, two, mixed] {
        let message = test_on_a(test).expect_err("it was accepted").to_string();
        assert_eq!(
            message,
            "source s: rule k: the test on a needs exactly one of equals, one_of, present, prefix"
        );
    }
}

#[test]
fn an_unknown_column_is_named_with_its_source_and_rule() {
    let nope = || "{nope}".to_owned();
    let test = ColumnTest { column: "nope".to_owned(), present: Some(true), ..Default::default() };
    for message in [
        refusal(|r| r.object_type = nope()),
        refusal(|r| r.object_ref = nope()),
        refusal(|r| r.group.push(("d".to_owned(), nope()))),
        refusal(|r| r.scope = Some(vec![("d".to_owned(), nope())])),
        refusal(|r| r.when.push(test)),
    ] {
        let start = "source s: rule governance.handoff.k names column nope,";
        assert!(message.starts_with(start), "{message}");
    }
}

#[test]
fn a_kind_of_another_namespace_is_refused() {
    for kind in ["", "object_born", "governance.handoff", "governance.handoff.", "system.handoff.k"] {
        let message = refusal(|r| r.kind = kind.to_owned());
        assert!(message.contains("a kind starts with governance.handoff."), "{message}");
    }
}

#[test]
fn a_stream_or_severity_outside_the_vocabulary_is_refused() {
    let stream = refusal(|r| r.stream = "gossip".to_owned());
    assert!(stream.contains("stream gossip is not one of comment, review"), "{stream}");
    let severity = refusal(|r| r.severity = Some("fatal".to_owned()));
    assert!(severity.contains("severity fatal is not one of info, warning, critical"), "{severity}");
}

#[test]
fn a_rule_without_a_group_is_refused() {
    assert!(refusal(|r| r.group.clear()).contains("at least one dimension"));
}

#[test]
fn the_places_outside_rules_are_named_too() {
    let change = |change: fn(&mut SourceDefinition)| {
        let mut definition = samples::definition("birth_registry");
        change(&mut definition);
        Source::compile(definition).expect_err("it was accepted").to_string()
    };
    for (message, start) in [
        (change(|d| d.id.column = "nope".to_owned()), "source birth_registry: id names column nope,"),
        (
            change(|d| d.actor_ref = Some("nope".to_owned())),
            "source birth_registry: actor_ref names column nope,",
        ),
        (
            change(|d| d.address.push("{nope}".to_owned())),
            "source birth_registry: address names column nope,",
        ),
        (
            change(|d| d.columns.push("id".to_owned())),
            "source birth_registry: columns: column id is listed twice",
        ),
        (change(|d| d.batch_size = 0), "source birth_registry: batch_size: 0 is not between"),
        (change(|d| d.name.clear()), "source : name: a source has a name"),
    ] {
        assert!(message.starts_with(start), "{message}");
    }
}
