//! Throttles that can be built twice, and an environment that records events.

use std::collections::VecDeque;

use redial_core::throttle::{
    CostBucket, CostBucketConfig, RetryBudget, TokenBucket, Unthrottled, WhenEmpty,
};
use redial_core::{
    Bucket, CallEnvironment, Cost, Environment, Event, Grant, Ns, Random, Withdrawal,
};

/// The parameters of a throttle.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Spec {
    Free,
    Tokens { max: f64, ratio: f64 },
    Costs(CostBucketConfig),
    Budget { reserve: f64, ratio: f64 },
}

impl Spec {
    /// A full throttle.
    pub(crate) fn build(&self) -> Shared {
        const VALID: &str = "the strategies make valid throttles";
        match *self {
            Spec::Free => Shared::Free(Unthrottled),
            Spec::Tokens { max, ratio } => {
                Shared::Tokens(TokenBucket::new(max, ratio).expect(VALID))
            }
            Spec::Costs(spec) => Shared::Costs(CostBucket::new(spec).expect(VALID)),
            Spec::Budget { reserve, ratio } => {
                Shared::Budget(RetryBudget::try_new(reserve, ratio).expect(VALID))
            }
        }
    }

    /// The smallest and largest number of tokens; a bucket with debt has no minimum.
    pub(crate) fn range(&self) -> (f64, f64) {
        match *self {
            Spec::Free => (0.0, 0.0),
            Spec::Tokens { max, .. } => (0.0, max),
            Spec::Budget { reserve, .. } => (0.0, reserve),
            Spec::Costs(CostBucketConfig { capacity, empty: WhenEmpty::Fail, .. }) => {
                (0.0, capacity)
            }
            Spec::Costs(CostBucketConfig { capacity, .. }) => (f64::NEG_INFINITY, capacity),
        }
    }
}

/// A throttle of any kind.
#[derive(Debug)]
pub(crate) enum Shared {
    Free(Unthrottled),
    Tokens(TokenBucket),
    Costs(CostBucket),
    Budget(RetryBudget),
}

impl Shared {
    fn bucket(&self) -> &dyn Bucket {
        match self {
            Shared::Free(free) => free,
            Shared::Tokens(tokens) => tokens,
            Shared::Costs(costs) => costs,
            Shared::Budget(budget) => budget,
        }
    }
}

impl Bucket for Shared {
    fn failed(&self) {
        self.bucket().failed();
    }
    fn withdraw(&self, cost: Cost, now: Ns) -> Grant {
        self.bucket().withdraw(cost, now)
    }
    fn refund(&self, withdrawal: Withdrawal) {
        self.bucket().refund(withdrawal);
    }
    fn succeeded(&self, withdrawal: Option<Withdrawal>) {
        self.bucket().succeeded(withdrawal);
    }
    fn tokens(&self, now: Ns) -> Option<f64> {
        self.bucket().tokens(now)
    }
}

/// The environment of one call: seeded draws, recorded events and counts of all requests.
pub(crate) struct TestEnvironment<'t> {
    env: CallEnvironment<&'t Shared, Random>,
    range: (f64, f64),
    /// All events, in order.
    pub(crate) call_log: Vec<(Ns, Event)>,
    /// Requests to the throttle; one for each recorded answer.
    pub(crate) asked: VecDeque<Cost>,
    /// The last request to the throttle.
    pub(crate) last_cost: Option<Cost>,
    /// How many failures were counted.
    pub(crate) failed: u32,
    /// How many retries and hedges started.
    pub(crate) started: u32,
    /// Which answers of the throttle are deferred; after the end of the list none is.
    later: VecDeque<bool>,
}

impl<'t> TestEnvironment<'t> {
    /// An environment whose throttle answers at once.
    pub(crate) fn new(spec: &Spec, shared: &'t Shared, seed: u64) -> Self {
        TestEnvironment::with_later(spec, shared, seed, &[])
    }

    /// An environment whose throttle defers the answers that the list marks.
    pub(crate) fn with_later(spec: &Spec, shared: &'t Shared, seed: u64, later: &[bool]) -> Self {
        TestEnvironment {
            env: CallEnvironment::new(shared, Random::new(seed)),
            range: spec.range(),
            call_log: Vec::new(),
            asked: VecDeque::new(),
            last_cost: None,
            failed: 0,
            started: 0,
            later: later.iter().copied().collect(),
        }
    }

    /// The throttle.
    pub(crate) fn shared(&self) -> &'t Shared {
        self.env.throttle()
    }
}

impl Environment for TestEnvironment<'_> {
    fn draw(&mut self) -> f64 {
        self.env.draw()
    }

    fn failed(&mut self) {
        self.failed += 1;
        self.env.failed();
    }

    fn withdraw(&mut self, cost: Cost, now: Ns) -> Grant {
        self.asked.push_back(cost);
        self.last_cost = Some(cost);
        match self.later.pop_front() {
            Some(true) => Grant::Later,
            _ => self.env.withdraw(cost, now),
        }
    }

    fn granted(&mut self, grant: Grant) {
        self.env.granted(grant);
    }

    fn started(&mut self) {
        self.started += 1;
        self.env.started();
    }

    fn succeeded(&mut self) {
        self.env.succeeded();
    }

    fn call_failed(&mut self) {
        self.env.call_failed();
    }

    fn call_cancelled(&mut self) {
        self.env.call_cancelled();
    }

    fn call_started(&mut self) {
        self.env.call_started();
    }

    fn previous(&self) -> Option<Ns> {
        self.env.previous()
    }

    fn remember(&mut self, delay: Ns) {
        self.env.remember(delay);
    }
    fn forget(&mut self) {
        self.env.forget();
    }

    fn record(&mut self, at: Ns, event: Event) {
        let tokens = self.shared().tokens(at).unwrap_or(0.0);
        let (least, most) = self.range;
        // A cost bucket counts in integer units; a millionth of a token covers the rounding.
        let fits = least - 1e-6 <= tokens && tokens <= most;
        assert!(fits, "{tokens} tokens in a bucket of {most}");
        self.call_log.push((at, event));
    }
}
