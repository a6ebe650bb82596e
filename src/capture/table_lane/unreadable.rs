//! Sources that cannot be read: the finding, how often they are tried again, and when the finding ends.

use super::{BROKEN_PAUSE, TableSession};
use crate::capture::turn::Turn;
use crate::core::finding::Severity;
use crate::error::{Error, Result};
use crate::store::findings::Finding;
use serde_json::json;
use std::time::Duration;

/// An open finding about an unreadable source is counted again this often.
const UNREADABLE_EVERY: Duration = Duration::from_secs(60);

impl TableSession<'_> {
    /// Reports a source that gets no turn, and why. A single run ends with this error, after the other sources had
    /// their turns.
    pub(super) async fn not_read(&mut self, name: &str, mut e: Error) -> Result<()> {
        tracing::error!(source = name, error = %e.told(), "source cannot be read");
        let detail = json!({ "source": name, "problem": e.to_string() });
        let key = format!("source_unreadable:{name}");
        self.writer
            .raise(&Finding { kind: "source_unreadable", key, severity: Severity::High, detail })
            .await?;
        self.unreadable += 1;
        if self.shared.term.once {
            e.of_source = true;
            self.failed.get_or_insert(e);
        }
        Ok(())
    }

    /// How long until a source that cannot be read is tried again.
    pub(super) fn broken_pause(&self) -> Duration {
        BROKEN_PAUSE.min(self.shared.term.config.reconcile_interval)
    }

    /// Reports an error that concerns this source only. The other sources go on.
    pub(super) async fn unreadable(&mut self, turn: &mut Turn, e: Error) -> Result<()> {
        let name = turn.source.name();
        tracing::error!(source = name, error = %e.told(), "source cannot be read");
        turn.doubted = true;
        let detail = json!({ "source": name, "problem": e.to_string() });
        let key = format!("source_unreadable:{name}");
        let finding = Finding { kind: "source_unreadable", key, severity: Severity::High, detail };
        self.writer.sustain(&finding, UNREADABLE_EVERY).await?;
        if self.shared.term.once {
            self.failed.get_or_insert(e);
        }
        Ok(())
    }

    /// Resolves the finding once the last turn and the last certifying pass, as far as they ran, have worked.
    pub(super) async fn readable(&self, turn: &mut Turn) -> Result<()> {
        if turn.doubted && !turn.unreadable && turn.uncertified_until.is_none() {
            self.writer
                .resolve(&format!("source_unreadable:{}", turn.source.name()), "readable again")
                .await?;
            turn.doubted = false;
        }
        Ok(())
    }
}
