//! Values of a JSON text, by path.

use std::ops::Range;

use jsonc_parser::ast::{Array, Object, ObjectProp, Value};
use jsonc_parser::common::Ranged;
pub(super) use redial_service_config::json::{JsonError, parse};

/// The byte range of a value or name.
pub(super) fn range(of: &impl Ranged) -> Range<usize> {
    of.start()..of.end()
}

/// The field of an object.
pub(super) fn field<'v>(value: &'v Value<'v>, name: &str) -> Option<&'v ObjectProp<'v>> {
    let Value::Object(object) = value else { return None };
    property(object, name)
}

pub(super) fn property<'v>(object: &'v Object<'v>, name: &str) -> Option<&'v ObjectProp<'v>> {
    object.properties.iter().find(|property| property.name.as_str() == name)
}

/// The elements of a list; none if it is no list.
pub(super) fn elements<'v>(value: Option<&'v Value<'v>>) -> &'v [Value<'v>] {
    match value {
        Some(Value::Array(Array { elements, .. })) => elements,
        _ => &[],
    }
}

/// The text of a string.
pub(super) fn string<'v>(value: &'v Value<'v>) -> Option<&'v str> {
    match value {
        Value::StringLit(text) => Some(&text.value),
        _ => None,
    }
}

/// The value of a number.
pub(super) fn number(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::NumberLit(number) => number.value.parse().ok(),
        _ => None,
    }
}

/// The smallest value at or before this byte.
pub(super) fn at<'v>(value: &'v Value<'v>, offset: usize) -> &'v Value<'v> {
    let around = |it: &&Value<'v>| it.start() <= offset && offset <= it.end();
    let inner = match value {
        Value::Object(object) => {
            object.properties.iter().map(|property| &property.value).find(around)
        }
        Value::Array(array) => array.elements.iter().find(around),
        _ => None,
    };
    inner.map_or(value, |inner| at(inner, offset))
}

/// The value at a path like `backoff.exponential.factor`, or the last one on the way to it.
pub(super) fn find<'v>(value: &'v Value<'v>, path: &str) -> &'v Value<'v> {
    path.split('.')
        .try_fold(value, |value, name| match field(value, name) {
            Some(property) => Ok(&property.value),
            None => Err(value),
        })
        .unwrap_or_else(|last| last)
}
