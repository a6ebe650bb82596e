//! The shape of the command line, with help that teaches.

use crate::config::Layer;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// Hands every row born in a PostgreSQL registry to governance: durably, exactly once, provably without loss.
///
/// A first session:
///
///   export DATABASE_URL=postgres://user:password@host/database
///   gov-handoff migrate              create what is missing, load the default sources
///   gov-handoff types activate --all  let signals out (they are captured until then)
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

#[derive(Args)]
pub struct Settings {
    /// Configuration file in TOML [default: ./gov-handoff.toml, if there is one]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where the database is; else DATABASE_URL, else the usual PG* variables
    #[arg(long, global = true, value_name = "URL", hide_default_value = true)]
    pub database_url: Option<String>,
    /// Where the replication role connects, if it is another role
    #[arg(long, global = true, value_name = "URL")]
    pub replication_url: Option<String>,
    /// What to log: error, warn, info, debug, or a filter such as `gov_handoff::intake=debug`
    #[arg(long, global = true, value_name = "FILTER")]
    pub log: Option<String>,
}

impl Settings {
    pub fn layer(&self, command: &Command) -> Layer {
        let mut layer = Layer {
            database_url: self.database_url.clone(),
            replication_url: self.replication_url.clone(),
            log: self.log.clone(),
            ..Layer::default()
        };
        match command {
            Command::Run { mode, slot, publication, listen, .. } => {
                layer.listen.clone_from(listen);
                layer.mode.clone_from(mode);
                layer.slot.clone_from(slot);
                layer.publication.clone_from(publication);
            }
            // A tool that prints its result need not say what it does meanwhile.
            _ => layer.log = layer.log.or_else(|| Some("warn".to_owned())),
        }
        layer
    }
}

#[derive(Subcommand)]
pub enum Command {
    /// Create what is missing in the database, or see, or take back, what was created
    Migrate(MigrateCommand),
    /// Load, list and check the sources and their rules
    #[command(subcommand)]
    Sources(SourcesCommand),
    /// List event types, let their signals out or hold them back
    #[command(subcommand)]
    Types(TypesCommand),
    /// Run the daemon
    Run {
        /// auto: stream where the slot can be had, else poll; stream: never poll for latency; poll: needs no replication role
        #[arg(long, value_name = "auto|stream|poll")]
        mode: Option<String>,
        /// Handle all that is there, then exit
        #[arg(long)]
        once: bool,
        /// Replication slot [default: gov_handoff_<database>]
        #[arg(long)]
        slot: Option<String>,
        /// Publication [default: gov_handoff]
        #[arg(long)]
        publication: Option<String>,
        /// Serve GET /metrics and GET /healthz at this loopback address, such as 127.0.0.1:9187 [default: nowhere]
        #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "once")]
        listen: Option<String>,
    },
    /// Show the worker, its mode and why, each source's progress, what waits and what is wrong
    Status {
        #[arg(long)]
        json: bool,
    },
    /// Print what `status` shows, and what was repaired, for Prometheus or a textfile collector
    Metrics,
    /// Examine server, role, tables, stream and worker, and say what to do; changes nothing
    ///
    /// Exit codes: 0 nothing failed (there may be warnings), 1 a check failed, 2 could not run.
    Doctor {
        #[arg(long)]
        json: bool,
    },
    /// What is wrong, the gravest first; resolved findings with --all
    ///
    /// Exit codes: 0 nothing high or critical is open, 1 something is, 2 could not tell.
    Findings(FindingsCommand),
    /// Look who is silent: a warning past three times a worker's cadence, critical past ten times
    ///
    /// Exit codes: 0 everybody ticks, 1 somebody is silent, 2 could not tell. Any scheduler can do the same by
    /// `select * from fn_governance_watch()`.
    Watch {
        /// How often to look
        #[arg(long, default_value = "5s")]
        interval: String,
        /// Look once and exit
        #[arg(long)]
        once: bool,
        #[arg(long)]
        json: bool,
    },
    /// Hand off a stretch of a source again; what is recorded stays as it is
    Replay(ReplayCommand),
    /// The rows that could not be handed off: see them, hand them off, or decide that they need not be
    #[command(subcommand)]
    Dlq(DlqCommand),
    /// Whom each source believes; grant or revoke it
    #[command(subcommand)]
    Trust(TrustCommand),
    /// Compare source rows with recorded signals, and hand off what is missing
    ///
    /// Exit codes: 0 nothing was missing, 1 something was (and was repaired, unless --check), 2 could not tell.
    Audit(AuditCommand),
    /// The latest certificate of each source, and the history
    Certificates {
        /// How many of the history to show
        #[arg(long, default_value_t = 20)]
        history: i64,
        #[arg(long)]
        json: bool,
    },
    /// Remove certified signals that are older than a time; no audit will emit them again
    Retire {
        /// Such as 2026-01-01
        #[arg(long)]
        before: String,
    },
    /// Play the hostile cases in your own database, on shadow tables that are removed afterwards
    ///
    /// Exit codes: 0 all passed or were skipped, 1 a case failed, 2 could not run.
    Selftest(SelftestCommand),
    /// Create, drop or print the publication and the slot
    Replication {
        #[command(subcommand)]
        command: ReplicationCommand,
    },
    /// Print the settings in force, secrets redacted
    Config {
        #[arg(long)]
        json: bool,
    },
    /// Watch it work: a private PostgreSQL, concurrent writers, a lost slot, a verdict
    Demo(DemoCommand),
    /// Print a completion script for your shell
    Completions { shell: clap_complete::Shell },
}

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct MigrateCommand {
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    #[arg(long)]
    pub json: bool,
    #[command(subcommand)]
    pub action: Option<MigrateAction>,
}

#[derive(Subcommand)]
pub enum MigrateAction {
    /// Which steps are applied
    Status {
        #[arg(long)]
        json: bool,
    },
    /// Take back what was created; refuses when that would discard recorded handoffs
    Revert {
        /// Discard recorded handoffs and source rows in tables that migrate created
        #[arg(long)]
        discard: bool,
    },
}

#[derive(Subcommand)]
pub enum SourcesCommand {
    /// Register or redefine the sources of a file; without one, the built-in defaults
    Apply {
        /// A file such as replication/sources.toml
        file: Option<PathBuf>,
        /// Check and say what would change, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// The registered sources
    List {
        #[arg(long)]
        json: bool,
    },
    /// Compare the registered sources, or a file's, with the catalogue, and show how each will be read
    Check {
        file: Option<PathBuf>,
        #[arg(long)]
        json: bool,
    },
    /// Stop reading a source; its recorded handoffs stay
    Remove { name: String },
}

#[derive(Subcommand)]
pub enum TypesCommand {
    List {
        #[arg(long)]
        json: bool,
    },
    /// Let the signals of a type out, and drain what was captured
    Activate(TypeSelection),
    /// Capture instead of emitting from now on
    Deactivate(TypeSelection),
}

#[derive(Args)]
pub struct TypeSelection {
    /// Such as governance.handoff.object_born, or just object_born
    #[arg(required_unless_present_any = ["all", "findings"])]
    pub types: Vec<String>,
    /// Every type of handoff, with certificates and heartbeats
    #[arg(long, conflicts_with = "types")]
    pub all: bool,
    /// Every type of finding: each is then announced when it is raised, when it gets worse and when it is resolved
    #[arg(long, conflicts_with = "types")]
    pub findings: bool,
}

#[derive(Args)]
pub struct FindingsCommand {
    /// Only what is open, which is the default
    #[arg(long, conflicts_with = "all")]
    pub open: bool,
    /// Resolved ones as well
    #[arg(long)]
    pub all: bool,
    /// Only of one kind, such as handoff_lag
    #[arg(long)]
    pub kind: Option<String>,
    /// Close one by hand; it comes back if its cause is still there
    #[arg(long, value_name = "KEY", conflicts_with_all = ["all", "kind", "json"])]
    pub resolve: Option<String>,
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct ReplayCommand {
    #[arg(long)]
    pub source: String,
    /// A key, or a time such as 2026-11-16 or 2026-11-16T12:00:00Z
    #[arg(long, allow_hyphen_values = true)]
    pub from: String,
    /// The same; the end of the source if not given
    #[arg(long, allow_hyphen_values = true)]
    pub to: Option<String>,
    /// Count what is missing, and record nothing
    #[arg(long)]
    pub dry_run: bool,
    #[arg(long)]
    pub json: bool,
}

#[derive(Subcommand)]
pub enum DlqCommand {
    /// The open dead letters; with --all those that were decided about, too
    List {
        #[command(flatten)]
        selection: DlqSelection,
        #[arg(long)]
        json: bool,
    },
    /// Everything that is known of some dead letters
    Show {
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
        #[arg(long)]
        json: bool,
    },
    /// Read the rows again from their source and hand them off; those that are refused again stay open (exit code 1)
    Replay(DlqDecision),
    /// Decide that the rows need no handoff (needs --reason)
    Discard(DlqDecision),
    /// Decide that something else took the rows' place (needs --reason)
    Supersede(DlqDecision),
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
    #[arg(long)]
    pub json: bool,
}

#[derive(Subcommand)]
pub enum TrustCommand {
    /// Whom each source believes, and what waits of those it does not
    List {
        #[arg(long)]
        json: bool,
    },
    /// Trust a producer, and hand off what was captured of it
    Grant(TrustChange),
    /// Capture a producer's rows from now on instead of handing them off; what was handed off stays
    Revoke(TrustChange),
}

#[derive(Args)]
pub struct TrustChange {
    #[arg(long)]
    pub source: String,
    /// As the source's rows name it; `unknown` stands for rows that name none
    #[arg(long)]
    pub producer: String,
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Who decides [default: the database user]
    #[arg(long)]
    pub actor: Option<String>,
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct AuditCommand {
    /// Every row, in resumable chunks; else what is not older than the last certificate
    #[arg(long)]
    pub full: bool,
    /// Repair nothing
    #[arg(long)]
    pub check: bool,
    /// One source only
    #[arg(long)]
    pub source: Option<String>,
    /// Rows from this key or time on (with --full)
    #[arg(long, requires = "full")]
    pub since: Option<String>,
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct SelftestCommand {
    #[arg(long)]
    pub json: bool,
    /// Leave the shadow tables and what was captured in place, to look at
    #[arg(long)]
    pub keep: bool,
    /// How long a case may take to come right, in seconds
    #[arg(long, default_value_t = 20)]
    pub patience: u64,
}

#[derive(Subcommand)]
pub enum ReplicationCommand {
    /// Create the publication (column lists, row filters) and then the slot
    Setup,
    /// Drop slot and publication
    Teardown,
    /// Print the SQL that a DBA can run instead
    Sql,
}

#[derive(Args)]
pub struct DemoCommand {
    /// How long to write births
    #[arg(long, default_value_t = 30)]
    pub seconds: u64,
    /// Stop writing after this many rows instead
    #[arg(long)]
    pub rows: Option<u64>,
    /// No live view; only what happens and the verdict
    #[arg(long)]
    pub plain: bool,
}
