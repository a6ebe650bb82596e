//! `health`: asks a page of a running daemon, as a container's probe does.

use crate::cli::output;
use crate::error::codes::NO_ANSWER;
use crate::error::{Error, Result};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The port that the documents propose for `listen`.
const USUAL: &str = "127.0.0.1:9642";
/// The page itself answers within four seconds.
const PATIENCE: Duration = Duration::from_secs(8);
/// The longest answer that is read; a page is one line.
const LONGEST: u64 = 64 << 10;

/// `listen`: where the daemon serves its pages, if that is set.
pub async fn run(listen: Option<SocketAddr>, url: Option<&str>) -> Result<ExitCode> {
    let usual = || format!("http://{}/readyz", listen.map_or_else(|| USUAL.to_owned(), |a| a.to_string()));
    let url = url.map_or_else(usual, str::to_owned);
    let answered = tokio::time::timeout(PATIENCE, ask(&url)).await;
    let silent = || Error::of(&NO_ANSWER, format!("{url} did not answer within {} s", PATIENCE.as_secs()));
    let (status, line) = answered.map_err(|_| silent())??;
    output::line(line.trim_end());
    match status {
        200 => Ok(ExitCode::SUCCESS),
        503 => Ok(ExitCode::from(1)),
        other => {
            Err(Error::config(format!("{url} answered with status {other}; is gov-handoff listening there?")))
        }
    }
}

/// The status and the body.
async fn ask(url: &str) -> Result<(u16, String)> {
    let wrong = || Error::config(format!("--url is `{url}`; write one such as http://{USUAL}/readyz"));
    let rest = url.strip_prefix("http://").ok_or_else(wrong)?;
    let (address, path) = rest.split_once('/').unwrap_or((rest, "readyz"));
    if address.is_empty() || url.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(wrong());
    }
    let lost = |e: std::io::Error| Error::of(&NO_ANSWER, format!("{url} cannot be asked: {e}"));
    let mut stream = TcpStream::connect(address).await.map_err(lost)?;
    let request = format!("GET /{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(lost)?;
    let mut answer = Vec::new();
    stream.take(LONGEST).read_to_end(&mut answer).await.map_err(lost)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let odd =
        || Error::config(format!("{url} did not answer as a page does; is gov-handoff listening there?"));
    Ok((status.ok_or_else(odd)?, body.to_owned()))
}
