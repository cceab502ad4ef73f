//! Policies in a file: written forms of `redial`, and gRPC service configs.

use std::ops::Range;

use redial::config::PolicyConfig;
use redial_service_config::{Problem, ServiceConfig};

use super::reader::{Reader, Table};
use super::tree::{Node, Value};
use super::{Format, Rule, parse_policy};
use crate::{CallPolicy, did_you_mean};

/// The keys that name a policy.
pub(super) const SOURCES: [&str; 5] =
    ["policy", "policy_file", "service_config", "service_config_file", "method"];

impl Reader<'_> {
    /// The policy of a table, from one of its [`SOURCES`].
    pub(super) fn policy_source(&self, table: &Table<'_, '_>) -> Option<CallPolicy> {
        let sources = &SOURCES[..4];
        let mut given = sources.iter().filter(|key| table.get(key).is_some());
        let (Some(source), None) = (given.next(), given.next()) else {
            let text =
                "write one of policy = { .. }, policy_file, service_config and service_config_file";
            self.problem(table.node(), &table.at("policy"), text);
            return None;
        };
        let method = table.read("method", |reader, node, path| {
            reader.text(node, path, "a method like \"/package.Service/Method\"").map(str::to_owned)
        });
        if table.get("method").is_some() && !source.starts_with("service_config") {
            let text = "only a service config has methods; remove it";
            self.problem(table.node(), &table.at("method"), text);
        }
        let method = method.unwrap_or_default();
        match *source {
            "policy" => table.read(source, |_, node, path| self.written_policy(node, path)),
            "policy_file" => table.read(source, |_, node, path| self.policy_file(node, path)),
            "service_config" => table.read(source, |_, node, path| {
                let text = match &node.value {
                    Value::Text(text) => text.clone(),
                    Value::Table(_) => node.to_json().to_string(),
                    _ => return self.wrong(node, path, "a service config, or its text"),
                };
                self.service_config(node, path, &text, &method)
            }),
            _ => table.read(source, |_, node, path| {
                let text = self.open(node, path)?;
                self.service_config(node, path, &text, &method)
            }),
        }
    }

    /// The text of a file that a value names.
    fn open(&self, node: &Node, path: &str) -> Option<String> {
        let name = self.text(node, path, "the name of a file")?;
        match (self.open)(name) {
            Ok(text) => Some(text),
            Err(error) => {
                self.problem(node, path, format!("{name} cannot be read: {error}"));
                None
            }
        }
    }

    fn policy_file(&self, node: &Node, path: &str) -> Option<CallPolicy> {
        let text = self.open(node, path)?;
        let name = self.text(node, path, "the name of a file")?;
        match parse_policy(&text, Format::of(name, &text)) {
            Ok(policy) => Some(policy),
            Err(problems) => {
                for problem in problems.as_slice() {
                    self.problem(node, path, format!("{name}:{problem}"));
                }
                None
            }
        }
    }

    fn service_config(
        &self,
        node: &Node,
        path: &str,
        text: &str,
        method: &str,
    ) -> Option<CallPolicy> {
        match ServiceConfig::parse(text) {
            Err(problems) => {
                for problem in &problems {
                    self.config_problem(node, path, problem);
                }
                None
            }
            Ok(config) if config.method(method).is_none() => {
                let text = "no entry of the service config matches the method; write method = \
                            \"/package.Service/Method\" with a name that the config has";
                self.problem(node, path, text);
                None
            }
            Ok(config) => Some(CallPolicy::from_service_config(&config, method)),
        }
    }

    /// A problem of a service config: at its key if the config is a table of this file, else with the
    /// position in the text of the config.
    fn config_problem(&self, node: &Node, path: &str, problem: &Problem) {
        if let Value::Table(_) = node.value {
            let Problem { what, hint, .. } = problem;
            let hint = hint.as_ref().map_or(String::new(), |hint| format!("; {hint}"));
            let path = [path, &problem.path].into_iter().filter(|part| !part.is_empty());
            let path = path.collect::<Vec<_>>().join(".");
            self.problem(node.find(&problem.path), &path, format!("{what}{hint}"));
        } else {
            self.problem(node, path, format!("in the service config: {problem}"));
        }
    }

    /// The keys of a policy; whether they fit together is not checked here.
    fn policy_config(&self, node: &Node, path: &str) -> Option<PolicyConfig> {
        let error = match serde_json::from_value(node.to_json()) {
            Ok(config) => return Some(config),
            Err(error) => error.to_string(),
        };
        let range = named_key(node, &error);
        match unknown_field(&error) {
            Some(text) => self.problem_at(Rule::UnknownField, range, path, text),
            None => self.problem_at(Rule::Value, range, path, error),
        }
        None
    }

    /// A policy in its written form.
    pub(super) fn written_policy(&self, node: &Node, path: &str) -> Option<CallPolicy> {
        let Value::Table(entries) = &node.value else {
            return self.wrong(node, path, "a policy like { attempts = 3 }");
        };
        // Each key is read by itself, so that all problems are found.
        let wrong = entries.iter().filter(|(key, value)| {
            let (key, value) = ((*key).clone(), (*value).clone());
            let alone = Node { range: node.range.clone(), value: Value::Table(vec![(key, value)]) };
            self.policy_config(&alone, path).is_none()
        });
        if wrong.count() > 0 {
            return None;
        }
        let config = self.policy_config(node, path)?;
        match CallPolicy::from_config(&config) {
            Ok(policy) => Some(policy),
            Err(error) => {
                self.problem(node.find(&error.field()), path, error.to_string());
                None
            }
        }
    }
}

/// The position of the key that an error of `serde` concerns: the one that its text names, as in
/// ``unknown field `x` `` or `attempts: ..`, else the value of the only key.
fn named_key(node: &Node, error: &str) -> Range<usize> {
    let quoted = error.split('`').nth(1);
    let start = error.split(':').next();
    let mut names = [quoted, start].into_iter().flatten();
    let named = names.find_map(|name| search(node, name));
    named.unwrap_or_else(|| match &node.value {
        Value::Table(entries) if entries.len() == 1 => entries[0].1.range.clone(),
        _ => node.range.clone(),
    })
}

/// The position of a key at any depth.
fn search(node: &Node, name: &str) -> Option<Range<usize>> {
    let Value::Table(entries) = &node.value else { return None };
    let own = entries.iter().find(|(key, _)| key.name == name).map(|(key, _)| key.range.clone());
    own.or_else(|| entries.iter().find_map(|(_, node)| search(node, name)))
}

/// A shorter text for an unknown field: the closest name instead of the list of all.
fn unknown_field(error: &str) -> Option<String> {
    let (field, names) = error.strip_prefix("unknown field `")?.split_once("`, expected ")?;
    let names: Vec<&str> = names.split('`').skip(1).step_by(2).collect();
    Some(format!("unknown key {field:?}; {}", did_you_mean::known(field, &names)))
}
