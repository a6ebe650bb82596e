//! What the candidate store should hold, in plain Rust over the source rows: it shares nothing with the product but the
//! tables that it compares.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tokio_postgres::Client;

use super::Database;

/// One change of an object or of its group, as a rule makes it of a row.
#[derive(Debug, Clone)]
struct Change {
    source: &'static str,
    key: String,
    kind: &'static str,
    of_object: bool,
    address: String,
    group: String,
    occurred: Option<i64>,
    producer: String,
    /// It was recorded as a signal; a seeded change was not.
    signal: bool,
}

impl Change {
    /// The latest change of an object has the highest place.
    fn place(&self) -> (i64, String, &'static str, String, &'static str) {
        (self.occurred.unwrap_or(i64::MIN), self.group.clone(), self.source, self.key.clone(), self.kind)
    }
}

#[derive(Debug, Default, PartialEq)]
struct Counts {
    members: i64,
    accepted: i64,
    rejected: i64,
    retired: i64,
    changes: i64,
}

/// Panics unless every candidate and group says what the model says, and is clean.
///
/// It knows births and changes of the default sources, in the codes that the tests write: no escapes in group keys.
pub async fn candidate_store_equals_model(db: &Database) {
    let client = &db.client;
    let changes = changes(client).await;
    let (objects, groups) = expected(client, &changes).await;
    assert_eq!(held_objects(client).await, objects, "the candidates");
    assert_eq!(held_groups(client).await, groups, "the groups");
    let dirty =
        "select (select count(*) from v_gov_dirty) + (select count(*) from gov_candidate_state where dirty)";
    assert_eq!(db.number(dirty).await, 0, "everything is scanned");
    let tally = "select coalesce(sum(abs(t.n - c.n)), 0)::bigint from
        (select grain, verdict, sum(n)::bigint as n from gov_verdict_tally group by 1, 2) t
        full join (select 'object' as grain, candidate_verdict as verdict, count(*) as n from gov_candidate_state
                    where candidate_verdict is not null group by 2
                   union all
                   select 'group', verdict, count(*) from gov_candidate_group where verdict is not null group by 2) c
        using (grain, verdict) where coalesce(t.n, 0) <> coalesce(c.n, 0) or t.n is null and c.n <> 0";
    assert_eq!(db.number(tally).await, 0, "the tally of verdicts");
}

/// All rows of the two sources that were handed off or seeded.
async fn changes(client: &Client) -> Vec<Change> {
    let births = "
        select b.id::text, b.entity_code, b.collection_name, b.status, coalesce(b.source_system, 'unknown'),
               (extract(epoch from b.born_at) * 1000000)::bigint, s.there, coalesce(s.untrusted, false) as untrusted,
               b.canonical_address
          from birth_registry b
          left join lateral (
               select true as there, false as untrusted from event_outbox o
                where o.event_subject_table = 'birth_registry' and o.safe_payload ->> 'source_key' = b.id::text
               union all
               select p.last_error is distinct from 'untrusted_source', p.last_error = 'untrusted_source' from event_pending p
                where p.processed_at is null and p.entity_table = 'birth_registry' and p.capture_payload ->> 'source_key' = b.id::text
                order by 1 desc limit 1) s on true";
    let mut out = Vec::new();
    for row in client.query(births, &[]).await.expect("births") {
        let (key, code, collection): (String, String, String) = (row.get(0), row.get(1), row.get(2));
        if row.get::<_, bool>(7) {
            continue;
        }
        let address: Option<String> = row.get(8);
        let change = Change {
            source: "birth_registry",
            key,
            kind: "object_born",
            of_object: true,
            address: address.unwrap_or_else(|| format!("{collection}:{code}")),
            group: format!("object_class={collection}/source_registry=birth_registry"),
            occurred: row.get(5),
            producer: row.get(4),
            signal: row.get::<_, Option<bool>>(6).unwrap_or(false),
        };
        if row.get::<_, Option<String>>(3).as_deref() == Some("registered") {
            out.push(Change { kind: "object_registered", ..change.clone() });
        }
        out.push(change);
    }
    let changelog = "
        select c.id::text, c.entity_type, c.entity_code, c.action, coalesce(c.source_system, 'unknown'),
               (extract(epoch from c.\"timestamp\" at time zone 'UTC') * 1000000)::bigint
          from registry_changelog c
         where c.source_system is distinct from 'gov-handoff'
           and (exists (select from event_outbox o where o.event_subject_table = 'registry_changelog'
                           and o.safe_payload ->> 'source_key' = c.id::text)
                or exists (select from event_pending p where p.entity_table = 'registry_changelog' and p.last_error is null
                              and p.processed_at is null and p.capture_payload ->> 'source_key' = c.id::text))";
    for row in client.query(changelog, &[]).await.expect("changes") {
        let (key, entity, code, action): (String, String, String, String) =
            (row.get(0), row.get(1), row.get(2), row.get(3));
        for (kind, group, of_object) in kinds(&entity, &code, &action) {
            out.push(Change {
                source: "registry_changelog",
                key: key.clone(),
                kind,
                of_object,
                address: format!("{entity}:{code}"),
                group,
                occurred: row.get(5),
                producer: row.get(4),
                signal: true,
            });
        }
    }
    out
}

/// SPEC §4, the kinds of a change and their groups.
fn kinds(entity: &str, code: &str, action: &str) -> Vec<(&'static str, String, bool)> {
    let mut out = Vec::new();
    if action == "register" {
        out.push((
            "object_registered",
            format!("object_class={entity}/source_registry=registry_changelog"),
            true,
        ));
    }
    if entity == "collection" {
        out.push(("collection_changed", format!("source_registry={code}/scope=collection"), true));
    }
    if ["count_changed", "recount"].contains(&action) {
        out.push(("count_changed", format!("source_registry={code}"), true));
    }
    if ["retire", "supersede"].contains(&action) {
        out.push(("object_retired", format!("object_class={entity}/lifecycle=retired"), true));
    }
    if ["source_changed", "migrate"].contains(&action) {
        out.push(("source_changed", format!("source_registry={code}"), true));
    }
    if ["axis", "pivot"].contains(&entity) {
        out.push(("axis_introduced", format!("pivot={code}"), true));
    }
    if ["law", "policy", "normative", "jurisdiction", "measurement"].contains(&entity) {
        out.push(("policy_changed", format!("scope={code}"), true));
    }
    if ["owner", "approval", "exception"].contains(&entity) {
        out.push(("authority_changed", format!("owner_scope={entity}/scope={code}"), true));
    }
    if entity == "ruleset" {
        out.push(("ruleset_changed", format!("ruleset={code}"), false));
    }
    out
}

/// What is data in the database: checks, lists of producers and rules.
struct Settings {
    checks: BTreeSet<String>,
    producers: BTreeMap<String, Option<Vec<String>>>,
    rules: Vec<(String, Vec<Value>, String)>,
}

async fn settings(client: &Client) -> Settings {
    let checks = client.query("select code from gov_input_check where enabled", &[]).await.expect("checks");
    let sources =
        "select source_name, metadata #> '{trust,producers}' from gov_worker_cursor where metadata ? 'id'";
    let sources = client.query(sources, &[]).await.expect("sources");
    let rules = "select grain, tests, verdict from gov_verdict_rule r where enabled
                    and (measurement is null or exists (select from measurement_registry m
                                                         where m.measurement_code = r.measurement and m.enabled))
                  order by priority, code collate \"C\"";
    let rules = client.query(rules, &[]).await.expect("rules");
    let producers = |row: &tokio_postgres::Row| {
        let list: Option<Value> = row.get(1);
        (row.get(0), list.and_then(|list| serde_json::from_value(list).ok()))
    };
    let tests = |row: &tokio_postgres::Row| row.get::<_, Value>(1).as_array().cloned().unwrap_or_default();
    Settings {
        checks: checks.iter().map(|row| row.get(0)).collect(),
        producers: sources.iter().map(producers).collect(),
        rules: rules.iter().map(|row| (row.get(0), tests(row), row.get(2))).collect(),
    }
}

type Lines = BTreeMap<String, String>;

async fn expected(client: &Client, changes: &[Change]) -> (Lines, Lines) {
    let settings = settings(client).await;
    let mut of_object: BTreeMap<&str, Vec<&Change>> = BTreeMap::new();
    let mut of_group: BTreeMap<&str, Vec<&Change>> = BTreeMap::new();
    for change in changes {
        of_group.entry(&change.group).or_default().push(change);
        if change.of_object {
            of_object.entry(&change.address).or_default().push(change);
        }
    }
    let mut counts: BTreeMap<&str, Counts> = of_group.keys().map(|g| (*g, Counts::default())).collect();
    let mut objects = Lines::new();
    for (address, list) in &of_object {
        let latest = list.iter().max_by_key(|c| c.place()).expect("a change");
        let births: BTreeSet<_> = list
            .iter()
            .filter(|c| c.kind == "object_born")
            .map(|c| format!("{}:{}", c.source, c.key))
            .collect();
        let retired = list.iter().any(|c| c.kind == "object_retired");
        let reason = rejection(&settings, latest, births.len() > 1);
        let input = if reason.is_some() { "rejected" } else { "ok" };
        let count = counts.get_mut(latest.group.as_str()).expect("a group");
        count.members += 1;
        match (retired, reason) {
            (true, _) => count.retired += 1,
            (_, None) => count.accepted += 1,
            (_, Some(_)) => count.rejected += 1,
        }
        let facts = |name: &str| match name {
            "retired" => Some(Value::from(i64::from(retired))),
            "last_kind" => Some(Value::from(latest.kind)),
            "input" => Some(Value::from(input)),
            "input_reason" => reason.map(Value::from),
            _ => None,
        };
        let verdict = judge(&settings, "object", &latest.group, &facts);
        let line = format!(
            "{} {} {births:?} {retired} {input} {reason:?} {verdict:?}",
            latest.group,
            latest.kind,
            births = births.first()
        );
        objects.insert((*address).to_owned(), line);
    }
    let mut groups = Lines::new();
    for (key, list) in &of_group {
        let count = counts.get_mut(key).expect("a group");
        count.changes = i64::try_from(list.iter().filter(|c| c.signal).count()).expect("a count");
        let latest = list.iter().max_by_key(|c| (c.occurred.unwrap_or(i64::MIN), c.kind)).expect("a change");
        let facts = |name: &str| match name {
            "members" => Some(Value::from(count.members)),
            "accepted" => Some(Value::from(count.accepted)),
            "rejected" => Some(Value::from(count.rejected)),
            "retired" => Some(Value::from(count.retired)),
            "pending" => Some(Value::from(count.members - count.accepted - count.rejected - count.retired)),
            "changes" => Some(Value::from(count.changes)),
            "last_kind" => Some(Value::from(latest.kind)),
            _ => None,
        };
        let verdict = judge(&settings, "group", key, &facts);
        groups.insert((*key).to_owned(), format!("{count:?} {} {verdict:?}", latest.kind));
    }
    (objects, groups)
}

fn rejection(settings: &Settings, latest: &Change, conflict: bool) -> Option<&'static str> {
    let on = |code: &str| settings.checks.contains(code);
    let trusted = match settings.producers.get(latest.source) {
        Some(Some(list)) => list.contains(&latest.producer),
        _ => true,
    };
    if conflict && on("key_not_unique") {
        return Some("key_not_unique");
    }
    (!trusted && on("provenance_untrusted")).then_some("provenance_untrusted")
}

fn judge(
    settings: &Settings,
    grain: &str,
    group: &str,
    fact: &dyn Fn(&str) -> Option<Value>,
) -> Option<String> {
    let dims: BTreeMap<&str, &str> = group.split('/').filter_map(|dim| dim.split_once('=')).collect();
    let passes = |test: &Value| {
        let value = match (test["fact"].as_str(), test["dimension"].as_str()) {
            (Some(name), _) => fact(name),
            (None, Some(name)) => dims.get(name).map(|value| Value::from(*value)),
            _ => panic!("a test of nothing: {test}"),
        };
        if let Some(present) = test["present"].as_bool() {
            return (value.is_some() == present) != test["not"].as_bool().unwrap_or(false);
        }
        let Some(value) = value else { return false };
        let number = |of: &Value| of.as_i64().or_else(|| of.as_bool().map(i64::from));
        let same =
            |wanted: &Value| *wanted == value || wanted.is_boolean() && number(wanted) == number(&value);
        let passed = if !test["equals"].is_null() {
            same(&test["equals"])
        } else if let Some(list) = test["one_of"].as_array() {
            list.iter().any(same)
        } else if !test["at_least"].is_null() {
            number(&value) >= number(&test["at_least"])
        } else {
            number(&value) <= number(&test["at_most"])
        };
        passed != test["not"].as_bool().unwrap_or(false)
    };
    let of_grain = |rule: &&(String, Vec<Value>, String)| rule.0 == grain;
    settings.rules.iter().filter(of_grain).find(|rule| rule.1.iter().all(passes)).map(|rule| rule.2.clone())
}

async fn held_objects(client: &Client) -> Lines {
    let query = "select candidate_key, group_key, replace(last_kind, 'governance.handoff.', ''), born_key, retired, input_quality_state,
                        input_reason, candidate_verdict
                   from gov_candidate_state where source_name = any ('{birth_registry, registry_changelog}')";
    let rows = client.query(query, &[]).await.expect("candidates");
    let line = |row: &tokio_postgres::Row| {
        let (group, kind): (String, String) = (row.get(1), row.get(2));
        let (born, retired, input): (Option<String>, bool, String) = (row.get(3), row.get(4), row.get(5));
        let (reason, verdict): (Option<String>, Option<String>) = (row.get(6), row.get(7));
        (row.get(0), format!("{group} {kind} {born:?} {retired} {input} {reason:?} {verdict:?}"))
    };
    rows.iter().map(line).collect()
}

async fn held_groups(client: &Client) -> Lines {
    let query = "select group_key, members, accepted, rejected, retired, changes, replace(last_kind, 'governance.handoff.', ''), verdict
                   from gov_candidate_group where dims ->> 'source_registry' is not null or dims ?| '{lifecycle, pivot, scope, ruleset}'";
    let rows = client.query(query, &[]).await.expect("groups");
    let line = |row: &tokio_postgres::Row| {
        let count = Counts {
            members: row.get(1),
            accepted: row.get(2),
            rejected: row.get(3),
            retired: row.get(4),
            changes: row.get(5),
        };
        let (kind, verdict): (String, Option<String>) = (row.get(6), row.get(7));
        (row.get(0), format!("{count:?} {kind} {verdict:?}"))
    };
    rows.iter().map(line).collect()
}
