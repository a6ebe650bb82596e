//! What the sections share: marks, tables, commands, times.

use super::html::{Html, all, tag};
use crate::core::plain;
use crate::core::standing::State;

/// A state as a sign and a word: never by its colour alone.
pub fn mark(state: State) -> Html {
    marked(state, state.word())
}

/// The same for a word that is more exact than the state, such as `silent`.
pub fn marked(state: State, word: &str) -> Html {
    tag("span").class(format!("mark {}", class(state))).put(sign(state)).put(tag("span").put(word)).into()
}

pub fn class(state: State) -> &'static str {
    match state {
        State::Ok => "ok",
        State::Wrong => "wrong",
        State::Off => "off",
        State::CannotTell => "unknown",
    }
}

/// A tick, a cross, two bars or a question mark, each in a shape of its own.
pub fn sign(state: State) -> Html {
    let drawing = match state {
        State::Ok => r#"<circle cx="10" cy="10" r="9"/><path d="M5.8 10.4l2.8 2.8 5.6-6"/>"#,
        State::Wrong => {
            r#"<path class="body" d="M6.3 1h7.4L19 6.3v7.4L13.7 19H6.3L1 13.7V6.3z"/><path d="M6.8 6.8l6.4 6.4M13.2 6.8l-6.4 6.4"/>"#
        }
        State::Off => r#"<rect x="1" y="1" width="18" height="18" rx="5"/><path d="M7.6 6v8M12.4 6v8"/>"#,
        State::CannotTell => {
            r#"<path class="body" d="M10 1l9 9-9 9-9-9z"/><path d="M7.9 8c0-1.3.9-2.1 2.1-2.1s2.1.8 2.1 1.9c0 1.6-2.1 1.7-2.1 3.3M10 13.6v.6"/>"#
        }
    };
    let svg = tag("svg").class("sign").with("viewBox", "0 0 20 20");
    svg.with("aria-hidden", "true").with("focusable", "false").put(Html::raw(drawing)).into()
}

/// A section with a heading that screen readers find.
pub fn section(id: &'static str, title: &str, note: &str, body: Html) -> Html {
    let heading = format!("{id}-title");
    let note = (!note.is_empty()).then(|| tag("p").class("note").put(note));
    let head = tag("div").class("head").put(tag("h2").id(&heading).put(title)).put(note);
    let section =
        tag("section").class("card").id(id).with("aria-labelledby", &heading).with("tabindex", "-1");
    section.put(head).put(body).into()
}

/// A column: its name, and whether it holds numbers.
pub type Heading = (&'static str, bool);

/// A table that becomes a list of cards on a narrow screen. The roles are given because a browser forgets them when a table is no
/// longer laid out as one.
pub fn table(caption: &str, columns: &[Heading], rows: impl IntoIterator<Item = Vec<Html>>) -> Html {
    let number = |number: bool| if number { "n" } else { "t" };
    let names = columns.iter().map(|(name, n)| {
        tag("th").with("role", "columnheader").with("scope", "col").class(number(*n)).put(*name)
    });
    let row = |cells: Vec<Html>| {
        let cell = |(place, (cell, (name, n))): (usize, (Html, &Heading))| {
            let cell_of = if place == 0 {
                tag("th").with("role", "rowheader").with("scope", "row")
            } else {
                tag("td").with("role", "cell").class(number(*n))
            };
            cell_of.with("data-l", name).put(cell)
        };
        tag("tr").with("role", "row").put(all(cells.into_iter().zip(columns).enumerate().map(cell)))
    };
    tag("table")
        .with("role", "table")
        .put(tag("caption").put(caption))
        .put(tag("thead").with("role", "rowgroup").put(tag("tr").with("role", "row").put(all(names))))
        .put(tag("tbody").with("role", "rowgroup").put(all(rows.into_iter().map(row))))
        .into()
}

/// A bar as long as a share of a hundred.
pub fn bar(share: f64) -> Html {
    let track = |class: &str, width: &str| tag("rect").class(class).with("width", width).with("height", "4");
    let svg = tag("svg").class("bar").with("viewBox", "0 0 100 4").with("preserveAspectRatio", "none");
    svg.with("aria-hidden", "true")
        .put(track("track", "100"))
        .put(track("fill", &format!("{share:.1}")))
        .into()
}

pub fn code(text: &str) -> Html {
    tag("code").put(text).into()
}

/// For identifiers that are long and seldom read.
pub fn long(text: &str) -> Html {
    tag("code").class("long").put(text).into()
}

pub fn note(text: impl Into<Html>) -> Html {
    tag("span").class("note").put(text).into()
}

pub fn count(n: i64) -> Html {
    plain::count(n).into()
}

/// A count, `10,000+` if it stopped there.
pub fn at_least(n: i64, more: bool) -> String {
    plain::count(n) + if more { "+" } else { "" }
}

pub fn maybe(text: Option<&str>) -> Html {
    text.map_or_else(nothing, Html::from)
}

pub fn maybe_count(n: Option<i64>) -> Html {
    n.map_or_else(nothing, count)
}

/// A dash, which a screen reader says in words.
pub fn nothing() -> Html {
    let dash = tag("span").with("aria-hidden", "true").put("–");
    tag("span").class("none").put(dash).put(tag("span").class("sr").put("none")).into()
}

pub fn age(seconds: Option<f64>) -> Html {
    seconds.map_or_else(nothing, |seconds| plain::age(seconds).into())
}

pub fn ago(seconds: Option<f64>) -> Html {
    seconds.map_or_else(nothing, |seconds| (plain::age(seconds) + " ago").into())
}

pub fn time(at: Option<&str>) -> Html {
    at.map_or_else(nothing, |at| tag("time").with("datetime", at).put(plain::time(at)).into())
}

/// A command to copy.
pub fn command(line: &str) -> Html {
    tag("div").class("cmd").put(code(line)).into()
}

pub fn empty(sentence: &str) -> Html {
    tag("p").class("empty").put(sentence).into()
}
