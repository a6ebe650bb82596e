//! One source row as every path delivers it: the address columns as text, in the order of the definition.
//!
//! pgoutput sends text that the server renders under pinned session settings. The table reads ask for `column::text`
//! under the same settings. So a row is the same value on every path.

use std::fmt;

#[derive(Clone, PartialEq, Eq)]
pub struct Row {
    values: Vec<Option<String>>,
    unreadable: Option<String>,
}

impl Row {
    #[must_use]
    pub fn new(values: Vec<Option<String>>) -> Self {
        Self { values, unreadable: None }
    }

    /// A row of which the server sends only the key. `state` is the SQLSTATE that says why, `column` the position of
    /// the key.
    #[must_use]
    pub fn unreadable(column: usize, key: String, state: String) -> Self {
        let mut values = vec![None; column];
        values.push(Some(key));
        Self { values, unreadable: Some(state) }
    }

    /// Why only the key of the row is known, if that is so.
    #[must_use]
    pub fn unreadable_because(&self) -> Option<&str> {
        self.unreadable.as_deref()
    }

    #[must_use]
    pub fn get(&self, column: usize) -> Option<&str> {
        self.values.get(column).and_then(Option::as_deref)
    }

    /// The values that are not NULL.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.values.iter().flatten().map(String::as_str)
    }

    /// The size in memory, because batches are bounded by bytes as well as by rows.
    #[must_use]
    pub fn size(&self) -> usize {
        self.values.iter().flatten().map(String::len).sum::<usize>()
            + self.values.len() * size_of::<Option<String>>()
    }
}

/// A row with more bytes than this is not an address. The database would reject most such rows, because no index holds
/// them. It would take so long that the connection might count as dead, at every retry.
pub const LARGEST_ROW: usize = 1 << 20;

/// Stands for a byte that is not UTF-8. The byte follows in hex.
pub const NO_TEXT: char = '\u{FFFD}';

/// Text that need not be UTF-8: a SQL_ASCII database returns the bytes that were stored. Each invalid byte is written
/// in hex, so that different values stay different.
///
/// A value that alone makes its row too large is cut just above the limit. The server sends such a row in full, and one
/// copy in memory is enough. No key is that long, because no index accepts it. No value in a test of a rule is that
/// long, either.
#[must_use]
pub fn text_of(bytes: &[u8]) -> String {
    let bytes = &bytes[..bytes.len().min(LARGEST_ROW + 1)];
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        for byte in chunk.invalid() {
            out.push(NO_TEXT);
            out.push_str(&format!("{byte:02x}"));
        }
    }
    out
}

/// Prints sizes only: the values of a row must not appear in logs, and `{:?}` would put them there.
impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.values.iter().map(|value| value.as_ref().map(String::len))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debugging_a_row_shows_no_value() {
        let row = Row::new(vec![Some("secret".to_owned()), None]);
        assert_eq!(format!("{row:?}"), "[Some(6), None]");
    }

    #[test]
    fn stray_bytes_stay_different() {
        assert_eq!(text_of("tiếng".as_bytes()), "tiếng");
        assert_eq!(text_of(b"a\xffb\xc3"), "a\u{FFFD}ffb\u{FFFD}c3");
        assert_ne!(text_of(b"\xff"), text_of(b"\xfe"));
    }

    #[test]
    fn of_a_value_that_is_too_large_only_so_much_is_taken_as_tells_that_it_is() {
        let fits = "x".repeat(LARGEST_ROW);
        assert_eq!(text_of(fits.as_bytes()), fits);
        let huge = text_of("ế".repeat(LARGEST_ROW).as_bytes());
        assert!(huge.len() > LARGEST_ROW && huge.len() < LARGEST_ROW + 16, "{}", huge.len());
        assert!(Row::new(vec![Some(huge)]).size() > LARGEST_ROW);
    }

    #[test]
    fn a_column_beyond_the_row_is_null() {
        assert_eq!(Row::new(vec![Some(String::new())]).get(0), Some(""));
        assert_eq!(Row::new(Vec::new()).get(0), None);
    }
}
