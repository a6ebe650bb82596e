//! One source row as both paths deliver it: the address columns as text, in the definition's order.
//!
//! pgoutput sends text rendered under pinned session settings; the poller asks for `column::text` under the same ones. So
//! a row is the same value whichever path brought it.

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

    /// A row of which the server sends nothing but the key, and why: an SQLSTATE. `column` is the place of the key.
    #[must_use]
    pub fn unreadable(column: usize, key: String, state: String) -> Self {
        let mut values = vec![None; column];
        values.push(Some(key));
        Self { values, unreadable: Some(state) }
    }

    /// Why nothing but the key is known of it, if that is so.
    #[must_use]
    pub fn unreadable_because(&self) -> Option<&str> {
        self.unreadable.as_deref()
    }

    #[must_use]
    pub fn get(&self, column: usize) -> Option<&str> {
        self.values.get(column).and_then(Option::as_deref)
    }

    /// The values that are there.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.values.iter().flatten().map(String::as_str)
    }

    /// Bytes held, for batches that are bounded by memory as well as by count.
    #[must_use]
    pub fn size(&self) -> usize {
        self.values.iter().flatten().map(String::len).sum::<usize>()
            + self.values.len() * size_of::<Option<String>>()
    }
}

/// A row with more bytes than this is not an address. The database would refuse most of it anyway, for no index holds it, and
/// take so long over it that the connection might be taken for dead, each time anew.
pub const LARGEST_ROW: usize = 1 << 20;

/// Stands for a byte that is no UTF-8, followed by the byte in hex.
pub const NO_TEXT: char = '\u{FFFD}';

/// Text that need not be UTF-8: a SQL_ASCII database hands out whatever bytes it was given. Each stray byte is spelt out, so
/// that two values that differ stay different.
///
/// Of a value that alone makes its row too large only so much is taken as tells that it is. The server sends such a row whole,
/// and one copy of it in memory is enough. No key is that long, because no index takes it, and no test of a rule.
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

/// Prints sizes only: a row's values have no place in logs, and `{:?}` is how they get there.
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
