//! The verdict: every row of the sources against every recorded handoff, counted by the database from its tables alone.

use crate::cli::output::count;
use crate::error::{Context, Result};
use console::style;
use std::fmt;
use tokio_postgres::Client;

/// What the tables say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DemoVerdict {
    pub births: i64,
    pub changes: i64,
    /// Handoffs that those rows ask for; a row may ask for more than one.
    pub due: i64,
    pub handed_off: i64,
    pub missing: i64,
    pub twice: i64,
    /// Handoffs of rows that were never committed.
    pub unborn: i64,
    pub by_stream: i64,
    pub by_poll: i64,
    pub by_reconcile: i64,
}

impl DemoVerdict {
    /// Asks with SQL that shares nothing with the product's own.
    pub async fn of(client: &Client) -> Result<Self> {
        let row =
            client.query_one(include_str!("sql/verdict.sql"), &[]).await.context("computing the verdict")?;
        Ok(Self {
            births: row.try_get("births")?,
            changes: row.try_get("changes")?,
            due: row.try_get("due")?,
            handed_off: row.try_get("handed_off")?,
            missing: row.try_get("missing")?,
            twice: row.try_get("twice")?,
            unborn: row.try_get("unborn")?,
            by_stream: row.try_get("by_stream")?,
            by_poll: row.try_get("by_poll")?,
            by_reconcile: row.try_get("by_reconcile")?,
        })
    }

    #[must_use]
    pub fn holds(&self) -> bool {
        self.missing == 0 && self.twice == 0 && self.unborn == 0
    }

    /// 0: nothing lost, nothing doubled; 1: a finding.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        u8::from(!self.holds())
    }
}

impl fmt::Display for DemoVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fault = |n: i64| {
            let text = format!("{:>10}", count(n));
            if n == 0 { style(text).green().bold() } else { style(text).red().bold() }
        };
        let plain = |n: i64| style(format!("{:>10}", count(n))).bold();
        let headline = if self.holds() {
            style("✔ nothing missing, nothing twice").green().bold()
        } else {
            style("✘ the verdict fails").red().bold()
        };
        writeln!(f, "  {headline}  {}", style("counted from the tables, by SQL of its own").dim())?;
        writeln!(f)?;
        writeln!(f, "  births         {}", plain(self.births))?;
        writeln!(f, "  changelog rows {}", plain(self.changes))?;
        writeln!(f, "  handed off     {}   of {} due", plain(self.handed_off), count(self.due))?;
        writeln!(f, "  missing        {}", fault(self.missing))?;
        writeln!(f, "  twice          {}", fault(self.twice))?;
        writeln!(f, "  never born     {}   handoffs of rolled back rows", fault(self.unborn))?;
        write!(
            f,
            "  captured by    {:>10} stream · {} poll · {} reconcile",
            count(self.by_stream),
            count(self.by_poll),
            count(self.by_reconcile)
        )
    }
}
