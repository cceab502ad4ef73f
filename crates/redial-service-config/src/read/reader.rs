//! Looks at values, and keeps what is wrong with them.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

use jsonc_parser::ast::{Object, ObjectProp, Value};
use jsonc_parser::common::Ranged;

use super::PROBLEMS_MAX;
use super::nearest::nearest;
use crate::json::Position;
use crate::{Problem, Problems, Rule, Severity};

/// Longer names and values are cut in messages.
const SHOWN_MAX: usize = 60;
/// How many of an object's other keys are looked at for one that was meant to be a missing one.
const OTHERS_MAX: usize = 100;

/// Where a value stands.
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

/// A text as a message shows it.
pub(super) fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// What is wrong, kept up to a limit.
#[derive(Default)]
struct Kept {
    list: Vec<Problem>,
    left_out: usize,
}

impl Kept {
    /// The problems in the order of the text, with their places: found in one walk over it, since a
    /// text may be one long line.
    fn placed(mut self, text: &str) -> Vec<Problem> {
        self.list.sort_by_key(|problem| problem.range.start);
        let (mut seen, mut place) = (0, Position { line: 1, column: 1 });
        for problem in &mut self.list {
            let between = &text[seen..problem.range.start];
            seen = problem.range.start;
            place.line += between.bytes().filter(|byte| *byte == b'\n').count();
            let (since_line_end, column) = match between.rsplit_once('\n') {
                Some((_, last)) => (last, 1),
                None => (between, place.column),
            };
            place.column = column + since_line_end.chars().count();
            (problem.line, problem.column) = (place.line, place.column);
        }
        self.list
    }
}

/// Looks at the values of a text.
pub(super) struct Reader<'t> {
    text: &'t str,
    errors: Kept,
    warnings: Kept,
}

impl<'t> Reader<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Reader { text, errors: Kept::default(), warnings: Kept::default() }
    }

    pub(super) const fn is_valid(&self) -> bool {
        self.errors.list.is_empty()
    }

    pub(super) fn into_problems(self) -> Problems {
        let left_out = self.errors.left_out;
        let (list, warnings) = (self.errors.placed(self.text), self.warnings.placed(self.text));
        Problems { list, left_out, warnings }
    }

    pub(super) fn into_warnings(self) -> Vec<Problem> {
        self.warnings.placed(self.text)
    }

    /// Whether one more problem would be kept, so that its hint is worth looking for.
    pub(super) const fn keeps(&self, severity: Severity) -> bool {
        let kept = match severity {
            Severity::Error => &self.errors,
            Severity::Warning => &self.warnings,
        };
        kept.list.len() < PROBLEMS_MAX
    }

    /// Keeps a problem, and has nothing to give instead.
    pub(super) fn problem<T>(
        &mut self,
        rule: Rule,
        range: Range<usize>,
        path: &Path<'_>,
        what: impl Into<String>,
        hint: Option<String>,
    ) -> Option<T> {
        let severity = rule.severity();
        let keeps = self.keeps(severity);
        let kept = match severity {
            Severity::Error => &mut self.errors,
            Severity::Warning => &mut self.warnings,
        };
        if !keeps {
            kept.left_out += 1;
            return None;
        }
        let (path, what) = (path.to_string(), what.into());
        kept.list.push(Problem { rule, line: 0, column: 0, range, path, what, hint });
        None
    }

    /// A value that is not what was expected.
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

    /// A required field that is not there, or null: told at the object.
    pub(super) fn missing<T>(
        &mut self,
        rule: Rule,
        fields: &Fields<'_>,
        name: &str,
        path: &Path<'_>,
        expected: &str,
    ) -> Option<T> {
        let mut others = fields.unknown().take(OTHERS_MAX);
        let meant = others.find(|key| nearest(key, [name]).is_some());
        let hint = meant.map(|key| format!("is {:?} meant to be it?", shown(key)));
        let at = match fields.find(name) {
            Some(value) => range(value),
            None => range(fields.object),
        };
        self.problem(rule, at, path, format!("is required: {expected}"), hint)
    }

    /// The fields of an object. Those that nobody reads are warned about.
    pub(super) fn object<'v>(
        &mut self,
        value: &'v Value<'v>,
        path: &Path<'_>,
        kind: &'static Kind,
    ) -> Option<Fields<'v>> {
        let Value::Object(object) = value else {
            return self.unexpected(Rule::Type, value, path, "an object", None);
        };
        let fields = Fields { object, kind };
        for property in &object.properties {
            self.known(property, path, kind);
        }
        Some(fields)
    }

    /// Warns about a field that is not read.
    fn known(&mut self, property: &ObjectProp<'_>, path: &Path<'_>, kind: &'static Kind) {
        let name = property.name.as_str();
        if kind.fields.contains(&name) || !self.keeps(Severity::Warning) {
            return;
        }
        let (path, range) = (path.field(name), range(&property.name));
        let homes: Vec<_> = kind.others().filter(|other| other.fields.contains(&name)).collect();
        if let [home, more @ ..] = &*homes {
            let or = more.iter().map(|home| format!(" or {}", home.place)).collect::<String>();
            let what = format!("is not read in {}", kind.place);
            let hint = Some(format!("it belongs in {}{or}", home.place));
            self.problem::<()>(Rule::MisplacedField, range, &path, what, hint);
            return;
        }
        let (what, hint) = match kind.unused.contains(&name) {
            true => ("has no effect here, though gRPC knows it".to_owned(), None),
            false => {
                let meant = nearest(name, kind.fields.iter().copied());
                let what = format!("is no field of {}", kind.place);
                (what, meant.map(did_you_mean))
            }
        };
        self.problem::<()>(Rule::UnknownField, range, &path, what, hint);
    }

    /// Looks for keys that an object has twice, in all of a value.
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

/// What an object of a config can say.
#[derive(Debug)]
pub(super) struct Kind {
    /// What it is called in messages.
    pub(super) place: &'static str,
    /// The fields that are read.
    pub(super) fields: &'static [&'static str],
    /// Fields that other implementations read.
    unused: &'static [&'static str],
}

pub(super) static ROOT: Kind = Kind {
    place: "the top of the config",
    fields: &["methodConfig", "retryThrottling", "loadBalancingPolicy"],
    unused: &["loadBalancingConfig", "healthCheckConfig"],
};
pub(super) static ENTRY: Kind = Kind {
    place: "an entry of methodConfig",
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
pub(super) static NAME: Kind =
    Kind { place: "a name of an entry", fields: &["service", "method"], unused: &[] };
pub(super) static RETRY: Kind = Kind {
    place: "a retryPolicy",
    fields: &[
        "maxAttempts",
        "initialBackoff",
        "maxBackoff",
        "backoffMultiplier",
        "retryableStatusCodes",
    ],
    unused: &["perAttemptRecvTimeout"],
};
pub(super) static HEDGING: Kind = Kind {
    place: "a hedgingPolicy",
    fields: &["maxAttempts", "hedgingDelay", "nonFatalStatusCodes"],
    unused: &["perAttemptRecvTimeout"],
};
pub(super) static THROTTLING: Kind =
    Kind { place: "retryThrottling", fields: &["maxTokens", "tokenRatio"], unused: &[] };
pub(super) static CHOICE: Kind = Kind {
    place: "a choice",
    fields: &["clientLanguage", "percentage", "clientHostname", "serviceConfig"],
    unused: &[],
};

impl Kind {
    /// All other kinds.
    fn others(&'static self) -> impl Iterator<Item = &'static Kind> {
        let all = [&ROOT, &ENTRY, &NAME, &RETRY, &HEDGING, &THROTTLING];
        all.into_iter().filter(move |kind| !std::ptr::eq(*kind, self))
    }
}

/// The fields of an object; null is absent (decision G32).
#[derive(Clone, Copy)]
pub(super) struct Fields<'v> {
    pub(super) object: &'v Object<'v>,
    kind: &'static Kind,
}

impl<'v> Fields<'v> {
    pub(super) fn get(&self, name: &str) -> Option<&'v Value<'v>> {
        self.find(name).filter(|value| !matches!(value, Value::NullKeyword(_)))
    }

    fn find(&self, name: &str) -> Option<&'v Value<'v>> {
        let mut properties = self.object.properties.iter();
        properties.find(|property| property.name.as_str() == name).map(|property| &property.value)
    }

    /// The keys that are not read.
    pub(super) fn unknown(&self) -> impl Iterator<Item = &'v str> {
        let keys = self.object.properties.iter().map(|property| property.name.as_str());
        keys.filter(|key| !self.kind.fields.contains(key))
    }
}

/// The bytes of a value or name.
pub(super) fn range(of: &impl Ranged) -> Range<usize> {
    of.start()..of.end()
}

pub(super) fn did_you_mean(name: &str) -> String {
    format!("did you mean {name:?}?")
}
