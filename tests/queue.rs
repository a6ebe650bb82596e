//! The client of the job queue: the loop of an executor, lost claims, rejections, a server that goes away; and the example, killed
//! in the middle of its jobs.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use gov_handoff::error::Kind;
use gov_handoff::queue::{Ending, Enqueued, Executor, ExecutorKind, NewJob, Producer, Reply};
use serde_json::json;
use tokio::sync::{Notify, oneshot};

use crate::support::{Database, migrated, signal, until};

/// A database with the executor `e`, which may claim all jobs.
async fn queue() -> Database {
    let db = migrated().await;
    register(&db, "e").await;
    db
}

async fn register(db: &Database, executor: &str) {
    db.sql(&format!(
        "select fn_executor_register('{executor}', 'Agent', 'op'), fn_job_subscribe('{executor}', null, null, 0, 1000, true, 'op')"
    ))
    .await;
}

fn job(key: &str) -> NewJob {
    NewJob::new("k", key, ExecutorKind::Agent)
}

async fn executor(db: &Database) -> Executor {
    Executor::connect(Some(&db.url), "e").await.expect("an executor")
}

async fn enqueue(db: &Database, jobs: &[NewJob]) -> Vec<Enqueued> {
    let producer = Producer::connect(Some(&db.url)).await.expect("a producer");
    producer.enqueue_many(jobs).await.expect("answers")
}

#[tokio::test]
async fn what_is_enqueued_is_claimed_as_it_was_given_and_a_key_is_one_job() {
    let db = queue().await;
    let deadline = "2099-01-01T00:00:00.25Z".parse().expect("a time");
    let full =
        job("a").domain("iu").payload_ref("iu://draft/1").payload(json!({ "n": 1 })).deadline_at(deadline);
    let later = job("b").run_at("2098-01-01T00:00:00Z".parse().expect("a time"));
    let contents = job("c").payload(json!({ "deep": { "body": "no" } }));
    let answers = enqueue(&db, &[full.clone(), later, contents, job("d").after(["a"])]).await;
    let [Enqueued::New(id), Enqueued::New(_), Enqueued::Refused(why), Enqueued::New(waits)] = &answers[..]
    else {
        panic!("{answers:?}")
    };
    assert!(why.starts_with("payload:"), "{why}");
    assert_eq!(enqueue(&db, &[full]).await, [Enqueued::Known(*id)]);
    let executor = executor(&db).await;
    let jobs = executor.claim(10).await.expect("a claim");
    let [one] = &jobs[..] else { panic!("{jobs:?}") };
    assert_eq!((one.id, one.kind.as_str(), one.attempt), (*id, "k", 1));
    assert_eq!((one.domain.as_deref(), one.payload_ref.as_deref()), (Some("iu"), Some("iu://draft/1")));
    assert_eq!((&one.payload, one.deadline_at), (&json!({ "n": 1 }), Some(deadline)));
    executor.start(&jobs).await.expect("started");
    let done = executor.complete(&jobs, &json!({ "run": "7" })).await.expect("completed");
    assert_eq!(done, [(*id, Reply::Done)]);
    assert_eq!(db.text("select evidence ->> 'run' from job_evidence").await, "7");
    assert_eq!(executor.claim(10).await.expect("a claim")[0].id, *waits, "what it waited for has succeeded");
}

#[tokio::test]
async fn a_claim_that_is_over_is_an_answer_and_not_an_error() {
    let db = queue().await;
    enqueue(&db, &[job("a")]).await;
    let executor = executor(&db).await.lease(Duration::from_secs(1));
    let old = executor.claim(1).await.expect("a claim");
    executor.start(&old).await.expect("started");
    db.sql("select gov_handoff.gov_job_tick(clock_timestamp() + interval '2 seconds')").await;
    db.sql("select gov_handoff.gov_job_tick(clock_timestamp() + interval '1 minute')").await;
    let new = executor.claim(1).await.expect("a claim");
    assert!(new[0].token > old[0].token && new[0].id == old[0].id);
    for answers in [
        executor.start(&old).await,
        executor.heartbeat(&old).await,
        executor.complete(&old, &json!({})).await,
        executor.release(&old).await,
        executor.fail(&old[0], "no").await.map(|answer| vec![(old[0].id, answer)]),
    ] {
        assert!(answers.as_ref().is_ok_and(|a| a[0].1.is_stale()), "{answers:?}");
    }
    executor.start(&new).await.expect("started");
    assert_eq!(executor.reject(&new[0], "cannot be done").await.expect("an answer"), Reply::Done);
    assert_eq!(db.text("select status from job_queue").await, "dead_letter");
}

#[tokio::test]
async fn who_is_not_registered_or_not_bound_is_told_so() {
    let db = queue().await;
    let unknown = Executor::connect(Some(&db.url), "nobody").await.err().expect("an error");
    assert_eq!(unknown.kind, Kind::Refused);
    assert!(unknown.to_string().contains("executor nobody is not registered"), "{unknown}");
    db.sql("create role queue_a login in role gov_handoff_executor; create role queue_b login in role gov_handoff_executor; \
            create role queue_p login in role gov_handoff_producer")
        .await;
    let bound =
        Executor::connect(Some(&db.url_as("queue_a")), "e").await.expect("binds the executor to its role");
    let other = Executor::connect(Some(&db.url_as("queue_b")), "e").await.err().expect("an error");
    assert_eq!(other.kind, Kind::Privilege, "{other}");
    let producer = Producer::connect(Some(&db.url_as("queue_p"))).await.expect("a producer");
    let refused = producer.enqueue(&job("a")).await.expect_err("not granted");
    assert_eq!(refused.kind, Kind::Privilege, "{refused}");
    db.sql("select fn_job_producer_grant('queue_p', 'Agent', true, 'op')").await;
    let id = producer.enqueue(&job("a")).await.expect("granted");
    assert_eq!(bound.claim(1).await.expect("a claim")[0].id, id);
    drop((bound, producer));
    db.sql("select fn_executor_disable('e', 'op')").await;
    let mut disabled =
        Executor::connect(Some(&db.url_as("queue_a")), "e").await.expect("may still end what it has");
    let ended =
        disabled.run(1, std::future::pending(), |_| async { Ending::done() }).await.expect_err("disabled");
    assert!(ended.kind == Kind::Refused && ended.to_string().contains("is disabled"), "{ended}");
    // Roles belong to the whole server.
    db.sql("drop owned by queue_a, queue_b, queue_p; drop role queue_a, queue_b, queue_p").await;
}

#[tokio::test]
async fn a_job_that_is_enqueued_wakes_an_executor_that_does_not_poll() {
    let db = queue().await;
    let executor = executor(&db).await.poll(Duration::from_secs(3_600));
    let waiting = async { executor.wait(5).await.expect("a claim") };
    let enqueueing = async {
        // The executor looked and found nothing: it waits for the notification.
        db.until("select count(*) > 0 from pg_stat_activity where datname = current_database() \
                  and application_name like 'gov-handoff executor%' and state = 'idle' and query like '%fn_job_claim%'")
            .await;
        enqueue(&db, &[job("a")]).await
    };
    let (jobs, _) =
        tokio::time::timeout(Duration::from_secs(60), async { tokio::join!(waiting, enqueueing) })
            .await
            .expect("woken");
    assert_eq!(jobs.len(), 1);
}

#[tokio::test]
async fn without_notifications_the_poll_finds_a_job() {
    let db = queue().await;
    db.sql("update dot_config set value = 'off' where key = 'job.notify'").await;
    let executor = executor(&db).await.poll(Duration::from_millis(50));
    let jobs = [job("a")];
    let (jobs, _) = tokio::join!(executor.wait(5), enqueue(&db, &jobs));
    assert_eq!(jobs.expect("a claim").len(), 1);
}

/// Outcomes by the key of the job's payload.
async fn as_the_payload_says(job: gov_handoff::queue::Job) -> Ending {
    match job.payload["do"].as_str() {
        Some("succeed") => Ending::Done(json!({ "seen": job.attempt })),
        Some("retry") if job.attempt == 1 => Ending::Retry("not\0yet".to_owned()),
        Some("retry") => Ending::done(),
        Some("reject") => Ending::Reject("never".to_owned()),
        Some("release") if job.token.0 % 2 == 1 => Ending::Release,
        Some("contents") => Ending::Done(json!({ "body": "contents" })),
        Some("panic") if job.attempt == 1 => panic!("a handler's own bug"),
        _ => Ending::done(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_outcome_of_a_handler_ends_where_it_should() {
    let db = queue().await;
    let all = ["succeed", "retry", "reject", "release", "contents", "panic", "nothing"];
    let jobs: Vec<_> = all.iter().map(|what| job(what).payload(json!({ "do": what }))).collect();
    enqueue(&db, &jobs).await;
    let (stop, stopped) = oneshot::channel::<()>();
    let mut executor = executor(&db).await.poll(Duration::from_millis(20));
    let running =
        tokio::spawn(
            async move { executor.run(3, async { drop(stopped.await) }, as_the_payload_says).await },
        );
    until("every job has ended", async || {
        db.sql("select gov_handoff.gov_job_tick(clock_timestamp() + interval '10 seconds')").await;
        db.number("select count(*) from job_queue where status in ('succeeded', 'dead_letter')").await == 7
    })
    .await;
    stop.send(()).expect("it runs");
    let tally = running.await.expect("no panic").expect("no error");
    assert_eq!((tally.succeeded, tally.failed, tally.lost), (5, 4, 0), "{tally:?}");
    let dead = "select string_agg(idempotency_key || ': ' || last_error, '; ' order by idempotency_key) from job_queue where status = 'dead_letter'";
    let dead = db.text(dead).await;
    assert!(
        dead.starts_with("contents: the work was done, but its evidence was refused")
            && dead.ends_with("reject: never"),
        "{dead}"
    );
    let reasons = "select string_agg(reason, '; ' order by reason) from job_transition where to_status = 'retry_waiting'";
    assert_eq!(db.text(reasons).await, "notyet; the handler panicked");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_work_of_a_cancelled_job_is_stopped_and_the_others_go_on() {
    let db = queue().await;
    let ids: Vec<_> = enqueue(&db, &[job("a"), job("b")]).await.iter().filter_map(Enqueued::id).collect();
    let (begun, dropped, finish) =
        (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)), Arc::new(Notify::new()));
    let (stop, stopped) = oneshot::channel::<()>();
    let mut executor = executor(&db).await.lease(Duration::from_millis(600));
    let handler = {
        let (begun, dropped, finish) = (begun.clone(), dropped.clone(), finish.clone());
        move |_| {
            let guard = Dropped(dropped.clone());
            let (begun, finish) = (begun.clone(), finish.clone());
            async move {
                let _guard = guard;
                begun.fetch_add(1, Ordering::SeqCst);
                finish.notified().await;
                Ending::done()
            }
        }
    };
    let running = tokio::spawn(async move { executor.run(2, async { drop(stopped.await) }, handler).await });
    until("both run", async || begun.load(Ordering::SeqCst) == 2).await;
    db.sql(&format!("select fn_job_cancel('{}', 'not needed', 'op')", ids[0])).await;
    until("one was stopped", async || dropped.load(Ordering::SeqCst) == 1).await;
    finish.notify_waiters();
    stop.send(()).expect("it runs");
    let tally = running.await.expect("no panic").expect("no error");
    assert_eq!((tally.succeeded, tally.lost), (1, 1));
    assert_eq!(
        db.texts("select status from job_queue order by idempotency_key").await,
        ["cancelled", "succeeded"]
    );
}

struct Dropped(Arc<AtomicU32>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_executor_whose_connection_is_cut_keeps_its_job_and_hands_it_in() {
    let db = queue().await;
    enqueue(&db, &[job("a")]).await;
    let (begun, finish) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let mut executor = executor(&db).await;
    let (stop, stopped) = oneshot::channel::<()>();
    let handler = {
        let (begun, finish) = (begun.clone(), finish.clone());
        move |_| {
            let (begun, finish) = (begun.clone(), finish.clone());
            async move {
                begun.notify_one();
                finish.notified().await;
                Ending::done()
            }
        }
    };
    let running = tokio::spawn(async move { executor.run(1, async { drop(stopped.await) }, handler).await });
    begun.notified().await;
    let cut = "select count(pg_terminate_backend(pid, 10000)) from pg_stat_activity \
               where datname = current_database() and application_name like 'gov-handoff executor%'";
    assert_eq!(db.number(cut).await, 1);
    finish.notify_one();
    db.until("select count(*) = 1 from job_queue where status = 'succeeded'").await;
    stop.send(()).expect("it runs");
    assert_eq!(running.await.expect("no panic").expect("no error").succeeded, 1);
    assert_eq!(
        db.number("select count(*) from job_transition where to_status = 'leased'").await,
        1,
        "one claim sufficed"
    );
}

/// The example itself: `cargo test --tests` builds no examples, so the process below is this program, and runs it.
#[path = "../examples/executor.rs"]
#[allow(dead_code, reason = "its arguments are read by its own main")]
mod example;

/// The process of the example: it runs as `executor E 4 1` would. Without an executor's name it is nobody's process.
#[tokio::test(flavor = "multi_thread")]
async fn the_process_of_the_example() {
    let Ok(executor) = std::env::var("QUEUE_TEST_EXECUTOR") else { return };
    example::execute(&executor, 4, Duration::from_secs(1)).await.expect("it ends without an error");
}

struct Process(Child);

impl Process {
    fn start(db: &Database, executor: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        let name = concat!(module_path!(), "::the_process_of_the_example");
        command.args([name.split_once("::").map_or(name, |(_, name)| name), "--exact"]);
        command.env("DATABASE_URL", &db.url).env("QUEUE_TEST_EXECUTOR", executor);
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("the example starts"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_is_killed_again_and_again_and_each_job_succeeds_exactly_once() {
    const JOBS: i64 = 80;
    let db = queue().await;
    register(&db, "f").await;
    let jobs: Vec<_> = (0..JOBS)
        .map(|n| job(&n.to_string()).payload(json!({ "milliseconds": 20 })).max_attempts(50))
        .collect();
    enqueue(&db, &jobs).await;
    let mut processes = ["e", "f"].map(|name| Process::start(&db, name));
    let succeeded =
        async || db.number("select count(*) from job_transition where to_status = 'succeeded'").await;
    for (round, name) in ["e", "f", "e"].into_iter().enumerate() {
        let enough = JOBS / 5 * (i64::try_from(round).expect("small") + 1);
        let in_work = format!(
            "select count(*) > 0 from job_queue where status = 'in_progress' and lease_owner like '{name}#%'"
        );
        until("some jobs are done, and one is in the middle", async || {
            db.sql("select gov_handoff.gov_job_tick()").await;
            succeeded().await >= enough && db.text(&format!("select ({in_work})::text")).await == "true"
        })
        .await;
        signal(processes[round % 2].0.id(), "KILL");
        processes[round % 2] = Process::start(&db, name);
    }
    until("every job has succeeded", async || {
        db.sql("select gov_handoff.gov_job_tick()").await;
        db.number("select count(*) from job_queue where status <> 'succeeded'").await == 0
    })
    .await;
    let once = "select count(*) from (select job_id from job_transition where to_status = 'succeeded' group by job_id having count(*) = 1) j";
    assert_eq!((db.number(once).await, succeeded().await), (JOBS, JOBS));
    let again = db.number("select count(*) from job_transition where reason = 'lease expired'").await;
    assert!(again > 0, "no kill hit a job: the test showed nothing");
    let left = "select coalesce(sum(running), 0)::bigint from v_executor_subscription_health";
    assert_eq!(db.number(left).await, 0, "nothing is held");
    // Asked to end, it ends by itself.
    signal(processes[0].0.id(), "INT");
    assert!(processes[0].0.wait().expect("it ends").success());
}
