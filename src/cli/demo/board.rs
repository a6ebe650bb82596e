//! The values behind the live view, now and over the run.

use super::sample::{Capture, Sample};
use super::script::Scene;
use std::time::Duration;

/// How the run is doing at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub struct Point {
    pub at: Duration,
    /// How much of the run is over, from 0 to 1.
    pub progress: f64,
    pub rows: i64,
    pub handoffs: i64,
    pub rows_per_second: f64,
    pub handoffs_per_second: f64,
    pub lag: Option<(f64, f64)>,
    pub capture: Capture,
}

#[derive(Debug, Clone)]
pub struct Board {
    pub server: String,
    /// How far the run is, in the unit that ends it.
    pub clock: String,
    pub scene: Scene,
    pub sample: Sample,
    pub points: Vec<Point>,
    pub notes: Vec<(Duration, String)>,
}

impl Board {
    #[must_use]
    pub fn new(server: String) -> Self {
        Self {
            server,
            clock: String::new(),
            scene: Scene::Streaming,
            sample: Sample::default(),
            points: vec![],
            notes: vec![],
        }
    }

    pub fn note(&mut self, at: Duration, text: impl Into<String>) {
        self.notes.push((at, text.into()));
    }

    /// Takes a sample in; a change of mode is worth a note.
    pub fn update(&mut self, at: Duration, progress: f64, rows: i64, sample: Sample) {
        if sample.capture != self.sample.capture || sample.reason != self.sample.reason {
            match sample.capture {
                Capture::Stream => self.note(at, "streaming"),
                Capture::Poll => {
                    let reason = sample.reason.as_deref().unwrap_or("no reason given");
                    self.note(at, format!("polling, because {reason}"));
                }
                Capture::Down => self.note(at, "no instance holds the lease"),
                Capture::Starting => self.note(at, format!("lease held, term {}", sample.term)),
            }
        }
        let handoffs = sample.handoffs();
        // Rates are over the last second: shorter ones flicker.
        let before = self.points.iter().rev().find(|p| p.at + Duration::from_secs(1) <= at);
        let before = before.or(self.points.first()).copied().unwrap_or_default();
        let span = (at.saturating_sub(before.at)).as_secs_f64().max(0.2);
        self.points.push(Point {
            at,
            progress,
            rows,
            handoffs,
            rows_per_second: (rows - before.rows) as f64 / span,
            handoffs_per_second: if sample.counted == self.sample.counted {
                self.now().handoffs_per_second
            } else {
                (handoffs - before.handoffs) as f64 / span
            },
            lag: sample.lag,
            capture: sample.capture,
        });
        self.sample = sample;
    }

    #[must_use]
    pub fn now(&self) -> Point {
        self.points.last().copied().unwrap_or_default()
    }

    /// Births that are committed and whose handoff is not.
    #[must_use]
    pub fn in_flight(&self) -> i64 {
        (self.sample.births - self.sample.born()).max(0)
    }

    /// The run cut into `cells`; a cell without a point of its own repeats the one before it.
    #[must_use]
    pub fn cells(&self, cells: usize) -> Vec<Point> {
        let reached = (self.now().progress.min(1.0) * cells as f64).ceil() as usize;
        let mut out: Vec<Point> = Vec::with_capacity(reached);
        let mut points = self.points.iter().peekable();
        let mut last = Point::default();
        for cell in 0..reached {
            let end = (cell + 1) as f64 / cells as f64;
            let mut worst: Option<Point> = None;
            while let Some(point) = points.next_if(|p| p.progress < end) {
                // What went wrong in a cell must not be hidden by what went right in it.
                let lag = |p: &Point| p.lag.map_or(0.0, |l| l.1);
                worst = Some(match worst {
                    Some(w) if lag(&w) > lag(point) => Point { capture: point.capture, ..w },
                    _ => *point,
                });
            }
            last = worst.unwrap_or(last);
            out.push(last);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_cover_what_is_over_and_repeat_what_they_lack() {
        let mut board = Board::new(String::new());
        for (i, progress) in [0.0, 0.1, 0.5].into_iter().enumerate() {
            board.update(Duration::from_secs(i as u64), progress, 100 * i as i64, Sample::default());
        }
        let cells = board.cells(10);
        assert_eq!(cells.len(), 5);
        assert_eq!(cells[1].rows, 100);
        assert_eq!(cells[4].rows, 100);
    }
}
