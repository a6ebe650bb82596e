//! The live view as lines of text: a pure function of the board and the size of the terminal.

use super::board::{Board, Point};
use super::sample::Capture;
use super::script::Scene;
use crate::cli::output::count;
use console::{Color, StyledObject, measure_text_width, style, truncate_str};

/// Left of every bar: a margin, a name and its value.
const LEFT: usize = 20;
/// Right of every bar.
const RIGHT: usize = 12;
/// Lines without notes; with the cursor's own line they fill 24.
const FIXED: usize = 23;
const KINDS: [&str; 11] = [
    "object_born",
    "object_registered",
    "object_retired",
    "collection_changed",
    "count_changed",
    "source_changed",
    "axis_introduced",
    "policy_changed",
    "authority_changed",
    "ruleset_changed",
    "unmapped",
];
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Stream, poll, reconcile: told apart by colour, and by shade where there is none.
const PAINT: [(Color, char); 3] = [(Color::Cyan, '▓'), (Color::Yellow, '▒'), (Color::Magenta, '░')];

#[must_use]
pub fn draw(board: &Board, width: usize, height: usize) -> Vec<String> {
    let width = width.clamp(60, 160);
    let bar = width - LEFT - RIGHT;
    let mut lines = vec![heading(board, width), style("─".repeat(width)).dim().to_string()];
    lines.extend(mode(board));
    lines.push(String::new());
    lines.extend(timeline(board, bar));
    lines.push(String::new());
    lines.extend(kinds(board, bar));
    lines.push(legend(board, width));
    lines.extend(notes(board, height.saturating_sub(FIXED + 1)));
    lines.iter().map(|l| truncate_str(l, width, "…").into_owned()).collect()
}

fn heading(board: &Board, width: usize) -> String {
    let left = format!(" {}  {}", style("gov-handoff demo").bold(), style(&board.server).dim());
    justified(&left, &style(&board.clock).bold().to_string(), width)
}

/// One text at the left, one a cell short of the right.
fn justified(left: &str, right: &str, width: usize) -> String {
    let gap = width.saturating_sub(measure_text_width(left) + measure_text_width(right) + 1).max(1);
    format!("{left}{}{right}", " ".repeat(gap))
}

fn mode(board: &Board) -> [String; 2] {
    let sample = &board.sample;
    let color = color(sample.capture);
    let (name, text) = match sample.capture {
        Capture::Stream => ("STREAM", slot(board)),
        Capture::Poll => ("POLL", sample.reason.clone().unwrap_or_default()),
        Capture::Starting => ("STARTING", "lease held, opening the stream".to_owned()),
        Capture::Down => ("DOWN", "the daemon is gone; its lease expires, nothing is lost".to_owned()),
    };
    let scene = board.scene;
    [
        format!(" {} {}", style(format!("● {name:<8}")).fg(color).bold(), text),
        format!(
            "   {} {}",
            style(format!("scene {}/{}", scene.number(), Scene::ALL.len())).bold(),
            scene.title()
        ),
    ]
}

fn slot(board: &Board) -> String {
    match &board.sample.slot {
        Some(s) if s.ours => format!(
            "slot {}, {} KiB behind, {} MiB of log retained",
            super::stage::SLOT,
            count(s.behind / 1024),
            count((s.retained + (1 << 20) - 1) >> 20)
        ),
        Some(_) => "the slot's name is taken by another".to_owned(),
        None => "the slot is gone".to_owned(),
    }
}

/// All five share one time axis, from the start of the run to its end.
fn timeline(board: &Board, bar: usize) -> [String; 5] {
    let cells = board.cells(bar);
    let now = board.now();
    let rest = style("─".repeat(bar.saturating_sub(cells.len()))).dim();
    let track: String = cells.iter().map(|p| style('━').fg(color(p.capture)).to_string()).collect();
    let most = |f: fn(&Point) -> f64| cells.iter().map(f).fold(1.0, f64::max);
    let rate = |f: fn(&Point) -> f64| {
        let most = most(f);
        spark(&cells, bar, move |p| Some(f(p) / most))
    };
    // Lag spans three orders of magnitude: a logarithm from a half to five thousand milliseconds shows them all.
    let lag = |f: fn(&(f64, f64)) -> f64| {
        spark(&cells, bar, move |p| p.lag.as_ref().map(|l| (f(l).max(0.5) / 0.5).log10() / 4.0))
    };
    let line = |name: &str, value: String, graph: String, right: String| {
        format!(" {name:<10}{:>8} {graph} {right:>10}", style(value).bold())
    };
    let worst = |f: fn(&(f64, f64)) -> f64| {
        board
            .points
            .iter()
            .filter_map(|p| p.lag.as_ref().map(f))
            .reduce(f64::max)
            .map_or(String::new(), |w| format!("max {}", span(w)))
    };
    let percent = format!("{:.0}%", (now.progress * 100.0).min(100.0));
    [
        line("run", percent, format!("{track}{rest}"), String::new()),
        line("rows/s", count(now.rows_per_second as i64), rate(|p| p.rows_per_second), count(now.rows)),
        line(
            "handoffs/s",
            count(now.handoffs_per_second as i64),
            rate(|p| p.handoffs_per_second),
            count(now.handoffs),
        ),
        line("lag p50", now.lag.map_or("-".to_owned(), |l| span(l.0)), lag(|l| l.0), worst(|l| l.0)),
        line("lag p99", now.lag.map_or("-".to_owned(), |l| span(l.1)), lag(|l| l.1), worst(|l| l.1)),
    ]
}

/// One character a cell, as high as its value from 0 to 1, in the colour of how rows were captured then.
fn spark(cells: &[Point], bar: usize, value: impl Fn(&Point) -> Option<f64>) -> String {
    let cell = |p: &Point| match value(p) {
        Some(v) => {
            let level = (v.clamp(0.0, 1.0) * 7.0).round() as usize;
            style(LEVELS[level]).fg(color(p.capture)).to_string()
        }
        None => " ".to_owned(),
    };
    let drawn: String = cells.iter().map(cell).collect();
    format!("{drawn}{}", " ".repeat(bar.saturating_sub(cells.len())))
}

fn kinds(board: &Board, bar: usize) -> Vec<String> {
    let of = |kind: &str| board.sample.kinds.get(kind).copied().unwrap_or_default();
    let most = KINDS.iter().map(|k| of(k).iter().sum::<i64>()).max().unwrap_or(0).max(1);
    KINDS
        .iter()
        .map(|kind| {
            let parts = of(kind);
            let sum: i64 = parts.iter().sum();
            let name = if *kind == "unmapped" { style(*kind).dim() } else { style(*kind) };
            format!(" {name:<18} {} {:>10}", stacked(parts, most, bar), count(sum))
        })
        .collect()
}

/// Shares out the cells so that the bar has the length of the sum, and every part that is not zero is visible.
fn stacked(parts: [i64; 3], most: i64, bar: usize) -> String {
    let cells =
        |n: i64| if n == 0 { 0 } else { (n as f64 / most as f64 * bar as f64).round().max(1.0) as usize };
    let (mut out, mut drawn, mut sum) = (String::new(), 0, 0);
    for (n, paint) in parts.into_iter().zip(PAINT) {
        sum += n;
        let seen = usize::from(n > 0);
        let len = cells(sum).saturating_sub(drawn).max(seen).min(bar - drawn);
        out.push_str(&fill(paint, len).to_string());
        drawn += len;
    }
    format!("{out}{}", " ".repeat(bar - drawn))
}

fn fill((color, shade): (Color, char), len: usize) -> StyledObject<String> {
    let glyph = if console::colors_enabled() { '█' } else { shade };
    style(glyph.to_string().repeat(len)).fg(color)
}

fn legend(board: &Board, width: usize) -> String {
    let captured = board.sample.captured();
    let part = |i: usize, name: &str| format!(" {} {name} {}", fill(PAINT[i], 1), count(captured[i]));
    let left = format!("{}{}{}", part(0, "stream"), part(1, "poll"), part(2, "reconcile"));
    let right =
        format!("{} in flight, {} open ranges", count(board.in_flight()), count(board.sample.open_ranges));
    justified(&left, &right, width)
}

fn notes(board: &Board, room: usize) -> Vec<String> {
    if room < 2 {
        return vec![];
    }
    let shown = board.notes.len().saturating_sub(room - 1);
    let mut lines = vec![String::new()];
    lines.extend(
        board.notes[shown..]
            .iter()
            .map(|(at, text)| format!(" {} {text}", style(format!("{:>6.1} s", at.as_secs_f64())).dim())),
    );
    lines
}

fn color(capture: Capture) -> Color {
    match capture {
        Capture::Stream => Color::Cyan,
        Capture::Poll => Color::Yellow,
        Capture::Down => Color::Red,
        Capture::Starting => Color::Magenta,
    }
}

/// A duration in milliseconds, three digits of it.
#[must_use]
pub fn span(ms: f64) -> String {
    match ms {
        ms if ms < 10.0 => format!("{ms:.1} ms"),
        ms if ms < 1_000.0 => format!("{ms:.0} ms"),
        ms => format!("{:.1} s", ms / 1_000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::demo::sample::Sample;
    use std::time::Duration;

    #[test]
    fn it_fits_the_smallest_terminal_and_grows_with_a_larger_one() {
        let mut board = Board::new("PostgreSQL 16.13".to_owned());
        let kinds = KINDS.iter().map(|k| ((*k).to_owned(), [1_000_000, 1, 1])).collect();
        let sample = Sample { kinds, lag: Some((1.0, 4_000.0)), ..Sample::default() };
        board.update(Duration::from_secs(1), 0.5, 1_000_000, sample);
        for (width, height) in [(80, 24), (120, 40)] {
            let lines = draw(&board, width, height);
            assert!(lines.len() < height, "{} lines in {height}", lines.len());
            assert!(lines.iter().all(|l| measure_text_width(l) <= width));
        }
    }

    #[test]
    fn the_least_part_is_seen_and_the_bar_keeps_its_length() {
        assert_eq!(measure_text_width(stacked([1_000, 1, 1], 1_002, 40).trim_end()), 40);
        assert_eq!(measure_text_width(stacked([0, 1, 0], 1_000, 40).trim_end()), 1);
    }
}
