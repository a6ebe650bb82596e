//! The settings that every command takes as flags.

use crate::config::{self, Layer};
use clap::Args;
use std::path::PathBuf;

/// Every command has these, so they stand apart from its own options.
pub const SETTINGS: &str = "Settings";

#[derive(Args)]
pub struct Settings {
    /// Configuration file in TOML [default: ./gov-handoff.toml, if there is one]
    #[arg(long, global = true, help_heading = SETTINGS, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[arg(long, global = true, help = config::help("database_url"), help_heading = SETTINGS, value_name = "URL", hide_default_value = true)]
    pub database_url: Option<String>,
    #[arg(long, global = true, help = config::help("replication_url"), help_heading = SETTINGS, value_name = "URL")]
    pub replication_url: Option<String>,
    #[arg(long, global = true, help = config::help("slot"), help_heading = SETTINGS, value_name = "NAME")]
    pub slot: Option<String>,
    #[arg(long, global = true, help = config::help("publication"), help_heading = SETTINGS, value_name = "NAME")]
    pub publication: Option<String>,
    #[arg(long, global = true, help = config::help("log"), help_heading = SETTINGS, value_name = "FILTER")]
    pub log: Option<String>,
}

impl Settings {
    pub fn layer(&self) -> Layer {
        Layer {
            database_url: self.database_url.clone(),
            replication_url: self.replication_url.clone(),
            slot: self.slot.clone(),
            publication: self.publication.clone(),
            log: self.log.clone(),
            ..Layer::default()
        }
    }
}
