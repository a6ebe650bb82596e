//! The set comparison: what the tables say should be there against what is, in SQL that shares nothing with the
//! product's own: the rules are written out by hand, identities are not computed, none of its views or functions is used.

use std::collections::HashSet;

use tokio_postgres::{Client, Error};

use crate::support::{done, fresh_database};

/// (source, key, kind, code): one line per signal that a committed row must have.
const EXPECTED: &str = "
    select 'birth_registry' as source, id::text as key, k.kind, entity_code as code
      from birth_registry
     cross join lateral (values ('object_born'), (case when status = 'registered' then 'object_registered' end)) k (kind)
     where k.kind is not null
    union all
    select 'registry_changelog', id::text, k.kind, entity_code
      from registry_changelog c
     cross join lateral (
           select m.kind from (values
               (case when c.action = 'register' then 'object_registered' end),
               (case when c.entity_type = 'collection' then 'collection_changed' end),
               (case when c.action in ('count_changed', 'recount') then 'count_changed' end),
               (case when c.action in ('retire', 'supersede') then 'object_retired' end),
               (case when c.action in ('source_changed', 'migrate') then 'source_changed' end),
               (case when c.entity_type in ('axis', 'pivot') then 'axis_introduced' end),
               (case when c.entity_type in ('law', 'policy', 'normative', 'jurisdiction', 'measurement') then 'policy_changed' end),
               (case when c.entity_type in ('owner', 'approval', 'exception') then 'authority_changed' end),
               (case when c.entity_type = 'ruleset' then 'ruleset_changed' end),
               (case when c.entity_type = 'something else' then 'unmapped' end)
           ) m (kind) where m.kind is not null) k
     where c.source_system is distinct from 'gov-handoff'
    union all
    select 'pivot_definitions', id::text, 'axis_introduced', pivot_code from pivot_definitions
    union all
    select 'governance_ruleset', id::text, 'ruleset_changed', ruleset_code from governance_ruleset
    union all
    select 'event_outbox', id::text, case event_stream when 'birth' then 'object_registered' else 'source_changed' end,
           canonical_address
      from event_outbox
     where event_domain in ('iu', 'piece', 'staging', 'birth_registry', 'tac', 'kg', 'dot') and event_stream in ('birth', 'update')";

/// (source, key, kind): what is recorded, in whatever place.
const RECORDED: &str = "
    select safe_payload ->> 'source' as source, safe_payload ->> 'source_key' as key,
           replace(event_type, 'governance.handoff.', '') as kind
      from event_outbox
     where event_domain = 'governance' and safe_payload ? 'source_key'
    union all
    select capture_payload ->> 'source', capture_payload ->> 'source_key',
           replace(event_type_hint, 'governance.handoff.', '')
      from event_pending
     where event_domain = 'governance' and processed_at is null and capture_payload ? 'source_key'
       and event_type_hint <> 'governance.handoff.retry'";

/// A dead letter stands for all signals of its row.
const DEAD: &str = "select 1 from iu_route_dead_letter d where d.idempotency_key = e.source || ':' || e.key";

/// A signal that is not where it should be, and the code of its row.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Signal {
    pub source: String,
    pub key: String,
    pub kind: String,
    pub code: String,
}

pub async fn expected(client: &Client) -> Result<i64, Error> {
    Ok(client.query_one(&format!("select count(*) from ({EXPECTED}) e"), &[]).await?.get(0))
}

/// What is recorded, and with `retired`, where the hostile operator acts, what was before retention took it. The operator's
/// own tables have a verdict of their own.
fn recorded(retired: bool) -> String {
    if !retired {
        return RECORDED.to_owned();
    }
    format!(
        "select source, key, kind from ({RECORDED} union all select source, key, kind from verify.retired) all_recorded
          where source not like 'hostile\\_%'"
    )
}

pub async fn missing(client: &Client, retired: bool) -> Result<Vec<Signal>, Error> {
    let recorded = recorded(retired);
    let sql = format!(
        "with e as materialized ({EXPECTED}), r as materialized ({recorded})
         select e.source, e.key, e.kind, coalesce(e.code, '')
           from (select source, key, kind from e except select source, key, kind from r) m
           join e using (source, key, kind)
          where not exists ({DEAD})
          limit 500"
    );
    let rows = client.query(&sql, &[]).await?;
    let signal = |row: &tokio_postgres::Row| Signal {
        source: row.get(0),
        key: row.get(1),
        kind: row.get(2),
        code: row.get(3),
    };
    Ok(rows.iter().map(signal).collect())
}

/// Signals that are there more than once, or that no committed row accounts for.
pub async fn superfluous(client: &Client, retired: bool) -> Result<Vec<String>, Error> {
    let recorded = recorded(retired);
    let sql = format!(
        "with e as materialized ({EXPECTED}), r as materialized ({recorded})
         select format('%s %s of %s is there %s times', kind, key, source, count(*))
           from r group by source, key, kind having count(*) > 1
         union all
         select format('%s %s of %s has no committed row', kind, key, source)
           from (select source, key, kind from r except select source, key, kind from e) x"
    );
    Ok(client.query(&sql, &[]).await?.iter().map(|row| row.get(0)).collect())
}

pub async fn dead_letters(client: &Client) -> Result<i64, Error> {
    Ok(client
        .query_one(
            // The letters of jobs are of jobs that an operator let fail on purpose.
            "select count(*) from iu_route_dead_letter where route_code not like 'hostile\\_%' and worker_name <> 'job_queue'",
            &[],
        )
        .await?
        .get(0))
}

/// The baseline: a plain cursor over `(born_at, id)`, as one writes it without thinking further.
#[derive(Default)]
pub struct PlainCursor {
    last: Option<(String, i32)>,
    seen: HashSet<i32>,
}

impl PlainCursor {
    pub async fn poll(&mut self, client: &Client) -> Result<(), Error> {
        let (at, id) = self.last.clone().unwrap_or_else(|| ("-infinity".to_owned(), i32::MIN));
        let sql = "select id, born_at::text from birth_registry
                    where (born_at, id) > ($1::text::timestamptz, $2) order by born_at, id";
        for row in client.query(sql, &[&at, &id]).await? {
            self.seen.insert(row.get(0));
            self.last = Some((row.get(1), row.get(0)));
        }
        Ok(())
    }

    /// Committed births that it has passed by.
    pub async fn lost(&self, client: &Client) -> Result<usize, Error> {
        let rows = client.query("select id from birth_registry", &[]).await?;
        Ok(rows.iter().filter(|row| !self.seen.contains(&row.get(0))).count())
    }
}

#[tokio::test]
async fn the_verdict_sees_what_is_missing_doubled_and_made_up() {
    let database = fresh_database(None).await;
    done(&database.url, &["migrate"]).await;
    let client = &database.client;
    let rows = "
        insert into birth_registry (id, entity_code, collection_name, status) values (1, 'a', 'c', 'registered');
        insert into registry_changelog (id, entity_type, entity_code, action) values (5, 'collection', 'b', 'register');";
    client.batch_execute(rows).await.expect("rows");
    let mut found: Vec<_> =
        missing(client, false).await.expect("verdict").into_iter().map(|m| m.kind).collect();
    found.sort();
    assert_eq!(found, ["collection_changed", "object_born", "object_registered", "object_registered"]);
    assert_eq!(superfluous(client, false).await.expect("verdict"), Vec::<String>::new());

    let signals = r#"
        insert into event_outbox (event_domain, event_type, event_stream, event_subject_table, event_subject_ref,
                                  canonical_address, actor_ref, source_system, safe_payload)
        select 'governance', 'governance.handoff.object_born', 'birth', 'birth_registry', gen_random_uuid(), 'x', 'x', 'x',
               jsonb_build_object('source', 'birth_registry', 'source_key', k)
          from unnest(array['1', '1', '2']) k;"#;
    client.batch_execute(signals).await.expect("signals");
    assert_eq!(missing(client, false).await.expect("verdict").len(), 3);
    assert_eq!(
        superfluous(client, false).await.expect("verdict"),
        [
            "object_born 1 of birth_registry is there 2 times",
            "object_born 2 of birth_registry has no committed row"
        ]
    );
}
