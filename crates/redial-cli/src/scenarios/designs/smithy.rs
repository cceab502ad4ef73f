//! `smithy`: the standard strategy's options (decision S9).

use jsonc_parser::ast::Value;
use redial::PolicyError;
use redial::config::AnyPolicy;
use redial_smithy::StandardRetryStrategy;

use super::super::json::Reader;
use super::Refusal;

/// The standard strategy, with the given values in place of its defaults.
#[derive(Debug)]
pub(in super::super) struct Plan(StandardRetryStrategy);

impl Plan {
    pub(super) fn read<'t>(reader: &Reader<'t>, value: &'t Value<'t>) -> Option<Self> {
        reader.deserialize(value, "smithy").map(Plan)
    }

    pub(super) fn build(&self) -> Result<AnyPolicy, Refusal> {
        self.0.policy().map(AnyPolicy::Policy).map_err(|problem| {
            // The core names fields as in the library's own policy format.
            let text = match problem {
                PolicyError::Unlimited => {
                    "attempts: unlimited attempts would never end; add time_max".to_owned()
                }
                other => other.text().replace("backoff.exponential.factor", "backoff_factor"),
            };
            let field = problem.field().replace("backoff.exponential.factor", "backoff_factor");
            Refusal::of(field, text)
        })
    }
}
