//! One test of a rule: a fact or a dimension, and what it is compared with.

use super::RuleFacts;
use crate::core::definition::Grain;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A test as an operator writes it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FactTest {
    /// One of the known facts, or `dimension`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fact: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dimension: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub equals: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_of: Option<Vec<Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub present: Option<bool>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not: bool,
}

/// A test that is ready.
#[derive(Debug, Clone, PartialEq)]
pub struct VerdictTest {
    subject: Subject,
    form: Expectation,
    not: bool,
}

#[derive(Debug, Clone, PartialEq)]
enum Subject {
    Number(&'static str),
    Text(&'static str),
    Dimension(String),
}

#[derive(Debug, Clone, PartialEq)]
enum Expectation {
    Texts(Vec<String>),
    Numbers(Vec<i64>),
    AtLeast(i64),
    AtMost(i64),
    Present(bool),
}

const GROUP_NUMBERS: &[&str] = &["members", "accepted", "rejected", "pending", "retired", "changes", "age"];
const OBJECT_NUMBERS: &[&str] = &["retired", "age"];
const GROUP_TEXTS: &[&str] = &["last_kind"];
const OBJECT_TEXTS: &[&str] = &["last_kind", "input", "input_reason"];

impl FactTest {
    pub(super) fn compile(&self, grain: Grain) -> Result<VerdictTest, String> {
        let subject = self.subject(grain)?;
        let form = self.form(&subject)?;
        Ok(VerdictTest { subject, form, not: self.not })
    }

    fn subject(&self, grain: Grain) -> Result<Subject, String> {
        let (numbers, texts) = match grain {
            Grain::Group => (GROUP_NUMBERS, GROUP_TEXTS),
            Grain::Object => (OBJECT_NUMBERS, OBJECT_TEXTS),
        };
        match (&self.fact, &self.dimension) {
            (None, Some(dimension)) => Ok(Subject::Dimension(dimension.clone())),
            (Some(fact), None) => {
                let named = |known: &&&str| **known == fact;
                let number = numbers.iter().find(named).map(|name| Subject::Number(name));
                let text = || texts.iter().find(named).map(|name| Subject::Text(name));
                number.or_else(text).ok_or_else(|| {
                    let known = [numbers, texts].concat().join(", ");
                    let grain = if grain == Grain::Group { "a group" } else { "an object" };
                    format!("expected a fact of {grain} ({known}), found {fact:?}")
                })
            }
            _ => Err("expected each test to have a fact or a dimension, and not both".to_owned()),
        }
    }

    fn form(&self, subject: &Subject) -> Result<Expectation, String> {
        let name = subject.name();
        let of_number = matches!(subject, Subject::Number(_));
        match (&self.equals, &self.one_of, &self.at_least, &self.at_most, self.present) {
            (Some(value), None, None, None, None) => values(subject, std::slice::from_ref(value)),
            (None, Some(list), None, None, None) if !list.is_empty() => values(subject, list),
            (None, None, Some(value), None, None) if of_number => {
                Ok(Expectation::AtLeast(number(subject, value)?))
            }
            (None, None, None, Some(value), None) if of_number => {
                Ok(Expectation::AtMost(number(subject, value)?))
            }
            (None, None, None, None, Some(present)) => Ok(Expectation::Present(present)),
            _ if of_number => Err(format!(
                "the test on {name} needs exactly one of equals, one_of, at_least, at_most, present"
            )),
            _ => Err(format!("the test on {name} needs exactly one of equals, one_of, present")),
        }
    }
}

fn values(subject: &Subject, list: &[Value]) -> Result<Expectation, String> {
    if matches!(subject, Subject::Number(_)) {
        return list
            .iter()
            .map(|value| number(subject, value))
            .collect::<Result<_, _>>()
            .map(Expectation::Numbers);
    }
    let text = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        other => Err(format!("expected a text for {}, found {other}", subject.name())),
    };
    list.iter().map(text).collect::<Result<_, _>>().map(Expectation::Texts)
}

/// A whole number, or for an age also a text such as `30d`; for `retired` also true and false.
fn number(subject: &Subject, value: &Value) -> Result<i64, String> {
    let read = match value {
        Value::Number(n) => n.as_i64(),
        Value::Bool(b) if *subject == Subject::Number("retired") => Some(i64::from(*b)),
        Value::String(text) if *subject == Subject::Number("age") => seconds(text),
        _ => None,
    };
    read.filter(|n| *n >= 0).ok_or_else(|| match subject {
        Subject::Number("age") => format!("expected seconds, or a text such as 30d, for age, found {value}"),
        _ => format!("expected a whole number for {}, found {value}", subject.name()),
    })
}

fn seconds(text: &str) -> Option<i64> {
    let (digits, unit) = text.trim().split_at_checked(text.trim().len().checked_sub(1)?)?;
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return None,
    };
    digits.parse::<i64>().ok()?.checked_mul(unit)
}

impl Subject {
    fn name(&self) -> &str {
        match self {
            Self::Number(name) | Self::Text(name) => name,
            Self::Dimension(name) => name,
        }
    }
}

enum Known<'a> {
    Number(i64),
    Text(&'a str),
}

impl VerdictTest {
    #[must_use]
    pub fn passes(&self, facts: &RuleFacts) -> bool {
        let known = self.subject.of(facts);
        let passed = match (&self.form, known) {
            (Expectation::Present(present), known) => known.is_some() == *present,
            (_, None) => return false,
            (Expectation::Numbers(list), Some(Known::Number(n))) => list.contains(&n),
            (Expectation::AtLeast(least), Some(Known::Number(n))) => n >= *least,
            (Expectation::AtMost(most), Some(Known::Number(n))) => n <= *most,
            (Expectation::Texts(list), Some(Known::Text(text))) => list.iter().any(|wanted| wanted == text),
            _ => false,
        };
        passed != self.not
    }
}

impl Subject {
    fn of<'f>(&self, facts: &'f RuleFacts) -> Option<Known<'f>> {
        match self {
            Self::Number(name) => number_of(facts, name).map(Known::Number),
            Self::Text("last_kind") => facts.last_kind.as_deref().map(short).map(Known::Text),
            Self::Text("input") => facts.input.as_deref().map(Known::Text),
            Self::Text(_) => facts.input_reason.as_deref().map(Known::Text),
            Self::Dimension(name) => facts.dims.get(name).and_then(Value::as_str).map(Known::Text),
        }
    }
}

/// A kind is named without the prefix that all of ours have.
fn short(kind: &str) -> &str {
    kind.strip_prefix("governance.handoff.").unwrap_or(kind)
}

fn number_of(facts: &RuleFacts, name: &str) -> Option<i64> {
    match name {
        "members" => facts.members,
        "accepted" => facts.accepted,
        "rejected" => facts.rejected,
        "pending" => facts.pending,
        "retired" => facts.retired,
        "changes" => facts.changes,
        _ => facts.age,
    }
}
