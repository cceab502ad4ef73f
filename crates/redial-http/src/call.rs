//! One call: the request, its attempts, and the translation of their outcomes for the driver of `redial`.

mod attempt;
mod classify;
mod operation;
mod start;

pub(crate) use attempt::HttpAttempt;
pub(crate) use classify::{ClassifyOutcome, Facts};
pub(crate) use operation::{HttpOperation, RequestState, attempts_max};
pub(crate) use start::CallStart;

use redial::parts::Output;
use redial::{Directive, Report};

use crate::response::ResponseHead;

/// A response, what it means, and the number of the attempt that returned it.
#[derive(Debug)]
pub(crate) struct Answered<T> {
    pub(crate) response: T,
    pub(crate) attempt: u32,
    pub(crate) directive: Directive,
}

/// The output of a call: the response, with the report in its extensions if there was a retry or a hedge.
#[derive(Debug)]
pub(crate) enum WithAttempts {}

impl<T: ResponseHead> Output<Answered<T>> for WithAttempts {
    type Output = T;
    const TIMED: bool = false;

    fn output(answer: Answered<T>, report: impl FnOnce() -> Report) -> T {
        let mut response = answer.response;
        if answer.attempt > 1 {
            response.extensions_mut().insert(report());
        }
        response
    }
}

/// The same for a hedged call: its first attempt may win after others have started.
#[derive(Debug)]
pub(crate) enum WithHedges {}

impl<T: ResponseHead> Output<Answered<T>> for WithHedges {
    type Output = T;
    const TIMED: bool = false;

    fn output(answer: Answered<T>, report: impl FnOnce() -> Report) -> T {
        let mut response = answer.response;
        let report = report();
        if report.attempts > 1 {
            response.extensions_mut().insert(report);
        }
        response
    }
}
