//! What the keeper could not do, and why: each cause is logged once, and so is its end.

use crate::error::{Kind, Policy, Result};
use std::collections::HashMap;

#[derive(Default)]
pub struct Complaints(HashMap<&'static str, String>);

impl Complaints {
    /// Logs a failure and lets everything else go on. Only two errors are passed on: the loss of the lease, and the
    /// loss of the keeper's own connection.
    pub fn tolerate<T>(&mut self, what: &'static str, result: Result<T>) -> Result<Option<T>> {
        match result {
            Err(e) if e.kind == Kind::Connection => Err(e),
            result => self.tolerate_others(what, result),
        }
    }

    /// As [`Self::tolerate`], for a session that is not the keeper's own: only the loss of the lease is passed on.
    pub fn tolerate_others<T>(&mut self, what: &'static str, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(value) => {
                if self.0.remove(what).is_some() {
                    tracing::info!("could {what} again");
                }
                Ok(Some(value))
            }
            Err(e) if e.policy() == Policy::StandBy => Err(e),
            Err(e) => {
                let cause = e.to_string();
                if self.0.get(what) != Some(&cause) {
                    tracing::warn!(error = %e.told(), "could not {what}");
                    self.0.insert(what, cause);
                }
                Ok(None)
            }
        }
    }
}
