//! One source row as both paths deliver it: the address columns as text, in the definition's order.
//!
//! pgoutput sends text rendered under pinned session settings; the poller asks for `column::text` under the same ones. So
//! a row is the same value whichever path brought it.

#[derive(Debug, Clone, PartialEq, Eq)]
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
