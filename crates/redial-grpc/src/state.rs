//! One call. It goes from the response's future into the response's body when it belongs to an
//! attempt.
//!
//! Most calls are never more than a first attempt that succeeds: such a call has no machine
//! ([`First`]), and gets it when anything else happens.
//!
//! Invariant: nothing is decided here. Every start, delay, cancel and end is the core's.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use redial_core::{
    CallParams, Classification, Command, Directive, End, FirstAttempt, Ns, StopReason,
};
use redial_service_config::Code;
use redial_service_config::{Plan, Retries};

use crate::attempt::Running;
use crate::backends::UsedBackends;
use crate::begun::{Begun, Recording};
use crate::methods::PlanRef;
use crate::observe::{Inside, Observer, Sent};
use crate::report::{CallReport, CallReports};
use crate::shared::Shared;
use crate::sizes::Sizes;
use crate::tape::MayFail;
use crate::template::Template;
use crate::throttle::Throttle;
use crate::timeout::{self, TIMEOUT};

/// What a call is begun with.
pub(crate) struct Begin {
    pub(crate) method: PlanRef,
    pub(crate) shared: Arc<Shared>,
    pub(crate) template: Template,
    pub(crate) params: CallParams,
    pub(crate) wait_for_ready: bool,
    pub(crate) recording: Recording,
    /// Whether the application may still write.
    pub(crate) writes: bool,
}

/// One call.
pub(crate) struct State {
    life: Life,
    method: PlanRef,
    shared: Arc<Shared>,
    /// What further attempts are made of; it keeps nothing once there can be none.
    template: Template,
    pub(crate) wait_for_ready: bool,
    /// The number of the attempt that the call belongs to, as the application was told.
    pub(crate) number: u32,
    /// The status of a response that ends without one in its trailers: UNKNOWN, or the OK of headers
    /// that left the stream open.
    pub(crate) unsaid_status: Code,
    /// The application's body, as long as it may still fail after the call belongs to an attempt.
    pub(crate) body: Option<Arc<dyn MayFail>>,
    /// In a box: few configs have such a limit.
    pub(crate) response_sizes: Option<Box<Sizes>>,
}

enum Life {
    /// It has no call log and no observer, and nothing has happened but the start of its first
    /// attempt.
    First {
        first: FirstAttempt,
        /// When that was; 0 if nothing needs to know.
        start: Ns,
        used: Option<UsedBackends>,
    },
    Begun(Box<Begun>),
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("number", &self.number).finish_non_exhaustive()
    }
}

impl State {
    #[inline]
    pub(crate) fn begin(begin: Begin) -> Self {
        let Begin { method, shared, template, params, wait_for_ready, recording, writes } = begin;
        let response_sizes = method.response_max().map(|max| Box::new(Sizes::new(max)));
        let observed = recording.call_log.is_some() || recording.observer.is_listened_to();
        let life = match FirstAttempt::of(&method, params) {
            Some(first) if !writes && !observed => {
                let start = match recording.began {
                    Some(began) => began,
                    None if recording.reports => shared.clock.now(),
                    None => 0,
                };
                Life::First { first, start, used: recording.used }
            }
            _ => {
                let (throttle, clock) = (throttle(&method, &shared), shared.clock);
                let begun = Begun::now(method.clone(), throttle, params, recording, clock);
                Life::Begun(Box::new(begun))
            }
        };
        State {
            life,
            method,
            shared,
            template,
            wait_for_ready,
            number: 0,
            unsaid_status: Code::Unknown,
            body: None,
            response_sizes,
        }
    }

    /// What its layer shares, if gauges are set when the call ends.
    pub(crate) fn sets_gauges(&self) -> Option<Arc<Shared>> {
        self.shared.observing.sets_gauges().then(|| self.shared.clone())
    }

    /// Whether the first attempt is to start. Otherwise the deadline has passed: the machine says
    /// that the call has ended, which is for the future to hear.
    pub(crate) fn starts(&mut self) -> bool {
        match &mut self.life {
            Life::First { .. } => true,
            Life::Begun(begun) => {
                begun.end().is_none() && matches!(begun.command(), Some(Command::Start(_)))
            }
        }
    }

    /// Whether nothing can happen but the outcome of the first attempt.
    #[inline]
    pub(crate) fn is_first(&self) -> bool {
        matches!(self.life, Life::First { .. })
    }

    /// The call with its machine, which begins now if it has not.
    pub(crate) fn begun(&mut self) -> &mut Begun {
        if let Life::First { first, start, used } = &mut self.life {
            let (throttle, clock) = (throttle(&self.method, &self.shared), self.shared.clock);
            let reports = self.shared.reports != CallReports::Off;
            let recording = Recording { used: used.take(), reports, ..Recording::default() };
            let begun = Begun::begin_late(&self.method, throttle, *first, *start, recording, clock);
            self.life = Life::Begun(Box::new(begun));
        }
        match &mut self.life {
            Life::Begun(begun) => begun,
            Life::First { .. } => unreachable!("it has just begun"),
        }
    }

    /// A message or error as logs may show it, if this call records any.
    pub(crate) fn logged(&mut self, text: impl FnOnce() -> Option<String>) -> Option<Box<str>> {
        self.begun()
            .records_messages()
            .then(text)
            .flatten()
            .and_then(|text| self.shared.message_filter.apply(&text))
    }

    /// Why the call failed, if that is reported, and where the report goes.
    pub(crate) fn report(
        &mut self,
        end: End,
        is_answered: bool,
    ) -> Option<(CallReport, CallReports)> {
        let reports = self.shared.reports;
        let reported = reports != CallReports::Off && end.stop_reason != StopReason::Succeeded;
        reported.then(|| (self.begun().report(end, is_answered), reports))
    }

    pub(crate) fn plan(&self) -> &Plan {
        self.method.plan()
    }

    /// The request of this attempt.
    pub(crate) fn request<B>(&mut self, running: Running, body: B) -> Option<Request<B>> {
        let remaining = self.begun().remaining(running.slot);
        let usual = self.method.usual_head();
        let mut request = self.template.request(usual, running.number, remaining, body)?;
        if let Some(used) = self.begun().used() {
            request.extensions_mut().insert(used.for_attempt(running.attempt));
        }
        Some(request)
    }

    /// Writes into the request of an attempt what remains by now; false if nothing does, and it is
    /// not sent (P4).
    pub(crate) fn stamp<B>(&mut self, slot: usize, request: &mut Request<B>) -> bool {
        let remaining = self.begun().remaining_now(slot);
        if let Some(remaining) = remaining {
            request.headers_mut().insert(TIMEOUT, timeout::format(remaining));
        }
        remaining != Some(Duration::ZERO)
    }

    /// The response of the attempt with this number has begun: the call belongs to it.
    #[inline]
    pub(crate) fn committed(&mut self, slot: usize, number: u32) {
        match &mut self.life {
            Life::First { first, .. } => first.committed(),
            Life::Begun(begun) => begun.committed(slot),
        }
        self.number = number;
        self.template = Template::Usual;
    }

    /// The outcome of the attempt that the call belongs to.
    #[inline]
    pub(crate) fn ended(
        &mut self,
        code: Code,
        classification: Classification,
        message: impl FnOnce() -> Option<String>,
    ) {
        match &self.life {
            Life::First { first, .. } if classification.directive == Directive::Succeed => {
                if self.method.retries() != Retries::Off {
                    first.succeeded(&self.shared.server.tokens);
                }
            }
            _ => {
                let message = self.logged(message);
                self.begun().ended(code, message, classification);
            }
        }
    }

    /// Whether the deadline has passed, which ends the call.
    #[inline]
    pub(crate) fn is_overtaken(&mut self) -> bool {
        match &mut self.life {
            Life::First { .. } => false,
            Life::Begun(begun) => begun.is_overtaken(),
        }
    }

    /// Whether the deadline ended the call.
    pub(crate) fn is_out_of_time(&self) -> bool {
        matches!(&self.life, Life::Begun(begun) if begun.is_out_of_time())
    }

    /// Counts what the attempt is sent, if somebody wants to know.
    pub(crate) fn sent(&self, attempt: u32) -> Sent {
        self.observer().map_or_else(Sent::default, |observer| observer.sent(attempt))
    }

    /// What runs while this is held runs in the call's span.
    pub(crate) fn inside(&self) -> Option<Inside> {
        self.observer().map(Observer::inside)
    }

    /// The same for the span of an attempt.
    pub(crate) fn inside_attempt(&self, attempt: u32) -> Option<Inside> {
        self.observer().map(|observer| observer.inside_attempt(attempt))
    }

    /// What is told of the call while it runs, if anything is.
    fn observer(&self) -> Option<&Observer> {
        match &self.life {
            Life::First { .. } => None,
            Life::Begun(begun) => Some(begun.observer()),
        }
    }

    /// The response's body brought this.
    pub(crate) fn received(&mut self, data: &Bytes) {
        if let Life::Begun(begun) = &mut self.life {
            begun.received(data);
        }
    }

    /// Nobody needs what the application still writes. A connection that sends it would keep the
    /// stream open, whoever dropped the response.
    pub(crate) fn abandon_body(&mut self) {
        if let Some(body) = self.body.take() {
            body.abandon();
        }
    }
}

/// The throttle of a call: its server's, or none where retries are off (G12).
fn throttle(method: &PlanRef, shared: &Shared) -> Throttle {
    Throttle((method.retries() != Retries::Off).then(|| shared.server.clone()))
}

impl Drop for State {
    #[inline]
    fn drop(&mut self) {
        // Dropped before its end: the application cancelled it (P6). What has no machine has
        // nothing to settle, and no body that anybody still writes.
        if let Life::Begun(begun) = &mut self.life
            && begun.cancel_if_running()
        {
            self.abandon_body();
        }
        let used = match &mut self.life {
            Life::First { used, .. } => used.take(),
            Life::Begun(begun) => begun.take_used(),
        };
        if let Some(used) = used {
            used.refund();
        }
    }
}
