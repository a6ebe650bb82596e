//! What rules accept, and what they refuse.

use super::*;

fn rules(text: &str) -> RuleSet {
    let file = parse_file(text).expect("rules");
    RuleSet::compile(&file.rules, &BTreeSet::from(["m".to_owned()])).expect("rules")
}

fn verdict(set: &RuleSet, grain: Grain, facts: &RuleFacts) -> Option<String> {
    set.judge(grain, facts).verdict
}

#[test]
fn the_first_rule_by_priority_decides() {
    let set = rules(
        r#"
        [[rule]]
        code = "b"
        grain = "group"
        verdict = "later"
        [[rule]]
        code = "a"
        grain = "group"
        priority = 200
        verdict = "last"
        [[rule]]
        code = "c"
        grain = "group"
        priority = 1
        when = [{ fact = "accepted", at_least = 2 }, { dimension = "class", one_of = ["x", "y"] }]
        verdict = "first"
        severity = "warning"
        "#,
    );
    let mut facts = RuleFacts { accepted: Some(2), ..RuleFacts::default() };
    assert_eq!(verdict(&set, Grain::Group, &facts).as_deref(), Some("later"));
    facts.dims.insert("class".to_owned(), "y".into());
    let judged = set.judge(Grain::Group, &facts);
    assert_eq!((judged.verdict.as_deref(), judged.severity.as_deref()), (Some("first"), Some("warning")));
    assert_eq!(verdict(&set, Grain::Object, &facts), None, "no rule is about objects");
}

#[test]
fn disabled_rules_and_those_without_their_measurement_do_not_hold() {
    let rule = |more: &str| format!("[[rule]]\ncode = \"a\"\ngrain = \"object\"\nverdict = \"v\"\n{more}");
    for (more, holds) in [
        ("", true),
        ("enabled = false", false),
        ("measurement = \"m\"", true),
        ("measurement = \"n\"", false),
    ] {
        let set = rules(&rule(more));
        assert_eq!(verdict(&set, Grain::Object, &RuleFacts::default()).is_some(), holds, "{more}");
    }
}

#[test]
fn every_form_of_test_holds_where_it_should() {
    let facts = RuleFacts {
        members: Some(3),
        retired: Some(1),
        age: Some(86_400),
        last_kind: Some("governance.handoff.object_born".to_owned()),
        input: Some("ok".to_owned()),
        dims: serde_json::json!({ "a": "x", "none": null }).as_object().cloned().unwrap_or_default(),
        ..RuleFacts::default()
    };
    for (grain, test, passes) in [
        ("group", "fact = \"members\", equals = 3", true),
        ("group", "fact = \"members\", one_of = [1, 2]", false),
        ("group", "fact = \"members\", at_most = 2, not = true", true),
        ("group", "fact = \"age\", at_least = \"1d\"", true),
        ("group", "fact = \"age\", at_least = 86401", false),
        ("group", "fact = \"changes\", at_least = 0", false),
        ("group", "fact = \"changes\", present = false", true),
        ("group", "fact = \"last_kind\", equals = \"object_born\"", true),
        ("group", "dimension = \"a\", equals = \"x\"", true),
        ("group", "dimension = \"none\", present = true", false),
        ("group", "dimension = \"b\", equals = \"x\", not = true", false),
        ("object", "fact = \"retired\", equals = true", true),
        ("object", "fact = \"input\", one_of = [\"ok\", \"pending\"]", true),
        ("object", "fact = \"input_reason\", present = true", false),
    ] {
        let set = rules(&format!(
            "[[rule]]\ncode = \"a\"\ngrain = \"{grain}\"\nverdict = \"v\"\nwhen = [{{ {test} }}]"
        ));
        let grain = if grain == "group" { Grain::Group } else { Grain::Object };
        assert_eq!(verdict(&set, grain, &facts).is_some(), passes, "{test}");
    }
}

#[test]
fn what_cannot_be_meant_is_refused_by_name() {
    let head = "[[rule]]\ncode = \"a\"\ngrain = \"group\"\nverdict = \"v\"\n";
    for (text, said) in [
        ("code = \"a\"", "unknown field `code`"),
        (&format!("{head}colour = 1"), "unknown field `colour`"),
        (&format!("{head}when = [{{ fact = \"input\", equals = \"ok\" }}]"), "expected a fact of a group"),
        (&format!("{head}when = [{{ fact = \"members\" }}]"), "needs exactly one of equals"),
        (
            &format!("{head}when = [{{ fact = \"members\", equals = \"x\" }}]"),
            "expected a whole number for members",
        ),
        (&format!("{head}when = [{{ fact = \"members\", dimension = \"d\", equals = 1 }}]"), "and not both"),
        (
            &format!("{head}when = [{{ dimension = \"d\", at_least = 1 }}]"),
            "needs exactly one of equals, one_of, present",
        ),
        (&format!("{head}when = [{{ fact = \"age\", at_least = \"soon\" }}]"), "a text such as 30d"),
        (&format!("{head}severity = \"loud\""), "expected the severity"),
        (&format!("{head}{head}"), "found it twice"),
        (&head.replace("\"v\"", "\"No Word\""), "expected a verdict of small letters"),
    ] {
        let refused = parse_file(text).expect_err(text);
        assert!(refused.contains(said), "{text}: {refused}");
    }
}
