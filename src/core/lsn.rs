//! A position in the write-ahead log, as PostgreSQL writes and orders it.

use std::fmt;
use std::str::FromStr;

/// A log sequence number. Ordered by position, so `max` of two is the later one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(u64);

impl Lsn {
    /// PostgreSQL's `InvalidXLogRecPtr`. No log record has this position, so it means "no position yet".
    pub const ZERO: Lsn = Lsn(0);
}

/// Why a text is not a position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a log position such as 16/B374D848, found {0:?}")]
pub struct LsnError(String);

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & u64::from(u32::MAX))
    }
}

impl FromStr for Lsn {
    type Err = LsnError;

    fn from_str(text: &str) -> Result<Self, LsnError> {
        let parts = text.split_once('/').and_then(|(high, low)| Some((half(high)?, half(low)?)));
        match parts {
            Some((high, low)) => Ok(Lsn(u64::from(high) << 32 | u64::from(low))),
            None => Err(LsnError(text.to_owned())),
        }
    }
}

/// `from_str_radix` alone would accept a leading `+` and any number of zeros, which PostgreSQL rejects.
fn half(digits: &str) -> Option<u32> {
    let plain = (1..=8).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit());
    if plain { u32::from_str_radix(digits, 16).ok() } else { None }
}

impl From<u64> for Lsn {
    fn from(position: u64) -> Self {
        Lsn(position)
    }
}

impl From<Lsn> for u64 {
    fn from(lsn: Lsn) -> Self {
        lsn.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn prints_as_postgresql_does() {
        assert_eq!(Lsn::ZERO.to_string(), "0/0");
        assert_eq!(Lsn::from(0x16_B374_D848).to_string(), "16/B374D848");
        assert_eq!(Lsn::from(u64::MAX).to_string(), "FFFFFFFF/FFFFFFFF");
        assert_eq!(Lsn::from(0x1_0000_000A).to_string(), "1/A");
    }

    #[test]
    fn reads_either_case_and_leading_zeros() {
        assert_eq!("16/b374d848".parse(), Ok(Lsn::from(0x16_B374_D848)));
        assert_eq!("00000001/0000000A".parse(), Ok(Lsn::from(0x1_0000_000A)));
    }

    #[test]
    fn refuses_what_postgresql_refuses() {
        for text in
            ["", "/", "0", "0/", "/0", "+1/0", "1/-0", "1/0/0", "100000000/0", "0/000000000", "g/0", " 0/0"]
        {
            assert!(text.parse::<Lsn>().is_err(), "{text:?} was accepted");
        }
    }

    proptest! {
        #[test]
        fn text_round_trips(position: u64) {
            let lsn = Lsn::from(position);
            prop_assert_eq!(lsn.to_string().parse(), Ok(lsn));
            prop_assert_eq!(u64::from(lsn), position);
        }

        #[test]
        fn order_is_that_of_the_position(a: u64, b: u64) {
            prop_assert_eq!(Lsn::from(a).cmp(&Lsn::from(b)), a.cmp(&b));
        }

        #[test]
        fn arbitrary_text_never_panics(text in ".*") {
            let _ = text.parse::<Lsn>();
        }
    }
}
