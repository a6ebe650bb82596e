//! Read state: the functions against a model of sets, what a position promises while others commit, acknowledgements, and the
//! cost of finding what is unread.

use std::collections::{BTreeMap, BTreeSet};

use tokio_postgres::Client;
use uuid::Uuid;

use crate::support::{Database, Random, connect, migrated, number, seed};

const DOMAINS: [&str; 3] = ["system", "dot", "iu"];
const STREAMS: [&str; 3] = ["alert", "comment", "task"];
const ACTORS: [&str; 3] = ["user:an", "user:binh", "user:chi"];

/// Gives the events that have none a position, as the worker does. The tests of the worker itself are in `feed`.
pub async fn feed(client: &Client) {
    client
        .batch_execute(
            "select gov_handoff.gov_feed_append(array(select o.id from event_outbox o where not exists \
             (select from event_feed f where f.event_id = o.id)))",
        )
        .await
        .expect("positions");
}

async fn unread(db: &Database, actor: &str) -> BTreeSet<Uuid> {
    let rows = db
        .client
        .query("select event_id from fn_event_unread($1, p_limit => 10000)", &[&actor])
        .await
        .expect("the unread events");
    rows.iter().map(|row| row.get(0)).collect()
}

/// The model: who has read what, as plain sets.
#[derive(Default)]
struct Model {
    events: Vec<(Uuid, &'static str, &'static str, &'static str)>,
    read: BTreeMap<&'static str, BTreeSet<Uuid>>,
    /// Own events count as read unless they were marked as unread.
    unread_own: BTreeSet<(&'static str, Uuid)>,
}

impl Model {
    fn unread(&self, actor: &'static str) -> BTreeSet<Uuid> {
        let read = self.read.get(actor);
        let is_unread = |(id, _, _, author): &(Uuid, &str, &str, &str)| {
            !read.is_some_and(|r| r.contains(id))
                && (*author != actor || self.unread_own.contains(&(actor, *id)))
        };
        // `user:chi` subscribes to one domain and mutes one stream of it; the others receive everything.
        let receives = |(_, domain, stream, _): &(Uuid, &str, &str, &str)| {
            actor != "user:chi" || *domain == "dot" && *stream != "task"
        };
        self.events.iter().filter(|e| is_unread(e) && receives(e)).map(|e| e.0).collect()
    }
}

#[tokio::test]
async fn any_sequence_of_reading_and_unreading_leaves_what_a_model_of_sets_has() {
    let db = migrated().await;
    db.sql(
        "insert into event_subscription (recipient_ref, event_domain, event_stream, mute) values
             ('user:an', 'system', null, false), ('user:an', 'dot', null, false), ('user:an', 'iu', null, false),
             ('user:binh', null, null, false),
             ('user:chi', 'dot', null, false), ('user:chi', 'dot', 'task', true)",
    )
    .await;
    let seed = seed();
    let mut random = Random::new(seed);
    let mut model = Model::default();
    for step in 0..60u128 {
        let actor = random.pick(&ACTORS);
        let some: Vec<Uuid> =
            model.events.iter().filter(|_| random.percent(15)).map(|e| e.0).collect::<Vec<_>>();
        match random.below(8) {
            0..3 => {
                for n in 0..random.below(12) {
                    let (id, domain, stream, author) = (
                        Uuid::from_u128(step << 8 | u128::from(n)),
                        random.pick(&DOMAINS),
                        random.pick(&STREAMS),
                        random.pick(&ACTORS),
                    );
                    let insert = "insert into event_outbox (id, event_domain, event_type, event_stream, canonical_address, \
                                  actor_ref, source_system) values ($1, $2, 'happened', $3, 'a', $4, 'test')";
                    db.client.execute(insert, &[&id, &domain, &stream, &author]).await.expect("an event");
                    model.events.push((id, domain, stream, author));
                    // Some were read before we came: a row of the live table.
                    if random.percent(10) {
                        let read = "insert into event_read (event_id, actor_ref) values ($1, $2)";
                        db.client.execute(read, &[&id, &actor]).await.expect("a read");
                        model.read.entry(actor).or_default().insert(id);
                    }
                }
                feed(&db.client).await;
            }
            3..5 => {
                db.client
                    .execute("select fn_event_mark_read($1, $2)", &[&actor, &some])
                    .await
                    .expect("mark read");
                model.read.entry(actor).or_default().extend(&some);
                model.unread_own.retain(|(who, id)| *who != actor || !some.contains(id));
            }
            5 => {
                db.client
                    .execute("select fn_event_mark_unread($1, $2)", &[&actor, &some])
                    .await
                    .expect("mark unread");
                for id in some {
                    model.read.entry(actor).or_default().remove(&id);
                    model.unread_own.insert((actor, id));
                }
            }
            6 => {
                let (domain, stream) = (
                    random.percent(50).then(|| random.pick(&DOMAINS)),
                    random.percent(50).then(|| random.pick(&STREAMS)),
                );
                let all = "select fn_event_mark_all_read($1, null, $2, $3)";
                db.client.execute(all, &[&actor, &domain, &stream]).await.expect("mark all read");
                for (id, d, s, _) in &model.events {
                    if domain.is_none_or(|x| x == *d) && stream.is_none_or(|x| x == *s) {
                        model.read.entry(actor).or_default().insert(*id);
                        model.unread_own.remove(&(actor, *id));
                    }
                }
            }
            _ => {}
        }
        for actor in ACTORS {
            assert_eq!(unread(&db, actor).await, model.unread(actor), "seed {seed}, step {step}: {actor}");
            let counted =
                format!("select coalesce(sum(unread), 0)::bigint from fn_event_unread_count('{actor}')");
            assert_eq!(
                db.number(&counted).await,
                model.unread(actor).len() as i64,
                "seed {seed}, step {step}: {actor}"
            );
        }
    }
    let exceptions = db.number("select count(*) from event_read_exception where is_read").await;
    let reads = db.number("select count(*) from event_read_mark").await;
    assert!(
        reads > 0 && exceptions < model.events.len() as i64,
        "{exceptions} exceptions, {reads} watermarks"
    );
}

#[tokio::test]
async fn reading_in_order_leaves_a_watermark_and_no_exceptions() {
    let db = migrated().await;
    db.sql(
        "insert into event_subscription (recipient_ref, event_domain) values ('user:an', 'dot');
         insert into event_outbox (event_domain, event_type, event_stream, canonical_address, actor_ref, source_system)
         select 'dot', 'happened', 'update', 'a', 'svc:x', 'test' from generate_series(1, 50)",
    )
    .await;
    feed(&db.client).await;
    for part in 0..5 {
        db.sql("select fn_event_mark_read('user:an', array(select event_id from fn_event_unread('user:an', p_limit => 10)))")
            .await;
        assert_eq!(db.number("select through from event_read_mark").await, (part + 1) * 10);
        assert_eq!(db.number("select count(*) from event_read_exception").await, 0);
    }
}

/// Whatever is committed after the call is unread, however early its transaction began.
#[tokio::test(flavor = "multi_thread")]
async fn marking_all_as_read_hides_nothing_that_commits_later() {
    let db = migrated().await;
    db.sql("insert into event_subscription (recipient_ref, event_domain) values ('user:an', 'dot')").await;
    let emit = "insert into event_outbox (event_domain, event_type, event_stream, canonical_address, actor_ref, source_system) \
                values ('dot', 'happened', 'update', 'a', 'svc:x', 'test')";
    // Four writers, each with a transaction that began before a mark and commits after it.
    for round in 0..20 {
        let mut open = Vec::new();
        for _ in 0..4 {
            let writer = connect(&db.url).await;
            writer.batch_execute(&format!("begin; {emit}")).await.expect("an open emit");
            open.push(writer);
        }
        db.sql(emit).await;
        feed(&db.client).await;
        let through = db.number("select fn_event_mark_all_read('user:an', 9223372036854775807)").await;
        assert_eq!(number(&db.client, "select last from fn_event_feed_head()").await, through);
        for writer in &open[..3] {
            writer.batch_execute("commit").await.expect("a late commit");
        }
        open[3].batch_execute("rollback").await.expect("a rollback");
        feed(&db.client).await;
        assert_eq!(unread(&db, "user:an").await.len(), 3, "round {round}");
        db.sql("select fn_event_mark_all_read('user:an')").await;
        assert_eq!(unread(&db, "user:an").await.len(), 0, "round {round}");
    }
    assert_eq!(db.number("select count(*) from event_read_mark").await, 1, "a handful of rows");
}

#[tokio::test]
async fn an_acknowledgement_counts_for_the_role_and_only_where_it_has_a_meaning() {
    let db = migrated().await;
    db.sql(
        "insert into event_subscription (recipient_ref, event_domain) values ('role:health_owner', 'system');
         insert into event_actor_member values ('role:health_owner', 'user:an', 'test'), ('role:health_owner', 'user:binh', 'test');
         insert into event_outbox (id, event_domain, event_type, event_stream, canonical_address, actor_ref, source_system) values
             ('00000000-0000-0000-0000-000000000001', 'system', 'issue_opened', 'alert', 'a', 'svc:x', 'test'),
             ('00000000-0000-0000-0000-000000000002', 'system', 'commented', 'comment', 'a', 'svc:x', 'test')",
    )
    .await;
    feed(&db.client).await;
    let ack = async |who: &str, event: u32, note: &str| {
        let call =
            format!("select fn_event_ack('{who}', '00000000-0000-0000-0000-00000000000{event}', {note})");
        db.client.query_one(&call, &[]).await.map(|row| row.get::<_, bool>(0)).map_err(|e| {
            e.as_db_error().map_or_else(|| e.to_string(), |e| format!("{} {}", e.code().code(), e.message()))
        })
    };
    assert_eq!(ack("user:an", 1, "'looked'").await, Ok(true));
    assert_eq!(ack("user:binh", 1, "null").await, Ok(false), "a member did so already");
    assert_eq!(
        db.texts("select concat_ws(' ', actor_ref, acked_by, note) from event_delivery order by actor_ref")
            .await,
        ["role:health_owner user:an", "user:an user:an looked", "user:binh user:an"]
    );
    for (who, event, note, why) in [
        ("user:an", 2, "null", "GH003 events of the stream comment are read, not acknowledged"),
        ("user:an", 3, "null", "GH003 there is no event"),
        ("user:stranger", 1, "null", "GH003 user:stranger is not a recipient"),
        (" ", 1, "null", "GH003 an actor is needed"),
        ("user:an", 1, "repeat('x', 1001)", "GH003 the note has 1001 characters"),
    ] {
        let refused = ack(who, event, note).await.expect_err("refused");
        assert!(refused.starts_with(why), "{refused}");
    }
    // Who acknowledges an event has read it, and so has who tried.
    assert_eq!(unread(&db, "user:an").await.len(), 1);
    assert_eq!(unread(&db, "user:binh").await.len(), 1);
    assert_eq!(unread(&db, "role:health_owner").await.len(), 2);
    let board = "select string_agg(state, ' ' order by pos) from fn_event_board('user:binh')";
    assert_eq!(db.text(board).await, "acknowledged unread");
    assert_eq!(
        db.number(
            "select count(*) from event_delivery where event_id = '00000000-0000-0000-0000-000000000002'"
        )
        .await,
        0
    );
}

#[tokio::test]
async fn what_is_settled_is_hidden_unless_asked_for_and_the_news_of_it_is_not() {
    let db = migrated().await;
    db.sql(
        "insert into event_subscription (recipient_ref) values ('user:an');
         insert into system_issues (issue_kind, coalesce_key, source_system) values ('k', 'issue:1', 'test');
         insert into job_queue (id, job_kind, idempotency_key, updated_at) values
             ('00000000-0000-0000-0000-00000000000a', 'k', 'k', now() - interval '1 hour');
         insert into event_outbox (event_domain, event_type, event_stream, event_subject_table, event_subject_ref, canonical_address,
             actor_ref, source_system, safe_payload, occurred_at) values
             ('system', 'issue_opened', 'alert', 'system_issues', null, 'a', 'x', 't', '{\"coalesce_key\": \"issue:1\"}', now() - interval '1 minute'),
             ('system', 'issue_resolved', 'alert', 'system_issues', null, 'a', 'x', 't', '{\"coalesce_key\": \"issue:1\"}', now() - interval '1 second'),
             ('dot', 'job_failed', 'task', 'job_queue', '00000000-0000-0000-0000-00000000000a', 'a', 'x', 't', '{}', now() - interval '1 minute'),
             ('governance', 'governance.handoff.object_born', 'birth', 'birth_registry', null, 'a', 'x', 't', '{\"object_ref\": \"laws:1\"}', now() - interval '1 minute')",
    )
    .await;
    feed(&db.client).await;
    let shown = async |resolved: bool| {
        let query = format!(
            "select coalesce(string_agg(event_type, ' ' order by pos), '') from fn_event_unread('user:an', p_include_resolved => {resolved})"
        );
        db.text(&query).await
    };
    let all = "issue_opened issue_resolved job_failed governance.handoff.object_born";
    let sorted = |text: String| text.split(' ').map(str::to_owned).collect::<BTreeSet<_>>();
    assert_eq!(sorted(shown(false).await), sorted(all.to_owned()), "nothing is settled yet");
    db.sql(
        "update system_issues set resolved_at = now();
         select fn_job_cancel('00000000-0000-0000-0000-00000000000a', 'not needed', 'user:an');
         insert into gov_candidate_state (candidate_key, ruleset_version, object_type, group_key, dirty_reason, last_occurred_at)
         values ('laws:1', 1, 'laws', 'g', 'governance.handoff.object_retired', now())",
    )
    .await;
    assert_eq!(shown(false).await, "issue_resolved");
    assert_eq!(sorted(shown(true).await), sorted(all.to_owned()));
}

#[tokio::test]
async fn finding_what_is_unread_reads_neither_outbox_nor_feed_as_a_whole() {
    let db = migrated().await;
    db.sql(
        "insert into event_subscription (recipient_ref, event_domain) values ('user:an', 'dot');
         insert into event_outbox (event_domain, event_type, event_stream, canonical_address, actor_ref, source_system)
         select 'dot', 'happened', 'update', 'a', 'svc:x', 'test' from generate_series(1, 20000)",
    )
    .await;
    feed(&db.client).await;
    db.sql("select fn_event_mark_all_read('user:an', 19900); analyze event_outbox; analyze event_feed").await;
    db.sql("select pg_stat_force_next_flush()").await;
    let scans = "select sum(seq_tup_read)::bigint from pg_stat_user_tables where relname in ('event_outbox', 'event_feed')";
    let reads = "select sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::bigint from pg_stat_user_tables \
                 where relname in ('event_outbox', 'event_feed')";
    let before = (db.number(scans).await, db.number(reads).await);
    assert_eq!(unread(&db, "user:an").await.len(), 100);
    assert_eq!(db.number("select sum(unread)::bigint from fn_event_unread_count('user:an')").await, 100);
    db.sql("select pg_stat_force_next_flush()").await;
    let after = (db.number(scans).await, db.number(reads).await);
    assert_eq!(after.0, before.0, "a table was read from end to end");
    assert!(
        after.1 > before.1 && after.1 - before.1 < 2_000,
        "{} rows were read for 100",
        after.1 - before.1
    );
}
