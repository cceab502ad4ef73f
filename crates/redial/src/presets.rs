//! Ready-made policies, by name and as values.
//!
//! A preset has the throttle of its design, or none. It never has the default retry budget (section B of
//! the decisions), but one can be added. The presets of Couchbase, Milvus and Smithy are in their crates.
//!
//! | name | function | attempts | backoff | limits | throttle |
//! | --- | --- | --- | --- | --- | --- |
//! | `limits` | [`limits`] | 6 | 100 ms × 2, up to half more | soft limit 1 s, hard limit 2 s | none |
//!
//! # Adding a budget
//! In a `static`:
//! ```
//! use redial::{Policy, Throttle, presets};
//!
//! static FETCH: Policy = presets::limits().throttle(Throttle::here()).build();
//! ```

use std::time::Duration;

use redial_core::{Backoff, HintRule, Jitter, Limits, PolicyError, Rules, ms, s};

use crate::builder::Builder;
use crate::policy::Policy;
use crate::throttle::Throttle;

/// The policy of section L of the decisions: five retries, 100 ms × 2 with up to half more, a soft limit
/// of 1 s and a hard limit of 2 s. It has no throttle; add one to the builder.
pub const fn limits() -> Builder<Policy> {
    unthrottled(LIMITS)
}

const LIMITS: Rules = Rules {
    // Five retries (L5).
    attempts: Some(6),
    backoff: Backoff::Exponential { first: ms(100), factor: 2.0, cap: None },
    jitter: Jitter::Half,
    limits: Limits { soft: Some(s(1)), hard: Some(s(2)), ..Limits::NONE },
    hint: HintRule::Exact(None),
    ..Rules::DEFAULT
};

const fn unthrottled(rules: Rules) -> Builder<Policy> {
    Policy::from_rules(rules).throttle(Throttle::none())
}

/// A preset by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Preset {
    /// [`limits`].
    Limits,
}

/// The preset with this name.
///
/// ```
/// use redial::presets;
///
/// let policy = presets::by_name("limits").ok_or("unknown")?.policy()?;
/// assert_eq!(policy.rules().attempts, Some(6));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn by_name(name: &str) -> Option<Preset> {
    Preset::ALL.into_iter().find(|preset| preset.name() == name)
}

impl Preset {
    /// All presets.
    pub const ALL: [Preset; 1] = [Preset::Limits];

    /// The name of the preset.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Preset::Limits => "limits",
        }
    }

    /// A one-line description.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Preset::Limits => {
                "bounded retry time: 5 retries, 100 ms × 2 and up to half more, soft limit 1 s, hard limit 2 s"
            }
        }
    }

    /// A description of its throttle.
    #[must_use]
    pub const fn throttle(self) -> &'static str {
        match self {
            Preset::Limits => "none; add a budget with `sharing`",
        }
    }

    /// The rules.
    #[cfg(feature = "serde")]
    pub(crate) const fn rules(self) -> Rules {
        match self {
            Preset::Limits => LIMITS,
        }
    }

    /// The policy.
    ///
    /// # Errors
    /// The rules contradict each other.
    pub fn policy(self) -> Result<Policy, PolicyError> {
        self.make(None)
    }

    /// The policy, with a deadline for each call.
    ///
    /// # Errors
    /// The deadline contradicts the preset.
    pub fn policy_within(self, deadline: Duration) -> Result<Policy, PolicyError> {
        self.make(Some(deadline))
    }

    fn make(self, deadline: Option<Duration>) -> Result<Policy, PolicyError> {
        match self {
            Preset::Limits => unthrottled(Rules { deadline, ..LIMITS }).try_build(),
        }
    }
}
