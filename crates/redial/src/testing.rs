//! Policies on virtual time: given draws, scripted operations, and no waiting at all.
//!
//! [`play`] drives the deciding machine itself, synchronously, without an executor: a policy is
//! tested in microseconds, to the nanosecond.
//!
//! ```
//! use redial::testing::{fails, play, succeeds};
//! use redial::{Policy, StopReason, ms, s};
//!
//! static FETCH: Policy = Policy::exponential(ms(100)).cap(s(5)).attempts(5).build();
//!
//! // Two failures after 5 ms each, then a success. Every draw is 0.5.
//! let played = play(&FETCH, [fails().after(ms(5)), fails().after(ms(5)), succeeds()]);
//! assert_eq!(played.starts(), [ms(0), ms(55), ms(160)]);
//! assert_eq!(played.stop_reason(), Some(StopReason::Succeeded));
//! ```
//!
//! A [`Script`] says more about a call, and a [`Play`] has several that share their throttles:
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
//! [`block_on`] runs the async driver itself, with operations of your own, on the virtual time of
//! [`Clock`], and [`draws`] gives it its draws:
//!
//! ```
//! use redial::testing::{Clock, block_on, draws};
//! use redial::{Policy, Sleeper, ms};
//!
//! # static FETCH: Policy = Policy::exponential(ms(100)).build();
//! let _given = draws([0.5]);
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
//! The default budget of a policy starts full in each play and is the play's own; a throttle that
//! was shared by name is used as it is.

mod clock;
mod context;
mod play;
mod played;
mod replay_buffer;
mod script;
mod scripted_call;

pub use clock::{Clock, Sleep, block_on};
pub use play::Play;
pub use played::{Ended, Played};
pub use script::{Meets, Script, fails, fails_with, fatal, hangs, meets, succeeds};

pub use crate::draws::{Given, given as draws};
pub use redial_core::ns as nanoseconds;

use crate::any_policy::AnyPolicy;
use crate::policy::{Hedged, Policy};

/// What can be played: a [`Policy`], a [`Hedged`] one, or one that was loaded and is either.
pub trait Plays: sealed::Sealed {
    /// Its rules and its throttle.
    #[doc(hidden)]
    fn policy(&self) -> &Policy;
}

impl Plays for Policy {
    fn policy(&self) -> &Policy {
        self
    }
}

impl Plays for Hedged {
    fn policy(&self) -> &Policy {
        &self.0
    }
}

impl Plays for AnyPolicy {
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

/// Plays one call whose attempts meet these, in the order in which they start. Every draw is 0.5.
///
/// # Panics
/// An attempt started for which the script has nothing.
#[track_caller]
pub fn play(policy: &(impl Plays + ?Sized), attempts: impl IntoIterator<Item = Meets>) -> Played {
    Script::new(policy, attempts).play()
}
