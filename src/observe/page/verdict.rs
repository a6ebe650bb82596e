//! The verdict in large, and the figures that an operator looks at first.

use super::html::{Html, tag};
use super::{View, parts};
use crate::core::plain;
use crate::core::standing::State;
use crate::store::overview::Overview;
use crate::store::status::WorkerStatus;

pub fn section(view: &View<'_>) -> Html {
    let (verdict, state) = (view.verdict, view.verdict.state);
    let since = verdict.since.as_deref();
    let old = view.board.filter(|_| view.error.is_some()).map(|board| {
        let at = parts::time(Some(&board.taken_at));
        tag("p").class("since").put("What follows was read at ").put(at).put(" and may be out of date.")
    });
    let words = tag("div")
        .put(tag("h1").id("state").put(title(state)))
        .put(tag("p").class("sentence").put(verdict.sentence.trim_end_matches('.')).put("."))
        .put(since.map(|_| tag("p").class("since").put("Since ").put(parts::time(since))))
        .put(old);
    let large = tag("div").class("large").put(parts::sign(state)).put(words);
    let card = tag("section").id("verdict").class(format!("card verdict {}", parts::class(state)));
    let card =
        card.with("aria-labelledby", "state").with("tabindex", "-1").put(large).put(view.board.map(figures));
    // Said only when the state changes: a whole page that is read again at every look would be noise.
    let announced = tag("p").class("sr").with("role", "status").id("announce").put(title(state));
    Html::from(card).and(announced)
}

fn title(state: State) -> &'static str {
    match state {
        State::Ok => "Ok",
        State::Wrong => "Wrong",
        State::Off => "Off on purpose",
        State::CannotTell => "Cannot tell",
    }
}

fn figures(board: &Overview) -> Html {
    let status = &board.status;
    let worker = status.worker.as_ref();
    let holder = worker.filter(|worker| worker.alive);
    let waiting = status.captured_waiting + status.retrying;
    let (name, day) = complete_through(board);
    let list = tag("dl")
        .class("figures")
        .put(figure("Complete through", name, day))
        .put(figure("Mode", mode(holder), pace(holder)))
        .put(lag(worker))
        .put(slot(board))
        .put(figure(
            "Waiting",
            parts::at_least(waiting, status.at_least),
            format!("{} to be retried", plain::count(status.retrying)),
        ))
        .put(figure(
            "Jobs ready",
            parts::at_least(status.jobs.ready, status.jobs.at_least),
            format!("{} overdue", plain::count(status.jobs.overdue)),
        ))
        .put(figure(
            "Dead letters",
            parts::count(status.dead_letters + status.jobs.dead_letters),
            "rows and jobs",
        ))
        .put(figure("Findings", parts::count(status.open_findings), "open"));
    let because = |name: &str, text: &str| tag("p").class("because").put(tag("strong").put(name)).put(text);
    let reason = holder.and_then(|worker| worker.reason.as_deref());
    let held = status.frontier_held_back_by.as_deref();
    Html::from(list)
        .and(reason.map(|reason| because("Mode, because: ", reason)))
        .and(held.map(|held| because("The frontier is held back by: ", held)))
}

fn figure(name: &str, value: impl Into<Html>, under: impl Into<Html>) -> Html {
    let value = tag("dd").put(tag("strong").put(value)).put(tag("span").put(under));
    tag("div").put(tag("dt").put(name)).put(value).into()
}

/// The source that is behind most.
fn complete_through(board: &Overview) -> (Html, String) {
    let times: Option<Vec<_>> = board.status.sources.iter().map(|s| s.complete_through.as_deref()).collect();
    match times.and_then(|times| times.into_iter().min()) {
        Some(at) => {
            let day = at.split('T').next().unwrap_or_default();
            (tag("time").with("datetime", at).put(plain::clock(at)).into(), format!("{day} UTC"))
        }
        None => ("not yet".into(), "a source has no certificate".to_owned()),
    }
}

fn mode(holder: Option<&WorkerStatus>) -> String {
    holder.map_or("none", |worker| worker.mode.as_deref().unwrap_or("starting")).to_owned()
}

fn pace(holder: Option<&WorkerStatus>) -> String {
    match holder {
        Some(worker) => worker.pace.clone().unwrap_or_else(|| "at full pace".to_owned()),
        None => "nobody holds the lease".to_owned(),
    }
}

fn lag(worker: Option<&WorkerStatus>) -> Html {
    let ticked = worker.map(|worker| format!("ticked {} ago", plain::age(worker.tick_age_seconds)));
    figure("Lag", parts::age(worker.and_then(|worker| worker.lag_seconds)), ticked)
}

/// The slot against its budget, as a bar with its words.
fn slot(board: &Overview) -> Html {
    let Some(stream) = &board.status.stream else { return figure("Slot", "none", "the tables are read") };
    let kept = stream.retained_bytes.unwrap_or(0);
    let Some(budget) = stream.budget_bytes.filter(|budget| *budget > 0) else {
        return figure("Slot", plain::bytes(kept), "kept, no budget reported");
    };
    #[allow(clippy::cast_precision_loss)] // A share for people.
    let share = (kept as f64 / budget as f64 * 100.0).clamp(0.0, 100.0);
    let unread = if stream.active { "" } else { ", not read" };
    let full =
        stream.seconds_to_budget.map_or_else(String::new, |left| format!(", full in {}", plain::age(left)));
    let words = format!("{} of {}{unread}{full}", plain::bytes(kept), plain::bytes(budget));
    figure("Slot", format!("{} %", plain::number(share)), Html::from(words).and(parts::bar(share)))
}
