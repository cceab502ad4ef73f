//! The future of a response: runs attempts in the caller's task until the call belongs to one of
//! them, or ends.
//!
//! Invariant: nothing is spawned, and nothing is decided here: outcomes go into the machine,
//! commands come out. No lock is held while an attempt is cancelled.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use redial::code::Code;
use redial_core::{Command, Directive, End, Judgement, Start, Why};
use redial_service_config::Pushback;
use tower_service::Service;

use crate::answer::{self, Head};
use crate::body::{ResponseBody, too_large_text};
use crate::evidence::{self, Evidence};
use crate::meter::Held;
use crate::observe::Inside;
use crate::pool::Pooled;
use crate::sizes::Sizes;
use crate::state::State;
use crate::sync::{Mutex, lock};
use crate::tape::{Failure, MayFail as _, Replay, Signal, Tape};
use crate::template::{PREVIOUS, previous};
use crate::wrap::{Bodies, Ended};
use crate::{Attempts, BoxError};

pin_project! {
    /// The future of a response.
    ///
    /// # Cancel safety
    /// Dropping it cancels every attempt (its stream is reset) and gives back what the call kept.
    pub struct ResponseFuture<S, B, W>
    where
        S: Service<Request<B>>,
    {
        // The first attempt is in here; further ones, which are rare, in boxes.
        #[pin]
        first: Option<S::Future>,
        kind: Kind<S, B, W>,
    }
}

pub(crate) enum Kind<S, B, W>
where
    S: Service<Request<B>>,
{
    /// The first attempt is all there is.
    Pass(W),
    /// It ended before an attempt was made.
    Ended(Option<Box<Finish>>, W),
    Call(Pending<S, B, W>),
}

/// A call that belongs to no attempt yet.
pub(crate) struct Pending<S, B, W>
where
    S: Service<Request<B>>,
{
    /// In a box, since it goes on in the response's body.
    state: Option<Pooled>,
    spare: Arc<Mutex<S>>,
    bodies: W,
    written: Written<B>,
    /// The attempt in the future itself.
    first: Option<Running>,
    /// Nothing can happen but the outcome of the first attempt.
    calm: bool,
    /// Whether the tape knows whose the call is.
    chosen: bool,
    /// Whether the machine knows that what the application writes can no longer be kept.
    sealed: bool,
    rare: Option<Box<Rare<S, B>>>,
}

/// What a call has whose first attempt was not enough.
struct Rare<S, B>
where
    S: Service<Request<B>>,
{
    others: Vec<Other<S, B>>,
    /// What the last attempt that failed brought.
    last: Option<Failed<S::Response>>,
    /// Why the call ends here, whatever its attempts bring.
    local: Option<Finish>,
}

impl<S, B, W> Pending<S, B, W>
where
    S: Service<Request<B>>,
{
    pub(crate) fn new(
        state: Pooled,
        spare: Arc<Mutex<S>>,
        bodies: W,
        written: Written<B>,
        first: Option<Running>,
        sealed: bool,
    ) -> Self {
        let calm = first.is_some() && !matches!(written, Written::Tape(_)) && state.is_calm();
        let state = Some(state);
        let (chosen, rare) = (false, None);
        Pending { state, spare, bodies, written, first, calm, chosen, sealed, rare }
    }

    /// What runs while this is held runs in the span of an attempt.
    fn inside(&self, attempt: u32) -> Option<Inside> {
        self.state.as_ref().map(|state| state.observer().inside_attempt(attempt))
    }

    fn rare(&mut self) -> &mut Rare<S, B> {
        let rare = || Box::new(Rare { others: Vec::new(), last: None, local: None });
        self.rare.get_or_insert_with(rare)
    }
}

/// A further attempt.
type Other<S, B> = (Running, Pin<Box<Attempt<S, <S as Service<Request<B>>>::Future, B>>>);

/// An attempt that runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Running {
    pub(crate) slot: usize,
    pub(crate) attempt: u32,
    pub(crate) number: u32,
}

impl From<Start> for Running {
    fn from(Start { slot, attempt, number }: Start) -> Self {
        Running { slot, attempt, number }
    }
}

/// What the application wrote.
pub(crate) enum Written<B> {
    /// All of it, which counts against the limits.
    Whole(Bytes, #[expect(dead_code, reason = "counts until it is dropped")] Option<Held>),
    Tape(Arc<Tape<B>>),
    /// It went to the first attempt, and there is no other.
    Gone,
}

impl<B> Written<B>
where
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<BoxError>,
{
    /// What was read of a body so far, and the body.
    pub(crate) fn tape(
        body: B,
        read: impl IntoIterator<Item = Bytes>,
        held: Held,
        sizes: Option<Sizes>,
    ) -> Self {
        let frames = read.into_iter().collect();
        Written::Tape(Arc::new(Tape::new(body, frames, held, sizes)))
    }
}

/// What an attempt that failed brought, and its number.
pub(crate) struct Failed<R> {
    number: u32,
    outcome: Brought<R>,
}

/// What an attempt that failed brought.
pub(crate) enum Brought<R> {
    /// A response, with which the call ended.
    Response(R),
    /// The head of one. Its body is gone: a stream that nobody reads would stay open.
    Head(Response<()>),
    Nothing(Finish),
}

impl<R> Brought<Response<R>> {
    fn head(response: Response<R>) -> Self {
        Brought::Head(response.map(drop))
    }
}

pin_project! {
    /// A further attempt: waits until the service is ready, then runs.
    #[project = AttemptProject]
    pub(crate) enum Attempt<S, F, B> {
        Readying { service: S, request: Option<Request<B>> },
        Running { #[pin] future: F },
    }
}

impl<S, B> Attempt<S, S::Future, B>
where
    S: Service<Request<B>>,
{
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<S::Response, S::Error>> {
        loop {
            let future = match self.as_mut().project() {
                AttemptProject::Running { future } => return future.poll(cx),
                AttemptProject::Readying { service, request } => {
                    std::task::ready!(service.poll_ready(cx))?;
                    // It is taken once: afterwards the attempt runs.
                    let Some(request) = request.take() else { return Poll::Pending };
                    service.call(request)
                }
            };
            self.set(Attempt::Running { future });
        }
    }
}

impl<S, B, W> ResponseFuture<S, B, W>
where
    S: Service<Request<B>>,
{
    pub(crate) fn new(first: Option<S::Future>, kind: Kind<S, B, W>) -> Self {
        ResponseFuture { first, kind }
    }
}

type Answer<R> = Result<Response<ResponseBody<R>>, BoxError>;

impl<S, B, R, W> Future for ResponseFuture<S, B, W>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<BoxError>,
    R: Body<Data = Bytes>,
    R::Error: Into<BoxError>,
    W: Bodies<B>,
{
    type Output = Answer<R>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer<R>> {
        let mut this = self.project();
        match this.kind {
            Kind::Pass(bodies) => {
                let Some(first) = this.first.as_mut().as_pin_mut() else { return Poll::Pending };
                match std::task::ready!(first.poll(cx)) {
                    Ok(response) => Poll::Ready(Ok(response.map(ResponseBody::pass))),
                    // Also without retries a status is ours, not tonic's.
                    Err(error) => {
                        let error = error.into();
                        let (evidence, code) = evidence::of(&*error);
                        Poll::Ready(Finish::of_connection(error, evidence, code, 1).hand_on(bodies))
                    }
                }
            }
            Kind::Call(call) => call.poll(this.first, cx),
            Kind::Ended(finish, bodies) => match finish.take() {
                Some(finish) => Poll::Ready(finish.hand_on(bodies)),
                None => Poll::Pending,
            },
        }
    }
}

/// How a call ended without a response.
pub(crate) enum Finish {
    /// With a status that was made here.
    Ended(Ended),
    /// With an error that is not of a connection: the application knows what it means.
    Error(BoxError),
}

impl Finish {
    /// With the error of an attempt's connection, and what it means.
    fn of_connection(error: BoxError, evidence: Evidence, code: Code, number: u32) -> Self {
        if evidence == Evidence::None && code == Code::Unknown {
            Finish::Error(error)
        } else {
            Finish::Ended(Ended::because(code, error, number))
        }
    }

    fn hand_on<B, R>(self, bodies: &impl Bodies<B>) -> Answer<R> {
        match self {
            Finish::Ended(ended) => Ok(bodies.ended(ended)?.map(|()| ResponseBody::none())),
            Finish::Error(error) => Err(error),
        }
    }
}

impl<S, B, R, W> Pending<S, B, W>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<BoxError>,
    R: Body<Data = Bytes>,
    R::Error: Into<BoxError>,
    W: Bodies<B>,
{
    fn poll(
        &mut self,
        mut first: Pin<&mut Option<S::Future>>,
        cx: &mut Context<'_>,
    ) -> Poll<Answer<R>> {
        if self.calm {
            let Some(future) = first.as_mut().as_pin_mut() else { return Poll::Pending };
            let polled = {
                let _inside = self.inside(self.first.map_or(0, |running| running.attempt));
                future.poll(cx)
            };
            let result = std::task::ready!(polled).map_err(Into::into);
            self.calm = false;
            if let Some(running) = self.first
                && let Some(response) = self.outcome(running, result, first.as_mut())
            {
                return Poll::Ready(Ok(response));
            }
        }
        loop {
            if let Some(end) = self.obey(first.as_mut()) {
                return Poll::Ready(self.finish(end));
            }
            // Outcomes first, the earlier attempt's before the later one's (P4).
            match self.poll_attempts(first.as_mut(), cx) {
                Poll::Ready(Some(response)) => return Poll::Ready(Ok(response)),
                Poll::Ready(None) => continue,
                Poll::Pending => {}
            }
            if self.heed_tape(cx) {
                continue;
            }
            let Some(state) = &mut self.state else { return Poll::Pending };
            std::task::ready!(state.poll_due(cx));
        }
    }

    /// Does what the machine says, until it says nothing more, or that the call has ended.
    fn obey(&mut self, mut first: Pin<&mut Option<S::Future>>) -> Option<End> {
        while let Some(command) = self.state.as_mut()?.command() {
            match command {
                Command::Cancel(slot) => self.drop_attempt(slot, first.as_mut()),
                Command::Start(start) => self.start(start.into()),
                Command::End(end) => return Some(end),
                // No policy of gRPC asks anybody, and its throttle answers at once.
                Command::Ask(_) | Command::Await(_) => {
                    debug_assert!(false, "nobody to ask");
                }
            }
        }
        self.tell_tape();
        None
    }

    fn start(&mut self, running: Running) {
        let body = match &self.written {
            Written::Whole(bytes, _) => Replay::whole(bytes.clone()),
            Written::Tape(tape) => tape.open(running.attempt),
            // Only plans that make one attempt leave the body alone.
            Written::Gone => {
                debug_assert!(false, "a second attempt without a body");
                Replay::whole(Bytes::new())
            }
        };
        let sent = self.state.as_ref().map(|state| state.observer().sent(running.attempt));
        let body = self.bodies.wrap(body.counted(sent.unwrap_or_default()));
        let request = self.state.as_ref().and_then(|state| state.request(running.number, body));
        debug_assert!(request.is_some(), "a start after the end");
        let service = lock(&self.spare).clone();
        let attempt = Box::pin(Attempt::Readying { service, request });
        self.rare().others.push((running, attempt));
    }

    /// The attempt in this slot runs no more.
    fn drop_attempt(&mut self, slot: usize, mut first: Pin<&mut Option<S::Future>>) {
        let in_slot = |running: &Running| running.slot == slot;
        let running = match self.first.take_if(|running| in_slot(running)) {
            Some(running) => {
                first.set(None);
                running
            }
            None => {
                let Some(rare) = &mut self.rare else { return };
                let place = rare.others.iter().position(|(running, _)| in_slot(running));
                let Some(place) = place else { return };
                rare.others.swap_remove(place).0
            }
        };
        // Its body may still be in the hands of a connection, and must not take what comes next.
        if let Written::Tape(tape) = &self.written {
            tape.close(running.attempt);
        }
    }

    /// Once the call belongs to an attempt, nothing is kept for others.
    fn tell_tape(&mut self) {
        let Some(state) = &self.state else { return };
        if self.chosen || !state.is_committed() {
            return;
        }
        self.chosen = true;
        match (&self.written, state.running_after(0)) {
            (Written::Tape(tape), Some((attempt, _))) => tape.choose(attempt),
            _ => self.written = Written::Gone,
        }
    }

    /// Looks for an outcome; ready if there was one, with the response if the call belongs to it.
    fn poll_attempts(
        &mut self,
        mut first: Pin<&mut Option<S::Future>>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Response<ResponseBody<R>>>> {
        let mut before = 0;
        while let Some((attempt, slot)) =
            self.state.as_ref().and_then(|it| it.running_after(before))
        {
            before = attempt;
            let (running, polled) = {
                let _inside = self.inside(attempt);
                match &self.first {
                    Some(running) if running.slot == slot => {
                        let Some(future) = first.as_mut().as_pin_mut() else { continue };
                        (*running, future.poll(cx))
                    }
                    _ => {
                        let others = self.rare.iter_mut().flat_map(|rare| &mut rare.others);
                        let found = others.into_iter().find(|(running, _)| running.slot == slot);
                        let Some((running, future)) = found else { continue };
                        (*running, future.as_mut().poll(cx))
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
        first: Pin<&mut Option<S::Future>>,
    ) -> Option<Response<ResponseBody<R>>> {
        let slot = running.slot;
        let head = result.as_ref().ok().map(answer::head);
        if let Some(Head::Begins) = head {
            if let Some(state) = &mut self.state {
                state.committed(slot, running.number);
            }
            match &self.written {
                // The others are cancelled, and the tape knows whose it is now; what is begun goes
                // on in the response's body.
                _ if self.rare.is_some() => drop(self.obey(first)),
                Written::Tape(tape) => tape.choose(running.attempt),
                _ => self.written = Written::Gone,
            }
            let (response, mut state) = (result.ok()?, self.state.take()?);
            if let Written::Tape(tape) = &self.written {
                state.body = Some(tape.clone());
            }
            return Some(numbered(response, running.number).map(|it| ResponseBody::of(it, state)));
        }
        if let (Err(_), Written::Tape(tape)) = (&result, &self.written)
            && let Some(failure) = tape.failure()
        {
            // The connection reset the stream because of it.
            self.body_failed(failure);
            return None;
        }
        let state = self.state.as_mut()?;
        let (code, judgement, outcome) = match (result, head) {
            (Ok(response), Some(Head::Status(code, pushback))) => {
                (code, state.plan().judge(code, pushback), Brought::Response(response))
            }
            (Ok(mut response), Some(Head::Foreign(code))) => {
                answer::explain(&mut response, code);
                let judgement = state.plan().judge(code, Pushback::None);
                (code, judgement, Brought::head(response))
            }
            (Ok(response), _) => {
                (Code::Unknown, Judgement::from(Directive::Fail), Brought::Response(response))
            }
            (Err(error), _) => {
                let (evidence, code) = evidence::of(&*error);
                if evidence == Evidence::LocalTimeout && state.is_late() {
                    state.deadline_passed();
                    return None;
                }
                let judgement = judge_error(state, evidence, code);
                let finish = Finish::of_connection(error, evidence, code, running.number);
                (code, judgement, Brought::Nothing(finish))
            }
        };
        state.outcome(slot, code, judgement);
        let outcome = match outcome {
            Brought::Response(response) if state.end().is_none() => Brought::head(response),
            outcome => outcome,
        };
        self.rare().last = Some(Failed { number: running.number, outcome });
        self.drop_attempt(slot, first);
        None
    }

    /// Looks whether the application's body needs something; true if it did.
    fn heed_tape(&mut self, cx: &Context<'_>) -> bool {
        let (Written::Tape(tape), Some(state)) = (&self.written, &mut self.state) else {
            return false;
        };
        match tape.signal(cx) {
            Signal::Quiet => false,
            // The next attempt to start will be the last, and then the tape is told whose it is.
            Signal::Full(_) if self.sealed => false,
            Signal::Full(most) => {
                self.sealed = true;
                let slot = most.and_then(|most| {
                    let (attempt, slot) = state.running_after(most - 1)?;
                    (attempt == most).then_some(slot)
                });
                state.sealed(slot);
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
        let Some(state) = &mut self.state else { return };
        let attempts = state.attempts();
        match state.running_after(0) {
            // Whichever attempt it is, the call ends with it and the others are cancelled.
            Some((_, slot)) => {
                state.outcome(slot, failure.code(), Judgement::from(Directive::Fail));
            }
            None => state.cancel(failure.code()),
        }
        self.rare().local = Some(of_body(failure, attempts));
    }

    /// The call's result.
    fn finish(&mut self, end: End) -> Answer<R> {
        let attempts = self.state.as_ref().map_or(0, |state| state.attempts());
        if let Written::Tape(tape) = &self.written {
            tape.end();
        }
        self.written = Written::Gone;
        self.state = None;
        let rare = self.rare.take().map(|rare| *rare);
        let (local, last) = rare.map_or((None, None), |rare| (rare.local, rare.last));
        let finish = match (local, end.attempt, last) {
            (Some(local), ..) => local,
            (None, Some(_), Some(Failed { number, outcome })) => match outcome {
                Brought::Response(response) => {
                    return Ok(numbered(response, number).map(ResponseBody::pass));
                }
                Brought::Head(head) => {
                    return Ok(numbered(head, number).map(|()| ResponseBody::none()));
                }
                Brought::Nothing(finish) => finish,
            },
            (None, _, last) => Finish::Ended(out_of_time(end.why, attempts, last)),
        };
        finish.hand_on(&self.bodies)
    }
}

/// How an error of a connection is judged.
fn judge_error(state: &State, evidence: Evidence, code: Code) -> Judgement {
    let plan = state.plan();
    match evidence {
        Evidence::Unsent => plan.unsent(),
        Evidence::Unprocessed => plan.unprocessed(),
        Evidence::Unconnected => plan.unconnected(state.wait_for_ready),
        // The caller's own timeout is never retried (G5).
        Evidence::LocalTimeout => Judgement::from(Directive::Fail),
        Evidence::None => plan.judge(code, Pushback::None),
    }
}

/// The end of a call that no attempt's outcome ended.
fn out_of_time<R>(why: Why, attempts: u32, last: Option<Failed<Response<R>>>) -> Ended {
    debug_assert!(why == Why::Deadline, "only the deadline ends a call without an outcome");
    let made = match attempts {
        1 => "1 attempt".to_owned(),
        more => format!("{more} attempts"),
    };
    let mut text = format!("the deadline passed ({made})");
    let mut source = None;
    match last.map(|last| last.outcome) {
        Some(Brought::Head(head)) => {
            if let Head::Status(code, _) = answer::head(&head) {
                text.push_str(&format!("; the last that ended did so with {code}"));
            }
        }
        Some(Brought::Nothing(Finish::Ended(ended))) => {
            text.push_str(&format!(
                "; the last that ended did so with {}: {}",
                ended.code, ended.message
            ));
            source = ended.source;
        }
        Some(Brought::Nothing(Finish::Error(error))) => source = Some(error),
        // With a whole response the call ended.
        Some(Brought::Response(_)) | None => {}
    }
    let mut ended = Ended::new(Code::DeadlineExceeded, text, attempts);
    ended.source = source;
    ended
}

/// The end of a call whose own body failed.
pub(crate) fn of_body(failure: Failure, attempts: u32) -> Finish {
    match failure {
        Failure::TooLarge(too_large) => {
            let (code, message) = too_large_text(too_large);
            Finish::Ended(Ended::new(code, message, attempts))
        }
        Failure::Body(error) => Finish::Error(error),
    }
}

/// Tells the application how many attempts came before the one that it hears of (G30).
fn numbered<R>(mut response: Response<R>, number: u32) -> Response<R> {
    if let Some(previous) = previous(number) {
        response.headers_mut().insert(PREVIOUS, previous);
        response.extensions_mut().insert(Attempts(number));
    }
    response
}

impl<S, B, W> Drop for Pending<S, B, W>
where
    S: Service<Request<B>>,
{
    fn drop(&mut self) {
        // What other tasks still hold of the tape is empty from now on, unless the call goes on.
        if let (Written::Tape(tape), Some(_)) = (&self.written, &self.state) {
            tape.end();
        }
    }
}
