//! The options of a single call, and the builder methods for them.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use redial_core::{Event, LatencyEstimator, Ns};

use crate::call_log::CallLog;
use crate::strategy::Strategy;

/// A callback for every event.
pub(crate) type Hook<'p> = Box<dyn FnMut(Ns, &Event) + Send + 'p>;

/// The options of a single call.
#[derive(Default)]
pub(crate) struct Options<'p> {
    pub(crate) deadline: Option<Duration>,
    pub(crate) not_idempotent: bool,
    /// A cancelled attempt takes with it what the next one would need.
    pub(crate) owns_context: bool,
    pub(crate) strategy: Option<Arc<dyn Strategy + 'p>>,
    pub(crate) data: Vec<Box<dyn Any + Send + Sync>>,
    pub(crate) hook: Option<Hook<'p>>,
    pub(crate) call_log: Option<&'p mut CallLog>,
    pub(crate) history: bool,
    pub(crate) seed: Option<u64>,
    /// Only for hedged calls.
    pub(crate) estimator: Option<&'p LatencyEstimator>,
}

/// Calls both hooks, the earlier one first.
pub(crate) fn chain_hooks<'p>(
    earlier: Option<Hook<'p>>,
    mut hook: impl FnMut(Ns, &Event) + Send + 'p,
) -> Hook<'p> {
    match earlier {
        None => Box::new(hook),
        Some(mut earlier) => Box::new(move |at, event| {
            earlier(at, event);
            hook(at, event);
        }),
    }
}

/// The options of every call, for a builder with a field `options`.
macro_rules! call_options {
    ($p:lifetime) => {
        pub(crate) fn options(&mut self) -> &mut crate::options::Options<$p> {
            self.options.get_or_insert_default()
        }

        /// The deadline of this call, from its start. The earlier of this and the policy's deadline applies.
        pub fn deadline(mut self, deadline: std::time::Duration) -> Self {
            let options = self.options();
            options.deadline = Some(options.deadline.map_or(deadline, |other| other.min(deadline)));
            self
        }

        /// Attaches data for the strategy, which finds it by type
        /// ([`Request::data`](crate::strategy::Request::data)).
        pub fn data(mut self, data: impl std::any::Any + Send + Sync) -> Self {
            self.options().data.push(Box::new(data));
            self
        }

        /// Calls `hook` for every event of the call, with its time. Several hooks are called in the order in
        /// which they were added.
        ///
        /// ```
        /// use redial::{Event, Policy};
        ///
        /// static AGAIN: Policy = Policy::immediate().attempts(3).build();
        ///
        /// let mut lines = Vec::new();
        /// let result = AGAIN
        ///     .retry(|| Err::<(), _>("busy"))
        ///     .when(|_| true)
        ///     .on_event(|_at, event| lines.push(event.to_string()))
        ///     .call();
        /// assert!(result.is_err());
        /// assert_eq!(lines[1], "attempt 1 started");
        /// assert_eq!(lines.last().unwrap(), "call ended with attempt 3: no attempt left");
        /// ```
        pub fn on_event(
            mut self,
            hook: impl FnMut(redial_core::Ns, &redial_core::Event) + Send + $p,
        ) -> Self {
            let options = self.options();
            options.hook = Some(crate::options::chain_hooks(options.hook.take(), hook));
            self
        }

        /// Records every event in `call_log`, including the cancellation if the call is dropped.
        pub fn call_log(mut self, call_log: &$p mut crate::call_log::CallLog) -> Self {
            self.options().call_log = Some(call_log);
            self
        }

        /// Keeps the times and the outcome of each attempt for the report.
        ///
        /// ```
        /// use redial::{Failure, Policy, AttemptEnd};
        ///
        /// static AGAIN: Policy = Policy::immediate().attempts(3).build();
        ///
        /// let mut answers = [Err("busy"), Ok(7)].into_iter();
        /// let (value, report) = AGAIN
        ///     .retry(|| answers.next().unwrap())
        ///     .when(|error| *error == "busy")
        ///     .history()
        ///     .with_report()
        ///     .call()
        ///     .unwrap();
        /// assert_eq!(value, 7);
        /// assert_eq!(report.history[0].end, AttemptEnd::Failed(Failure::server()));
        /// assert_eq!(report.history[1].end, AttemptEnd::Succeeded);
        /// ```
        pub fn history(mut self) -> Self {
            self.options().history = true;
            self
        }

        /// Seeds the random draws, so that the delays are reproducible.
        pub fn seed(mut self, seed: u64) -> Self {
            self.options().seed = Some(seed);
            self
        }
    };
}

/// The options of a call that retries; a hedged call has only [`call_options`].
macro_rules! retry_options {
    ($p:lifetime) => {
        /// Lets this [strategy](crate::strategy) decide about each failure of this call.
        ///
        /// Hedged calls have no strategy: hedges start before there is a failure.
        pub fn strategy(mut self, strategy: impl crate::strategy::Strategy + $p) -> Self {
            self.options().strategy = Some(std::sync::Arc::new(strategy));
            self
        }

        /// Declares that the operation is not idempotent. A failed attempt is retried only if it provably
        /// did not run on the server ([`Failure::proves_not_run`](crate::Failure::proves_not_run)).
        ///
        /// ```
        /// use redial::{Failure, Policy, Stage, StopReason};
        ///
        /// static PAY: Policy = Policy::immediate().attempts(3).build();
        ///
        /// // A request that was not sent cannot have run. One that was in flight may have.
        /// let mut stages = [Stage::Unsent, Stage::InFlight, Stage::Unsent].into_iter();
        /// let error = PAY
        ///     .retry(|| Err::<(), _>(stages.next().unwrap()))
        ///     .when(|stage| Failure::client().at(*stage))
        ///     .not_idempotent()
        ///     .call()
        ///     .unwrap_err();
        /// assert_eq!((error.stop_reason(), error.attempts()), (StopReason::NotIdempotent, 2));
        /// ```
        pub fn not_idempotent(mut self) -> Self {
            self.options().not_idempotent = true;
            self
        }
    };
}

pub(crate) use {call_options, retry_options};
