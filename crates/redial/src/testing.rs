//! Test policies, and programs that use them, on virtual time: scripted attempts, fixed random draws, and
//! no real waiting.
//!
//! [`play`] drives the state machine of a call synchronously, without an executor. A test takes
//! microseconds, and its times are exact to the nanosecond.
//!
//! ```
//! use redial::testing::{fails, play, succeeds};
//! use redial::{Policy, StopReason, ms, s};
//!
//! static FETCH: Policy = Policy::exponential(ms(100)).cap(s(5)).attempts(5).build();
//!
//! // Two failures after 5 ms each, then a success. Every random draw is 0.5.
//! let played = play(&FETCH, [fails().after(ms(5)), fails().after(ms(5)), succeeds()]);
//! assert_eq!(played.starts(), [ms(0), ms(55), ms(160)]);
//! assert_eq!(played.stop_reason(), Some(StopReason::Succeeded));
//! ```
//!
//! A [`Script`] describes a call in more detail, and a [`Play`] runs several that share their throttles:
//!
//! ```
//! use redial::testing::{Play, Script, fails, hangs};
//! use redial::{Policy, StopReason, ms, s};
//!
//! # static FETCH: Policy = Policy::exponential(ms(100)).cap(s(5)).attempts(5).build();
//! let calls = Play::new()
//!     .draws([0.0, 0.25])
//!     .call(Script::new(&FETCH, [fails(), hangs()]).deadline(s(1)))
//!     .call(Script::new(&FETCH, [fails(), hangs()]).at(ms(10)).cancel(ms(40)))
//!     .run();
//! assert_eq!(calls[0].starts(), [ms(0), ms(0)]);
//! assert_eq!(calls[0].stop_reason(), Some(StopReason::Deadline));
//! assert_eq!(calls[1].starts(), [ms(0), ms(25)]);
//! assert_eq!(calls[1].cancels(), [(2, ms(40))]);
//! assert_eq!(calls[1].stop_reason(), Some(StopReason::Cancelled));
//! ```
//!
//! [`block_on`] runs the async driver with your own operations on the virtual time of [`Clock`]; [`draws`]
//! sets its random draws:
//!
//! ```
//! use redial::testing::{Clock, block_on, draws};
//! use redial::time::Sleeper;
//! use redial::{Policy, ms};
//!
//! # static FETCH: Policy = Policy::exponential(ms(100)).build();
//! let _guard = draws([0.5]);
//! let began = Clock.now();
//! let result = block_on(async {
//!     FETCH
//!         .retry(async || {
//!             Clock.sleep(ms(7)).await;
//!             Err::<(), _>("busy")
//!         })
//!         .when(|_| true)
//!         .sleeping_on(Clock)
//!         .await
//! });
//! assert_eq!(result.unwrap_err().attempts(), 3);
//! assert_eq!(Clock.now() - began, redial::testing::nanoseconds(ms(7 + 50 + 7 + 100 + 7)));
//! ```
//!
//! In a play, a policy with the default budget gets a full budget of the play's own. A throttle that was
//! named is used as it is.
//!
//! # Budgets in tests
//!
//! The budget of a `static` policy belongs to the process, and tests of one program share it: tests of
//! failures spend what tests of retries need. [`fresh_budgets`] gives a test full ones.

mod clock;
mod context;
mod fresh_budgets;
mod play;
mod played;
mod replay_buffer;
mod script;
mod scripted_call;

pub use clock::{Clock, Sleep, block_on};
pub use fresh_budgets::{FreshBudgets, Refill, fresh_budgets};
pub use play::Play;
pub use played::{CallEnd, Played};
pub use script::{
    AttemptOutcome, Script, classified_as, fails, fails_with, fatal, hangs, succeeds,
};

pub use crate::draws::{DrawsGuard, set_draws as draws};
pub use redial_core::ns as nanoseconds;

use crate::any_policy::AnyPolicy;
use crate::policy::{Hedged, Policy};

/// A policy that can be played: [`Policy`], [`Hedged`] or [`AnyPolicy`].
pub trait PlayablePolicy: sealed::Sealed {
    /// The rules and the throttle.
    #[doc(hidden)]
    fn policy(&self) -> &Policy;
}

impl PlayablePolicy for Policy {
    fn policy(&self) -> &Policy {
        self
    }
}

impl PlayablePolicy for Hedged {
    fn policy(&self) -> &Policy {
        &self.0
    }
}

impl PlayablePolicy for AnyPolicy {
    fn policy(&self) -> &Policy {
        match self {
            AnyPolicy::Policy(policy) => policy,
            AnyPolicy::Hedged(policy) => policy.policy(),
        }
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for crate::AnyPolicy {}
    impl Sealed for crate::Policy {}
    impl Sealed for crate::Hedged {}
}

/// Plays one call with these attempts, in the order in which they start. Every random draw is 0.5.
///
/// # Panics
/// If more attempts start than are listed.
#[track_caller]
pub fn play(
    policy: &(impl PlayablePolicy + ?Sized),
    attempts: impl IntoIterator<Item = AttemptOutcome>,
) -> Played {
    Script::new(policy, attempts).play()
}
