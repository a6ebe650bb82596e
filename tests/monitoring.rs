//! Dashboard, alert rules and documents of the metrics: they name only what exists, and everything that exists is documented.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use gov_handoff::core::finding::KINDS;
use gov_handoff::core::repair::Reason;
use gov_handoff::observe::metric_names;

fn file(path: &str) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// The names of metrics in a text: `gov_handoff_` and what follows of a name.
fn named(text: &str) -> BTreeSet<String> {
    let name = |rest: &str| {
        let end = rest.find(|c: char| !(c.is_ascii_lowercase() || c == '_')).unwrap_or(rest.len());
        format!("gov_handoff_{}", &rest[..end])
    };
    text.split("gov_handoff_").skip(1).map(name).collect()
}

/// The expressions of the dashboard.
fn expressions() -> Vec<String> {
    let dashboard: serde_json::Value =
        serde_json::from_str(&file("docker/grafana/gov-handoff.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().expect("targets"));
    targets.map(|target| target["expr"].as_str().expect("an expression").to_owned()).collect()
}

/// The values that a label is compared with: `label="a"` or `label=~"a|b"`.
fn label_values(text: &str, label: &str) -> Vec<String> {
    let matchers = [format!("{label}=\""), format!("{label}=~\""), format!("{label}!=\"")];
    let values = matchers.iter().flat_map(|matcher| text.split(matcher.as_str()).skip(1));
    values
        .filter_map(|rest| rest.split('"').next())
        .flat_map(|values| values.split('|'))
        .map(str::to_owned)
        .collect()
}

#[test]
fn dashboard_and_rules_name_only_metrics_and_labels_that_exist() {
    let (rules, known) = (file("docker/prometheus/alerts.yml"), metric_names());
    assert!(known.len() > 35, "{known:?}");
    let expressions = expressions();
    assert!(expressions.len() > 15, "{expressions:?}");
    let dashboard = expressions.join("\n");
    for (what, text) in [("alerts.yml", &rules), ("the dashboard", &dashboard)] {
        let unknown: Vec<_> = named(text).into_iter().filter(|name| !known.contains(name)).collect();
        assert!(unknown.is_empty(), "{what} names {unknown:?}");
        let reasons = Reason::ALL.map(Reason::name);
        for (label, known) in [
            ("reason", &reasons[..]),
            ("kind", &KINDS[..]),
            ("severity", &["info", "warning", "high", "critical"]),
            ("mode", &["starting", "stream", "poll"]),
            ("status", &["reserved", "extended", "unreserved", "lost"]),
            ("state", &["hot", "cold", "running", "paused", "stopped", "silent"]),
        ] {
            let unknown: Vec<_> = label_values(text, label)
                .into_iter()
                .filter(|value| !known.contains(&value.as_str()))
                .collect();
            assert!(unknown.is_empty(), "{what}: {label} is never {unknown:?}");
        }
    }
    // The dashboard shows what the rules alert about.
    let shown = named(&dashboard);
    let unseen: Vec<_> = named(&rules).into_iter().filter(|name| !shown.contains(name)).collect();
    assert!(unseen.is_empty(), "the dashboard does not show {unseen:?}");
}

#[test]
fn a_name_that_does_not_exist_is_noticed() {
    assert_eq!(
        named("rate(gov_handoff_no_such_total[5m])").into_iter().next().as_deref(),
        Some("gov_handoff_no_such_total")
    );
    assert!(!metric_names().contains("gov_handoff_no_such_total"));
    assert_eq!(label_values("x{reason=\"a\",state=~\"b|c\"}", "state"), ["b", "c"]);
}

#[test]
fn every_alert_links_to_a_section_that_exists() {
    let (rules, page) = (file("docker/prometheus/alerts.yml"), file("docs/runbooks.md"));
    let anchors: BTreeSet<String> = page
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .map(|title| title.to_lowercase().replace(' ', "-").replace(['\'', ','], ""))
        .collect();
    let links = rules.lines().filter_map(|line| line.trim().strip_prefix("runbook_url: docs/runbooks.md#"));
    let linked: BTreeSet<String> = links.map(str::to_owned).collect();
    assert_eq!(linked, anchors, "each alert has its section, and each section its alert");
    let alerts = rules.matches("- alert: ").count();
    assert_eq!(alerts, rules.matches("runbook_url: ").count(), "an alert without a runbook");
}

#[test]
fn every_metric_is_documented_and_nothing_else() {
    let page = file("docs/metrics.md");
    let documented: BTreeSet<String> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .filter(|name| !name.starts_with('/'))
        .map(|name| format!("gov_handoff_{name}"))
        .collect();
    let parts = ["_bucket", "_sum", "_count"];
    let whole =
        |name: &String| parts.iter().find_map(|part| name.strip_suffix(part)).unwrap_or(name).to_owned();
    let exist: BTreeSet<String> = metric_names().iter().map(whole).collect();
    assert_eq!(documented, exist);
}

#[test]
fn promtool_accepts_the_rules_and_their_tests_pass() {
    let folder = root().join("docker/prometheus");
    if Command::new("promtool").arg("--version").output().is_err() {
        eprintln!(
            "SKIPPED: promtool is not installed (Debian: package prometheus); the rules were not evaluated"
        );
        return;
    }
    for arguments in [
        ["check", "rules", "alerts.yml"],
        ["check", "config", "prometheus.yml"],
        ["test", "rules", "alerts_test.yml"],
    ] {
        let ran =
            Command::new("promtool").args(arguments).current_dir(&folder).output().expect("promtool runs");
        let told = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{arguments:?}: {told}");
    }
}
