//! A file of verdict rules, in TOML.

use super::{RuleSet, VerdictRule};
use serde::Deserialize;
use std::collections::BTreeSet;

/// The rules of a file. The file is the whole list: a rule that it does not name is removed, unless it is built in.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleFile {
    #[serde(rename = "rule", default)]
    pub rules: Vec<VerdictRule>,
}

/// Reads a file and checks all of its rules. The message says where and what.
pub fn parse_file(text: &str) -> Result<RuleFile, String> {
    let file: RuleFile = toml::from_str(text).map_err(|e| e.to_string().trim_end().to_owned())?;
    let mut codes = BTreeSet::new();
    if let Some(twice) = file.rules.iter().find(|rule| !codes.insert(&rule.code)) {
        return Err(format!("rule {}: expected each code once, found it twice", twice.code));
    }
    RuleSet::compile(&file.rules, &BTreeSet::new()).map_err(|e| e.to_string())?;
    Ok(file)
}
