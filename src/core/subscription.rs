//! Subscriptions and memberships as a file declares them.

use serde::Deserialize;
use serde_json::{Value, json};

/// The domains that an event may have.
pub const DOMAINS: [&str; 10] =
    ["iu", "piece", "staging", "birth_registry", "governance", "tac", "kg", "system", "dot", "health"];
const STREAMS: [&str; 7] = ["comment", "review", "update", "birth", "task", "alert", "health"];
/// What an actor is: the part before the colon.
const ACTORS: [&str; 5] = ["user", "agency", "role", "agent", "svc"];
const GROUPS: [&str; 2] = ["agency", "role"];

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubscriptionFile {
    #[serde(default, rename = "subscription")]
    subscriptions: Vec<Subscription>,
    #[serde(default, rename = "member")]
    members: Vec<Membership>,
}

/// Which events a recipient receives. What is left out matches everything.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Subscription {
    recipient: String,
    domain: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    stream: Option<String>,
    subject_table: Option<String>,
    filter: Option<serde_json::Map<String, Value>>,
    #[serde(default)]
    mute: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Membership {
    group: String,
    members: Vec<String>,
}

impl SubscriptionFile {
    /// What is wrong with the file, in words; the first thing only.
    pub fn check(&self) -> Result<(), String> {
        for s in &self.subscriptions {
            actor(&s.recipient, &ACTORS)?;
            known("domain", s.domain.as_deref(), &DOMAINS)?;
            known("stream", s.stream.as_deref(), &STREAMS)?;
        }
        for m in &self.members {
            actor(&m.group, &GROUPS)?;
            for member in &m.members {
                actor(member, &ACTORS)?;
                if *member == m.group {
                    return Err(format!("{member} cannot be a member of itself"));
                }
            }
        }
        Ok(())
    }

    /// As the gate takes them.
    #[must_use]
    pub fn subscriptions(&self) -> Value {
        let one = |s: &Subscription| {
            json!({
                "recipient_ref": s.recipient, "event_domain": s.domain, "event_type": s.kind, "event_stream": s.stream,
                "scope_subject_table": s.subject_table, "scope_filter": s.filter, "mute": s.mute,
            })
        };
        self.subscriptions.iter().map(one).collect()
    }

    /// As the gate takes them.
    #[must_use]
    pub fn members(&self) -> Value {
        let of = |m: &Membership| {
            let group = m.group.clone();
            m.members
                .clone()
                .into_iter()
                .map(move |member| json!({ "group_ref": group, "member_ref": member }))
        };
        self.members.iter().flat_map(of).collect()
    }
}

fn known(what: &str, value: Option<&str>, all: &[&str]) -> Result<(), String> {
    match value {
        Some(value) if !all.contains(&value) => {
            Err(format!("unknown {what} {value}; known are {}", all.join(", ")))
        }
        _ => Ok(()),
    }
}

fn actor(reference: &str, kinds: &[&str]) -> Result<(), String> {
    let is_known = reference.split_once(':').is_some_and(|(kind, name)| {
        kinds.contains(&kind) && !name.is_empty() && !name.contains(char::is_whitespace)
    });
    if is_known {
        return Ok(());
    }
    let wanted: Vec<_> = kinds.iter().map(|kind| format!("{kind}:name")).collect();
    Err(format!("expected {}, found {reference}", wanted.join(" or ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> Result<SubscriptionFile, String> {
        let file: SubscriptionFile = toml::from_str(text).map_err(|e| e.message().to_owned())?;
        file.check().map(|()| file)
    }

    #[test]
    fn a_file_says_who_receives_what_and_who_belongs_where() {
        let text = "[[subscription]]\nrecipient = 'role:reviewer'\ndomain = 'iu'\nfilter = { agency = 'x' }\n\
                    [[subscription]]\nrecipient = 'user:an'\nmute = true\n\
                    [[member]]\ngroup = 'role:reviewer'\nmembers = ['user:an', 'agent:codex']";
        let file = checked(text).unwrap();
        assert_eq!(file.subscriptions()[0]["scope_filter"], json!({ "agency": "x" }));
        assert_eq!(file.subscriptions()[1]["mute"], json!(true));
        assert_eq!(file.members()[1], json!({ "group_ref": "role:reviewer", "member_ref": "agent:codex" }));
    }

    #[test]
    fn what_cannot_match_anybody_is_refused() {
        for (text, why) in [
            ("[[subscription]]\nrecipient = 'huyen'", "expected user:name or agency:name"),
            ("[[subscription]]\nrecipient = 'user:'", "found user:"),
            ("[[subscription]]\nrecipient = 'user:an'\ndomain = 'mot'", "unknown domain mot; known are iu"),
            ("[[subscription]]\nrecipient = 'user:an'\nstream = 'birds'", "unknown stream birds"),
            ("[[subscription]]\nrecipient = 'user:an'\nstreem = 'task'", "unknown field `streem`"),
            (
                "[[member]]\ngroup = 'user:an'\nmembers = []",
                "expected agency:name or role:name, found user:an",
            ),
            ("[[member]]\ngroup = 'role:a'\nmembers = ['role:a']", "role:a cannot be a member of itself"),
        ] {
            let said = checked(text).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
    }
}
