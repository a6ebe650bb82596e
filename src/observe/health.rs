//! Health: whether rows are handed off, by this instance or by the lease holder that it stands by for.

use crate::pulse::LoopSeen;
use crate::store::metrics::WorkerReading;

/// One line: `Ok` says what works, `Err` says what does not.
pub fn verdict(worker: &str, reading: Option<&WorkerReading>) -> Result<String, String> {
    let Some(reading) = reading else {
        return Err(format!("{worker} has never run here"));
    };
    let age = reading.tick_age;
    match &reading.owner {
        Some(owner) if reading.alive => {
            let term = reading.term.unwrap_or(0);
            Ok(format!("the lease is held by {owner}, term {term}, renewed {age:.1} s ago"))
        }
        Some(owner) => {
            let ttl = reading.ttl_ms.unwrap_or(0) / 1_000;
            Err(format!("{owner} holds the lease and has not renewed it for {age:.0} s; it lasts {ttl} s"))
        }
        None => Err(format!("nobody holds the lease of {worker}; the last one was given up {age:.0} s ago")),
    }
}

/// Whether every loop of this process turns. One line, without asking the database.
pub fn alive(loops: &[LoopSeen]) -> Result<String, String> {
    let stalled: Vec<_> = loops
        .iter()
        .filter(|seen| seen.stalled)
        .map(|seen| format!("{} has not turned for {:.0} s", seen.name, seen.age.as_secs_f64()))
        .collect();
    if stalled.is_empty() { Ok(format!("{} loops turn", loops.len())) } else { Err(stalled.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(owner: Option<&str>, alive: bool) -> WorkerReading {
        WorkerReading {
            owner: owner.map(str::to_owned),
            term: Some(3),
            alive,
            mode: None,
            ttl_ms: Some(15_000),
            lag_ms: None,
            ticks: 1,
            slot_budget: None,
            tick_age: 20.0,
            ticked_at: None,
        }
    }

    #[test]
    fn only_a_lease_that_is_held_and_renewed_is_health() {
        assert!(verdict("w", Some(&reading(Some("a"), true))).unwrap().contains("held by a, term 3"));
        for (sick, why) in [
            (None, "never run"),
            (Some(reading(Some("a"), false)), "not renewed it for 20 s; it lasts 15 s"),
            (Some(reading(None, false)), "nobody holds"),
        ] {
            let said = verdict("w", sick.as_ref()).unwrap_err();
            assert!(said.contains(why) && !said.contains('\n'), "{said}");
        }
    }
}
