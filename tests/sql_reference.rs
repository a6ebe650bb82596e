//! docs/sql.md is generated from the catalogue: it is current, every function that others may call has an example, and each
//! example runs. `make docs` writes the page.

use std::collections::BTreeMap;
use std::path::Path;

use crate::support::{Database, migrated};

const INTRO: &str = include_str!("../docs/sql-intro.md");
const EXAMPLES: &str = include_str!("../docs/sql-examples.sql");
const PAGE: &str = "docs/sql.md";

/// What the examples find: an event that is for its reader, an executor, and a job.
const AT_HAND: &str = "
insert into event_type_registry (event_domain, event_type, event_stream, active) values ('iu', 'draft_created', 'review', true);
insert into event_subscription (recipient_ref, event_domain) values ('user:huyen', 'iu');
insert into event_outbox (id, event_domain, event_type, event_stream, event_severity, canonical_address, actor_ref, source_system)
values ('7e57ed00-0000-4000-8000-000000000001', 'iu', 'draft_created', 'review', 'critical', 'iu://draft/1', 'agent:codex', 'editor');
select gov_handoff.gov_feed_append(array['7e57ed00-0000-4000-8000-000000000001']::uuid[]);
select fn_executor_register('hermes_batch_a', 'Hermes', 'user:huyen');
select fn_executor_heartbeat('hermes_batch_a');
select fn_job_subscribe('hermes_batch_a', p_job_kind => 'verify_mark', p_max_parallel => 4, p_actor => 'user:huyen')";

/// The examples, by the function that each is about.
fn examples() -> BTreeMap<&'static str, &'static str> {
    EXAMPLES
        .split("--@ ")
        .skip(1)
        .filter_map(|part| part.split_once('\n'))
        .map(|(name, call)| (name.trim(), call.trim()))
        .collect()
}

async fn generated(db: &Database) -> String {
    db.sql("create temp table example (proname text, n int, statement text)").await;
    for (name, call) in examples() {
        let insert = "insert into example values ($1, 1, $2)";
        db.client.execute(insert, &[&name, &call]).await.expect("an example");
    }
    let parts = db.texts(include_str!("support/sql_reference.sql")).await;
    format!("{}\n\n{}\n", INTRO.trim_end(), parts.join("\n").trim_end())
}

#[tokio::test]
async fn the_page_is_what_the_catalogue_says() {
    let page = generated(&migrated().await).await;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    if std::env::var_os("GOV_HANDOFF_WRITE_DOCS").is_some() {
        std::fs::write(&path, &page).expect("the page is written");
    }
    let there = std::fs::read_to_string(&path).expect("the page");
    let differs = there.lines().zip(page.lines()).position(|(a, b)| a != b);
    assert!(
        there == page,
        "{PAGE} is not what the catalogue says, from line {differs:?} on; `make docs` writes it"
    );
}

#[tokio::test]
async fn every_function_that_others_may_call_has_an_example_and_each_example_runs() {
    let db = migrated().await;
    // Gates that take a term act under the lease of a daemon, and the definition of a source is written by its command.
    let callable = "
        select p.proname::text from pg_proc p
         where p.pronamespace in ('public'::regnamespace, 'gov_handoff'::regnamespace) and not 'p_term' = any (coalesce(p.proargnames, '{}'))
           and p.proname not in ('gov_source_put', 'gov_trust_set')
           and exists (select from pg_roles r where r.rolname in ('gov_handoff_operator', 'gov_handoff_observer', 'gov_handoff_producer', 'gov_handoff_executor')
                          and has_function_privilege(r.rolname, p.oid, 'execute'))
         order by 1";
    let callable = db.texts(callable).await;
    let examples = examples();
    let missing: Vec<_> = callable.iter().filter(|name| !examples.contains_key(name.as_str())).collect();
    assert!(missing.is_empty(), "docs/sql-examples.sql has no example of {missing:?}");
    let unknown: Vec<_> = examples.keys().filter(|name| !callable.iter().any(|c| c == *name)).collect();
    assert!(unknown.is_empty(), "docs/sql-examples.sql has examples of {unknown:?}, which nobody may call");
    db.sql(AT_HAND).await;
    for (name, call) in &examples {
        if let Err(e) = db.client.batch_execute(&format!("begin; {call}")).await {
            panic!("the example of {name}: {e:?}");
        }
        db.sql("rollback").await;
    }
}
