//! Places where the tests kill or stop this process, to show that nothing is lost there. Debug builds only.

/// Kills this process at a named place. The place, and how often it is passed first, come from
/// `GOV_HANDOFF_FAILPOINT=name:count`; with `:stop` behind it the process is stopped, not killed.
#[cfg(debug_assertions)]
pub fn failpoint(name: &str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicI64, Ordering};
    static PLAN: OnceLock<Option<(String, AtomicI64, bool)>> = OnceLock::new();
    let plan = PLAN.get_or_init(|| {
        let text = crate::config::failpoint().filter(|text| !text.ends_with(":stall"))?;
        let (name, count) = text.split_once(':')?;
        let stop = count.strip_suffix(":stop");
        let left = AtomicI64::new(stop.unwrap_or(count).parse().ok()?);
        Some((name.to_owned(), left, stop.is_some()))
    });
    if let Some((wanted, left, stop)) = plan
        && wanted == name
        && left.fetch_sub(1, Ordering::Relaxed) == 1
    {
        if *stop {
            // The shell's own `kill`, because sending signals needs unsafe code here.
            let kill = format!("kill -STOP {}", std::process::id());
            let _ = std::process::Command::new("sh").args(["-c", &kill]).status();
            return;
        }
        // As abrupt as a kill: no destructor, no farewell to the server.
        std::process::abort();
    }
}

#[cfg(not(debug_assertions))]
pub fn failpoint(_: &str) {}

/// Stops a loop at a named turn, and nothing else: it waits indefinitely. `GOV_HANDOFF_FAILPOINT=name:count:stall`.
#[cfg(debug_assertions)]
pub async fn stall(name: &str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicI64, Ordering};
    static PLAN: OnceLock<Option<(String, AtomicI64)>> = OnceLock::new();
    let plan = PLAN.get_or_init(|| {
        let text = crate::config::failpoint()?;
        let (name, count) = text.strip_suffix(":stall")?.split_once(':')?;
        Some((name.to_owned(), AtomicI64::new(count.parse().ok()?)))
    });
    if let Some((wanted, left)) = plan
        && wanted == name
        && left.fetch_sub(1, Ordering::Relaxed) <= 1
    {
        std::future::pending::<()>().await;
    }
}

#[cfg(not(debug_assertions))]
pub async fn stall(_: &str) {}
