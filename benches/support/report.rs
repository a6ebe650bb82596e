//! The table at the end, for people and as JSON.

use crate::support::options::Options;
use serde_json::json;

/// On which side of its goal a ratio has to lie.
#[derive(Clone, Copy)]
pub enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

struct Line {
    measure: &'static str,
    unit: &'static str,
    ours: f64,
    limit: f64,
    goal: Goal,
}

#[derive(Default)]
pub struct Report {
    lines: Vec<Line>,
    notes: Vec<String>,
}

impl Line {
    fn ratio(&self) -> f64 {
        self.ours / self.limit
    }

    fn passed(&self) -> bool {
        match self.goal {
            Goal::AtLeast(least) => self.ratio() >= least,
            Goal::AtMost(most) => self.ratio() <= most,
        }
    }
}

impl Report {
    pub fn add(&mut self, measure: &'static str, unit: &'static str, ours: f64, limit: f64, goal: Goal) {
        let line = Line { measure, unit, ours, limit, goal };
        eprintln!("{measure}: {ours:.3} {unit} against {limit:.3}, ratio {:.2}", line.ratio());
        self.lines.push(line);
    }

    pub fn memory(&mut self, measure: &'static str, resident_kib: u64) {
        self.add(measure, "MiB", resident_kib as f64 / 1024.0, 64.0, Goal::AtMost(1.0));
    }

    /// Something a reader needs to judge the figures by.
    pub fn note(&mut self, note: String) {
        eprintln!("{note}");
        self.notes.push(note);
    }

    pub fn passed(&self) -> bool {
        self.lines.iter().all(Line::passed)
    }

    pub fn print(&self) {
        println!(
            "\n{:<28} {:>12} {:>12} {:<7} {:>6}  {:<8}",
            "measure", "ours", "limit", "unit", "ratio", "goal"
        );
        for line in &self.lines {
            let digits = if line.limit >= 1_000.0 { 0 } else { 2 };
            let goal = match line.goal {
                Goal::AtLeast(least) => format!(">= {least}"),
                Goal::AtMost(most) => format!("<= {most}"),
            };
            println!(
                "{:<28} {:>12.digits$} {:>12.digits$} {:<7} {:>6.2}  {:<8} {}",
                line.measure,
                line.ours,
                line.limit,
                line.unit,
                line.ratio(),
                goal,
                if line.passed() { "pass" } else { "FAIL" },
            );
        }
        self.notes.iter().for_each(|note| println!("{note}"));
    }

    pub fn write_json(&self, options: &Options, server: &str) {
        let measures: Vec<_> = self
            .lines
            .iter()
            .map(|line| {
                let (side, goal) = match line.goal {
                    Goal::AtLeast(least) => ("at_least", least),
                    Goal::AtMost(most) => ("at_most", most),
                };
                json!({
                    "measure": line.measure, "unit": line.unit, "ours": line.ours, "limit": line.limit,
                    "ratio": line.ratio(), side: goal, "pass": line.passed(),
                })
            })
            .collect();
        let document = json!({
            "rows": options.rows, "seconds": options.seconds, "server": server, "pass": self.passed(),
            "measures": measures, "notes": self.notes,
        });
        // Beside the build, wherever that is: this program runs from `<target>/release/deps`.
        let own = std::env::current_exe().expect("own path");
        let path = own.ancestors().nth(3).expect("a target directory").join("bench.json");
        std::fs::write(&path, format!("{document:#}\n")).expect("write bench.json");
        println!("written to {}", path.display());
    }
}
