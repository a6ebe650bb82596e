//! The shape of the command line and its help. A command with more than a flag or two declares them in its own file.

use crate::cli::audit::AuditCommand;
use crate::cli::backfill::BackfillCommand;
use crate::cli::candidates::{CandidatesCommand, GroupsCommand};
use crate::cli::checks::ChecksCommand;
use crate::cli::demo::DemoCommand;
use crate::cli::dlq::DlqCommand;
use crate::cli::doctor::DoctorCommand;
use crate::cli::events::EventsCommand;
use crate::cli::executors::ExecutorsCommand;
use crate::cli::findings::FindingsCommand;
use crate::cli::jobs::JobsCommand;
use crate::cli::migrate::MigrateCommand;
use crate::cli::pause::PauseCommand;
use crate::cli::replay::ReplayCommand;
use crate::cli::replication::ReplicationCommand;
use crate::cli::rules::RulesCommand;
use crate::cli::schedules::SchedulesCommand;
use crate::cli::selftest::SelftestCommand;
use crate::cli::settings::Settings;
use crate::cli::sources::SourcesCommand;
use crate::cli::status::StatusCommand;
use crate::cli::subscriptions::SubscriptionsCommand;
use crate::cli::trace::TraceCommand;
use crate::cli::trust::TrustCommand;
use crate::cli::types::TypesCommand;
use crate::config::{self, Layer};
use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// Hands every row born in a PostgreSQL registry to governance: durably, exactly once, provably without loss.
///
/// A first session:
///
///   export DATABASE_URL=postgres://user:password@host/database
///   gov-handoff migrate              create what is missing, load the default sources
///   gov-handoff types activate --all  emit signals (they are captured until then)
///   gov-handoff run                  stream where possible, poll where not
///   gov-handoff status               see how it fares
///
/// Exit codes: 0 done, 1 a finding (something was missing, unhealthy or refused), 2 could not run.
#[derive(Parser)]
#[command(name = "gov-handoff", version, verbatim_doc_comment, propagate_version = true)]
pub struct Arguments {
    #[command(flatten)]
    pub settings: Settings,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Create the tables and functions that are missing in the database; show or revert what was created
    #[command(after_help = "Example: gov-handoff migrate && gov-handoff migrate status")]
    Migrate(MigrateCommand),
    /// Load, list and check the sources and their rules
    #[command(
        subcommand,
        after_help = "Example: gov-handoff sources check my-sources.toml && gov-handoff sources apply my-sources.toml"
    )]
    Sources(SourcesCommand),
    /// List event types; activate a type to emit its signals, deactivate it to capture them
    #[command(subcommand, after_help = "Example: gov-handoff types activate object_born object_retired")]
    Types(TypesCommand),
    /// List the verdict rules of the candidate scan; check a file of rules, or put it in force
    #[command(
        subcommand,
        after_help = "Example: gov-handoff rules check rules.toml && gov-handoff rules apply rules.toml"
    )]
    Rules(RulesCommand),
    /// List the checks of the input gate; switch one on or off
    #[command(subcommand, after_help = "Example: gov-handoff checks disable provenance_untrusted")]
    Checks(ChecksCommand),
    /// List candidates: what the input gate found, and the verdict
    #[command(after_help = "Example: gov-handoff candidates --verdict rejected --limit 20")]
    Candidates(CandidatesCommand),
    /// List groups: how many members they have, and the verdict
    #[command(after_help = "Example: gov-handoff groups --dirty")]
    Groups(GroupsCommand),
    /// Run the daemon
    #[command(after_help = "Example: gov-handoff run --mode auto --listen 127.0.0.1:9642")]
    Run {
        #[arg(long, help = config::help("mode"), value_name = "auto|stream|poll")]
        mode: Option<String>,
        /// Hand off everything that is there, then exit
        #[arg(long)]
        once: bool,
        #[arg(long, help = config::help("listen"), value_name = "ADDRESS:PORT", conflicts_with = "once")]
        listen: Option<String>,
        #[arg(long, help = config::help("workers"), value_name = "all|NAME,…")]
        workers: Option<String>,
    },
    /// Seed the backlogs of the sources now, or show how far the daemon is with it
    ///
    /// Exit codes: 0 done, 1 rows of a backlog have no candidate (see `findings`), 2 could not run.
    #[command(after_help = "Example: gov-handoff backfill --source birth_registry --limit-rate 5000")]
    Backfill(BackfillCommand),
    /// Let a worker rest; it stays paused across restarts, and nothing takes it for silent
    #[command(after_help = "Example: gov-handoff pause gov_candidate_scan --reason \"month end\"")]
    Pause(PauseCommand),
    /// Let a paused worker work again
    #[command(after_help = "Example: gov-handoff resume gov_candidate_scan")]
    Resume(PauseCommand),
    /// Say how things stand, in one sentence; then the worker, its mode and why, each source, what waits and what is wrong
    ///
    /// Exit codes: 0 everything is handed off and proven, or paused on purpose, 1 something is wrong, 2 could not tell.
    #[command(after_help = "Example: gov-handoff status --watch")]
    Status(StatusCommand),
    /// Tell what became of one row: a timeline of all that is recorded about its key, and one sentence at the end
    ///
    /// Prints the row's key, address and group, and never its contents. The source and our tables are read by index
    /// only, so a trace costs the same on any size. A key is one column: an integer, a UUID or a text.
    ///
    /// Exit codes: 0 handed off or deliberately not, 1 waiting, a dead letter, missing or never there, 2 could not tell.
    #[command(after_help = "Example: gov-handoff trace birth_registry 4711")]
    Trace(TraceCommand),
    /// Print what `status` shows, and what was repaired, for Prometheus or a textfile collector
    #[command(after_help = "Example: gov-handoff metrics > /var/lib/node_exporter/gov_handoff.prom")]
    Metrics,
    /// Ask a daemon that listens whether rows are handed off, for images without curl
    ///
    /// Exit codes: 0 yes, 1 no and why, 2 nobody answered.
    #[command(after_help = "Example: gov-handoff health --url http://127.0.0.1:9642/livez")]
    Health {
        /// Which page to ask [default: /readyz at the address of `listen`, else at 127.0.0.1:9642]
        #[arg(long)]
        url: Option<String>,
    },
    /// Examine server, role, tables, stream and worker, and say what to do; changes nothing
    ///
    /// Exit codes: 0 nothing failed (there may be warnings), 1 a check failed, 2 could not run.
    #[command(after_help = "Example: gov-handoff doctor --fix-sql > read-me-first.sql")]
    Doctor(DoctorCommand),
    /// List the findings, the most severe first; resolved findings with --all
    ///
    /// Exit codes: 0 nothing high or critical is open, 1 something is, 2 could not tell.
    #[command(after_help = "Example: gov-handoff findings --kind handoff_dlq --all")]
    Findings(FindingsCommand),
    /// Show silent workers: a warning past three times a worker's cadence, critical past ten times
    ///
    /// Exit codes: 0 every worker ticks, 1 a worker is silent, 2 could not tell. Any scheduler can do the same by
    /// `select * from fn_governance_watch()`.
    #[command(after_help = "Example: gov-handoff watch --once")]
    Watch {
        /// How often to look
        #[arg(long, default_value = "5s")]
        interval: String,
        /// Look once and exit
        #[arg(long)]
        once: bool,
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
    },
    /// Read rows of a source again and hand off what is missing; recorded signals stay as they are
    #[command(after_help = "Example: gov-handoff replay --source birth_registry --from 2026-11-16 --dry-run")]
    Replay(ReplayCommand),
    /// Events as their consumers see them: follow the feed, what an actor has not read, who an event is for
    #[command(subcommand, after_help = "Example: gov-handoff events unread --actor user:huyen")]
    Events(EventsCommand),
    /// Dead letters, the rows that could not be handed off: list, replay, discard or supersede them
    #[command(subcommand, after_help = "Example: gov-handoff dlq replay --source birth_registry --dry-run")]
    Dlq(DlqCommand),
    /// Who receives which events: list, apply or check subscriptions and memberships
    #[command(
        subcommand,
        after_help = "Example: gov-handoff subscriptions apply subscriptions.toml --dry-run"
    )]
    Subscriptions(SubscriptionsCommand),
    /// The job queue: list and show jobs, enqueue, cancel, queue dead letters again
    #[command(subcommand, after_help = "Example: gov-handoff jobs show verify:draft-10")]
    Jobs(JobsCommand),
    /// The programs that may claim jobs: list, register or disable them
    #[command(
        subcommand,
        after_help = "Example: gov-handoff executors register hermes_batch_a --kind Hermes --job-kind verify_mark"
    )]
    Executors(ExecutorsCommand),
    /// Jobs that are enqueued at times: list them, apply a file, pause and resume
    #[command(
        subcommand,
        after_help = "Example: gov-handoff schedules apply replication/schedules.toml --dry-run"
    )]
    Schedules(SchedulesCommand),
    /// Show which producers each source trusts; grant or revoke trust
    #[command(
        subcommand,
        after_help = "Example: gov-handoff trust grant --source birth_registry --producer importer --dry-run"
    )]
    Trust(TrustCommand),
    /// Compare source rows with recorded signals, and hand off what is missing
    ///
    /// Exit codes: 0 nothing was missing, 1 something was (and was repaired, unless --check), 2 could not tell.
    #[command(after_help = "Example: gov-handoff audit --full --check")]
    Audit(AuditCommand),
    /// The latest certificate of each source, and the history
    #[command(after_help = "Example: gov-handoff certificates --history 5")]
    Certificates {
        /// How many of the history to show; the latest thousand of each source are kept for it
        #[arg(long, default_value_t = 20)]
        history: i64,
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
    },
    /// Remove certified signals that are older than a time; no audit will emit them again
    #[command(after_help = "Example: gov-handoff retire --before 2026-01-01")]
    Retire {
        /// A time such as 2026-01-01 or 2026-01-01T12:00:00Z
        #[arg(long)]
        before: String,
    },
    /// Play the hostile cases in your own database, on shadow tables that are removed afterwards
    ///
    /// Exit codes: 0 all passed or were skipped, 1 a case failed, 2 could not run.
    #[command(after_help = "Example: gov-handoff selftest")]
    Selftest(SelftestCommand),
    /// Create, drop or print the publication and the slot
    #[command(after_help = "Example: gov-handoff replication sql > for-the-dba.sql")]
    Replication {
        #[command(subcommand)]
        command: ReplicationCommand,
    },
    /// Print the settings in force, secrets redacted
    #[command(after_help = "Example: GOV_HANDOFF_MODE=poll gov-handoff config")]
    Config {
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
        /// Print every setting with its default and meaning, and every option of a connection, as tables in Markdown
        #[arg(long, conflicts_with = "json")]
        table: bool,
    },
    /// Watch it work: a private PostgreSQL, concurrent writers, a lost slot, a verdict
    #[command(after_help = "Example: gov-handoff demo --seconds 10")]
    Demo(DemoCommand),
    /// Explain an error code, or print the page of all of them
    #[command(after_help = "Example: gov-handoff explain GH1203")]
    Explain {
        /// A code as an error shows it; without it the page of all codes is printed, in Markdown
        code: Option<String>,
    },
    /// Write the man pages of all commands into a folder
    #[command(after_help = "Example: gov-handoff man /usr/local/share/man/man1")]
    Man {
        /// The folder; without it the page of gov-handoff itself is printed
        folder: Option<PathBuf>,
        /// Print all commands as one page in Markdown
        #[arg(long, conflicts_with = "folder")]
        markdown: bool,
    },
    /// Print a completion script for your shell
    #[command(after_help = "Example: gov-handoff completions bash > /etc/bash_completion.d/gov-handoff")]
    Completions { shell: clap_complete::Shell },
}

impl Command {
    /// The settings that flags gave, the command's own among them.
    pub fn layer(&self, settings: &Settings) -> Layer {
        let mut layer = settings.layer();
        if let Self::Run { mode, listen, workers, .. } = self {
            layer.workers.clone_from(workers);
            layer.listen.clone_from(listen);
            layer.mode.clone_from(mode);
        }
        layer
    }

    /// Where this command's defaults differ from the daemon's. Flags, environment and file win over them.
    pub fn defaults(&self) -> Layer {
        match self {
            // `config` shows what the daemon would run with.
            Self::Run { .. } | Self::Config { .. } => Layer::default(),
            // A command that prints its result need not log what it does meanwhile.
            _ => Layer { log: Some("warn".to_owned()), ..Layer::default() },
        }
    }
}
