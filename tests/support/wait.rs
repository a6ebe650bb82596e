//! Waits for a condition. A wait looks again every few milliseconds, returns as soon as the condition holds, and fails the
//! test with what it waited for.

use std::time::{Duration, Instant};

use tokio_postgres::Client;

/// How long a condition may take to come true; far more than it needs, because machines are shared.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// The pause between two looks; short beside anything that is waited for.
const STEP: Duration = Duration::from_millis(20);

/// Tries again until an attempt succeeds, for at most `limit`. An attempt that fails says what it saw.
pub async fn within<T>(
    limit: Duration,
    what: &str,
    mut attempt: impl AsyncFnMut() -> Result<T, String>,
) -> T {
    let deadline = Instant::now() + limit;
    loop {
        match attempt().await {
            Ok(value) => return value,
            Err(seen) => {
                assert!(Instant::now() < deadline, "waited {limit:?} for: {what}; last seen: {seen}")
            }
        }
        tokio::time::sleep(STEP).await;
    }
}

/// Waits until a condition holds.
pub async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    within(
        PATIENCE,
        what,
        async || if condition().await { Ok(()) } else { Err("it does not hold".to_owned()) },
    )
    .await;
}

/// Waits until a query answers true.
pub async fn until_true(client: &Client, query: &str) {
    let answer = async || {
        let row = client.query_one(query, &[]).await.unwrap_or_else(|e| panic!("{query}: {e:?}"));
        let answer: Option<bool> = row.get(0);
        if answer == Some(true) { Ok(()) } else { Err(format!("{answer:?}")) }
    };
    within(PATIENCE, query, answer).await;
}
