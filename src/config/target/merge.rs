//! Options from several origins made into one set. An origin above wins over one below it, option by option.

use super::options::{ConnectionOption, OPTIONS, by_key};
use super::parse::Word;
use super::{Given, parse, service};
use crate::error::Result;
use std::collections::{BTreeMap, HashMap};

/// Where an option was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    String,
    Service(String),
    Environment,
}

#[derive(Debug, Default)]
pub struct Merged(BTreeMap<&'static str, (String, Origin)>);

impl Merged {
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(|(value, _)| value.as_str())
    }

    pub fn owned(&self, key: &str) -> Option<String> {
        self.get(key).map(str::to_owned)
    }

    pub fn origin(&self, key: &str) -> Option<&Origin> {
        self.0.get(key).map(|(_, origin)| origin)
    }

    pub fn same_origin(&self, a: &str, b: &str) -> bool {
        self.origin(a) == self.origin(b)
    }

    /// The variable that the option came from, if it came from one.
    pub fn variable(&self, key: &str) -> Option<&'static str> {
        let from_variable = self.origin(key) == Some(&Origin::Environment);
        by_key(key).filter(|_| from_variable).map(|option| option.variable)
    }

    /// Adds what is not there yet.
    fn fill(&mut self, words: &[Word], origin: &Origin) {
        // A host and an address are one thing: an address from below is not the address of a host from above.
        let place = ["host", "hostaddr"];
        let placed = place.iter().any(|key| self.0.contains_key(key));
        for (key, value) in words {
            let Some(option) = by_key(key) else { continue };
            if placed && place.contains(&option.key) {
                continue;
            }
            self.0.entry(option.key).or_insert_with(|| (value.clone(), origin.clone()));
        }
    }

    /// Rejects what cannot be honoured, by the name under which the user gave it.
    fn check(&self) -> Result<()> {
        for (key, (value, origin)) in &self.0 {
            let Some(option) = by_key(key) else { continue };
            let named = match origin {
                Origin::String => format!("{key}, an option of libpq in the database URL,"),
                Origin::Service(service) => format!("{key}, an option of libpq in the service `{service}`,"),
                Origin::Environment => option.variable.to_owned(),
            };
            option.check(&named, value)?;
        }
        Ok(())
    }
}

/// The options in force.
///
/// The order is libpq's: the string, the service that it names (or `PGSERVICE`), the variables. If the string is from our
/// file, variables win over it, as they win over every other setting in the file. A password belongs to its user: the
/// file's password is not used for another user.
pub fn merge(url: Option<&str>, given: Given, env: &HashMap<String, String>) -> Result<Merged> {
    let var = |name: &str| env.get(name).filter(|value| !value.is_empty());
    let string = parse::parse(url.unwrap_or_default())?;
    let variables = variables(var)?;
    let service_of = |words: &[Word]| -> Result<Option<(Vec<Word>, Origin)>> {
        let Some((_, name)) = words.iter().find(|(key, _)| key == "service") else { return Ok(None) };
        Ok(Some((service::options(name, var)?, Origin::Service(name.clone()))))
    };
    let mut merged = Merged::default();
    if given == Given::Above {
        merged.fill(&string, &Origin::String);
        if let Some((words, origin)) =
            service_of(&string)?.map_or_else(|| service_of(&variables), |found| Ok(Some(found)))?
        {
            merged.fill(&words, &origin);
        }
        merged.fill(&variables, &Origin::Environment);
    } else {
        let mut above: Vec<(Vec<Word>, Origin)> = service_of(&variables)?.into_iter().collect();
        above.push((variables, Origin::Environment));
        let mut below = vec![(string.clone(), Origin::String)];
        below.extend(service_of(&string)?);
        fill_from_file(&mut merged, &above, &below, given);
    }
    merged.check()?;
    Ok(merged)
}

fn fill_from_file(
    merged: &mut Merged,
    above: &[(Vec<Word>, Origin)],
    below: &[(Vec<Word>, Origin)],
    given: Given,
) {
    let who = |(key, _): &&Word| key == "user" || key == "password";
    // Another role's URL says who it is; the variables say who the daemon is.
    let role = given == Given::InFileForRole;
    for (words, origin) in above {
        let words: Vec<Word> = words.iter().filter(|word| !(role && who(word))).cloned().collect();
        merged.fill(&words, origin);
    }
    let user = merged.owned("user");
    for (words, origin) in below {
        let theirs = words.iter().find(|(key, _)| key == "user").map(|(_, value)| value.clone());
        let another = user.is_some() && theirs != user;
        let words: Vec<Word> =
            words.iter().filter(|(key, _)| !(another && key == "password")).cloned().collect();
        merged.fill(&words, origin);
    }
    for (words, origin) in above.iter().filter(|_| role) {
        merged.fill(words, origin);
    }
}

/// The options that variables give. A variable that stands for no option is checked at once.
fn variables<'a>(var: impl Fn(&str) -> Option<&'a String>) -> Result<Vec<Word>> {
    let mut words = Vec::new();
    for option in OPTIONS.iter().filter(|option: &&ConnectionOption| !option.variable.is_empty()) {
        let Some(value) = var(option.variable) else { continue };
        if option.key.is_empty() {
            option.check(option.variable, value)?;
        } else {
            words.push((option.key.to_owned(), value.clone()));
        }
    }
    Ok(words)
}
