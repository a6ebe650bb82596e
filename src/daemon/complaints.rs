//! What the keeper could not do, and why: each cause is logged once, and its end too.

use crate::error::{Kind, Policy, Result};
use std::collections::HashMap;

#[derive(Default)]
pub struct Complaints(HashMap<&'static str, String>);

impl Complaints {
    /// Logs what failed, and lets everything else go on. Only two errors are passed on: that the lease is lost, and that the
    /// keeper's own connection is.
    pub fn tolerate<T>(&mut self, what: &'static str, result: Result<T>) -> Result<Option<T>> {
        match result {
            Err(e) if e.kind == Kind::Connection => Err(e),
            result => self.tolerate_others(what, result),
        }
    }

    /// The same for a session that is not the keeper's own: only the loss of the lease is passed on.
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
                    tracing::warn!(error = %e, "could not {what}");
                    self.0.insert(what, cause);
                }
                Ok(None)
            }
        }
    }
}
