//! What the hostile operator does to the rest of the family: producers, readers and executors that hold their transactions
//! open and then commit or not, events past every gate, rules that change, backlogs that are read again.

use std::time::Duration;

use tokio_postgres::Client;

use super::operators::{Operators, Outcome, told};
use crate::support::Random;

pub const ACTS: [&str; 6] = ["emits", "direct", "reads", "jobs", "rules", "backfill"];

/// Types with each fate, and executors whose jobs expire quickly.
const SETUP: &str = "
    insert into event_type_registry (event_domain, event_type, event_stream, active)
    select t.* from (values ('kg', 'hostile.moved', 'update', true), ('kg', 'hostile.failed', 'alert', true),
                            ('kg', 'hostile.asleep', 'update', false)) as t (d, k, s, a)
     where not exists (select from event_type_registry r where r.event_domain = t.d and r.event_type = t.k);
    select fn_executor_register(e, 'Agent', 'hostile'), fn_job_subscribe(e, 'hostile', p_max_parallel => 20)
      from unnest(array['hostile_one', 'hostile_two']) e";

pub async fn enter(client: &Client) {
    client.batch_execute(SETUP).await.expect("types and executors of the queue");
}

pub async fn act(operators: &Operators, what: &str, random: &mut Random) -> Outcome {
    let client = operators.session().await?;
    let held = random.between(10, 2_500);
    let end = if random.percent(60) { "commit" } else { "rollback" };
    let run = async |sql: String| client.batch_execute(&sql).await.map_err(told);
    let in_one = |sql: String| format!("begin; {sql}; select pg_sleep({held} / 1000.0); {end}");
    match what {
        "emits" => run(in_one(emits(random))).await,
        "direct" => {
            let sql = "insert into event_outbox (event_domain, event_type, event_stream, event_severity, canonical_address, actor_ref, \
                       source_system, created_at) select 'kg', 'hostile.failed', 'alert', 'critical', 'direct:' || g, 'svc:live', 'live', \
                       now() - interval '3 days' from generate_series(1, 20) g";
            run(in_one(sql.to_owned())).await
        }
        "reads" => run(in_one(reads(random))).await,
        "jobs" => jobs(&client, random, held, end).await,
        "rules" => {
            let code = random.pick(&["one_accepted", "several_accepted"]);
            for enabled in [false, true] {
                let changed = format!(
                    "select gov_handoff.gov_rules_put((select jsonb_agg(to_jsonb(r) || case when r.code = '{code}' \
                     then '{{\"enabled\": {enabled}}}' else '{{}}' end::jsonb) from gov_verdict_rule r), 'hostile')"
                );
                operators.insist(&changed).await?;
                tokio::time::sleep(Duration::from_millis(held / 3)).await;
            }
            Ok(())
        }
        _ => {
            let limit =
                if random.percent(40) { Duration::from_millis(held) } else { Duration::from_secs(20) };
            let read = operators.command(&["backfill", "--again"], limit).await;
            read.or_else(|e| if e.contains("killed after") { Ok(()) } else { Err(e) })
        }
    }
}

/// Events of every fate, some of which other sessions emit as well.
fn emits(random: &mut Random) -> String {
    let subject = random.between(0, 40);
    format!(
        "select fn_event_emit_many((select jsonb_agg(jsonb_build_object('domain', 'kg', 'type', t.type, 'subject_table', 'hostile',
             'subject_ref', md5('{subject}' || g)::uuid, 'address', 'hostile:' || g, 'actor', 'svc:hostile', 'source_system', 'hostile',
             'severity', t.severity, 'payload', t.payload::jsonb, 'lane', t.lane))
           from generate_series(1, 5) g cross join (values
             ('hostile.moved', null, '{{}}', null), ('hostile.failed', 'critical', '{{}}', null), ('hostile.asleep', null, '{{}}', null),
             ('hostile.unheard', null, '{{}}', null), ('hostile.moved', null, '{{\"password\": 1}}', null), ('hostile.moved', null, '{{}}', 'delayed'))
           as t (type, severity, payload, lane)))"
    )
}

fn reads(random: &mut Random) -> String {
    let actor = random.pick(&["user:an", "user:binh", "role:ops"]);
    let some = "(select event_id from event_feed where event_stream = 'alert' order by pos desc limit 20) e";
    match random.between(0, 3) {
        0 => format!("select fn_event_mark_read('{actor}', array_agg(e.event_id)) from {some}"),
        1 => format!("select fn_event_mark_all_read('{actor}')"),
        2 => format!("select fn_event_consume_once('hostile', e.event_id) from {some} order by e.event_id"),
        _ => format!(
            "select fn_event_ack('{actor}', e.event_id) from {some} \
             where exists (select from fn_event_recipients(e.event_id) r where r.actor_ref = '{actor}') order by e.event_id"
        ),
    }
}

/// An executor that claims, begins, and ends its jobs in one way or another, or leaves them; and a producer beside it.
async fn jobs(client: &Client, random: &mut Random, held: u64, end: &str) -> Outcome {
    let (key, executor) = (random.next(), random.pick(&["hostile_one", "hostile_two"]));
    let enqueue = format!(
        "select fn_job_enqueue_many((select jsonb_agg(jsonb_build_object('kind', 'hostile', 'key', '{key:x}-' || g, 'executor', 'Agent',
             'priority', g % 3, 'depends_on', case when g > 3 then jsonb_build_array('{key:x}-' || (g - 3)) end)) from generate_series(1, 6) g))"
    );
    client.batch_execute(&enqueue).await.map_err(told)?;
    let finish = match random.between(0, 3) {
        0 => "perform fn_job_complete(ids, tokens)",
        1 => "perform fn_job_release(ids, tokens)",
        2 => "perform fn_job_fail(j, t, 'hostile', false) from unnest(ids, tokens) as u (j, t)",
        _ => "null",
    };
    let work = format!(
        "begin; do $$ declare ids uuid[]; tokens bigint[]; begin
             perform fn_executor_heartbeat('{executor}');
             select array_agg(c.job_id), array_agg(c.token) into ids, tokens from fn_job_claim('{executor}', 4, '300 ms') c;
             if ids is not null then perform fn_job_start(ids, tokens); {finish}; end if; end $$;
         select pg_sleep({held} / 1000.0); {end}"
    );
    client.batch_execute(&work).await.map_err(told)
}

/// What must hold of the jobs once everything has come to rest. Each line is a query for names.
pub const JOBS: [(&str, &str); 4] = [
    (
        "a queued job that nobody can claim",
        "select j.id::text from job_queue j
          where j.status = 'queued' and not exists (select from job_ready r where r.job_id = j.id)
            and not exists (select from job_deferred d where d.job_id = j.id)
            and not exists (select from job_dependency d where d.job_id = j.id)",
    ),
    (
        "a job that waits for one that has succeeded",
        "select d.job_id::text from job_dependency d join job_queue j on j.id = d.depends_on where j.status in ('succeeded', 'cleaned')",
    ),
    (
        "a job whose lease is long over",
        "select j.id::text from job_queue j where j.status in ('leased', 'in_progress') and j.lease_until < clock_timestamp() - interval '3 seconds'",
    ),
    (
        "a job that succeeded twice",
        "select t.job_id::text from job_transition t where t.to_status = 'succeeded' group by 1 having count(*) > 1",
    ),
];
