//! Jobs by lane, executors, and jobs whose deadline has passed.

use super::html::{Html, all, tag};
use super::parts::{self, Heading};
use crate::core::plain;
use crate::core::standing::State;
use crate::store::job_lanes::{ExecutorHealth, JobLane};
use crate::store::overview::{OverdueJob, Overview};
use crate::store::status::JobsStatus;

/// How many lanes and executors are shown; the API has more.
const SHOWN: usize = 10;

const LANES: [Heading; 6] = [
    ("Kind", false),
    ("Domain", false),
    ("Executor", false),
    ("Priority", true),
    ("Ready", true),
    ("Oldest", true),
];
const OVERDUE: [Heading; 5] =
    [("Job", false), ("State", false), ("Kind", false), ("Executor", false), ("Deadline", false)];
const EXECUTORS: [Heading; 6] = [
    ("Executor", false),
    ("State", false),
    ("Kind", false),
    ("Running", true),
    ("Finished", true),
    ("Rescued", true),
];

pub fn section(board: &Overview) -> Html {
    let jobs = &board.status.jobs;
    let note = format!("{} ready", parts::at_least(jobs.ready, jobs.at_least));
    let overdue = (!board.overdue.is_empty()).then(|| {
        parts::table(
            "Some of the jobs whose deadline has passed",
            &OVERDUE,
            board.overdue.iter().map(overdue),
        )
    });
    let lanes = if board.lanes.is_empty() {
        parts::empty("No job is ready.")
    } else {
        let few = board.lanes.iter().take(SHOWN).map(lane);
        parts::table("Lanes with ready jobs, the fullest first", &LANES, few)
            .and(more(board.lanes.len(), "lanes"))
    };
    let executors = (!board.executors.is_empty()).then(|| {
        let few = board.executors.iter().take(SHOWN).map(executor);
        parts::table("Executors and their subscriptions", &EXECUTORS, few)
            .and(more(board.executors.len(), "subscriptions"))
    });
    parts::section("jobs", "Jobs", &note, counts(jobs).and(overdue).and(lanes).and(executors))
}

fn counts(jobs: &JobsStatus) -> Html {
    let counts = [
        ("running", jobs.running),
        ("deferred", jobs.deferred),
        ("blocked", jobs.blocked),
        ("overdue", jobs.overdue),
        ("dead letters", jobs.dead_letters),
    ];
    let one =
        |(name, n): (&str, i64)| tag("li").put(tag("strong").put(plain::count(n))).put(format!(" {name}"));
    tag("ul").class("counts").put(all(counts.map(one))).into()
}

fn more(there: usize, of: &str) -> Option<Html> {
    (there > SHOWN).then(|| tag("p").class("note").put(format!("and {} more {of}", there - SHOWN)).into())
}

fn lane(lane: &JobLane) -> Vec<Html> {
    vec![
        parts::code(lane.kind.as_deref().unwrap_or("any")),
        parts::maybe(lane.domain.as_deref()),
        parts::maybe(lane.executor.as_deref()),
        parts::maybe(lane.priority.as_deref()),
        parts::at_least(lane.ready, lane.at_least).into(),
        parts::age(lane.oldest_seconds),
    ]
}

fn overdue(job: &OverdueJob) -> Vec<Html> {
    vec![
        parts::long(&job.job),
        parts::marked(State::Wrong, &job.state.as_deref().unwrap_or("overdue").replace('_', " ")),
        parts::maybe(job.kind.as_deref()),
        parts::maybe(job.executor.as_deref()),
        parts::time(job.deadline.as_deref()),
    ]
}

fn executor(executor: &ExecutorHealth) -> Vec<Html> {
    let state = match &executor.state[..] {
        "alive" => State::Ok,
        "silent" => State::Wrong,
        "disabled" => State::Off,
        _ => State::CannotTell,
    };
    let domain = executor.domain.as_ref().map(|domain| format!(" / {domain}"));
    let most = executor.most.map(|most| format!(" of {most}"));
    vec![
        parts::code(&executor.executor),
        parts::marked(state, &executor.state.replace('_', " ")),
        Html::from(executor.kind.as_deref().unwrap_or("any")).and(domain),
        parts::count(executor.running).and(most),
        parts::count(executor.finished),
        parts::count(executor.rescued),
    ]
}
