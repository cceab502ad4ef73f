//! A document as a tree with positions, the same for TOML and JSON.

use std::ops::Range;

use jsonc_parser::ast;
use jsonc_parser::common::Ranged;
use redial_service_config::json;
use toml::de::{DeTable, DeValue};

use super::Format;

/// A value and its position.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) range: Range<usize>,
    pub(crate) value: Value,
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    Table(Vec<(Key, Node)>),
    List(Vec<Node>),
    Text(String),
    Number(f64),
    /// A number without a fraction.
    Integer(i64),
    Bool(bool),
    Null,
}

#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) name: String,
    pub(crate) range: Range<usize>,
}

/// What is wrong with a text, and where.
type Errors = Vec<(Range<usize>, String)>;

impl Node {
    pub(crate) fn parse(text: &str, format: Format) -> Result<Node, Errors> {
        match format {
            Format::Toml => toml(text),
            Format::Json => {
                let value = json::parse(text).map_err(|error| {
                    let hint = error.hint.map_or(String::new(), |hint| format!("; {hint}"));
                    vec![(error.range, format!("not JSON: {}{hint}", error.what))]
                })?;
                Ok(from_json(&value))
            }
        }
    }

    pub(crate) const fn is_list(&self) -> bool {
        matches!(self.value, Value::List(_))
    }

    /// What kind of value it is, in words.
    pub(crate) const fn kind(&self) -> &'static str {
        match self.value {
            Value::Table(_) => "a table",
            Value::List(_) => "a list",
            Value::Text(_) => "a text",
            Value::Number(_) | Value::Integer(_) => "a number",
            Value::Bool(_) => "true or false",
            Value::Null => "null",
        }
    }

    /// The value of a key.
    pub(crate) fn get(&self, name: &str) -> Option<&Node> {
        let Value::Table(entries) = &self.value else { return None };
        entries.iter().find(|(key, _)| key.name == name).map(|(_, node)| node)
    }

    /// The deepest value on a path such as `services[0].time` that exists.
    pub(crate) fn find(&self, path: &str) -> &Node {
        let mut node = self;
        for part in path.split(['.', '[']) {
            let next = match (&node.value, part.strip_suffix(']')) {
                (Value::List(list), Some(index)) => {
                    index.parse::<usize>().ok().and_then(|index| list.get(index))
                }
                _ => node.get(part),
            };
            match next {
                Some(next) => node = next,
                None => break,
            }
        }
        node
    }

    /// The value without positions, for `serde`.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Table(entries) => serde_json::Value::Object(
                entries.iter().map(|(key, node)| (key.name.clone(), node.to_json())).collect(),
            ),
            Value::List(list) => list.iter().map(Node::to_json).collect(),
            Value::Text(text) => text.clone().into(),
            Value::Number(number) => (*number).into(),
            Value::Integer(number) => (*number).into(),
            Value::Bool(value) => (*value).into(),
            Value::Null => serde_json::Value::Null,
        }
    }
}

fn toml(text: &str) -> Result<Node, Errors> {
    let (table, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        let error = |error: &toml::de::Error| {
            (error.span().unwrap_or(0..0), format!("not TOML: {}", error.message()))
        };
        return Err(errors.iter().map(error).collect());
    }
    let range = table.span();
    from_table(&range, table.get_ref())
}

fn from_table(range: &Range<usize>, table: &DeTable<'_>) -> Result<Node, Errors> {
    let mut entries = Vec::new();
    for (key, value) in table {
        let name = Key { name: key.get_ref().clone().into_owned(), range: key.span() };
        let node = from_toml(&value.span(), value.get_ref())?;
        // A table of a header has no range of its own.
        entries.push((name, node));
    }
    entries.sort_by_key(|(key, _)| key.range.start);
    Ok(Node { range: range.clone(), value: Value::Table(entries) })
}

fn from_toml(range: &Range<usize>, value: &DeValue<'_>) -> Result<Node, Errors> {
    let error = |text: &str| vec![(range.clone(), text.to_owned())];
    let value = match value {
        DeValue::String(text) => Value::Text(text.clone().into_owned()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map(Value::Integer)
            .map_err(|_| error("the number is too large"))?,
        DeValue::Float(number) => {
            Value::Number(number.as_str().parse().map_err(|_| error("not a number"))?)
        }
        DeValue::Boolean(value) => Value::Bool(*value),
        DeValue::Datetime(_) => {
            return Err(error("dates are not used here; write a duration in quotes, like \"5s\""));
        }
        DeValue::Array(list) => Value::List(
            list.iter()
                .map(|value| from_toml(&value.span(), value.get_ref()))
                .collect::<Result<_, _>>()?,
        ),
        DeValue::Table(table) => return from_table(range, table),
    };
    Ok(Node { range: range.clone(), value })
}

fn from_json(value: &ast::Value<'_>) -> Node {
    let range = value.start()..value.end();
    let value = match value {
        ast::Value::StringLit(text) => Value::Text(text.value.clone().into_owned()),
        ast::Value::NumberLit(number) => match number.value.parse::<i64>() {
            Ok(number) => Value::Integer(number),
            Err(_) => Value::Number(number.value.parse().unwrap_or(f64::NAN)),
        },
        ast::Value::BooleanLit(value) => Value::Bool(value.value),
        ast::Value::NullKeyword(_) => Value::Null,
        ast::Value::Array(list) => Value::List(list.elements.iter().map(from_json).collect()),
        ast::Value::Object(object) => {
            let entry = |property: &ast::ObjectProp<'_>| {
                let range = property.name.start()..property.name.end();
                let name = property.name.as_str().to_owned();
                (Key { name, range }, from_json(&property.value))
            };
            Value::Table(object.properties.iter().map(entry).collect())
        }
    };
    Node { range, value }
}
