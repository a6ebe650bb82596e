//! A finding that is checked again and again: raised while its cause lasts, resolved when it ends.

use crate::core::finding::Severity;
use crate::error::Result;
use crate::store::Session;
use crate::store::findings::Finding;
use crate::store::role::Writes;
use serde_json::Value;
use std::time::Duration;

/// An occurrence is counted once in this time, or when it becomes worse.
const EVERY: Duration = Duration::from_secs(60);

pub struct Flag {
    kind: &'static str,
    key: String,
    /// `None`: a predecessor may have left the finding open.
    open: Option<bool>,
}

impl Flag {
    pub fn new(kind: &'static str, of: &str) -> Self {
        Self { kind, key: format!("{kind}:{of}"), open: None }
    }

    /// Raises or resolves the finding. `holds`: its severity and detail while the cause lasts, else `None`.
    pub async fn set<R: Writes>(
        &mut self,
        store: &Session<R>,
        holds: Option<(Severity, Value)>,
    ) -> Result<()> {
        match holds {
            Some((severity, detail)) => {
                let finding = Finding { kind: self.kind, key: self.key.clone(), severity, detail };
                store.sustain(&finding, EVERY).await?;
                self.open = Some(true);
            }
            None if self.open != Some(false) => {
                store.resolve(&self.key, "it has passed").await?;
                self.open = Some(false);
            }
            None => {}
        }
        Ok(())
    }
}
