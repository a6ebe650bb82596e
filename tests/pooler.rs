//! A pooler between us and the server may drop what our sessions ask for (`options` in the startup message). That is noticed
//! when the session opens, and refused: without `row_security = off` rows would be skipped in silence.

use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;

use crate::support::{Daemon, cli, cluster, connect, done, migrated, text};

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Strips {
    Every,
    /// Only sessions that replicate.
    Replication,
}

const SSL_REQUEST: [u8; 4] = 80_877_103_u32.to_be_bytes();

/// Forwards to the server, but for the startup parameter `options`. Returns its port.
pub async fn pooler(strips: Strips) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("the pooler listens");
    let port = listener.local_addr().expect("an address").port();
    let server = cluster().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(relay(client, server, strips));
        }
    });
    port
}

async fn relay(mut client: TcpStream, server: u16, strips: Strips) -> std::io::Result<()> {
    let mut startup = message(&mut client).await?;
    if startup == SSL_REQUEST {
        client.write_all(b"N").await?;
        startup = message(&mut client).await?;
    }
    let mut server = TcpStream::connect(("127.0.0.1", server)).await?;
    let startup = stripped(&startup, strips);
    let length = u32::try_from(startup.len() + 4).expect("short");
    server.write_all(&[&length.to_be_bytes()[..], &startup].concat()).await?;
    tokio::io::copy_bidirectional(&mut client, &mut server).await.map(|_| ())
}

/// A message without a type: its length, which counts itself, and the rest.
async fn message(client: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut rest = vec![0; client.read_u32().await? as usize - 4];
    client.read_exact(&mut rest).await?;
    Ok(rest)
}

/// The protocol version, then names and values, each ended by a zero byte, then one more.
fn stripped(startup: &[u8], strips: Strips) -> Vec<u8> {
    let (version, parameters) = startup.split_at(4);
    let words: Vec<&[u8]> = parameters.split(|b| *b == 0).collect();
    let pairs: Vec<&[&[u8]]> = words.chunks_exact(2).filter(|pair| !pair[0].is_empty()).collect();
    let replicates = pairs.iter().any(|pair| pair[0] == b"replication");
    let mut out = version.to_vec();
    for pair in pairs.iter().filter(|p| p[0] != b"options" || (strips == Strips::Replication && !replicates))
    {
        for word in pair.iter() {
            out.extend_from_slice(word);
            out.push(0);
        }
    }
    out.push(0);
    out
}

pub fn through(url: &str, port: u16) -> String {
    url.replace(&format!(":{}/", cluster().port()), &format!(":{port}/"))
}

/// As a pooler that gives a client a session of the server for one transaction at a time: here one session for all of them,
/// opened with what the first client asked for.
pub async fn transaction_pooler() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("the pooler listens");
    let port = listener.local_addr().expect("an address").port();
    let server = cluster().port();
    tokio::spawn(async move {
        let mut shared: Option<(Arc<Mutex<TcpStream>>, Vec<u8>)> = None;
        while let Ok((mut client, _)) = listener.accept().await {
            let mut startup = message(&mut client).await?;
            if startup == SSL_REQUEST {
                client.write_all(b"N").await?;
                startup = message(&mut client).await?;
            }
            if shared.is_none() {
                let mut session = TcpStream::connect(("127.0.0.1", server)).await?;
                let length = u32::try_from(startup.len() + 4).expect("short");
                session.write_all(&[&length.to_be_bytes()[..], &startup].concat()).await?;
                let greeting = answer(&mut session).await?;
                shared = Some((Arc::new(Mutex::new(session)), greeting));
            }
            if let Some((session, greeting)) = &shared {
                client.write_all(greeting).await?;
                tokio::spawn(share(client, Arc::clone(session)));
            }
        }
        Ok::<(), std::io::Error>(())
    });
    port
}

/// Passes a client's messages on, and the answer to each request back.
async fn share(mut client: TcpStream, session: Arc<Mutex<TcpStream>>) -> std::io::Result<()> {
    loop {
        let mut request = Vec::new();
        loop {
            let kind = client.read_u8().await?;
            let rest = message(&mut client).await?;
            if kind == b'X' {
                return Ok(());
            }
            let length = u32::try_from(rest.len() + 4).expect("short");
            request.extend([&[kind][..], &length.to_be_bytes(), &rest].concat());
            // A request ends with a query or a sync.
            if kind == b'Q' || kind == b'S' {
                break;
            }
        }
        let mut session = session.lock().await;
        session.write_all(&request).await?;
        let answer = answer(&mut session).await?;
        client.write_all(&answer).await?;
    }
}

/// Everything up to the message that says that the server is ready.
async fn answer(session: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let kind = session.read_u8().await?;
        let rest = message(session).await?;
        let length = u32::try_from(rest.len() + 4).expect("short");
        all.extend([&[kind][..], &length.to_be_bytes(), &rest].concat());
        if kind == b'Z' {
            return Ok(all);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_did_not_get_what_it_asked_for_is_refused_with_what_to_do() {
    let db = migrated().await;
    let url = through(&db.url, pooler(Strips::Every).await);
    assert_ne!(url, db.url);
    assert_eq!(text(&connect(&url).await, "show row_security").await, "on", "the pooler works");
    for command in [&["status"][..], &["run", "--once", "--mode", "poll"], &["audit"]] {
        let ended = cli(&url, command).await;
        assert_eq!(ended.code, 2, "{command:?}: {}", ended.err);
        for said in
            ["row_security is `on`, expected `off`", "search_path is `", "connect to the server itself"]
        {
            assert!(ended.err.contains(said), "{command:?}: {}", ended.err);
        }
    }
    // The server itself, over TCP and over its socket, grants it all.
    for url in [&db.url, &cluster().socket_url(&db.name)] {
        done(url, &["run", "--once", "--mode", "poll"]).await;
        done(url, &["audit"]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_did_not_get_what_it_asked_for_does_not_start_and_the_tables_are_polled() {
    let db = migrated().await;
    let url = through(&db.url, pooler(Strips::Replication).await);
    let daemon = Daemon::start(
        &db.url,
        &["--mode", "auto"],
        &[("GOV_HANDOFF_REPLICATION_URL", &url), ("GOV_HANDOFF_STREAM_RETRY", "200ms")],
    );
    let said = "select exists (select from system_issues where issue_kind = 'handoff_fallback' \
                and detail ->> 'reason' like '%did not get the settings%wal_sender_timeout is%')";
    db.until(said).await;
    daemon.captures(&db.url, "poll").await;
    db.sql("insert into birth_registry (entity_code, collection_name) values ('b', 'laws')").await;
    db.until("select count(*) > 0 from event_pending where entity_table = 'birth_registry'").await;
}
