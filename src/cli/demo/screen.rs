//! Where it is shown: redrawn in place on a terminal, line by line anywhere else.

use super::board::Board;
use super::frame;
use crate::cli::output::{self, count};
use console::Term;
use std::time::Duration;

pub enum Screen {
    Live {
        term: Term,
        /// Lines of the last frame, which the next is drawn over.
        drawn: usize,
        size: (u16, u16),
    },
    Plain {
        next: Duration,
        noted: usize,
    },
}

impl Screen {
    #[must_use]
    pub fn new(plain: bool) -> Self {
        let term = Term::buffered_stdout();
        if plain || !term.is_term() {
            return Self::Plain { next: Duration::ZERO, noted: 0 };
        }
        let size = term.size();
        let _ = term.hide_cursor();
        Self::Live { term, drawn: 0, size }
    }

    pub fn show(&mut self, board: &Board) {
        match self {
            Self::Live { term, drawn, size } => {
                let now = term.size();
                if now != *size {
                    // The terminal wrapped the lines differently, so the last frame is no longer where it was.
                    let _ = term.clear_screen();
                    (*size, *drawn) = (now, 0);
                }
                let lines = frame::draw(board, now.1.into(), now.0.into());
                let mut text = if *drawn > 0 { format!("\x1b[{drawn}A\r") } else { String::new() };
                for line in &lines {
                    text.push_str(line);
                    text.push_str("\x1b[K\n");
                }
                // One write a frame: a terminal never shows half of one.
                let _ = term.write_str(&text).and_then(|()| term.flush());
                *drawn = lines.len();
            }
            Self::Plain { next, noted } => {
                for (at, text) in &board.notes[*noted..] {
                    output::line(format_args!("{:>6.1} s  {text}", at.as_secs_f64()));
                }
                *noted = board.notes.len();
                let now = board.now();
                if now.at >= *next {
                    *next = now.at + Duration::from_secs(1);
                    output::line(plain(board));
                }
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if let Self::Live { term, .. } = self {
            let _ = term.show_cursor().and_then(|()| term.flush());
        }
    }
}

fn plain(board: &Board) -> String {
    let now = board.now();
    let lag =
        now.lag.map_or_else(|| "-".to_owned(), |l| format!("{} / {}", frame::span(l.0), frame::span(l.1)));
    format!(
        "{:>6.1} s  {:<8} {:>7} rows {:>5}/s  {:>7} handoffs {:>5}/s  in flight {:>4}  lag p50/p99 {lag}",
        now.at.as_secs_f64(),
        format!("{:?}", now.capture).to_lowercase(),
        count(now.rows),
        count(now.rows_per_second as i64),
        count(now.handoffs),
        count(now.handoffs_per_second as i64),
        count(board.in_flight()),
    )
}
