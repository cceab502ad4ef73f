//! Problems of a config: errors and warnings, with position and a suggested correction.

use std::fmt;
use std::ops::Range;

/// The validation rule that a problem violates. Rules up to [`Rule::ServiceConfig`] are errors and are
/// documented under the same names in the decisions; the rest are warnings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// The text is valid JSON.
    Json,
    /// No object has a duplicate key.
    DuplicateKey,
    /// Values have the right type.
    Type,
    /// Text length, nesting depth and number of entries stay within their limits.
    Limit,
    /// `maxAttempts` is a whole number above 1.
    MaxAttempts,
    /// `initialBackoff` and `maxBackoff` are durations above 0.
    Backoff,
    /// `backoffMultiplier` is a number above 0.
    Multiplier,
    /// `retryableStatusCodes` is a non-empty list, `nonFatalStatusCodes` is a list.
    Codes,
    /// Each element of these lists is the name or number of a status code.
    Code,
    /// `hedgingDelay` is a non-negative duration.
    HedgingDelay,
    /// `timeout` is a non-negative duration.
    Timeout,
    /// An entry has at most one policy.
    BothPolicies,
    /// No name occurs twice in the whole config.
    DuplicateName,
    /// A name with a method also has a service.
    Name,
    /// `maxTokens` is a whole number from 1 to 1000.
    MaxTokens,
    /// `tokenRatio` is a number of at least 0.001.
    TokenRatio,
    /// Exactly one TXT record has a list of choices.
    Records,
    /// `percentage` of a choice is a whole number from 0 to 100.
    Percentage,
    /// `serviceConfig` of a choice is an object.
    ServiceConfig,

    /// An unknown field, which is ignored.
    UnknownField,
    /// A known field in an object where it is ignored.
    MisplacedField,
    /// `maxAttempts` exceeds the client's cap.
    AttemptsAboveCap,
    /// The config has a policy but no `retryThrottling`.
    NoThrottling,
    /// `maxTokens` is so small that the first failure disables all retries.
    NothingRetried,
    /// The delays do not fit into the timeout.
    BackoffBeyondTimeout,
    /// A timeout of zero, which no call can meet.
    ZeroTimeout,
    /// A more specific name hides settings of an entry with a wider name.
    Shadowed,
    /// Hedged attempts that time out do not count as failures for throttling.
    HangsUncounted,
    /// OK is listed as a failure code.
    OkListed,
    /// A code is listed twice.
    ListedTwice,
    /// `initialBackoff` exceeds `maxBackoff`.
    BackoffClamped,
    /// The delays decrease with each retry.
    BackoffShrinks,
    /// An entry applies to no method.
    NoNames,
    /// A name that cannot match any method.
    UnmatchableName,
    /// An unknown load balancing policy.
    UnknownBalancing,
    /// A choice with an unknown condition, which is skipped.
    PassedOver,
    /// The config of another choice, not selected for this client, is invalid.
    InvalidElsewhere,
    /// A choice after one that matches every client.
    Unreachable,
}

impl Rule {
    /// The name as printed in diagnostics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Rule::Json => "json",
            Rule::DuplicateKey => "duplicate-key",
            Rule::Type => "type",
            Rule::Limit => "limit",
            Rule::MaxAttempts => "max-attempts",
            Rule::Backoff => "backoff",
            Rule::Multiplier => "multiplier",
            Rule::Codes => "codes",
            Rule::Code => "code",
            Rule::HedgingDelay => "hedging-delay",
            Rule::Timeout => "timeout",
            Rule::BothPolicies => "both-policies",
            Rule::DuplicateName => "duplicate-name",
            Rule::Name => "name",
            Rule::MaxTokens => "max-tokens",
            Rule::TokenRatio => "token-ratio",
            Rule::Records => "records",
            Rule::Percentage => "percentage",
            Rule::ServiceConfig => "service-config",
            Rule::UnknownField => "unknown-field",
            Rule::MisplacedField => "misplaced-field",
            Rule::AttemptsAboveCap => "attempts-above-cap",
            Rule::NoThrottling => "no-throttling",
            Rule::NothingRetried => "nothing-retried",
            Rule::BackoffBeyondTimeout => "backoff-beyond-timeout",
            Rule::ZeroTimeout => "zero-timeout",
            Rule::Shadowed => "shadowed",
            Rule::HangsUncounted => "hangs-uncounted",
            Rule::OkListed => "ok-listed",
            Rule::ListedTwice => "listed-twice",
            Rule::BackoffClamped => "backoff-clamped",
            Rule::BackoffShrinks => "backoff-shrinks",
            Rule::NoNames => "no-names",
            Rule::UnmatchableName => "unmatchable-name",
            Rule::UnknownBalancing => "unknown-balancing",
            Rule::PassedOver => "passed-over",
            Rule::InvalidElsewhere => "invalid-elsewhere",
            Rule::Unreachable => "unreachable",
        }
    }

    /// Whether a violation makes the config invalid or is a likely mistake only (decision G38).
    #[must_use]
    pub const fn severity(self) -> Severity {
        match self {
            Rule::Json
            | Rule::DuplicateKey
            | Rule::Type
            | Rule::Limit
            | Rule::MaxAttempts
            | Rule::Backoff
            | Rule::Multiplier
            | Rule::Codes
            | Rule::Code
            | Rule::HedgingDelay
            | Rule::Timeout
            | Rule::BothPolicies
            | Rule::DuplicateName
            | Rule::Name
            | Rule::MaxTokens
            | Rule::TokenRatio
            | Rule::Records
            | Rule::Percentage
            | Rule::ServiceConfig => Severity::Error,
            _ => Severity::Warning,
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The severity of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The config is valid but likely contains a mistake.
    Warning,
    /// The config is invalid.
    Error,
}

impl Severity {
    /// The name as printed in diagnostics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

/// A problem of a config. It prints like a compiler diagnostic:
///
/// ```
/// let text = r#"{ "retryThrottling": { "maxTokens": 0, "tokenRatio": 0.1 } }"#;
/// let problems = redial_service_config::ServiceConfig::parse(text).unwrap_err();
/// assert_eq!(
///     problems.to_string(),
///     "1:37: error[max-tokens]: retryThrottling.maxTokens: expected a whole number from 1 to 1000, found 0"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// The violated rule.
    pub rule: Rule,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
    /// The byte range of the value in the text.
    pub range: Range<usize>,
    /// The path of the value, like `methodConfig[0].retryPolicy.maxAttempts`; empty for the whole text.
    pub path: String,
    /// The expected and the actual value.
    pub what: String,
    /// A suggested correction, where there is one.
    pub hint: Option<String>,
}

impl Problem {
    /// The severity of the violated rule.
    #[must_use]
    pub const fn severity(&self) -> Severity {
        self.rule.severity()
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem { rule, line, column, path, what, hint, .. } = self;
        write!(f, "{line}:{column}: {}[{rule}]: ", rule.severity().name())?;
        if !path.is_empty() {
            write!(f, "{path}: ")?;
        }
        f.write_str(what)?;
        match hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Problem {}

/// All errors of an invalid config, in the order of the text; never empty.
///
/// `{:?}`, which `main` and `unwrap` use, prints one readable line per error; `{:#?}` prints all fields.
#[derive(Clone, PartialEq, Eq)]
pub struct Problems {
    pub(crate) list: Vec<Problem>,
    pub(crate) omitted: usize,
    pub(crate) warnings: Vec<Problem>,
}

impl Problems {
    /// Iterates over the errors.
    pub fn iter(&self) -> std::slice::Iter<'_, Problem> {
        self.list.iter()
    }

    /// The errors as a slice.
    #[must_use]
    pub fn as_slice(&self) -> &[Problem] {
        &self.list
    }

    /// The number of errors beyond the limit [`PROBLEMS_MAX`](crate::PROBLEMS_MAX), which are not
    /// listed.
    #[must_use]
    pub const fn omitted(&self) -> usize {
        self.omitted
    }

    /// Likely mistakes besides the errors.
    #[must_use]
    pub fn warnings(&self) -> &[Problem] {
        &self.warnings
    }
}

impl IntoIterator for Problems {
    type Item = Problem;
    type IntoIter = std::vec::IntoIter<Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter()
    }
}

impl<'a> IntoIterator for &'a Problems {
    type Item = &'a Problem;
    type IntoIter = std::slice::Iter<'a, Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.list.iter().enumerate() {
            let line_end = if index > 0 { "\n" } else { "" };
            write!(f, "{line_end}{problem}")?;
        }
        match self.omitted {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

impl fmt::Debug for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !f.alternate() {
            // The caller has already printed a prefix like `Error: `.
            return write!(f, "\n{self}");
        }
        f.debug_struct("Problems")
            .field("list", &self.list)
            .field("omitted", &self.omitted)
            .field("warnings", &self.warnings)
            .finish()
    }
}

impl std::error::Error for Problems {}

#[cfg(test)]
mod tests {
    use crate::ServiceConfig;

    #[test]
    fn problems_debug_prints_one_line_each() {
        let text = r#"{ "retryThrottling": { "maxTokens": 0, "tokenRatio": 0 } }"#;
        let problems = ServiceConfig::parse(text).unwrap_err();
        let lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(format!("Error: {problems:?}"), format!("Error: \n{}\n{}", lines[0], lines[1]));
        assert!(format!("{problems:#?}").contains("rule: MaxTokens"));
    }
}
