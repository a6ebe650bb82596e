//! Rows of the default sources, and the handoffs that they map to.

use super::*;
use crate::core::definition::Trust;
use crate::core::samples::{definition, handoffs, row, source};

fn refusal(source: &Source, values: &[(&str, &str)]) -> Refusal {
    match source.map(&row(source, values)) {
        Mapped::Refused(refusal) => refusal,
        other => panic!("expected a refusal, found {other:?}"),
    }
}

/// One row, and the handoffs it should give: kind and group of each; reference and address are the row's.
struct Case {
    source: &'static str,
    values: &'static [(&'static str, &'static str)],
    reference: &'static str,
    address: &'static str,
    gives: &'static [(&'static str, &'static str)],
}

/// A changelog row of an entity type, code and action.
macro_rules! change {
    ($entity:literal, $code:literal, $action:literal => $reference:literal, $gives:expr) => {
        Case {
            source: "registry_changelog",
            values: &[
                ("id", "7"),
                ("entity_type", $entity),
                ("entity_code", $code),
                ("action", $action),
                ("timestamp", "2026-01-02 03:04:05"),
            ],
            reference: $reference,
            address: $reference,
            gives: &$gives,
        }
    };
}

const UUID: &str = "8c04f5f7-0000-4000-8000-000000000001";
const PERSON: &str = "object_class=person/source_registry=birth_registry";

const CASES: &[Case] = &[
    Case {
        source: "birth_registry",
        values: &[("id", "1"), ("collection_name", "person"), ("entity_code", "P1"), ("status", "born")],
        reference: "person:P1",
        address: "person:P1",
        gives: &[("object_born", PERSON)],
    },
    Case {
        source: "birth_registry",
        values: &[
            ("id", "2"),
            ("collection_name", "person"),
            ("entity_code", "P2"),
            ("canonical_address", "vn/person/P2"),
            ("status", "registered"),
        ],
        reference: "person:P2",
        address: "vn/person/P2",
        gives: &[("object_born", PERSON), ("object_registered", PERSON)],
    },
    change!("person", "P1", "register" => "person:P1",
        [("object_registered", "object_class=person/source_registry=registry_changelog")]),
    change!("collection", "people", "rename" => "collection:people",
        [("collection_changed", "source_registry=people/scope=collection")]),
    change!("table", "t", "count_changed" => "table:t", [("count_changed", "source_registry=t")]),
    change!("table", "a/b", "recount" => "table:a/b", [("count_changed", "source_registry=a%2Fb")]),
    change!("doc", "D", "retire" => "doc:D", [("object_retired", "object_class=doc/lifecycle=retired")]),
    change!("doc", "D", "supersede" => "doc:D", [("object_retired", "object_class=doc/lifecycle=retired")]),
    change!("feed", "f", "source_changed" => "feed:f", [("source_changed", "source_registry=f")]),
    change!("feed", "f", "migrate" => "feed:f", [("source_changed", "source_registry=f")]),
    change!("axis", "x", "add" => "axis:x", [("axis_introduced", "pivot=x")]),
    change!("pivot", "p", "add" => "pivot:p", [("axis_introduced", "pivot=p")]),
    change!("law", "L", "amend" => "law:L", [("policy_changed", "scope=L")]),
    change!("policy", "L", "amend" => "policy:L", [("policy_changed", "scope=L")]),
    change!("normative", "L", "amend" => "normative:L", [("policy_changed", "scope=L")]),
    change!("jurisdiction", "L", "amend" => "jurisdiction:L", [("policy_changed", "scope=L")]),
    change!("measurement", "L", "amend" => "measurement:L", [("policy_changed", "scope=L")]),
    change!("owner", "O", "grant" => "owner:O", [("authority_changed", "owner_scope=owner/scope=O")]),
    change!("approval", "O", "grant" => "approval:O",
        [("authority_changed", "owner_scope=approval/scope=O")]),
    change!("exception", "O", "grant" => "exception:O",
        [("authority_changed", "owner_scope=exception/scope=O")]),
    change!("ruleset", "R", "publish" => "ruleset:R", [("ruleset_changed", "ruleset=R")]),
    Case {
        source: "pivot_definitions",
        values: &[("id", "3"), ("pivot_code", "region")],
        reference: "pivot:region",
        address: "pivot:region",
        gives: &[("axis_introduced", "pivot=region")],
    },
    Case {
        source: "governance_ruleset",
        values: &[("id", "4"), ("ruleset_code", "core"), ("version", "2")],
        reference: "ruleset:core",
        address: "ruleset:core",
        gives: &[("ruleset_changed", "ruleset=core")],
    },
    Case {
        source: "event_outbox",
        values: &[
            ("id", UUID),
            ("event_domain", "iu"),
            ("event_stream", "birth"),
            ("canonical_address", "iu:9"),
        ],
        reference: "iu:9",
        address: "iu:9",
        gives: &[("object_registered", "object_class=iu/source_registry=event_outbox")],
    },
    Case {
        source: "event_outbox",
        values: &[
            ("id", UUID),
            ("event_domain", "iu"),
            ("event_stream", "update"),
            ("canonical_address", "iu:9"),
        ],
        reference: "iu:9",
        address: "iu:9",
        gives: &[("source_changed", "object_class=iu/source_registry=event_outbox")],
    },
];

#[test]
fn the_default_rules_map_every_kind() {
    let mut kinds = std::collections::BTreeSet::new();
    for case in CASES {
        let source = source(case.source);
        let found = handoffs(&source, case.values);
        let gives: Vec<_> = found
            .iter()
            .map(|h| (h.rule.kind.strip_prefix(KIND_PREFIX).unwrap_or_default(), h.group.as_str()))
            .collect();
        assert_eq!(gives, case.gives, "{:?}", case.values);
        for handoff in &found {
            assert_eq!(handoff.object_ref, case.reference);
            assert_eq!(handoff.canonical_address, case.address);
            assert_eq!(handoff.source_key, case.values[0].1);
            assert_eq!(handoff.standing, Standing::Normal);
            assert_eq!(handoff.rule.source, case.source);
            kinds.insert(handoff.rule.kind.clone());
        }
    }
    assert_eq!(kinds.len(), 10, "{kinds:?}");
}

#[test]
fn a_changed_ruleset_and_a_policy_dirty_their_groups_and_bump_the_version() {
    let source = source("registry_changelog");
    let ruleset = &handoffs(&source, &[("id", "1"), ("entity_type", "ruleset"), ("entity_code", "R")])[0];
    assert_eq!((ruleset.scope.as_deref(), ruleset.rule.grain), (Some(&[][..]), Grain::Group));
    let policy = &handoffs(&source, &[("id", "1"), ("entity_type", "law"), ("entity_code", "L")])[0];
    assert!(policy.rule.bumps_ruleset && ruleset.rule.bumps_ruleset);
    assert_eq!(policy.scope, Some(vec![("scope".to_owned(), Some("L".to_owned()))]));
}

#[test]
fn a_row_that_matches_several_rules_yields_each_once() {
    let source = source("registry_changelog");
    let values = [("id", "9"), ("entity_type", "collection"), ("entity_code", "c"), ("action", "register")];
    let found = handoffs(&source, &values);
    let kinds: Vec<_> = found.iter().map(|h| h.rule.kind.as_str()).collect();
    assert_eq!(kinds, ["governance.handoff.object_registered", "governance.handoff.collection_changed"]);
    assert_ne!(found[0].id, found[1].id);
    assert_eq!(found[0].subject, found[1].subject);
    assert!(found.iter().all(|h| h.id != h.subject));
}

#[test]
fn of_two_rules_of_one_kind_the_first_speaks() {
    let mut definition = definition("pivot_definitions");
    let mut second = definition.rules[0].clone();
    second.object_type = "axis".to_owned();
    definition.rules.push(second);
    let source = Source::compile(definition).expect("two rules may share a kind");
    let found = handoffs(&source, &[("id", "1"), ("pivot_code", "p")]);
    assert_eq!(found.iter().map(|h| h.object_type.as_str()).collect::<Vec<_>>(), ["pivot"]);
}

#[test]
fn a_row_that_no_rule_matches_is_captured_as_unmapped() {
    let source = source("registry_changelog");
    let found = handoffs(&source, &[("id", "5"), ("entity_type", "person"), ("action", "sneeze")]);
    let [unmapped] = &found[..] else { panic!("expected one handoff, found {found:?}") };
    assert_eq!(unmapped.standing, Standing::Unmapped);
    assert_eq!(unmapped.rule.kind, "governance.handoff.unmapped");
    assert_eq!(unmapped.object_ref, "registry_changelog:5");
    assert_eq!(unmapped.canonical_address, "registry_changelog:5");
    assert_eq!(unmapped.group.as_str(), "source_registry=registry_changelog");
}

#[test]
fn our_own_audit_rows_are_excluded_whatever_they_say() {
    let source = source("registry_changelog");
    for values in [
        &[("id", "5"), ("source_system", "gov-handoff"), ("entity_type", "law"), ("entity_code", "L")][..],
        &[("id", "not a key"), ("source_system", "gov-handoff")][..],
    ] {
        assert_eq!(source.map(&row(&source, values)), Mapped::Excluded);
    }
    let another =
        [("id", "5"), ("source_system", "gov-handoff2"), ("entity_type", "law"), ("entity_code", "L")];
    assert_eq!(handoffs(&source, &another).len(), 1);
}

#[test]
fn our_own_events_and_health_traffic_are_excluded() {
    let source = source("event_outbox");
    for (domain, stream) in
        [("governance", "update"), ("system", "birth"), ("health", "update"), ("iu", "health")]
    {
        let values = [("id", UUID), ("event_domain", domain), ("event_stream", stream)];
        assert_eq!(source.map(&row(&source, &values)), Mapped::Excluded, "{domain} {stream}");
    }
}

#[test]
fn an_own_address_wins_unless_it_is_null_or_blank() {
    let source = source("birth_registry");
    let address = |own: Option<&'static str>| {
        let mut values = vec![("id", "1"), ("collection_name", "person"), ("entity_code", "P1")];
        values.extend(own.map(|own| ("canonical_address", own)));
        handoffs(&source, &values)[0].canonical_address.clone()
    };
    assert_eq!(address(Some("vn/1")), "vn/1");
    assert_eq!(address(None), "person:P1");
    assert_eq!(address(Some("")), "person:P1");
    assert_eq!(address(Some(" \t")), "person:P1");
}

#[test]
fn a_producer_or_actor_that_is_not_named_is_unknown() {
    let source = source("birth_registry");
    let born = [("id", "1"), ("collection_name", "c"), ("entity_code", "e"), ("source_system", " ")];
    let handoff = &handoffs(&source, &born)[0];
    assert_eq!((handoff.source_system.as_str(), handoff.actor_ref.as_str()), ("unknown", "unknown"));
}

#[test]
fn a_blank_reference_or_type_is_refused() {
    let births = source("birth_registry");
    let blank = refusal(&births, &[("id", "1"), ("collection_name", " "), ("entity_code", "x")]);
    assert_eq!((blank.code, blank.source_key.as_str()), ("blank_reference", "1"));
    assert_eq!(blank.subject, births.identity.subject("1"));
    let events = source("event_outbox");
    let blank = refusal(&events, &[("id", UUID), ("event_domain", "iu"), ("event_stream", "birth")]);
    assert_eq!(blank.code, "blank_reference");
}

#[test]
fn a_reference_with_a_silent_part_is_the_rows_own() {
    let changes = source("registry_changelog");
    let law = |key, code: Option<&'static str>| {
        let mut values = vec![("id", key), ("entity_type", "law"), ("action", "update")];
        values.extend(code.map(|code| ("entity_code", code)));
        let handoff = handoffs(&changes, &values)[0].clone();
        assert_eq!(handoff.canonical_address, handoff.object_ref);
        handoff.object_ref
    };
    assert_eq!(law("1", Some("L1")), "law:L1");
    assert_eq!(law("1", None), "registry_changelog:1");
    assert_eq!(law("2", Some("")), "registry_changelog:2");
    let births = source("birth_registry");
    let born = handoffs(&births, &[("id", "7"), ("collection_name", "laws"), ("entity_code", " ")]);
    assert_eq!(born[0].canonical_address, "birth_registry:7");
}

#[test]
fn a_malformed_key_is_refused_without_repeating_it() {
    let births = source("birth_registry");
    for key in ["2147483648", "1.0", "secret", ""] {
        let found = refusal(&births, &[("id", key)]);
        assert_eq!((found.code, found.detail.as_str()), ("malformed_key", "the key is not of type integer"));
    }
    let missing = refusal(&births, &[("entity_code", "x")]);
    assert_eq!((missing.code, missing.source_key.as_str()), ("malformed_key", ""));
    let event = [("id", "secret"), ("event_domain", "iu"), ("event_stream", "birth")];
    assert_eq!(refusal(&source("event_outbox"), &event).detail, "the key is not of type uuid");
}

#[test]
fn a_malformed_order_key_is_refused_without_repeating_it() {
    let source = source("birth_registry");
    let found = refusal(&source, &[("id", "1"), ("born_at", "secret")]);
    assert_eq!(
        (found.code, found.detail.as_str()),
        ("malformed_order_key", "the order column is not a timestamptz")
    );
}

#[test]
fn a_null_order_key_is_allowed_and_sorts_first() {
    let source = source("birth_registry");
    let values = [("id", "1"), ("collection_name", "c"), ("entity_code", "e")];
    assert_eq!(handoffs(&source, &values)[0].occurred_at, None);
    let without = source.watermark(&row(&source, &values));
    let with = source.watermark(&row(&source, &[("id", "0"), ("born_at", "2026-01-01 00:00:00+00")]));
    assert!(without.is_some() && without < with);
}

#[test]
fn a_zone_less_order_key_is_read_in_the_source_s_zone() {
    let mut definition = definition("registry_changelog");
    let values = [("id", "1"), ("timestamp", "2026-01-01 07:00:00")];
    let at = |definition: &SourceDefinition| {
        let source = Source::compile(definition.clone()).expect("the definition is sound");
        handoffs(&source, &values)[0].occurred_at.map(|at| at.to_string())
    };
    assert_eq!(at(&definition).as_deref(), Some("2026-01-01T07:00:00.000000Z"));
    if let Some(order) = &mut definition.order {
        order.zone = "Asia/Ho_Chi_Minh".parse().expect("the zone exists");
    }
    assert_eq!(at(&definition).as_deref(), Some("2026-01-01T00:00:00.000000Z"));
}

#[test]
fn a_list_of_producers_makes_all_others_untrusted() {
    let mut definition = definition("birth_registry");
    definition.trust.producers = Some(vec!["registrar".to_owned()]);
    let source = Source::compile(definition).expect("the definition is sound");
    let standing = |producer: Option<&'static str>| {
        let mut values = vec![("id", "1"), ("collection_name", "c"), ("entity_code", "e")];
        values.extend(producer.map(|p| ("source_system", p)));
        handoffs(&source, &values)[0].standing
    };
    assert_eq!(standing(Some("registrar")), Standing::Normal);
    assert_eq!(standing(Some("Registrar")), Standing::Untrusted);
    assert_eq!(standing(Some("")), Standing::Untrusted);
    assert_eq!(standing(None), Standing::Untrusted);
}

#[test]
fn a_producer_may_be_known_by_its_actor() {
    let mut definition = definition("birth_registry");
    definition.trust = Trust { by: TrustBy::ActorRef, producers: Some(vec!["registrar".to_owned()]) };
    let source = Source::compile(definition).expect("the definition is sound");
    let standing = |system: &'static str, actor: &'static str| {
        let values = [
            ("id", "1"),
            ("collection_name", "c"),
            ("entity_code", "e"),
            ("source_system", system),
            ("actor_ref", actor),
        ];
        handoffs(&source, &values)[0].standing
    };
    assert_eq!(standing("anything", "registrar"), Standing::Normal);
    assert_eq!(standing("registrar", "somebody"), Standing::Untrusted);
}

#[test]
fn a_list_of_producers_without_a_column_to_look_in_is_refused() {
    let mut definition = definition("birth_registry");
    definition.trust.producers = Some(Vec::new());
    definition.source_system = None;
    let message = Source::compile(definition).expect_err("it was accepted").to_string();
    assert!(message.starts_with("source birth_registry: trust: a list of producers needs"), "{message}");
}
