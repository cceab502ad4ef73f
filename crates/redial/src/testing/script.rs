//! Scripts: what the attempts of a call meet, and what the application does meanwhile.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use redial_core::{Classification, Directive, Failure};

use super::play::Play;
use super::{Played, Plays};
use crate::policy::Policy;
use crate::strategy::Strategy;

/// What one attempt meets. See [`succeeds`], [`fails`], [`fails_with`], [`fatal`], [`hangs`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use = "an attempt belongs in a script"]
pub struct Meets {
    /// `None`: no outcome ever comes.
    pub(super) classification: Option<Classification>,
    pub(super) after: Duration,
    pub(super) headers: Option<Duration>,
    pub(super) accepts: u64,
}

/// The attempt gets what was asked for.
pub fn succeeds() -> Meets {
    meets(Directive::Succeed)
}

/// The attempt fails, and the failure may be retried; the server's fault.
pub fn fails() -> Meets {
    fails_with(Failure::server())
}

/// The attempt fails with this failure, which may be retried.
pub fn fails_with(failure: Failure) -> Meets {
    meets(Directive::Retry(failure))
}

/// The attempt fails with something that does not get better.
pub fn fatal() -> Meets {
    meets(Directive::Fail)
}

/// No outcome ever comes.
pub fn hangs() -> Meets {
    Meets { classification: None, ..succeeds() }
}

/// The attempt's outcome is judged like this: a [`Directive`], or a whole [`Classification`] with what a
/// transport can add.
pub fn meets(classification: impl Into<Classification>) -> Meets {
    let classification = Some(classification.into());
    Meets { classification, after: Duration::ZERO, headers: None, accepts: u64::MAX }
}

impl Meets {
    /// How long after its start the outcome comes.
    pub const fn after(mut self, span: Duration) -> Self {
        self.after = span;
        self
    }

    /// How long after its start the response begins, ahead of the outcome: from then on the call
    /// belongs to this attempt.
    pub const fn headers(mut self, span: Duration) -> Self {
        self.headers = Some(span);
        self
    }

    /// How many of the call's messages its transport takes before it stops reading.
    pub const fn accepts(mut self, messages: u64) -> Self {
        self.accepts = messages;
        self
    }
}

/// One call on virtual time: its policy, what its attempts meet in the order in which they start,
/// and what the application does.
#[derive(Clone)]
#[must_use = "a script does nothing until it is played"]
pub struct Script<'p> {
    pub(super) policy: &'p Policy,
    pub(super) attempts: Vec<Meets>,
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
    /// A call that begins at once and whose attempts meet these.
    pub fn new(
        policy: &'p (impl Plays + ?Sized),
        attempts: impl IntoIterator<Item = Meets>,
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

    /// When the call begins. Every other time of the script counts from there.
    pub const fn at(mut self, span: Duration) -> Self {
        self.at = span;
        self
    }

    /// After how long the call must end; the smaller of this and the policy's deadline counts.
    pub const fn deadline(mut self, span: Duration) -> Self {
        self.deadline = Some(span);
        self
    }

    /// After how long the application drops the call.
    pub const fn cancel(mut self, span: Duration) -> Self {
        self.cancel = Some(span);
        self
    }

    /// Declares that the operation must not run twice.
    ///
    /// # Panics
    /// The policy is a hedged one.
    pub fn not_idempotent(mut self) -> Self {
        assert!(
            self.policy.rules().hedge.is_none(),
            "a call that must not run twice is not hedged"
        );
        self.idempotent = false;
        self
    }

    /// Asks this strategy about each failure, in place of the policy's own.
    pub fn strategy(mut self, strategy: impl Strategy + 'p) -> Self {
        self.strategy = Some(Arc::new(strategy));
        self
    }

    /// Data of your own that a strategy can see.
    ///
    /// # Panics
    /// The script has been cloned.
    pub fn data(mut self, data: impl Any + Send + Sync) -> Self {
        let all = Arc::get_mut(&mut self.data).expect("data is given before a script is cloned");
        all.push(Box::new(data));
        self
    }

    /// The application writes a message of so many bytes; one that is written at the call's start
    /// is there before the first attempt.
    pub fn message(mut self, at: Duration, bytes: u64) -> Self {
        self.messages.push((at, bytes));
        self
    }

    /// How many bytes of messages the call may keep for a repetition (decisions G23 to G25).
    pub const fn buffer_max(mut self, bytes: u64) -> Self {
        self.buffer_max = Some(bytes);
        self
    }

    /// How many bytes one message may have; a larger one fails the attempt that runs, of several the
    /// one with the lowest number, and ends the call (decision G41, [`Played::too_large`]).
    pub const fn message_max(mut self, bytes: u64) -> Self {
        self.message_max = bytes;
        self
    }

    /// Plays this call alone, every draw being 0.5; [`Play`] says more.
    ///
    /// # Panics
    /// An attempt started for which the script has nothing.
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
