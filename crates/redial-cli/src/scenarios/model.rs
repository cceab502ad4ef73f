//! A scenario as it was read: what a policy is given, and what must then happen.

use redial::{Judgement, Ns, Why};

use super::designs::Plan;

/// A file of scenarios.
#[derive(Debug)]
pub struct File {
    /// Its name.
    pub name: String,
    /// Its scenarios, in order.
    pub scenarios: Vec<Scenario>,
}

/// One scenario.
#[derive(Debug)]
pub struct Scenario {
    /// Its name, unique in its file.
    pub name: String,
    /// The line on which it begins.
    pub line: usize,
    /// The policy, in the words of its design.
    pub(super) plan: Plan,
    /// The draws, each in `[0, 1)`; the last one repeats.
    pub(super) draws: Vec<f64>,
    /// Whether the policy must not build. Then there are no calls.
    pub(super) refused: bool,
    pub(super) calls: Vec<Call>,
    /// What is left in the throttle when the last call has ended.
    pub(super) tokens: Option<f64>,
}

/// One call of a scenario. Times count from its start, in nanoseconds.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) at: Ns,
    pub(super) deadline: Option<Ns>,
    pub(super) cancel: Option<Ns>,
    pub(super) idempotent: bool,
    pub(super) attempts: Vec<Attempt>,
    pub(super) expect: Expect,
}

/// What an attempt meets.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) after: Ns,
    pub(super) outcome: Outcome,
}

/// What becomes of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Outcome {
    /// Nothing ever comes.
    Hang,
    /// It comes, has this name in expectations, and is judged like this.
    Comes { name: &'static str, judgement: Judgement },
}

/// What is expected of a call. What is absent is not compared, but for `cancels`: none, then.
#[derive(Debug, Default)]
pub(super) struct Expect {
    pub(super) starts: Option<Vec<Ns>>,
    pub(super) cancels: Vec<(u32, Ns)>,
    pub(super) end: Option<ExpectEnd>,
    pub(super) tokens: Option<f64>,
    pub(super) text: Option<String>,
    pub(super) log: Option<Vec<String>>,
}

/// How a call is expected to end; `attempt` and `error` are absent where there is none.
#[derive(Debug)]
pub(super) struct ExpectEnd {
    pub(super) at: Option<Ns>,
    pub(super) outcome: Option<String>,
    pub(super) attempt: Option<u32>,
    pub(super) why: Option<Why>,
    pub(super) error: Option<String>,
}
