//! TLS: whoever asks for verification gets it, by queries and by the stream alike, also of a server named by its address.

use crate::support::{Daemon, TemporaryFile, cli, connect, done, options, private_cluster, text, until_true};

/// A server's certificate for 127.0.0.1 and nothing else, until 2120, and the root that signed it. The key is worth nothing
/// elsewhere: the root's own was thrown away, and nobody trusts that root.
const CERTIFICATE: &str = include_str!("support/tls/server.pem");
const KEY: &str = include_str!("support/tls/server.key");
const ROOT: &str = include_str!("support/tls/root.pem");
/// A root that signed nothing.
const OTHER: &str = include_str!("support/tls/other.pem");

/// Written by the server itself: a key has to belong to whoever it runs as.
fn place(name: &str, pem: &str) -> String {
    format!(
        "copy (select regexp_split_to_table('{}', '\n')) to program 'umask 077; cat > {name}'",
        pem.trim_end()
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_named_by_its_address_is_verified_by_queries_and_stream() {
    let cluster = private_cluster(options()).await;
    cluster.create_database("tls", None).await.expect("a database");
    let plain = cluster.url("tls");
    let client = connect(&plain).await;
    for statement in
        [&*place("server.crt", CERTIFICATE), &place("server.key", KEY), "alter system set ssl = on"]
    {
        client.batch_execute(statement).await.expect(statement);
    }
    client.batch_execute("select pg_reload_conf()").await.expect("reload");
    // The server tells its sessions after it has read the setting itself, and takes nobody in meanwhile.
    until_true(&client, "select current_setting('ssl') = 'on'").await;
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
    let encrypted = "select bool_and(s.ssl)::text from pg_stat_ssl s join pg_stat_activity a using (pid)
                      where a.application_name like 'gov-handoff%' having count(*) > 1
                        and bool_or(a.application_name like 'gov-handoff stream %')";
    assert_eq!(text(&client, encrypted).await, "true");
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());

    // A root that is named is used, whatever the mode is called; and the name counts.
    done(&asked("127.0.0.1", "require", &root), &["migrate", "status"]).await;
    for wrong in [
        asked("127.0.0.1", "require", &other),
        asked("127.0.0.1", "verify-ca", &other),
        asked("localhost", "verify-full", &root),
        asked("localhost", "require", &root),
    ] {
        let refused = cli(&wrong, &["migrate", "status"]).await;
        assert!(refused.code == 2 && refused.err.contains("certificate"), "{wrong}: {}", refused.err);
    }
    done(&format!("{plain}?sslmode=require"), &["migrate", "status"]).await;
}
