//! The checks of `doctor`: each is ok, a warning, a failure or unknown, with advice.
//!
//! The judgements are here, as functions of what was found. The store collects the facts.

mod catalogue;
pub mod forecast;
mod judge;
mod resources;

pub use catalogue::{CHECKS, table};
pub use judge::*;
pub use resources::*;
use serde::Serialize;

/// From good to bad. An unknown result stands between, because it neither proves nor excludes a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckState {
    Ok,
    CannotTell,
    Warn,
    Fail,
}

impl CheckState {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::CannotTell => "cannot tell",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    pub check: &'static str,
    pub verdict: CheckState,
    pub found: String,
    /// What the operator can do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// Why the check matters.
    pub why: &'static str,
    /// What puts it right, where that can be said exactly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<Fix>,
}

/// What puts a check right. All identifiers and values in it are quoted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct Fix {
    /// Statements, one each or a block. They are for the owner of what they alter, or for a superuser.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sql: Vec<String>,
    /// A command of ours does it, and no statement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// It takes effect when the server is restarted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub restart: bool,
}

impl Fix {
    #[must_use]
    pub fn command(command: impl Into<String>) -> Self {
        Self { command: Some(command.into()), ..Self::default() }
    }

    /// Takes the statements of a text; each ends with a semicolon at the end of its line.
    #[must_use]
    pub fn sql(statements: Vec<String>) -> Self {
        Self { sql: statements, ..Self::default() }
    }

    #[must_use]
    pub fn after_restart(self) -> Self {
        Self { restart: true, ..self }
    }
}

impl Check {
    fn of(check: &'static str, verdict: CheckState, found: String, advice: Option<String>) -> Self {
        Self { check, verdict, found, advice, why: catalogue::why(check), fix: None }
    }

    #[must_use]
    pub fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self::of(check, CheckState::Ok, found.into(), None)
    }

    #[must_use]
    pub fn warn(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::of(check, CheckState::Warn, found.into(), Some(advice.into()))
    }

    #[must_use]
    pub fn fail(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::of(check, CheckState::Fail, found.into(), Some(advice.into()))
    }

    #[must_use]
    pub fn cannot_tell(check: &'static str, why: impl Into<String>) -> Self {
        Self::of(check, CheckState::CannotTell, format!("cannot tell: {}", why.into()), None)
    }

    #[must_use]
    pub fn is_to_fix(&self) -> bool {
        self.verdict >= CheckState::Warn
    }

    /// Adds what puts it right, if something is wrong.
    #[must_use]
    pub fn fixed_by(self, fix: Fix) -> Self {
        if self.is_to_fix() { Self { fix: Some(fix), ..self } } else { self }
    }
}

#[cfg(test)]
mod tests;
