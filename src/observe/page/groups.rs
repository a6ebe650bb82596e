//! Groups that are to be scanned, and the verdicts of those that were.

use super::html::{Html, all, tag};
use super::parts::{self, Heading};
use crate::core::plain;
use crate::store::overview::{Coverage, DirtyGroup, Overview};

const COLUMNS: [Heading; 5] = [
    ("Group", false),
    ("Because", false),
    ("Dirty since", false),
    ("Members", true),
    ("Last verdict", false),
];

pub fn section(board: &Overview) -> Html {
    let dirty = board.status.dirty_groups;
    let note = format!("{} dirty", parts::at_least(dirty, dirty >= 10_000));
    let verdicts = |measure: &str| board.coverage.iter().filter(|c| c.measure == measure).collect::<Vec<_>>();
    let (groups, objects) = (verdicts("group_verdict"), verdicts("object_verdict"));
    let unjudged = groups.is_empty() && objects.is_empty();
    let waiting = if board.dirty.is_empty() {
        parts::empty("No group waits to be scanned.")
    } else {
        parts::table("Some of the dirty groups", &COLUMNS, board.dirty.iter().map(row))
            .and(parts::command("gov-handoff groups --dirty"))
    };
    let body = Html::from(unjudged.then(|| parts::empty("Nothing has been judged yet.")))
        .and(shares("Groups", &groups))
        .and(shares("Objects", &objects))
        .and(waiting);
    parts::section("groups", "Groups and verdicts", &note, body)
}

fn row(group: &DirtyGroup) -> Vec<Html> {
    vec![
        parts::long(&group.group),
        parts::maybe(group.reason.as_deref()),
        parts::time(group.since.as_deref()),
        parts::maybe_count(group.members),
        parts::maybe(group.verdict.as_deref()),
    ]
}

/// A bar for each verdict, as long as its share.
fn shares(name: &str, verdicts: &[&Coverage]) -> Option<Html> {
    let total: i64 = verdicts.iter().map(|c| c.count.max(0)).sum();
    #[allow(clippy::cast_precision_loss)] // A share for people.
    let share = |n: i64| n.max(0) as f64 / total as f64 * 100.0;
    let one = |c: &&Coverage| {
        tag("li")
            .put(tag("span").class("name").put(&c.class))
            .put(parts::bar(share(c.count)))
            .put(tag("span").class("n").put(plain::count(c.count)))
    };
    let list =
        || Html::from(tag("h3").put(name)).and(tag("ul").class("shares").put(all(verdicts.iter().map(one))));
    (total > 0).then(list)
}
