//! Queries the database on behalf of HTTP clients: one query at a time, an answer that is kept for a second, and one
//! session that is opened again when it is lost. However many clients ask or hang up, the server sees one session with
//! one statement.

use crate::config::Config;
use crate::core::standing::Verdict;
use crate::error::{Error, Kind, Result};
use crate::observe::api::{self, Instance};
use crate::observe::families::Own;
use crate::observe::history::History;
use crate::observe::page::{self, View};
use crate::observe::{families, health};
use crate::pulse;
use crate::store::overview::Overview;
use crate::store::worker::FamilyMember;
use crate::store::{Session, connect, role};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use tokio::time::MissedTickBehavior;

/// The time limit of a statement. A look takes a few milliseconds; if it takes longer, the server is in trouble.
const STATEMENT: Duration = Duration::from_secs(2);
/// The time limit of a look, including opening a session. Scrapers give up after ten seconds.
const LOOK: Duration = Duration::from_secs(4);
/// How long an answer is kept, an error as well: a server that answers slowly or not at all is not asked for every request.
const FRESH: Duration = Duration::from_secs(1);
/// How often a look is taken for the charts while nobody asks.
const SAMPLE: Duration = Duration::from_secs(10);
/// How many requests may wait for an answer.
const WAITING: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    Metrics,
    Health,
    Page,
    Status,
}

/// `Err`: why there is no answer, or what is wrong. In one line for metrics and health; the page and the status say it in their own
/// form.
pub type Answer = std::result::Result<Arc<str>, Arc<str>>;

type Ask = (Question, oneshot::Sender<Answer>);

/// Adds the workers that have never ticked, of which the database knows nothing.
pub type Complete = fn(&Config, &mut Vec<FamilyMember>);

/// A session that looks on.
pub async fn open(config: &Config) -> Result<Session<role::Onlooker>> {
    connect::open_observer_within(&config.target, "gov-handoff metrics", STATEMENT).await
}

/// The handle through which requests are asked.
#[derive(Clone)]
pub struct Observer {
    questions: mpsc::Sender<Ask>,
}

impl Observer {
    /// Starts the task that answers. The task belongs to no request: a client that hangs up leaves no session and no
    /// statement behind.
    pub fn start(config: Config, complete: Complete) -> Self {
        let (questions, asked) = mpsc::channel(WAITING);
        tokio::spawn(answer_all(Desk::new(config, complete), asked));
        Self { questions }
    }

    pub async fn ask(&self, question: Question) -> Answer {
        let (reply, answer) = oneshot::channel();
        if self.questions.try_send((question, reply)).is_err() {
            return Err(format!("{WAITING} others wait for an answer already; ask again later").into());
        }
        answer.await.unwrap_or_else(|_| Err("nobody is left to answer".into()))
    }
}

/// Requests come first; the charts get a sample when there is time.
async fn answer_all(mut desk: Desk, mut asked: mpsc::Receiver<Ask>) {
    let mut due = tokio::time::interval(SAMPLE);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            question = asked.recv() => {
                let Some((question, reply)) = question else { return };
                // No look at the server for a client that has hung up meanwhile.
                if !reply.is_closed() {
                    let _ = reply.send(desk.answer(question).await);
                }
            }
            _ = due.tick() => desk.sample().await,
        }
    }
}

struct Desk {
    config: Config,
    complete: Complete,
    session: Option<Session<role::Onlooker>>,
    metrics: Option<(Instant, Answer)>,
    health: Option<(Instant, Answer)>,
    /// The page and the status, made of the same look.
    shown: Option<(Instant, [Answer; 2])>,
    /// The last look for them that succeeded.
    board: Option<(Overview, Verdict)>,
    history: History,
    /// How many looks failed.
    failed: u64,
}

impl Desk {
    fn new(config: Config, complete: Complete) -> Self {
        let history = History::default();
        Self {
            config,
            complete,
            session: None,
            metrics: None,
            health: None,
            shown: None,
            board: None,
            history,
            failed: 0,
        }
    }

    async fn answer(&mut self, question: Question) -> Answer {
        if let Some(known) = self.known(question) {
            return known;
        }
        match question {
            Question::Metrics => {
                let answer = self.within(Self::metrics).await.map(Arc::from);
                self.metrics.insert((Instant::now(), answer)).1.clone()
            }
            Question::Health => {
                let answer = match self.within(Self::health).await {
                    Ok(said) => said.map(Arc::from).map_err(Arc::from),
                    Err(why) => Err(why),
                };
                self.health.insert((Instant::now(), answer)).1.clone()
            }
            Question::Page | Question::Status => {
                let [page, status] = self.show().await;
                if question == Question::Page { page } else { status }
            }
        }
    }

    /// An answer that is fresh enough to be given again.
    fn known(&self, question: Question) -> Option<Answer> {
        let fresh = |at: &Instant| at.elapsed() < FRESH;
        let kept = |kept: &Option<(Instant, Answer)>| {
            kept.as_ref().filter(|(at, _)| fresh(at)).map(|(_, a)| a.clone())
        };
        match question {
            Question::Metrics => kept(&self.metrics),
            Question::Health => kept(&self.health),
            Question::Page | Question::Status => {
                let place = usize::from(question == Question::Status);
                self.shown.as_ref().filter(|(at, _)| fresh(at)).map(|(_, both)| both[place].clone())
            }
        }
    }

    /// For the charts. A sample that fails costs no more than itself: the next request is told the reason.
    async fn sample(&mut self) {
        if self.shown.as_ref().is_none_or(|(at, _)| at.elapsed() >= SAMPLE / 2) {
            let _ = self.show().await;
        }
    }

    /// Takes a look and makes page and status of it. If that fails, both say so above what was last known.
    async fn show(&mut self) -> [Answer; 2] {
        let error = match self.within(Self::board).await {
            Ok(board) => {
                let verdict = board.status.verdict(&self.config.worker);
                self.history.note(&board, Instant::now());
                self.board = Some((board, verdict));
                None
            }
            Err(why) => Some(why),
        };
        let instance = Instance::of(&pulse::seen());
        let blind = error.as_deref().map(api::blind);
        let (board, verdict) = match (&self.board, &blind) {
            (board, Some(blind)) => (board.as_ref().map(|(board, _)| board), blind),
            (Some((board, verdict)), None) => (Some(board), verdict),
            (None, None) => (None, &api::blind("there was no look yet")),
        };
        let error = error.as_deref();
        let view = View { board, error, verdict, history: &self.history, instance: &instance };
        let page: Arc<str> = page::page(&view).into();
        let status: Arc<str> = api::answer(board, error, verdict, &self.history, &instance).into();
        let both = if error.is_some() { [Err(page), Err(status)] } else { [Ok(page), Ok(status)] };
        self.shown.insert((Instant::now(), both)).1.clone()
    }

    /// A look, within its time. A session may have broken while it was idle. That says nothing about the server now, so the look is
    /// repeated on a new session.
    async fn within<T>(
        &mut self,
        look: impl AsyncFn(&Self, &Session<role::Onlooker>) -> Result<T>,
    ) -> std::result::Result<T, Arc<str>> {
        let session = self.session.take_if(|session| !session.is_closed());
        let looked = async {
            if let Some(session) = session {
                match look(self, &session).await {
                    Err(e) if e.kind == Kind::Connection => {}
                    answered => return answered.map(|answer| (answer, session)),
                }
            }
            let session = open(&self.config).await?;
            look(self, &session).await.map(|answer| (answer, session))
        };
        match tokio::time::timeout(LOOK, looked).await {
            Ok(Ok((answer, session))) => {
                self.session = Some(session);
                Ok(answer)
            }
            Ok(Err(e)) => Err(self.give_up(&e)),
            Err(_) => Err(self.give_up(&Error::new(
                Kind::Connection,
                format!("the database did not answer within {} s", LOOK.as_secs()),
            ))),
        }
    }

    /// A session that failed is not used again: an answer may still be on its way.
    fn give_up(&mut self, e: &Error) -> Arc<str> {
        self.session = None;
        self.failed += 1;
        tracing::debug!(error = %e.told(), "could not look");
        e.told().to_string().replace('\n', " ").into()
    }

    async fn metrics(&self, session: &Session<role::Onlooker>) -> Result<String> {
        exposition(session, &self.config, self.failed).await
    }

    async fn health(&self, session: &Session<role::Onlooker>) -> Result<std::result::Result<String, String>> {
        let reading = session.worker_reading(&self.config.worker).await?;
        Ok(health::verdict(&self.config.worker, reading.as_ref()))
    }

    async fn board(&self, session: &Session<role::Onlooker>) -> Result<Overview> {
        let config = &self.config;
        let mut board = session.overview(&config.worker, &config.slot, config.audit_every).await?;
        (self.complete)(config, &mut board.status.workers);
        Ok(board)
    }
}

/// One scrape. `failed`: how many looks failed before.
pub async fn exposition(session: &Session<role::Onlooker>, config: &Config, failed: u64) -> Result<String> {
    let begun = Instant::now();
    let reading = session.metrics(&config.worker, &config.slot).await?;
    let own = Own { looked: begun.elapsed(), failed, loops: pulse::seen() };
    Ok(families::exposition(&reading, &own))
}
