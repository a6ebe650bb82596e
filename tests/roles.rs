//! Who may do what: every table, view, sequence and function against a table of privileges, for each role. An object that is
//! in no line makes this fail, so that whoever adds one decides who may use it.

use std::collections::BTreeMap;

use tokio_postgres::Client;

use crate::support::{Daemon, TestDb, cli, cli_with, connect, done, migrated, until};
