//! `dlq`: the rows that could not be handed off, and the operator's decisions about them. No letter is replayed
//! automatically.

use crate::cli::{known, output, time};
use crate::config::Config;
use crate::core::captured_by::CapturedBy;
use crate::core::dead_letter::clip;
use crate::core::handoff::Source;
use crate::core::row::Row;
use crate::core::watermark::Key;
use crate::error::{Error, Kind, Result};
use crate::handoff::dead_letter_replay::{Decision, Outlook, outlook};
use crate::handoff::deliver::Delivery;
use crate::instance;
use crate::store::dead_letter::{Letter, Selection};
use crate::store::lease::{Claim, Kept, Lease};
use crate::store::{Store, connect};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// How long a replay that was killed blocks other replays.
const TTL: Duration = Duration::from_secs(20);
/// Letters decided about per statement.
const CHUNK: usize = 200;

#[derive(Subcommand)]
pub enum DlqCommand {
    /// The open dead letters; with --all those that were decided about, too
    List {
        #[command(flatten)]
        selection: DlqSelection,
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
    },
    /// Everything that is known of some dead letters
    Show {
        /// As `dlq list` shows them
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
    },
    /// Read the rows again from their source and hand them off; those that are refused again stay open (exit code 1)
    Replay(DlqDecision),
    /// Decide that the rows need no handoff (needs --reason)
    Discard(DlqDecision),
    /// Decide that other rows took the place of these (needs --reason)
    Supersede(DlqDecision),
}

impl DlqCommand {
    fn since(&self) -> Option<&str> {
        let selection = match self {
            Self::List { selection, .. } => selection,
            Self::Replay(decision) | Self::Discard(decision) | Self::Supersede(decision) => {
                &decision.selection
            }
            Self::Show { .. } => return None,
        };
        selection.since.as_deref()
    }
}

#[derive(Args)]
pub struct DlqSelection {
    /// Of this source
    #[arg(long)]
    pub source: Option<String>,
    /// With this reason code, such as refused_by_database
    #[arg(long)]
    pub code: Option<String>,
    /// That failed at or after this time, such as 2026-11-16 or 2026-11-16T12:00:00Z
    #[arg(long)]
    pub since: Option<String>,
    /// These, by id; may be given several times
    #[arg(long = "id", value_name = "ID")]
    pub ids: Vec<String>,
    /// All of them
    #[arg(long)]
    pub all: bool,
}

#[derive(Args)]
pub struct DlqDecision {
    #[command(flatten)]
    pub selection: DlqSelection,
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Why; it is kept with the letter
    #[arg(long)]
    pub reason: Option<String>,
    /// Who decides [default: the database user]
    #[arg(long)]
    pub actor: Option<String>,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
}

pub async fn run(config: &Config, command: DlqCommand) -> Result<ExitCode> {
    if let Some(since) = command.since() {
        time::check(since)?;
    }
    let store = connect::open_reader(&config.target, "gov-handoff dlq").await?;
    match command {
        DlqCommand::List { selection, json } => list(config, &store, &selection, json).await,
        DlqCommand::Show { ids, json } => show(&store, &ids, json).await,
        DlqCommand::Replay(decision) => replay(config, &store, &decision).await,
        DlqCommand::Discard(decision) => resolve(config, &store, "discarded", &decision).await,
        DlqCommand::Supersede(decision) => resolve(config, &store, "superseded", &decision).await,
    }
}

async fn list(config: &Config, store: &Store, selection: &DlqSelection, json: bool) -> Result<ExitCode> {
    let letters = store.dead_letters(&chosen(selection, selection.all)?).await?;
    known_source(config, store, selection, &letters).await?;
    if json {
        output::json(&letters)?;
    } else if letters.is_empty() {
        output::line(if selection.all { "no dead letters match" } else { "no open dead letters match" });
    } else {
        let row = |l: &Letter| {
            vec![
                l.id.to_string(),
                l.source.clone(),
                clip(&l.source_key),
                l.failure_code.clone().unwrap_or_default(),
                l.attempts.to_string(),
                l.last_failed_at.clone(),
                l.resolution.clone().unwrap_or_else(|| "open".to_owned()),
            ]
        };
        let header = ["id", "source", "key", "reason", "attempts", "last failed", "state"];
        output::table(&header, &letters.iter().map(row).collect::<Vec<_>>());
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(store: &Store, ids: &[String], json: bool) -> Result<ExitCode> {
    let wanted = parse_ids(ids)?;
    let selection = Selection { ids: Some(wanted.clone()), resolved_too: true, ..Selection::default() };
    let letters = store.dead_letters(&selection).await?;
    missing(&wanted, &letters, "dead letter")?;
    if json {
        output::json(&letters)?;
        return Ok(ExitCode::SUCCESS);
    }
    for letter in &letters {
        let Value::Object(fields) = serde_json::to_value(letter)? else { continue };
        for (name, value) in &fields {
            let text = value.as_str().map_or_else(|| value.to_string(), clip);
            output::line(format_args!("{:<18} {text}", name.replace('_', " ")));
        }
        output::line("");
    }
    Ok(ExitCode::SUCCESS)
}

/// Discards or supersedes.
async fn resolve(
    config: &Config,
    store: &Store,
    resolution: &str,
    decision: &DlqDecision,
) -> Result<ExitCode> {
    let Some(reason) = decision.reason.as_deref().filter(|r| !r.trim().is_empty()) else {
        return Err(Error::config(format!(
            "a dead letter is not {resolution} without a reason; give --reason"
        )));
    };
    let letters = selected(config, store, decision).await?;
    let mut report = Report::new(resolution, decision, letters.len());
    let ids: Vec<_> = letters.iter().map(|l| l.id).collect();
    if decision.dry_run {
        report.done = ids;
    } else {
        for chunk in ids.chunks(CHUNK) {
            let actor = decision.actor.as_deref();
            report.done.extend(store.resolve_dead_letters(chunk, resolution, reason, actor).await?);
        }
    }
    report.print(decision.json)
}

async fn replay(config: &Config, store: &Store, decision: &DlqDecision) -> Result<ExitCode> {
    let letters = selected(config, store, decision).await?;
    let mut report = Report::new("replayed", decision, letters.len());
    if letters.is_empty() {
        return report.print(decision.json);
    }
    let (jobs, letters): (Vec<_>, Vec<_>) = letters.into_iter().partition(Letter::is_of_a_job);
    redrive(store, &jobs, decision, &mut report).await?;
    if letters.is_empty() {
        return report.print(decision.json);
    }
    let sources = store.sources(&config.worker).await?;
    let lease = if decision.dry_run { None } else { Some(claim(store).await?) };
    let kept = lease.as_ref().map(|lease| Kept::keep(&config.target, lease, TTL));
    let worked = replay_all(store, &sources, lease.as_ref(), &letters, decision, &mut report).await;
    if let Some(kept) = kept {
        kept.end().await;
    }
    if let Some(lease) = &lease {
        store.resign_lease(lease).await?;
    }
    worked?;
    report.print(decision.json)
}

/// To replay the letter of a job is to queue the job again.
async fn redrive(store: &Store, jobs: &[Letter], decision: &DlqDecision, report: &mut Report) -> Result<()> {
    for letters in jobs.chunks(CHUNK) {
        let ids: Vec<_> = letters.iter().map(|l| l.id).collect();
        let done =
            if decision.dry_run { ids } else { store.redrive_jobs(&ids, decision.actor.as_deref()).await? };
        for letter in letters.iter().filter(|l| !done.contains(&l.id)) {
            report.failed(letter, "not_a_dead_letter", "the job is no longer a dead letter");
        }
        report.done.extend(done);
    }
    Ok(())
}

async fn replay_all(
    store: &Store,
    sources: &[Arc<Source>],
    lease: Option<&Lease>,
    letters: &[Letter],
    decision: &DlqDecision,
    report: &mut Report,
) -> Result<()> {
    let mut by_source: BTreeMap<&str, Vec<&Letter>> = BTreeMap::new();
    letters.iter().for_each(|l| by_source.entry(&l.source).or_default().push(l));
    let why = Decision { actor: decision.actor.as_deref(), reason: decision.reason.as_deref() };
    for (name, letters) in by_source {
        let Some(source) = sources.iter().find(|s| s.name() == name) else {
            let problem = format!("source {name} is not registered");
            letters.iter().for_each(|l| report.failed(l, "source_not_registered", &problem));
            continue;
        };
        for letters in letters.chunks(CHUNK) {
            let rows = rows(store, source, letters).await?;
            for letter in letters {
                let row = rows.get(&letter.source_key);
                let outlook = match lease {
                    Some(lease) => {
                        let delivery = Delivery { store, lease, captured_by: CapturedBy::Replay };
                        delivery.replay(source, letter, row, why).await?
                    }
                    None => outlook(source, letter, row),
                };
                match outlook {
                    Outlook::Handoffs(_) => report.done.push(letter.id),
                    Outlook::Refused(refusal) => report.failed(letter, refusal.code, &refusal.detail),
                }
            }
        }
    }
    Ok(())
}

/// The letters' rows by key. A key that does not fit the source's key type has no row, and would fail the whole query.
async fn rows(store: &Store, source: &Source, letters: &[&Letter]) -> Result<HashMap<String, Row>> {
    let keys = letters.iter().map(|l| l.source_key.clone());
    let keys: Vec<_> = keys.filter(|k| Key::parse(source.id_type(), k).is_some()).collect();
    let rows = store.rows_by_key(source, &keys).await?;
    Ok(rows.into_iter().map(|row| (source.key(&row).to_owned(), row)).collect())
}

async fn claim(store: &Store) -> Result<Lease> {
    match store.claim_letters(instance::owner(), TTL).await? {
        Claim::Held { lease, .. } => Ok(lease),
        Claim::Taken(view) => Err(Error::new(
            Kind::Refused,
            format!("another replay is running ({}); wait for it to end", view.owner.unwrap_or_default()),
        )),
    }
}

/// The open letters that a decision is about. All letters only with `--all`: a forgotten filter must not select all.
async fn selected(config: &Config, store: &Store, decision: &DlqDecision) -> Result<Vec<Letter>> {
    let s = &decision.selection;
    let narrowed = s.source.is_some() || s.code.is_some() || s.since.is_some() || !s.ids.is_empty();
    if !narrowed && !s.all {
        return Err(Error::config("which dead letters? give --id, --source, --code or --since, or --all"));
    }
    let selection = chosen(s, false)?;
    let letters = store.dead_letters(&selection).await?;
    known_source(config, store, s, &letters).await?;
    missing(selection.ids.as_deref().unwrap_or_default(), &letters, "open dead letter")?;
    Ok(letters)
}

/// Letters outlive their source, so a source is unknown only if it is not registered and has no letter either.
async fn known_source(config: &Config, store: &Store, s: &DlqSelection, letters: &[Letter]) -> Result<()> {
    if let Some(source) = s.source.as_deref().filter(|_| letters.is_empty()) {
        let selection =
            Selection { source: Some(source.to_owned()), resolved_too: true, ..Selection::default() };
        if store.dead_letters(&selection).await?.is_empty() {
            known::source(&store.sources(&config.worker).await?, source)?;
        }
    }
    Ok(())
}

fn chosen(s: &DlqSelection, resolved_too: bool) -> Result<Selection> {
    let ids = if s.ids.is_empty() { None } else { Some(parse_ids(&s.ids)?) };
    Ok(Selection {
        source: s.source.clone(),
        code: s.code.clone(),
        since: s.since.clone(),
        ids,
        resolved_too,
    })
}

fn parse_ids(ids: &[String]) -> Result<Vec<Uuid>> {
    let parse = |id: &String| {
        Uuid::parse_str(id).map_err(|_| {
            Error::config(format!("`{id}` is not the id of a dead letter; `gov-handoff dlq list` shows them"))
        })
    };
    ids.iter().map(parse).collect()
}

fn missing(wanted: &[Uuid], found: &[Letter], what: &str) -> Result<()> {
    match wanted.iter().find(|id| !found.iter().any(|l| l.id == **id)) {
        Some(id) => Err(Error::new(Kind::Refused, format!("no {what} {id} matches"))),
        None => Ok(()),
    }
}

/// What was decided, for people and scripts.
struct Report {
    verb: String,
    dry_run: bool,
    selected: usize,
    done: Vec<Uuid>,
    failed: Vec<Value>,
}

impl Report {
    fn new(verb: &str, decision: &DlqDecision, selected: usize) -> Self {
        Self { verb: verb.to_owned(), dry_run: decision.dry_run, selected, done: vec![], failed: vec![] }
    }

    fn failed(&mut self, letter: &Letter, code: &str, detail: &str) {
        self.failed.push(json!({
            "id": letter.id.to_string(), "source": letter.source, "source_key": clip(&letter.source_key),
            "code": code, "detail": detail,
        }));
    }

    /// Exit code 1 when a selected letter is still open.
    fn print(&self, json: bool) -> Result<ExitCode> {
        let done: Vec<_> = self.done.iter().map(Uuid::to_string).collect();
        if json {
            output::json(&json!({
                "dry_run": self.dry_run, "selected": self.selected, self.verb.as_str(): done, "failed": self.failed,
            }))?;
        } else if self.selected == 0 {
            output::line("no open dead letters match; nothing to do");
        } else {
            for failed in &self.failed {
                let text = |name: &str| failed[name].as_str().unwrap_or_default().to_owned();
                output::line(format_args!(
                    "{} {} {}: {} ({})",
                    text("id"),
                    text("source"),
                    text("source_key"),
                    text("detail"),
                    text("code")
                ));
            }
            let (n, of) = (self.done.len(), self.selected);
            let verb = &self.verb;
            output::line(if self.dry_run {
                format!("{n} of {of} dead letters would be {verb}; nothing was changed")
            } else {
                format!("{n} of {of} dead letters {verb}")
            });
        }
        let whole = self.failed.is_empty();
        Ok(ExitCode::from(u8::from(!whole)))
    }
}
