//! Queries the database on behalf of HTTP clients: one query at a time, an answer that is kept for a second, and one
//! session that is opened again when it is lost. However many clients ask or hang up, the server sees one session with
//! one statement.

use crate::config::Config;
use crate::error::{Error, Kind, Result};
use crate::observe::families::Own;
use crate::observe::{families, health};
use crate::pulse;
use crate::store::{Session, connect, role};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// The time limit of a statement. A look takes a few milliseconds; if it takes longer, the server is in trouble.
const STATEMENT: Duration = Duration::from_secs(2);
/// The time limit of a look, including opening a session. Scrapers give up after ten seconds.
const LOOK: Duration = Duration::from_secs(4);
/// How long an answer is kept, an error as well: a server that answers slowly or not at all is not asked for every request.
const FRESH: Duration = Duration::from_secs(1);
/// How many requests may wait for an answer.
const WAITING: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    Metrics,
    Health,
}

/// `Err`: why there is no answer, or what is wrong, in one line.
pub type Answer = std::result::Result<String, String>;

type Ask = (Question, oneshot::Sender<Answer>);

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
    pub fn start(config: Config) -> Self {
        let (questions, asked) = mpsc::channel(WAITING);
        tokio::spawn(answer_all(
            Desk { config, session: None, metrics: None, health: None, failed: 0 },
            asked,
        ));
        Self { questions }
    }

    pub async fn ask(&self, question: Question) -> Answer {
        let (reply, answer) = oneshot::channel();
        if self.questions.try_send((question, reply)).is_err() {
            return Err(format!("{WAITING} others wait for an answer already; ask again later"));
        }
        answer.await.unwrap_or_else(|_| Err("nobody is left to answer".to_owned()))
    }
}

async fn answer_all(mut desk: Desk, mut asked: mpsc::Receiver<Ask>) {
    while let Some((question, reply)) = asked.recv().await {
        // No look at the server for a client that has hung up meanwhile.
        if !reply.is_closed() {
            let _ = reply.send(desk.answer(question).await);
        }
    }
}

struct Desk {
    config: Config,
    session: Option<Session<role::Onlooker>>,
    metrics: Option<(Instant, Answer)>,
    health: Option<(Instant, Answer)>,
    /// How many looks failed.
    failed: u64,
}

impl Desk {
    async fn answer(&mut self, question: Question) -> Answer {
        let known = if question == Question::Metrics { &self.metrics } else { &self.health };
        if let Some((at, answer)) = known
            && at.elapsed() < FRESH
        {
            return answer.clone();
        }
        let answer = match tokio::time::timeout(LOOK, self.look(question)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(e)) => self.give_up(e),
            Err(_) => self.give_up(Error::new(
                Kind::Connection,
                format!("the database did not answer within {} s", LOOK.as_secs()),
            )),
        };
        let known = if question == Question::Metrics { &mut self.metrics } else { &mut self.health };
        known.insert((Instant::now(), answer)).1.clone()
    }

    /// A session that failed is not used again: an answer may still be on its way.
    fn give_up(&mut self, e: Error) -> Answer {
        self.session = None;
        self.failed += 1;
        tracing::debug!(error = %e.told(), "could not look");
        Err(e.told().to_string().replace('\n', " "))
    }

    async fn look(&mut self, question: Question) -> Result<Answer> {
        // A session may have broken while it was idle. That says nothing about the server now, so the look is repeated
        // on a new session.
        if let Some(session) = self.session.take_if(|s| !s.is_closed()) {
            match ask(&session, &self.config, question, self.failed).await {
                Err(e) if e.kind == Kind::Connection => {}
                answered => {
                    self.session = Some(session);
                    return answered;
                }
            }
        }
        let session = open(&self.config).await?;
        let answered = ask(&session, &self.config, question, self.failed).await;
        self.session = Some(session);
        answered
    }
}

async fn ask(
    session: &Session<role::Onlooker>,
    config: &Config,
    question: Question,
    failed: u64,
) -> Result<Answer> {
    Ok(match question {
        Question::Metrics => Ok(exposition(session, config, failed).await?),
        Question::Health => {
            health::verdict(&config.worker, session.worker_reading(&config.worker).await?.as_ref())
        }
    })
}

/// One scrape. `failed`: how many looks failed before.
pub async fn exposition(session: &Session<role::Onlooker>, config: &Config, failed: u64) -> Result<String> {
    let begun = Instant::now();
    let reading = session.metrics(&config.worker, &config.slot).await?;
    let own = Own { looked: begun.elapsed(), failed, loops: pulse::seen() };
    Ok(families::exposition(&reading, &own))
}
