//! TLS and the other conventions of libpq on a real server: whoever asks for verification gets it, by queries and by the stream
//! alike, also of a server named by its address; client certificates, password files, services and several hosts work.

use gov_handoff::embedded::Cluster;
use tokio_postgres::Client;

use crate::support::{
    Daemon, TemporaryFile, cli, cli_with, connect, done, options, private_cluster, text, until_true,
};

/// A server's certificate for 127.0.0.1 and nothing else, until 2120, and the root that signed it. The key is worth nothing
/// elsewhere: the root's own was thrown away, and nobody trusts that root.
const CERTIFICATE: &str = include_str!("support/tls/server.pem");
const KEY: &str = include_str!("support/tls/server.key");
const ROOT: &str = include_str!("support/tls/root.pem");
/// A root that signed nothing.
const OTHER: &str = include_str!("support/tls/other.pem");
/// The certificate of a client called gov_handoff_client, made in the same way, with its key and its root.
const CLIENT: &str = include_str!("support/tls/client.pem");
const CLIENT_KEY: &str = include_str!("support/tls/client.key");
const CLIENT_ROOT: &str = include_str!("support/tls/client-root.pem");

/// Written by the server itself: a key has to belong to whoever it runs as.
fn place(name: &str, text: &str) -> String {
    format!(
        "copy (select regexp_split_to_table('{}', '\n')) to program 'umask 077; cat > {name}'",
        text.trim_end().replace('\'', "''")
    )
}

/// A server that speaks TLS, with an empty database. The client is connected without it.
async fn secured() -> (Cluster, Client, String) {
    let cluster = private_cluster(options()).await;
    cluster.create_database("tls", None).await.expect("a database");
    let plain = cluster.url("tls");
    let client = connect(&plain).await;
    for statement in [
        &*place("server.crt", CERTIFICATE),
        &place("server.key", KEY),
        &place("clients.crt", CLIENT_ROOT),
        "alter system set ssl = on",
        "alter system set ssl_ca_file = 'clients.crt'",
    ] {
        client.batch_execute(statement).await.expect(statement);
    }
    reload(&client).await;
    until_true(&client, "select current_setting('ssl') = 'on'").await;
    (cluster, client, plain)
}

/// The server tells its sessions after it has read the settings itself, and takes nobody in meanwhile.
async fn reload(client: &Client) {
    client.batch_execute("select pg_reload_conf()").await.expect("reload");
}

/// Who may come in how. The superuser of the tests always may, without encryption.
async fn admit(client: &Client, lines: &str) {
    let file = format!(
        "local all all trust\nhostnossl all postgres 127.0.0.1/32 trust\nhostnossl replication postgres 127.0.0.1/32 trust\n{lines}"
    );
    client.batch_execute(&place("pg_hba.conf", &file)).await.expect("a file");
    reload(client).await;
    let wanted = lines.lines().count() + 3;
    until_true(
        client,
        &format!("select count(*) = {wanted} and bool_and(error is null) from pg_hba_file_rules"),
    )
    .await;
}

const ENCRYPTED: &str = "select bool_and(s.ssl)::text from pg_stat_ssl s join pg_stat_activity a using (pid)
      where a.application_name like 'gov-handoff%' having count(*) > 1
        and bool_or(a.application_name like 'gov-handoff stream %')";

#[tokio::test(flavor = "multi_thread")]
async fn a_server_named_by_its_address_is_verified_by_queries_and_stream() {
    let (_cluster, client, plain) = secured().await;
    let (root, other) = (TemporaryFile::new("root.pem", ROOT), TemporaryFile::new("other.pem", OTHER));
    let asked = |host: &str, mode: &str, root: &TemporaryFile| {
        let url = plain.replacen("127.0.0.1", host, 1);
        assert!(url.contains(host), "{url}");
        format!("{url}?sslmode={mode}&sslrootcert={}", root.path())
    };
    let url = asked("127.0.0.1", "verify-full", &root);
    done(&url, &["migrate"]).await;
    let mut daemon = Daemon::start(&url, &["--mode", "stream"], &[]);
    daemon.captures(&plain, "stream").await;
    assert_eq!(text(&client, ENCRYPTED).await, "true");
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());

    // A root that is named is used, whatever the mode is called; the name counts for verify-full alone, as in libpq.
    for right in [
        asked("127.0.0.1", "require", &root),
        asked("localhost", "require", &root),
        asked("localhost", "verify-ca", &root),
    ] {
        done(&right, &["migrate", "status"]).await;
    }
    for wrong in [
        asked("127.0.0.1", "require", &other),
        asked("127.0.0.1", "verify-ca", &other),
        asked("127.0.0.1", "verify-full", &other),
        asked("localhost", "verify-full", &root),
    ] {
        let refused = cli(&wrong, &["migrate", "status"]).await;
        assert!(refused.code == 2 && refused.err.contains("certificate"), "{wrong}: {}", refused.err);
    }
    done(&format!("{plain}?sslmode=require"), &["migrate", "status"]).await;
    // The roots of the system are a file too.
    let system = format!("{plain}?sslrootcert=system");
    let arguments = ["migrate", "status"];
    assert_eq!(cli_with(&system, &arguments, &[("SSL_CERT_FILE", root.path())]).await.code, 0);
    let refused = cli_with(&system, &arguments, &[("SSL_CERT_FILE", other.path())]).await;
    assert!(refused.code == 2 && refused.err.contains("certificate"), "{}", refused.err);

    // `verify-ca` streams as well. The client of the stream checks the name too, so with another name the daemon polls and
    // says why.
    for (host, mode, captures) in [("127.0.0.1", "stream", "stream"), ("localhost", "auto", "poll")] {
        let mut daemon = Daemon::start(&asked(host, "verify-ca", &root), &["--mode", mode], &[]);
        daemon.captures(&plain, captures).await;
        let reason = "select count(*) > 0 from v_governance_worker where mode = 'stream' or mode_reason like '%hostaddr%'";
        until_true(&client, reason).await;
        assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_certificate_is_shown_by_queries_and_by_the_stream() {
    let (_cluster, client, plain) = secured().await;
    client.batch_execute("create role gov_handoff_client superuser login replication").await.expect("a role");
    admit(&client, "hostssl all gov_handoff_client 127.0.0.1/32 cert\nhostssl replication gov_handoff_client 127.0.0.1/32 cert").await;
    let (root, certificate) =
        (TemporaryFile::new("root.pem", ROOT), TemporaryFile::new("client.pem", CLIENT));
    let key = TemporaryFile::private("client.key", CLIENT_KEY);
    let open = TemporaryFile::new("open.key", CLIENT_KEY);
    let url = plain.replacen("postgres@", "gov_handoff_client@", 1);
    let asked = |rest: &str| format!("{url}?sslmode=verify-full&sslrootcert={}{rest}", root.path());
    let shown = asked(&format!("&sslcert={}&sslkey={}", certificate.path(), key.path()));
    done(&shown, &["migrate"]).await;
    let mut daemon = Daemon::start(&shown, &["--mode", "stream"], &[]);
    daemon.captures(&plain, "stream").await;
    assert_eq!(text(&client, ENCRYPTED).await, "true");
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());

    let pair = [("PGSSLCERT", certificate.path()), ("PGSSLKEY", key.path())];
    assert_eq!(cli_with(&asked(""), &["migrate", "status"], &pair).await.code, 0, "the variables do as well");
    let without = cli(&asked(""), &["migrate", "status"]).await;
    assert!(without.err.starts_with("error: GH1202: "), "{}", without.err);
    let refused = cli_with(&asked(""), &["migrate", "status"], &[pair[0], ("PGSSLKEY", open.path())]).await;
    assert!(
        refused.err.starts_with("error: GH1006: ") && refused.err.contains("chmod 600"),
        "{}",
        refused.err
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn allow_and_prefer_try_the_other_way_when_the_server_rejects_one() {
    let (_cluster, client, plain) = secured().await;
    client.batch_execute("create role gov_handoff_other superuser login replication").await.expect("a role");
    let url = plain.replacen("postgres@", "gov_handoff_other@", 1);
    done(&plain, &["migrate"]).await;
    for (admits, mode, enters) in [
        ("hostssl", "allow", true),
        ("hostssl", "prefer", true),
        ("hostssl", "disable", false),
        ("hostnossl", "allow", true),
        ("hostnossl", "prefer", true),
        ("hostnossl", "require", false),
    ] {
        admit(&client, &format!("{admits} all gov_handoff_other 127.0.0.1/32 trust\n{admits} replication gov_handoff_other 127.0.0.1/32 trust")).await;
        let asked = format!("{url}?sslmode={mode}");
        let ran = cli(&asked, &["migrate", "status"]).await;
        assert_eq!(ran.code == 0, enters, "{admits} {mode}: {}", ran.err);
        if !enters {
            assert!(ran.err.starts_with("error: GH1202: "), "{}", ran.err);
        }
    }
    // The stream falls back in the same way.
    for (admits, mode, ssl) in [("hostssl", "allow", "true"), ("hostnossl", "prefer", "false")] {
        admit(&client, &format!("{admits} all gov_handoff_other 127.0.0.1/32 trust\n{admits} replication gov_handoff_other 127.0.0.1/32 trust")).await;
        let mut daemon = Daemon::start(&format!("{url}?sslmode={mode}"), &["--mode", "stream"], &[]);
        daemon.captures(&plain, "stream").await;
        let stream = "select s.ssl::text from pg_stat_ssl s join pg_stat_activity a using (pid) where a.application_name like 'gov-handoff stream %' and a.backend_type = 'walsender'";
        assert_eq!(text(&client, stream).await, ssl, "{mode}");
        assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_and_a_password_file_let_the_daemon_in() {
    let (cluster, client, plain) = secured().await;
    client
        .batch_execute("create role gov_handoff_secret superuser login replication password 'hun:ter\\2'")
        .await
        .expect("a role");
    admit(&client, "hostssl all gov_handoff_secret 127.0.0.1/32 scram-sha-256\nhostssl replication gov_handoff_secret 127.0.0.1/32 scram-sha-256").await;
    let service = TemporaryFile::new(
        "service.conf",
        &format!(
            "[ours]\nhost=127.0.0.1,127.0.0.1\nport=1,{}\ndbname=tls\nuser=gov_handoff_secret\nsslmode=require\n",
            cluster.port()
        ),
    );
    let passwords = TemporaryFile::private(
        "pgpass",
        "*:1:*:*:wrong\n127.0.0.1:*:tls:gov_handoff_secret:hun\\:ter\\\\2\n",
    );
    let env = [("PGSERVICEFILE", service.path()), ("PGSERVICE", "ours"), ("PGPASSFILE", passwords.path())];
    let ran = cli_with("", &["migrate"], &env).await;
    assert_eq!(ran.code, 0, "{}", ran.err);
    let more = [("PGAPPNAME", "night shift"), ("PGTARGETSESSIONATTRS", "read-write")];
    let named = [&env[..], &more].concat();
    let mut daemon = Daemon::start("", &["--mode", "stream"], &named);
    daemon.captures(&plain, "stream").await;
    assert_eq!(text(&client, ENCRYPTED).await, "true");
    let names = "select bool_and(application_name like 'gov-handoff %night shift %')::text from pg_stat_activity where usename = 'gov_handoff_secret' having count(*) > 2";
    assert_eq!(text(&client, names).await, "true");
    // A session that is read-only by our own choice is with a server that takes writes all the same.
    assert_eq!(cli_with("", &["metrics"], &named).await.code, 0);
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
    let standby =
        cli_with("", &["status"], &[&env[..], &[("PGTARGETSESSIONATTRS", "standby")]].concat()).await;
    assert!(standby.code == 2 && standby.err.contains("asks for standby"), "{}", standby.err);
    let wrong = cli_with("", &["status"], &[&env[..], &[("PGPASSWORD", "no")]].concat()).await;
    assert!(wrong.err.starts_with("error: GH1201: ") && !wrong.err.contains("hun"), "{}", wrong.err);
}
