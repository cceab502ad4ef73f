//! Problems for machines: JSON, and SARIF 2.1.0.

use std::collections::BTreeSet;
use std::io::{self, Write};

use serde_json::{Value, json};

use super::{Checked, Finding, Severity, rules};
use crate::scenarios::source::Position;

pub(super) fn json(checked: &[Checked], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{:#}", report(checked))
}

/// What `--format json` prints.
pub(super) fn report(checked: &[Checked]) -> Value {
    let files: Vec<Value> = checked
        .iter()
        .map(|file| {
            let (mut begins, mut ends) = (file.source.positions(), file.source.positions());
            let findings: Vec<Value> = file
                .findings
                .iter()
                .map(|finding| {
                    let begin = begins.at(finding.range.start);
                    let end = ends.at(finding.range.end);
                    json!({
                        "rule": finding.rule,
                        "severity": finding.severity.name(),
                        "line": begin.line,
                        "column": begin.column,
                        "end_line": end.line,
                        "end_column": end.column,
                        "path": finding.path,
                        "text": finding.text,
                        "help": finding.help,
                    })
                })
                .collect();
            json!({ "file": file.source.name(), "kind": file.kind.name(), "findings": findings })
        })
        .collect();
    let count = |severity| checked.iter().map(|file| file.count(severity)).sum::<usize>();
    json!({
        "files": files,
        "errors": count(Severity::Error),
        "warnings": count(Severity::Warning),
        "notes": count(Severity::Note),
    })
}

pub(super) fn sarif(checked: &[Checked], out: &mut dyn Write) -> io::Result<()> {
    let rules: BTreeSet<&str> = checked
        .iter()
        .flat_map(|file| file.findings.iter().map(|finding| finding.rule.as_str()))
        .collect();
    let described = |rule: &str| {
        let text = rules::description(rule).unwrap_or(rule);
        json!({ "id": rule, "shortDescription": { "text": text } })
    };
    let rules: Vec<Value> = rules.into_iter().map(described).collect();
    let results: Vec<Value> = checked
        .iter()
        .flat_map(|file| {
            let (mut begins, mut ends) = (file.source.positions(), file.source.positions());
            file.findings.iter().map(move |finding| {
                let begin = begins.at(finding.range.start);
                result(file, finding, begin, ends.at(finding.range.end))
            })
        })
        .collect();
    let report = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "redial check",
                "version": env!("CARGO_PKG_VERSION"),
                "informationUri": env!("CARGO_PKG_REPOSITORY"),
                "rules": rules,
            } },
            // Columns count characters, and SARIF counts UTF-16 units unless it is said.
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    });
    writeln!(out, "{report:#}")
}

fn result(file: &Checked, finding: &Finding, begin: Position, end: Position) -> Value {
    let text = match &finding.help {
        Some(help) => format!("{}; {help}", finding.text),
        None => finding.text.clone(),
    };
    json!({
        "ruleId": finding.rule,
        "level": finding.severity.name(),
        "message": { "text": text },
        "locations": [{ "physicalLocation": {
            "artifactLocation": { "uri": uri(file.source.name()) },
            "region": {
                "startLine": begin.line,
                "startColumn": begin.column,
                "endLine": end.line,
                "endColumn": end.column,
            },
        } }],
    })
}

/// A path as a relative or absolute URI reference.
fn uri(path: &str) -> String {
    let mut uri = String::new();
    for byte in path.replace('\\', "/").bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                uri.push(char::from(byte));
            }
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    if path.starts_with('/') { format!("file://{uri}") } else { uri }
}
