//! The names of a row that cannot be handed off: while it is staged for a retry, and as a dead letter.

use sha2::{Digest, Sha256};

/// The kind of a staged row. It gives the staged row an identity apart from the row's signals, so it is never taken for
/// a capture.
pub const RETRY_KIND: &str = "governance.handoff.retry";

/// Why a row is a dead letter.
pub mod code {
    /// The database rejected the row until its attempts were used up.
    pub const REFUSED: &str = "refused_by_database";
    /// A gate refused the row on purpose.
    pub const GATE: &str = "refused_by_gate";
    /// The row is gone from its source.
    pub const VANISHED: &str = "source_row_vanished";
    /// The source is no longer registered.
    pub const UNREGISTERED: &str = "source_not_registered";
    /// The key is not of the type of the source's key. The source may have been redefined since.
    pub const KEY: &str = "unreadable_key";
    /// The server cannot send the row: a character without an equivalent in UTF-8, or a damaged value.
    pub const UNREADABLE: &str = "unreadable_row";
    /// The definition now excludes the row.
    pub const EXCLUDED: &str = "excluded_by_definition";
    /// The address columns hold more than an address.
    pub const OVERSIZED: &str = "oversized_address";
    /// The row carries contents.
    pub const PAYLOAD: &str = "queue.payload_violation";
    /// The row carries a vector.
    pub const VECTOR: &str = "queue.nvsz_violation";
}

/// Keys up to this many bytes are used in full. An index entry holds about 2,700 bytes, and a longer key must not cause
/// an error.
const PLAIN: usize = 500;

/// The idempotency key of a dead letter: `source:key`. A digest replaces the end of a very long key. A shortened key is
/// longer than any key that is not shortened, and a colon in a source's name is escaped. So two rows never share a
/// letter.
#[must_use]
pub fn letter_key(source: &str, key: &str) -> String {
    let source = source.replace('%', "%25").replace(':', "%3A");
    if key.len() <= PLAIN {
        return format!("{source}:{key}");
    }
    let mut end = PLAIN;
    while !key.is_char_boundary(end) {
        end -= 1;
    }
    let digest: String = Sha256::digest(key.as_bytes()).iter().map(|b| format!("{b:02x}")).collect();
    format!("{source}:{}:sha256:{digest}", &key[..end])
}

/// Cuts a text of any length for display.
#[must_use]
pub fn clip(text: &str) -> String {
    text.chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_long_key_still_fits_an_index_and_keeps_its_own_letter() {
        let (a, b) = ("ế".repeat(4_000), "ế".repeat(4_001));
        assert_ne!(letter_key("s", &a), letter_key("s", &b));
        assert!(letter_key("s", &a).len() < 700);
        let mimic = letter_key("s", &a).split_off(2);
        assert_ne!(letter_key("s", &mimic), letter_key("s", &a), "a key that looks like a shortened one");
        assert_eq!(letter_key("s", "7"), "s:7");
        assert_ne!(letter_key("s:7", "x"), letter_key("s", "7:x"));
    }

    proptest! {
        #[test]
        fn different_keys_have_different_letters(a in "\\PC{0,600}", b in "\\PC{0,600}") {
            prop_assert_eq!(letter_key("s", &a) == letter_key("s", &b), a == b);
        }
    }
}
