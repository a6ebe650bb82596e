//! Pages for clients on this machine; the sole importer of `axum`.
//!
//! `GET /metrics`, `/livez` and `/readyz` (also as `/healthz`) answer 200, or 503 with the reason in one line. HEAD works as well,
//! nothing else does. The server has its own thread and runtime, so that requests take no time from the lanes of the daemon.

use crate::config::Config;
use crate::core::exposition::CONTENT_TYPE;
use crate::error::codes::LISTEN;
use crate::error::{Error, Result};
use crate::observe::health;
use crate::observe::onlooker::{Answer, Observer, Question};
use crate::pulse;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CONNECTION, CONTENT_TYPE as TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::Listener;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};

/// The number of connections at a time. The daemon needs file descriptors as well; further clients wait in the system's
/// queue.
const GUESTS: usize = 32;
/// A connection serves one request and is closed after this time, whichever side is slow.
const VISIT: Duration = Duration::from_secs(10);

/// Listens at once, so that an unusable address is an error at the start, and serves from a thread.
pub fn serve(config: Config, listen: SocketAddr) -> Result<()> {
    let cannot = |e: io::Error| {
        let advice = match e.kind() {
            io::ErrorKind::AddrInUse => {
                "; another program, or another instance, listens there: choose another `listen`"
            }
            _ => "",
        };
        Error::of(&LISTEN, format!("cannot listen on {listen}: {e}{advice}"))
    };
    let listener = std::net::TcpListener::bind(listen).map_err(cannot)?;
    listener.set_nonblocking(true).map_err(cannot)?;
    let at = listener.local_addr().map_err(cannot)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
    let serving = move || {
        runtime.block_on(async move {
            let ended = match TcpListener::from_std(listener) {
                Ok(listener) => axum::serve(Door::of(listener), pages(Observer::start(config))).await,
                Err(e) => Err(e),
            };
            if let Err(e) = ended {
                tracing::error!(error = %e, "metrics are served no longer");
            }
        });
    };
    std::thread::Builder::new().name("observe".to_owned()).spawn(serving).map_err(cannot)?;
    tracing::info!("metrics at http://{at}/metrics, probes at http://{at}/livez and http://{at}/readyz");
    Ok(())
}

fn pages(onlooker: Observer) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/healthz", get(readyz))
        .fallback(|| async {
            page(StatusCode::NOT_FOUND, "text/plain", "there is /metrics, /livez and /readyz\n".to_owned())
        })
        .with_state(onlooker)
}

async fn metrics(State(onlooker): State<Observer>) -> Response {
    match onlooker.ask(Question::Metrics).await {
        Ok(text) => page(StatusCode::OK, CONTENT_TYPE, text),
        Err(why) => page(StatusCode::SERVICE_UNAVAILABLE, "text/plain", format!("{why}\n")),
    }
}

/// Whether the loops of this process turn. No database is asked: a server that is away is no reason to start us again.
async fn livez() -> Response {
    probe(health::alive(&pulse::seen()))
}

/// Whether rows are handed off, by this instance or by another.
async fn readyz(State(onlooker): State<Observer>) -> Response {
    probe(onlooker.ask(Question::Health).await)
}

fn probe(answer: Answer) -> Response {
    let (status, line) = match answer {
        Ok(line) => (StatusCode::OK, line),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, why),
    };
    page(status, "text/plain", format!("{line}\n"))
}

fn page(status: StatusCode, kind: &'static str, text: String) -> Response {
    (status, [(TYPE, kind), (CONNECTION, "close")], text).into_response()
}

/// Limits the number of connections and the duration of each.
struct Door {
    listener: TcpListener,
    places: Arc<Semaphore>,
}

impl Door {
    fn of(listener: TcpListener) -> Self {
        Self { listener, places: Arc::new(Semaphore::new(GUESTS)) }
    }
}

impl Listener for Door {
    type Io = Guest;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Guest, SocketAddr) {
        loop {
            // The semaphore is never closed. If it were, no connection would be accepted.
            let Ok(place) = Arc::clone(&self.places).acquire_owned().await else {
                std::future::pending().await
            };
            match self.listener.accept().await {
                Ok((stream, from)) => {
                    return (Guest { stream, leaves: Box::pin(sleep(VISIT)), _place: place }, from);
                }
                // No free file descriptor, or the client is gone: neither ends the service.
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that ends when its time is over.
struct Guest {
    stream: TcpStream,
    leaves: Pin<Box<Sleep>>,
    _place: OwnedSemaphorePermit,
}

impl Guest {
    /// The stream, while there is time.
    fn stream(&mut self, cx: &mut Context<'_>) -> io::Result<Pin<&mut TcpStream>> {
        match self.leaves.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::ErrorKind::TimedOut.into()),
            Poll::Pending => Ok(Pin::new(&mut self.stream)),
        }
    }
}

impl AsyncRead for Guest {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream(cx)?.poll_read(cx, into)
    }
}

impl AsyncWrite for Guest {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        self.stream(cx)?.poll_write(cx, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream(cx)?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream(cx)?.poll_shutdown(cx)
    }
}
