//! One call: the request, its attempts, and the translation of their outcomes for the driver of `redial`.

mod attempt;
mod classify;
mod drain_limits;
mod operation;
mod start;

pub(crate) use attempt::HttpAttempt;
pub(crate) use classify::{ClassifyOutcome, Facts};
pub(crate) use drain_limits::{CallTimers, DrainLimits};
pub(crate) use operation::{HttpOperation, RequestState, attempts_max};
pub(crate) use start::CallStart;

use http::StatusCode;
use redial::parts::Output;
use redial::{Directive, Report};

use crate::response::ResponseHead;

/// A response, what it means, and the number of the attempt that returned it.
#[derive(Debug)]
pub(crate) struct Answered<T> {
    pub(crate) response: Kept<T>,
    /// Whether the body has not been read to its end, and holds a connection or a stream.
    pub(crate) is_unread: bool,
    pub(crate) attempt: u32,
    pub(crate) directive: Directive,
}

/// What is kept of a response.
#[derive(Debug)]
pub(crate) enum Kept<T> {
    Response(T),
    /// The request is sent again, and the rest of the response was not worth the wait.
    Status(StatusCode),
}

impl<T: ResponseHead> Answered<T> {
    /// Drops the response if that frees its connection.
    pub(crate) fn release(&mut self) {
        if let Kept::Response(response) = &self.response
            && self.is_unread
        {
            self.response = Kept::Status(response.status());
        }
    }

    /// The response of a success, which was not released.
    fn into_response(self) -> T {
        match self.response {
            Kept::Response(response) => response,
            Kept::Status(_) => unreachable!("only a response that is retried is released"),
        }
    }
}

/// The output of a call: the response, with the report in its extensions if there was a retry or a hedge.
#[derive(Debug)]
pub(crate) enum WithAttempts {}

impl<T: ResponseHead> Output<Answered<T>> for WithAttempts {
    type Output = T;
    const TIMED: bool = false;

    fn output(answer: Answered<T>, report: impl FnOnce() -> Report) -> T {
        let attempt = answer.attempt;
        let mut response = answer.into_response();
        if attempt > 1 {
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
        let mut response = answer.into_response();
        let report = report();
        if report.attempts > 1 {
            response.extensions_mut().insert(report);
        }
        response
    }
}
