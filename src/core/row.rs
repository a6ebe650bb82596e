//! One source row as both paths deliver it: the address columns as text, in the definition's order.
//!
//! pgoutput sends text rendered under pinned session settings; the poller asks for `column::text` under the same ones. So
//! a row is the same value whichever path brought it.

use std::fmt;

#[derive(Clone, PartialEq, Eq)]
pub struct Row(Vec<Option<String>>);

impl Row {
    #[must_use]
    pub fn new(values: Vec<Option<String>>) -> Self {
        Self(values)
    }

    #[must_use]
    pub fn get(&self, column: usize) -> Option<&str> {
        self.0.get(column).and_then(Option::as_deref)
    }

    /// Bytes held, for batches that are bounded by memory as well as by count.
    #[must_use]
    pub fn size(&self) -> usize {
        self.0.iter().flatten().map(String::len).sum::<usize>() + self.0.len() * size_of::<Option<String>>()
    }
}

/// Prints sizes only: a row's values have no place in logs, and `{:?}` is how they get there.
impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|value| value.as_ref().map(String::len))).finish()
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
    fn a_column_beyond_the_row_is_null() {
        assert_eq!(Row::new(vec![Some(String::new())]).get(0), Some(""));
        assert_eq!(Row::new(Vec::new()).get(0), None);
    }
}
