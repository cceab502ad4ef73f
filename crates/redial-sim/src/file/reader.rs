//! Reads values of a tree, and collects every problem.

use std::cell::RefCell;
use std::ops::Range;
use std::time::Duration;

use serde::Deserialize;

use super::tree::{Key, Node, Value};
use super::{OpenFile, PROBLEMS_MAX, Rule};
use crate::did_you_mean;

/// A problem before its line is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) rule: Rule,
    pub(crate) range: Range<usize>,
    pub(crate) path: String,
    pub(crate) text: String,
}

pub(crate) struct Reader<'o> {
    pub(super) open: &'o OpenFile<'o>,
    problems: RefCell<Vec<Found>>,
}

/// A table whose keys are known, with its path.
pub(super) struct Table<'r, 'n> {
    reader: &'r Reader<'r>,
    node: &'n Node,
    path: String,
}

#[derive(Deserialize)]
struct Span(#[serde(with = "redial::config::fields::span")] Option<Duration>);

impl<'o> Reader<'o> {
    pub(crate) fn new(open: &'o OpenFile<'o>) -> Self {
        Reader { open, problems: RefCell::default() }
    }

    pub(crate) fn into_problems(self) -> Vec<Found> {
        self.problems.into_inner()
    }

    pub(crate) fn problem_at(
        &self,
        rule: Rule,
        range: Range<usize>,
        path: &str,
        text: impl Into<String>,
    ) {
        let mut problems = self.problems.borrow_mut();
        if problems.len() <= PROBLEMS_MAX {
            problems.push(Found { rule, range, path: path.to_owned(), text: text.into() });
        }
    }

    /// A value that is not possible here.
    pub(crate) fn problem(&self, node: &Node, path: &str, text: impl Into<String>) {
        self.problem_at(Rule::Value, node.range.clone(), path, text);
    }

    /// A value of another kind than expected.
    pub(super) fn wrong<T>(&self, node: &Node, path: &str, expected: &str) -> Option<T> {
        let text = format!("this is {}; write {expected}", node.kind());
        self.problem_at(Rule::Type, node.range.clone(), path, text);
        None
    }

    /// A table with these keys alone.
    pub(super) fn table<'r, 'n>(
        &'r self,
        node: &'n Node,
        path: &str,
        keys: &[&str],
        expected: &str,
    ) -> Option<Table<'r, 'n>> {
        let Value::Table(entries) = &node.value else { return self.wrong(node, path, expected) };
        let table = Table { reader: self, node, path: path.to_owned() };
        for (index, (Key { name, range }, _)) in entries.iter().enumerate() {
            if !keys.contains(&name.as_str()) {
                let text = format!("unknown key; {}", did_you_mean::known(name, keys));
                self.problem_at(Rule::UnknownField, range.clone(), &table.at(name), text);
            } else if entries[..index].iter().any(|(key, _)| key.name == *name) {
                let text = "the key is there twice; remove one";
                self.problem_at(Rule::DuplicateKey, range.clone(), &table.at(name), text);
            }
        }
        Some(table)
    }

    pub(super) fn list<'n>(
        &self,
        node: &'n Node,
        path: &str,
        expected: &str,
    ) -> Option<&'n [Node]> {
        match &node.value {
            Value::List(list) => Some(list),
            _ => self.wrong(node, path, expected),
        }
    }

    pub(super) fn text<'n>(&self, node: &'n Node, path: &str, expected: &str) -> Option<&'n str> {
        match &node.value {
            Value::Text(text) => Some(text),
            _ => self.wrong(node, path, expected),
        }
    }

    pub(super) fn boolean(&self, node: &Node, path: &str) -> Option<bool> {
        match node.value {
            Value::Bool(value) => Some(value),
            _ => self.wrong(node, path, "true or false"),
        }
    }

    pub(super) fn number(&self, node: &Node, path: &str) -> Option<f64> {
        match node.value {
            Value::Number(number) if number.is_finite() => Some(number),
            Value::Integer(number) => Some(number as f64),
            _ => self.wrong(node, path, "a number like 0.5"),
        }
    }

    /// A number without a fraction, up to `max`.
    pub(super) fn count(&self, node: &Node, path: &str, max: u64) -> Option<u64> {
        match node.value {
            Value::Integer(number) => match u64::try_from(number) {
                Ok(number) if number <= max => Some(number),
                _ => {
                    let text = format!("{number} is out of range; write a number from 0 to {max}");
                    self.problem(node, path, text);
                    None
                }
            },
            _ => self.wrong(node, path, "a number without a fraction, like 10"),
        }
    }

    pub(super) fn duration(&self, node: &Node, path: &str) -> Option<Duration> {
        let Value::Text(text) = &node.value else {
            return self.wrong(node, path, "a duration in quotes, like \"250ms\" or \"1.5s\"");
        };
        match serde_json::from_value::<Span>(text.as_str().into()) {
            Ok(Span(Some(span))) => Some(span),
            Ok(Span(None)) => None,
            Err(error) => {
                self.problem(node, path, error.to_string());
                None
            }
        }
    }

    /// One of several words.
    pub(super) fn choice<T: Copy>(
        &self,
        node: &Node,
        path: &str,
        choices: &[(&str, T)],
    ) -> Option<T> {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let Value::Text(text) = &node.value else {
            return self.wrong(node, path, &format!("one of {names:?}"));
        };
        let found = choices.iter().find(|(name, _)| name == text).map(|(_, value)| *value);
        if found.is_none() {
            let text = format!("{text:?} is not known; {}", did_you_mean::known(text, &names));
            self.problem(node, path, text);
        }
        found
    }
}

impl<'r, 'n> Table<'r, 'n> {
    /// The path of a key.
    pub(super) fn at(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    pub(super) const fn node(&self) -> &'n Node {
        self.node
    }

    pub(super) fn get(&self, key: &str) -> Option<&'n Node> {
        self.node.get(key)
    }

    /// The value of a key, read with this function; `None` if the key is absent or its value is wrong.
    pub(super) fn read<T>(
        &self,
        key: &str,
        read: impl FnOnce(&'r Reader<'r>, &'n Node, &str) -> Option<T>,
    ) -> Option<T> {
        self.get(key).and_then(|node| read(self.reader, node, &self.at(key)))
    }

    /// The value of a key that is required.
    pub(super) fn needs<T>(
        &self,
        key: &str,
        example: &str,
        read: impl FnOnce(&'r Reader<'r>, &'n Node, &str) -> Option<T>,
    ) -> Option<T> {
        if self.get(key).is_none() {
            let text = format!("{key} is missing; write {example}");
            let range = self.node.range.clone();
            self.reader.problem_at(Rule::MissingField, range, &self.path, text);
            return None;
        }
        self.read(key, read)
    }

    pub(super) fn duration(&self, key: &str) -> Option<Duration> {
        self.read(key, Reader::duration)
    }

    pub(super) fn number(&self, key: &str) -> Option<f64> {
        self.read(key, Reader::number)
    }

    pub(super) fn count(&self, key: &str, max: u64) -> Option<u64> {
        self.read(key, |reader, node, path| reader.count(node, path, max))
    }

    /// A count of 32 bits.
    pub(super) fn small(&self, key: &str) -> Option<u32> {
        self.count(key, u64::from(u32::MAX)).and_then(|number| u32::try_from(number).ok())
    }

    pub(super) fn boolean(&self, key: &str) -> Option<bool> {
        self.read(key, Reader::boolean)
    }
}
