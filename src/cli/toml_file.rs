//! A file in TOML that an operator gives to a command.

use crate::error::{Error, Result};
use serde::de::DeserializeOwned;
use std::path::Path;

/// What is wrong is said with the file's name and the line.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let name = path.display();
    let text =
        std::fs::read_to_string(path).map_err(|e| Error::config(format!("cannot read {name}: {e}")))?;
    parse(&name.to_string(), &text)
}

pub(super) fn parse<T: DeserializeOwned>(name: &str, text: &str) -> Result<T> {
    toml::from_str(text).map_err(|e| {
        let line = e.span().map(|s| 1 + text[..s.start].matches('\n').count());
        let at = line.map_or_else(String::new, |l| format!(" line {l}"));
        Error::config(format!("{name}{at}: {}", e.message().replace('\n', " ")))
    })
}
