//! The replication stream: a slot read through `pgwire-replication`, and its events in our own words. The sole importer
//! of that crate.

use crate::config::{Target, Tls};
use crate::core::lsn::Lsn;
use crate::error::{Error, Kind, Result, classify};
use crate::instance;
use crate::store::connect::session_at;
use bytes::Bytes;
use futures_util::FutureExt;
use pgwire_replication::{
    PgWireError, ReplicationClient, ReplicationConfig, ReplicationEvent, SslMode, TlsConfig,
};
use std::time::Duration;
use tokio_postgres::error::SqlState;

/// The server ends a session that it has not heard from for this long, and asks an idle client for a sign at half of it.
const SENDER_TIMEOUT: &str = "20s";
/// Nothing at all for this long, although the server would have asked: the connection is dead.
const SILENCE: Duration = Duration::from_secs(30);
/// How long the server may take to answer before it streams.
const ANSWER: Duration = Duration::from_secs(10);
/// How soon an acknowledgement goes out; also how much the server may send again after a crash of ours.
const STATUS_INTERVAL: Duration = Duration::from_millis(500);
/// Events that may wait in memory between the crate's task and ours; what is beyond waits in the socket. The crate bounds
/// them by number only, so the number is small: what overlaps with a commit is the next batch, which is bounded by bytes.
const BUFFERED_EVENTS: usize = 16;
/// No address is that large; a row that is cannot be handed off by anybody.
const MAX_MESSAGE: usize = 64 << 20;

/// What the stream says next.
#[derive(Debug)]
pub enum Event {
    Begin,
    /// A pgoutput message other than the boundaries.
    Change(Bytes),
    Commit {
        end: Lsn,
    },
    /// The server is at `wal_end` and has nothing for us before it.
    Idle {
        wal_end: Lsn,
        /// It waits for our answer, as it does before it shuts down.
        asked: bool,
    },
    /// A logical message; carries nothing of ours but may end a transaction-less wait.
    Message,
}

/// The server at the other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    pub system_identifier: String,
    pub timeline: i32,
}

pub struct Stream {
    client: ReplicationClient,
}

/// A session that is authenticated but does not stream yet, so that positions can be compared first.
pub struct Gate {
    client: ReplicationClient,
    pub server: Server,
}

impl Gate {
    /// Connects with the position that is durable on our side: the first thing the crate sends is an acknowledgement of it.
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
        .with_options(format!("{} -c wal_sender_timeout={SENDER_TIMEOUT}", session_at(major)));
        config.max_message_size = MAX_MESSAGE;
        config.application_name = Some(instance::application("gov-handoff stream"));
        let mut client = ReplicationClient::connect_gated(config).await.map_err(explain)?;
        let Ok(identity) = tokio::time::timeout(ANSWER, client.identify_system()).await else {
            // Dropping it only asks the crate's task to end, which it does not while it waits for the network.
            client.abort();
            return Err(Error::new(Kind::Connection, "the server did not answer the replication connection"));
        };
        let identity = identity.map_err(explain)?;
        let server = Server {
            system_identifier: identity.system_id,
            timeline: identity.timeline.try_into().unwrap_or(i32::MAX),
        };
        Ok(Self { client, server })
    }

    /// The one value that the server answers to a query.
    pub async fn ask(&mut self, sql: &str) -> Result<String> {
        let Ok(rows) = tokio::time::timeout(ANSWER, self.client.simple_query(sql)).await else {
            self.client.abort();
            return Err(Error::new(Kind::Connection, "the server did not answer the replication connection"));
        };
        let rows = rows.map_err(explain)?;
        let value = rows.into_iter().next().and_then(|row| row.into_iter().next()).flatten();
        Ok(value.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default())
    }

    pub async fn start(mut self) -> Result<Stream> {
        self.client.start().await.map_err(explain)?;
        let Ok(started) = tokio::time::timeout(ANSWER, self.client.wait_started()).await else {
            self.client.abort();
            return Err(Error::new(Kind::Connection, "the server did not start the stream"));
        };
        started.map_err(explain)?;
        Ok(Stream { client: self.client })
    }
}

impl Stream {
    /// Waits for the next event, but not longer than a live server can be silent. Cancel safe.
    pub async fn next(&mut self) -> Result<Event> {
        match tokio::time::timeout(SILENCE, self.client.recv()).await {
            Ok(event) => translate(event),
            Err(_) => Err(Error::new(Kind::Connection, "the replication connection went silent")),
        }
    }

    /// An event that has arrived already.
    pub fn next_now(&mut self) -> Option<Result<Event>> {
        self.client.recv().now_or_never().map(translate)
    }

    /// Says that everything up to `lsn` is durable with us. Call it only after the commit that made it so: from here on
    /// the server is free to forget it.
    pub fn acknowledge(&self, lsn: Lsn) {
        self.client.update_applied_lsn(pgwire_replication::Lsn::from_u64(lsn.into()));
    }

    /// Ends the session. The crate sends no last status by itself, so the last acknowledgement is given time to go out.
    pub async fn close(mut self, acknowledged: Lsn, patience: Duration) {
        let metrics = self.client.metrics();
        let sent = async {
            while Lsn::from(metrics.last_applied_lsn().as_u64()) < acknowledged && self.client.is_running() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let _ = tokio::time::timeout(patience, sent).await;
        let _ = tokio::time::timeout(patience, self.client.shutdown()).await;
        self.client.abort();
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
    // The crate verifies an address only if it is named here too, and would take the host's name anyway.
    TlsConfig {
        mode,
        ca_pem_path: target.root_cert.clone(),
        sni_hostname: (mode != SslMode::Disable).then(|| host.to_owned()),
        ..TlsConfig::default()
    }
}

/// The crate's errors are text that ends in `(SQLSTATE xxxxx)`; the state decides what we do.
fn explain(e: PgWireError) -> Error {
    let text = e.to_string();
    let state = text.rsplit_once("(SQLSTATE ").and_then(|(_, rest)| rest.get(..5)).map(str::to_owned);
    let kind = match (&state, &e) {
        (Some(code), _) => match code.as_str() {
            // No such slot, or no such publication: neither comes back by waiting.
            "42704" => Kind::Replication,
            // In use: the predecessor's walsender may need its timeout to notice that its client is gone.
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
    fn an_address_can_be_verified_like_a_name() {
        for host in ["192.0.2.1", "db.example.com"] {
            let tls = asked(&format!("postgres://u@{host}/d?sslmode=verify-full"));
            assert!(matches!(tls.mode, SslMode::VerifyFull));
            assert_eq!(tls.sni_hostname.as_deref(), Some(host));
        }
        assert_eq!(asked("postgres://u@%2Frun%2Fpg/d?sslmode=verify-full").sni_hostname, None);
    }
}
