//! The options of a single call, and the builder methods for them.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use redial_core::{AttemptTimeoutAction, Event, LIVE_MAX, LatencyEstimator, Ns, Rules};

use crate::call_log::CallLog;
use crate::event_context::EventContext;
use crate::policy::Policy;
use crate::policy_name::PolicyName;
use crate::policy_ref::PolicyRef;
use crate::strategy::Strategy;
use crate::throttle::Handle;

/// A callback for every event.
pub(crate) type Hook<'p> = Box<dyn FnMut(&EventContext<'_>, &Event) + Send + 'p>;

/// The options of a single call.
#[derive(Default)]
pub(crate) struct Options<'p> {
    /// When the caller started the first attempt, if it did that before the call.
    pub(crate) start: Option<Ns>,
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
    pub(crate) overrides: Overrides,
    /// Only for hedged calls.
    pub(crate) estimator: Option<&'p LatencyEstimator>,
}

/// The parts of the policy that a call replaces.
#[derive(Default)]
pub(crate) struct Overrides {
    pub(crate) name: Option<&'static str>,
    pub(crate) attempts: Option<u32>,
    pub(crate) attempt_timeout: Option<Duration>,
    pub(crate) retry_timeouts: bool,
    pub(crate) throttle: Option<Handle>,
}

impl Overrides {
    /// The policy and the throttle of a call.
    pub(crate) fn apply<'p>(
        self,
        policy: PolicyRef<'p>,
        handle: Handle,
    ) -> (PolicyRef<'p>, Handle) {
        let changes_rules =
            self.attempts.is_some() || self.attempt_timeout.is_some() || self.retry_timeouts;
        if !changes_rules && self.throttle.is_none() && self.name.is_none() {
            return (policy, handle);
        }
        let core = policy.core.clone().changed(|rules| self.change(rules));
        let core = core.expect("these changes of valid rules are valid");
        let name = self.name.map_or_else(|| policy.call_name(&handle), PolicyName::new);
        let changed = Policy { core, name, ..(*policy).clone() };
        (PolicyRef::Shared(Arc::new(changed)), self.throttle.unwrap_or(handle))
    }

    /// Changes valid rules to valid rules.
    fn change(&self, rules: &mut Rules) {
        if let Some(attempts) = self.attempts {
            let most = if rules.hedge.is_some() { LIVE_MAX as u32 } else { u32::MAX };
            rules.attempts = Some(attempts.clamp(1, most));
        }
        if let Some(timeout) = self.attempt_timeout {
            // A timeout that is not before the deadline has no effect.
            let has_effect = rules.deadline.is_none_or(|deadline| timeout < deadline);
            rules.attempt_timeout = has_effect.then_some(timeout);
        }
        if self.retry_timeouts {
            rules.attempt_timeout_action = AttemptTimeoutAction::Retry;
        }
    }
}

/// Calls both hooks, the earlier one first.
pub(crate) fn chain_hooks<'p>(
    earlier: Option<Hook<'p>>,
    mut hook: impl FnMut(&EventContext<'_>, &Event) + Send + 'p,
) -> Hook<'p> {
    match earlier {
        None => Box::new(hook),
        Some(mut earlier) => Box::new(move |context, event| {
            earlier(context, event);
            hook(context, event);
        }),
    }
}

/// The options of every call, for a builder with a field `options`.
macro_rules! call_options {
    ($p:lifetime) => {
        pub(crate) fn options(&mut self) -> &mut crate::options::Options<$p> {
            self.options.get_or_insert_default()
        }

        /// The name of this call in events, reports, call logs and metrics, in place of the policy's: for calls of
        /// [`retry`](crate::retry()), and to tell the calls of one policy apart.
        ///
        /// ```
        /// let call = redial::retry(|| Err::<(), _>("busy")).when(|_| false).name("load user");
        /// let error = call.call().unwrap_err();
        /// assert_eq!(error.report().policy.to_string(), "load user");
        /// ```
        pub fn name(mut self, name: &'static str) -> Self {
            self.options().overrides.name = Some(name);
            self
        }

        /// The deadline of this call, from its start. The earlier of this and the policy's deadline applies.
        pub fn deadline(mut self, deadline: std::time::Duration) -> Self {
            let options = self.options();
            options.deadline = Some(options.deadline.map_or(deadline, |other| other.min(deadline)));
            self
        }

        /// The number of attempts of this call, including the first, in place of the policy's. 0 counts as 1;
        /// a hedged call has at most 32.
        ///
        /// ```
        /// use redial::{Policy, ms};
        ///
        /// static FETCH: Policy = Policy::constant(ms(1)).attempts(5).build();
        ///
        /// // A user waits for this one.
        /// let error = FETCH.retry(|| Err::<(), _>("busy")).when(|_| true).attempts(2).call().unwrap_err();
        /// assert_eq!((error.attempts(), error.report().attempts_max), (2, Some(2)));
        /// ```
        pub fn attempts(mut self, attempts: u32) -> Self {
            self.options().overrides.attempts = Some(attempts);
            self
        }

        /// The timeout of each attempt of this call, in place of the policy's; see
        /// [`Builder::attempt_timeout`](crate::Builder::attempt_timeout). A timeout that is not shorter than
        /// the policy's deadline has no effect, and in a blocking call it only shortens
        /// [`Attempt::remaining`](crate::Attempt::remaining).
        ///
        /// ```
        /// use redial::{Policy, StopReason, ms};
        ///
        /// static FETCH: Policy = Policy::constant(ms(1)).build();
        ///
        /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
        /// # async fn main() {
        /// let error = FETCH
        ///     .retry(std::future::pending::<Result<(), std::io::Error>>)
        ///     .when(|_| true)
        ///     .attempt_timeout(ms(20))
        ///     .await
        ///     .unwrap_err();
        /// assert_eq!(error.stop_reason(), StopReason::AttemptTimeout);
        /// # }
        /// ```
        pub fn attempt_timeout(mut self, timeout: std::time::Duration) -> Self {
            self.options().overrides.attempt_timeout = Some(timeout);
            self
        }

        /// The throttle of this call, in place of the policy's. See [`Throttle`](crate::Throttle).
        ///
        /// ```
        /// use redial::throttle::RetryBudget;
        /// use redial::{Policy, Throttle, ms};
        ///
        /// static FETCH: Policy = Policy::constant(ms(1)).build();
        /// static REPORTS: RetryBudget = RetryBudget::new(1.0, 0.1);
        ///
        /// let call = FETCH.retry(|| Err::<(), _>("busy")).when(|_| true);
        /// let error = call.throttle(Throttle::budget(&REPORTS)).call().unwrap_err();
        /// assert!(error.is_throttled());
        /// ```
        pub fn throttle(mut self, throttle: crate::throttle::Throttle) -> Self {
            self.options().overrides.throttle = Some(throttle.handle());
            self
        }

        /// The retry budget of this call, in place of the policy's throttle: that of a host or a tenant, for
        /// example. See [`KeyedBudgets`](crate::throttle::KeyedBudgets).
        ///
        /// ```
        /// use redial::throttle::KeyedBudgets;
        /// use redial::{Policy, ms};
        ///
        /// static FETCH: Policy = Policy::constant(ms(1)).build();
        /// static TENANTS: KeyedBudgets<String> = KeyedBudgets::new(1000);
        ///
        /// let call = FETCH.retry(|| Ok::<_, std::io::Error>(7)).when(|_| true);
        /// let value = call.with_budget(TENANTS.get("small")).call();
        /// assert_eq!(value.ok(), Some(7));
        /// ```
        pub fn with_budget(
            mut self,
            budget: std::sync::Arc<redial_core::throttle::RetryBudget>,
        ) -> Self {
            self.options().overrides.throttle = Some(crate::throttle::Handle::Own(budget));
            self
        }

        /// Attaches data for the strategy, which finds it by type
        /// ([`Request::data`](crate::strategy::Request::data)).
        pub fn data(mut self, data: impl std::any::Any + Send + Sync) -> Self {
            self.options().data.push(Box::new(data));
            self
        }

        /// Calls `hook` for every event of the call, with its time, the name of the policy and, after
        /// [`record_errors`](crate::Retry::record_errors), the text of the last error
        /// ([`EventContext`](crate::call_log::EventContext)). Several hooks are called in the order in which they were
        /// added.
        ///
        /// ```
        /// use redial::{Event, Policy};
        ///
        /// static AGAIN: Policy = Policy::immediate().attempts(3).name("again").build();
        ///
        /// let mut lines = Vec::new();
        /// let mut started = None;
        /// let result = AGAIN
        ///     .retry(|| Err::<(), _>("busy"))
        ///     .when(|_| true)
        ///     .record_errors()
        ///     .on_event(|context, event| {
        ///         let elapsed = redial::time::duration(context.at - *started.get_or_insert(context.at));
        ///         assert!(elapsed < redial::s(60));
        ///         lines.push(format!("{}: {event}, {:?}", context.policy, context.error));
        ///     })
        ///     .call();
        /// assert!(result.is_err());
        /// assert_eq!(lines[1], "again: attempt 1 started, None");
        /// let last = "again: call ended with attempt 3: no attempt left, Some(\"busy\")";
        /// assert_eq!(lines.last().unwrap(), last);
        /// ```
        pub fn on_event(
            mut self,
            hook: impl FnMut(&crate::event_context::EventContext<'_>, &redial_core::Event) + Send + $p,
        ) -> Self {
            let options = self.options();
            options.hook = Some(crate::options::chain_hooks(options.hook.take(), hook));
            self
        }

        /// Keeps the times and the outcome of each attempt for the report: of the first and of the latest ones
        /// if there are more than [`Report::HISTORY_MAX`](crate::Report::HISTORY_MAX).
        ///
        /// ```
        /// use redial::report::AttemptEnd;
        /// use redial::{Failure, Policy};
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

/// The option of a call that borrows its call log.
macro_rules! call_log_option {
    ($p:lifetime) => {
        /// Records every event in `call_log`, including the cancellation if the call is dropped. A log has no
        /// limit, because only a complete one can be replayed: for a call that may go on for days, use
        /// [`on_event`](Self::on_event) or `history`.
        pub fn call_log(mut self, call_log: &$p mut crate::call_log::CallLog) -> Self {
            self.options().call_log = Some(call_log);
            self
        }
    };
}

/// The options of a call that retries; a hedged call has only [`call_options`]. `$origin` is the source of its rules.
macro_rules! retry_options {
    ($p:lifetime, $origin:ty) => {
        /// Lets this [strategy](crate::strategy) decide about each failure of this call.
        ///
        /// Hedged calls have no strategy: hedges start before there is a failure.
        pub fn strategy(mut self, strategy: impl crate::strategy::Strategy + $p) -> Self
        where
            $origin: crate::policy::Sequential<$p>,
        {
            self.options().strategy = Some(std::sync::Arc::new(strategy));
            self
        }

        /// Declares that the operation is not idempotent. A failed attempt is retried only if it provably
        /// did not run on the server ([`Failure::proves_not_run`](crate::Failure::proves_not_run)). A call of an
        /// [`AnyPolicy`](crate::AnyPolicy) that hedges has one attempt.
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
        pub fn not_idempotent(mut self) -> Self
        where
            $origin: crate::policy::MayBeSequential<$p>,
        {
            self.options().not_idempotent = true;
            self
        }

        /// Retries attempts of this call that time out, as
        /// [`Builder::retry_timeouts`](crate::Builder::retry_timeouts) does for every call of a policy. It has
        /// no effect on a call that is [not idempotent](Self::not_idempotent): an attempt that timed out may
        /// have run. No blocking attempt is timed out, so it has no effect there.
        ///
        /// ```
        /// use redial::{Policy, ms};
        ///
        /// static FETCH: Policy = Policy::constant(ms(1)).attempt_timeout(ms(20)).attempts(2).build();
        ///
        /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
        /// # async fn main() {
        /// let call = FETCH.retry(std::future::pending::<Result<(), std::io::Error>>).when(|_| true);
        /// let error = call.retry_timeouts().await.unwrap_err();
        /// assert_eq!(error.attempts(), 2);
        /// # }
        /// ```
        pub fn retry_timeouts(mut self) -> Self
        where
            $origin: crate::policy::MayBeSequential<$p>,
        {
            self.options().overrides.retry_timeouts = true;
            self
        }
    };
}

pub(crate) use {call_log_option, call_options, retry_options};
