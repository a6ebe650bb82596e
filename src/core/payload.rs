//! Finds contents in a value that should be an address. A signal carries no contents.
//!
//! The operator chose the address columns, but a producer may still write a document into one. A value that looks like
//! JSON is searched for forbidden keys at any depth, and for vectors. The search is a scan, not a parse. It needs no
//! stack, so nesting cannot hide a key, and it also covers text that is almost JSON.

/// 003 §4.3. The queue's own CHECK looks for these keys at the top level.
pub const FORBIDDEN: [&str; 10] =
    ["body", "content", "raw", "vector", "embedding", "secret", "token", "password", "ssn", "personal_data"];

/// This many numbers in a row are a vector, not an address.
const VECTOR: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Violation {
    /// A forbidden key. Its name may be repeated, because it is from our list and not from the row.
    Key(&'static str),
    /// A vector, recognised by its key or by its numbers.
    Vector,
}

/// Whether the name of a column or key says that it holds contents.
#[must_use]
pub fn forbidden(name: &str) -> Option<Violation> {
    let known = FORBIDDEN.iter().find(|f| f.eq_ignore_ascii_case(name))?;
    Some(if ["vector", "embedding"].contains(known) { Violation::Vector } else { Violation::Key(known) })
}

/// Searches a value. For ordinary text only the first character is examined.
#[must_use]
pub fn violation(text: &str) -> Option<Violation> {
    text.trim_start().starts_with(['{', '[']).then(|| scan(text.as_bytes()))?
}

fn scan(text: &[u8]) -> Option<Violation> {
    let (mut at, mut numbers) = (0, 0);
    while let Some(&byte) = text.get(at) {
        match byte {
            b'"' => {
                let end = string_end(text, at);
                numbers = 0;
                if is_key(text, end)
                    && let Some(found) = unescaped(&text[at..end]).as_deref().and_then(forbidden)
                {
                    return Some(found);
                }
                at = end;
            }
            b'0'..=b'9' | b'-' => {
                numbers += 1;
                if numbers >= VECTOR {
                    return Some(Violation::Vector);
                }
                let rest = text[at..].iter();
                at +=
                    rest.take_while(|b| matches!(b, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E')).count();
            }
            b',' | b' ' | b'\n' | b'\r' | b'\t' => at += 1,
            _ => {
                numbers = 0;
                at += 1;
            }
        }
    }
    None
}

/// One past the closing quote of the string that opens at `from`, or the end of the text.
fn string_end(text: &[u8], from: usize) -> usize {
    let mut at = from + 1;
    while let Some(&byte) = text.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    text.len()
}

fn is_key(text: &[u8], end: usize) -> bool {
    text.get(end..).and_then(|rest| rest.iter().find(|b| !b.is_ascii_whitespace())) == Some(&b':')
}

/// A key may contain escapes. A key that is longer than any escaped form of a forbidden key is ignored.
fn unescaped(quoted: &[u8]) -> Option<String> {
    (quoted.len() < 100).then(|| serde_json::from_slice(quoted).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_forbidden_key_is_found_at_any_depth_and_in_any_spelling() {
        let deep = format!("{}{{\"token\": 1}}{}", "[".repeat(5_000), "]".repeat(5_000));
        for text in [
            r#"{"password": "x"}"#,
            r#" {"a": {"b": [{"c": 1, "password" : "x"}]}}"#,
            r#"{"p\u0061ssword": 1}"#,
            r#"{"PassWord": 1}"#,
            r#"{"a": "\"", "ssn": 1"#,
            &deep,
        ] {
            assert!(matches!(violation(text), Some(Violation::Key(_))), "{}", &text[..20.min(text.len())]);
        }
        assert_eq!(violation(r#"{"a": {"embedding": []}}"#), Some(Violation::Vector));
    }

    #[test]
    fn a_word_that_is_no_key_is_no_violation() {
        for text in [
            r#"{"kind": "password", "a": ["body", "token"]}"#,
            r#"{"a": "{\"body\": 1}"}"#,
            "body: x",
            r#"plain "body": text"#,
            "[Draft] chapter 12",
            "{}",
            "",
            "[1, 2, 3]",
        ] {
            assert_eq!(violation(text), None, "{text}");
        }
    }

    #[test]
    fn a_row_of_numbers_is_a_vector() {
        let numbers: Vec<_> = (0..VECTOR).map(|n| format!("{}", f64::from(n as u32) * -0.5e-3)).collect();
        assert_eq!(violation(&format!("[{}]", numbers.join(","))), Some(Violation::Vector));
        assert_eq!(violation(&format!("{{\"x\": [{}]}}", numbers.join(", "))), Some(Violation::Vector));
        assert_eq!(violation(&format!("[{}]", numbers[1..].join(","))), None);
    }

    proptest! {
        #[test]
        fn whatever_the_text_it_is_searched_to_its_end(text in "[\\[{][\\PC\"\\\\:,]{0,200}") {
            let _ = violation(&text);
        }

        #[test]
        fn a_parsed_document_agrees(depth in 0usize..6, key in "[a-z_]{1,8}", bad in any::<bool>()) {
            let name = if bad { "secret".to_owned() } else { format!("x{key}") };
            let mut value = serde_json::json!({ name: 1 });
            for _ in 0..depth {
                value = serde_json::json!([{ "in": value }]);
            }
            prop_assert_eq!(violation(&value.to_string()).is_some(), bad);
        }
    }
}
