//! `docs/jobs.md`: the executor in shell and the statements are taken from the page and run against a real server.

use std::process::{Child, Command, Stdio};

use crate::support::{TemporaryFile, done, migrated};

fn page() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/jobs.md")).expect("the page")
}

/// The first block of the page that begins with this text.
fn block(begins: &str) -> String {
    let page = page();
    let blocks =
        page.split("```").skip(1).step_by(2).map(|block| block.split_once('\n').map_or("", |(_, text)| text));
    blocks
        .into_iter()
        .find(|block| block.trim_start().starts_with(begins))
        .unwrap_or_else(|| panic!("no block begins with {begins}"))
        .to_owned()
}

/// The shell and all that it started.
struct Shell(Child);

impl Drop for Shell {
    fn drop(&mut self) {
        // The whole group: the shell waits for nothing that it started.
        let group = format!("kill -s KILL -- -{}", self.0.id());
        let _ = Command::new("sh").args(["-c", &group]).stderr(Stdio::null()).status();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn the_executor_in_shell_does_the_jobs_and_says_what_became_of_them() {
    use std::os::unix::process::CommandExt;
    let db = migrated().await;
    done(&db.url, &["executors", "register", "sh_a", "--kind", "Agent", "--all-jobs"]).await;
    for (key, reference) in [("a", "iu://draft/it's 1"), ("b", "iu://draft/2"), ("c", "bad")] {
        let arguments = [
            "jobs",
            "enqueue",
            "k",
            key,
            "--executor",
            "Agent",
            "--payload-ref",
            reference,
            "--max-attempts",
            "1",
        ];
        done(&db.url, &arguments).await;
    }
    let script = TemporaryFile::new("executor.sh", &block("#!/bin/sh"));
    let log = TemporaryFile::new("executor.log", "");
    // The work: it notes its reference and its token, and one job is not to succeed.
    let work = r#"echo "$2 $3" >> "$1"; [ "$2" != bad ] || exit 3"#;
    let mut command = Command::new("sh");
    command.arg(script.path()).args(["sh_a", "sh", "-c", work, "sh"]).arg(log.path());
    command
        .env("DATABASE_URL", &db.url)
        .env("POLL", "0.05")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .process_group(0);
    let _shell = Shell(command.spawn().expect("sh runs"));
    db.until("select count(*) = 3 from job_queue where status in ('succeeded', 'dead_letter')").await;
    let states = "select idempotency_key || ' ' || status || coalesce(' ' || last_error, '') from job_queue order by idempotency_key";
    assert_eq!(db.texts(states).await, ["a succeeded", "b succeeded", "c dead_letter exit code 3"]);
    let noted = std::fs::read_to_string(log.path()).expect("the log");
    let tokens = "select payload_ref || ' ' || t.token from job_queue q join job_transition t on t.job_id = q.id and t.to_status = 'leased' \
                  order by t.token";
    assert_eq!(noted.lines().collect::<Vec<_>>(), db.texts(tokens).await);
}

#[tokio::test]
async fn what_the_page_says_in_sql_is_so() {
    let db = migrated().await;
    db.sql(&block("select fn_job_enqueue(")).await;
    assert_eq!(db.number("select count(*) from job_dependency").await, 1);
    // A fence that a receiver builds from tokens: an older claim writes nothing.
    db.sql("create table mark (job_id uuid primary key, token bigint not null, mark text not null)").await;
    let fence = block("insert into mark");
    let id = uuid::Uuid::from_u128(1);
    for (token, mark) in [(7_i64, "first"), (9, "second"), (8, "late"), (9, "again")] {
        db.client.execute(&fence, &[&id, &token, &mark]).await.expect("the fence is a statement");
    }
    assert_eq!(db.text("select mark from mark").await, "again");
    assert!(block("#!/bin/sh").lines().count() <= 20, "the executor in shell has twenty lines");
}
