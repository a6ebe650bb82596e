//! The migration steps, in order.

use super::{StepReport, StepState};
use sha2::{Digest, Sha256};

/// One step, up and down. The substrate's revert is computed from what was recorded.
pub(super) struct Step {
    pub version: i32,
    pub name: &'static str,
    pub up: &'static str,
    pub down: Option<&'static str>,
}

/// The step of the files `NNNN_name.sql` and `NNNN_name.down.sql`.
macro_rules! step {
    ($version:literal, $number:literal, $name:literal) => {
        Step {
            version: $version,
            name: $name,
            up: include_str!(concat!("../../../migrations/", $number, "_", $name, ".sql")),
            down: Some(include_str!(concat!("../../../migrations/", $number, "_", $name, ".down.sql"))),
        }
    };
}

pub(super) const STEPS: &[Step] = &[
    Step {
        version: 1,
        name: "substrate",
        up: include_str!("../../../migrations/0001_substrate.sql"),
        down: None,
    },
    step!(2, "0002", "governance"),
    step!(3, "0003", "apply"),
    step!(4, "0004", "lease"),
    step!(5, "0005", "findings"),
    step!(6, "0006", "sources"),
    step!(7, "0007", "roles"),
    step!(8, "0008", "proof"),
    step!(9, "0009", "selftest"),
    step!(10, "0010", "retry"),
    step!(11, "0011", "trust"),
    step!(12, "0012", "watch"),
    step!(13, "0013", "metrics"),
    step!(14, "0014", "workers"),
    step!(16, "0016", "scan"),
    step!(17, "0017", "input_gate"),
    step!(15, "0015", "backlog"),
    step!(18, "0018", "emit"),
    step!(19, "0019", "feed"),
    step!(20, "0020", "recipients"),
    step!(21, "0021", "read_state"),
    step!(22, "0022", "tick"),
    step!(23, "0023", "jobs"),
    step!(24, "0024", "job_tick"),
    step!(25, "0025", "schedules"),
    step!(26, "0026", "comments"),
    step!(27, "0027", "full_audit"),
    step!(28, "0028", "page"),
];

impl Step {
    pub fn report(&self, state: StepState, created: Vec<String>, adopted: Vec<String>) -> StepReport {
        StepReport { version: self.version, name: self.name.to_owned(), state, created, adopted }
    }
}

/// Splits a migration at its `--@ object` markers. Text before the first marker is skipped.
pub(super) fn objects(sql: &str) -> Vec<(Option<&str>, &str)> {
    const MARKER: &str = "--@ object ";
    if !sql.contains(MARKER) {
        return vec![(None, sql)];
    }
    sql.split(MARKER)
        .skip(1)
        .filter_map(|part| part.split_once('\n').map(|(name, body)| (Some(name.trim()), body)))
        .collect()
}

pub(super) fn checksum(sql: &str) -> String {
    Sha256::digest(sql.as_bytes()).iter().take(8).map(|b| format!("{b:02x}")).collect()
}

/// The steps that are not applied, and the steps that were applied with another text than in this build.
#[must_use]
pub fn compare(applied: &[(i32, String)]) -> (Vec<String>, Vec<String>) {
    let name = |step: &Step| format!("{} ({})", step.version, step.name);
    let found = |step: &Step| applied.iter().find(|(version, _)| *version == step.version);
    let pending = STEPS.iter().filter(|s| found(s).is_none()).map(name).collect();
    let other = |s: &&Step| found(s).is_some_and(|(_, sum)| *sum != checksum(s.up));
    let newer = applied.iter().filter(|(v, _)| STEPS.iter().all(|s| s.version != *v));
    let foreign = STEPS.iter().filter(other).map(name).chain(newer.map(|(v, _)| v.to_string())).collect();
    (pending, foreign)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_substrate_is_a_list_of_objects() {
        let names: Vec<_> = objects(STEPS[0].up).into_iter().filter_map(|(name, _)| name).collect();
        assert!(names.contains(&"birth_registry") && names.contains(&"event_outbox"), "{names:?}");
        assert_eq!(names.len(), 23);
        assert_eq!(objects("select 1"), [(None, "select 1")]);
    }
}
