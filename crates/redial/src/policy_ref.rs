//! The policy of a call that has its state machine.

use std::ops::Deref;
use std::sync::Arc;

use crate::policy::Policy;

/// A policy that a call borrows, or shares with a service.
#[derive(Clone)]
#[doc(hidden)]
pub enum PolicyRef<'p> {
    Borrowed(&'p Policy),
    Shared(Arc<Policy>),
}

impl Deref for PolicyRef<'_> {
    type Target = Policy;

    fn deref(&self) -> &Policy {
        match self {
            PolicyRef::Borrowed(policy) => policy,
            PolicyRef::Shared(policy) => policy,
        }
    }
}

/// The same for the state machine, which needs the rules only.
pub(crate) struct CorePolicyRef<'p>(pub(crate) PolicyRef<'p>);

impl Deref for CorePolicyRef<'_> {
    type Target = redial_core::Policy;

    fn deref(&self) -> &redial_core::Policy {
        &self.0.core
    }
}
