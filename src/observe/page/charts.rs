//! Lag, rates and backlog over the last quarter of an hour, as small drawings made here. Each has its numbers in words beside it.

use super::html::{Html, Tag, all, tag};
use super::parts;
use crate::core::plain;
use crate::observe::history::{History, Line, Moment};

const WIDTH: f64 = 320.0;
const HEIGHT: f64 = 72.0;
/// The width stands for what is kept, and for these seconds at least.
const SHORTEST: f64 = 120.0;

/// A chart: a filled line, and perhaps a dashed one.
struct Chart<'a> {
    name: &'a str,
    unit: &'a str,
    first: (&'a str, Line),
    second: Option<(&'a str, Line)>,
}

#[allow(clippy::cast_precision_loss)] // Charts.
pub fn section(history: &History) -> Html {
    let level = |of: fn(&Moment) -> Option<f64>| history.level(of);
    let charts = [
        Chart { name: "Lag", unit: " s", first: ("lag", level(|s| s.lag_seconds)), second: None },
        Chart {
            name: "Rows a second",
            unit: "/s",
            first: ("rows read", history.rate(|s| s.rows)),
            second: Some(("signals recorded", history.rate(|s| s.signals))),
        },
        Chart {
            name: "Backlog",
            unit: "",
            first: ("signals waiting", level(|s| Some(s.waiting as f64))),
            second: Some(("dirty groups", level(|s| Some(s.dirty_groups as f64)))),
        },
        Chart {
            name: "Jobs",
            unit: "",
            first: ("ready", level(|s| Some(s.jobs_ready as f64))),
            second: Some(("running", level(|s| Some(s.jobs_running as f64)))),
        },
    ];
    let note = match history.samples().front() {
        Some(first) => {
            format!("From {} UTC on, at most 15 minutes, as this process saw it", plain::clock(&first.at))
        }
        None => "This process has not looked yet".to_owned(),
    };
    parts::section(
        "charts",
        "Over time",
        &note,
        tag("div").class("charts").put(all(charts.iter().map(draw))).into(),
    )
}

fn draw(chart: &Chart<'_>) -> Html {
    let highest = |line: &Line| line.iter().filter_map(|(_, value)| *value).fold(0.0, f64::max);
    let top = highest(&chart.first.1).max(chart.second.as_ref().map_or(0.0, |(_, line)| highest(line)));
    let told = |(name, line): &(&str, Line)| match line.last().and_then(|(_, value)| *value) {
        Some(now) => format!(
            "{name}: now {}{unit}, at most {}{unit}",
            plain::number(now),
            plain::number(highest(line)),
            unit = chart.unit
        ),
        None => format!("{name}: not known"),
    };
    let words: Vec<_> = [Some(&chart.first), chart.second.as_ref()].into_iter().flatten().map(told).collect();
    let now = chart.first.1.last().and_then(|(_, value)| *value);
    let shown = now.map_or_else(parts::nothing, |now| (plain::number(now) + chart.unit).into());
    let caption =
        tag("figcaption").put(tag("strong").put(chart.name)).put(tag("span").class("now").put(shown));
    let said = format!("{} over the last 15 minutes. {}", chart.name, words.join(". "));
    let legend = words.iter().zip(["whole", "dash"]).map(|(word, class)| tag("li").class(class).put(word));
    tag("figure")
        .put(caption)
        .put(drawing(chart, top).with("role", "img").with("aria-label", said))
        .put(tag("ul").class("legend").put(all(legend)))
        .into()
}

fn drawing(chart: &Chart<'_>, top: f64) -> Tag {
    let stroke = |class: &str, d: String| tag("path").class(class).with("d", d);
    let whole = pieces(&chart.first.1, top).into_iter();
    let whole =
        whole.map(|piece| Html::from(stroke("area", filled(&piece))).and(stroke("line", path(&piece))));
    let dashed = chart.second.iter().flat_map(|(_, line)| pieces(line, top));
    let base = tag("path").class("base").with("d", format!("M0 {:.0}H{WIDTH}", HEIGHT - 1.0));
    tag("svg")
        .class("chart")
        .with("viewBox", format!("0 0 {WIDTH} {HEIGHT}"))
        .with("preserveAspectRatio", "none")
        .put(base)
        .put(all(whole))
        .put(all(dashed.map(|piece| stroke("dashed", path(&piece)))))
}

/// The stretches of a line without an interruption, as points of the drawing.
fn pieces(line: &Line, top: f64) -> Vec<Vec<(f64, f64)>> {
    let longest = line.first().map_or(0.0, |(ago, _)| *ago).max(SHORTEST);
    let top = if top > 0.0 { top } else { 1.0 };
    let mut pieces = vec![Vec::new()];
    for (ago, value) in line {
        match value {
            Some(value) => {
                let x = WIDTH * (1.0 - ago / longest);
                let y = HEIGHT - 3.0 - (HEIGHT - 8.0) * (value / top).clamp(0.0, 1.0);
                if let Some(piece) = pieces.last_mut() {
                    piece.push((x, y));
                }
            }
            None => pieces.push(Vec::new()),
        }
    }
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

fn path(points: &[(f64, f64)]) -> String {
    // A single moment is drawn as a short stroke, so that it is seen.
    let first =
        points.first().map_or_else(String::new, |(x, y)| format!("M{:.1} {y:.1}", (x - 2.0).max(0.0)));
    points.iter().fold(first, |path, (x, y)| path + &format!("L{x:.1} {y:.1}"))
}

fn filled(points: &[(f64, f64)]) -> String {
    match (points.first(), points.last()) {
        (Some((from, _)), Some((to, _))) => {
            format!("{}L{to:.1} {HEIGHT}L{:.1} {HEIGHT}Z", path(points), (from - 2.0).max(0.0))
        }
        _ => String::new(),
    }
}
