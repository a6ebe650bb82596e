//! `jobs` and `executors`: what an operator sees and decides, in text and in JSON, and what is refused with which code.

use serde_json::Value;
use tokio_postgres::SimpleQueryMessage;

use crate::support::{Database, TemporaryFile, cli, done, migrated};

async fn json_of(db: &Database, arguments: &[&str]) -> Value {
    let out = done(&db.url, arguments).await;
    serde_json::from_str(&out).unwrap_or_else(|e| panic!("{arguments:?}: {e}: {out}"))
}

/// A database with the executor `hermes_a`, subscribed to all jobs.
async fn queue() -> Database {
    let db = migrated().await;
    done(
        &db.url,
        &[
            "executors",
            "register",
            "hermes_a",
            "--kind",
            "Hermes",
            "--all-jobs",
            "--max-parallel",
            "5",
            "--priority-floor",
            "-5",
        ],
    )
    .await;
    db.sql("select fn_executor_heartbeat('hermes_a')").await;
    db
}

/// Enqueues a job for `hermes_a`; returns its id.
async fn enqueue(db: &Database, key: &str, more: &[&str]) -> String {
    let arguments = ["jobs", "enqueue", "mark", key, "--executor", "Hermes", "--json"];
    let said = json_of(db, &[&arguments[..], more].concat()).await;
    said["id"].as_str().expect("an id").to_owned()
}

/// Claims the one job that is ready, and fails it for good.
async fn reject(db: &Database) {
    db.sql("select fn_job_start(array_agg(job_id), array_agg(token)) from fn_job_claim('hermes_a', 1)").await;
    db.sql("select fn_job_fail(j.id, c.token, 'no such draft', false) from job_claim c, unnest(c.job_ids) j (id) \
            join job_queue q on q.id = j.id where q.status = 'in_progress'")
        .await;
}

#[tokio::test]
async fn a_job_is_enqueued_once_listed_and_shown_with_its_history() {
    let db = queue().await;
    let id = enqueue(
        &db,
        "verify:10",
        &[
            "--domain",
            "iu",
            "--payload-ref",
            "iu://draft/10",
            "--payload",
            r#"{"revision": 3}"#,
            "--priority",
            "-2",
            "--actor",
            "user:an",
        ],
    )
    .await;
    let again = done(&db.url, &["jobs", "enqueue", "mark", "verify:10", "--executor", "Hermes"]).await;
    assert!(again.contains(&format!("taken by job {id}; nothing was changed")), "{again}");
    let after =
        enqueue(&db, "verify:11", &["--after", "verify:10", "--run-at", "2026-01-01T00:00:00+07:00"]).await;

    let list = json_of(&db, &["jobs", "list", "--json"]).await;
    let listed: Vec<_> =
        list.as_array().expect("a list").iter().map(|job| job["key"].as_str().expect("a key")).collect();
    assert_eq!(listed, ["verify:11", "verify:10"], "the newest first");
    assert_eq!(
        json_of(&db, &["jobs", "list", "--domain", "iu", "--status", "queued", "--json"])
            .await
            .as_array()
            .map(Vec::len),
        Some(1)
    );
    assert!(done(&db.url, &["jobs", "list", "--status", "failed"]).await.contains("no jobs match"));

    reject(&db).await;
    let shown = json_of(&db, &["jobs", "show", "verify:10", "--json"]).await;
    assert_eq!(
        (&shown["job"]["status"], &shown["job"]["priority"]),
        (&"dead_letter".into(), &(-2).into()),
        "{shown}"
    );
    let history: Vec<_> = shown["history"]
        .as_array()
        .expect("a history")
        .iter()
        .map(|t| t["to"].as_str().expect("a state"))
        .collect();
    assert_eq!(history, ["queued", "leased", "in_progress", "failed", "dead_letter"]);
    assert_eq!(
        (&shown["history"][0]["from"], &shown["history"][0]["actor"]),
        (&Value::Null, &"user:an".into())
    );
    assert_eq!(
        (&shown["history"][2]["executor"], &shown["history"][3]["reason"]),
        (&"hermes_a".into(), &"no such draft".into())
    );
    assert!(shown["dead_letter"].is_string());
    let text = done(&db.url, &["jobs", "show", &id]).await;
    for line in ["leased -> in_progress", "iu://draft/10", "no such draft", "dead letter"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let waiting = done(&db.url, &["jobs", "show", &after]).await;
    assert!(waiting.contains(&format!("waits for        {id} verify:10 dead_letter")), "{waiting}");
}

#[tokio::test]
async fn jobs_are_cancelled_and_redriven_by_id_or_key_with_an_answer_each() {
    let db = queue().await;
    let id = enqueue(&db, "a", &[]).await;
    reject(&db).await;
    enqueue(&db, "b", &["--run-at", "2099-01-01"]).await;
    let dry = done(&db.url, &["jobs", "redrive", "--all", "--dry-run"]).await;
    assert!(dry.contains("1 jobs would be queued again"), "{dry}");
    assert_eq!(
        json_of(&db, &["jobs", "redrive", "--all", "--kind", "other", "--json"]).await,
        serde_json::json!([])
    );
    let redriven = json_of(&db, &["jobs", "redrive", "--all", "--actor", "user:an", "--json"]).await;
    assert_eq!((&redriven[0]["id"], &redriven[0]["outcome"]), (&id.as_str().into(), &"done".into()));
    let again = cli(&db.url, &["jobs", "redrive", "a", "--json"]).await;
    assert_eq!(again.code, 1);
    assert!(again.out.contains("the job is queued") && again.out.contains("refused"), "{}", again.out);
    let last =
        "select to_status || ' ' || actor_ref || ' ' || reason from job_transition order by at desc limit 1";
    assert_eq!(db.text(last).await, "queued user:an redriven");

    let cancelled = done(&db.url, &["jobs", "cancel", "a", "b", "--reason", "not needed"]).await;
    assert_eq!(cancelled.lines().count(), 2, "{cancelled}");
    assert_eq!(
        db.texts("select status from job_queue order by idempotency_key").await,
        ["cancelled", "cancelled"]
    );
    let twice = cli(&db.url, &["jobs", "cancel", "a", "--reason", "again"]).await;
    assert!(twice.code == 1 && twice.out.contains("is not cancelled: the job is cancelled"), "{}", twice.out);
    // All or none are looked up: a name that is wrong cancels nothing.
    enqueue(&db, "c", &[]).await;
    let wrong = cli(&db.url, &["jobs", "cancel", "c", "d", "--reason", "x"]).await;
    assert!(wrong.code == 1 && wrong.err.starts_with("error: GH1805: there is no job d"), "{}", wrong.err);
    assert_eq!(db.text("select status from job_queue where idempotency_key = 'c'").await, "queued");
}

#[tokio::test]
async fn stats_and_executors_say_what_waits_and_who_lives() {
    let db = queue().await;
    enqueue(&db, "a", &[]).await;
    enqueue(&db, "b", &["--run-at", "2099-01-01"]).await;
    let stats = json_of(&db, &["jobs", "stats", "--json"]).await;
    assert_eq!((&stats["queue"]["ready"], &stats["queue"]["deferred"]), (&1.into(), &1.into()), "{stats}");
    assert_eq!((&stats["lanes"][0]["job_kind"], &stats["lanes"][0]["ready"]), (&"mark".into(), &1.into()));
    assert!(done(&db.url, &["jobs", "stats"]).await.contains("executors alive    1"));
    done(&db.url, &["executors", "register", "codex_a", "--kind", "Codex"]).await;
    let listed = json_of(&db, &["executors", "list", "--json"]).await;
    assert_eq!(
        (&listed[0]["executor"], &listed[0]["state"], &listed[0]["max_parallel"]),
        (&"codex_a".into(), &"never_seen".into(), &Value::Null)
    );
    assert_eq!(
        (&listed[1]["executor"], &listed[1]["state"], &listed[1]["max_parallel"]),
        (&"hermes_a".into(), &"alive".into(), &5.into())
    );
    let disabled = json_of(&db, &["executors", "disable", "hermes_a", "--json"]).await;
    assert_eq!(disabled["changed"], true);
    assert!(done(&db.url, &["executors", "disable", "hermes_a"]).await.contains("was disabled already"));
    assert!(done(&db.url, &["executors", "list"]).await.contains("disabled"));
    // Registered again, it may claim again.
    done(&db.url, &["executors", "register", "hermes_a", "--kind", "Hermes", "--job-kind", "mark"]).await;
    assert_eq!(json_of(&db, &["executors", "list", "--json"]).await.as_array().map(Vec::len), Some(3));
}

#[tokio::test]
async fn what_is_wrong_is_refused_in_one_line_with_its_code() {
    let db = queue().await;
    db.sql(
        "create role jobs_cli_nobody login; create role jobs_cli_observer login in role gov_handoff_observer",
    )
    .await;
    let (nobody, observer) = (db.url_as("jobs_cli_nobody"), db.url_as("jobs_cli_observer"));
    let enqueue = |more: &'static [&'static str]| [&["jobs", "enqueue", "mark", "k"][..], more].concat();
    for (url, arguments, code, said) in [
        (&db.url, vec!["jobs", "show", "nothing"], "GH1805", "there is no job nothing"),
        (&db.url, vec!["jobs", "show", "7e57ed00-0000-4000-8000-000000000002"], "GH1805", "there is no job"),
        (&db.url, vec!["jobs", "list", "--status", "done"], "GH1000", "known are queued, leased"),
        (&db.url, enqueue(&["--executor", "MOT"]), "GH1012", "MOT is not an executor"),
        (&db.url, enqueue(&["--executor", "hermes"]), "GH1012", "known are DOT, Agent, Hermes"),
        (&db.url, enqueue(&["--executor", "Hermes", "--payload", "{"]), "GH1000", "--payload is not JSON"),
        (
            &db.url,
            enqueue(&["--executor", "Hermes", "--payload", "[1]"]),
            "GH1000",
            "--payload is not an object",
        ),
        (&db.url, enqueue(&["--executor", "Hermes", "--payload", r#"{"body": "x"}"#]), "GH1803", "payload"),
        (&db.url, enqueue(&["--executor", "Hermes", "--run-at", "tomorrow"]), "GH1000", "is no time"),
        (
            &db.url,
            enqueue(&["--executor", "Hermes", "--after", "nothing"]),
            "GH1803",
            "depends on a job that does not exist",
        ),
        (
            &db.url,
            enqueue(&["--executor", "Hermes", "--max-attempts", "0"]),
            "GH1803",
            "max_attempts must be 1 to 1000",
        ),
        (&db.url, vec!["executors", "register", "x", "--kind", "MOT"], "GH1012", "MOT is not an executor"),
        (
            &db.url,
            vec!["executors", "register", "svc-mot", "--kind", "Agent"],
            "GH1012",
            "MOT is not an executor",
        ),
        (&db.url, vec!["executors", "register", "a b", "--kind", "Agent"], "GH1000", "neither spaces nor #"),
        (
            &db.url,
            vec!["executors", "register", "x", "--kind", "Agent", "--role", "no_such_role"],
            "GH1803",
            "no role no_such_role",
        ),
        (&db.url, vec!["executors", "disable", "nobody"], "GH1806", "no executor nobody is registered"),
        (&nobody, vec!["jobs", "list"], "GH1300", "permission denied"),
        (&observer, vec!["jobs", "list"], "GH1300", "permission denied"),
        (&observer, vec!["executors", "register", "x", "--kind", "Agent"], "GH1300", "permission denied"),
    ] {
        let ran = cli(url, &arguments).await;
        let first = ran.err.lines().next().unwrap_or_default();
        assert!(
            first.starts_with(&format!("error: {code}: ")) && first.contains(said),
            "{arguments:?}: {}",
            ran.err
        );
        assert_eq!(ran.code, if code.starts_with("GH18") { 1 } else { 2 }, "{arguments:?}");
    }
    assert_eq!(db.number("select count(*) from job_queue").await, 0);
    done(&observer, &["jobs", "stats"]).await;
    done(&observer, &["executors", "list"]).await;
    // Roles belong to the whole server.
    db.sql("drop owned by jobs_cli_nobody, jobs_cli_observer; drop role jobs_cli_nobody, jobs_cli_observer")
        .await;
}

#[tokio::test]
async fn letters_of_jobs_are_decided_about_as_those_of_handoffs() {
    let db = queue().await;
    for key in ["a", "b", "c"] {
        enqueue(&db, key, &[]).await;
        reject(&db).await;
    }
    let listed = json_of(&db, &["dlq", "list", "--json"]).await;
    let letters: Vec<_> = listed
        .as_array()
        .expect("a list")
        .iter()
        .map(|l| l["id"].as_str().expect("an id").to_owned())
        .collect();
    assert_eq!(
        (letters.len(), &listed[0]["worker"], &listed[0]["failure_code"]),
        (3, &"job_queue".into(), &"refused".into())
    );
    let shown = done(&db.url, &["dlq", "show", &letters[0]]).await;
    assert!(shown.contains("no such draft"), "{shown}");
    // Replayed: the same job, with its history, runs again; the others are decided about with a reason and a name.
    let before = db.number("select count(*) from job_transition").await;
    done(&db.url, &["dlq", "replay", "--id", &letters[0], "--actor", "user:an"]).await;
    done(&db.url, &["dlq", "discard", "--id", &letters[1], "--reason", "gone", "--actor", "user:an"]).await;
    done(&db.url, &["dlq", "supersede", "--id", &letters[2], "--reason", "by another", "--actor", "user:an"])
        .await;
    let decided = "select q.status || ' ' || d.resolution || ' ' || (d.event_snapshot #>> '{resolution,by}') \
                     from iu_route_dead_letter d join job_queue q on q.id = d.event_ref order by q.idempotency_key";
    assert_eq!(
        db.texts(decided).await,
        ["queued replayed user:an", "cancelled discarded user:an", "cancelled superseded user:an"]
    );
    assert_eq!(db.number("select count(*) from job_transition").await, before + 3, "the history goes on");
    assert_eq!(json_of(&db, &["dlq", "list", "--json"]).await, serde_json::json!([]));
    // Failed again, the job has its one letter again.
    reject(&db).await;
    let again = json_of(&db, &["dlq", "list", "--json"]).await;
    assert_eq!(
        (again[0]["id"].as_str(), &again[0]["attempts"]),
        (Some(letters[0].as_str()), &2.into()),
        "{again}"
    );
}

#[tokio::test]
async fn a_graph_is_enqueued_whole_or_not_at_all() {
    let db = queue().await;
    let item =
        |key: &str, more: &str| format!(r#"{{"kind": "k", "key": "{key}", "executor": "Hermes"{more}}}"#);
    let file = |items: &[String]| TemporaryFile::new("graph.json", &format!("[{}]", items.join(",\n")));
    let good = file(&[item("a", ""), item("b", r#", "depends_on": ["a"]"#)]);
    let told = json_of(&db, &["jobs", "enqueue", "--graph", good.path(), "--json"]).await;
    assert_eq!(
        (&told[0]["key"], &told[0]["new"], &told[1]["new"]),
        (&"a".into(), &true.into(), &true.into())
    );
    let again = done(&db.url, &["jobs", "enqueue", "--graph", good.path()]).await;
    assert_eq!(again.matches("was there already").count(), 2, "{again}");
    assert_eq!(db.number("select count(*) from job_dependency").await, 1);

    db.sql("create role jobs_cli_producer login in role gov_handoff_producer").await;
    db.sql("select fn_job_producer_grant('jobs_cli_producer', 'DOT', true, 'op')").await;
    let producer = db.url_as("jobs_cli_producer");
    let mixed = file(&[item("c", "").replace("Hermes", "DOT"), item("d", "")]);
    let contents = file(&[item("c", ""), item("d", r#", "payload": {"body": "x"}"#)]);
    let cycle = file(&[item("c", r#", "depends_on": ["d"]"#), item("d", r#", "depends_on": ["c"]"#)]);
    let mot = file(&[item("c", "").replace("Hermes", "mot")]);
    let object = TemporaryFile::new("graph.json", "{}");
    for (url, file, code, said) in [
        (&producer, &mixed, "GH1300", "d: not granted"),
        (
            &db.url,
            &contents,
            "GH1803",
            "nothing was enqueued. c: another job of the graph was refused; d: payload",
        ),
        (&db.url, &cycle, "GH1803", "in a cycle"),
        (&db.url, &mot, "GH1012", "job c: MOT is not an executor"),
        (&db.url, &object, "GH1000", "expected an array of jobs"),
    ] {
        let ran = cli(url, &["jobs", "enqueue", "--graph", file.path()]).await;
        assert!(ran.err.starts_with(&format!("error: {code}: ")) && ran.err.contains(said), "{}", ran.err);
    }
    assert_eq!(db.number("select count(*) from job_queue").await, 2);
    // One job: the grant decides, and not the words.
    let one = ["jobs", "enqueue", "k", "e", "--executor", "Hermes"];
    assert!(cli(&producer, &one).await.err.starts_with("error: GH1300: "));
    db.sql("drop owned by jobs_cli_producer; drop role jobs_cli_producer").await;
}

#[tokio::test]
async fn a_list_looks_at_a_bounded_number_of_jobs() {
    let db = queue().await;
    let keys = "select fn_job_enqueue_many((select jsonb_agg(jsonb_build_object('kind', 'k', 'key', 'j' || g, 'executor', 'Hermes')) \
                from generate_series(1, 3000) g))";
    enqueue(&db, "old", &[]).await;
    reject(&db).await;
    db.sql(keys).await;
    db.sql("analyze job_queue, job_ready, iu_route_dead_letter").await;
    // The dead one is the oldest by far, and is found.
    let dead = json_of(&db, &["jobs", "list", "--status", "dead_letter", "--json"]).await;
    assert_eq!((dead.as_array().map(Vec::len), &dead[0]["key"]), (Some(1), &"old".into()));
    let list = include_str!("../src/store/sql/job_queue/list.sql");
    db.sql(&format!("prepare listed (text, text, text, text, bigint, bigint) as {list}")).await;
    for searched in ["'dead_letter', null", "'succeeded', null", "'queued', null", "null, 'no such kind'"] {
        let explain =
            format!("explain (analyze, format json) execute listed({searched}, null, null, 10, 100)");
        let said = db.client.simple_query(&explain).await.unwrap_or_else(|e| panic!("{explain}: {e:?}"));
        let plan = said.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        let plan = plan.expect("a plan");
        let plan: Value = serde_json::from_str(plan).expect("JSON");
        let read = rows_of_job_queue(&plan[0]["Plan"]);
        // The newest hundred, and a look by id at each of those and of a hundred from a narrow table.
        assert!((100.0..=300.0).contains(&read), "{searched}: {read} rows: {plan}");
    }
}

/// How many rows of job_queue the nodes of a plan read, those that a filter removed as well.
fn rows_of_job_queue(node: &Value) -> f64 {
    let number = |name: &str| node[name].as_f64().unwrap_or_default();
    let own = if node["Relation Name"] == "job_queue" {
        (number("Actual Rows") + number("Rows Removed by Filter")) * number("Actual Loops")
    } else {
        0.0
    };
    own + node["Plans"].as_array().into_iter().flatten().map(rows_of_job_queue).sum::<f64>()
}
