//! The page: HTML made here, one file per section. It needs no script and no other file; every text from the database is escaped by
//! the [writer](html). A small script, if the browser runs it, replaces what changed and adds buttons that copy commands.

mod certificates;
mod charts;
mod family;
mod feed;
mod findings;
mod groups;
mod html;
mod instance;
mod jobs;
mod letters;
mod modes;
mod parts;
mod sources;
mod verdict;

use crate::core::standing::Verdict;
use crate::observe::api::Instance;
use crate::observe::history::History;
use crate::observe::http::guard::to_base64;
use crate::store::overview::Overview;
use html::{Html, all, tag};
use sha2::{Digest, Sha256};
use std::sync::LazyLock;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");
/// How often a browser without script loads the page again, in seconds.
const AGAIN: &str = "15";

/// What the page is made of.
pub struct View<'a> {
    /// The last look that succeeded.
    pub board: Option<&'a Overview>,
    /// Why there is no newer one.
    pub error: Option<&'a str>,
    pub verdict: &'a Verdict,
    pub history: &'a History,
    pub instance: &'a Instance,
}

/// Allows exactly this style and this script, and nothing from anywhere.
pub static POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = |text: &str| to_base64(&Sha256::digest(text.as_bytes()));
    format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; connect-src 'self'; img-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
        hash(STYLE),
        hash(SCRIPT)
    )
});

/// A sheet with a tick, so that the browser asks for no icon.
const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Crect width='16' height='16' \
                    rx='3' fill='%232f6f5e'/%3E%3Cpath d='M4 8.5l2.7 2.7L12 5.5' fill='none' stroke='white' stroke-width='2'/%3E%3C/svg%3E";

const SECTIONS: [(&str, &str); 8] = [
    ("#findings", "Findings"),
    ("#sources", "Sources"),
    ("#workers", "Workers"),
    ("#groups", "Groups"),
    ("#feed", "Feed"),
    ("#jobs", "Jobs"),
    ("#letters", "Dead letters"),
    ("#certificates", "Certificates"),
];

pub fn page(view: &View<'_>) -> String {
    let content = tag("main")
        .id("live")
        .put(verdict::section(view))
        .put(view.board.map(|board| sections(board, view.history)))
        .put(instance::section(view));
    let body = tag("body")
        .put(tag("a").class("skip").with("href", "#verdict").put("Skip to the verdict"))
        .put(header(view.board))
        .put(content)
        .put(footer())
        .put(tag("script").put(Html::raw(SCRIPT)));
    Html::raw("<!DOCTYPE html>").and(tag("html").with("lang", "en").put(head(view)).put(body)).into_string()
}

fn head(view: &View<'_>) -> Html {
    let about = view.board.map_or("gov-handoff", |board| &board.database);
    let meta = |name: &str, content: &str| tag("meta").with("name", name).with("content", content);
    tag("head")
        .put(tag("meta").with("charset", "utf-8"))
        .put(meta("viewport", "width=device-width, initial-scale=1"))
        .put(meta("color-scheme", "light dark"))
        .put(tag("title").put(format!("{}: {about} · gov-handoff", view.verdict.state.word())))
        .put(tag("link").with("rel", "icon").with("href", ICON))
        .put(tag("noscript").put(tag("meta").with("http-equiv", "refresh").with("content", AGAIN)))
        .put(tag("style").put(Html::raw(STYLE)))
        .into()
}

fn header(board: Option<&Overview>) -> Html {
    let place =
        board.map(|b| tag("span").class("where").put(format!("{} · PostgreSQL {}", b.database, b.server)));
    let links = SECTIONS.map(|(to, name)| tag("li").put(tag("a").with("href", to).put(name)));
    tag("header")
        .put(tag("p").class("brand").put(tag("strong").put("gov-handoff")).put(place))
        .put(tag("nav").with("aria-label", "Sections").put(tag("ul").put(all(links))))
        .into()
}

fn sections(board: &Overview, history: &History) -> Html {
    // Tables with keys of rows need the whole width.
    let pair = |one: Html, other: Html| tag("div").class("pair").put(one).put(other);
    findings::section(board)
        .and(charts::section(history))
        .and(sources::section(board))
        .and(family::section(board))
        .and(groups::section(board))
        .and(jobs::section(board))
        .and(pair(modes::section(board), feed::section(board)))
        .and(letters::section(board))
        .and(certificates::section(board))
}

fn footer() -> Html {
    let link = |to: &'static str| tag("a").with("href", to).put(to);
    tag("footer")
        .put(
            tag("p")
                .put("This page reads bounded views and changes nothing. The same as JSON: ")
                .put(link("/api/status"))
                .put(", for Prometheus: ")
                .put(link("/metrics"))
                .put("."),
        )
        .into()
}
