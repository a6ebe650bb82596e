//! One run of the demo: the script against the clock, the view, the wait for the last handoff.

use super::DemoCommand;
use super::board::Board;
use super::sample::{Capture, Sampler};
use super::screen::Screen;
use super::script::Scene;
use super::stage::{SLOT, Stage, connect};
use super::verdict::DemoVerdict;
use super::writers::{self, Tally};
use crate::error::{Error, Kind, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Rows a second, unless `--rows` asks for more in the same time.
const RATE: f64 = 600.0;
/// Five frames a second: fluent, and cheap enough not to be seen in the numbers.
const FRAME: Duration = Duration::from_millis(200);
/// How long the intake may take to hand off what was written last.
const PATIENCE: Duration = Duration::from_secs(30);
/// Taking the slot away races with a daemon that wants it back; it is won soon or never.
const STRUGGLE: Duration = Duration::from_secs(5);

pub struct Run<'a> {
    stage: &'a mut Stage,
    told: watch::Receiver<u32>,
    sampler: Sampler,
    screen: Screen,
    board: Board,
    tally: Arc<Tally>,
    writers: JoinSet<Result<()>>,
    begun: Instant,
    seconds: f64,
    rows: Option<u64>,
    /// The lease term of the daemon that was killed: what its heartbeat says is no longer true.
    dead_term: Option<i64>,
}

impl<'a> Run<'a> {
    pub async fn begin(
        command: &DemoCommand,
        stage: &'a mut Stage,
        told: watch::Receiver<u32>,
    ) -> Result<Self> {
        let url = stage.url();
        let mut sampler = Sampler::new(connect(&url, "demo view").await?);
        let deadline = Instant::now() + PATIENCE;
        let tally = Arc::new(Tally::default());
        let mut board = Board::new(format!("PostgreSQL {}, private, fsync on", stage.version()));
        loop {
            board.sample = sampler.take(&tally.births).await?;
            if board.sample.capture == Capture::Stream {
                break;
            }
            if let Some(status) = stage.daemon_ended() {
                return Err(Error::new(Kind::Internal, format!("the daemon ended ({status})")));
            }
            if Instant::now() > deadline || *told.borrow() > 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let seconds = command.seconds.max(1) as f64;
        let rate = command.rows.map_or(RATE, |rows| (rows as f64 / seconds).max(RATE));
        tally.limit.store(command.rows.unwrap_or(0), Ordering::Relaxed);
        Ok(Self {
            writers: writers::start(&url, rate, &tally).await?,
            stage,
            told,
            sampler,
            screen: Screen::new(command.plain),
            board,
            tally,
            begun: Instant::now(),
            seconds,
            rows: command.rows,
            dead_term: None,
        })
    }

    /// Plays the scenes until the time is up, the rows are written or the user presses Ctrl-C.
    pub async fn play(&mut self) -> Result<()> {
        self.note(Scene::Streaming.title());
        while self.progress() < 1.0 && *self.told.borrow() == 0 {
            let scene = Scene::at(self.progress());
            if scene != self.board.scene {
                self.board.scene = scene;
                self.enter(scene).await?;
            }
            self.refresh().await?;
            let _ = tokio::time::timeout(FRAME, self.told.changed()).await;
            if let Some(Ok(ended)) = self.writers.try_join_next() {
                ended?;
            }
        }
        Ok(())
    }

    /// Waits until everything that was written is handed off, and counts.
    pub async fn settle(mut self) -> Result<DemoVerdict> {
        self.tally.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.writers.join_next().await {
            ended.map_err(|e| Error::new(Kind::Internal, format!("a writer failed: {e}")))??;
        }
        // A run that was cut short may have left the slot's name taken; the daemon polls then, which is as good.
        let asked = *self.told.borrow();
        self.note("the writers are done, waiting for the last handoffs");
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.refresh().await?;
            let begun = Instant::now();
            let verdict = DemoVerdict::of(self.sampler.client()).await?;
            if verdict.missing == 0 || Instant::now() > deadline || *self.told.borrow() > asked {
                self.note(&format!("{} handoffs counted", verdict.handed_off));
                self.refresh().await?;
                return Ok(verdict);
            }
            tokio::time::sleep(begun.elapsed().max(FRAME)).await;
        }
    }

    async fn enter(&mut self, scene: Scene) -> Result<()> {
        self.note(scene.title());
        match scene {
            Scene::Streaming => {}
            Scene::SlotTaken => self.take_slot().await?,
            Scene::SlotBack => {
                self.sampler.client().execute(include_str!("sql/slot_drop.sql"), &[&SLOT]).await?;
            }
            Scene::Killed => {
                let pid = self.stage.daemon_pid().unwrap_or(0);
                self.stage.kill_daemon().await?;
                self.dead_term = Some(self.board.sample.term);
                self.note(&format!("process {pid} is dead"));
                self.stage.start_daemon()?;
            }
        }
        Ok(())
    }

    /// Ends the walsender, drops the slot and puts a physical one in its place, before the daemon has it back.
    async fn take_slot(&self) -> Result<()> {
        let client = self.sampler.client();
        let deadline = Instant::now() + STRUGGLE;
        loop {
            client.execute(include_str!("sql/slot_cut.sql"), &[&SLOT]).await?;
            let taken = match client.execute(include_str!("sql/slot_drop.sql"), &[&SLOT]).await {
                Ok(_) => client.execute(include_str!("sql/slot_occupy.sql"), &[&SLOT]).await.map(|_| ()),
                Err(e) => Err(e),
            };
            match taken {
                Ok(()) => return Ok(()),
                Err(e) if Instant::now() > deadline => return Err(Error::from(e).context("taking the slot")),
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    }

    async fn refresh(&mut self) -> Result<()> {
        let mut sample = self.sampler.take(&self.tally.births).await?;
        if self.stage.daemon_ended().is_some() || self.dead_term.is_some_and(|term| sample.term <= term) {
            sample.capture = Capture::Down;
        }
        let elapsed = self.begun.elapsed();
        self.board.clock = match self.rows {
            Some(rows) => format!("{} of {} rows", self.tally.rows().unsigned_abs().min(rows), rows),
            None => format!("{:.0} s of {:.0} s", elapsed.as_secs_f64().min(self.seconds), self.seconds),
        };
        self.board.update(elapsed, self.progress(), self.tally.rows(), sample);
        self.screen.show(&self.board);
        Ok(())
    }

    fn note(&mut self, text: &str) {
        self.board.note(self.begun.elapsed(), text);
    }

    fn progress(&self) -> f64 {
        match self.rows {
            Some(rows) => self.tally.rows() as f64 / rows.max(1) as f64,
            None => self.begun.elapsed().as_secs_f64() / self.seconds,
        }
    }
}
