//! Failures, and the classification of outcomes.

use core::fmt;
use core::time::Duration;

/// The kind of a failure; throttles charge retries by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// The server failed.
    Server,
    /// The client or the network failed.
    Client,
    /// The server asked for fewer requests (HTTP 429, `RESOURCE_EXHAUSTED`).
    Throttling,
    /// No response in time.
    Timeout,
    /// No failure: the operation returned a value that is not the one awaited. Another attempt is
    /// free, and no throttle counts it (section B of docs/decisions.md).
    NotReady,
}

/// How far an attempt got when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Nothing was sent, so the server cannot have acted on the request.
    Unsent,
    /// The request was sent and no response came: the server may have acted on it.
    InFlight,
    /// A response came.
    Answered,
}

/// Why an attempt failed, in the terms of its protocol: a name with two flags (decision C5).
///
/// Two reasons are equal if their names are.
#[derive(Clone, Copy, Debug)]
pub struct Reason {
    name: &'static str,
    non_idempotent: bool,
    always: bool,
}

impl Reason {
    /// A reason that proves nothing: a call that is not idempotent is not retried because of it.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Reason { name, non_idempotent: false, always: false }
    }

    /// Marks the reason as proof that the attempt had no effect, so that it allows retries of calls
    /// that are not idempotent.
    #[must_use]
    pub const fn allow_non_idempotent(mut self) -> Self {
        self.non_idempotent = true;
        self
    }

    /// Marks the reason as always retried, without asking a strategy (decision C10).
    #[must_use]
    pub const fn always(mut self) -> Self {
        self.always = true;
        self
    }

    /// The name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Whether the reason proves that the attempt had no effect.
    #[must_use]
    pub const fn allows_non_idempotent_retry(&self) -> bool {
        self.non_idempotent
    }

    /// Whether the reason is retried without asking a strategy.
    #[must_use]
    pub const fn is_always_retried(&self) -> bool {
        self.always
    }
}

impl PartialEq for Reason {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Reason {}

impl core::hash::Hash for Reason {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A hint from the server about the next attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hint {
    /// No hint.
    #[default]
    None,
    /// Retry after this delay.
    After(Duration),
    /// Do not retry.
    Stop,
}

/// A failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The kind of failure.
    pub kind: FailureKind,
    /// How far the attempt got.
    pub stage: Stage,
    /// The protocol's name for the failure.
    pub reason: Option<Reason>,
    /// The server's hint.
    pub hint: Hint,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            FailureKind::Server => "a server failure",
            FailureKind::Client => "a client failure",
            FailureKind::Throttling => "throttling",
            FailureKind::Timeout => "a timeout",
            FailureKind::NotReady => "a value that is not ready",
        })?;
        if let Some(reason) = self.reason {
            write!(f, " ({reason})")?;
        }
        f.write_str(match self.stage {
            Stage::Unsent => ", never sent",
            Stage::InFlight => ", in flight",
            Stage::Answered => "",
        })?;
        match self.hint {
            Hint::None => Ok(()),
            Hint::After(span) => write!(f, ", server asked to retry after {span:?}"),
            Hint::Stop => f.write_str(", server asked not to retry"),
        }
    }
}

impl Failure {
    /// A failure of this kind with a response, without reason or hint.
    #[must_use]
    pub const fn new(kind: FailureKind) -> Self {
        Failure { kind, stage: Stage::Answered, reason: None, hint: Hint::None }
    }

    /// A failure of the server.
    #[must_use]
    pub const fn server() -> Self {
        Failure::new(FailureKind::Server)
    }

    /// A failure of the client or the network.
    #[must_use]
    pub const fn client() -> Self {
        Failure::new(FailureKind::Client)
    }

    /// The server asked for fewer requests.
    #[must_use]
    pub const fn throttling() -> Self {
        Failure::new(FailureKind::Throttling)
    }

    /// No response in time: kind timeout, stage in flight (decision P7).
    #[must_use]
    pub const fn timeout() -> Self {
        Failure::new(FailureKind::Timeout).at(Stage::InFlight)
    }

    /// The operation returned a value that is not the one awaited, as a poller expects. Another
    /// attempt costs nothing.
    ///
    /// ```
    /// use redial_core::{Failure, FailureKind};
    ///
    /// assert_eq!(Failure::not_ready().kind, FailureKind::NotReady);
    /// ```
    #[must_use]
    pub const fn not_ready() -> Self {
        Failure::new(FailureKind::NotReady)
    }

    /// Sets the stage at which the attempt failed.
    #[must_use]
    pub const fn at(mut self, stage: Stage) -> Self {
        self.stage = stage;
        self
    }

    /// Sets the reason.
    #[must_use]
    pub const fn because(mut self, reason: Reason) -> Self {
        self.reason = Some(reason);
        self
    }

    /// Sets the server's hint.
    #[must_use]
    pub const fn hint(mut self, hint: Hint) -> Self {
        self.hint = hint;
        self
    }

    /// Sets the server's hint to retry after this delay (`Retry-After`, pushback).
    /// [`HintRule`](crate::HintRule) states how it affects the policy's delay.
    #[must_use]
    pub const fn retry_after(self, span: Duration) -> Self {
        self.hint(Hint::After(span))
    }

    /// Sets the server's hint not to retry.
    #[must_use]
    pub const fn stop(self) -> Self {
        self.hint(Hint::Stop)
    }

    /// Whether the attempt provably did not run, so that a call that is not idempotent may be
    /// retried (decision P8).
    #[must_use]
    pub const fn proves_not_run(&self) -> bool {
        let by_reason = match self.reason {
            Some(reason) => reason.allows_non_idempotent_retry(),
            None => false,
        };
        matches!(self.stage, Stage::Unsent) || by_reason
    }

    /// Whether the failure has neither a reason nor a hint, so that the policy alone decides.
    #[must_use]
    pub const fn has_no_reason_or_hint(&self) -> bool {
        self.reason.is_none() && matches!(self.hint, Hint::None)
    }

    /// Whether throttles count the failure and charge its retry.
    #[must_use]
    pub(crate) const fn is_charged(&self) -> bool {
        !matches!(self.kind, FailureKind::NotReady)
    }

    /// Whether the reason is retried without asking a strategy.
    #[must_use]
    pub const fn is_always_retried(&self) -> bool {
        match self.reason {
            Some(reason) => reason.is_always_retried(),
            None => false,
        }
    }
}

/// The classification of an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directive {
    /// A success: return it.
    Succeed,
    /// A final failure: return it without a retry.
    Fail,
    /// A failure to retry.
    Retry(Failure),
}

/// Proof that the server's application did not see an attempt (decisions G26 to G28).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The server reports that it did not process the attempt. Retried transparently at once, one
    /// time per call.
    Unprocessed,
    /// The request never left the client. Retried transparently with growing delays until it does.
    Unsent,
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Proof::Unprocessed => "proven not to have been processed",
            Proof::Unsent => "proven not to have been sent",
        })
    }
}

/// A directive with the transport's knowledge about the outcome: the input of the state machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classification {
    /// The classification of the outcome.
    pub directive: Directive,
    /// Proof that allows a transparent retry; without proof, or when no transparent retry is left,
    /// the directive applies.
    pub proof: Option<Proof>,
    /// Whether a final failure drains the throttle as well (decision G13).
    pub drains: bool,
}

impl From<Directive> for Classification {
    fn from(directive: Directive) -> Self {
        Classification { directive, proof: None, drains: false }
    }
}
