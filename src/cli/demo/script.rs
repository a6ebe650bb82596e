//! The scenes, placed along the run by how much of it is over, so that any `--seconds` and any `--rows` shows them all.

/// What is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scene {
    Streaming,
    SlotTaken,
    SlotBack,
    Killed,
}

impl Scene {
    pub const ALL: [Self; 4] = [Self::Streaming, Self::SlotTaken, Self::SlotBack, Self::Killed];

    /// Where on the run the scene begins, from 0 to 1.
    #[must_use]
    pub fn begins(self) -> f64 {
        match self {
            Self::Streaming => 0.0,
            Self::SlotTaken => 0.25,
            // With the default of 30 seconds, five of them are polled.
            Self::SlotBack => 0.42,
            Self::Killed => 0.68,
        }
    }

    #[must_use]
    pub fn at(progress: f64) -> Self {
        Self::ALL.into_iter().rev().find(|s| s.begins() <= progress).unwrap_or(Self::Streaming)
    }

    #[must_use]
    pub fn number(self) -> usize {
        self as usize + 1
    }

    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Streaming => "births stream through a replication slot",
            Self::SlotTaken => "the slot is dropped under load and its name taken",
            Self::SlotBack => "the name is free again",
            Self::Killed => "the daemon is killed with SIGKILL, then started again",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scene_has_its_stretch_in_order() {
        assert!(Scene::ALL.windows(2).all(|w| w[0].begins() < w[1].begins() && w[0] < w[1]));
        for scene in Scene::ALL {
            assert_eq!(Scene::at(scene.begins()), scene);
        }
        assert_eq!(Scene::at(1.5), Scene::Killed);
    }
}
