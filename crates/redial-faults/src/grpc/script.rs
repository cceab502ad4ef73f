//! Scripts: which answer each attempt gets.
//!
//! A stream belongs to the call that its header `x-redial-call` names, else to the one call without
//! a name. The answers of a call are used in order, then the default.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::time::Duration;

use super::action::{Action, AnswerStep, OnConnect};
use super::answer::Answer;
use super::status_number::StatusNumber;

/// The request header that names the call to which an attempt belongs.
pub const CALL_HEADER: &str = "x-redial-call";

/// How many call names are tracked; later names share one attempt counter.
pub const CALLS_MAX: usize = 100_000;

/// The answers of every call.
///
/// ```
/// use std::time::Duration;
/// use redial_faults::grpc::{Answer, OnConnect, Script, StatusNumber};
///
/// // For calls without a name: two attempts fail, the third succeeds.
/// let failure = Answer::trailers_only(StatusNumber::UNAVAILABLE);
/// let script = Script::new()
///     .attempts([failure.clone(), failure, Answer::reply("done")])
///     // For the call whose attempts carry `x-redial-call: slow`.
///     .call("slow", [Answer::hang(), Answer::reply("late").after(Duration::from_millis(5))])
///     // The first connection is closed before a request can be written.
///     .on_connect(OnConnect::CloseAfterPreface, Duration::ZERO)
///     // For every attempt that no list has an answer for.
///     .default_answer(Answer::echo());
/// # let _ = script;
/// ```
#[derive(Clone, Debug)]
pub struct Script {
    unnamed: Queue,
    /// The calls that have a name, in the order in which they were first named.
    calls: Vec<(String, Queue)>,
    call_index: HashMap<String, usize>,
    /// For names over [`CALLS_MAX`].
    overflow: Queue,
    on_connect: VecDeque<(OnConnect, Duration)>,
    in_turn: bool,
    default: Answer,
}

/// The answers of one call.
#[derive(Clone, Debug, Default)]
struct Queue {
    answers: VecDeque<Answer>,
    used: u64,
}

/// An answer that HTTP/2 does not allow, with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidAnswer(pub(super) &'static str);

impl fmt::Display for InvalidAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for InvalidAnswer {}

/// The answer for an attempt.
#[derive(Debug)]
pub(super) struct NextAnswer {
    pub(super) answer: Answer,
    pub(super) attempt: u64,
    pub(super) scripted: bool,
    /// Whether the next attempt of the call has a connect action, and so needs a new connection.
    pub(super) next_needs_connection: bool,
}

/// How to treat a new connection.
#[derive(Debug, Default)]
pub(super) struct ConnectPlan {
    pub(super) on_connect: OnConnect,
    pub(super) after: Duration,
    /// The attempt that this consumed.
    pub(super) attempt: Option<(Option<String>, u64)>,
}

impl Default for Script {
    fn default() -> Self {
        Script::new()
    }
}

impl Script {
    /// An empty script: every attempt gets the default answer, Trailers-Only with INTERNAL and the
    /// text `unscripted attempt`.
    #[must_use]
    pub fn new() -> Script {
        Script {
            unnamed: Queue::default(),
            calls: Vec::new(),
            call_index: HashMap::new(),
            overflow: Queue::default(),
            on_connect: VecDeque::new(),
            in_turn: false,
            default: Answer::trailers_only(StatusNumber::INTERNAL).text("unscripted attempt"),
        }
    }

    /// Adds answers for streams that name no call, in order of arrival.
    #[must_use]
    pub fn attempts(mut self, answers: impl IntoIterator<Item = Answer>) -> Script {
        self.add(None, answers);
        self
    }

    /// Adds answers for the streams of this call.
    #[must_use]
    pub fn call(mut self, name: &str, answers: impl IntoIterator<Item = Answer>) -> Script {
        self.add(Some(name), answers);
        self
    }

    /// Streams that name no call take the answers of the calls, one call after the other. For
    /// clients that cannot send the header, and make their calls in the order of the script.
    #[must_use]
    pub fn in_turn(mut self) -> Script {
        self.in_turn = true;
        self
    }

    /// Adds the action for one connection, applied this long after the client connects. The first
    /// connection gets the first action, and so on; later connections are served.
    #[must_use]
    pub fn on_connect(mut self, action: OnConnect, after: Duration) -> Script {
        self.on_connect.push_back((action, after));
        self
    }

    /// Sets the answer for every attempt that is not listed.
    #[must_use]
    pub fn default_answer(mut self, default: Answer) -> Script {
        self.default = default;
        self
    }

    /// Checks every answer.
    ///
    /// # Errors
    /// The steps of an answer contradict each other.
    pub fn check(&self) -> Result<(), InvalidAnswer> {
        if self.default.is_connect_action() {
            return Err(InvalidAnswer(
                "the default answer needs a stream: it cannot be a connect action (`door`)",
            ));
        }
        let calls = self.calls.iter().map(|(_, queue)| queue).chain([&self.unnamed]);
        let mut answers = calls.flat_map(|queue| &queue.answers).chain([&self.default]);
        answers.try_for_each(Answer::check)
    }

    /// Whether any connection is to be refused.
    pub(super) fn refuses(&self) -> bool {
        let refused = |answer: &Answer| {
            answer.connect_action().is_some_and(|(it, _)| it == OnConnect::Refuse)
        };
        let calls = self.calls.iter().map(|(_, queue)| queue).chain([&self.unnamed]);
        let mut answers = calls.flat_map(|queue| &queue.answers);
        answers.any(refused)
            || self.on_connect.iter().any(|(action, _)| *action == OnConnect::Refuse)
    }

    pub(super) fn add(&mut self, name: Option<&str>, answers: impl IntoIterator<Item = Answer>) {
        self.queue(name).answers.extend(answers);
    }

    fn queue(&mut self, name: Option<&str>) -> &mut Queue {
        let Some(name) = name else { return &mut self.unnamed };
        if let Some(index) = self.call_index.get(name) {
            return &mut self.calls[*index].1;
        }
        let index = self.calls.len();
        if index >= CALLS_MAX {
            return &mut self.overflow;
        }
        self.call_index.insert(name.to_owned(), index);
        self.calls.push((name.to_owned(), Queue::default()));
        &mut self.calls[index].1
    }

    /// The answer for the next attempt of this call.
    pub(super) fn next(&mut self, name: Option<&str>) -> NextAnswer {
        let turn = (name.is_none() && self.in_turn && self.unnamed.answers.is_empty())
            .then(|| self.calls.iter().position(|(_, queue)| !queue.answers.is_empty()))
            .flatten();
        let queue = match turn {
            Some(index) => &mut self.calls[index].1,
            None => self.queue(name),
        };
        queue.used += 1;
        let attempt = queue.used;
        // The attempt arrived over an existing connection: its connect action is skipped.
        let answer = queue.answers.pop_front().filter(|answer| !answer.is_connect_action());
        let next_needs_connection = queue.answers.front().is_some_and(Answer::is_connect_action);
        NextAnswer {
            scripted: answer.is_some(),
            answer: answer.unwrap_or_else(|| self.default.clone()),
            attempt,
            next_needs_connection,
        }
    }

    /// How to treat the next connection.
    pub(super) fn plan_connection(&mut self) -> ConnectPlan {
        if let Some((action, after)) = self.on_connect.pop_front() {
            return ConnectPlan { on_connect: action, after, attempt: None };
        }
        let named = self.calls.iter_mut().map(|(name, queue)| (Some(&*name), queue));
        let mut calls = std::iter::once((None, &mut self.unnamed)).chain(named);
        let plan = calls.find_map(|(name, queue)| {
            let (action, after) = queue.answers.front()?.connect_action()?;
            queue.answers.pop_front();
            queue.used += 1;
            Some(ConnectPlan {
                on_connect: action,
                after,
                attempt: Some((name.cloned(), queue.used)),
            })
        });
        plan.unwrap_or_default()
    }
}

impl Answer {
    fn connect_action(&self) -> Option<(OnConnect, Duration)> {
        match self.steps.first()? {
            AnswerStep { after, action: Action::OnConnect(action) } => Some((*action, *after)),
            _ => None,
        }
    }

    fn is_connect_action(&self) -> bool {
        self.connect_action().is_some()
    }
}

/// One list, for streams that name no call.
impl<const N: usize> From<[Answer; N]> for Script {
    fn from(answers: [Answer; N]) -> Script {
        Script::new().attempts(answers)
    }
}

/// One list, for streams that name no call.
impl From<Vec<Answer>> for Script {
    fn from(answers: Vec<Answer>) -> Script {
        Script::new().attempts(answers)
    }
}

/// One answer for the first stream that names no call.
impl From<Answer> for Script {
    fn from(answer: Answer) -> Script {
        Script::new().attempts([answer])
    }
}
