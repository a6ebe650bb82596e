//! Schedules as a file declares them. What a cron expression means is decided by the database alone.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

const POLICIES: [&str; 3] = ["coalesce", "skip", "catch_up"];

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScheduleFile {
    #[serde(default, rename = "schedule")]
    schedules: Vec<DeclaredSchedule>,
}

/// When to enqueue which job. `docs/schedules.md` describes each setting.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeclaredSchedule {
    name: String,
    cron: Option<String>,
    every: Option<String>,
    zone: Option<String>,
    anchor: Option<String>,
    missed: Option<String>,
    catch_up_limit: Option<i32>,
    executor: String,
    kind: String,
    domain: Option<String>,
    priority: Option<i16>,
    payload_ref: Option<String>,
    payload: Option<Map<String, Value>>,
    deadline: Option<String>,
    max_attempts: Option<i32>,
    paused: Option<bool>,
}

impl ScheduleFile {
    /// What is wrong with the file, in words; the first thing only. The kinds of executors are the caller's to look at.
    pub fn check(&self) -> Result<(), String> {
        let mut names = BTreeSet::new();
        for s in &self.schedules {
            s.check().map_err(|why| format!("schedule {}: {why}", s.name))?;
            if !names.insert(s.name.as_str()) {
                return Err(format!("schedule {} is in the file twice", s.name));
            }
        }
        Ok(())
    }

    /// Each schedule's name, and the kind of executor that it names.
    pub fn executors(&self) -> impl Iterator<Item = (&str, &str)> {
        self.schedules.iter().map(|s| (s.name.as_str(), s.executor.as_str()))
    }

    #[must_use]
    pub fn names(&self, name: &str) -> bool {
        self.schedules.iter().any(|s| s.name == name)
    }

    /// As the gate takes them.
    #[must_use]
    pub fn items(&self, actor: Option<&str>) -> Value {
        self.schedules.iter().map(|s| s.item(actor)).collect()
    }
}

impl DeclaredSchedule {
    fn check(&self) -> Result<(), String> {
        if self.name.is_empty() || self.name.chars().count() > 200 || self.name.contains(char::is_whitespace)
        {
            return Err("a name is one word of at most 200 characters".to_owned());
        }
        match (&self.cron, &self.every) {
            (Some(cron), None) => is_cron(cron)?,
            (None, Some(_)) => {}
            _ => return Err("expected either cron or every".to_owned()),
        }
        let zone = self.zone.as_deref().unwrap_or("UTC");
        // A short name can be an abbreviation, which stands for a fixed offset.
        if !zone.contains('/') && !["UTC", "GMT"].contains(&zone) {
            return Err(format!("not a zone: {zone}; expected a name such as Europe/Berlin, or UTC"));
        }
        match self.missed.as_deref() {
            Some(missed) if !POLICIES.contains(&missed) => {
                Err(format!("unknown policy {missed} for missed runs; known are {}", POLICIES.join(", ")))
            }
            _ => Ok(()),
        }
    }

    fn item(&self, actor: Option<&str>) -> Value {
        let mut item = json!({
            "name": self.name, "cron": self.cron, "every": self.every, "zone": self.zone, "anchor": self.anchor,
            "missed": self.missed, "catch_up_limit": self.catch_up_limit, "executor": self.executor, "kind": self.kind,
            "domain": self.domain, "priority": self.priority, "payload_ref": self.payload_ref, "payload": self.payload,
            "deadline": self.deadline, "max_attempts": self.max_attempts, "paused": self.paused, "actor": actor,
        });
        // What is left out is left to the database.
        if let Value::Object(fields) = &mut item {
            fields.retain(|_, value| !value.is_null());
        }
        item
    }
}

/// The form only: five fields of the characters that there are.
fn is_cron(cron: &str) -> Result<(), String> {
    let fields = cron.split_whitespace().count();
    if fields != 5 {
        return Err(format!(
            "a cron expression has five fields (minute hour day month weekday), `{cron}` has {fields}"
        ));
    }
    match cron.chars().find(|c| !c.is_ascii_alphanumeric() && !" \t*,-/".contains(*c)) {
        Some(other) => Err(format!("`{other}` has no meaning in the cron expression `{cron}`")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> Result<ScheduleFile, String> {
        let file: ScheduleFile = toml::from_str(text).map_err(|e| e.message().to_owned())?;
        file.check().map(|()| file)
    }

    #[test]
    fn a_file_says_when_to_enqueue_what_and_leaves_the_rest_to_the_database() {
        let text = "[[schedule]]\nname = 'a'\ncron = '0 2 * * MON-fri'\nzone = 'Asia/Ho_Chi_Minh'\nexecutor = 'Hermes'\nkind = 'k'\n\
                    payload = { depth = 3 }\n[[schedule]]\nname = 'b'\nevery = '15 minutes'\nexecutor = 'DOT'\nkind = 'k'\npaused = false";
        let file = checked(text).unwrap();
        let items = file.items(Some("user:an"));
        assert_eq!(
            items[0],
            json!({"name": "a", "cron": "0 2 * * MON-fri", "zone": "Asia/Ho_Chi_Minh", "executor": "Hermes", "kind": "k",
                   "payload": {"depth": 3}, "actor": "user:an"})
        );
        assert_eq!(items[1]["paused"], json!(false));
        assert!(file.names("b") && !file.names("c"));
        assert_eq!(file.executors().collect::<Vec<_>>(), [("a", "Hermes"), ("b", "DOT")]);
    }

    #[test]
    fn what_can_never_be_a_schedule_is_refused() {
        let with = |line: &str| format!("[[schedule]]\nname = 'a'\nexecutor = 'DOT'\nkind = 'k'\n{line}");
        for (text, why) in [
            (with(""), "expected either cron or every"),
            (with("cron = '* * * * *'\nevery = '1 hour'"), "expected either cron or every"),
            (with("cron = '* * * *'"), "has 4"),
            (with("cron = '@daily * * * *'"), "`@` has no meaning"),
            (with("every = '1 hour'\nzone = 'CET'"), "not a zone: CET"),
            (with("every = '1 hour'\nmissed = 'all'"), "known are coalesce, skip, catch_up"),
            (with("every = '1 hour'\nevry = '1'"), "unknown field `evry`"),
            (with("every = '1 hour'").replace("'a'", "'a b'"), "a name is one word"),
            (format!("{0}\n{0}", with("every = '1 hour'")), "schedule a is in the file twice"),
        ] {
            let said = checked(&text).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
    }
}
