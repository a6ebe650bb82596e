//! What becomes of the backlogs of sources that are registered: reads their boundaries, and says what will be done with how
//! many rows.

use crate::cli::output;
use crate::config::Config;
use crate::core::definition::{Backlog, SourceDefinition};
use crate::error::Result;
use crate::store::backlog::Decided;
use crate::store::role::{Reads, Writes};
use crate::store::source::boundary::Boundary;
use crate::store::{Reader, Session, connect};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::collections::HashSet;
use std::time::Duration;

/// What becomes of the backlog of one source.
#[derive(Debug, Serialize)]
pub struct BacklogFate {
    pub source: String,
    pub policy: Backlog,
    pub rows: u64,
    /// Since when this holds; `None` if it is decided by this call.
    pub decided_at: Option<String>,
    /// The definition, or the operator, asks for something else now, which changes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<&'static str>,
}

impl BacklogFate {
    pub fn of(definition: &SourceDefinition, given: Option<Backlog>, rows: u64) -> Self {
        let policy = given.unwrap_or(definition.backlog);
        Self { source: definition.name.clone(), policy, rows, decided_at: None, asked: None }
    }

    fn decided(decided: &Decided, asked: Backlog) -> Self {
        Self {
            source: decided.source.clone(),
            policy: decided.policy,
            rows: decided.rows.try_into().unwrap_or(0),
            decided_at: Some(decided.decided_at.clone()),
            asked: (asked != decided.policy).then(|| asked.name()),
        }
    }

    /// For people; `None` if there is nothing to say.
    pub fn sentence(&self, future: bool) -> Option<String> {
        let rows = output::count(self.rows.try_into().unwrap_or(i64::MAX));
        let deed = self.policy.deed();
        let source = &self.source;
        match (&self.decided_at, self.asked) {
            (Some(at), Some(asked)) => Some(format!(
                "source {source}: `{asked}` changes nothing: what becomes of its backlog was decided at {at}, {rows} rows are {deed}; \
                 `gov-handoff replay` hands off any stretch of them"
            )),
            (Some(_), None) => None,
            (None, _) if self.rows == 0 => None,
            (None, _) if future => Some(format!("source {source}: {rows} rows exist and would be {deed}")),
            (None, _) => Some(format!("source {source}: {rows} rows exist and are {deed}")),
        }
    }
}

/// What was read of the sources that a call registers, in their order.
#[derive(Default)]
pub struct Backlogs {
    pub boundaries: Vec<Option<Boundary>>,
    pub fates: Vec<BacklogFate>,
}

/// Reads the boundary of each source that is not registered and never was. With `dry_run` its rows are only counted.
pub async fn read(
    config: &Config,
    store: &Session<impl Reads + Writes>,
    definitions: &[SourceDefinition],
    given: Option<Backlog>,
    dry_run: bool,
) -> Result<Backlogs> {
    let registered = store.source_status(&config.worker).await?;
    let registered: HashSet<String> = registered.into_iter().map(|s| s.source).collect();
    let decided = store.backlogs().await?;
    let mut reader: Option<Reader> = None;
    let mut out = Backlogs::default();
    for definition in definitions {
        let policy = given.unwrap_or(definition.backlog);
        let known = decided.iter().find(|d| d.source == definition.name);
        if known.is_some() || registered.contains(&definition.name) {
            // An operator who says nothing asks for nothing: a definition is applied again for other reasons.
            out.fates.extend(known.map(|known| BacklogFate::decided(known, policy)));
            out.boundaries.push(None);
            continue;
        }
        if dry_run {
            out.fates.push(BacklogFate::of(definition, given, store.count_rows(definition).await?));
            out.boundaries.push(None);
            continue;
        }
        let reader = match &mut reader {
            Some(reader) => reader,
            None => {
                let session = connect::open_reader(&config.target, "gov-handoff backlog").await?;
                reader.insert(session)
            }
        };
        let bar = bar(&definition.name);
        let read = reader.read_boundary(store, definition, policy, |rows| bar.set_position(rows)).await;
        bar.finish_and_clear();
        let boundary = read?;
        out.fates.push(BacklogFate::of(definition, given, boundary.rows));
        out.boundaries.push(Some(boundary));
    }
    Ok(out)
}

/// Removes what was staged for sources that another session registered first.
pub async fn forget_unused(store: &Session<impl Writes>, backlogs: &Backlogs) -> Result<()> {
    for boundary in backlogs.boundaries.iter().flatten() {
        if let Some(staged) = boundary.staged {
            store.forget_boundary(staged).await?;
        }
    }
    Ok(())
}

fn bar(source: &str) -> ProgressBar {
    let bar = ProgressBar::no_length();
    if let Ok(style) = ProgressStyle::with_template("{msg} {spinner} {human_pos} rows {per_sec}") {
        bar.set_style(style);
    }
    bar.set_message(format!("reading the backlog of {source}"));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
