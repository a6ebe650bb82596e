//! Claimers that are killed, stopped past their leases and cut off, over thousands of jobs: from the transition log alone, each job
//! succeeded exactly once, no claim that was over finished anything, no limit was ever exceeded, and nothing is stuck.
//!
//! `GOV_HANDOFF_TEST_JOBS=20000 GOV_HANDOFF_TEST_CLAIMERS=20` is the full size; by default both are smaller.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Database, Random, connect, migrated, seed, signal};

/// Claimers of one executor share its limit.
const EXECUTORS: usize = 4;
const LIMIT: i64 = 7;
const LEASE: Duration = Duration::from_secs(1);

fn size(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The process of one claimer: claims, starts, works a little and completes, until it is killed.
#[tokio::test]
#[ignore = "the process of one claimer, started by the test below"]
async fn claimer() {
    let url = std::env::var("JOB_CLAIMER_URL").expect("the address of the server");
    let executor = std::env::var("JOB_CLAIMER_EXECUTOR").expect("the name of the executor");
    let mut random = Random::new(u64::from(std::process::id()));
    loop {
        let Ok((client, connection)) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        tokio::spawn(connection);
        while let Ok(worked) = one_claim(&client, &executor, &mut random).await {
            if !worked {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

async fn one_claim(
    client: &tokio_postgres::Client,
    executor: &str,
    random: &mut Random,
) -> Result<bool, tokio_postgres::Error> {
    client.execute("select fn_executor_heartbeat($1)", &[&executor]).await?;
    let rows =
        client.query("select job_id, token from fn_job_claim($1, 3, '1 second')", &[&executor]).await?;
    let ids: Vec<uuid::Uuid> = rows.iter().map(|row| row.get(0)).collect();
    let tokens: Vec<i64> = rows.iter().map(|row| row.get(1)).collect();
    if ids.is_empty() {
        return Ok(false);
    }
    client.execute("select fn_job_start($1, $2)", &[&ids, &tokens]).await?;
    tokio::time::sleep(Duration::from_millis(random.below(4))).await;
    match random.below(20) {
        0 => client.execute("select fn_job_release($1, $2)", &[&ids, &tokens]).await?,
        1 => client.execute("select fn_job_fail($1, $2, 'no')", &[&ids[0], &tokens[0]]).await?,
        _ => client.execute("select fn_job_complete($1, $2)", &[&ids, &tokens]).await?,
    };
    Ok(true)
}

fn start_claimer(url: &str, n: usize) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["job_hostile::claimer", "--exact", "--ignored", "--nocapture"])
        .env("JOB_CLAIMER_URL", url)
        .env("JOB_CLAIMER_EXECUTOR", format!("e{}", n % EXECUTORS))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a claimer")
}

/// What happens to the claimers while they work. All of them end with it.
struct Claimers {
    url: String,
    children: Vec<Child>,
    stopped: Vec<(usize, Instant)>,
}

impl Claimers {
    fn start(url: &str, n: usize) -> Self {
        let children = (0..n).map(|i| start_claimer(url, i)).collect();
        Self { url: url.to_owned(), children, stopped: Vec::new() }
    }

    fn kill(&mut self, n: usize) {
        self.children[n].kill().expect("kill");
        self.children[n].wait().expect("an end");
        self.children[n] = start_claimer(&self.url, n);
        self.stopped.retain(|(stopped, _)| *stopped != n);
    }

    fn stop(&mut self, n: usize) {
        if self.stopped.iter().all(|(stopped, _)| *stopped != n) {
            signal(self.children[n].id(), "STOP");
            self.stopped.push((n, Instant::now()));
        }
    }

    fn wake(&mut self) {
        for (n, _) in self.stopped.extract_if(.., |(_, since)| since.elapsed() > LEASE * 2) {
            signal(self.children[n].id(), "CONT");
        }
    }
}

impl Drop for Claimers {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

async fn fill(db: &Database, jobs: usize) {
    for n in 0..EXECUTORS {
        db.sql(&format!(
            "select fn_executor_register('e{n}', 'Agent', 'op'), fn_job_subscribe('e{n}', null, null, 0, {LIMIT}, true, 'op'), \
             fn_executor_heartbeat('e{n}')"
        ))
        .await;
    }
    db.sql(&format!(
        "select count(*) from fn_job_enqueue_many((select jsonb_agg(jsonb_build_object('kind', 'k' || g % 3, 'key', 'job' || g, \
         'executor', 'Agent', 'priority', g % 2, 'max_attempts', 1000)) from generate_series(1, {jobs}) g))"
    ))
    .await;
    db.sql("update dot_config set value = '20' where key = 'event.retry.base_ms'").await;
}

/// Plays the accidents until every job has succeeded.
async fn play(db: &Database, claimers: &mut Claimers, random: &mut Random, patience: Duration) {
    let deadline = Instant::now() + patience;
    let count = claimers.children.len() as u64;
    loop {
        db.sql("select gov_handoff.gov_job_tick()").await;
        let left = db.number("select count(*) from job_queue where status <> 'succeeded'").await;
        if left == 0 {
            return;
        }
        assert!(Instant::now() < deadline, "{left} jobs are left after {patience:?}");
        let n = usize::try_from(random.below(count)).expect("small");
        match random.below(6) {
            0 => claimers.kill(n),
            1 => claimers.stop(n),
            2 => {
                db.sql(
                    "select pg_terminate_backend(pid) from pg_stat_activity \
                     where datname = current_database() and pid <> pg_backend_pid() order by random() limit 1",
                )
                .await;
            }
            _ => {}
        }
        claimers.wake();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_job_succeeds_exactly_once_whatever_happens_to_its_claimers() {
    let jobs = size("GOV_HANDOFF_TEST_JOBS", 1500);
    let seed = seed();
    let mut random = Random::new(seed);
    let db = migrated().await;
    fill(&db, jobs).await;
    let mut claimers = Claimers::start(&db.url, size("GOV_HANDOFF_TEST_CLAIMERS", 8));
    play(&db, &mut claimers, &mut random, Duration::from_secs(60 + jobs as u64 / 20)).await;
    drop(claimers);
    let judge = connect(&db.url).await;
    let wrong = async |what: &str, query: &str| {
        let n: i64 = judge.query_one(query, &[]).await.unwrap_or_else(|e| panic!("{query}: {e:?}")).get(0);
        assert_eq!(n, 0, "{what}");
    };
    wrong(
        "jobs that did not succeed exactly once",
        "select count(*) from (select q.id from job_queue q left join job_transition t on t.job_id = q.id and t.to_status = 'succeeded' \
         group by q.id having count(t.job_id) <> 1) x",
    )
    .await;
    wrong(
        "breaks in the log: a transition that does not begin where the one before it ended",
        "select count(*) from (select from_status, lag(to_status) over (partition by job_id order by seq) as before \
         from job_transition) x where from_status is distinct from before",
    )
    .await;
    wrong(
        "transitions under a token that was not the job's last claim",
        "select count(*) from (select token, from_status, max(token) filter (where to_status = 'leased') \
         over (partition by job_id order by seq) as claim from job_transition) x \
         where from_status in ('leased', 'in_progress') and token is distinct from claim",
    )
    .await;
    wrong(
        "moments at which an executor ran more than its limit",
        "select count(*) from (select sum(case when to_status = 'leased' then 1 when from_status in ('leased', 'in_progress') \
         and to_status <> 'in_progress' then -1 else 0 end) over (partition by executor_id order by seq) as running \
         from job_transition where executor_id is not null) x where running > 7",
    )
    .await;
    wrong(
        "subscriptions that count jobs although none runs",
        "select count(*) from v_executor_subscription_health where running <> 0",
    )
    .await;
    let rescued = db.number("select count(*) from job_transition where reason = 'lease expired'").await;
    assert!(rescued > 0, "no claimer lost a lease: the accidents were too few (seed {seed})");
}
