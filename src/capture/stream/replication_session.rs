//! The replication stream: a slot read through `pgwire-replication`, and its events as types of our own. The sole
//! importer of that crate.

use crate::config::{Encryption, ServerPlace, Target, Tls};
use crate::core::lsn::Lsn;
use crate::error::{Error, Kind, Result, classify};
use crate::store::connect::{application, is_rejected, session_at};
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
/// The protocol counts time from the year 2000 on.
const EPOCH: Duration = Duration::from_secs(946_684_800);
/// No address is that large. A row that is larger cannot be handed off by any path.
const MAX_MESSAGE: usize = 64 << 20;

/// An event of the stream.
#[derive(Debug)]
pub enum Event {
    Begin {
        /// When it was committed at the server, since the Unix epoch.
        committed: Duration,
    },
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

/// What a stream is read from, and from where on.
pub struct From<'a> {
    pub slot: &'a str,
    pub publication: &'a str,
    pub durable: Lsn,
    /// The server's major version.
    pub major: u32,
}

/// A session that is authenticated but does not stream yet, so that positions can be compared first.
pub struct ReplicationSession {
    client: Client,
    pub server: Server,
}

impl ReplicationSession {
    /// Connects with the position that is durable on our side, because the crate acknowledges that position first.
    /// Tries the ways of encryption that the mode allows, in turn.
    ///
    /// `place` is one of the places that `target` names.
    pub async fn open(target: &Target, place: &ServerPlace, from: &From<'_>) -> Result<Self> {
        let attempts = if place.is_socket() { &[Encryption::Plain] } else { target.secured.tls.attempts() };
        let (last, before) = attempts.split_last().unwrap_or((&Encryption::Encrypted, &[]));
        for encryption in before {
            match Self::attempt(target, place, *encryption, from).await {
                Err(e) if is_rejected(&e) => {}
                opened => return opened,
            }
        }
        Self::attempt(target, place, *last, from).await
    }

    async fn attempt(
        target: &Target,
        place: &ServerPlace,
        encryption: Encryption,
        from: &From<'_>,
    ) -> Result<Self> {
        let ours = format!("{} -c wal_sender_timeout={SENDER_TIMEOUT}", session_at(from.major));
        let options = target.options().map_or_else(|| ours.clone(), |theirs| format!("{theirs} {ours}"));
        let host = place.address.map_or_else(|| place.host.clone(), |address| address.to_string());
        let password = place.password.clone().unwrap_or_default();
        let mut config = ReplicationConfig::new(
            host,
            target.user(),
            password,
            target.database(),
            from.slot,
            from.publication,
        )
        .with_port(place.port)
        .with_tls(tls(target, &place.host, encryption))
        .with_start_lsn(pgwire_replication::Lsn::from_u64(from.durable.into()))
        .with_status_interval(STATUS_INTERVAL)
        .with_wakeup_interval(SILENCE)
        .with_buffer_size(BUFFERED_EVENTS)
        .with_options(options);
        config.max_message_size = MAX_MESSAGE;
        config.application_name = Some(application("gov-handoff stream", target));
        let mut client = Client(ReplicationClient::connect_gated(config).await.map_err(explain)?);
        let patience = target.connect_timeout.unwrap_or(ANSWER);
        let identity = answer_within(patience, client.0.identify_system()).await?;
        let server = Server {
            system_identifier: identity.system_id,
            timeline: identity.timeline.try_into().unwrap_or(i32::MAX),
        };
        let mut session = Self { client, server };
        let granted = session.ask(&session_settings::question(&ours)).await?;
        session_settings::compare(&ours, &granted).map_err(|e| e.context(format!("replication: {place}")))?;
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
    answer_within(ANSWER, asked).await
}

async fn answer_within<T>(
    patience: Duration,
    asked: impl Future<Output = pgwire_replication::Result<T>>,
) -> Result<T> {
    match tokio::time::timeout(patience, asked).await {
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
        Some(ReplicationEvent::Begin { commit_time_micros, .. }) => {
            let micros = u64::try_from(commit_time_micros).unwrap_or(0);
            Ok(Event::Begin { committed: EPOCH + Duration::from_micros(micros) })
        }
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

fn tls(target: &Target, host: &str, encryption: Encryption) -> TlsConfig {
    let mode = match (encryption, target.secured.tls) {
        (Encryption::Plain, _) => SslMode::Disable,
        (Encryption::IfOffered, _) => SslMode::Prefer,
        (Encryption::Encrypted, Tls::VerifyFull) => SslMode::VerifyFull,
        (Encryption::Encrypted, Tls::VerifyCa) => SslMode::VerifyCa,
        (Encryption::Encrypted, _) => SslMode::Require,
    };
    let (certificate, key) = target.secured.client.clone().unzip();
    // The crate verifies an IP address only if it is given here too. For a host name this is what the crate would use
    // anyway.
    TlsConfig {
        mode,
        ca_pem_path: target.secured.root_cert.clone(),
        sni_hostname: (mode != SslMode::Disable).then(|| host.to_owned()),
        client_cert_pem_path: certificate,
        client_key_pem_path: key,
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
    // The crate checks the name for `verify-ca` too.
    let advice = if text.contains("not valid for name") {
        "; give a host that the certificate names, and where it is as hostaddr"
    } else {
        ""
    };
    let mut error = Error::new(kind, format!("replication: {text}{advice}"));
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
        tls(&target, &target.places()[0].host, *target.secured.tls.attempts().last().unwrap())
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
        let url = format!("postgres://u@{}/d?sslmode=disable", silent.local_addr().unwrap());
        let target = Target::parse(Some(&url), Given::Above, &HashMap::new()).unwrap();
        let place = target.places().remove(0);
        let from = From { slot: "s", publication: "p", durable: Lsn::ZERO, major: 16 };
        let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        let before = tasks();
        let opening = ReplicationSession::open(&target, &place, &from);
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
            let tls = asked(&format!("postgres://u@{host}/d?sslmode=verify-full&sslrootcert=/ca.pem"));
            assert!(matches!(tls.mode, SslMode::VerifyFull));
            assert_eq!(tls.sni_hostname.as_deref(), Some(host));
        }
    }
}
