//! Opening a session: TLS as asked, text rendered the same everywhere, clear words when it fails. What a session asked for is
//! read back once (`settings`), and who waits for it is looked for by another session (`give_way`).

use crate::config::Target;
use crate::error::{Error, Kind, Result};
use crate::instance;
use crate::store::role::{Admin, Onlooker, Reads};
use crate::store::session::Watched;
use crate::store::{Session, Store, Writer, settings, tls};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tokio_postgres::error::SqlState;
use tokio_postgres::{CancelToken, Client, Connection, NoTls, SimpleQueryMessage};

/// Both paths must render a value as the same text, so the settings that rendering depends on are pinned. `row_security`
/// off turns "you may not see these rows" from silence into an error. A batch is durable when its commit returns, whatever is
/// usual in this database, because the slot is acknowledged then; and it sees what others have committed meanwhile. Timeouts that a role or database has for its people
/// are not for us: a batch that exceeds one would exceed it for ever. What we wait for we bound ourselves.
pub const SESSION: &str = "-c TimeZone=UTC -c DateStyle=ISO,YMD -c IntervalStyle=postgres -c extra_float_digits=1 \
     -c bytea_output=hex -c row_security=off -c search_path=pg_catalog,pg_temp \
     -c default_transaction_isolation=read\\ committed -c synchronous_commit=on \
     -c statement_timeout=0 -c lock_timeout=0 -c idle_in_transaction_session_timeout=0 -c idle_session_timeout=0";

/// How long opening a session may take at most, authentication included.
const OPENING: Duration = Duration::from_secs(5);
/// How much longer than the server itself a writer waits for its answer.
const SERVER_FIRST: Duration = Duration::from_millis(250);
/// How long a session that nobody uses any more may take to end.
const FAREWELL: Duration = Duration::from_secs(1);

/// What the server itself bounds in every session that is not [`open_patient`]. We may be stopped, or cut off, at any moment;
/// what we hold then others wait for, and whoever changes a source makes every birth wait. So a transaction of ours that is
/// open and says nothing is ended after two seconds.
///
/// The promise: a daemon that is stopped between two statements holds a source for two seconds at most; a birth waits no
/// longer, however many of our sessions hold it, because their times run side by side. One that is stopped while the server
/// runs a statement for it holds the source to the end of that statement and two seconds more, or until a standby takes over
/// and ends the session. While the server cannot send, because we take no rows, `tcp_user_timeout` ends the connection after
/// ten seconds; on a Unix socket, where that setting means nothing, only a takeover does.
const IDLE: &str = "-c idle_in_transaction_session_timeout=2000";
/// The same for a session whose statements nobody else bounds: no lock is waited for much longer than it takes to get it.
const BOUNDED: &str = "-c lock_timeout=5000 -c idle_in_transaction_session_timeout=2000";
/// The same for a session that reads sources. It gives way sooner, and one whose peer takes no answers any more is ended too.
const READING: &str =
    "-c lock_timeout=1000 -c idle_in_transaction_session_timeout=2000 -c tcp_user_timeout=10000";

/// What a session that applies batches adds. Every table of the gates is met by its key, whatever the size of the batch:
/// so one plan suits all, and planning for each batch anew, which the server would prefer for short arrays, costs more than
/// recording a lone row. No scan of a table may be that plan, however small the table was when it was made; and compiling
/// a plan never pays for statements this short.
const WRITING: &str = "-c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c jit=off";

/// What a session that only looks on adds. What it shows is met by key or by an index of what is open; where the server would
/// rather read a whole small table, it would one day read a whole large one.
const LOOKING_ON: &str =
    "-c enable_seqscan=off -c lock_timeout=1000 -c idle_in_transaction_session_timeout=2000";

/// Connects. `name` shows up in `pg_stat_activity`.
pub async fn open(target: &Target, name: &str) -> Result<Store> {
    open_with(target, name, &format!("{SESSION} {BOUNDED}"), OPENING).await
}

/// As [`open`], for a session that may wait for locks as long as they are held: making a slot waits for every transaction
/// that runs, a migration for whoever uses its tables.
pub async fn open_patient(target: &Target, name: &str) -> Result<Session<Admin>> {
    open_with(target, name, SESSION, OPENING).await
}

/// As [`open`], for a session that reads sources.
pub async fn open_reader<R: Reads>(target: &Target, name: &str) -> Result<Session<R>> {
    open_with(target, name, &format!("{SESSION} {READING}"), OPENING).await
}

/// As [`open`], for a session of the daemon: no statement is waited for longer than `patience`, and the server ends it by
/// then as well. Otherwise each one that was given up would leave a session behind that waits for, say, a lock; while
/// somebody holds that lock those would use up the server's connections.
pub async fn open_within(target: &Target, name: &str, patience: Duration) -> Result<Store> {
    let session = format!("{SESSION} {IDLE} {}", bound(patience));
    Ok(open_with(target, name, &session, OPENING).await?.within(patience))
}

/// As [`open_within`], for a session that drops or releases a slot.
pub async fn open_admin_within(target: &Target, name: &str, patience: Duration) -> Result<Session<Admin>> {
    let session = format!("{SESSION} {IDLE} {}", bound(patience));
    Ok(open_with(target, name, &session, OPENING).await?.within(patience))
}

/// As [`open_within`], for a session that asks for the lease: both opening it and each answer are waited for no longer than
/// `wait`. The server may take until `patience`, because the session that got the lease goes on to keep it.
pub async fn open_claimant(
    target: &Target,
    name: &str,
    wait: Duration,
    patience: Duration,
) -> Result<Writer> {
    let session = format!("{SESSION} {IDLE} {}", bound(patience));
    Ok(open_with(target, name, &session, wait.min(OPENING)).await?.within(wait))
}

/// The same for a session that does little else than apply batches.
pub async fn open_writer_within(target: &Target, name: &str, patience: Duration) -> Result<Writer> {
    let session = format!("{SESSION} {IDLE} {WRITING} {}", bound(patience));
    // The server's word comes first: that it ended a batch is another thing than that it is gone.
    Ok(open_with(target, name, &session, OPENING).await?.within(patience + SERVER_FIRST))
}

fn bound(patience: Duration) -> String {
    format!("-c statement_timeout={}", patience.as_millis())
}

/// As [`open_observer`], bounded as [`open_within`] is, and unable to write whatever its role may.
pub async fn open_observer_within(
    target: &Target,
    name: &str,
    patience: Duration,
) -> Result<Session<Onlooker>> {
    let session = format!("{SESSION} {LOOKING_ON} -c default_transaction_read_only=on {}", bound(patience));
    Ok(open_with(target, name, &session, OPENING).await?.within(patience))
}

/// As [`open`], for a session that only looks on.
pub async fn open_observer(target: &Target, name: &str) -> Result<Session<Onlooker>> {
    open_with(target, name, &format!("{SESSION} {LOOKING_ON}"), OPENING).await
}

/// The caller's return type says which role the session has.
async fn open_with<R>(target: &Target, name: &str, session: &str, opening: Duration) -> Result<Session<R>> {
    // The driver's own timeout covers the TCP handshake only; a server may also be silent after it.
    match tokio::time::timeout(opening, client(target, name, session)).await {
        Ok(opened) => opened,
        Err(_) => Err(Error::new(
            Kind::Connection,
            format!("cannot connect to {target}: it did not answer within {opening:?}"),
        )),
    }
}

async fn client<R>(target: &Target, name: &str, session: &str) -> Result<Session<R>> {
    let mut config = target.pg().clone();
    let options = config.get_options().map_or_else(|| session.to_owned(), |o| format!("{o} {session}"));
    config.options(&options).application_name(instance::application(name));
    let failed = |e: tokio_postgres::Error| explain(e, target);
    let (client, wanted, any_bytes, major) = if tls::is_plain(target) {
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
    // A server that does not know the setting would refuse a session that asks for it.
    if bounds_transactions(major) {
        client.batch_execute(include_str!("sql/session/transaction_timeout.sql")).await.map_err(failed)?;
    }
    // Some platforms cannot notice that the peer is gone while a statement runs, and refuse to be asked to.
    match client.batch_execute(include_str!("sql/session/client_check.sql")).await {
        Err(e) if e.as_db_error().is_none() => return Err(failed(e)),
        _ => {}
    }
    let pid = read_back(&client, target, session).await?;
    let watched = Watched { target: target.clone(), pid, cancel: client.cancel_token() };
    Ok(Session::new(client, wanted, major, watched))
}

/// Whether the session got what it asked for; its process at the server.
async fn read_back(client: &Client, target: &Target, session: &str) -> Result<i32> {
    let answer = client.simple_query(&settings::question(session)).await.map_err(|e| explain(e, target))?;
    let row = answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let value = |i| row.and_then(|row| row.get(i));
    settings::compare(session, value(0).unwrap_or_default()).map_err(|e| e.context(target))?;
    let pid = value(1).and_then(|pid| pid.parse().ok());
    pid.ok_or_else(|| Error::new(Kind::Internal, format!("{target} did not tell the session's process")))
}

/// Asks the server to end the statement that a session of ours runs, if it runs one.
pub(super) async fn cancel(target: &Target, token: &CancelToken) -> Result<()> {
    if tls::is_plain(target) {
        return Ok(token.cancel_query(NoTls).await?);
    }
    Ok(token.cancel_query(tls::connector(target)?).await?)
}

/// What a session asks for at a server of this major version.
#[must_use]
pub fn session_at(major: u32) -> String {
    if bounds_transactions(major) {
        format!("{SESSION} -c transaction_timeout=0")
    } else {
        SESSION.to_owned()
    }
}

/// From this version on a role or database may have a limit for whole transactions too.
fn bounds_transactions(major: u32) -> bool {
    major >= 17
}

/// Such as 16 of `16.3 (Debian 16.3-1)` and 18 of `18beta1`.
fn major<S, T>(connection: &Connection<S, T>) -> u32
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    let version = connection.parameter("server_version").unwrap_or_default();
    let digits = version.find(|c: char| !c.is_ascii_digit()).unwrap_or(version.len());
    version[..digits].parse().unwrap_or(0)
}

/// A SQL_ASCII database holds whatever bytes it was given, and refuses to send those that are no UTF-8 to a session that
/// asks for UTF-8: one such row would stop its source. We take them as they are (`core::row::text_of`).
fn takes_any_bytes<S, T>(connection: &Connection<S, T>) -> bool
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    connection.parameter("server_encoding") == Some("SQL_ASCII")
}

/// Drives the connection. The driver keeps it open until every statement is answered, which on a dead one is never; so
/// once nobody wants the answers it gets a moment to say goodbye, and is then closed.
fn attend<S, T>(mut connection: Connection<S, T>) -> oneshot::Sender<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (wanted, unwanted) = oneshot::channel();
    tokio::spawn(async move {
        let ended = tokio::select! {
            ended = &mut connection => ended,
            _ = unwanted => tokio::time::timeout(FAREWELL, connection).await.unwrap_or(Ok(())),
        };
        ended.inspect_err(|e| tracing::debug!(error = %e, "connection ended"))
    });
    wanted
}

/// Says where we tried to go and what the operator can do about it.
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
