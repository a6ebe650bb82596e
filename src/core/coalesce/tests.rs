//! What coalescing preserves for every batch.

use super::*;
use crate::core::group::GroupKey;
use crate::core::rule::RuleFace;
use proptest::prelude::*;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use uuid::Uuid;

fn signal(id: u128, at: Option<i64>, standing: Standing, grain: Grain, object: u8, group: u8) -> Handoff {
    let dims = vec![("g".to_owned(), Some(group.to_string()))];
    let rule = RuleFace {
        version: None,
        source: "s".to_owned(),
        table: "s".to_owned(),
        kind: format!("governance.handoff.k{}", id % 3),
        stream: "update".to_owned(),
        severity: None,
        bumps_ruleset: false,
        grain,
    };
    Handoff {
        id: Uuid::from_u128(id),
        subject: Uuid::from_u128(id | 1 << 64),
        rule: Arc::new(rule),
        standing,
        object_type: "o".to_owned(),
        object_ref: format!("o:{object}"),
        canonical_address: format!("o:{object}"),
        group: GroupKey::from_dims(&dims),
        dims,
        scope: None,
        source_key: id.to_string(),
        number: None,
        occurred_at: at.map(PgInstant::from_pg_micros),
        source_system: "x".to_owned(),
        actor_ref: "x".to_owned(),
    }
}

/// Few objects, groups and instants, so that they meet; ids are distinct, as equal ids are the same signal.
fn distinct() -> impl Strategy<Value = Vec<Handoff>> {
    let standing = prop_oneof![
        3 => Just(Standing::Normal),
        1 => Just(Standing::Untrusted),
        1 => Just(Standing::Unmapped),
    ];
    let grain = prop_oneof![3 => Just(Grain::Object), 1 => Just(Grain::Group)];
    let facts = (prop::option::of(-2i64..3), standing, grain, 0u8..4, 0u8..3);
    prop::collection::btree_map(0u128..64, facts, 0..24).prop_map(|map| {
        map.into_iter()
            .map(|(id, (at, standing, grain, o, g))| signal(id, at, standing, grain, o, g))
            .collect()
    })
}

/// A batch as a replay delivers it: some signals again, in any order.
fn delivered() -> impl Strategy<Value = Vec<Handoff>> {
    (distinct(), prop::collection::vec(any::<prop::sample::Index>(), 0..8))
        .prop_map(|(mut signals, again)| {
            if !signals.is_empty() {
                let copies: Vec<_> = again.iter().map(|i| i.get(&signals).clone()).collect();
                signals.extend(copies);
            }
            signals
        })
        .prop_shuffle()
}

fn normal(batch: &Batch) -> impl Iterator<Item = &Handoff> {
    batch.signals.iter().filter(|s| s.standing == Standing::Normal)
}

#[test]
fn an_empty_batch_marks_nothing() {
    assert_eq!(coalesce(Vec::<Handoff>::new()), Batch::default());
}

#[test]
fn the_reason_is_that_of_the_latest_change() {
    let of = |id, at| signal(id, at, Standing::Normal, Grain::Object, 0, 0);
    let batch = coalesce(vec![of(2, Some(1)), of(0, Some(9)), of(1, None)]);
    let mark = &batch.groups["g=0"];
    assert_eq!((mark.reason.as_str(), mark.changes), ("governance.handoff.k0", 3));
    assert_eq!(mark.latest, Some(PgInstant::from_pg_micros(9)));
    assert_eq!(batch.stands_for_object, [Some(true), Some(false), Some(false)]);
}

proptest! {
    #[test]
    fn folding_again_changes_nothing(signals in delivered()) {
        let batch = coalesce(signals);
        prop_assert_eq!(coalesce(batch.signals.clone()), batch);
    }

    #[test]
    fn the_order_of_arrival_does_not_matter(
        (one, other) in delivered().prop_flat_map(|s| (Just(s.clone()), Just(s).prop_shuffle())),
    ) {
        prop_assert_eq!(coalesce(one), coalesce(other));
    }

    #[test]
    fn each_signal_is_kept_once_in_the_order_of_identity(signals in delivered()) {
        let ids: BTreeSet<_> = signals.iter().map(|s| s.id).collect();
        let batch = coalesce(signals);
        prop_assert_eq!(batch.signals.iter().map(|s| s.id).collect::<Vec<_>>(), Vec::from_iter(ids));
        prop_assert_eq!(batch.signals.len(), batch.stands_for_object.len());
    }

    #[test]
    fn the_latest_wins_and_every_change_is_counted(signals in delivered()) {
        let batch = coalesce(signals);
        let marked: HashSet<_> = normal(&batch).map(|s| s.group.as_str()).collect();
        prop_assert_eq!(marked, batch.groups.keys().map(String::as_str).collect());
        for (key, mark) in &batch.groups {
            let members: Vec<_> = normal(&batch).filter(|s| s.group.as_str() == key).collect();
            prop_assert_eq!(mark.changes as usize, members.len());
            prop_assert_eq!(Some(mark.latest), members.iter().map(|s| s.occurred_at).max());
            let explains = |s: &&Handoff| s.occurred_at == mark.latest && s.rule.kind == mark.reason;
            prop_assert!(members.iter().copied().any(|s| explains(&s)), "no latest change has the reason");
            prop_assert!(members.iter().all(|s| s.dims == mark.dims));
        }
    }

    #[test]
    fn exactly_one_signal_stands_for_each_object_and_it_is_a_latest_one(signals in delivered()) {
        let batch = coalesce(signals);
        let of_objects = || normal(&batch).filter(|s| s.rule.grain == Grain::Object);
        let objects: BTreeSet<_> = of_objects().map(|s| &s.canonical_address).collect();
        let standing: Vec<_> = batch.signals.iter().zip(&batch.stands_for_object)
            .filter(|(_, stands)| **stands == Some(true)).map(|(s, _)| s).collect();
        prop_assert_eq!(standing.len(), objects.len());
        prop_assert_eq!(standing.iter().map(|s| &s.canonical_address).collect::<BTreeSet<_>>(), objects);
        for one in standing {
            let latest = of_objects().filter(|s| s.canonical_address == one.canonical_address)
                .map(|s| s.occurred_at).max();
            prop_assert_eq!(Some(one.occurred_at), latest);
        }
    }

    #[test]
    fn what_is_untrusted_or_unmapped_marks_nothing(signals in delivered()) {
        let batch = coalesce(signals);
        for (signal, stands) in batch.signals.iter().zip(&batch.stands_for_object) {
            let marks = signal.standing == Standing::Normal && signal.rule.grain == Grain::Object;
            prop_assert_eq!(stands.is_some(), marks);
        }
        let trusted: Vec<_> = normal(&batch).cloned().collect();
        prop_assert_eq!(coalesce(trusted).groups, batch.groups);
    }
}
