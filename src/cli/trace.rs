//! `trace`: what became of one row, told by everything that is recorded about its key.

use crate::cli::{known, output};
use crate::config::Config;
use crate::core::definition::{IdType, TrustBy};
use crate::core::handoff::{Mapped, Source};
use crate::core::row::Row;
use crate::core::trace::{
    ExpectedSignal, Hindrance, TraceFacts, TracedGroup, TracedMapping, TracedRecipient, TracedRow,
};
use crate::core::watermark::Key;
use crate::core::worker_state::WorkerState;
use crate::error::{Error, Kind, Result};
use crate::store::role::Onlooker;
use crate::store::trace::NamesOfKey;
use crate::store::{Reader, Session, connect};
use clap::Args;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use uuid::Uuid;

#[derive(Args)]
pub struct TraceCommand {
    /// The source, as `sources list` shows it
    pub source: String,
    /// The row's key
    #[arg(allow_hyphen_values = true)]
    pub key: String,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
}

pub async fn run(config: &Config, command: &TraceCommand) -> Result<ExitCode> {
    let books = connect::open_observer(&config.target, "gov-handoff trace").await?;
    let sources = books.sources(&config.worker).await.map_err(needs_a_role)?;
    let source = known::source(&sources, &command.source)?;
    let key = parse(&source, &command.key)?;
    let reader: Reader = connect::open_reader(&config.target, "gov-handoff trace").await?;
    let tracer = Tracer { books: &books, reader: &reader.only_tables().await?, config, source: &source, key };
    let facts = tracer.facts().await.map_err(needs_a_role)?;
    let conclusion = facts.conclude();
    if command.json {
        output::json(&json!({
            "state": conclusion.state, "sentence": conclusion.sentence, "timeline": facts.timeline(), "facts": facts,
        }))?;
    } else {
        output::line(format_args!("{} {}", facts.source, plain(&facts.key)));
        for entry in facts.timeline() {
            let at = entry.at.map(|at| at.to_string()).unwrap_or_default();
            output::line(format_args!("  {at:<27}  {:<11}  {}", entry.what, plain(&entry.detail)));
        }
        output::line(plain(&conclusion.sentence));
    }
    Ok(ExitCode::from(u8::from(!conclusion.state.is_settled())))
}

/// A key or an address may hold any character. One that controls the terminal is shown, and not obeyed.
fn plain(text: &str) -> String {
    let shown = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(shown).collect()
}

fn needs_a_role(e: Error) -> Error {
    if e.kind == Kind::Privilege {
        e.context(
            "a trace reads the source and our tables; run it as a member of gov_handoff_worker or gov_handoff_operator",
        )
    } else {
        e
    }
}

/// The key as the server would write it.
fn parse(source: &Source, text: &str) -> Result<Key> {
    let expected = match source.id_type() {
        IdType::Int4 => "an integer from -2147483648 to 2147483647",
        IdType::Int8 => "an integer from -9223372036854775808 to 9223372036854775807",
        IdType::Uuid => "a UUID such as 8c04f5f7-0000-4000-8000-000000000001",
        IdType::Text => "a text",
    };
    Key::parse(source.id_type(), text).ok_or_else(|| {
        let column = &source.definition.id.column;
        Error::config(format!(
            "`{}` is no key of {}: expected {expected} (column {column})",
            plain(text),
            source.name()
        ))
    })
}

/// Collects the facts about one key.
struct Tracer<'a> {
    books: &'a Session<Onlooker>,
    reader: &'a Reader,
    config: &'a Config,
    source: &'a Source,
    key: Key,
}

impl Tracer<'_> {
    /// The order is right: first the row, then how far the passes are, then what is recorded. A row that is there and
    /// proven to have been read must be recorded by the time we look. If a row appears recorded that was not there,
    /// it was committed in between, and is read again.
    async fn facts(&self) -> Result<TraceFacts> {
        let facts = self.look().await?;
        if facts.row.is_none() && !facts.signals.is_empty() { self.look().await } else { Ok(facts) }
    }

    async fn look(&self) -> Result<TraceFacts> {
        let (source, worker) = (self.source, self.config.worker.as_str());
        let (row, mapped) = self.row().await?;
        let mut facts = TraceFacts {
            source: source.name().to_owned(),
            key: self.key.to_string(),
            hindrance: self.hindrance().await?,
            frontier: self.books.frontier_of(worker, source.name()).await?,
            row,
            ..TraceFacts::default()
        };
        if let Some(id) = self.key.as_int() {
            facts.open_range = self.books.open_range_of(worker, source.name(), id).await?;
        }
        let names = self.names(&mapped).await?;
        facts.signals = self.books.signals_of(&names).await?;
        let by_actor = source.definition.trust.by == TrustBy::ActorRef;
        let waiting = self.books.captures_of(&names, by_actor).await?;
        (facts.captures, facts.staged) = (waiting.captures, waiting.staged);
        facts.letter = self.books.letter_of(worker, source, &self.key).await?;
        facts.retired_signals = self.books.retired_signals_of(&names).await?;
        if let Some(id) = self.key.as_int() {
            facts.retired_key = self.books.retired_key(source.name(), id).await?;
        }
        facts.backlog = self.books.backlog_of(source, &self.key).await?;
        if let Some(row) = &mut facts.row {
            row.took_a_used_key = mapped.replaced;
        }
        facts.groups = self.groups(&facts, &mapped).await?;
        facts.mapped = mapped.mapping;
        facts.recipients = self.recipients(&facts).await?;
        facts.certificate = self.certificate(&facts).await?;
        Ok(facts)
    }

    /// The row, and what the definition makes of it. Nothing of the row itself is kept.
    async fn row(&self) -> Result<(Option<TracedRow>, ReadRow)> {
        let writer = self.reader.writer_of(self.source, &self.key).await?;
        let rows = self.reader.rows_by_key(self.source, &[self.key.to_string()]).await?;
        let (Some(writer), Some(row)) = (writer, rows.first()) else { return Ok((None, ReadRow::default())) };
        let (transaction, committed_at) = self.books.transaction(writer).await?;
        let occurred_at = self.source.watermark(row).and_then(|w| w.at);
        let fact = TracedRow { transaction, committed_at, occurred_at, took_a_used_key: false };
        Ok((Some(fact), self.mapping(row).await?))
    }

    async fn mapping(&self, row: &Row) -> Result<ReadRow> {
        let mut handoffs = match self.source.map(row) {
            Mapped::Excluded => {
                return Ok(ReadRow { mapping: Some(TracedMapping::Excluded), ..ReadRow::default() });
            }
            Mapped::Refused(refusal) => {
                let mapping = Some(TracedMapping::Refused(refusal.code.to_owned()));
                return Ok(ReadRow { mapping, ..ReadRow::default() });
            }
            Mapped::Handoffs(handoffs) => handoffs,
        };
        let replaced = self.books.replaced(self.source, &handoffs.iter().collect::<Vec<_>>()).await?;
        let replaced: BTreeSet<Uuid> = replaced.into_iter().map(|(id, _)| id).collect();
        for handoff in handoffs.iter_mut().filter(|h| replaced.contains(&h.id)) {
            handoff.replace(&self.source.identity);
        }
        let expected =
            handoffs.iter().map(|h| ExpectedSignal { id: h.id, kind: h.rule.kind.clone() }).collect();
        let objects = handoffs.iter().map(|h| (h.group.to_string(), h.canonical_address.clone())).collect();
        Ok(ReadRow {
            mapping: Some(TracedMapping::Signals(expected)),
            objects,
            replaced: !replaced.is_empty(),
        })
    }

    async fn names(&self, read: &ReadRow) -> Result<NamesOfKey> {
        let mut kinds = self.books.kinds_of_handoffs().await?;
        kinds.extend(self.source.definition.rules.iter().map(|rule| rule.kind.clone()));
        kinds.push(UNMAPPED.to_owned());
        let more: Vec<Uuid> = match &read.mapping {
            Some(TracedMapping::Signals(expected)) => expected.iter().map(|e| e.id).collect(),
            _ => vec![],
        };
        Ok(NamesOfKey::of(self.source, &self.key, &kinds, &more))
    }

    async fn hindrance(&self) -> Result<Hindrance> {
        let worker = &self.config.worker;
        let member = self.books.family().await?.into_iter().find(|m| m.worker == *worker);
        let (state, paused_because) =
            member.map_or((WorkerState::NeverRan, None), |m| (m.state, m.paused_because));
        let source_unreadable = self.books.is_unreadable(self.source.name()).await?;
        Ok(Hindrance { worker: worker.clone(), state, paused_because, source_unreadable })
    }

    /// Each group that the row or its signals name, with the object in it.
    async fn groups(&self, facts: &TraceFacts, read: &ReadRow) -> Result<Vec<TracedGroup>> {
        let mut named: BTreeMap<String, String> = read.objects.iter().cloned().collect();
        let recorded = facts.signals.iter().map(|s| (&s.group, &s.address));
        for (group, address) in recorded.chain(facts.captures.iter().map(|c| (&c.group, &c.address))) {
            if let Some(group) = group {
                named.entry(group.clone()).or_insert_with(|| address.clone());
            }
        }
        let mut groups = Vec::new();
        for (group, address) in named {
            groups.extend(self.books.group_of(&group, &address).await?);
        }
        Ok(groups)
    }

    /// Who receives the signals. A recipient of several of them is named once.
    async fn recipients(&self, facts: &TraceFacts) -> Result<Vec<TracedRecipient>> {
        let mut all: BTreeMap<(bool, String), TracedRecipient> = BTreeMap::new();
        for signal in &facts.signals {
            for r in self.books.recipients(signal.id).await? {
                let key = (r.muted, r.actor.clone());
                all.entry(key).or_insert(TracedRecipient {
                    actor: r.actor,
                    step: r.step.name().to_owned(),
                    muted: r.muted,
                });
            }
        }
        Ok(all.into_values().collect())
    }

    /// A row that is gone is covered where its first signal is: that was recorded by a later transaction.
    async fn certificate(&self, facts: &TraceFacts) -> Result<Option<crate::core::trace::TracedCertificate>> {
        let written = facts.row.as_ref().and_then(|row| row.transaction);
        let recorded = facts.signals.iter().filter_map(|s| s.transaction).min();
        let Some(transaction) = written.or(recorded) else { return Ok(None) };
        self.books.first_certificate(&self.config.worker, self.source.name(), transaction).await
    }
}

/// The kind of a row that no rule matches.
const UNMAPPED: &str = "governance.handoff.unmapped";

/// What was read of a row, without its contents.
#[derive(Default)]
struct ReadRow {
    mapping: Option<TracedMapping>,
    /// Groups, each with the address of the row's object.
    objects: Vec<(String, String)>,
    replaced: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_key_controls_the_terminal() {
        assert_eq!(plain("a\u{1b}[2Jb\n"), "a\\u{1b}[2Jb\\n");
        assert_eq!(plain("Điều 45 | §=%'\"\\"), "Điều 45 | §=%'\"\\");
    }
}
