//! Reads JSON values and collects their problems.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

use jsonc_parser::ast::{Object, ObjectProp, Value};
use jsonc_parser::common::Ranged;

use super::PROBLEMS_MAX;
use super::did_you_mean::{did_you_mean, nearest};
use crate::json::Position;
use crate::{Problem, Problems, Rule, Severity};

/// Longer names and values are truncated in messages.
const SHOWN_MAX: usize = 60;
/// The maximum number of unknown keys that are compared with the name of a missing field.
const OTHERS_MAX: usize = 100;

/// The path of a value in the config.
#[derive(Clone, Copy)]
pub(super) enum Path<'p> {
    Root,
    Field(&'p Path<'p>, &'p str),
    Index(&'p Path<'p>, usize),
}

impl Path<'_> {
    pub(super) const fn field<'p>(&'p self, name: &'p str) -> Path<'p> {
        Path::Field(self, name)
    }

    pub(super) const fn index(&self, index: usize) -> Path<'_> {
        Path::Index(self, index)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Field(Path::Root, name) => f.write_str(&shown(name)),
            Path::Field(parent, name) => write!(f, "{parent}.{}", shown(name)),
            Path::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// A text, truncated for use in a message.
pub(super) fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// Problems up to the limit [`PROBLEMS_MAX`]; further ones are counted only.
#[derive(Default)]
struct ProblemList {
    list: Vec<Problem>,
    omitted: usize,
}

impl ProblemList {
    /// The problems in the order of the text, with lines and columns. One pass over the text computes
    /// all of them: per-problem scans would be quadratic for a text that is one long line.
    fn with_positions(mut self, text: &str) -> Vec<Problem> {
        self.list.sort_by_key(|problem| problem.range.start);
        let (mut seen, mut position) = (0, Position { line: 1, column: 1 });
        for problem in &mut self.list {
            let between = &text[seen..problem.range.start];
            seen = problem.range.start;
            position.line += between.bytes().filter(|byte| *byte == b'\n').count();
            let (since_line_end, column) = match between.rsplit_once('\n') {
                Some((_, last)) => (last, 1),
                None => (between, position.column),
            };
            position.column = column + since_line_end.chars().count();
            (problem.line, problem.column) = (position.line, position.column);
        }
        self.list
    }
}

/// Reads the values of a text.
pub(super) struct Reader<'t> {
    text: &'t str,
    errors: ProblemList,
    warnings: ProblemList,
}

impl<'t> Reader<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Reader { text, errors: ProblemList::default(), warnings: ProblemList::default() }
    }

    pub(super) const fn is_valid(&self) -> bool {
        self.errors.list.is_empty()
    }

    pub(super) fn into_problems(self) -> Problems {
        let omitted = self.errors.omitted;
        let (list, warnings) =
            (self.errors.with_positions(self.text), self.warnings.with_positions(self.text));
        Problems { list, omitted, warnings }
    }

    pub(super) fn into_warnings(self) -> Vec<Problem> {
        self.warnings.with_positions(self.text)
    }

    /// Whether one more problem of this severity would be reported. If not, callers skip the search for
    /// a hint.
    pub(super) const fn has_room(&self, severity: Severity) -> bool {
        let problems = match severity {
            Severity::Error => &self.errors,
            Severity::Warning => &self.warnings,
        };
        problems.list.len() < PROBLEMS_MAX
    }

    /// Reports a problem. Always returns `None`, so callers can return it in place of the value.
    pub(super) fn problem<T>(
        &mut self,
        rule: Rule,
        range: Range<usize>,
        path: &Path<'_>,
        what: impl Into<String>,
        hint: Option<String>,
    ) -> Option<T> {
        let severity = rule.severity();
        let has_room = self.has_room(severity);
        let problems = match severity {
            Severity::Error => &mut self.errors,
            Severity::Warning => &mut self.warnings,
        };
        if !has_room {
            problems.omitted += 1;
            return None;
        }
        let (path, what) = (path.to_string(), what.into());
        problems.list.push(Problem { rule, line: 0, column: 0, range, path, what, hint });
        None
    }

    /// Reports a value of an unexpected type or range.
    pub(super) fn unexpected<T>(
        &mut self,
        rule: Rule,
        value: &Value<'_>,
        path: &Path<'_>,
        expected: &str,
        hint: Option<String>,
    ) -> Option<T> {
        let what = format!("expected {expected}, found {}", self.found(value));
        self.problem(rule, range(value), path, what, hint)
    }

    fn found(&self, value: &Value<'_>) -> String {
        match value {
            Value::Object(_) => "an object".to_owned(),
            Value::Array(_) => "a list".to_owned(),
            Value::StringLit(text) => format!("{:?}", shown(&text.value)),
            value => shown(&self.text[value.start()..value.end()]),
        }
    }

    /// Reports a missing required field at its object, or at the value if it is null.
    pub(super) fn missing<T>(
        &mut self,
        rule: Rule,
        fields: &Fields<'_>,
        name: &str,
        path: &Path<'_>,
        expected: &str,
    ) -> Option<T> {
        let mut others = fields.unknown().take(OTHERS_MAX);
        let suggested =
            others.find(|key| nearest(key, [name]).is_some() || known_elsewhere(key) == Some(name));
        let hint = suggested.map(|key| format!("is {:?} meant to be it?", shown(key)));
        let at = match fields.find(name) {
            Some(value) => range(value),
            None => range(fields.object),
        };
        self.problem(rule, at, path, format!("is required: {expected}"), hint)
    }

    /// The fields of an object. Unknown fields are reported as warnings.
    pub(super) fn object<'v>(
        &mut self,
        value: &'v Value<'v>,
        path: &Path<'_>,
        schema: &'static ObjectSchema,
    ) -> Option<Fields<'v>> {
        let Value::Object(object) = value else {
            return self.unexpected(Rule::Type, value, path, "an object", None);
        };
        let fields = Fields { object, schema };
        for property in &object.properties {
            self.warn_if_unknown(property, path, schema);
        }
        Some(fields)
    }

    /// Warns about a field that this object does not have.
    fn warn_if_unknown(
        &mut self,
        property: &ObjectProp<'_>,
        path: &Path<'_>,
        schema: &'static ObjectSchema,
    ) {
        let name = property.name.as_str();
        if schema.fields.contains(&name) || !self.has_room(Severity::Warning) {
            return;
        }
        let (path, range) = (path.field(name), range(&property.name));
        let homes: Vec<_> = schema.others().filter(|other| other.fields.contains(&name)).collect();
        if let [home, more @ ..] = &*homes {
            let or =
                more.iter().map(|home| format!(" or {}", home.description)).collect::<String>();
            let what = format!("is not read in {}", schema.description);
            let hint = Some(format!("it belongs in {}{or}", home.description));
            self.problem::<()>(Rule::MisplacedField, range, &path, what, hint);
            return;
        }
        let (what, hint) = match schema.unused.contains(&name) {
            true => ("is a gRPC field that has no effect here".to_owned(), None),
            false => {
                let suggested = nearest(name, schema.fields.iter().copied());
                let same = || known_elsewhere(name).filter(|it| schema.fields.contains(it));
                let what = format!("is no field of {}", schema.description);
                let hint = suggested.map(did_you_mean);
                (what, hint.or_else(|| same().map(called)))
            }
        };
        self.problem::<()>(Rule::UnknownField, range, &path, what, hint);
    }

    /// Reports duplicate keys of all objects in a value.
    pub(super) fn duplicate_keys(&mut self, value: &Value<'_>, path: &Path<'_>) {
        match value {
            Value::Object(object) => {
                let mut seen = HashSet::new();
                for property in &object.properties {
                    let name = property.name.as_str();
                    let path = path.field(name);
                    if !seen.insert(name) {
                        let (what, hint) = ("this key is there twice", "remove one of them");
                        let range = range(&property.name);
                        self.problem::<()>(
                            Rule::DuplicateKey,
                            range,
                            &path,
                            what,
                            Some(hint.into()),
                        );
                    }
                    self.duplicate_keys(&property.value, &path);
                }
            }
            Value::Array(array) => {
                for (index, element) in array.elements.iter().enumerate() {
                    self.duplicate_keys(element, &path.index(index));
                }
            }
            _ => {}
        }
    }
}

/// The field that other libraries call so.
fn known_elsewhere(name: &str) -> Option<&'static str> {
    Some(match name {
        "maxRetries" | "max_retries" | "retries" | "attempts" => "maxAttempts",
        "initialDelay" | "initialInterval" | "baseDelay" => "initialBackoff",
        "maxDelay" | "maxInterval" => "maxBackoff",
        "multiplier" | "factor" => "backoffMultiplier",
        "retryableCodes" | "retryOn" | "codes" => "retryableStatusCodes",
        "delay" => "hedgingDelay",
        _ => return None,
    })
}

/// The hint for a field that other libraries call differently.
fn called(name: &str) -> String {
    let note = if name == "maxAttempts" { ", and counts the first attempt, too" } else { "" };
    format!("the field is called {name}{note}")
}

/// The known fields of an object of the config.
#[derive(Debug)]
pub(super) struct ObjectSchema {
    /// The object's name in messages.
    pub(super) description: &'static str,
    /// The fields that have an effect.
    pub(super) fields: &'static [&'static str],
    /// Fields that have an effect in other gRPC implementations only.
    unused: &'static [&'static str],
}

pub(super) static ROOT: ObjectSchema = ObjectSchema {
    description: "the top of the config",
    fields: &["methodConfig", "retryThrottling", "loadBalancingPolicy"],
    unused: &["loadBalancingConfig", "healthCheckConfig"],
};
pub(super) static ENTRY: ObjectSchema = ObjectSchema {
    description: "an entry of methodConfig",
    fields: &[
        "name",
        "retryPolicy",
        "hedgingPolicy",
        "timeout",
        "waitForReady",
        "maxRequestMessageBytes",
        "maxResponseMessageBytes",
    ],
    unused: &[],
};
pub(super) static NAME: ObjectSchema =
    ObjectSchema { description: "a name of an entry", fields: &["service", "method"], unused: &[] };
pub(super) static RETRY: ObjectSchema = ObjectSchema {
    description: "a retryPolicy",
    fields: &[
        "maxAttempts",
        "initialBackoff",
        "maxBackoff",
        "backoffMultiplier",
        "retryableStatusCodes",
    ],
    unused: &["perAttemptRecvTimeout"],
};
pub(super) static HEDGING: ObjectSchema = ObjectSchema {
    description: "a hedgingPolicy",
    fields: &["maxAttempts", "hedgingDelay", "nonFatalStatusCodes"],
    unused: &["perAttemptRecvTimeout"],
};
pub(super) static THROTTLING: ObjectSchema = ObjectSchema {
    description: "retryThrottling",
    fields: &["maxTokens", "tokenRatio"],
    unused: &[],
};
pub(super) static CHOICE: ObjectSchema = ObjectSchema {
    description: "a choice",
    fields: &["clientLanguage", "percentage", "clientHostname", "serviceConfig"],
    unused: &[],
};

impl ObjectSchema {
    /// The schemas of all other objects.
    fn others(&'static self) -> impl Iterator<Item = &'static ObjectSchema> {
        let all = [&ROOT, &ENTRY, &NAME, &RETRY, &HEDGING, &THROTTLING];
        all.into_iter().filter(move |schema| !std::ptr::eq(*schema, self))
    }
}

/// The fields of an object; null counts as absent (decision G32).
#[derive(Clone, Copy)]
pub(super) struct Fields<'v> {
    pub(super) object: &'v Object<'v>,
    schema: &'static ObjectSchema,
}

impl<'v> Fields<'v> {
    pub(super) fn get(&self, name: &str) -> Option<&'v Value<'v>> {
        self.find(name).filter(|value| !matches!(value, Value::NullKeyword(_)))
    }

    fn find(&self, name: &str) -> Option<&'v Value<'v>> {
        let mut properties = self.object.properties.iter();
        properties.find(|property| property.name.as_str() == name).map(|property| &property.value)
    }

    /// The unknown keys of the object.
    pub(super) fn unknown(&self) -> impl Iterator<Item = &'v str> {
        let keys = self.object.properties.iter().map(|property| property.name.as_str());
        keys.filter(|key| !self.schema.fields.contains(key))
    }
}

/// The byte range of a value or name.
pub(super) fn range(of: &impl Ranged) -> Range<usize> {
    of.start()..of.end()
}
