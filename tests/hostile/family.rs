//! The verdict about the other workers of the family, once everything has come to rest: the candidate store against the rows
//! and signals that it follows from, the feed against the outbox, and nobody who fails or is silent. In SQL that uses none of
//! the product's functions or views.

use gov_handoff::workers::FAMILY;
use tokio_postgres::{Client, Error};

/// What is wrong with the store whatever is still to be scanned. Each line is a query for names.
const CANDIDATES: [(&str, &str); 3] = [
    (
        "a birth that is no candidate",
        "select b.id::text from birth_registry b
          where not exists (select from gov_candidate_state c
                             where c.candidate_key = coalesce(b.canonical_address, b.collection_name || ':' || b.entity_code))",
    ),
    (
        "a candidate that was born as a row that is not there",
        "select c.candidate_key from gov_candidate_state c
          where c.born_key like 'birth_registry:%'
            and not exists (select from birth_registry b where 'birth_registry:' || b.id = c.born_key)",
    ),
    (
        "a candidate whose group is not known",
        "select c.candidate_key from gov_candidate_state c
          where not exists (select from gov_candidate_group g where g.group_key = c.group_key)",
    ),
];

/// What is left to do: nothing, after a while.
const SCANNED: [(&str, &str, &str); 4] = [
    ("gov_input_gate", "a candidate that waits for the gate", "select candidate_key from gov_candidate_state where input_quality_state = 'pending'"),
    ("gov_candidate_scan", "a dirty candidate", "select candidate_key from gov_candidate_state where dirty"),
    ("gov_candidate_scan", "a dirty group", "select group_key from gov_candidate_group where dirty"),
    (
        "gov_candidate_scan",
        "a group with other counts than its members",
        "select g.group_key || ': ' || concat_ws('/', g.members, g.accepted, g.rejected, g.retired) || ', its members are '
                || concat_ws('/', m.members, m.accepted, m.rejected, m.retired)
           from gov_candidate_group g
          cross join lateral (
                select count(*) as members, count(*) filter (where not c.retired and c.input_quality_state = 'ok') as accepted,
                       count(*) filter (where not c.retired and c.input_quality_state = 'rejected') as rejected,
                       count(*) filter (where c.retired) as retired
                  from gov_candidate_state c where c.group_key = g.group_key) m
          where (coalesce(g.members, 0), coalesce(g.accepted, 0), coalesce(g.rejected, 0), coalesce(g.retired, 0))
                <> (m.members, m.accepted, m.rejected, m.retired)",
    ),
];

/// Every event has exactly one position. (That none has two is the table's own constraint, and is asked all the same.)
const FEED: [(&str, &str); 2] = [
    (
        "an event without a position",
        "select o.event_type || ' ' || o.id from event_outbox o where not exists (select from event_feed f where f.event_id = o.id)",
    ),
    (
        "an event with two positions",
        "select f.event_id::text from event_feed f group by f.event_id having count(*) > 1",
    ),
];

const FAILING: &str =
    "select coalesce_key from system_issues where issue_kind = 'worker_failing' and resolved_at is null";

/// Everything that is not as it should be; some of it may still be on its way.
pub async fn wrong(client: &Client) -> Result<Vec<String>, Error> {
    let runs = |name: &str| FAMILY.iter().any(|member| member.name == name);
    let mut asked: Vec<(&str, &str)> = CANDIDATES.to_vec();
    asked.extend(SCANNED.iter().filter(|(worker, ..)| runs(worker)).map(|(_, what, sql)| (*what, *sql)));
    if runs("gov_event_feed") {
        asked.extend(FEED);
    }
    if runs("gov_queue_tick") {
        asked.extend(super::queue::JOBS);
    }
    asked.push(("a worker that fails", FAILING));
    let mut wrong = Vec::new();
    for (what, sql) in asked {
        for row in client.query(&format!("{sql} limit 5"), &[]).await? {
            wrong.push(format!("{what}: {}", row.get::<_, String>(0)));
        }
    }
    for member in FAMILY {
        let ticks = "select exists (select from queue_heartbeat where executor_name = $1 and lease_owner is not null \
                     and last_tick_at > clock_timestamp() - interval '3 seconds')";
        if !client.query_one(ticks, &[&member.name]).await?.get::<_, bool>(0) {
            wrong.push(format!("a worker that does not tick: {}", member.name));
        }
    }
    Ok(wrong)
}

/// All workers but the intake: what the second instance runs.
pub fn without_the_intake() -> String {
    let others = FAMILY.iter().map(|member| member.name).filter(|name| *name != "gov_handoff_intake");
    others.collect::<Vec<_>>().join(",")
}
