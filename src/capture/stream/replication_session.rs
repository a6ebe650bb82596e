//! The replication stream: a slot read through `pgwire-replication`, and its events as types of our own. The sole
//! importer of that crate.

use crate::config::{Target, Tls};
use crate::core::lsn::Lsn;
use crate::error::{Error, Kind, Result, classify};
use crate::instance;
use crate::store::connect::session_at;
use crate::store::session_settings;
use bytes::Bytes;
use futures_util::FutureExt;
use pgwire_replication::{
    PgWireError, ReplicationClient, ReplicationConfig, ReplicationEvent, SslMode, TlsConfig,
};
use std::time::Duration;
use tokio_postgres::error::SqlState;

/// In milliseconds. The server ends a session that it has not heard from for this long. At half of it, the server
/// asks an idle client for a sign of life.
const SENDER_TIMEOUT: u32 = 20_000;
/// No message for this long, although the server would have asked for a sign of life: the connection is dead.
const SILENCE: Duration = Duration::from_secs(30);
/// How long the server may take to answer a question before streaming starts.
const ANSWER: Duration = Duration::from_secs(10);
/// How soon an acknowledgement is sent. Also how much the server may send again after a crash of the daemon.
const STATUS_INTERVAL: Duration = Duration::from_millis(500);
/// Events that may wait in memory between the crate's task and ours; the rest waits in the socket. The crate limits
/// them by number only, and each may be a row of megabytes. So the number is as small as possible: the begin, the row
/// and the end of a transaction of one row pass without waiting. The next batch, which forms during a commit, is
/// limited by bytes.
const BUFFERED_EVENTS: usize = 3;
/// No address is that large. A row that is larger cannot be handed off by any path.
const MAX_MESSAGE: usize = 64 << 20;

/// An event of the stream.
#[derive(Debug)]
pub enum Event {
    Begin,
    /// A pgoutput message other than begin and commit.
    Change(Bytes),
    Commit {
        end: Lsn,
    },
    /// The server is at `wal_end` and has nothing for us before that position.
    Idle {
        wal_end: Lsn,
        /// The server waits for an answer, as it does before it shuts down.
        asked: bool,
    },
    /// A logical message. It carries no row, but it shows that the stream is alive.
    Message,
}

/// The server at the other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    pub system_identifier: String,
    pub timeline: i32,
}

pub struct Stream {
    client: Client,
}

/// The crate's client. Dropping it only asks the crate's task to end, and the task does not end while it waits for
/// the network. It would keep the connection, and with it the slot. So dropping this aborts the task.
struct Client(ReplicationClient);

impl Drop for Client {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A session that is authenticated but does not stream yet, so that positions can be compared first.
pub struct ReplicationSession {
    client: Client,
    pub server: Server,
}

impl ReplicationSession {
    /// Connects with the position that is durable on our side, because the crate acknowledges that position first.
    ///
    /// `host` and `port` are one of the places that `target` names.
    pub async fn open(
        target: &Target,
        (host, port): &(String, u16),
        slot: &str,
        publication: &str,
        durable: Lsn,
        major: u32,
    ) -> Result<Self> {
        let options = format!("{} -c wal_sender_timeout={SENDER_TIMEOUT}", session_at(major));
        let mut config = ReplicationConfig::new(
            host,
            target.user(),
            target.password(),
            target.database(),
            slot,
            publication,
        )
        .with_port(*port)
        .with_tls(tls(target, host))
        .with_start_lsn(pgwire_replication::Lsn::from_u64(durable.into()))
        .with_status_interval(STATUS_INTERVAL)
        .with_wakeup_interval(SILENCE)
        .with_buffer_size(BUFFERED_EVENTS)
        .with_options(options.clone());
        config.max_message_size = MAX_MESSAGE;
        config.application_name = Some(instance::application("gov-handoff stream"));
        let mut client = Client(ReplicationClient::connect_gated(config).await.map_err(explain)?);
        let identity = answer(client.0.identify_system()).await?;
        let server = Server {
            system_identifier: identity.system_id,
            timeline: identity.timeline.try_into().unwrap_or(i32::MAX),
        };
        let mut session = Self { client, server };
        let granted = session.ask(&session_settings::question(&options)).await?;
        session_settings::compare(&options, &granted)
            .map_err(|e| e.context(format!("replication: {host}:{port}")))?;
        Ok(session)
    }

    /// The single value that the server returns for a query.
    pub async fn ask(&mut self, sql: &str) -> Result<String> {
        let rows = answer(self.client.0.simple_query(sql)).await?;
        let value = rows.into_iter().next().and_then(|row| row.into_iter().next()).flatten();
        Ok(value.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default())
    }

    pub async fn start(mut self) -> Result<Stream> {
        self.client.0.start().await.map_err(explain)?;
        answer(self.client.0.wait_started()).await?;
        Ok(Stream { client: self.client })
    }
}

/// Waits for an answer before streaming starts, but not indefinitely.
async fn answer<T>(asked: impl Future<Output = pgwire_replication::Result<T>>) -> Result<T> {
    match tokio::time::timeout(ANSWER, asked).await {
        Ok(answer) => answer.map_err(explain),
        Err(_) => Err(Error::new(Kind::Connection, "the server did not answer the replication connection")),
    }
}

impl Stream {
    /// Waits for the next event, but not longer than a live server can be silent. Cancel safe.
    pub async fn next(&mut self) -> Result<Event> {
        match tokio::time::timeout(SILENCE, self.client.0.recv()).await {
            Ok(event) => translate(event),
            Err(_) => Err(Error::new(Kind::Connection, "the replication connection went silent")),
        }
    }

    /// An event that has arrived already; does not wait.
    pub fn next_now(&mut self) -> Option<Result<Event>> {
        self.client.0.recv().now_or_never().map(translate)
    }

    /// Tells the server that everything up to `lsn` is durable on our side. Call it only after the commit that made
    /// it durable: from then on the server may remove the log.
    pub fn acknowledge(&self, lsn: Lsn) {
        self.client.0.update_applied_lsn(pgwire_replication::Lsn::from_u64(lsn.into()));
    }

    /// Ends the session. The crate sends no last status by itself, so this waits until the last acknowledgement was
    /// sent.
    pub async fn close(mut self, acknowledged: Lsn, patience: Duration) {
        let metrics = self.client.0.metrics();
        let sent = async {
            while Lsn::from(metrics.last_applied_lsn().as_u64()) < acknowledged && self.client.0.is_running()
            {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let _ = tokio::time::timeout(patience, sent).await;
        let _ = tokio::time::timeout(patience, self.client.0.shutdown()).await;
    }
}

fn translate(event: pgwire_replication::Result<Option<ReplicationEvent>>) -> Result<Event> {
    match event.map_err(explain)? {
        Some(ReplicationEvent::Begin { .. }) => Ok(Event::Begin),
        Some(ReplicationEvent::XLogData { data, .. }) => Ok(Event::Change(data)),
        Some(ReplicationEvent::Commit { end_lsn, .. }) => Ok(Event::Commit { end: end_lsn.as_u64().into() }),
        Some(ReplicationEvent::KeepAlive { wal_end, reply_requested, .. }) => {
            Ok(Event::Idle { wal_end: wal_end.as_u64().into(), asked: reply_requested })
        }
        Some(ReplicationEvent::Message { .. }) => Ok(Event::Message),
        Some(ReplicationEvent::StoppedAt { .. }) | None => {
            Err(Error::new(Kind::Connection, "the server ended the replication stream"))
        }
    }
}

fn tls(target: &Target, host: &str) -> TlsConfig {
    let mode = match target.tls {
        _ if host.starts_with('/') => SslMode::Disable,
        Tls::Disable => SslMode::Disable,
        Tls::Prefer => SslMode::Prefer,
        Tls::Require => SslMode::Require,
        Tls::VerifyFull => SslMode::VerifyFull,
    };
    // The crate verifies an IP address only if it is given here too. For a host name this is what the crate would use
    // anyway.
    TlsConfig {
        mode,
        ca_pem_path: target.root_cert.clone(),
        sni_hostname: (mode != SslMode::Disable).then(|| host.to_owned()),
        ..TlsConfig::default()
    }
}

/// The crate puts the SQLSTATE of a server error at the end of its text, `(SQLSTATE xxxxx)`, and nowhere else. Only
/// the SQLSTATE decides what happens next, never the words before it.
fn state(e: &PgWireError) -> Option<String> {
    let (PgWireError::Server(text) | PgWireError::Auth(text)) = e else { return None };
    let (_, state) = text.strip_suffix(')')?.rsplit_once("(SQLSTATE ")?;
    (state.len() == 5).then(|| state.to_owned())
}

fn explain(e: PgWireError) -> Error {
    let (text, state) = (e.to_string(), state(&e));
    let kind = match (&state, &e) {
        (Some(code), _) => match code.as_str() {
            // No such slot, or no such publication: waiting does not bring either back.
            "42704" => Kind::Replication,
            // The slot is in use: the predecessor's walsender may need its timeout to notice that its client is gone.
            "55006" => Kind::Transient,
            // "can no longer get changes", wrong plugin, wal_level.
            "55000" => Kind::Replication,
            _ => classify(&SqlState::from_code(code)),
        },
        (None, PgWireError::Auth(_)) => Kind::Authentication,
        (None, PgWireError::MessageTooLarge { .. }) => Kind::Replication,
        (None, _) => Kind::Connection,
    };
    let mut error = Error::new(kind, format!("replication: {text}"));
    error.code = state;
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Given;
    use std::collections::HashMap;

    fn asked(url: &str) -> TlsConfig {
        let target = Target::parse(Some(url), Given::Above, &HashMap::new()).unwrap();
        tls(&target, &target.host())
    }

    #[test]
    fn the_state_decides_and_not_the_words() {
        let server = |text: &str| explain(PgWireError::Server(text.to_owned()));
        let absent = server("publication \"p\" does not exist (SQLSTATE 42704)");
        assert_eq!((absent.kind, absent.code.as_deref()), (Kind::Replication, Some("42704")));
        assert_eq!(server("slot is active (SQLSTATE 55006)").kind, Kind::Transient);
        // In the words of a row, a name or a translation anything may stand.
        let quoted = server("\"(SQLSTATE 42704)\" does not exist (SQLSTATE 57P01)");
        assert_eq!((quoted.kind, quoted.code.as_deref()), (Kind::Transient, Some("57P01")));
        assert_eq!(explain(PgWireError::Protocol("odd (SQLSTATE 42704)".to_owned())).code, None);
    }

    #[tokio::test]
    async fn a_session_that_is_given_up_leaves_no_task_behind() {
        // Takes connections and never says a word.
        let silent = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let place = ("127.0.0.1".to_owned(), silent.local_addr().unwrap().port());
        let url = format!("postgres://u@127.0.0.1:{}/d?sslmode=disable", place.1);
        let target = Target::parse(Some(&url), Given::Above, &HashMap::new()).unwrap();
        let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        let before = tasks();
        let opening = ReplicationSession::open(&target, &place, "s", "p", Lsn::ZERO, 16);
        let accepted = tokio::select! {
            _ = opening => panic!("nobody answered"),
            accepted = silent.accept() => accepted.unwrap(),
        };
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(tasks(), before);
        drop(accepted);
    }

    #[test]
    fn an_address_can_be_verified_like_a_name() {
        for host in ["192.0.2.1", "db.example.com"] {
            let tls = asked(&format!("postgres://u@{host}/d?sslmode=verify-full"));
            assert!(matches!(tls.mode, SslMode::VerifyFull));
            assert_eq!(tls.sni_hostname.as_deref(), Some(host));
        }
        assert_eq!(asked("postgres://u@%2Frun%2Fpg/d?sslmode=verify-full").sni_hostname, None);
    }
}
