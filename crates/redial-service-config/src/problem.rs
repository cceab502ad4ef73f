//! What is wrong with a config, where, and what to write instead.

use std::fmt;
use std::ops::Range;

/// What a problem is about. The names of those that make a config invalid are those of the decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// The text is JSON.
    Json,
    /// No object has a key twice.
    DuplicateKey,
    /// Values have the right type.
    Type,
    /// The text, its depth and its entries stay within their limits.
    Limit,
    /// `maxAttempts` is a whole number above 1.
    MaxAttempts,
    /// `initialBackoff` and `maxBackoff` are durations above 0.
    Backoff,
    /// `backoffMultiplier` is a number above 0.
    Multiplier,
    /// `retryableStatusCodes` is a list that is not empty, `nonFatalStatusCodes` a list.
    Codes,
    /// Each of them is the name or number of a status code.
    Code,
    /// `hedgingDelay` is a duration that is not negative.
    HedgingDelay,
    /// `timeout` is a duration that is not negative.
    Timeout,
    /// An entry has one policy.
    BothPolicies,
    /// No name is there twice in the whole config.
    DuplicateName,
    /// A method is one of a service.
    Name,
    /// `maxTokens` is a whole number from 1 to 1000.
    MaxTokens,
    /// `tokenRatio` is a number of at least 0.001.
    TokenRatio,
    /// One TXT record has the list of choices.
    Records,
    /// `percentage` of a choice is a whole number from 0 to 100.
    Percentage,
    /// `serviceConfig` of a choice is an object.
    ServiceConfig,

    /// A field that nobody reads.
    UnknownField,
    /// A field that is read elsewhere in the config.
    MisplacedField,
    /// More attempts than the client makes.
    AttemptsAboveCap,
    /// A policy, and nothing that holds retries back.
    NoThrottling,
    /// So few tokens that the first failure stops all retries.
    NothingRetried,
    /// Delays that the timeout does not leave time for.
    BackoffBeyondTimeout,
    /// A timeout that no call can meet.
    ZeroTimeout,
    /// A name that hides what another entry says.
    Shadowed,
    /// Hedges that hang never drain the tokens.
    HangsUncounted,
    /// OK is listed as a failure.
    OkListed,
    /// A code is listed twice.
    ListedTwice,
    /// A first delay above the longest one.
    BackoffClamped,
    /// Delays that get shorter.
    BackoffShrinks,
    /// An entry that is for no method.
    NoNames,
    /// A name that no method has.
    UnmatchableName,
    /// A load balancing policy that is not known.
    UnknownBalancing,
    /// A choice with a condition that is not known is passed over.
    PassedOver,
    /// A choice that is not taken here, with a config that is not valid.
    InvalidElsewhere,
    /// A choice after one that every client takes.
    Unreachable,
}

impl Rule {
    /// Its name, as tools print it.
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

    /// Whether breaking it makes the config invalid, or is only surely not meant (decision G38).
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

/// How bad a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The config is valid, and surely says something that was not meant.
    Warning,
    /// The config is not valid.
    Error,
}

impl Severity {
    /// Its name, as tools print it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

/// One thing that is wrong with a config. Printed, it reads like a compiler's message:
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
    /// What it is about.
    pub rule: Rule,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
    /// The bytes of the text that it is about.
    pub range: Range<usize>,
    /// The value that it is about, like `methodConfig[0].retryPolicy.maxAttempts`; empty: all of it.
    pub path: String,
    /// What was expected, and what was found.
    pub what: String,
    /// What to write instead, if that can be told.
    pub hint: Option<String>,
}

impl Problem {
    /// How bad it is.
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

/// Everything that makes a config invalid, in the order of the text; never empty.
///
/// Printed with `{:?}`, as `main` and `unwrap` do it, each is a line for people; `{:#?}` has all fields.
#[derive(Clone, PartialEq, Eq)]
pub struct Problems {
    pub(crate) list: Vec<Problem>,
    pub(crate) left_out: usize,
    pub(crate) warnings: Vec<Problem>,
}

impl Problems {
    /// The problems.
    pub fn iter(&self) -> std::slice::Iter<'_, Problem> {
        self.list.iter()
    }

    /// The problems.
    #[must_use]
    pub fn as_slice(&self) -> &[Problem] {
        &self.list
    }

    /// How many more there are than are kept ([`PROBLEMS_MAX`](crate::PROBLEMS_MAX)).
    #[must_use]
    pub const fn left_out(&self) -> usize {
        self.left_out
    }

    /// What is surely not meant besides.
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
        match self.left_out {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

impl fmt::Debug for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !f.alternate() {
            // What prints it has begun a line of its own, like `Error: `.
            return write!(f, "\n{self}");
        }
        f.debug_struct("Problems")
            .field("list", &self.list)
            .field("left_out", &self.left_out)
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
