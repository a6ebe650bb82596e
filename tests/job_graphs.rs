//! Graphs of jobs: made whole or not at all, run in the order of their dependencies, and never a cycle.

use crate::support::{Database, migrated};

const REGISTER: &str = "select fn_executor_register('e', 'Agent', 'op'), fn_job_subscribe('e', 'k', null, 0, 1000000, true, 'op'), \
     fn_executor_heartbeat('e')";

async fn queue() -> Database {
    let db = migrated().await;
    db.sql(REGISTER).await;
    db
}

/// A graph from `key: what it waits for`, one job each.
fn graph(jobs: &[(&str, &[&str])]) -> String {
    let items: Vec<_> = jobs
        .iter()
        .map(|(key, on)| serde_json::json!({"kind": "k", "key": key, "executor": "Agent", "depends_on": on}))
        .collect();
    serde_json::Value::from(items).to_string()
}

async fn emit(db: &Database, graph: &str) -> Vec<String> {
    db.texts(&format!("select outcome || ':' || coalesce(reason, '') from fn_mot_graph_emit('{graph}')"))
        .await
}

/// What a graph leaves where none of it was made: nothing at all.
async fn is_empty(db: &Database) {
    for table in ["job_queue", "job_ready", "job_deferred", "job_deadline", "job_dependency", "job_step"] {
        assert_eq!(db.number(&format!("select count(*) from {table}")).await, 0, "{table}");
    }
}

/// The keys of all jobs that are ready now; they are finished.
async fn run_ready(db: &Database) -> String {
    db.text(
        "with c as materialized (select * from fn_job_claim('e', 100, '30 seconds', true)),
              k as materialized (select string_agg(q.idempotency_key, ' ' order by q.idempotency_key) as keys
                                   from c join job_queue q on q.id = c.job_id),
              d as (select count(*) as n from fn_job_complete((select array_agg(c.job_id) from c), (select array_agg(c.token) from c)))
         select k.keys from k, d",
    )
    .await
}

#[tokio::test]
async fn a_graph_runs_in_the_order_of_its_dependencies() {
    let db = queue().await;
    // The last is named first: the order in the document says nothing.
    let diamond =
        graph(&[("end", &["left", "right"]), ("left", &["start"]), ("right", &["start"]), ("start", &[])]);
    assert_eq!(emit(&db, &diamond).await, vec!["done:"; 4]);
    for expected in ["start", "left right", "end"] {
        assert_eq!(run_ready(&db).await, expected);
    }
    assert_eq!(db.number("select count(*) from job_dependency").await, 0);
    assert_eq!(emit(&db, &diamond).await, vec!["done:known"; 4], "the same graph again changes nothing");
    assert_eq!(db.number("select count(*) from job_queue where status = 'succeeded'").await, 4);
}

#[tokio::test]
async fn a_graph_with_a_refused_job_leaves_nothing() {
    let db = queue().await;
    let refused = r#"[{"kind": "k", "key": "a", "executor": "Agent", "deadline_at": "2999-01-01"},
        {"kind": "k", "key": "b", "executor": "MOT", "depends_on": ["a"]}]"#;
    let answers = emit(&db, refused).await;
    assert_eq!(
        answers,
        ["refused:another job of the graph was refused", "refused:not a kind of executor: MOT"]
    );
    is_empty(&db).await;
    // The same job is made with the next graph, so nothing of the refused one holds its key.
    assert_eq!(emit(&db, &graph(&[("a", &[])])).await, ["done:"]);
}

#[tokio::test]
async fn a_cycle_or_an_unknown_job_is_refused_and_leaves_nothing() {
    let db = queue().await;
    let wrong = [
        (graph(&[("a", &["b"]), ("b", &["a"])]), "wait for each other in a cycle"),
        (graph(&[("a", &["c"]), ("b", &["a"]), ("c", &["b"]), ("d", &[])]), "wait for each other in a cycle"),
        (graph(&[("a", &[]), ("b", &["nowhere"])]), "depends on a job that does not exist: nowhere"),
    ];
    for (graph, expected) in wrong {
        for gate in ["fn_mot_graph_emit", "fn_job_enqueue_many"] {
            let call = format!("select count(*) from {gate}('{graph}')");
            let error = db.client.batch_execute(&call).await.expect_err(&call);
            let error = error.as_db_error().expect("an error of the database");
            assert_eq!(error.code().code(), "GH003", "{call}");
            assert!(error.message().contains(expected), "{call}: {}", error.message());
            is_empty(&db).await;
        }
    }
    // A job that waits for itself.
    let own = graph(&[("a", &["a"])]);
    db.client
        .batch_execute(&format!("select fn_mot_graph_emit('{own}')"))
        .await
        .expect_err("a job waits for itself");
    is_empty(&db).await;
}

#[tokio::test]
async fn a_graph_in_a_transaction_that_rolls_back_leaves_nothing() {
    let db = queue().await;
    db.sql("begin").await;
    assert_eq!(emit(&db, &graph(&[("a", &[]), ("b", &["a"])])).await, vec!["done:"; 2]);
    db.sql("rollback").await;
    is_empty(&db).await;
}
