//! The names of the rules, with what each one asks for (docs/check.md has the same table).

use clap::ValueEnum;

use super::runtimes::{Runtime, When};

/// The rules of all kinds of files, in the order of their names.
const RULES: [(&str, &str); 44] = [
    ("attempts-above-cap", "maxAttempts is not above the cap of five attempts"),
    ("attempts-above-reserve", "a full retry budget pays for all attempts of a call"),
    ("backoff", "initialBackoff and maxBackoff are durations above 0"),
    ("backoff-beyond-timeout", "the delays fit into the timeout"),
    ("backoff-clamped", "the first delay is not above the longest"),
    ("backoff-shrinks", "the delays do not get shorter with each retry"),
    ("both-policies", "an entry has one policy at most"),
    ("code", "each status code is a name or a number from 0 to 16"),
    ("codes", "retryableStatusCodes is a list that is not empty, nonFatalStatusCodes is a list"),
    ("duplicate-key", "no key is there twice"),
    ("duplicate-name", "no method or service is named twice in a config"),
    ("hangs-uncounted", "hedged attempts that time out count for the throttle"),
    ("hedging-delay", "hedgingDelay is a duration that is not negative"),
    ("json", "the text is JSON"),
    ("limit", "sizes, depths and counts are within their limits"),
    ("listed-twice", "no status code is listed twice"),
    (
        "lost-wrapper",
        "every policy is where gRPC clients look for it, under the name that they know",
    ),
    ("max-attempts", "maxAttempts is a whole number above 1"),
    ("max-tokens", "maxTokens is a whole number from 1 to 1000"),
    ("misplaced-field", "a known field is in the object that has it"),
    ("missing-field", "a required key is there"),
    ("multiplier", "backoffMultiplier is a number above 0"),
    ("name", "a name with a method has a service"),
    ("no-names", "an entry applies to a method"),
    ("no-throttling", "a retry budget (retryThrottling) limits retries when the server is down"),
    ("not-idempotent", "the proto marks methods that are retried as idempotent (--proto)"),
    ("not-retried", "methods that the proto marks as idempotent are retried (--proto)"),
    ("nothing-retried", "the limits leave room for a retry"),
    ("ok-listed", "OK is not listed as a failure"),
    ("policy", "the parts of a policy fit together"),
    ("scenario", "a scenario file is complete and can be played"),
    ("shadowed", "no setting of an entry is hidden by an entry with a narrower name"),
    ("timeout", "timeout is a duration that is not negative"),
    ("token-ratio", "tokenRatio is a number of at least 0.001"),
    ("toml", "the text is TOML"),
    ("type", "values have the right type"),
    ("unknown-balancing", "the load balancing policy is known"),
    ("unknown-field", "every field is known"),
    ("unknown-method", "every method exists (--proto)"),
    ("unknown-service", "every service exists (--proto)"),
    ("unmatchable-name", "a name can match a method"),
    ("utf-8", "the text is UTF-8"),
    ("value", "values are valid, and refer to what the file has"),
    ("zero-timeout", "the timeout is not zero"),
];

/// The conditions of the rules for languages, whose names begin with that of the language.
const LANGUAGES: &str = "clients in other languages behave as the config says (--for)";

/// What a rule asks for; `None` if there is no such rule.
pub(super) fn description(rule: &str) -> Option<&'static str> {
    let own = RULES.iter().find(|(name, _)| *name == rule).map(|(_, text)| *text);
    own.or_else(|| {
        let (language, condition) = rule.split_once('-')?;
        let mut languages = Runtime::value_variants().iter();
        let is_language = languages.any(|it| it.rule() == language);
        let is_condition = When::ALL.iter().any(|it| it.name() == condition);
        (is_language && is_condition).then_some(LANGUAGES)
    })
}

/// The name of a rule, as an argument.
pub(super) fn known(name: &str) -> Result<String, String> {
    if description(name).is_some() {
        return Ok(name.to_owned());
    }
    let names = RULES.map(|(name, _)| name);
    Err(match super::nearest(name, &names) {
        Some(near) => format!("no rule has this name; did you mean {near}?"),
        None => "no rule has this name; it is in the brackets of a message, as in \
                 warning[no-throttling]"
            .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use redial_service_config::Rule;

    use super::*;

    #[test]
    fn rules_are_sorted_and_documented() {
        assert!(RULES.is_sorted());
        let docs = include_str!("../../../../docs/check.md");
        let rows = RULES.map(|(name, text)| format!("| `{name}` | {text} |\n"));
        let table = format!("| rule | what it asks for |\n| --- | --- |\n{}", rows.concat());
        assert!(docs.contains(&table), "docs/check.md needs this table:\n{table}");
    }

    #[test]
    fn rules_of_service_configs_and_languages_are_known() {
        let rules = [Rule::Json, Rule::MaxAttempts, Rule::NoThrottling, Rule::HangsUncounted];
        assert!(rules.iter().all(|rule| description(rule.name()).is_some()));
        assert_eq!(description("go-hedging-policy"), Some(LANGUAGES));
        assert_eq!(description("cobol-hedging-policy"), None);
        assert!(known("no-throtling").unwrap_err().ends_with("did you mean no-throttling?"));
        assert!(known("x").unwrap_err().contains("in the brackets of a message"));
    }
}
