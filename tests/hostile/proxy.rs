//! A TCP proxy between the daemon and its server that can stall, cut in the middle of a message, reset, and swallow what
//! the server says.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What connections are to do. Generations count orders that hit every connection older than the order.
#[derive(Clone, Copy, Default)]
struct Orders {
    /// Nothing is forwarded; the bytes wait.
    stalled: bool,
    /// Connections born before this generation forward nothing more, whatever else is ordered.
    deaf: u64,
    /// Connections born before this generation are reset.
    reset: u64,
    /// Connections born before this generation pass on half of what comes next, then end.
    truncate: u64,
    /// What servers say on connections born before this generation is read and dropped.
    swallow: u64,
    /// In its place they say now and then that they are there.
    murmur: bool,
    generation: u64,
}

/// Seldom enough that the client wonders in between.
const MURMUR_EVERY: Duration = Duration::from_millis(600);
/// A replication keepalive as the server frames it: `CopyData`, its length, `k`, a position of zero, a time of zero, no reply asked for.
const KEEPALIVE: [u8; 23] = [b'd', 0, 0, 0, 22, b'k', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

pub struct Proxy {
    pub port: u16,
    orders: Arc<watch::Sender<Orders>>,
    accepted: Arc<AtomicU64>,
}

impl Proxy {
    /// Listens on a port of its own and forwards to `server`.
    pub async fn start(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("the proxy listens");
        let port = listener.local_addr().expect("an address").port();
        let orders = Arc::new(watch::Sender::new(Orders::default()));
        let accepted = Arc::new(AtomicU64::new(0));
        let (given, count) = (Arc::clone(&orders), Arc::clone(&accepted));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                let (orders, born) = (given.subscribe(), given.borrow().generation);
                tokio::spawn(relay(client, SocketAddr::from(([127, 0, 0, 1], server)), orders, born));
            }
        });
        Self { port, orders, accepted }
    }

    /// How many connections clients have made, stalled ones included.
    pub fn connections(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Stops forwarding, for old and new connections alike.
    pub fn stall(&self) {
        self.orders.send_modify(|o| o.stalled = true);
    }

    pub fn forward(&self) {
        self.orders.send_modify(|o| o.stalled = false);
    }

    /// The connections of now never carry another byte, and are not told; new ones work.
    pub fn deafen(&self) {
        self.order(|o| o.deaf = o.generation);
    }

    /// The replication connections of now bring keepalives and nothing else: a server that is busy with other things.
    pub fn murmur(&self) {
        self.order(|o| (o.swallow, o.murmur) = (o.generation, true));
    }

    /// The connections of now take everything and bring nothing; new ones work.
    pub fn swallow(&self) {
        self.order(|o| (o.swallow, o.murmur) = (o.generation, false));
    }

    pub fn reset(&self) {
        self.order(|o| o.reset = o.generation);
    }

    pub fn truncate(&self) {
        self.order(|o| o.truncate = o.generation);
    }

    fn order(&self, set: impl FnOnce(&mut Orders)) {
        self.orders.send_modify(|o| {
            o.generation += 1;
            set(o);
        });
    }
}

async fn relay(client: TcpStream, server: SocketAddr, orders: watch::Receiver<Orders>, born: u64) {
    // As a network would: no server, no connection.
    let Ok(server) = TcpStream::connect(server).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    // Whichever direction ends takes the other with it.
    tokio::select! {
        () = pump(from_client, &to_server, orders.clone(), born, false) => {}
        () = pump(from_server, &to_client, orders.clone(), born, true) => {}
    }
    if orders.borrow().reset > born {
        // Closed without lingering, a connection is reset rather than ended.
        let _ = (to_client.as_ref().set_zero_linger(), to_server.as_ref().set_zero_linger());
    }
}

/// `down` is the way from the server.
async fn pump(
    mut from: OwnedReadHalf,
    to: &OwnedWriteHalf,
    mut orders: watch::Receiver<Orders>,
    born: u64,
    down: bool,
) {
    let mut buffer = vec![0; 16 << 10];
    // Of its own, because what is swallowed may come more often.
    let mut murmur = tokio::time::interval(MURMUR_EVERY);
    murmur.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let now = *orders.borrow_and_update();
        if now.reset > born {
            return;
        }
        if now.stalled || now.deaf > born {
            if orders.changed().await.is_err() {
                return;
            }
            continue;
        }
        let swallowed = down && now.swallow > born;
        let read = tokio::select! {
            biased;
            _ = orders.changed() => continue,
            read = from.read(&mut buffer) => read,
            _ = murmur.tick(), if swallowed && now.murmur => {
                if write_all(to, &KEEPALIVE).await.is_err() {
                    return;
                }
                continue;
            }
        };
        let Ok(n @ 1..) = read else { return };
        if swallowed {
            continue;
        }
        let cut = orders.borrow().truncate > born;
        let part = if cut { &buffer[..n / 2] } else { &buffer[..n] };
        if write_all(to, part).await.is_err() || cut {
            return;
        }
    }
}

async fn write_all(to: &OwnedWriteHalf, mut bytes: &[u8]) -> std::io::Result<()> {
    while !bytes.is_empty() {
        to.writable().await?;
        match to.try_write(bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[tokio::test]
async fn the_proxy_forwards_stalls_and_cuts() {
    let echo = TcpListener::bind(("127.0.0.1", 0)).await.expect("listen");
    let port = echo.local_addr().expect("address").port();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = echo.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = socket.split();
                tokio::io::copy(&mut from, &mut to).await
            });
        }
    });
    let proxy = Proxy::start(port).await;
    let mut held = [0; 4];
    let mut client = TcpStream::connect(("127.0.0.1", proxy.port)).await.expect("connect");
    client.write_all(b"ping").await.expect("write");
    client.read_exact(&mut held).await.expect("it comes back");

    proxy.stall();
    client.write_all(b"ping").await.expect("write");
    let silence = tokio::time::timeout(std::time::Duration::from_millis(100), client.read_exact(&mut held));
    assert!(silence.await.is_err(), "nothing passes a stalled proxy");
    proxy.forward();
    client.read_exact(&mut held).await.expect("what waited comes through");

    proxy.truncate();
    client.write_all(b"ping").await.expect("write");
    assert!(client.read_exact(&mut held).await.is_err(), "half a message, then the end");

    let mut client = TcpStream::connect(("127.0.0.1", proxy.port)).await.expect("connect");
    client.write_all(b"ping").await.expect("write");
    client.read_exact(&mut held).await.expect("a new connection is whole");
    proxy.reset();
    assert!(client.read_exact(&mut held).await.is_err(), "reset");
}
