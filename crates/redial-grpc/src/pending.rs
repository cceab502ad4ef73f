//! A call that belongs to no attempt yet: runs attempts in the caller's task until it belongs to
//! one of them, or ends.
//!
//! Invariant: nothing is spawned, and nothing is decided here: outcomes go into the machine,
//! commands come out. No lock is held while an attempt is cancelled.

use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use redial_core::{Classification, Command, Directive, End};
use redial_service_config::Code;
use redial_service_config::Pushback;
use tower_service::Service;

use crate::BoxError;
use crate::answer::{self, Head, STATUS};
use crate::attempt::{Attempt, FIRST, Running};
use crate::body::ResponseBody;
use crate::evidence::{self, Evidence};
use crate::finish::{
    Answer, Brought, Failed, Finish, attempt_timed_out, failed_response, numbered, of_body,
    out_of_time,
};
use crate::pool::Pooled;
use crate::state::State;
use crate::sync::{Mutex, lock};
use crate::tape::{Failure, MayFail as _, Replay, Signal, Tape};
use crate::wrap::{ClientAdapter, Ended};

/// A call that belongs to no attempt yet. Its first attempt, if it runs, is in the future itself.
pub(crate) struct Pending<S, B, W, R>
where
    S: Service<Request<B>>,
    R: 'static,
{
    /// In a box, since it goes on in the response's body; none once it did, or the call has ended.
    call: Pooled<R>,
    spare: Arc<Mutex<S>>,
    bodies: W,
    /// What the application writes, unless that is one message, which the state's box keeps.
    tape: Option<Arc<Tape<B>>>,
    /// Whether the tape knows whose the call is.
    chosen: bool,
    /// Whether the machine knows that what the application writes can no longer be kept.
    not_replayable: bool,
    rare: Option<Box<Rare<S, B>>>,
}

/// What a call has whose first attempt was not enough.
struct Rare<S, B>
where
    S: Service<Request<B>>,
{
    others: Vec<Other<S, B>>,
    /// What the last attempt that failed brought.
    last: Option<Failed>,
    /// Why the call ends here, whatever its attempts bring.
    local: Option<Finish>,
}

/// A further attempt.
type Other<S, B> = (Running, Pin<Box<Attempt<S, <S as Service<Request<B>>>::Future, B>>>);

/// The first attempt, as long as it runs.
type First<'f, S, B> = Pin<&'f mut Option<<S as Service<Request<B>>>::Future>>;

impl<S, B, W, R> Pending<S, B, W, R>
where
    S: Service<Request<B>>,
{
    #[inline]
    pub(crate) fn new(
        call: Pooled<R>,
        spare: Arc<Mutex<S>>,
        bodies: W,
        tape: Option<Arc<Tape<B>>>,
        not_replayable: bool,
    ) -> Self {
        let (chosen, rare) = (false, None);
        Pending { call, spare, bodies, tape, chosen, not_replayable, rare }
    }

    /// Whether nothing can happen but the outcome of the first attempt.
    #[inline]
    pub(crate) fn is_first(&self) -> bool {
        self.call.is_first()
    }

    fn rare(&mut self) -> &mut Rare<S, B> {
        let rare = || Box::new(Rare { others: Vec::new(), last: None, local: None });
        self.rare.get_or_insert_with(rare)
    }
}

impl<S, B, R, W> Pending<S, B, W, R>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<BoxError>,
    R: Body<Data = Bytes> + Unpin + 'static,
    R::Error: Into<BoxError>,
    W: ClientAdapter<B>,
{
    /// The call belongs to its first attempt, beside which nothing ever happened.
    #[inline]
    pub(crate) fn begins(&mut self, response: Response<R>) -> Response<ResponseBody<R>> {
        let mut call = self.call.take();
        if let Some(state) = call.state() {
            state.committed(FIRST.slot, FIRST.number);
        }
        call.forget_message();
        response.map(|body| ResponseBody::of(body, call))
    }

    /// The first attempt brought something else than the beginning of a response.
    #[cold]
    pub(crate) fn go_on(
        &mut self,
        result: Result<Response<R>, BoxError>,
        mut first: First<'_, S, B>,
        cx: &mut Context<'_>,
    ) -> Poll<Answer<R>> {
        match self.outcome(FIRST, result, first.as_mut()) {
            Some(response) => Poll::Ready(Ok(response)),
            None => self.poll(first, cx),
        }
    }

    #[inline(never)]
    pub(crate) fn poll(
        &mut self,
        mut first: First<'_, S, B>,
        cx: &mut Context<'_>,
    ) -> Poll<Answer<R>> {
        loop {
            // Outcomes first, the earlier attempt's before the later one's (P4). What runs is polled
            // before the next attempt starts: an outcome may make that one superfluous (P6).
            let outcome = match self.poll_attempts(first.as_mut(), cx) {
                Poll::Ready(Some(response)) => return Poll::Ready(Ok(response)),
                Poll::Ready(None) => true,
                Poll::Pending => false,
            };
            match self.obey(first.as_mut()) {
                ControlFlow::Break(end) => return Poll::Ready(self.finish(end)),
                ControlFlow::Continue(started) if started || outcome => continue,
                ControlFlow::Continue(_) => {}
            }
            if self.heed_tape(cx) {
                continue;
            }
            let Some(state) = self.call.state() else { return Poll::Pending };
            std::task::ready!(state.begun().poll_due(cx));
        }
    }

    /// Carries out the machine's commands until an attempt has started (true), there are no more
    /// (false), or the call has ended.
    fn obey(&mut self, mut first: First<'_, S, B>) -> ControlFlow<End, bool> {
        let mut started = false;
        while !started
            && let Some(state) = self.call.state()
            && let Some(command) = state.begun().command()
        {
            match command {
                Command::Cancel(slot) => {
                    let cancelled = self.drop_attempt(slot, first.as_mut());
                    self.note_timeout(cancelled);
                }
                Command::Start(start) => {
                    self.start(start.into());
                    started = true;
                }
                Command::End(end) => return ControlFlow::Break(end),
                // No policy of gRPC asks anybody, and its throttle answers at once.
                Command::Ask(_) | Command::Await(_) => {
                    debug_assert!(false, "nobody to ask");
                }
            }
        }
        self.tell_tape();
        ControlFlow::Continue(started)
    }

    fn start(&mut self, running: Running) {
        let body = match &self.tape {
            Some(tape) => tape.open(running.attempt),
            None => {
                let again = self.call.message();
                // Only plans that make one attempt leave the body alone.
                debug_assert!(again.is_some(), "a second attempt without a body");
                Replay::whole(again.unwrap_or_default())
            }
        };
        let Some(state) = self.call.state() else { return };
        let body = self.bodies.wrap(body.counted(state.sent(running.attempt)));
        let request = state.request(running, body);
        debug_assert!(request.is_some(), "a start after the end");
        let service = lock(&self.spare).clone();
        let attempt = Box::pin(Attempt::Readying { service, request, waited: false });
        self.rare().others.push((running, attempt));
    }

    /// The attempt in this slot runs no more.
    fn drop_attempt(&mut self, slot: usize, mut first: First<'_, S, B>) -> Option<Running> {
        let running = if slot == FIRST.slot && first.is_some() {
            first.set(None);
            FIRST
        } else {
            let others = &mut self.rare.as_mut()?.others;
            let place = others.iter().position(|(running, _)| running.slot == slot)?;
            others.swap_remove(place).0
        };
        // Its body may still be in the hands of a connection, and must not take what comes next.
        if let Some(tape) = &self.tape {
            tape.close(running.attempt);
        }
        Some(running)
    }

    /// An attempt that was cancelled because of its own timeout is one that failed.
    fn note_timeout(&mut self, cancelled: Option<Running>) {
        if let (Some(Running { attempt, number, .. }), Some(state)) = (cancelled, self.call.state())
            && let Some(after) = state.begun().timed_out(attempt)
        {
            let outcome = Brought::Nothing(attempt_timed_out(after, number));
            self.rare().last = Some(Failed { number, outcome, is_answered: false });
        }
    }

    /// Once the call belongs to an attempt, nothing is kept for others.
    fn tell_tape(&mut self) {
        let Some(state) = self.call.state() else { return };
        if self.chosen || !state.begun().is_committed() {
            return;
        }
        self.chosen = true;
        match (&self.tape, state.begun().running_after(0)) {
            (Some(tape), Some((attempt, _))) => tape.choose(attempt),
            _ => self.call.forget_message(),
        }
    }

    /// Looks for an outcome; ready if there was one, with the response if the call belongs to it.
    fn poll_attempts(
        &mut self,
        mut first: First<'_, S, B>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Response<ResponseBody<R>>>> {
        let mut before = 0;
        while let Some(state) = self.call.state()
            && let Some((attempt, slot)) = state.begun().running_after(before)
        {
            before = attempt;
            let (running, polled) = {
                let _inside = state.inside_attempt(attempt);
                match first.as_mut().as_pin_mut() {
                    Some(future) if slot == FIRST.slot => (FIRST, future.poll(cx)),
                    _ => {
                        let others = self.rare.iter_mut().flat_map(|rare| &mut rare.others);
                        let found = others.into_iter().find(|(running, _)| running.slot == slot);
                        let Some((running, future)) = found else { continue };
                        (*running, future.as_mut().poll(cx, |request| state.stamp(slot, request)))
                    }
                }
            };
            if let Poll::Ready(result) = polled {
                return Poll::Ready(self.outcome(running, result.map_err(Into::into), first));
            }
        }
        Poll::Pending
    }

    /// Tells the machine what an attempt brought; a response if the call belongs to it now.
    fn outcome(
        &mut self,
        running: Running,
        result: Result<Response<R>, BoxError>,
        first: First<'_, S, B>,
    ) -> Option<Response<ResponseBody<R>>> {
        let slot = running.slot;
        let head = result.as_ref().ok().map(answer::head);
        // OK in headers that leave the stream open: messages may follow, and the deadline holds.
        let open = head.is_some_and(Head::is_ok)
            && result.as_ref().is_ok_and(|response| !response.body().is_end_stream());
        if open || head == Some(Head::Begins) {
            self.call.state()?.committed(slot, running.number);
            // The others are cancelled, and the tape knows whose it is now; what is begun goes on in
            // the response's body.
            let _ = self.obey(first);
            let (mut response, mut call) = (result.ok()?, self.call.take());
            if let (Some(tape), Some(state)) = (&self.tape, call.state()) {
                state.body = Some(tape.clone());
            }
            if open && let Some(state) = call.state() {
                // It goes into the trailers: a client that finds it here reads no trailers.
                response.headers_mut().remove(STATUS);
                state.unsaid_status = Code::Ok;
            }
            let response = numbered(response, running.number);
            return Some(response.map(|body| ResponseBody::of(body, call)));
        }
        if let (Err(_), Some(tape)) = (&result, &self.tape)
            && let Some(failure) = tape.failure()
        {
            // The connection reset the stream because of it.
            self.body_failed(failure);
            return None;
        }
        let state = self.call.state()?;
        let answered = result.as_ref().err().and_then(|error| evidence::answered(&**error));
        let is_answered = result.is_ok() || answered.is_some();
        let (code, classification, outcome) = match (result, head, answered) {
            (Ok(response), Some(Head::Status(code, pushback)), _) => {
                (code, state.plan().judge(code, pushback), Brought::head(response))
            }
            (Ok(mut response), Some(Head::Foreign(code, pushback)), _) => {
                answer::explain(&mut response, code);
                (code, state.plan().judge(code, pushback), Brought::head(response))
            }
            (Ok(response), ..) => {
                (Code::Unknown, Classification::from(Directive::Fail), Brought::head(response))
            }
            (Err(error), _, Some((code, pushback))) => {
                let ended = Ended::because(code, error, running.number);
                let classification = state.plan().judge(code, pushback);
                (code, classification, Brought::Nothing(Finish::Ended(ended)))
            }
            (Err(error), _, None) => {
                let (evidence, code) = evidence::of(&*error);
                // The timer of a client whose errors we do not know says nothing that we understand.
                let unknown = evidence == Evidence::None && code == Code::Unknown;
                let timer = evidence == Evidence::LocalTimeout || unknown;
                if timer && state.begun().is_time_up(slot) {
                    return None;
                }
                let classification = judge_error(state, evidence, code);
                let finish = Finish::of_connection(error, evidence, code, running.number);
                (code, classification, Brought::Nothing(finish))
            }
        };
        let message = state.logged(|| outcome.message());
        if state.begun().outcome(slot, code, message, classification) {
            self.rare().last = Some(Failed { number: running.number, outcome, is_answered });
            self.drop_attempt(slot, first);
        }
        None
    }

    /// Looks whether the application's body needs something; true if it did.
    fn heed_tape(&mut self, cx: &Context<'_>) -> bool {
        let (Some(tape), Some(state)) = (&self.tape, self.call.state()) else { return false };
        match tape.signal(cx) {
            Signal::Quiet => false,
            // The next attempt to start will be the last, and then the tape is told whose it is.
            Signal::Full(_) if self.not_replayable => false,
            Signal::Full(most) => {
                self.not_replayable = true;
                let begun = state.begun();
                let slot = most.and_then(|most| {
                    let (attempt, slot) = begun.running_after(most - 1)?;
                    (attempt == most).then_some(slot)
                });
                begun.not_replayable(slot);
                true
            }
            Signal::Failed(failure) => {
                self.body_failed(failure);
                true
            }
        }
    }

    /// The application's body failed: the call ends, and nothing is repeated.
    fn body_failed(&mut self, failure: Failure) {
        let Some(state) = self.call.state() else { return };
        let message = state.logged(|| Some(failure.text()));
        let begun = state.begun();
        let attempts = begun.attempts();
        // Whichever attempt it is, the call ends with it and the others are cancelled.
        let counts = begun.running_after(0).is_some_and(|(_, slot)| {
            begun.outcome(slot, failure.code(), message, Classification::from(Directive::Fail))
        });
        // It may have ended before, by its deadline or by an attempt's timeout.
        if counts || begun.end().is_none() {
            begun.cancel(failure.code());
            self.rare().local = Some(of_body(failure, attempts));
        }
    }

    /// The call's result.
    fn finish(&mut self, end: End) -> Answer<R> {
        let rare = self.rare.take().map(|rare| *rare);
        let (local, last) = rare.map_or((None, None), |rare| (rare.local, rare.last));
        let is_answered = local.is_none()
            && end.attempt.is_some()
            && last.as_ref().is_some_and(|last| last.is_answered);
        let (attempts, waited, report) = self.call.state().map_or((0, None, None), |state| {
            let (attempts, waited) = (state.begun().attempts(), state.begun().waited());
            (attempts, waited, state.report(end, is_answered))
        });
        if let Some(tape) = self.tape.take() {
            tape.end();
        }
        self.call.clear();
        let finish = match (local, end.attempt, last) {
            (Some(local), ..) => local,
            (None, Some(_), Some(Failed { number, outcome, .. })) => match outcome {
                Brought::Head(head) => {
                    let response = numbered(head, number).map(|()| ResponseBody::none());
                    return failed_response(response, report, &self.bodies);
                }
                Brought::Nothing(finish) => finish,
            },
            (None, _, last) => Finish::Ended(out_of_time(end.stop_reason, attempts, last, waited)),
        };
        finish.hand_on(report.map(|(report, _)| report), &self.bodies)
    }
}

/// How an error of a connection is judged.
fn judge_error(state: &State, evidence: Evidence, code: Code) -> Classification {
    let plan = state.plan();
    match evidence {
        Evidence::Unsent => plan.unsent(),
        Evidence::Unprocessed => plan.unprocessed(),
        Evidence::Unconnected => plan.unconnected(state.wait_for_ready),
        // The caller's own timeout is never retried (G5).
        Evidence::LocalTimeout => Classification::from(Directive::Fail),
        Evidence::None => plan.judge(code, Pushback::None),
    }
}

impl<S, B, W, R> Drop for Pending<S, B, W, R>
where
    S: Service<Request<B>>,
    R: 'static,
{
    fn drop(&mut self) {
        // What other tasks still hold of the tape is empty from now on, unless the call goes on.
        if let Some(tape) = &self.tape
            && self.call.is_some()
        {
            tape.end();
        }
    }
}
