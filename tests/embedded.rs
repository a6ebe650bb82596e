//! The private PostgreSQL: it is the version asked for, keeps its data over crashes, and leaves nothing behind.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gov_handoff::embedded::{Cluster, ClusterOptions, EmbeddedError, StopMode, Wanted};
use tokio_postgres::NoTls;

use crate::support::{blocking, cluster, connect, fresh_database, options, private_cluster, text};

#[tokio::test]
async fn the_shared_cluster_is_a_logical_source() {
    let database = fresh_database(None).await;
    assert_eq!(database.text("show wal_level").await, "logical");
    assert_eq!(database.text("show timezone").await, "UTC");
    assert_eq!(database.text("select current_database()::text").await, database.name);
    let by_socket = connect(&cluster().socket_url(&database.name)).await;
    let over_tcp = "select (inet_client_addr() is not null)::text";
    assert_eq!(text(&by_socket, over_tcp).await, "false");
    assert_eq!(database.text(over_tcp).await, "true");
}

#[tokio::test]
async fn sixteen_is_the_pinned_build() {
    let cluster = private_cluster(ClusterOptions { version: Wanted::V16, ..options() }).await;
    let client = connect(&cluster.url("postgres")).await;
    assert!(text(&client, "show server_version").await.starts_with("16.13"));
    assert!(cluster.version().starts_with("16.13"));
}

#[tokio::test]
async fn a_database_is_copied_from_a_template_and_dropped_under_its_users() {
    let original = fresh_database(None).await;
    original.client.batch_execute("create table kept as select 7 as n").await.expect("table");
    // Gone for certain, which dropping the client only asks for: a template may have no users.
    let admin = connect(&cluster().url("postgres")).await;
    let end = "select coalesce(bool_and(pg_terminate_backend(pid, 5000)), true)::text \
               from pg_stat_activity where datname = $1";
    admin.query_one(end, &[&original.name]).await.expect("disconnect all");
    let copy = fresh_database(Some(&original.name)).await;
    assert_eq!(copy.text("select n::text from kept").await, "7");
    cluster().drop_database(&copy.name).await.expect("drop while connected");
    assert!(tokio_postgres::connect(&copy.url, NoTls).await.is_err());
}

#[tokio::test]
async fn committed_rows_survive_immediate_stops_and_kills() {
    let cluster = Arc::new(private_cluster(options()).await);
    let client = connect(&cluster.url("postgres")).await;
    client.batch_execute("create table kept (n int); insert into kept values (1)").await.expect("write");
    for mode in [StopMode::Immediate, StopMode::Kill, StopMode::Fast] {
        let before = cluster.pid().expect("running");
        let stopped = Arc::clone(&cluster);
        blocking(move || stopped.stop(mode)).await.expect("stop");
        assert_eq!(cluster.pid(), None, "{mode:?}");
        assert!(tokio_postgres::connect(&cluster.url("postgres"), NoTls).await.is_err(), "{mode:?}");
        let started = Arc::clone(&cluster);
        blocking(move || started.start_again()).await.expect("start again");
        assert_ne!(cluster.pid(), Some(before));
        let client = connect(&cluster.url("postgres")).await;
        assert_eq!(text(&client, "select count(*)::text from kept").await, "1", "{mode:?}");
    }
    let again = Arc::clone(&cluster);
    let twice = blocking(move || again.start_again()).await.expect_err("it already runs");
    assert!(matches!(twice, EmbeddedError::AlreadyRunning));
}

#[tokio::test]
async fn parallel_clusters_do_not_meet_and_leave_no_directory() {
    let (first, second) = tokio::join!(private_cluster(options()), private_cluster(options()));
    assert_ne!(first.port(), second.port());
    let homes = [&first, &second].map(|cluster| cluster.data_dir().parent().expect("home").to_owned());
    assert!(homes.iter().all(|home| home.is_dir()));
    blocking(move || drop(first)).await;
    assert!(!homes[0].exists());
    let client = connect(&second.url("postgres")).await;
    assert_eq!(text(&client, "select 'alive'::text").await, "alive");
    blocking(move || drop(second)).await;
    assert!(!homes[1].exists());
}

#[tokio::test]
async fn a_password_is_asked_for_over_tcp_only() {
    let password = Some("s3cret: @/'%".to_owned());
    let cluster = private_cluster(ClusterOptions { password, ..options() }).await;
    connect(&cluster.url("postgres")).await;
    connect(&cluster.socket_url("postgres")).await;
    let wrong = format!("postgres://postgres:wrong@127.0.0.1:{}/postgres", cluster.port());
    let error = tokio_postgres::connect(&wrong, NoTls).await.err().expect("refused");
    assert_eq!(error.code().map(|code| code.code()), Some("28P01"));
}

#[tokio::test]
async fn a_setting_the_server_refuses_is_told_with_its_log() {
    let settings = vec![("wal_level".to_owned(), "sideways".to_owned())];
    let started = blocking(move || Cluster::start(ClusterOptions { settings, ..options() })).await;
    let error = started.err().expect("refused").to_string();
    assert!(error.contains("sideways"), "{error}");
}

/// Run as a process of its own by the next test, which kills it.
#[test]
#[ignore = "only as the child of another test"]
fn child_with_a_cluster() {
    let cluster = Cluster::start(options()).expect("start");
    println!("home={}", cluster.data_dir().parent().expect("home").display());
    println!("pid={}", cluster.pid().expect("pid"));
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn a_killed_owner_leaves_neither_server_nor_directory() {
    let mut child = Command::new(std::env::current_exe().expect("own path"))
        .args(["--ignored", "--exact", "--nocapture", "embedded::child_with_a_cluster"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("spawn");
    let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().expect("stdout")));
    let mut home = None;
    for line in lines.map_while(Result::ok) {
        if let Some((_, path)) = line.split_once("home=") {
            home = Some(std::path::PathBuf::from(path));
        }
        if line.starts_with("pid=") {
            break;
        }
    }
    let home = home.expect("the child names its home");
    assert!(home.join("data/postmaster.pid").is_file());
    child.kill().expect("kill");
    child.wait().expect("reap");
    let deadline = Instant::now() + Duration::from_secs(20);
    // The guard removes the directory after the server is gone, so this one condition covers both.
    while home.exists() {
        assert!(Instant::now() < deadline, "{} is still there", home.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}
