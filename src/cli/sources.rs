//! `sources`: loads, lists, checks and removes definitions.

use crate::cli::backlog::{self, BacklogFate};
use crate::cli::{known, output, toml_file};
use crate::config::Config;
use crate::core::dead_letter::code;
use crate::core::definition::{Backlog, SourceDefinition, SourceFile};
use crate::core::finding::Severity;
use crate::core::handoff::Source;
use crate::error::{Error, Kind, Result};
use crate::store::backlog::Decided;
use crate::store::findings::Finding;
use crate::store::migrate::StepState;
use crate::store::role::{Reads, Writes};
use crate::store::source::catalogue::Strategy;
use crate::store::{Session, Store, connect};
use clap::Subcommand;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

const DEFAULTS: &str = include_str!("../../replication/sources.toml");

#[derive(Subcommand)]
pub enum SourcesCommand {
    /// Register or redefine the sources of a file; without one, the built-in defaults
    Apply {
        /// A file such as replication/sources.toml
        file: Option<PathBuf>,
        /// Check and say what would change, and change nothing
        #[arg(long)]
        dry_run: bool,
        /// What becomes of the rows that exist in tables that are new here; overrides the definitions
        #[arg(long, value_name = "seed|skip|hand_off")]
        backlog: Option<Backlog>,
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
    },
    /// The registered sources
    List {
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
    },
    /// Compare the registered sources, or a file's, with the catalogue, and show how each will be read
    Check {
        /// A file such as replication/sources.toml [default: what is registered]
        file: Option<PathBuf>,
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
    },
    /// Stop reading a source; its recorded handoffs stay
    Remove {
        /// As `sources list` shows it
        name: String,
    },
}

pub async fn run(config: &Config, command: SourcesCommand) -> Result<ExitCode> {
    // Errors in a file are reported before a connection is opened.
    match command {
        SourcesCommand::Apply { file, dry_run, backlog, json } => {
            let definitions = read(file.as_deref())?;
            let store = connect::open(&config.target, "gov-handoff sources").await?;
            apply(config, &store, &definitions, &Applying { backlog, dry_run, json }).await
        }
        SourcesCommand::Check { file, json } => {
            let given = file.as_deref().map(|f| read(Some(f))).transpose()?;
            let store = connect::open(&config.target, "gov-handoff sources").await?;
            let definitions = match given {
                Some(definitions) => definitions,
                None => store.sources(&config.worker).await?.iter().map(|s| s.definition.clone()).collect(),
            };
            check(config, &store, &definitions, json).await
        }
        SourcesCommand::List { json } => {
            let store = connect::open(&config.target, "gov-handoff sources").await?;
            list(config, &store, json).await
        }
        SourcesCommand::Remove { name } => {
            let store = connect::open(&config.target, "gov-handoff sources").await?;
            // By its name alone, so that a source with an unreadable definition can be removed too.
            if !store.remove_source(&config.worker, &name).await? {
                let there = store.source_status(&config.worker).await?;
                known::one_of("source", &name, &there.iter().map(|s| s.source.as_str()).collect::<Vec<_>>())?;
            }
            output::line(format_args!("source {name} removed; its recorded handoffs stay"));
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Loads the built-in definitions where none are registered.
pub async fn load_defaults(
    config: &Config,
    store: &Session<impl Reads + Writes>,
    given: Option<Backlog>,
) -> Result<(Vec<String>, Vec<BacklogFate>)> {
    if !store.sources(&config.worker).await?.is_empty() {
        return Ok((vec![], vec![]));
    }
    let definitions = read(None)?;
    // All are checked before the first is written: a half of the defaults would look like the operator's choice.
    for definition in &definitions {
        store.accept_source(definition).await?;
    }
    let fates = register(config, store, &definitions, given).await?.1;
    Ok((definitions.into_iter().map(|d| d.name).collect(), fates))
}

/// What would become of the backlogs of the built-in sources, in a database that need not have our tables yet.
pub async fn fates_of_defaults(
    config: &Config,
    store: &Session<impl Reads + Writes>,
    given: Option<Backlog>,
) -> Result<Vec<BacklogFate>> {
    let registered = store.migration_status().await?.iter().all(|step| step.state == StepState::Current)
        && !store.sources(&config.worker).await?.is_empty();
    let mut fates = Vec::new();
    for definition in read(None)?.iter().filter(|_| !registered) {
        // A table that is not there yet will be made, and will be empty.
        if store.check_source(definition).await.is_ok() {
            let rows = store.count_rows(definition).await?;
            fates.push(BacklogFate::of(definition, given, rows));
        }
    }
    Ok(fates)
}

/// Registers or redefines sources. The backlogs of new ones are read first, in a snapshot each.
async fn register(
    config: &Config,
    store: &Session<impl Reads + Writes>,
    definitions: &[SourceDefinition],
    given: Option<Backlog>,
) -> Result<(Vec<String>, Vec<BacklogFate>)> {
    let backlogs = backlog::read(config, store, definitions, given, false).await?;
    let put = store.put_sources(&config.worker, definitions, &backlogs.boundaries).await;
    backlog::forget_unused(store, &backlogs).await?;
    Ok((put?, backlogs.fates))
}

/// Reads and compiles a file. A definition that cannot run is rejected before the database is touched.
fn read(file: Option<&Path>) -> Result<Vec<SourceDefinition>> {
    let (name, text) = match file {
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|e| Error::config(format!("cannot read {}: {e}", path.display())))?;
            (path.display().to_string(), text)
        }
        None => ("the built-in sources".to_owned(), DEFAULTS.to_owned()),
    };
    let parsed: SourceFile = toml_file::parse(&name, &text)?;
    let mut tables = std::collections::HashMap::new();
    for definition in &parsed.sources {
        Source::compile(definition.clone()).map_err(|e| Error::from(e).context(&name))?;
        let table = (definition.schema.clone(), definition.table().to_owned());
        if let Some(other) = tables.insert(table, &definition.name) {
            return Err(Error::config(format!(
                "{name}: sources {other} and {} read the same table; give one source all the rules",
                definition.name
            )));
        }
    }
    Ok(parsed.sources)
}

/// How definitions are applied.
struct Applying {
    backlog: Option<Backlog>,
    dry_run: bool,
    json: bool,
}

async fn apply(
    config: &Config,
    store: &Store,
    definitions: &[SourceDefinition],
    how: &Applying,
) -> Result<ExitCode> {
    let dry_run = how.dry_run;
    // All are checked before the first is written: a bad file changes nothing.
    for definition in definitions {
        store.accept_source(definition).await?;
        if let Some((kind, problem)) = store.contents_in(definition).await? {
            if !dry_run {
                let key = format!("{kind}:definition:{}", definition.name);
                let detail = serde_json::json!({ "source": definition.name, "problem": problem });
                store.raise(&Finding { kind, key, severity: Severity::High, detail }).await?;
            }
            return Err(Error::new(Kind::Refused, problem));
        }
    }
    let (outcomes, fates) = if dry_run {
        let backlogs = backlog::read(config, store, definitions, how.backlog, true).await?;
        (vec!["checked".to_owned(); definitions.len()], backlogs.fates)
    } else {
        register(config, store, definitions, how.backlog).await?
    };
    let mut values = Vec::new();
    for (definition, outcome) in definitions.iter().zip(outcomes) {
        let fate = fates.iter().find(|fate| fate.source == definition.name);
        let apart = unstreamed(store, definition).await?;
        if how.json {
            values.push(serde_json::json!({
                "source": definition.name, "outcome": outcome, "backlog": fate, "table_only_because": apart,
            }));
        } else {
            output::line(format_args!("source {} {outcome}", definition.name));
            if let Some(sentence) = fate.and_then(|fate| fate.sentence(dry_run)) {
                output::line(sentence);
            }
            if let Some(problem) = apart {
                output::line(format_args!(
                    "source {} is read from its table only: {problem}",
                    definition.name
                ));
            }
        }
        if !dry_run {
            for kind in [code::PAYLOAD, code::VECTOR] {
                let key = format!("{kind}:definition:{}", definition.name);
                store.resolve(&key, "the definition carries no contents").await?;
            }
        }
    }
    if how.json {
        output::json(&values)?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn check(
    config: &Config,
    store: &Store,
    definitions: &[SourceDefinition],
    json: bool,
) -> Result<ExitCode> {
    let (mut rows, mut values, mut sound) = (Vec::new(), Vec::new(), true);
    let decided = decided(config, store).await?;
    for definition in definitions {
        let contents = store.contents_in(definition).await?;
        let how = match store.accept_source(definition).await {
            Ok(_) if let Some((_, problem)) = contents => Err(problem),
            Ok(Strategy::Ranges { index }) => Ok(format!("by the index on {index} with open id ranges")),
            Ok(Strategy::Frontier { why }) => Ok(format!("by the transaction frontier ({why})")),
            Err(e) => Err(e.to_string()),
        };
        sound &= how.is_ok();
        let unstreamed = unstreamed(store, definition).await?;
        let (state, how) = match (how, unstreamed) {
            (Ok(how), Some(problem)) => ("ok", format!("{how}; never streamed: {problem}")),
            (Ok(how), None) => ("ok", how),
            (Err(problem), _) => ("refused", problem),
        };
        let decided = decided.iter().find(|d| d.source == definition.name);
        let backlog = backlog_of(definition, decided);
        values.push(serde_json::json!({
            "source": definition.name, "state": state, "reads": how, "backlog": definition.backlog, "boundary": decided,
        }));
        rows.push(vec![definition.name.clone(), state.to_owned(), backlog, how]);
    }
    if json {
        output::json(&values)?
    } else {
        output::table(&["source", "state", "backlog", "read"], &rows)
    }
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// What was decided about the backlogs; nothing where the sources are checked before our tables are made.
async fn decided(config: &Config, store: &Store) -> Result<Vec<Decided>> {
    match store.sources(&config.worker).await {
        Err(e) if e.kind == Kind::Catalogue => Ok(vec![]),
        _ => store.backlogs().await,
    }
}

/// What became of a source's backlog, or what its definition asks for.
fn backlog_of(definition: &SourceDefinition, decided: Option<&Decided>) -> String {
    match decided {
        Some(d) => format!("{} {}", d.policy.name(), output::count(d.rows)),
        None => definition.backlog.name().to_owned(),
    }
}

/// Why a stream cannot bring the source, if it cannot.
async fn unstreamed(store: &Store, definition: &SourceDefinition) -> Result<Option<String>> {
    let source = Arc::new(Source::compile(definition.clone())?);
    Ok(store.publishable(&[source]).await?.left.pop().map(|(_, problem)| problem))
}

async fn list(config: &Config, store: &Store, json: bool) -> Result<ExitCode> {
    let sources = store.sources(&config.worker).await?;
    let decided = store.backlogs().await?;
    if json {
        let value = |s: &Arc<Source>| {
            let mut value = serde_json::to_value(&s.definition)?;
            let boundary = decided.iter().find(|d| d.source == s.name());
            value["boundary"] = serde_json::to_value(boundary)?;
            Ok(value)
        };
        output::json(&sources.iter().map(value).collect::<Result<Vec<_>>>()?)?;
    } else {
        let row = |s: &Arc<Source>| {
            let d = &s.definition;
            vec![
                d.name.clone(),
                format!("{}.{}", d.schema, d.table()),
                format!("{} {}", d.id.column, d.id.id_type.sql_name()),
                d.order.as_ref().map_or_else(|| "-".to_owned(), |o| o.column.clone()),
                d.rules.len().to_string(),
                backlog_of(d, decided.iter().find(|b| b.source == d.name)),
            ]
        };
        output::table(
            &["source", "table", "key", "order", "rules", "backlog"],
            &sources.iter().map(row).collect::<Vec<_>>(),
        );
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::definition::{Grain, Trust};

    /// The reference at the head of the built-in file, without the comment signs.
    fn reference() -> String {
        let head = DEFAULTS.lines().take_while(|line| line.starts_with('#'));
        let lines: Vec<_> = head.filter_map(|line| line.strip_prefix("#   ")).collect();
        lines.join("\n")
    }

    /// The keys that a table of the file accepts, as the error about an unknown key lists them.
    fn keys(inside: &str) -> Vec<String> {
        let error = toml::from_str::<SourceFile>(inside).unwrap_err().message().to_owned();
        let (_, list) = error.split_once("expected ").expect("a list");
        list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn the_built_in_sources_can_be_read() {
        assert_eq!(read(None).unwrap().len(), 5);
    }

    #[test]
    fn the_reference_names_every_key_and_is_right_about_the_defaults() {
        let text = reference();
        let file: SourceFile = toml::from_str(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let source = &file.sources[0];
        Source::compile(source.clone()).unwrap();
        let rule = &source.rules[0];
        for inside in [
            "[[source]]\nnonsense = 1",
            "[[source]]\nid = { nonsense = 1 }",
            "[[source]]\norder = { nonsense = 1 }",
            "[[source]]\ntrust = { nonsense = 1 }",
            "[[source]]\nexclude = [{ nonsense = 1 }]",
            "[[source]]\n[[source.rule]]\nnonsense = 1",
        ] {
            for key in keys(inside) {
                let named =
                    text.contains(&format!("{key} = ")) || text.contains(&format!("[[source.{key}]]"));
                assert!(named, "{key} of {inside}");
            }
        }
        let least = "[[source]]\nname = \"births\"\nid = { column = \"id\", type = \"int4\" }\ncolumns = [\"id\"]\n\
                     order = { column = \"id\", type = \"timestamp\" }\n\
                     [[source.rule]]\nkind = \"k\"\nobject_type = \"t\"\nobject_ref = \"r\"\ngroup = []\n";
        let file: SourceFile = toml::from_str(least).unwrap();
        let bare = &file.sources[0];
        assert_eq!((&source.schema, source.table()), (&bare.schema, bare.table()));
        assert_eq!(source.order.as_ref().unwrap().zone, bare.order.as_ref().unwrap().zone);
        assert_eq!(
            (source.batch_size, source.coalesce_window_ms, &source.exclude, &source.trust),
            (bare.batch_size, bare.coalesce_window_ms, &bare.exclude, &bare.trust)
        );
        assert_eq!((&source.trust, rule.grain), (&Trust::default(), Grain::Object));
        let of_bare = &bare.rules[0];
        assert_eq!(
            (rule.grain, &rule.stream, rule.bumps_ruleset),
            (of_bare.grain, &of_bare.stream, of_bare.bumps_ruleset)
        );
    }
}
