//! The size of a worker's pages: halved while the database rejects them, so that one bad item stops no other.

/// 5,000 items are one item after 13 halvings; a few more cost little.
const MOST_HALVINGS: u32 = 16;

/// How often the pages of a worker are halved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PageSize {
    halvings: u32,
}

impl PageSize {
    /// The items of a page that may have `most`.
    #[must_use]
    pub fn of(self, most: i64) -> i64 {
        (most >> self.halvings).max(1)
    }

    /// A page was rejected, or took too long. False if the pages cannot become smaller: the rejected item stands alone.
    pub fn rejected(&mut self) -> bool {
        let smaller = self.halvings < MOST_HALVINGS;
        self.halvings += u32::from(smaller);
        smaller
    }

    /// A page was committed: the next may be twice as large.
    pub fn passed(&mut self) {
        self.halvings = self.halvings.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejected_item_is_alone_after_halving_and_the_size_grows_back() {
        let mut size = PageSize::default();
        assert_eq!(size.of(5_000), 5_000);
        while size.rejected() {}
        assert_eq!((size.of(5_000), size.of(50_000), size.of(1)), (1, 1, 1));
        (0..MOST_HALVINGS).for_each(|_| size.passed());
        assert_eq!(size.of(5_000), 5_000);
        size.passed();
        assert_eq!(size, PageSize::default());
    }
}
