//! What is known of a bad outcome, and how a classifier judges it.

use core::fmt;
use core::time::Duration;

/// Who is to blame, as far as is known; throttles charge by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The server failed.
    Server,
    /// The client failed, or what lies between it and the server.
    Client,
    /// The server asked for fewer requests.
    Throttling,
    /// No answer came in time.
    Timeout,
}

/// How far an attempt got when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Nothing was sent: the other side cannot have acted on it.
    Unsent,
    /// It was sent, and no answer came: whether it ran is not known.
    InFlight,
    /// An answer came.
    Answered,
}

/// Why an attempt failed, in the words of its protocol: an open value with two flags (decision C5).
///
/// Two reasons are equal if their names are.
#[derive(Clone, Copy, Debug)]
pub struct Reason {
    name: &'static str,
    non_idempotent: bool,
    always: bool,
}

impl Reason {
    /// A reason that proves nothing: a call that is not idempotent is not repeated because of it.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Reason { name, non_idempotent: false, always: false }
    }

    /// The same reason, as one that proves that the attempt changed nothing.
    #[must_use]
    pub const fn allow_non_idempotent(mut self) -> Self {
        self.non_idempotent = true;
        self
    }

    /// The same reason, as one that is always retried and never reaches a strategy (decision C10).
    #[must_use]
    pub const fn always(mut self) -> Self {
        self.always = true;
        self
    }

    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Whether it proves that the attempt changed nothing.
    #[must_use]
    pub const fn allows_non_idempotent_retry(&self) -> bool {
        self.non_idempotent
    }

    /// Whether it is retried whatever a strategy would say.
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

/// What the server said about the next attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hint {
    /// Nothing.
    #[default]
    None,
    /// Try again after this long.
    After(Duration),
    /// Do not try again.
    Stop,
}

/// What is known of a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Who is to blame.
    pub kind: Kind,
    /// How far it got.
    pub stage: Stage,
    /// The protocol's own word for it.
    pub reason: Option<Reason>,
    /// What the server asked for.
    pub hint: Hint,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            Kind::Server => "a server failure",
            Kind::Client => "a client failure",
            Kind::Throttling => "throttling",
            Kind::Timeout => "a timeout",
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
            Hint::After(span) => write!(f, ", with a hint to come back after {span:?}"),
            Hint::Stop => f.write_str(", with a hint not to come back"),
        }
    }
}

impl Failure {
    /// A failure of this kind: answered, without a reason and without a hint.
    #[must_use]
    pub const fn new(kind: Kind) -> Self {
        Failure { kind, stage: Stage::Answered, reason: None, hint: Hint::None }
    }

    /// The server failed.
    #[must_use]
    pub const fn server() -> Self {
        Failure::new(Kind::Server)
    }

    /// The client failed, or the way to the server.
    #[must_use]
    pub const fn client() -> Self {
        Failure::new(Kind::Client)
    }

    /// The server asked for fewer requests.
    #[must_use]
    pub const fn throttling() -> Self {
        Failure::new(Kind::Throttling)
    }

    /// No answer came in time: kind timeout, stage in flight (decision P7).
    #[must_use]
    pub const fn timeout() -> Self {
        Failure::new(Kind::Timeout).at(Stage::InFlight)
    }

    /// The same, with the stage at which it failed.
    #[must_use]
    pub const fn at(mut self, stage: Stage) -> Self {
        self.stage = stage;
        self
    }

    /// The same, with the protocol's reason.
    #[must_use]
    pub const fn because(mut self, reason: Reason) -> Self {
        self.reason = Some(reason);
        self
    }

    /// The same, with what the server asked for.
    #[must_use]
    pub const fn hint(mut self, hint: Hint) -> Self {
        self.hint = hint;
        self
    }

    /// The same, with the server's wish to be tried again after this long: `Retry-After`, pushback.
    /// It replaces the policy's delay as [`HintRule`](crate::HintRule) says.
    #[must_use]
    pub const fn retry_after(self, span: Duration) -> Self {
        self.hint(Hint::After(span))
    }

    /// The same, with the server's wish not to be tried again.
    #[must_use]
    pub const fn stop(self) -> Self {
        self.hint(Hint::Stop)
    }

    /// Whether a call that is not idempotent may be repeated after it (decision P8).
    #[must_use]
    pub const fn proves_not_run(&self) -> bool {
        let by_reason = match self.reason {
            Some(reason) => reason.allows_non_idempotent_retry(),
            None => false,
        };
        matches!(self.stage, Stage::Unsent) || by_reason
    }

    /// Whether it asks nothing of what follows: no reason is known, and the server gave no hint.
    #[inline]
    #[must_use]
    pub const fn has_no_reason_or_hint(&self) -> bool {
        self.reason.is_none() && matches!(self.hint, Hint::None)
    }

    /// Whether its reason is retried whatever a strategy would say.
    #[must_use]
    pub const fn is_always_retried(&self) -> bool {
        match self.reason {
            Some(reason) => reason.is_always_retried(),
            None => false,
        }
    }
}

/// How a classifier judges an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directive {
    /// It is what was asked for: hand it on.
    Succeed,
    /// It will not get better: hand it on as a failure.
    Fail,
    /// It may get better: try again because of this.
    Retry(Failure),
}

/// Proof that an attempt did not reach the application at the other end (decisions G26 to G28).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The server says that it did not process it: replaced at once, one time per call.
    Unprocessed,
    /// It never left this side: replaced until it does, with growing pauses.
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

/// A directive with what a transport can add to it; what an outcome is to the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classification {
    /// How the classifier judges the outcome.
    pub directive: Directive,
    /// Proof that allows a transparent replacement; without one, or once they are used up, the
    /// directive counts.
    pub proof: Option<Proof>,
    /// Whether a failure that is not retryable drains the throttle all the same (decision G13).
    pub drains: bool,
}

impl From<Directive> for Classification {
    fn from(directive: Directive) -> Self {
        Classification { directive, proof: None, drains: false }
    }
}
