//! The identity of rows and signals: deterministic UUIDs, ordered like the source.
//!
//! A version-8 UUID has three parts: 16 bits that tell sources apart, an ordered prefix of the key, and a hash. Random
//! ids would be the largest cost of an outbox, because every insert goes to another index page. These ids grow at the
//! right edge of the index. They are a pure function of source and key, so every path, crash and replay computes the
//! same one.
//!
//! ```text
//!  integer key:  tag:16 | key:32 | 8 | key:12 | 10 | key:20 | hash:42
//!  uuid, text:   tag:16 | key:32 | 8 | hash:12 | 10 | hash:62
//! ```
//!
//! The SQL function `gov_handoff_identity` computes the same; a test compares the two.

use crate::core::definition::IdType;
use sha2::{Digest, Sha256};
use uuid::Uuid;

const VARIANT: u64 = 1 << 63;

/// Computes the identities of one source's rows.
#[derive(Debug, Clone)]
pub struct Identity {
    source: String,
    tag: [u8; 2],
    id_type: IdType,
}

impl Identity {
    #[must_use]
    pub fn new(source: &str, id_type: IdType) -> Self {
        let digest = Sha256::digest(source.as_bytes());
        Self { source: source.to_owned(), tag: [digest[0], digest[1]], id_type }
    }

    /// Every identity of this source lies between these two.
    #[must_use]
    pub fn bounds(&self) -> (Uuid, Uuid) {
        let edge = |fill: u8| {
            let mut bytes = [fill; 16];
            bytes[..2].copy_from_slice(&self.tag);
            Uuid::from_bytes(bytes)
        };
        (edge(0), edge(0xff))
    }

    /// Every identity of this integer key lies between these two: its rows, and all their signals.
    #[must_use]
    pub fn bounds_of(&self, id: i64) -> (Uuid, Uuid) {
        (self.with_integer(id, 0), self.with_integer(id, u64::MAX))
    }

    /// The row itself: the outbox's `event_subject_ref`.
    #[must_use]
    pub fn subject(&self, key: &str) -> Uuid {
        self.uuid(key, &[])
    }

    /// One kind of signal about the row: the outbox's `id`.
    #[must_use]
    pub fn signal(&self, key: &str, kind: &str) -> Uuid {
        self.uuid(key, &[kind])
    }

    /// As [`subject`](Self::subject), for a replaced row. `object` is the object of that row.
    #[must_use]
    pub fn subject_of_replacement(&self, key: &str, object: &str) -> Uuid {
        self.uuid(key, &["", object])
    }

    /// As [`signal`](Self::signal), for a replaced row.
    #[must_use]
    pub fn signal_of_replacement(&self, key: &str, kind: &str, object: &str) -> Uuid {
        self.uuid(key, &[kind, object])
    }

    /// Each part is hashed with its length first, so that no key can imitate another key and the part after it.
    fn uuid(&self, key: &str, more: &[&str]) -> Uuid {
        let mut hasher = Sha256::new();
        for part in [self.source.as_str(), key].iter().chain(more) {
            hasher.update(part.len().to_string());
            hasher.update(b":");
            hasher.update(part);
        }
        let digest = hasher.finalize();
        let h1 = u64::from_be_bytes(first(&digest));
        let h2 = u16::from_be_bytes([digest[8], digest[9]]);
        match self.id_type {
            IdType::Int4 | IdType::Int8 => match key.parse::<i64>() {
                Ok(id) => self.with_integer(id, h1),
                // A key that is not of the declared type is rejected elsewhere. Here it must only not panic.
                Err(_) => self.with_prefix(leading(key.as_bytes()), h1, h2),
            },
            IdType::Uuid => {
                let bytes =
                    Uuid::parse_str(key).map_or_else(|_| leading(key.as_bytes()), |u| leading(u.as_bytes()));
                self.with_prefix(bytes, h1, h2)
            }
            IdType::Text => self.with_prefix(leading(key.as_bytes()), h1, h2),
        }
    }

    fn with_integer(&self, id: i64, hash: u64) -> Uuid {
        // With the sign bit flipped, the unsigned order of the bytes is the signed order of the keys.
        let k = id.cast_unsigned() ^ (1 << 63);
        let high = (k >> 32) as u32;
        let middle = 0x8000 | ((k >> 20) & 0xfff) as u16;
        let low = VARIANT | ((k & 0xf_ffff) << 42) | (hash & ((1 << 42) - 1));
        self.assemble(high.to_be_bytes(), middle, low)
    }

    fn with_prefix(&self, prefix: [u8; 4], h1: u64, h2: u16) -> Uuid {
        self.assemble(prefix, 0x8000 | (h2 & 0xfff), VARIANT | (h1 & ((1 << 62) - 1)))
    }

    fn assemble(&self, prefix: [u8; 4], middle: u16, low: u64) -> Uuid {
        let mut bytes = [0; 16];
        bytes[..2].copy_from_slice(&self.tag);
        bytes[2..6].copy_from_slice(&prefix);
        bytes[6..8].copy_from_slice(&middle.to_be_bytes());
        bytes[8..].copy_from_slice(&low.to_be_bytes());
        Uuid::from_bytes(bytes)
    }
}

fn first(digest: &[u8]) -> [u8; 8] {
    let mut out = [0; 8];
    out.copy_from_slice(&digest[..8]);
    out
}

fn leading(key: &[u8]) -> [u8; 4] {
    let mut out = [0; 4];
    let n = key.len().min(4);
    out[..n].copy_from_slice(&key[..n]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn it_is_a_version_8_uuid_of_the_standard_variant() {
        for (id_type, key) in [
            (IdType::Int4, "42"),
            (IdType::Uuid, "8c04f5f7-0000-4000-8000-000000000001"),
            (IdType::Text, "x"),
        ] {
            let id = Identity::new("birth_registry", id_type).subject(key);
            assert_eq!(id.get_version_num(), 8, "{id}");
            assert_eq!(id.get_variant(), uuid::Variant::RFC4122, "{id}");
        }
    }

    #[test]
    fn kinds_and_sources_are_told_apart() {
        let births = Identity::new("birth_registry", IdType::Int4);
        let changes = Identity::new("registry_changelog", IdType::Int4);
        assert_ne!(births.signal("1", "a"), births.signal("1", "b"));
        assert_ne!(births.subject("1"), births.signal("1", "a"));
        assert_ne!(births.subject("1"), changes.subject("1"));
    }

    #[test]
    fn a_key_that_imitates_another_key_and_a_kind_is_told_apart() {
        let notes = Identity::new("notes", IdType::Text);
        for separator in ["\u{1f}", ":", "", "1:", "7:"] {
            let imitation = format!("k{separator}governance.handoff.x");
            assert_ne!(notes.subject(&imitation), notes.signal("k", "governance.handoff.x"), "{separator:?}");
        }
        assert_ne!(notes.signal("a", "bc"), notes.signal("ab", "c"));
        assert_ne!(notes.signal_of_replacement("k", "a", "bc"), notes.signal_of_replacement("k", "ab", "c"));
        assert_ne!(notes.signal_of_replacement("k", "a", ""), notes.signal("k", "a"));
    }

    proptest! {
        #[test]
        fn integer_keys_keep_their_order(a: i64, b: i64) {
            let identity = Identity::new("s", IdType::Int8);
            let (ua, ub) = (identity.subject(&a.to_string()), identity.subject(&b.to_string()));
            prop_assert_eq!(a.cmp(&b), ua.cmp(&ub));
        }

        #[test]
        fn all_identities_of_an_integer_key_are_neighbours(id: i64, kind in ".*", object in ".*") {
            let identity = Identity::new("s", IdType::Int8);
            let (from, to) = identity.bounds_of(id);
            let key = id.to_string();
            for one in [identity.subject(&key), identity.signal(&key, &kind),
                identity.signal_of_replacement(&key, &kind, &object)] {
                prop_assert!((from..=to).contains(&one));
            }
            let next = identity.subject(&id.wrapping_add(1).to_string());
            prop_assert!(!(from..=to).contains(&next));
        }

        #[test]
        fn any_key_has_an_identity(key in ".*", kind in ".*") {
            for id_type in [IdType::Int4, IdType::Int8, IdType::Uuid, IdType::Text] {
                let identity = Identity::new("s", id_type);
                prop_assert_eq!(identity.signal(&key, &kind), identity.signal(&key, &kind));
            }
        }
    }
}
