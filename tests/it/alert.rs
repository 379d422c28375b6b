//! The alert rules and the dashboard of the guide, by the program that reads them: promtool, of Prometheus.
//!
//! `alert/test.yaml` says what each rule must tell: the first event of a process among it, which the series of a counter
//! does not show as an increase.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use leasehold_support::skip;
use serde_json::Value;

/// The rules as the guide has them.
fn rules() -> &'static str {
    let guide = include_str!("../../docs/operations.md");
    let (_, rest) = guide.split_once("```yaml\n").expect("the rules");
    rest.split("```").next().expect("their end")
}

fn dashboard() -> Value {
    serde_json::from_str(include_str!("../../examples/metrics/dashboard.json"))
        .expect("a dashboard")
}

/// The queries of the dashboard.
fn queries() -> Vec<String> {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().expect("queries"));
    targets.map(|target| target["expr"].as_str().expect("a query").to_owned()).collect()
}

/// The metrics that a text names, each without what Prometheus adds to a histogram.
fn metrics(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let names = words.filter(|word| word.starts_with("leasehold_"));
    let ends = ["_bucket", "_count", "_sum"];
    let name = |name: &str| {
        let plain = ends.iter().find_map(|end| name.strip_suffix(*end));
        plain.unwrap_or(name).to_owned()
    };
    names.map(name).collect()
}

/// A folder of this test's own, with these files.
fn folder(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("alert-{name}"));
    std::fs::create_dir_all(&folder).expect("a folder");
    for (name, text) in files {
        std::fs::write(folder.join(name), text).expect("a file");
    }
    folder
}

/// Runs promtool in a folder, and returns whether it was content, and what it said.
fn promtool(folder: &Path, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new("promtool");
    let output = command.args(arguments).current_dir(folder).output().expect("promtool");
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

/// Whether it is there. Otherwise the test is noted as skipped.
fn has_promtool() -> bool {
    let is_there = Command::new("promtool").arg("--version").output().is_ok();
    if !is_there {
        skip("there is no promtool");
    }
    is_there
}

#[test]
#[allow(clippy::print_stdout, reason = "what promtool says is there to be read")]
fn alerts_fire_on_the_first_event_that_a_scrape_finds() {
    if !has_promtool() {
        return;
    }
    let cases = include_str!("alert/test.yaml");
    let try_rules = |name: &str, rules: &str| {
        let folder = folder(name, &[("rules.yaml", rules), ("test.yaml", cases)]);
        promtool(&folder, &["test", "rules", "test.yaml"])
    };
    let (is_content, said) = try_rules("rules", rules());
    println!("{said}");
    assert!(is_content, "{said}");
    // Rules as most people write them, and as they stood here once.
    let planted =
        rules().replace("unless leasehold_lost_total offset 10m", "unless leasehold_lost_total");
    assert_ne!(planted, rules());
    let (is_content, said) = try_rules("planted", &planted);
    assert!(!is_content && said.contains("alertname: LockLost, time: 2m"), "{said}");
}

/// Each rule has a case in which it fires.
#[test]
fn every_alert_is_tried() {
    let cases = include_str!("alert/test.yaml");
    for rule in rules().lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        let expects = format!("alertname: {rule}\n        exp_alerts:");
        assert!(cases.contains(&expects), "no case in which {rule} fires");
    }
}

#[test]
fn queries_of_the_dashboard_are_those_that_prometheus_reads() {
    if !has_promtool() {
        return;
    }
    let check = |name: &str, queries: &[String]| {
        let rule = |(number, query): (usize, &String)| {
            // What Grafana fills in.
            let query = query.replace("$__rate_interval", "1m").replace("$class", ".*");
            format!("      - record: query_{number}\n        expr: {}\n", Value::from(query))
        };
        let rules: String = queries.iter().enumerate().map(rule).collect();
        let rules = format!("groups:\n  - name: queries\n    rules:\n{rules}");
        promtool(&folder(name, &[("rules.yaml", &rules)]), &["check", "rules", "rules.yaml"])
    };
    let (is_content, said) = check("queries", &queries());
    assert!(is_content, "{said}");
    let (is_content, said) = check("planted-query", &["sum by (le (leasehold_held)".to_owned()]);
    assert!(!is_content, "{said}");
}

/// Prometheus shows each of them alone.
#[test]
fn help_of_a_metric_stands_alone() {
    let source = include_str!("../../src/observe/metrics.rs");
    let (_, rest) = source.split_once("\nfn describe() {").expect("the descriptions");
    let describe = rest.split("\n}").next().expect("their end");
    let texts: Vec<&str> = describe.split('"').skip(1).step_by(2).collect();
    assert_eq!(texts.len(), 15, "{texts:#?}");
    for text in texts {
        let (lower, words) =
            (text.to_lowercase(), ["lock", "lease", "hold", "redis", "connection"]);
        assert!(!lower.contains("same") && words.iter().any(|word| lower.contains(word)), "{text}");
    }
}

/// Every metric is in a panel, and no rule and no panel names another one.
#[test]
fn rules_and_dashboard_name_the_metrics_that_there_are() {
    let source = include_str!("../../src/observe/metrics.rs");
    let constants = source.lines().filter(|line| line.starts_with("const "));
    let there: BTreeSet<String> = constants.flat_map(metrics).collect();
    assert!(there.len() > 10, "{there:?}");
    assert_eq!(queries().iter().flat_map(|query| metrics(query)).collect::<BTreeSet<_>>(), there);
    let of_rules = metrics(rules());
    assert!(!of_rules.is_empty() && of_rules.is_subset(&there), "{of_rules:?}");
}
