//! Tables and JSON for people and scripts.

pub use crate::core::plain::count;
use crate::error::Result;
use serde::Serialize;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether lines are drawn over those of the last picture.
static REDRAWN: AtomicBool = AtomicBool::new(false);

/// Prints a line. A reader that has gone away (`| head`) is not an error: the command finishes its work.
pub fn line(text: impl std::fmt::Display) {
    // The rest of a longer line that was there is removed.
    let rest = if REDRAWN.load(Ordering::Relaxed) { "\u{1b}[K" } else { "" };
    let _ = writeln!(std::io::stdout().lock(), "{text}{rest}");
}

/// Draws a picture over the last one on a terminal. The screen is never empty in between, so it does not flicker.
pub fn redraw(picture: impl FnOnce()) {
    REDRAWN.store(true, Ordering::Relaxed);
    part("\u{1b}[H");
    picture();
    part("\u{1b}[J");
    let _ = std::io::stdout().flush();
    REDRAWN.store(false, Ordering::Relaxed);
}

/// As [`line`], for a command that has no other work than to print. Returns whether the reader is still there.
pub fn is_read(text: impl std::fmt::Display) -> bool {
    writeln!(std::io::stdout().lock(), "{text}").is_ok()
}

/// Prints a part of a line, for a line that is too long to be built in memory.
pub fn part(text: impl std::fmt::Display) {
    let _ = write!(std::io::stdout().lock(), "{text}");
}

/// Whether a JSON document has been printed.
static JSON_PRINTED: AtomicBool = AtomicBool::new(false);

/// Prints a value as JSON.
pub fn json(value: &impl Serialize) -> Result<()> {
    line(serde_json::to_string_pretty(value)?);
    note_json();
    Ok(())
}

/// For a command that prints its JSON in parts.
pub fn note_json() {
    JSON_PRINTED.store(true, Ordering::Relaxed);
}

/// A program that reads the output expects one document: an error after it goes to the other stream only.
#[must_use]
pub fn has_printed_json() -> bool {
    JSON_PRINTED.load(Ordering::Relaxed)
}

/// Prints rows under a header, each column as wide as its widest cell.
pub fn table(header: &[&str], rows: &[Vec<String>]) {
    let width = |i: usize| {
        let cells = rows.iter().filter_map(|r| r.get(i)).map(|c| c.chars().count());
        cells.chain([header[i].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..header.len()).map(width).collect();
    let print = |cells: Vec<&str>| {
        let padded: Vec<_> = cells.iter().zip(&widths).map(|(c, w)| format!("{c:<w$}")).collect();
        line(padded.join("  ").trim_end());
    };
    print(header.to_vec());
    for row in rows {
        print(row.iter().map(String::as_str).collect());
    }
}
