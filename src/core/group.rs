//! The canonical key of a governance group: its dimensions, in the rule's order, as one text.
//!
//! `object_class=person/source_registry=birth_registry`. Marks, counts and scans are joined by this key, so two groups
//! must never share one. Characters that could be taken for punctuation are escaped, and a NULL (`dim`) differs from an
//! empty text (`dim=`).

use std::fmt;

/// One dimension: its name, and its value or NULL.
pub type Dim = (String, Option<String>);

/// The key of one group. Equal keys mean equal dimensions in the same order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct GroupKey(String);

/// Why a text is not a key that [`GroupKey::from_dims`] could have written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GroupKeyError {
    #[error("expected two upper-case hex digits of an escaped character after a percent sign in {0:?}")]
    BadEscape(String),
    #[error("expected the character to be escaped in {0:?}")]
    Unescaped(String),
}

impl GroupKey {
    /// Writes the key. No dimensions give the empty key.
    pub fn from_dims(dims: &[Dim]) -> GroupKey {
        if let [(name, None)] = dims
            && name.is_empty()
        {
            return GroupKey(LONE_UNNAMED.to_owned());
        }
        let mut key = String::new();
        for (position, (name, value)) in dims.iter().enumerate() {
            if position > 0 {
                key.push('/');
            }
            escape(name, &mut key);
            if let Some(value) = value {
                key.push('=');
                escape(value, &mut key);
            }
        }
        GroupKey(key)
    }

    /// Reads the dimensions back. Only the canonical form is accepted; otherwise two keys could mean one group.
    pub fn parse(key: &str) -> Result<Vec<Dim>, GroupKeyError> {
        match key {
            "" => Ok(Vec::new()),
            LONE_UNNAMED => Ok(vec![(String::new(), None)]),
            _ => key.split('/').map(parse_dim).collect(),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn into_string(self) -> String {
        self.0
    }
}

impl fmt::Display for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The dimensions as a JSON object, for readers that do not want to unescape. If a name occurs twice, the last value is
/// kept; the key, not this object, is the identity.
pub fn dims_json(dims: &[Dim]) -> serde_json::Value {
    let value =
        |value: &Option<String>| value.clone().map_or(serde_json::Value::Null, serde_json::Value::String);
    dims.iter().map(|(name, v)| (name.clone(), value(v))).collect::<serde_json::Map<_, _>>().into()
}

/// The key of a single dimension with an empty name and a NULL value. It would otherwise be the empty key. No escape
/// produces this text.
const LONE_UNNAMED: &str = "%";

fn parse_dim(text: &str) -> Result<Dim, GroupKeyError> {
    match text.split_once('=') {
        Some((name, value)) => Ok((unescape(name)?, Some(unescape(value)?))),
        None => Ok((unescape(text)?, None)),
    }
}

fn is_reserved(c: char) -> bool {
    matches!(c, '%' | '=' | '/') || c.is_ascii_control()
}

fn escape(text: &str, key: &mut String) {
    for c in text.chars() {
        if is_reserved(c) {
            key.push_str(&format!("%{:02X}", u32::from(c)));
        } else {
            key.push(c);
        }
    }
}

fn unescape(text: &str) -> Result<String, GroupKeyError> {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c == '%' {
            let escaped = escaped_char(rest.next(), rest.next());
            plain.push(escaped.ok_or_else(|| GroupKeyError::BadEscape(text.to_owned()))?);
        } else if is_reserved(c) {
            return Err(GroupKeyError::Unescaped(text.to_owned()));
        } else {
            plain.push(c);
        }
    }
    Ok(plain)
}

fn escaped_char(high: Option<char>, low: Option<char>) -> Option<char> {
    let digit = |c: char| c.to_digit(16).filter(|_| !c.is_ascii_lowercase());
    char::from_u32(digit(high?)? * 16 + digit(low?)?).filter(|c| is_reserved(*c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn dims(pairs: &[(&str, Option<&str>)]) -> Vec<Dim> {
        pairs.iter().map(|(name, value)| (name.to_string(), value.map(str::to_owned))).collect()
    }

    #[test]
    fn keeps_the_given_order_and_plain_text_plain() {
        let key = GroupKey::from_dims(&dims(&[("object_class", Some("người")), ("a", Some("x y"))]));
        assert_eq!(key.as_str(), "object_class=người/a=x y");
    }

    #[test]
    fn tells_null_from_empty() {
        assert_eq!(GroupKey::from_dims(&dims(&[("a", None), ("b", Some(""))])).as_str(), "a/b=");
    }

    #[test]
    fn escapes_its_own_punctuation_and_control_characters() {
        let key = GroupKey::from_dims(&dims(&[("a/b", Some("50%=\n\u{7f}"))]));
        assert_eq!(key.as_str(), "a%2Fb=50%25%3D%0A%7F");
    }

    #[test]
    fn refuses_every_other_spelling() {
        for key in ["a=b=c", "%2f", "%41", "a%", "%/a", "a%2", "%zz", "a\n", "%+1"] {
            assert!(GroupKey::parse(key).is_err(), "{key:?} was accepted");
        }
    }

    #[test]
    fn json_keeps_nulls() {
        assert_eq!(
            dims_json(&dims(&[("a", None), ("b", Some("x"))])),
            serde_json::json!({"a": null, "b": "x"})
        );
    }

    /// Few characters, all of them troublesome, so that collisions would be found rather than dreamt of.
    fn arbitrary_dims() -> impl Strategy<Value = Vec<Dim>> {
        prop::collection::vec(("[%=/a2F\n]{0,3}", prop::option::of("[%=/a2F\n]{0,3}")), 0..4)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn reads_back_what_was_written(dims in arbitrary_dims()) {
            prop_assert_eq!(GroupKey::parse(GroupKey::from_dims(&dims).as_str()), Ok(dims));
        }

        #[test]
        fn any_text_reads_back(dims in prop::collection::vec(any::<Dim>(), 0..4)) {
            prop_assert_eq!(GroupKey::parse(GroupKey::from_dims(&dims).as_str()), Ok(dims));
        }

        #[test]
        fn different_groups_have_different_keys(a in arbitrary_dims(), b in arbitrary_dims()) {
            prop_assert_eq!(GroupKey::from_dims(&a) == GroupKey::from_dims(&b), a == b);
        }

        #[test]
        fn an_accepted_key_is_the_canonical_one(key in "[%=/a2F]{0,8}") {
            if let Ok(dims) = GroupKey::parse(&key) {
                let canonical = GroupKey::from_dims(&dims);
                prop_assert_eq!(canonical.as_str(), key.as_str());
            }
        }

        #[test]
        fn arbitrary_text_never_panics(key: String) {
            let _ = GroupKey::parse(&key);
        }
    }
}
