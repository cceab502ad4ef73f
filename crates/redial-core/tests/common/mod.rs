//! Shared by the tests of this crate: random policies and outcomes, throttles that can be built
//! twice, an environment that records events, an invariant checker, and a driver on virtual time.
#![allow(dead_code, unused_imports, reason = "each test file uses its own part of this")]

mod driver;
mod env;
mod invariants;
mod model;
mod policies;
mod series;

pub(crate) use driver::{Starts, TestDriver};
pub(crate) use env::{Shared, Spec, TestEnvironment};
pub(crate) use model::Model;
pub(crate) use policies::{
    any_classification, any_directive, any_failure, any_policy, any_span, any_throttle,
    any_throttle_that_never_waits, plain_policy,
};

use redial_core::{Ns, Policy, Rules, ms, ns};

/// Milliseconds as [`Ns`].
pub(crate) const fn at(millis: u64) -> Ns {
    ns(ms(millis))
}

/// A policy from valid rules.
#[track_caller]
pub(crate) fn policy(rules: Rules) -> Policy {
    Policy::try_new(rules).expect("the test's own rules are valid")
}
