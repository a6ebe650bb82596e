//! The event feed and its readers.

use super::html::{Html, tag};
use super::parts::{self, Heading};
use crate::core::plain;
use crate::store::overview::{Feed, Overview, ReaderMark};

const COLUMNS: [Heading; 5] =
    [("Reader", false), ("Stream", false), ("Watermark", true), ("Above it", true), ("Moved", false)];

pub fn section(board: &Overview) -> Html {
    let readers = if board.readers.is_empty() {
        parts::empty("No reader has a watermark yet.")
    } else {
        parts::table(
            "Readers with most events above their watermark",
            &COLUMNS,
            board.readers.iter().map(row),
        )
    };
    let body = Html::from(board.feed.as_ref().map(bounds)).and(readers);
    parts::section(
        "feed",
        "Feed and unread",
        "",
        body.and(parts::command("gov-handoff events tail --limit 20")),
    )
}

fn bounds(feed: &Feed) -> Html {
    let waiting = match feed.waiting {
        0 => "; no event waits for one.".to_owned(),
        1 => "; 1 event waits for one.".to_owned(),
        n => format!("; {} events wait for one.", parts::at_least(n, n >= 10_000)),
    };
    let removed = (feed.removed_through > 0)
        .then(|| format!(" Retention removed positions up to {}.", plain::count(feed.removed_through)));
    let last = tag("strong").put(plain::count(feed.last));
    tag("p").put("The last position is ").put(last).put(waiting).put(removed).into()
}

fn row(reader: &ReaderMark) -> Vec<Html> {
    vec![
        parts::code(&reader.actor),
        format!("{} / {}", reader.domain, reader.stream).into(),
        parts::count(reader.through),
        parts::at_least(reader.above, reader.at_least).into(),
        parts::time(reader.updated_at.as_deref()),
    ]
}
