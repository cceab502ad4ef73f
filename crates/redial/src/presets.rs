//! Policies by name and as values.
//!
//! Each keeps its design's own throttle, or none, and never the default budget (section B of the
//! decisions); each can be given one. The presets of Couchbase, Milvus and smithy are in their crates.
//!
//! | name | in code | attempts | backoff | ends by | throttle |
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

use redial_core::{Backoff, Jitter, Limits, PolicyError, Rules, ms, s};

use crate::builder::Builder;
use crate::policy::Policy;
use crate::throttle::Throttle;

/// The decision record's policy (section L): five retries, 100 ms × 2 with up to half more, a soft
/// limit of 1 s and a hard one of 2 s. It has no throttle; the builder takes one.
pub const fn limits() -> Builder<Policy> {
    unthrottled(LIMITS)
}

const LIMITS: Rules = Rules {
    // Five retries (L5).
    attempts: Some(6),
    backoff: Backoff::Exponential { first: ms(100), factor: 2.0, cap: None },
    jitter: Jitter::Half,
    limits: Limits { soft: Some(s(1)), hard: Some(s(2)), ..Limits::NONE },
    ..Rules::DEFAULT
};

const fn unthrottled(rules: Rules) -> Builder<Policy> {
    Policy::from_rules(rules).throttle(Throttle::none())
}

/// A policy that has a name.
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
    /// All of them.
    pub const ALL: [Preset; 1] = [Preset::Limits];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Preset::Limits => "limits",
        }
    }

    /// What it does, in a line.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Preset::Limits => {
                "the decision record's limits: 5 retries, 100 ms × 2 and up to half more, soft limit 1 s, hard limit 2 s"
            }
        }
    }

    /// Which throttle it keeps.
    #[must_use]
    pub const fn throttle(self) -> &'static str {
        match self {
            Preset::Limits => "none; add a budget with `sharing`",
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
