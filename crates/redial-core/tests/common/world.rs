//! Throttles that can be made twice, and a world that keeps a diary.

use std::collections::VecDeque;

use redial_core::throttle::{Budget, Costs, CostsSpec, Empty, Free, Tokens};
use redial_core::{Bucket, Cost, Dealings, Grant, Note, Ns, Random, Taken, World};

/// The parameters of a throttle.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Spec {
    Free,
    Tokens { max: f64, ratio: f64 },
    Costs(CostsSpec),
    Budget { reserve: f64, ratio: f64 },
}

impl Spec {
    /// A full throttle.
    pub(crate) fn build(&self) -> Shared {
        const VALID: &str = "the strategies make valid throttles";
        match *self {
            Spec::Free => Shared::Free(Free),
            Spec::Tokens { max, ratio } => Shared::Tokens(Tokens::new(max, ratio).expect(VALID)),
            Spec::Costs(spec) => Shared::Costs(Costs::new(spec).expect(VALID)),
            Spec::Budget { reserve, ratio } => {
                Shared::Budget(Budget::new(reserve, ratio).expect(VALID))
            }
        }
    }

    /// The least and the most that may ever be in it; a bucket that lends has no least.
    pub(crate) fn range(&self) -> (f64, f64) {
        match *self {
            Spec::Free => (0.0, 0.0),
            Spec::Tokens { max, .. } => (0.0, max),
            Spec::Budget { reserve, .. } => (0.0, reserve),
            Spec::Costs(CostsSpec { capacity, empty: Empty::Fail, .. }) => (0.0, capacity),
            Spec::Costs(CostsSpec { capacity, .. }) => (f64::NEG_INFINITY, capacity),
        }
    }
}

/// A throttle of any kind.
#[derive(Debug)]
pub(crate) enum Shared {
    Free(Free),
    Tokens(Tokens),
    Costs(Costs),
    Budget(Budget),
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
    fn take(&self, cost: Cost, now: Ns) -> Grant {
        self.bucket().take(cost, now)
    }
    fn give_back(&self, taken: Taken) {
        self.bucket().give_back(taken);
    }
    fn succeeded(&self, taken: Option<Taken>) {
        self.bucket().succeeded(taken);
    }
    fn tokens(&self, now: Ns) -> Option<f64> {
        self.bucket().tokens(now)
    }
}

/// The world of one call: its dealings, watched, with draws from a seed and a diary.
pub(crate) struct Book<'t> {
    dealings: Dealings<&'t Shared, Random>,
    range: (f64, f64),
    /// Everything that happened, in order.
    pub(crate) diary: Vec<(Ns, Note)>,
    /// What the throttle was asked for; one for each note of a grant.
    pub(crate) asked: VecDeque<Cost>,
    /// What it was asked for last.
    pub(crate) last_cost: Option<Cost>,
    /// How many failures were counted.
    pub(crate) failed: u32,
    /// How many retries and hedges used what was taken for them.
    pub(crate) started: u32,
    /// Which of the throttle's answers come later; when the list is out, none.
    later: VecDeque<bool>,
}

impl<'t> Book<'t> {
    /// A world whose throttle answers at once.
    pub(crate) fn new(spec: &Spec, shared: &'t Shared, seed: u64) -> Self {
        Book::with_later(spec, shared, seed, &[])
    }

    /// A world whose throttle answers later where the list says so.
    pub(crate) fn with_later(spec: &Spec, shared: &'t Shared, seed: u64, later: &[bool]) -> Self {
        Book {
            dealings: Dealings::new(shared, Random::new(seed)),
            range: spec.range(),
            diary: Vec::new(),
            asked: VecDeque::new(),
            last_cost: None,
            failed: 0,
            started: 0,
            later: later.iter().copied().collect(),
        }
    }

    /// The throttle behind the dealings.
    pub(crate) fn shared(&self) -> &'t Shared {
        self.dealings.throttle()
    }
}

impl World for Book<'_> {
    fn draw(&mut self) -> f64 {
        self.dealings.draw()
    }

    fn failed(&mut self) {
        self.failed += 1;
        self.dealings.failed();
    }

    fn take(&mut self, cost: Cost, now: Ns) -> Grant {
        self.asked.push_back(cost);
        self.last_cost = Some(cost);
        match self.later.pop_front() {
            Some(true) => Grant::Later,
            _ => self.dealings.take(cost, now),
        }
    }

    fn granted(&mut self, grant: Grant) {
        self.dealings.granted(grant);
    }

    fn started(&mut self) {
        self.started += 1;
        self.dealings.started();
    }

    fn succeeded(&mut self) {
        self.dealings.succeeded();
    }

    fn call_failed(&mut self) {
        self.dealings.call_failed();
    }

    fn call_cancelled(&mut self) {
        self.dealings.call_cancelled();
    }

    fn call_started(&mut self) {
        self.dealings.call_started();
    }

    fn previous(&self) -> Option<Ns> {
        self.dealings.previous()
    }

    fn remember(&mut self, delay: Ns) {
        self.dealings.remember(delay);
    }

    fn note(&mut self, at: Ns, note: Note) {
        let tokens = self.shared().tokens(at).unwrap_or(0.0);
        let (least, most) = self.range;
        // A cost bucket counts in whole units of its own; a millionth of a token covers their rounding.
        let fits = least - 1e-6 <= tokens && tokens <= most;
        assert!(fits, "{tokens} tokens in a bucket of {most}");
        self.diary.push((at, note));
    }
}
