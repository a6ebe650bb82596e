//! Which committed rows are handed off: a verdict over the tables in SQL that shares nothing with the product.

use tokio_postgres::Client;

use super::{Database, PATIENCE, within};

/// The counts behind a verdict. Tests that ask for it write only births, changes of collections and retirements, so the
/// expectation needs no rule engine.
#[derive(Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Handoffs that the committed rows come to.
    pub expected: i64,
    /// Handoffs that are neither signalled, captured nor set aside.
    pub missing: i64,
    /// Handoffs beyond the first of each row and kind.
    pub twice: i64,
    /// Signals for which there is no row.
    pub stray: i64,
    /// The difference between the group counters and the handoffs: a handoff marks its group once.
    pub marks_off: i64,
}

async fn verdict(client: &Client) -> Verdict {
    let sql = "with expected (kind, tbl, key) as (
        select 'object_born', 'birth_registry', id::text from birth_registry
        union all select 'object_registered', 'birth_registry', id::text from birth_registry where status = 'registered'
        union all select 'collection_changed', 'registry_changelog', id::text from registry_changelog
            where entity_type = 'collection' and source_system is distinct from 'gov-handoff'
        union all select 'object_retired', 'registry_changelog', id::text from registry_changelog
            where action = 'retire' and source_system is distinct from 'gov-handoff'
    ), recorded as (
        select substr(event_type, 20) as kind, event_subject_table as tbl, safe_payload ->> 'source_key' as key,
               event_subject_ref as ref
          from verify.handoffs
        union all
        select substr(event_type_hint, 20), entity_table, capture_payload ->> 'source_key', entity_ref
          from event_pending where event_domain = 'governance' and processed_at is null
           and event_type_hint <> 'governance.handoff.retry'
    ), dead as (
        select route_code as tbl, substr(idempotency_key, length(route_code) + 2) as key from iu_route_dead_letter
    )
    select (select count(*) from expected),
           (select count(*) from (select * from expected except select kind, tbl, key from recorded) m
             where not exists (select from dead d where d.tbl = m.tbl and d.key = m.key)),
           (select coalesce(sum(n - 1), 0)::bigint from (select count(*) as n from recorded group by kind, tbl, key) x)
         + (select coalesce(sum(n - 1), 0)::bigint from (select count(*) as n from recorded group by kind, ref) x),
           (select count(*) from (select kind, tbl, key from recorded where tbl in ('birth_registry', 'registry_changelog')
                                  except select * from expected) s),
           (select coalesce(sum(changes), 0)::bigint from gov_candidate_group) - (select count(*) from recorded)";
    let row = client.query_one(sql, &[]).await.expect("verdict");
    Verdict {
        expected: row.get(0),
        missing: row.get(1),
        twice: row.get(2),
        stray: row.get(3),
        marks_off: row.get(4),
    }
}

/// Waits until everything committed is handed off. Nothing may be there twice, without a row, or marked wrongly meanwhile.
pub async fn until_all_handed_off(client: &Client) {
    within(PATIENCE, "everything committed is handed off", async || {
        let verdict = verdict(client).await;
        assert_eq!((verdict.twice, verdict.stray, verdict.marks_off), (0, 0, 0), "{verdict:?}");
        if verdict.missing == 0 { Ok(()) } else { Err(format!("{verdict:?}")) }
    })
    .await;
}

impl Database {
    pub async fn verdict(&self) -> Verdict {
        verdict(&self.client).await
    }

    /// See [`until_all_handed_off`].
    pub async fn until_all_handed_off(&self) {
        until_all_handed_off(&self.client).await;
    }
}
