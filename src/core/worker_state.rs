//! The state of a worker of the family.

use serde::{Serialize, Serializer};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerState {
    /// It renews its lease.
    Running,
    /// An operator has paused it.
    Paused,
    /// It resigned its lease.
    Stopped,
    /// It holds its lease and has not renewed it in time.
    Silent,
    /// It has not ticked in this database yet, or a newer version named a state that this program does not know.
    NeverRan,
}

impl WorkerState {
    /// By its name in the view `v_gov_worker`.
    #[must_use]
    pub fn of(name: &str) -> Self {
        let all = [Self::Running, Self::Paused, Self::Stopped, Self::Silent];
        all.into_iter().find(|state| state.name() == name).unwrap_or(Self::NeverRan)
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
            Self::Silent => "silent",
            Self::NeverRan => "never ran",
        }
    }
}

impl Serialize for WorkerState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
