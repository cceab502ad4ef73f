//! Scripts: the outcomes of a call's attempts, and the actions of the application.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use redial_core::{Classification, Directive, Failure};

use super::play::Play;
use super::{PlayablePolicy, Played};
use crate::policy::Policy;
use crate::strategy::Strategy;

/// The outcome of one attempt. See [`succeeds`], [`fails`], [`fails_with`], [`fatal`], [`hangs`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use = "an attempt belongs in a script"]
pub struct AttemptOutcome {
    /// `None`: the attempt hangs.
    pub(super) classification: Option<Classification>,
    pub(super) after: Duration,
    pub(super) headers: Option<Duration>,
    pub(super) accepts: u64,
}

/// The attempt succeeds.
pub fn succeeds() -> AttemptOutcome {
    classified_as(Directive::Succeed)
}

/// The attempt fails with a retryable server failure.
pub fn fails() -> AttemptOutcome {
    fails_with(Failure::server())
}

/// The attempt fails with this retryable failure.
pub fn fails_with(failure: Failure) -> AttemptOutcome {
    classified_as(Directive::Retry(failure))
}

/// The attempt fails with an error that is not retryable.
pub fn fatal() -> AttemptOutcome {
    classified_as(Directive::Fail)
}

/// The attempt never has an outcome.
pub fn hangs() -> AttemptOutcome {
    AttemptOutcome { classification: None, ..succeeds() }
}

/// The attempt's outcome is classified like this: a [`Directive`], or a [`Classification`] with the details
/// that a transport adds.
pub fn classified_as(classification: impl Into<Classification>) -> AttemptOutcome {
    let classification = Some(classification.into());
    AttemptOutcome { classification, after: Duration::ZERO, headers: None, accepts: u64::MAX }
}

impl AttemptOutcome {
    /// The time from the start of the attempt to its outcome.
    pub const fn after(mut self, span: Duration) -> Self {
        self.after = span;
        self
    }

    /// The time from the start of the attempt to its response headers, which commit the call to this
    /// attempt.
    pub const fn headers(mut self, span: Duration) -> Self {
        self.headers = Some(span);
        self
    }

    /// The number of messages that the attempt's transport accepts before it stops reading.
    pub const fn accepts(mut self, messages: u64) -> Self {
        self.accepts = messages;
        self
    }
}

/// One call on virtual time: its policy, the outcomes of its attempts in the order of their starts, and
/// the actions of the application.
#[derive(Clone)]
#[must_use = "a script does nothing until it is played"]
pub struct Script<'p> {
    pub(super) policy: &'p Policy,
    pub(super) attempts: Vec<AttemptOutcome>,
    pub(super) at: Duration,
    pub(super) deadline: Option<Duration>,
    pub(super) cancel: Option<Duration>,
    pub(super) idempotent: bool,
    pub(super) strategy: Option<Arc<dyn Strategy + 'p>>,
    pub(super) data: Arc<Vec<Box<dyn Any + Send + Sync>>>,
    pub(super) messages: Vec<(Duration, u64)>,
    pub(super) buffer_max: Option<u64>,
    pub(super) message_max: u64,
}

impl<'p> Script<'p> {
    /// A call that starts at 0 and has these attempts.
    pub fn new(
        policy: &'p (impl PlayablePolicy + ?Sized),
        attempts: impl IntoIterator<Item = AttemptOutcome>,
    ) -> Self {
        Script {
            policy: policy.policy(),
            attempts: attempts.into_iter().collect(),
            at: Duration::ZERO,
            deadline: None,
            cancel: None,
            idempotent: true,
            strategy: None,
            data: Arc::default(),
            messages: Vec::new(),
            buffer_max: None,
            message_max: u64::MAX,
        }
    }

    /// The start of the call. All other times of the script count from it.
    pub const fn at(mut self, span: Duration) -> Self {
        self.at = span;
        self
    }

    /// The deadline of the call. The earlier of this and the policy's deadline applies.
    pub const fn deadline(mut self, span: Duration) -> Self {
        self.deadline = Some(span);
        self
    }

    /// The time at which the application drops the call.
    pub const fn cancel(mut self, span: Duration) -> Self {
        self.cancel = Some(span);
        self
    }

    /// Declares that the operation is not idempotent.
    ///
    /// # Panics
    /// If the policy is a hedged one.
    pub fn not_idempotent(mut self) -> Self {
        assert!(
            self.policy.rules().hedge.is_none(),
            "a call that is not idempotent cannot be hedged"
        );
        self.idempotent = false;
        self
    }

    /// Lets this strategy decide about each failure, instead of the policy's own.
    pub fn strategy(mut self, strategy: impl Strategy + 'p) -> Self {
        self.strategy = Some(Arc::new(strategy));
        self
    }

    /// Attaches data for the strategy.
    ///
    /// # Panics
    /// If the script was cloned.
    pub fn data(mut self, data: impl Any + Send + Sync) -> Self {
        let all = Arc::get_mut(&mut self.data).expect("attach data before the script is cloned");
        all.push(Box::new(data));
        self
    }

    /// The application writes a message of this size. A message at time 0 is written before the first
    /// attempt starts.
    pub fn message(mut self, at: Duration, bytes: u64) -> Self {
        self.messages.push((at, bytes));
        self
    }

    /// The size of the call's replay buffer, in bytes (decisions G23 to G25).
    pub const fn buffer_max(mut self, bytes: u64) -> Self {
        self.buffer_max = Some(bytes);
        self
    }

    /// The largest message, in bytes. A larger one fails the running attempt with the lowest number and
    /// ends the call (decision G41, [`Played::too_large`]).
    pub const fn message_max(mut self, bytes: u64) -> Self {
        self.message_max = bytes;
        self
    }

    /// Plays this call alone, with every random draw 0.5. See [`Play`] for more.
    ///
    /// # Panics
    /// If more attempts start than are listed.
    #[track_caller]
    pub fn play(self) -> Played {
        Play::new().call(self).run_one()
    }
}

impl std::fmt::Debug for Script<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Script")
            .field("policy", &self.policy)
            .field("attempts", &self.attempts)
            .field("at", &self.at)
            .field("deadline", &self.deadline)
            .field("cancel", &self.cancel)
            .field("idempotent", &self.idempotent)
            .finish_non_exhaustive()
    }
}
