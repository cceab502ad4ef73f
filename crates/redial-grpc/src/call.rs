//! One gRPC call, from the request to its final status.
//!
//! [`RetryService::call`](crate::RetryService) starts a call (`start.rs`). Its response future polls it
//! until response headers arrive or it ends; then the response body carries it on until the final
//! status. [`Call`] is the phase of the call in both of them:
//!
//! | phase | where | what can happen |
//! | --- | --- | --- |
//! | [`Call::FirstAttempt`] | response future | the outcome of the first attempt, and nothing else |
//! | [`Call::Running`] | response future | outcomes, timers, retries, hedges: the state machine decides |
//! | [`Call::Responding`] | response body | messages, the final status, the deadline |
//! | [`Call::Panicked`] | response body | nothing: user code panicked (a future keeps that in its `Kind`) |
//! | [`Call::Ended`] | both | nothing: a call that passes through has this phase from the start |
//!
//! Most calls succeed with their first attempt and never need the state machine, so a call without a
//! timer, an observer, an open request body and a size limit for its response starts as `FirstAttempt`.
//! Anything but response headers takes it to `Running`, and any status but OK does so after the commit.
//!
//! Invariant: the state machine of `redial_core` decides every retry, hedge, delay and cancellation.
//! This module classifies outcomes (status, pushback, proof that a request was not processed, and
//! whether a timer may have caused an error) and reports them. Some facts need no decision, whatever the
//! policy: response headers commit a call, a full replay buffer commits it to the attempt to which most
//! was written, and a failed request body, a message over the size limit and an impossible state end
//! it; a first attempt without a state machine starts, commits and succeeds.
//!
//! Invariant: no task is spawned. All attempts are polled by the task of the caller.

mod attempt;
mod attempt_driver;
mod attempt_outcome;
mod buffered_message;
mod failure;
mod first_attempt;
mod initial_body;
mod pending;
mod recorder;
mod request_head;
mod responding;
mod response_body;
mod response_future;
mod retry_request;
mod running;
mod start;
mod timer;

use std::fmt;
use std::sync::Arc;

use redial_service_config::{Plan, Retries};

use crate::methods::PlanRef;
use crate::shared::Shared;
use crate::throttle::Throttle;

use first_attempt::FirstAttemptCall;
use responding::{RespondingCall, ResponseState};
use running::RunningCall;

pub(crate) use request_head::{DefaultHead, RequestHeaders};
pub(crate) use responding::request_too_large;
pub use response_body::ResponseBody;
pub use response_future::ResponseFuture;
pub(crate) use start::start;

/// A call in one of its phases. Dropping it before its end cancels it (decision P6).
pub(crate) enum Call {
    /// Fast path: only the first attempt has started, and only its outcome can change anything.
    FirstAttempt(FirstAttemptCall),
    /// The call has its state machine. Boxed, since few calls need it.
    Running(Box<RunningCall>),
    /// Response headers have arrived: the call belongs to their attempt. (A full replay buffer can commit a
    /// call before, while it is `Running`.)
    Responding(RespondingCall),
    /// User code panicked while the response was polled, so the call can only be dropped.
    Panicked(#[expect(dead_code, reason = "dropped with the body")] Box<RespondingCall>),
    /// The result is known.
    Ended,
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Call::FirstAttempt(_) => "FirstAttempt",
            Call::Running(_) => "Running",
            Call::Responding(_) => "Responding",
            Call::Panicked(_) => "Panicked",
            Call::Ended => "Ended",
        })
    }
}

impl Call {
    /// The call once the response headers of the attempt with this number have arrived. `ok_in_headers`:
    /// they have the status OK already but leave the stream open. On the fast path there is only the first
    /// attempt, whose headers have no status; this commits it.
    fn respond(self, number: u32, ok_in_headers: bool) -> Self {
        match self {
            Call::FirstAttempt(mut first) => {
                debug_assert!(number == 1 && !ok_in_headers, "only response headers commit it");
                first.committed();
                Call::Responding(RespondingCall::FirstAttempt(first))
            }
            Call::Running(mut call) => {
                let max = call.context().method.response_max();
                call.response = ResponseState::new(number, ok_in_headers, max);
                Call::Responding(RespondingCall::Running(call))
            }
            Call::Responding(_) | Call::Panicked(_) | Call::Ended => self,
        }
    }

    /// The state machine of a call before the commit; leaves the fast path if necessary.
    fn start_machine(&mut self) -> Option<&mut RunningCall> {
        if let Call::FirstAttempt(first) = self {
            *self = Call::Running(Box::new(first.start_machine()));
        }
        match self {
            Call::Running(call) => Some(call),
            _ => None,
        }
    }
}

/// What a call needs in every phase.
#[derive(Clone)]
struct CallContext {
    method: PlanRef,
    shared: Arc<Shared>,
}

impl CallContext {
    fn plan(&self) -> &Plan {
        self.method.plan()
    }

    /// The throttle of the layer; none if retries are off (G12).
    fn throttle(&self) -> Throttle {
        match self.method.retries() {
            Retries::Off => Throttle::None,
            Retries::Transparent | Retries::All => self.shared.throttle.clone(),
        }
    }
}

impl Drop for CallContext {
    fn drop(&mut self) {
        // The gauges must not include the resources of this call, so it is dropped last.
        self.shared.observers.set_gauges(&self.shared);
    }
}
