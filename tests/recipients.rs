//! Who an event is for: the six steps, membership, mute, scope and the switch against a model that shares nothing with the
//! gates, and the files that subscriptions are applied from.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use uuid::Uuid;

use crate::read_state::feed;
use crate::support::{Database, Random, migrated, seed};

const DOMAINS: [&str; 3] = ["system", "dot", "iu"];
const TYPES: [&str; 3] = ["opened", "closed", "moved"];
const STREAMS: [&str; 3] = ["alert", "update", "task"];
const TABLES: [Option<&str>; 3] = [None, Some("system_issues"), Some("piece")];
const PEOPLE: [&str; 5] = ["user:an", "user:binh", "agent:codex", "svc:mail", "user:chi"];
const GROUPS: [&str; 4] = ["role:reviewer", "role:health_owner", "agency:sysop", "agency:apr"];

#[derive(Debug, Clone)]
struct Event {
    id: Uuid,
    domain: &'static str,
    kind: &'static str,
    stream: &'static str,
    table: Option<&'static str>,
    author: &'static str,
    payload: Value,
}

#[derive(Debug, Clone)]
struct Subscription {
    recipient: &'static str,
    domain: Option<&'static str>,
    kind: Option<&'static str>,
    stream: Option<&'static str>,
    table: Option<&'static str>,
    filter: Value,
    mute: bool,
}

/// A world of subscriptions, memberships and events.
#[derive(Debug)]
struct World {
    subscriptions: Vec<Subscription>,
    members: BTreeSet<(&'static str, &'static str)>,
    events: Vec<Event>,
    enabled: bool,
}

fn maybe(random: &mut Random, from: &[&'static str], chance: u64) -> Option<&'static str> {
    random.percent(chance).then(|| random.pick(from))
}

fn anybody(random: &mut Random) -> &'static str {
    if random.percent(50) { random.pick(&PEOPLE) } else { random.pick(&GROUPS) }
}

impl World {
    fn of(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let r = &mut random;
        let subscriptions: Vec<_> = (0..r.below(12))
            .map(|_| {
                let domain = maybe(r, &DOMAINS, 80);
                let filter = match r.below(6) {
                    0 => json!({ "agency": "x" }),
                    1 => json!({ "event_severity": "critical" }),
                    2 => json!({ "nested": { "deep": 1 } }),
                    _ => json!({}),
                };
                Subscription {
                    recipient: anybody(r),
                    domain,
                    kind: maybe(r, &TYPES, 50),
                    stream: maybe(r, &STREAMS, 50),
                    table: if r.percent(20) { r.pick(&TABLES) } else { None },
                    filter,
                    mute: r.percent(25),
                }
            })
            .collect();
        let members =
            (0..r.below(8)).map(|_| (r.pick(&GROUPS), anybody(r))).filter(|(g, m)| g != m).collect();
        let events = (0..6)
            .map(|n| {
                let payload = match r.below(4) {
                    0 => json!({ "agency": "x", "nested": { "deep": 1, "more": 2 } }),
                    1 => json!({ "agency": "y" }),
                    // A payload key does not stand in for the column of the same name.
                    2 => json!({ "event_severity": "critical" }),
                    _ => json!({}),
                };
                // Often what some subscription asks for: by chance alone an exact match is rare.
                let asked = subscriptions.get(usize::try_from(r.below(20)).expect("small"));
                let (domain, kind, stream) =
                    asked.map_or((None, None, None), |s| (s.domain, s.kind, s.stream));
                Event {
                    id: Uuid::from_u128(u128::from(seed) << 8 | n),
                    domain: domain.unwrap_or_else(|| r.pick(&DOMAINS)),
                    kind: kind.unwrap_or_else(|| r.pick(&TYPES)),
                    stream: stream.unwrap_or_else(|| r.pick(&STREAMS)),
                    table: r.pick(&TABLES),
                    author: r.pick(&PEOPLE),
                    payload,
                }
            })
            .collect();
        Self { subscriptions, members, events, enabled: r.percent(85) }
    }

    async fn write(&self, db: &Database) {
        db.sql("truncate event_subscription, event_actor_member, event_outbox, event_feed").await;
        let switch = "insert into dot_config (key, value) values ('queue.subscription_resolution.enabled', $1) \
                      on conflict (key) do update set value = excluded.value";
        db.client.execute(switch, &[&self.enabled.to_string()]).await.expect("the switch");
        for s in &self.subscriptions {
            let insert = "insert into event_subscription (recipient_ref, event_domain, event_type, event_stream, \
                          scope_subject_table, scope_filter, mute) values ($1, $2, $3, $4, $5, $6, $7)";
            let params: [&(dyn tokio_postgres::types::ToSql + Sync); 7] =
                [&s.recipient, &s.domain, &s.kind, &s.stream, &s.table, &s.filter, &s.mute];
            db.client.execute(insert, &params).await.expect("a subscription");
        }
        for (group, member) in &self.members {
            let insert =
                "insert into event_actor_member (group_ref, member_ref, added_by) values ($1, $2, 'test')";
            db.client.execute(insert, &[group, member]).await.expect("a member");
        }
        for e in &self.events {
            let insert = "insert into event_outbox (id, event_domain, event_type, event_stream, event_subject_table, \
                          canonical_address, actor_ref, source_system, safe_payload) \
                          values ($1, $2, $3, $4, $5, 'test', $6, 'test', $7)";
            let params: [&(dyn tokio_postgres::types::ToSql + Sync); 7] =
                [&e.id, &e.domain, &e.kind, &e.stream, &e.table, &e.author, &e.payload];
            db.client.execute(insert, &params).await.expect("an event");
        }
        feed(&db.client).await;
    }

    /// Every group that an actor belongs to, directly or through others.
    fn groups_of(&self, actor: &str) -> BTreeSet<&'static str> {
        let mut found = BTreeSet::new();
        let mut look = vec![actor];
        while let Some(one) = look.pop() {
            for (group, member) in &self.members {
                if *member == one && found.insert(*group) {
                    look.push(group);
                }
            }
        }
        found.remove(actor);
        found
    }

    /// What the subscriptions of one recipient say of an event: the first step at which any matches, and whether it is muted.
    fn decision(&self, recipient: &str, event: &Event) -> Option<(i32, bool)> {
        let own = || self.subscriptions.iter().filter(|s| s.recipient == recipient && in_scope(s, event));
        for step in 1..=5 {
            let at: Vec<_> = own().filter(|s| matches_at(step, s, event)).collect();
            if !at.is_empty() {
                return Some((step, at.iter().any(|s| s.mute)));
            }
        }
        None
    }

    /// Who receives the event, and at which step.
    fn recipients(&self, event: &Event) -> BTreeMap<&'static str, i32> {
        let everybody: Vec<&'static str> = PEOPLE.iter().chain(&GROUPS).copied().collect();
        let (mut received, mut muted) = (BTreeMap::new(), BTreeSet::new());
        let mut anybody_subscribed = false;
        for actor in everybody.iter().copied().filter(|_| self.enabled) {
            let own = self.decision(actor, event);
            anybody_subscribed |= own.is_some_and(|(_, mute)| !mute);
            let through: Vec<_> =
                self.groups_of(actor).iter().filter_map(|group| self.decision(group, event)).collect();
            let open = through.iter().filter(|(_, mute)| !mute).map(|(step, _)| *step).min();
            match (own, open) {
                (Some((step, false)), _) | (None, Some(step)) => {
                    received.insert(actor, step);
                }
                (Some((_, true)), _) => {
                    muted.insert(actor);
                }
                (None, None) if !through.is_empty() => {
                    muted.insert(actor);
                }
                (None, None) => {}
            }
        }
        if !anybody_subscribed {
            let known = |actor: &&str| {
                self.subscriptions.iter().any(|s| s.recipient == *actor)
                    || self.members.iter().any(|(group, member)| group == actor || member == actor)
            };
            let reached =
                everybody.into_iter().filter(|a| known(a) && *a != event.author && !muted.contains(a));
            received.extend(reached.map(|actor| (actor, 6)));
        }
        received
    }
}

fn in_scope(s: &Subscription, event: &Event) -> bool {
    let table = s.table.is_none() || s.table == event.table;
    // The events here have no severity, so a filter on it never matches, whatever the payload says.
    let filter = match s.filter.as_object().and_then(|f| f.iter().next()) {
        None => true,
        Some((key, _)) if key == "event_severity" => false,
        Some((key, Value::Object(inner))) => {
            let there = event.payload.get(key).and_then(Value::as_object);
            there.is_some_and(|there| inner.iter().all(|(k, v)| there.get(k) == Some(v)))
        }
        Some((key, value)) => event.payload.get(key) == Some(value),
    };
    table && filter
}

fn matches_at(step: i32, s: &Subscription, event: &Event) -> bool {
    let (kind, stream) = (Some(event.kind), Some(event.stream));
    let here = s.domain == Some(event.domain);
    match step {
        1 => here && s.kind == kind && s.stream == stream,
        2 => here && s.kind.is_none() && s.stream == stream,
        3 => here && s.kind == kind && s.stream.is_none(),
        4 => here && s.kind.is_none() && s.stream.is_none(),
        _ => {
            s.domain.is_none()
                && (s.kind.is_none() || s.kind == kind)
                && (s.stream.is_none() || s.stream == stream)
        }
    }
}

#[tokio::test]
async fn six_steps_membership_mute_scope_and_the_switch_agree_with_a_model() {
    let db = migrated().await;
    let first = seed();
    let (mut steps, mut members, mut spared) = (BTreeSet::new(), 0, 0);
    for seed in (0..60).map(|n| first.wrapping_add(n) % (1 << 40)) {
        let world = World::of(seed);
        world.write(&db).await;
        for event in &world.events {
            let found = "select actor_ref, step, via from fn_event_recipients($1)";
            let rows = db.client.query(found, &[&event.id]).await.expect("the recipients");
            let said: BTreeMap<String, i32> = rows.iter().map(|r| (r.get(0), r.get(1))).collect();
            let meant: BTreeMap<String, i32> =
                world.recipients(event).into_iter().map(|(a, s)| (a.to_owned(), s)).collect();
            assert_eq!(said, meant, "seed {seed}: {event:?} in {world:#?}");
            assert_eq!(said.len(), rows.len(), "seed {seed}: somebody is there twice");
            steps.extend(said.values().copied());
            members += rows
                .iter()
                .filter(|r| r.get::<_, Option<String>>(2).is_some_and(|via| via != r.get::<_, String>(0)))
                .count();
        }
        let differ = "select count(*) from event_outbox e where (select array_agg((r.actor_ref, r.step, r.step_name, r.via) \
                      order by r.actor_ref) from v_event_recipient r where r.event_id = e.id) is distinct from \
                      (select array_agg((f.actor_ref, f.step, f.step_name, f.via) order by f.actor_ref) from fn_event_recipients(e.id) f)";
        assert_eq!(db.number(differ).await, 0, "seed {seed}: view and function differ");
        // Where unread events are looked for: never too few places, and often fewer than all.
        let overlooked = "select count(*) from event_outbox e join v_event_recipient r on r.event_id = e.id where not exists \
            (select from gov_handoff.gov_receivable(r.actor_ref, null, null) g where g.event_domain = e.event_domain \
                and g.event_stream = e.event_stream and coalesce(g.event_type, e.event_type) = e.event_type)";
        assert_eq!(db.number(overlooked).await, 0, "seed {seed}: a recipient would not find its event");
        let left_out = "select count(*) from event_outbox e cross join v_event_known_actor a where not exists \
            (select from gov_handoff.gov_receivable(a.actor_ref, null, null) g where g.event_domain = e.event_domain \
                and g.event_stream = e.event_stream and coalesce(g.event_type, e.event_type) = e.event_type)";
        spared += db.number(left_out).await;
    }
    assert!(spared > 100, "only {spared} events were left out for those whom they are not for");
    assert_eq!(steps, (1..=6).collect(), "every step decided somewhere");
    assert!(members > 20, "only {members} recipients came through a group");
}

/// The rows that the live system has, and what they come to.
#[tokio::test]
async fn the_live_subscriptions_reach_whom_they_name() {
    let db = migrated().await;
    db.sql(
        "insert into event_subscription (recipient_ref, event_domain, event_type, event_stream) values
             ('role:health_owner', 'system', 'issue_opened', null), ('role:health_owner', 'system', 'issue_resolved', null),
             ('agency:sysop', null, null, 'alert');
         insert into event_actor_member values ('role:health_owner', 'user:huyen', 'test');
         insert into event_outbox (id, event_domain, event_type, event_stream, canonical_address, actor_ref, source_system)
         select ('00000000-0000-0000-0000-00000000000' || n)::uuid, d, t, s, 'a', 'user:author', 'test'
           from (values (1, 'system', 'issue_opened', 'alert'), (2, 'dot', 'dot_failed', 'alert'), (3, 'iu', 'commented', 'comment'))
             as e (n, d, t, s)",
    )
    .await;
    let to = async |n: u32| {
        let query = format!(
            "select coalesce(string_agg(actor_ref || ' ' || step_name, ', ' order by actor_ref), '') \
               from fn_event_recipients('00000000-0000-0000-0000-00000000000{n}')"
        );
        db.text(&query).await
    };
    assert_eq!(
        to(1).await,
        "agency:sysop any_domain, role:health_owner stream_wildcard, user:huyen stream_wildcard"
    );
    assert_eq!(to(2).await, "agency:sysop any_domain");
    assert_eq!(to(3).await, "agency:sysop broadcast, role:health_owner broadcast, user:huyen broadcast");
    // A circle of groups, made by hand, ends.
    db.sql("insert into event_actor_member values ('agency:sysop', 'role:health_owner', 'test'), ('role:health_owner', 'agency:sysop', 'test')").await;
    assert_eq!(to(2).await, "agency:sysop any_domain, role:health_owner any_domain, user:huyen any_domain");
}
