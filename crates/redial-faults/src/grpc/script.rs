//! Which answer an attempt gets.
//!
//! Rule: a stream belongs to the call that its header `x-redial-call` names, else to the one call
//! without a name. Each call's answers are used in order; then comes the default.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::time::Duration;

use super::act::{Act, Door, Step};
use super::answer::Answer;
use super::status_number::StatusNumber;

/// The request header that names the call to which an attempt belongs.
pub const CALL_HEADER: &str = "x-redial-call";

/// How many names of calls are told apart; those that come after share one count of attempts.
pub const CALLS_MAX: usize = 100_000;

/// The answers of every call.
///
/// ```
/// use std::time::Duration;
/// use redial_faults::grpc::{Answer, Door, Script, StatusNumber};
///
/// // For calls without a name: two attempts fail, the third succeeds.
/// let failure = Answer::trailers_only(StatusNumber::UNAVAILABLE);
/// let script = Script::new()
///     .attempts([failure.clone(), failure, Answer::reply("done")])
///     // For the call whose attempts carry `x-redial-call: slow`.
///     .call("slow", [Answer::hang(), Answer::reply("late").after(Duration::from_millis(5))])
///     // The first connection is closed before a request can be written.
///     .door(Door::ClosedAfterPreface, Duration::ZERO)
///     // For every attempt that no list has an answer for.
///     .otherwise(Answer::echo());
/// # let _ = script;
/// ```
#[derive(Clone, Debug)]
pub struct Script {
    unnamed: Queue,
    /// The calls that have a name, in the order in which they were first named.
    calls: Vec<(String, Queue)>,
    places: HashMap<String, usize>,
    /// For names beyond [`CALLS_MAX`].
    others: Queue,
    doors: VecDeque<(Door, Duration)>,
    in_turn: bool,
    default: Answer,
}

/// The answers of one call.
#[derive(Clone, Debug, Default)]
struct Queue {
    answers: VecDeque<Answer>,
    used: u64,
}

/// Why an answer cannot be played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unplayable(pub(super) &'static str);

impl fmt::Display for Unplayable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Unplayable {}

/// What an attempt got from the script.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) answer: Answer,
    pub(super) attempt: u64,
    pub(super) scripted: bool,
    /// Whether the call's next attempt is to meet a door, for which this connection has to go.
    pub(super) door_next: bool,
}

/// What a connection meets.
#[derive(Debug, Default)]
pub(super) struct Met {
    pub(super) door: Door,
    pub(super) after: Duration,
    /// The attempt that this used up.
    pub(super) attempt: Option<(Option<String>, u64)>,
}

impl Default for Script {
    fn default() -> Self {
        Script::new()
    }
}

impl Script {
    /// A script that says nothing: every attempt gets the default answer, which is
    /// Trailers-Only with INTERNAL and the text `unscripted attempt`.
    #[must_use]
    pub fn new() -> Script {
        Script {
            unnamed: Queue::default(),
            calls: Vec::new(),
            places: HashMap::new(),
            others: Queue::default(),
            doors: VecDeque::new(),
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

    /// Adds what a connection meets, that long after it was asked for. The first connection meets
    /// the first door, and so on; those that come after find it open.
    #[must_use]
    pub fn door(mut self, door: Door, after: Duration) -> Script {
        self.doors.push_back((door, after));
        self
    }

    /// What an attempt gets that no list has an answer for.
    #[must_use]
    pub fn otherwise(mut self, default: Answer) -> Script {
        self.default = default;
        self
    }

    /// Checks every answer.
    ///
    /// # Errors
    /// An answer cannot be played: its steps contradict each other.
    pub fn check(&self) -> Result<(), Unplayable> {
        if self.default.is_door() {
            return Err(Unplayable("the default answer needs a stream: it is no door"));
        }
        let calls = self.calls.iter().map(|(_, queue)| queue).chain([&self.unnamed]);
        let mut answers = calls.flat_map(|queue| &queue.answers).chain([&self.default]);
        answers.try_for_each(Answer::check)
    }

    /// Whether a connection is to be refused somewhere.
    pub(super) fn refuses(&self) -> bool {
        let refused = |answer: &Answer| answer.as_door().is_some_and(|(it, _)| it == Door::Refused);
        let calls = self.calls.iter().map(|(_, queue)| queue).chain([&self.unnamed]);
        let mut answers = calls.flat_map(|queue| &queue.answers);
        answers.any(refused) || self.doors.iter().any(|(door, _)| *door == Door::Refused)
    }

    pub(super) fn add(&mut self, name: Option<&str>, answers: impl IntoIterator<Item = Answer>) {
        self.queue(name).answers.extend(answers);
    }

    fn queue(&mut self, name: Option<&str>) -> &mut Queue {
        let Some(name) = name else { return &mut self.unnamed };
        if let Some(place) = self.places.get(name) {
            return &mut self.calls[*place].1;
        }
        let place = self.calls.len();
        if place >= CALLS_MAX {
            return &mut self.others;
        }
        self.places.insert(name.to_owned(), place);
        self.calls.push((name.to_owned(), Queue::default()));
        &mut self.calls[place].1
    }

    /// The answer for the next attempt of this call.
    pub(super) fn next(&mut self, name: Option<&str>) -> Given {
        let turn = (name.is_none() && self.in_turn && self.unnamed.answers.is_empty())
            .then(|| self.calls.iter().position(|(_, queue)| !queue.answers.is_empty()))
            .flatten();
        let queue = match turn {
            Some(place) => &mut self.calls[place].1,
            None => self.queue(name),
        };
        queue.used += 1;
        let attempt = queue.used;
        // An attempt that was to meet a door came over a connection that was open.
        let answer = queue.answers.pop_front().filter(|answer| !answer.is_door());
        let door_next = queue.answers.front().is_some_and(Answer::is_door);
        Given {
            scripted: answer.is_some(),
            answer: answer.unwrap_or_else(|| self.default.clone()),
            attempt,
            door_next,
        }
    }

    /// What the next connection meets.
    pub(super) fn meet(&mut self) -> Met {
        if let Some((door, after)) = self.doors.pop_front() {
            return Met { door, after, attempt: None };
        }
        let named = self.calls.iter_mut().map(|(name, queue)| (Some(&*name), queue));
        let mut calls = std::iter::once((None, &mut self.unnamed)).chain(named);
        let met = calls.find_map(|(name, queue)| {
            let (door, after) = queue.answers.front()?.as_door()?;
            queue.answers.pop_front();
            queue.used += 1;
            Some(Met { door, after, attempt: Some((name.cloned(), queue.used)) })
        });
        met.unwrap_or_default()
    }
}

impl Answer {
    fn as_door(&self) -> Option<(Door, Duration)> {
        match self.steps.first()? {
            Step { after, act: Act::Door(door) } => Some((*door, *after)),
            _ => None,
        }
    }

    fn is_door(&self) -> bool {
        self.as_door().is_some()
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
