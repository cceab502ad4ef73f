//! JSON with positions: every value has its offset, and all errors are collected, so that one run
//! shows them all.

use std::borrow::Cow;
use std::cell::RefCell;

use jsonc_parser::ast::{Object, ObjectProp, Value};
use jsonc_parser::common::Ranged;
use redial_service_config::json::{self, Decimal, Scaled};
use serde::de::DeserializeOwned;

use super::source::{Diagnostic, Source};
use super::time;

/// The largest number of errors reported per file.
const DIAGNOSTICS_MAX: usize = 100;

/// Parses a text.
///
/// # Errors
/// It is not JSON.
pub(crate) fn parse(source: &Source) -> Result<Value<'_>, Diagnostic> {
    json::parse(source.text()).map_err(|error| {
        let not = if error.too_deep { "" } else { "not JSON: " };
        let hint = error.hint.map_or(String::new(), |hint| format!("; {hint}"));
        source.diagnostic(error.range.start, format!("{not}{}{hint}", error.what))
    })
}

/// Reads values, and collects the errors.
pub(super) struct Reader<'t> {
    source: &'t Source,
    diagnostics: RefCell<Vec<Diagnostic>>,
}

/// The fields of an object; all are known and unique.
pub(super) struct Fields<'t> {
    /// Where the object begins.
    pub(super) at: usize,
    list: Vec<(&'t str, &'t Value<'t>)>,
}

impl<'t> Fields<'t> {
    pub(super) fn get(&self, name: &str) -> Option<&'t Value<'t>> {
        self.list.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }
}

impl<'t> Reader<'t> {
    pub(super) fn new(source: &'t Source) -> Self {
        Reader { source, diagnostics: RefCell::default() }
    }

    /// The source file.
    pub(super) const fn source(&self) -> &'t Source {
        self.source
    }

    /// The errors, in file order.
    pub(super) fn into_diagnostics(self) -> Vec<Diagnostic> {
        let mut diagnostics = self.diagnostics.into_inner();
        diagnostics.sort_by_key(|diagnostic| diagnostic.position);
        // A field that is read twice is reported once.
        diagnostics.dedup();
        diagnostics
    }

    /// Adds an error, and returns `None`.
    pub(super) fn diagnostic<T>(&self, offset: usize, text: impl Into<String>) -> Option<T> {
        let mut diagnostics = self.diagnostics.borrow_mut();
        if diagnostics.len() < DIAGNOSTICS_MAX {
            diagnostics.push(self.source.diagnostic(offset, text));
        }
        None
    }

    fn wrong_type<T>(&self, value: &Value<'_>, what: &str, expected: &str) -> Option<T> {
        let found = match value {
            Value::StringLit(_) => "a string",
            Value::NumberLit(_) => "a number",
            Value::BooleanLit(_) => "true or false",
            Value::Object(_) => "an object",
            Value::Array(_) => "a list",
            Value::NullKeyword(_) => "null",
        };
        self.diagnostic(value.start(), format!("{what}: expected {expected}, found {found}"))
    }

    /// An object that has only these fields.
    pub(super) fn object(
        &self,
        value: &'t Value<'t>,
        what: &str,
        fields: &[&str],
    ) -> Option<Fields<'t>> {
        let object = self.any_object(value, what)?;
        let mut list: Vec<(&'t str, &'t Value<'t>)> = Vec::with_capacity(object.properties.len());
        for property in &object.properties {
            let name = property.name.as_str();
            let at = property.name.start();
            if !fields.contains(&name) {
                let expected = quoted(fields);
                self.diagnostic::<()>(
                    at,
                    format!("unknown field {name:?} in {what}; expected one of {expected}"),
                );
            } else if list.iter().any(|(known, _)| *known == name) {
                self.diagnostic::<()>(at, format!("field {name:?} of {what} is there twice"));
            } else {
                list.push((name, &property.value));
            }
        }
        Some(Fields { at: value.start(), list })
    }

    /// The properties of an object with any fields.
    pub(super) fn any_object(&self, value: &'t Value<'t>, what: &str) -> Option<&'t Object<'t>> {
        match value {
            Value::Object(object) => Some(object),
            other => self.wrong_type(other, what, "an object"),
        }
    }

    /// The value of a required field.
    pub(super) fn needs(
        &self,
        fields: &Fields<'t>,
        name: &str,
        what: &str,
    ) -> Option<&'t Value<'t>> {
        let value = fields.get(name);
        value.or_else(|| self.diagnostic(fields.at, format!("{what} needs the field {name:?}")))
    }

    pub(super) fn array(&self, value: &'t Value<'t>, what: &str) -> Option<&'t [Value<'t>]> {
        match value {
            Value::Array(array) => Some(&array.elements),
            other => self.wrong_type(other, what, "a list"),
        }
    }

    pub(super) fn string(&self, value: &'t Value<'t>, what: &str) -> Option<&'t str> {
        match value {
            Value::StringLit(string) => Some(match &string.value {
                Cow::Borrowed(text) => text,
                Cow::Owned(text) => text,
            }),
            other => self.wrong_type(other, what, "a string"),
        }
    }

    pub(super) fn boolean(&self, value: &'t Value<'t>, what: &str) -> Option<bool> {
        match value {
            Value::BooleanLit(boolean) => Some(boolean.value),
            other => self.wrong_type(other, what, "true or false"),
        }
    }

    pub(super) fn number(&self, value: &'t Value<'t>, what: &str) -> Option<f64> {
        let number = self.number_text(value, what, "a number")?.parse::<f64>();
        match number {
            Ok(number) if number.is_finite() => Some(number),
            _ => self.diagnostic(value.start(), format!("{what}: the number is too large")),
        }
    }

    /// An integer from `least` to `most`, in any notation: `3.0` is one.
    pub(super) fn whole(
        &self,
        value: &'t Value<'t>,
        what: &str,
        least: u64,
        most: u64,
    ) -> Option<u64> {
        let text = self.number_text(value, what, "a whole number")?;
        let decimal = Decimal::new(text);
        let Scaled { value: number, exact } = decimal.scaled(0);
        if exact && !decimal.is_negative() && (least..=most).contains(&number) {
            return Some(number);
        }
        let expected = format!("a whole number from {least} to {most}");
        self.diagnostic(value.start(), format!("{what}: expected {expected}, found {text}"))
    }

    /// A time in milliseconds, as nanoseconds.
    pub(super) fn time(&self, value: &'t Value<'t>, what: &str) -> Option<redial::time::Ns> {
        let text = self.number_text(value, what, "a number of milliseconds")?;
        time::from_ms(text).or_else(|| {
            let expected = "a number of milliseconds that is not negative";
            self.diagnostic(value.start(), format!("{what}: expected {expected}, found {text}"))
        })
    }

    fn number_text(&self, value: &'t Value<'t>, what: &str, expected: &str) -> Option<&'t str> {
        match value {
            Value::NumberLit(number) => Some(number.value),
            other => self.wrong_type(other, what, expected),
        }
    }

    /// A value that is deserialized by serde.
    pub(super) fn deserialize<T: DeserializeOwned>(
        &self,
        value: &'t Value<'t>,
        what: &str,
    ) -> Option<T> {
        let start = value.start();
        let text = &self.source.text()[start..value.end()];
        match serde_json::from_str(text) {
            // serde also reads structs from lists, which is not allowed here.
            Ok(read) => match list(value) {
                None => Some(read),
                Some(list) => self.wrong_type(list, what, "an object"),
            },
            Err(error) => {
                let within = Source::new("", text).line_start(error.line());
                let offset = start + within + error.column().saturating_sub(1);
                let text = bare(&error);
                // A missing field is reported at the end of its object, a wrong number at its end.
                let ended = !text.starts_with("missing field");
                self.diagnostic(narrowest(value, offset, ended), format!("{what}: {text}"))
            }
        }
    }
}

/// The first list that is not a delay table: policies have no other lists.
fn list<'t>(value: &'t Value<'t>) -> Option<&'t Value<'t>> {
    match value {
        Value::Array(_) => Some(value),
        Value::Object(object) => {
            let others = object.properties.iter().filter(|it| it.name.as_str() != "table");
            others.map(|property| &property.value).find_map(list)
        }
        _ => None,
    }
}

/// The error without its position, which is reported separately, and without Rust type names.
fn bare(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let suffix = format!(" at line {} column {}", error.line(), error.column());
    let text = text.strip_suffix(&suffix).unwrap_or(&text);
    let (found, expected) = match text.split_once(", expected ") {
        Some((found, expected)) => (found.replace("unit variant", "a word alone"), expected),
        // A value with several notations, of which none or two are given.
        None if text == "expected value" => {
            return "expected a word, or an object with one field".to_owned();
        }
        None => return text.to_owned(),
    };
    let expected = match expected {
        "f64" => "a number",
        "u32" => "a whole number from 0 to 4294967295",
        "unit" => "a word alone",
        "newtype variant" => "an object with one field",
        other if other.starts_with("struct ") => "an object",
        other => other,
    };
    format!("{found}, expected {expected}")
}

/// The offset of the smallest value or name that contains the byte, or `ended` before it.
fn narrowest(value: &Value<'_>, offset: usize, ended: bool) -> usize {
    let contains = |range: &dyn Ranged| (range.start()..range.end()).contains(&offset);
    let inside = match value {
        Value::Object(object) => {
            let properties = || object.properties.iter();
            let before = || properties().rfind(|property| ended && property.end() <= offset);
            let property = properties().find(|property| contains(*property)).or_else(before);
            property.map(|property: &ObjectProp<'_>| {
                if contains(&property.value) || property.end() <= offset {
                    narrowest(&property.value, offset, ended)
                } else {
                    property.name.start()
                }
            })
        }
        Value::Array(array) => {
            let element = array.elements.iter().find(|element| contains(*element));
            element.map(|element| narrowest(element, offset, ended))
        }
        _ => None,
    };
    inside.unwrap_or_else(|| value.start())
}

/// The offset of the value at a path, or of its nearest existing parent.
pub(super) fn find(value: &Value<'_>, path: &str) -> usize {
    let mut value = value;
    let mut at = value.start();
    for name in path.split('.') {
        let Value::Object(object) = value else { break };
        let property = object.properties.iter().find(|property| property.name.as_str() == name);
        let Some(property) = property else { break };
        at = property.value.start();
        value = &property.value;
    }
    at
}

/// Names as a message lists them.
pub(super) fn quoted(names: &[&str]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("{name:?}")).collect();
    quoted.join(", ")
}
