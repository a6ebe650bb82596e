//! How a row that cannot be handed off is named: while it is staged for a retry, and as a dead letter.

use sha2::{Digest, Sha256};

/// The kind under which a poison row is staged: an identity of its own beside those of the row's signals, so that a staged
/// row is never taken for a captured signal.
pub const RETRY_KIND: &str = "governance.handoff.retry";

/// Why a row is a dead letter.
pub mod code {
    /// The database refused it until its attempts were used up.
    pub const REFUSED: &str = "refused_by_database";
    /// A gate refused it on purpose.
    pub const GATE: &str = "refused_by_gate";
    /// It is no longer in its source.
    pub const VANISHED: &str = "source_row_vanished";
    /// Its source is not registered any more.
    pub const UNREGISTERED: &str = "source_not_registered";
    /// Its key is none of its source's, which may have been redefined since.
    pub const KEY: &str = "unreadable_key";
    /// The server cannot send it: a character without an equivalent in UTF-8, or a damaged value.
    pub const UNREADABLE: &str = "unreadable_row";
    /// The definition leaves it out by now.
    pub const EXCLUDED: &str = "excluded_by_definition";
    /// Its address columns hold more than an address.
    pub const OVERSIZED: &str = "oversized_address";
    /// It carries contents.
    pub const PAYLOAD: &str = "queue.payload_violation";
    /// It carries a vector.
    pub const VECTOR: &str = "queue.nvsz_violation";
}

/// Keys up to this many bytes stand in a letter's own key as they are. An index entry holds about 2,700 bytes, and a key
/// that does not fit must not be a reason to fail.
const PLAIN: usize = 500;

/// The letter's idempotency key: `source:key`, with a digest in place of the end of a very long key. What is shortened is
/// longer than anything that is not, and a colon in a source's name is escaped, so that two rows never share a letter.
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

/// What people read of a text of any length.
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
