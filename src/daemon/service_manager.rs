//! Tells the service manager how this process fares: systemd with `Type=notify`, or another one that keeps `sd_notify(3)`.
//!
//! ```text
//!   started ── a worker holds its lease or stands by ──▶ READY=1 ── asked to stop ──▶ STOPPING=1
//!                                                          │  ▲
//!                                                          └──┘ WATCHDOG=1 while every loop turns
//! ```
//!
//! The messages are datagrams to a unix socket. A process that nobody wants to hear from sends none. What `WATCHDOG=1` says is
//! what `/livez` says: the loops of this process turn. So a database that is away does not restart the daemon.

use crate::config::{self, ServiceManager};
use crate::pulse;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;
use tokio::sync::watch;

/// How often the process looks whether it is ready, or still turns.
const LOOK: Duration = Duration::from_secs(1);
/// A message is sent at least this often within the time that the watchdog allows.
const MARGIN: u32 = 4;

/// Tells from a task of its own, if a service manager asked for it.
pub fn keep_told(shutdown: watch::Receiver<bool>) {
    let Some(manager) = config::service_manager() else { return };
    match Socket::to(&manager.socket) {
        Ok(socket) => drop(tokio::spawn(tell(manager, socket, shutdown))),
        // The manager waits in vain then, and says so itself.
        Err(e) => tracing::warn!(error = %e, "the service manager cannot be told that the daemon runs"),
    }
}

async fn tell(manager: ServiceManager, socket: Socket, mut shutdown: watch::Receiver<bool>) {
    let pause = manager.watchdog.map_or(LOOK, |allowed| LOOK.min(allowed / MARGIN));
    let (mut ready, mut stopping) = (false, false);
    socket.send("STATUS=waits for the database");
    loop {
        if !ready && pulse::is_settled() {
            ready = true;
            socket.send("READY=1\nSTATUS=works, or stands by for another instance");
        }
        // While it drains, the process has a deadline of its own.
        if manager.watchdog.is_some() && (stopping || !pulse::seen().iter().any(|seen| seen.stalled)) {
            socket.send("WATCHDOG=1");
        }
        tokio::select! {
            _ = shutdown.wait_for(|stop| *stop), if !stopping => {
                stopping = true;
                socket.send("STOPPING=1\nSTATUS=drains");
            }
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// A socket that never waits for its reader.
struct Socket {
    from: UnixDatagram,
    to: SocketAddr,
}

impl Socket {
    fn to(place: &str) -> io::Result<Self> {
        let to = match place.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(place)?,
        };
        let from = UnixDatagram::unbound()?;
        from.set_nonblocking(true)?;
        Ok(Self { from, to })
    }

    fn send(&self, message: &str) {
        if let Err(e) = self.from.send_to_addr(message.as_bytes(), &self.to) {
            tracing::debug!(error = %e, message, "the service manager was not told");
        }
    }
}
