//! What the daemon answers over HTTP; with [`guard`] the sole importer of `axum`.
//!
//! `GET /`, `/api/status`, `/metrics`, `/livez` and `/readyz` (also as `/healthz`) answer 200, or 503 with the reason. HEAD works as
//! well, nothing else does. The server has its own thread and runtime, so that requests take no time from the lanes of the daemon.

pub mod guard;

use crate::config::Config;
use crate::core::exposition::CONTENT_TYPE;
use crate::error::codes::LISTEN;
use crate::error::{Error, Result};
use crate::observe::health;
use crate::observe::http::guard::{Admission, Guard};
use crate::observe::onlooker::{Answer, Complete, Observer, Question};
use crate::observe::page::POLICY;
use crate::pulse;
use axum::extract::{Request, State};
use axum::http::header::{CONNECTION, CONTENT_SECURITY_POLICY, CONTENT_TYPE as TYPE, WWW_AUTHENTICATE};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::Listener;
use axum::{Extension, Router};
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
pub fn serve(config: Config, listen: SocketAddr, complete: Complete) -> Result<()> {
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
                Ok(listener) => {
                    let guard = Guard::of(&config);
                    axum::serve(Door::of(listener), pages(Observer::start(config, complete), guard)).await
                }
                Err(e) => Err(e),
            };
            if let Err(e) = ended {
                tracing::error!(error = %e, "metrics are served no longer");
            }
        });
    };
    std::thread::Builder::new().name("observe".to_owned()).spawn(serving).map_err(cannot)?;
    tracing::info!(
        "page at http://{at}/, metrics at http://{at}/metrics, probes at http://{at}/livez and http://{at}/readyz"
    );
    Ok(())
}

/// What every answer is made with.
#[derive(Clone)]
struct Front {
    onlooker: Observer,
    guard: Arc<Guard>,
}

fn pages(onlooker: Observer, guard: Guard) -> Router {
    let desk = Front { onlooker, guard: Arc::new(guard) };
    Router::new()
        .route("/", get(html))
        .route("/api/status", get(status))
        .route("/metrics", get(metrics))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/healthz", get(readyz))
        .fallback(|| async {
            let known = "there is /, /api/status, /metrics, /livez and /readyz\n";
            page(StatusCode::NOT_FOUND, TEXT, known)
        })
        .layer(axum::middleware::from_fn_with_state(desk.clone(), admit))
        .with_state(desk)
}

const TEXT: &str = "text/plain; charset=utf-8";

/// Answers nobody who may not ask, and sends every answer with what a browser should know about it.
async fn admit(State(desk): State<Front>, mut request: Request, next: Next) -> Response {
    let probe = matches!(request.uri().path(), "/livez" | "/readyz" | "/healthz");
    let verdict = desk.guard.judge(request.uri(), request.headers());
    let mut answer = match verdict {
        Admission::Nothing => {
            let why = "this name is not one of this page's; ask by an address, by localhost, or list it in `listen_hosts`\n";
            page(StatusCode::MISDIRECTED_REQUEST, TEXT, why)
        }
        Admission::Probes if !probe => {
            let mut refused = page(StatusCode::UNAUTHORIZED, TEXT, "show the token of `listen_token`\n");
            let headers = refused.headers_mut();
            headers.append(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"gov-handoff\""));
            headers.append(
                WWW_AUTHENTICATE,
                HeaderValue::from_static("Basic realm=\"gov-handoff\", charset=\"UTF-8\""),
            );
            refused
        }
        Admission::Probes | Admission::All => {
            request.extensions_mut().insert(verdict);
            next.run(request).await
        }
    };
    let headers = answer.headers_mut();
    for (name, value) in SECURITY {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    if let Ok(policy) = HeaderValue::from_str(&POLICY) {
        headers.insert(CONTENT_SECURITY_POLICY, policy);
    }
    answer
}

/// Nothing is guessed, framed, kept or told on.
const SECURITY: [(&str, &str); 6] = [
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-store"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
];

async fn html(State(desk): State<Front>) -> Response {
    made(desk.onlooker.ask(Question::Page).await, "text/html; charset=utf-8")
}

async fn status(State(desk): State<Front>) -> Response {
    made(desk.onlooker.ask(Question::Status).await, "application/json")
}

/// A page says by itself what is wrong; the status tells programs.
fn made(answer: Answer, kind: &'static str) -> Response {
    match answer {
        Ok(text) => page(StatusCode::OK, kind, text.as_ref()),
        Err(text) => page(StatusCode::SERVICE_UNAVAILABLE, kind, text.as_ref()),
    }
}

async fn metrics(State(desk): State<Front>) -> Response {
    match desk.onlooker.ask(Question::Metrics).await {
        Ok(text) => page(StatusCode::OK, CONTENT_TYPE, text.as_ref()),
        Err(why) => page(StatusCode::SERVICE_UNAVAILABLE, TEXT, &format!("{why}\n")),
    }
}

/// Whether the loops of this process turn. No database is asked: a server that is away is no reason to start us again.
async fn livez(Extension(verdict): Extension<Admission>) -> Response {
    let (line, well) = match health::alive(&pulse::seen()) {
        Ok(line) => (line, true),
        Err(why) => (why, false),
    };
    probe(verdict, &line, well)
}

/// Whether rows are handed off, by this instance or by another.
async fn readyz(State(desk): State<Front>, Extension(verdict): Extension<Admission>) -> Response {
    match desk.onlooker.ask(Question::Health).await {
        Ok(line) => probe(verdict, &line, true),
        Err(why) => probe(verdict, &why, false),
    }
}

/// Names and reasons are for those who showed the token.
fn probe(verdict: Admission, line: &str, well: bool) -> Response {
    let status = if well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let line = match verdict {
        Admission::All => line,
        _ if well => "ok",
        _ => "not ok; show the token to see why",
    };
    page(status, TEXT, &format!("{line}\n"))
}

fn page(status: StatusCode, kind: &'static str, text: &str) -> Response {
    (status, [(TYPE, kind), (CONNECTION, "close")], text.to_owned()).into_response()
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
