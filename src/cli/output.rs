//! Tables and JSON for people and scripts.

use crate::error::Result;
use serde::Serialize;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

/// Prints a line. A reader that has gone away (`| head`) is not an error: the command finishes its work.
pub fn line(text: impl std::fmt::Display) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
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

/// Thousands in groups.
#[must_use]
pub fn count(n: i64) -> String {
    let digits = n.unsigned_abs().to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    if n < 0 { format!("-{out}") } else { out }
}

#[cfg(test)]
mod tests {
    #[test]
    fn counts_are_grouped() {
        assert_eq!(super::count(1_037_724), "1,037,724");
        assert_eq!(super::count(-5), "-5");
        assert_eq!(super::count(999), "999");
    }
}
