//! The text exposition that Prometheus reads (format 0.0.4): families of samples to lines.

use std::fmt::Write;

/// The content type of the response.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// Only grows.
    Counter,
    Gauge,
    Histogram,
}

/// Integers are kept: as a float, a log position would lose its last digits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    Whole(i64),
    Real(f64),
}

/// The samples of one name. Names of families and labels are our constants; label values may be any text.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    name: &'static str,
    kind: Type,
    help: &'static str,
    samples: Vec<Labelled>,
}

/// What stands behind the family's name, the labels, and the value.
type Labelled = (&'static str, Vec<(&'static str, String)>, Value);

impl Family {
    #[must_use]
    pub fn new(name: &'static str, kind: Type, help: &'static str) -> Self {
        Self { name, kind, help, samples: Vec::new() }
    }

    /// Adds a sample if the value is known. An unknown value is left out.
    #[must_use]
    pub fn with(mut self, labels: &[(&'static str, &str)], value: impl Into<Option<Value>>) -> Self {
        if let Some(value) = value.into() {
            let labels = labels.iter().map(|(name, text)| (*name, (*text).to_owned())).collect();
            self.samples.push(("", labels, value));
        }
        self
    }

    /// A histogram: how many were at most so long (in seconds), for each upper bound; how many there were; and their sum.
    #[must_use]
    pub fn histogram(
        name: &'static str,
        help: &'static str,
        buckets: &[(f64, u64)],
        count: u64,
        sum: f64,
    ) -> Self {
        let whole = |n: u64| Value::Whole(i64::try_from(n).unwrap_or(i64::MAX));
        let mut family = Self::new(name, Type::Histogram, help);
        for (bound, n) in buckets {
            family.samples.push(("_bucket", vec![("le", number(Value::Real(*bound)))], whole(*n)));
        }
        family.samples.push(("_bucket", vec![("le", "+Inf".to_owned())], whole(count)));
        family.samples.push(("_sum", Vec::new(), Value::Real(sum)));
        family.samples.push(("_count", Vec::new(), whole(count)));
        family
    }

    /// The names under which its samples may appear.
    pub fn names(&self) -> impl Iterator<Item = String> + '_ {
        let suffixes: &[&str] =
            if self.kind == Type::Histogram { &["_bucket", "_sum", "_count"] } else { &[""] };
        suffixes.iter().map(|suffix| format!("{}{suffix}", self.name))
    }

    #[must_use]
    pub fn of(value: impl Into<Option<Value>>, name: &'static str, kind: Type, help: &'static str) -> Self {
        Self::new(name, kind, help).with(&[], value)
    }
}

/// The lines of all families that have a sample.
#[must_use]
pub fn render(families: &[Family]) -> String {
    let mut out = String::new();
    for family in families.iter().filter(|f| !f.samples.is_empty()) {
        let kind = match family.kind {
            Type::Counter => "counter",
            Type::Gauge => "gauge",
            Type::Histogram => "histogram",
        };
        let help = family.help.replace('\\', "\\\\").replace('\n', "\\n");
        // Writing to a string does not fail.
        let _ = writeln!(out, "# HELP {} {help}\n# TYPE {} {kind}", family.name, family.name);
        for (suffix, labels, value) in &family.samples {
            let labels: Vec<_> =
                labels.iter().map(|(name, text)| format!("{name}=\"{}\"", escape(text))).collect();
            let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
            let _ = writeln!(out, "{}{suffix}{labels} {}", family.name, number(*value));
        }
    }
    out
}

/// Escapes the value of a label.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
    out
}

fn number(value: Value) -> String {
    match value {
        Value::Whole(n) => n.to_string(),
        Value::Real(x) if x.is_nan() => "NaN".to_owned(),
        Value::Real(x) if x.is_infinite() => if x > 0.0 { "+Inf" } else { "-Inf" }.to_owned(),
        Value::Real(x) => x.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The other way round, by the format's own rules and not by ours.
    fn unescape(text: &str) -> Option<String> {
        let (mut out, mut rest) = (String::new(), text.chars());
        while let Some(c) = rest.next() {
            match c {
                '"' | '\n' => return None,
                '\\' => out.push(match rest.next()? {
                    '\\' => '\\',
                    '"' => '"',
                    'n' => '\n',
                    _ => return None,
                }),
                c => out.push(c),
            }
        }
        Some(out)
    }

    proptest! {
        #[test]
        fn any_label_comes_back_and_stays_on_its_line(text in prop_oneof![any::<String>(), "[\\\\\"\nn{},= ]{0,12}"]) {
            let family = Family::new("x", Type::Gauge, "h").with(&[("l", &text)], Value::Whole(1));
            let out = render(&[family]);
            let line = out.strip_prefix("# HELP x h\n# TYPE x gauge\n").unwrap();
            let inner = line.strip_prefix("x{l=\"").and_then(|l| l.strip_suffix("\"} 1\n")).unwrap();
            prop_assert_eq!(unescape(inner), Some(text));
        }
    }

    #[test]
    fn a_family_without_a_sample_says_nothing() {
        assert_eq!(render(&[Family::of(None, "x", Type::Gauge, "h")]), "");
    }

    #[test]
    fn lines_are_as_the_format_wants_them() {
        let families = [
            Family::new("a_total", Type::Counter, "one\\two\nthree")
                .with(&[("s", "b\"c"), ("r", "d")], Value::Whole(i64::MAX)),
            Family::of(Value::Real(0.25), "g", Type::Gauge, "h")
                .with(&[("x", "")], Value::Real(f64::INFINITY)),
        ];
        let wanted = "# HELP a_total one\\\\two\\nthree\n# TYPE a_total counter\n\
                      a_total{s=\"b\\\"c\",r=\"d\"} 9223372036854775807\n\
                      # HELP g h\n# TYPE g gauge\ng 0.25\ng{x=\"\"} +Inf\n";
        assert_eq!(render(&families), wanted);
    }
}
