//! Parses a list of service config choices (gRFC A2) and selects the client's choice.
//!
//! The conditions of every choice are validated, but only the selected config can fail: an invalid
//! canary config must not affect the clients that do not select it.

use std::sync::Arc;

use jsonc_parser::ast::Value;

use super::fields;
use super::reader::{CHOICE, Fields, Path, Reader, range};
use crate::config::Inner;
use crate::json::Decimal;
use crate::{
    CHOICES_MAX, CHOICES_TEXT_MAX, CLIENT_LANGUAGE, ChoiceSelector, Problems, RECORD_ATTRIBUTE,
    Rule, SelectedChoice, ServiceConfig,
};

/// The list of choices in these TXT records, if one of them has a list.
pub(crate) fn records<R>(records: impl IntoIterator<Item = R>) -> Result<Option<String>, Problems>
where
    R: IntoIterator<Item: AsRef<[u8]>>,
{
    let mut lists = records.into_iter().filter_map(list);
    let Some(first) = lists.next() else { return Ok(None) };
    let more = lists.count();
    if more > 0 {
        let what =
            format!("{} records begin with {RECORD_ATTRIBUTE:?}, and have no order", more + 1);
        let hint = Some("write one record, whose strings are joined".to_owned());
        return Err(single_problem(Rule::Records, "", 0, what, hint));
    }
    if first.len() > CHOICES_TEXT_MAX {
        return Err(single_problem(Rule::Limit, "", 0, too_long(), None));
    }
    String::from_utf8(first).map(Some).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let text = String::from_utf8_lossy(error.as_bytes());
        single_problem(Rule::Json, &text, at, "the text is not UTF-8 from here on".to_owned(), None)
    })
}

/// The problems of a text that is rejected as a whole.
fn single_problem(
    rule: Rule,
    text: &str,
    at: usize,
    what: String,
    hint: Option<String>,
) -> Problems {
    let mut reader = Reader::new(text);
    reader.problem::<()>(rule, at..at, &Path::Root, what, hint);
    reader.into_problems()
}

fn too_long() -> String {
    format!("a list of choices has at most {CHOICES_TEXT_MAX} bytes")
}

/// The text after the attribute prefix of a record. A record that is too long is truncated just past
/// the limit, which is enough to reject it.
fn list(record: impl IntoIterator<Item: AsRef<[u8]>>) -> Option<Vec<u8>> {
    let mut joined = Vec::new();
    for part in record {
        joined.extend_from_slice(part.as_ref());
        if joined.len() > RECORD_ATTRIBUTE.len() + CHOICES_TEXT_MAX {
            break;
        }
    }
    let list = joined.strip_prefix(RECORD_ATTRIBUTE.as_bytes())?;
    Some(list.to_vec())
}

/// Selects a choice.
pub(crate) fn select(text: &str, selector: &ChoiceSelector) -> Result<SelectedChoice, Problems> {
    let mut reader = Reader::new(text);
    let selected = select_choice(&mut reader, text, selector);
    match selected {
        Some(selected) if reader.is_valid() => {
            let warnings = reader.into_warnings();
            let (index, inner) = selected.unzip();
            let config = inner.map(|inner| {
                ServiceConfig(Arc::new(Inner { warnings: warnings.clone(), ..inner }))
            });
            Ok(SelectedChoice { config, index, warnings })
        }
        _ => Err(reader.into_problems()),
    }
}

/// Validates all choices and selects one. Outer `None`: the list is invalid; inner `None`: no choice
/// matches.
fn select_choice(
    reader: &mut Reader<'_>,
    text: &str,
    selector: &ChoiceSelector,
) -> Option<Option<(usize, Inner)>> {
    let path = Path::Root;
    if text.len() > CHOICES_TEXT_MAX {
        return reader.problem(Rule::Limit, 0..0, &path, too_long(), None);
    }
    let value = super::value(reader, text, "write [] for a list without choices")?;
    if let Value::Object(_) = value {
        let hint = Some("write [{\"serviceConfig\": ...}] around a config".to_owned());
        return reader.unexpected(Rule::Type, &value, &path, "a list of choices", hint);
    }
    let list = fields::array(reader, &value, &path)?;
    if list.len() > CHOICES_MAX {
        let what = format!("a list has at most {CHOICES_MAX} choices, found {}", list.len());
        return reader.problem(Rule::Limit, range(&value), &path, what, None);
    }
    let choices: Vec<_> = list
        .iter()
        .enumerate()
        .map(|(index, value)| Choice::read(reader, value, &path.index(index)))
        .collect();
    warn_about_unreachable_choice(reader, list, &choices);
    let matches =
        |choice: &Option<Choice<'_>>| choice.as_ref().is_some_and(|it| it.matches(selector));
    let selected = choices.iter().position(matches);
    let mut config = None;
    for (index, choice) in choices.iter().enumerate() {
        let Some(value) = choice.as_ref().and_then(|choice| choice.config) else { continue };
        let path = path.index(index);
        let path = path.field("serviceConfig");
        if selected == Some(index) {
            config =
                super::config(reader, value, &path, &selector.client).map(|inner| (index, inner));
        } else {
            warn_about_invalid_config(reader, text, value, &path, selector);
        }
    }
    Some(config)
}

/// A parsed choice; its problems have been reported.
struct Choice<'v> {
    languages: Vec<&'v str>,
    hostnames: Vec<&'v str>,
    percentage: u8,
    config: Option<&'v Value<'v>>,
    /// Whether the choice has a field that may be an unknown condition.
    has_unknown_condition: bool,
}

impl<'v> Choice<'v> {
    fn read(reader: &mut Reader<'_>, value: &'v Value<'v>, path: &Path<'_>) -> Option<Self> {
        let fields = reader.object(value, path, &CHOICE)?;
        let has_unknown_condition = fields.unknown().next().is_some();
        if has_unknown_condition {
            // By A2 the choice is invalid. Ignoring the field would give a canary config to all clients
            // because of a typo in "percentage".
            let what = "an unknown field may be a condition, so the choice is skipped";
            reader.problem::<()>(Rule::PassedOver, range(value), path, what, None);
        }
        Some(Choice {
            languages: names(reader, &fields, path, "clientLanguage"),
            hostnames: names(reader, &fields, path, "clientHostname"),
            percentage: percentage(reader, &fields, path),
            config: config(reader, &fields, path),
            has_unknown_condition,
        })
    }

    /// Whether the client matches all conditions; an empty list of names matches every client.
    fn matches(&self, selector: &ChoiceSelector) -> bool {
        let language_matches = self.languages.is_empty()
            || self.languages.iter().any(|language| language.eq_ignore_ascii_case(CLIENT_LANGUAGE));
        let hostname_matches = self.hostnames.is_empty()
            || selector.hostname.as_deref().is_some_and(|name| self.hostnames.contains(&name));
        !self.has_unknown_condition
            && language_matches
            && hostname_matches
            && selector.draw < self.percentage
    }

    /// Whether the choice matches every client.
    fn matches_every_client(&self) -> bool {
        let unconditional = self.languages.is_empty() && self.hostnames.is_empty();
        !self.has_unknown_condition && unconditional && self.percentage == 100
    }
}

fn names<'v>(
    reader: &mut Reader<'_>,
    fields: &Fields<'v>,
    path: &Path<'_>,
    name: &'static str,
) -> Vec<&'v str> {
    let path = path.field(name);
    let list = fields.get(name).and_then(|value| fields::array(reader, value, &path));
    let names = list.unwrap_or(&[]).iter().enumerate();
    names.filter_map(|(index, value)| fields::string(reader, value, &path.index(index))).collect()
}

fn percentage(reader: &mut Reader<'_>, fields: &Fields<'_>, path: &Path<'_>) -> u8 {
    let Some(value) = fields.get("percentage") else { return 100 };
    let percentage = |value: &Value<'_>| match value {
        Value::NumberLit(number) => {
            let number = Decimal::new(number.value).whole();
            number.and_then(|number| u8::try_from(number).ok()).filter(|number| *number <= 100)
        }
        _ => None,
    };
    percentage(value).unwrap_or_else(|| {
        let (path, expected) = (path.field("percentage"), "a whole number from 0 to 100");
        let hint = fields::unquoted(value, |number| percentage(number).is_some());
        reader.unexpected::<()>(Rule::Percentage, value, &path, expected, hint);
        0
    })
}

fn config<'v>(
    reader: &mut Reader<'_>,
    fields: &Fields<'v>,
    path: &Path<'_>,
) -> Option<&'v Value<'v>> {
    const EXPECTED: &str = "an object";
    let path = path.field("serviceConfig");
    match fields.get("serviceConfig") {
        Some(value @ Value::Object(_)) => Some(value),
        Some(other) => reader.unexpected(Rule::ServiceConfig, other, &path, EXPECTED, None),
        None => reader.missing(Rule::ServiceConfig, fields, "serviceConfig", &path, EXPECTED),
    }
}

/// Warns about an invalid config of a choice that is not selected.
fn warn_about_invalid_config(
    reader: &mut Reader<'_>,
    text: &str,
    value: &Value<'_>,
    path: &Path<'_>,
    selector: &ChoiceSelector,
) {
    let mut other = Reader::new(text);
    let _ = super::config(&mut other, value, path, &selector.client);
    if other.is_valid() {
        return;
    }
    let problems = other.into_problems();
    let count = problems.as_slice().len() + problems.omitted();
    let Some(first) = problems.as_slice().first() else { return };
    let plural = if count == 1 { "" } else { "s" };
    let what = format!("not selected for this client, and has {count} problem{plural}");
    let hint = Some(format!("the first is {first}"));
    reader.problem::<()>(Rule::InvalidElsewhere, range(value), path, what, hint);
}

/// Warns about the first choice that is unreachable because an earlier one matches every client.
fn warn_about_unreachable_choice(
    reader: &mut Reader<'_>,
    list: &[Value<'_>],
    choices: &[Option<Choice<'_>>],
) {
    let all = choices.iter().position(|it| it.as_ref().is_some_and(Choice::matches_every_client));
    let Some((all, after)) = all.and_then(|all| Some((all, list.get(all + 1)?))) else { return };
    let what = format!("unreachable: every client selects [{all}]");
    let hint = Some("put the choice for all clients last".to_owned());
    reader.problem::<()>(Rule::Unreachable, range(after), &Path::Root.index(all + 1), what, hint);
}
