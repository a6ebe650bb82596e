//! The benchmark's arguments.

/// As many births as production has today.
const ROWS: u32 = 1_037_724;

pub struct Options {
    pub rows: u32,
    /// How long births are written for the latency measure.
    pub seconds: u32,
    /// How long a snapshot or a transaction id is held while jobs run, in seconds.
    pub hold: u32,
    pub quick: bool,
    only: Option<String>,
}

impl Options {
    pub fn from_args(args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self { rows: ROWS, seconds: 20, hold: 60, quick: false, only: None };
        let mut args = args;
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "--rows" => options.rows = number(&value()?)?,
                "--seconds" => options.seconds = number(&value()?)?,
                "--hold" => options.hold = number(&value()?)?,
                "--only" => options.only = Some(value()?),
                "--quick" => {
                    (options.rows, options.seconds, options.hold, options.quick) = (100_000, 5, 20, true);
                }
                // Cargo's own.
                "--bench" => {}
                other => {
                    let known = "--rows N, --seconds N, --hold N, --quick and --only poll,stream,sweep,latency,family,scan,unread,passes,jobs";
                    return Err(format!("{other} is not known; there are {known}"));
                }
            }
        }
        Ok(options)
    }

    pub fn wants(&self, measure: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only.split(',').any(|name| name == measure))
    }
}

fn number(text: &str) -> Result<u32, String> {
    let parsed = text.parse().ok().filter(|n| *n > 0);
    parsed.ok_or_else(|| format!("{text} is no positive number"))
}
