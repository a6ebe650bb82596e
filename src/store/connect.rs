//! Opening a session: with TLS as configured, with pinned settings, and with a clear message when it fails.
//!
//! The settings of a session are read back once (`session_settings`). Another session watches whether somebody waits for it
//! (`give_way`).

use crate::config::{Encryption, ServerPlace, Target, WantedServer};
use crate::error::codes::NO_ANSWER;
use crate::error::{Error, Kind, Result};
use crate::instance;
use crate::store::role::{Admin, Onlooker, Reads};
use crate::store::session::{Attended, Watched};
use crate::store::{Session, Store, Writer, session_settings, tls};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, oneshot};
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client, Connection, NoTls, SimpleQueryMessage};

/// The settings of every session.
///
/// Both paths must render a value as the same text, so the settings that rendering depends on are pinned. With
/// `row_security` off, a row that a policy hides is an error instead of a silent omission. `synchronous_commit` is on
/// because the slot is acknowledged as soon as the commit returns: the batch must be durable by then. `read committed`
/// lets a batch see what other sessions have committed meanwhile. The timeouts that a role or database has for its
/// users are switched off: a batch that exceeds such a timeout would exceed it at every retry. The daemon bounds its
/// own waits.
pub const SESSION: &str = "-c TimeZone=UTC -c DateStyle=ISO,YMD -c IntervalStyle=postgres -c extra_float_digits=1 \
     -c bytea_output=hex -c row_security=off -c search_path=pg_catalog,pg_temp \
     -c default_transaction_isolation=read\\ committed -c synchronous_commit=on \
     -c statement_timeout=0 -c lock_timeout=0 -c idle_in_transaction_session_timeout=0 -c idle_session_timeout=0";

/// The longest time that opening a session at one place may take, authentication included, unless `connect_timeout` is given.
const OPENING: Duration = Duration::from_secs(5);
/// A writer waits this much longer than the server's own timeout, so that the server's answer arrives first.
const SERVER_FIRST: Duration = Duration::from_millis(250);
/// How long a dropped session may take to close.
const FAREWELL: Duration = Duration::from_secs(1);

/// The timeout that the server enforces in every session that is not [`open_patient`].
///
/// The daemon may be stopped or disconnected at any moment while it holds a lock. If another session wants to alter the
/// source, it waits for that lock, and every insert into the source waits behind it. So the server ends a transaction
/// of ours that is open and idle for two seconds.
///
/// What this guarantees: a daemon that is stopped between two statements holds a source for at most two seconds. An
/// insert waits no longer than that, however many of our sessions hold the source, because their timeouts run in
/// parallel. A daemon that is stopped while the server runs a statement holds the source until that statement ends and
/// two seconds more, or until a standby takes over and ends the session. While the server cannot send, because the
/// daemon reads no rows, `tcp_user_timeout` ends the connection after ten seconds. That setting has no effect on a Unix
/// socket; there only a takeover ends the session.
const IDLE: &str = "-c idle_in_transaction_session_timeout=2000";
/// As [`IDLE`], for a session without a statement timeout: it also waits at most five seconds for a lock.
pub(super) const BOUNDED: &str = "-c lock_timeout=5000 -c idle_in_transaction_session_timeout=2000";
/// As [`BOUNDED`], for a session that reads sources: it gives up waiting for a lock sooner, and the server ends it if
/// the daemon no longer reads the answers.
const READING: &str =
    "-c lock_timeout=1000 -c idle_in_transaction_session_timeout=2000 -c tcp_user_timeout=10000";

/// The additional settings of a session that applies batches.
///
/// The gates access every table by its key, whatever the size of the batch, so one generic plan suits all batches. For
/// short arrays the server would prefer to plan each batch again, which costs more than recording a single row.
/// Sequential scans are off because the plan is kept: a table that was small when the plan was made may grow. JIT
/// compilation never pays for statements this short.
const WRITING: &str = "-c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c jit=off";

/// The additional settings of a session that only looks on. Its queries go by a key or by an index of open entries.
/// Where the server prefers to read a whole small table, it would one day read a whole large one.
const LOOKING_ON: &str =
    "-c enable_seqscan=off -c lock_timeout=1000 -c idle_in_transaction_session_timeout=2000";

/// For a session that cannot write, whatever its role may do.
const READ_ONLY: &str = "-c default_transaction_read_only=on";

/// Connects. `name` appears in `pg_stat_activity`.
pub async fn open(target: &Target, name: &str) -> Result<Store> {
    open_with(target, name, &format!("{SESSION} {BOUNDED}"), None).await
}

/// As [`open`], for a session that may wait for locks without a limit: creating a slot waits for every running
/// transaction, and a migration waits for every session that uses its tables.
pub async fn open_patient(target: &Target, name: &str) -> Result<Session<Admin>> {
    open_with(target, name, SESSION, None).await
}

/// As [`open`], for a session that reads sources.
pub async fn open_reader<R: Reads>(target: &Target, name: &str) -> Result<Session<R>> {
    open_with(target, name, &format!("{SESSION} {READING}"), None).await
}

/// As [`open`], for a session of the daemon: it waits at most `patience` for a statement, and the server ends the
/// statement by then as well. Without the server's timeout each abandoned statement would leave a session behind that
/// waits, for example, for a lock. While somebody holds that lock, such sessions would use up the server's connections.
pub async fn open_within(target: &Target, name: &str, patience: Duration) -> Result<Store> {
    let session = format!("{SESSION} {IDLE} {}", bound(patience));
    Ok(open_with(target, name, &session, None).await?.within(patience))
}

/// As [`open_within`], for a session that drops or releases a slot.
pub async fn open_admin_within(target: &Target, name: &str, patience: Duration) -> Result<Session<Admin>> {
    let session = format!("{SESSION} {IDLE} {}", bound(patience));
    Ok(open_with(target, name, &session, None).await?.within(patience))
}

/// As [`open_within`], for a session that claims the lease: it waits at most `wait` for the connection and for each
/// answer. The server's own timeout is `patience`, because a session that got the lease goes on to keep it.
pub async fn open_claimant(
    target: &Target,
    name: &str,
    wait: Duration,
    patience: Duration,
) -> Result<Writer> {
    let session = format!("{SESSION} {IDLE} {}", bound(patience));
    Ok(open_with(target, name, &session, Some(wait.min(OPENING))).await?.within(wait))
}

/// As [`open_within`], for a session that mainly applies batches.
pub async fn open_writer_within(target: &Target, name: &str, patience: Duration) -> Result<Writer> {
    let session = format!("{SESSION} {IDLE} {WRITING} {}", bound(patience));
    // The server's timeout fires first: an ended batch and a dead server are handled differently.
    Ok(open_with(target, name, &session, None).await?.within(patience + SERVER_FIRST))
}

fn bound(patience: Duration) -> String {
    format!("-c statement_timeout={}", patience.as_millis())
}

/// As [`open_observer`], with the time limits of [`open_within`]. The session cannot write, whatever its role may do.
pub async fn open_observer_within(
    target: &Target,
    name: &str,
    patience: Duration,
) -> Result<Session<Onlooker>> {
    let session = format!("{SESSION} {LOOKING_ON} {READ_ONLY} {}", bound(patience));
    Ok(open_with(target, name, &session, None).await?.within(patience))
}

/// As [`open`], for a session that only looks on.
pub async fn open_observer(target: &Target, name: &str) -> Result<Session<Onlooker>> {
    open_with(target, name, &format!("{SESSION} {LOOKING_ON}"), None).await
}

/// The caller's return type says which role the session has. `most`: how long all attempts together may take.
async fn open_with<R>(
    target: &Target,
    name: &str,
    session: &str,
    most: Option<Duration>,
) -> Result<Session<R>> {
    let places = target.places();
    let count = u32::try_from(places.len()).unwrap_or(u32::MAX).max(1);
    let each = target.connect_timeout.unwrap_or(OPENING);
    let each = most.map_or(each, |most| each.min(most / count));
    let mut failed = None;
    for role in wanted_roles(target.wanted) {
        for place in &places {
            // The driver's own timeout covers the TCP handshake only. A server may also stay silent after it.
            let opened = match tokio::time::timeout(each, at_place(target, place, name, session)).await {
                Ok(opened) => opened,
                Err(_) => Err(Error::of(
                    &NO_ANSWER,
                    format!("cannot connect to {}: it did not answer within {each:?}", target.at(place)),
                )),
            };
            match opened {
                Ok(opened) => match is_wanted(&opened, *role, session).await {
                    Ok(()) => return Ok(opened),
                    Err(e) => failed = Some(e.context(target.at(place))),
                },
                Err(e) => failed = Some(e),
            }
        }
    }
    Err(failed.unwrap_or_else(|| Error::new(Kind::Internal, "no host to connect to")))
}

/// The roles of a server to look for, in turn.
fn wanted_roles(wanted: WantedServer) -> &'static [WantedServer] {
    match wanted {
        WantedServer::Any => &[WantedServer::Any],
        WantedServer::ReadWrite => &[WantedServer::ReadWrite],
        WantedServer::ReadOnly => &[WantedServer::ReadOnly],
        WantedServer::Primary => &[WantedServer::Primary],
        WantedServer::Standby => &[WantedServer::Standby],
        WantedServer::PreferStandby => &[WantedServer::Standby, WantedServer::Any],
    }
}

/// Whether the server is one that `target_session_attrs` asks for.
async fn is_wanted<R>(opened: &Session<R>, wanted: WantedServer, session: &str) -> Result<()> {
    if wanted == WantedServer::Any {
        return Ok(());
    }
    let row = opened.one(include_str!("sql/session/attributes.sql"), &[]).await?;
    let (standby, read_only): (bool, bool) = (row.try_get("standby")?, row.try_get("read_only")?);
    // Of a session that we made read-only ourselves the setting says nothing about the server.
    let read_only = standby || read_only && !session.contains(READ_ONLY);
    let (fits, asked) = match wanted {
        WantedServer::ReadWrite => (!read_only, "read-write"),
        WantedServer::ReadOnly => (read_only, "read-only"),
        WantedServer::Primary => (!standby, "primary"),
        _ => (standby, "standby"),
    };
    if fits {
        return Ok(());
    }
    let is = if standby {
        "a standby"
    } else if read_only {
        "read-only"
    } else {
        "a primary that takes writes"
    };
    let told = format!("the server is {is}, and target_session_attrs asks for {asked}");
    Err(Error::new(Kind::Connection, told))
}

/// Tries the ways of encryption that the mode allows, in turn.
async fn at_place<R>(target: &Target, place: &ServerPlace, name: &str, session: &str) -> Result<Session<R>> {
    let attempts = if place.is_socket() { &[Encryption::Plain] } else { target.secured.tls.attempts() };
    let (last, before) = attempts.split_last().unwrap_or((&Encryption::Encrypted, &[]));
    for encryption in before {
        match client(target, place, *encryption, name, session).await {
            Err(e) if is_rejected(&e) => {}
            opened => return opened,
        }
    }
    client(target, place, *last, name, session).await
}

/// Whether another way of encryption may succeed: the server does not admit this one, or the handshake failed.
#[must_use]
pub fn is_rejected(e: &Error) -> bool {
    e.code.is_none() && e.kind != Kind::Config
        || e.state() == Some(SqlState::INVALID_AUTHORIZATION_SPECIFICATION)
}

async fn client<R>(
    target: &Target,
    place: &ServerPlace,
    encryption: Encryption,
    name: &str,
    session: &str,
) -> Result<Session<R>> {
    let mut config = target.pg(place);
    let options = target.options().map_or_else(|| session.to_owned(), |o| format!("{o} {session}"));
    config.options(&options).application_name(application(name, target));
    config.ssl_mode(match encryption {
        Encryption::Plain => SslMode::Disable,
        Encryption::IfOffered => SslMode::Prefer,
        Encryption::Encrypted => SslMode::Require,
    });
    let target = &target.at(place);
    let failed = |e: tokio_postgres::Error| explain(e, target);
    let (client, attended, any_bytes, major) = if encryption == Encryption::Plain {
        let (client, connection) = config.connect(NoTls).await.map_err(failed)?;
        let (any_bytes, major) = (takes_any_bytes(&connection), major(&connection));
        (client, attend(connection), any_bytes, major)
    } else {
        let (client, connection) = config.connect(tls::connector(target)?).await.map_err(failed)?;
        let (any_bytes, major) = (takes_any_bytes(&connection), major(&connection));
        (client, attend(connection), any_bytes, major)
    };
    if any_bytes {
        client.batch_execute(include_str!("sql/session/any_bytes.sql")).await.map_err(failed)?;
    }
    // An older server would reject a session that asks for a setting it does not know.
    if bounds_transactions(major) {
        client.batch_execute(include_str!("sql/session/transaction_timeout.sql")).await.map_err(failed)?;
    }
    // With this setting the server notices during a statement that the client is gone. Some platforms do not support it
    // and reject it.
    match client.batch_execute(include_str!("sql/session/client_check.sql")).await {
        Err(e) if e.as_db_error().is_none() => return Err(failed(e)),
        _ => {}
    }
    let pid = read_back(&client, target, session).await?;
    let encrypted = encryption != Encryption::Plain;
    let watched = Watched { target: target.clone(), encrypted, pid, cancel: client.cancel_token() };
    Ok(Session::new(client, attended, major, watched))
}

/// What a session is called: what it is for, what the user calls it, and whose it is.
#[must_use]
pub fn application(name: &str, target: &Target) -> String {
    let name = target.application.as_ref().map_or_else(|| name.to_owned(), |given| format!("{name} {given}"));
    instance::application(&name, target.owner.as_deref())
}

/// Checks that the session got the settings it asked for. Returns its process id at the server.
async fn read_back(client: &Client, target: &Target, session: &str) -> Result<i32> {
    let answer =
        client.simple_query(&session_settings::question(session)).await.map_err(|e| explain(e, target))?;
    let row = answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let value = |i| row.and_then(|row| row.get(i));
    session_settings::compare(session, value(0).unwrap_or_default()).map_err(|e| e.context(target))?;
    let pid = value(1).and_then(|pid| pid.parse().ok());
    pid.ok_or_else(|| Error::new(Kind::Internal, format!("{target} did not tell the session's process")))
}

/// Asks the server to cancel the statement that one of our sessions runs, if there is one.
pub(super) async fn cancel(watched: &Watched) -> Result<()> {
    if !watched.encrypted {
        return Ok(watched.cancel.cancel_query(NoTls).await?);
    }
    Ok(watched.cancel.cancel_query(tls::connector(&watched.target)?).await?)
}

/// The settings that a session asks for at a server of this major version.
#[must_use]
pub fn session_at(major: u32) -> String {
    if bounds_transactions(major) {
        format!("{SESSION} -c transaction_timeout=0")
    } else {
        SESSION.to_owned()
    }
}

/// From PostgreSQL 17 on, a role or database may also have a timeout for whole transactions.
fn bounds_transactions(major: u32) -> bool {
    major >= 17
}

/// For example 16 for `16.3 (Debian 16.3-1)` and 18 for `18beta1`.
fn major<S, T>(connection: &Connection<S, T>) -> u32
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    let version = connection.parameter("server_version").unwrap_or_default();
    let digits = version.find(|c: char| !c.is_ascii_digit()).unwrap_or(version.len());
    version[..digits].parse().unwrap_or(0)
}

/// A SQL_ASCII database stores any bytes. To a session that asks for UTF-8 the server does not send bytes that are not
/// UTF-8, so one such row would stop its source. Our session takes the bytes as they are (`core::row::text_of`).
fn takes_any_bytes<S, T>(connection: &Connection<S, T>) -> bool
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    connection.parameter("server_encoding") == Some("SQL_ASCII")
}

/// Drives the connection. The driver keeps it open until every statement is answered, and on a dead connection that
/// never happens. So once the session is dropped, the connection gets [`FAREWELL`] to close and is then closed by
/// force.
fn attend<S, T>(mut connection: Connection<S, T>) -> Attended
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (wanted, unwanted) = oneshot::channel();
    let notified = Arc::new(Notify::new());
    let wakes = Arc::clone(&notified);
    tokio::spawn(async move {
        // Drives the connection to its end, and passes on what the server sends without being asked.
        let mut driven = poll_fn(move |context| {
            loop {
                match ready!(connection.poll_message(context)) {
                    Some(Ok(AsyncMessage::Notification(_))) => wakes.notify_one(),
                    Some(Ok(_)) => {}
                    Some(Err(e)) => return Poll::Ready(Err(e)),
                    None => return Poll::Ready(Ok(())),
                }
            }
        });
        let ended = tokio::select! {
            ended = &mut driven => ended,
            _ = unwanted => tokio::time::timeout(FAREWELL, driven).await.unwrap_or(Ok(())),
        };
        ended.inspect_err(|e| tracing::debug!(error = %e, "connection ended"))
    });
    Attended { wanted, notified }
}

/// Names the target and says what the operator can do.
fn explain(e: tokio_postgres::Error, target: &Target) -> Error {
    let error = Error::from(e);
    let advice = match error.state() {
        Some(SqlState::INVALID_PASSWORD | SqlState::INVALID_AUTHORIZATION_SPECIFICATION) => {
            "; check user and password in DATABASE_URL, and pg_hba.conf"
        }
        Some(SqlState::UNDEFINED_DATABASE) => "; create it or correct DATABASE_URL",
        Some(SqlState::TOO_MANY_CONNECTIONS) => "; raise max_connections or end idle sessions",
        Some(_) => "",
        None => "; is the server running there, and is DATABASE_URL right?",
    };
    let kind = if error.code.is_none() { Kind::Connection } else { error.kind };
    let mut out = Error::new(kind, format!("cannot connect to {target}: {error}{advice}"));
    out.code = error.code;
    out
}
