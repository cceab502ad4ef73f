//! Calls that always fail, on virtual time, and their results.

use std::cell::RefCell;
use std::time::Duration;

use redial::testing::{Clock, block_on};
use redial::time::Sleeper;
use redial::{
    Builder, CallLog, Error, Event, Failure, Jitter, Policy, StopReason, Throttle, time::Ns,
};

/// The result of a call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CallResult {
    /// The start times of its attempts.
    pub(crate) starts: Vec<Duration>,
    pub(crate) stop_reason: StopReason,
    pub(crate) elapsed: Duration,
}

impl CallResult {
    /// The delays between attempts that take no time.
    pub(crate) fn delays(&self) -> Vec<Duration> {
        self.starts.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }
}

/// The duration and the failure of each attempt.
#[derive(Clone, Copy)]
pub(crate) struct Fails(pub(crate) Duration, pub(crate) Failure);

impl Fails {
    pub(crate) const AT_ONCE: Fails = Fails(Duration::ZERO, Failure::server());
}

/// Runs a call with and without the state machine; the results must be equal.
pub(crate) fn run(policy: &Policy, fails: Fails) -> CallResult {
    let plain = run_one(policy, fails, None);
    let mut call_log = CallLog::new();
    assert_eq!(run_one(policy, fails, Some(&mut call_log)), plain, "with a machine");
    plain
}

/// Runs a call of the policy on this thread's virtual clock.
pub(crate) fn run_one(policy: &Policy, fails: Fails, call_log: Option<&mut CallLog>) -> CallResult {
    let began = Clock.now();
    let starts = RefCell::new(Vec::new());
    let call = policy.retry(|| {
        starts.borrow_mut().push(Duration::from_nanos(Clock.now() - began));
        assert!(starts.borrow().len() < 10_000, "it goes on for ever");
        async move {
            if !fails.0.is_zero() {
                Clock.sleep(fails.0).await;
            }
            Err::<(), _>(())
        }
    });
    let call = call.when(|()| Some(fails.1)).sleeping_on(Clock);
    let call = match call_log {
        Some(call_log) => call.call_log(call_log),
        None => call,
    };
    let error: Error<()> = block_on(call.into_future()).expect_err("it fails for ever");
    CallResult {
        starts: starts.into_inner(),
        stop_reason: error.stop_reason(),
        elapsed: error.elapsed(),
    }
}

/// The builder's policy without a throttle.
pub(crate) fn free(builder: Builder<Policy>) -> Policy {
    builder.throttle(Throttle::none()).build()
}

/// The same without jitter.
pub(crate) fn exact(builder: Builder<Policy>) -> Policy {
    free(builder.jitter(Jitter::None))
}

/// The delays in the call log.
pub(crate) fn announced(call_log: &CallLog) -> Vec<Duration> {
    let after = |(_, event): &(Ns, Event)| match event {
        Event::RetryScheduled { after, .. } => Some(Duration::from_nanos(*after)),
        _ => None,
    };
    call_log.events().iter().filter_map(after).collect()
}
