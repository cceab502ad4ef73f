//! The service that a layer makes of a channel: what a call is before its first attempt.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use redial_core::CallParams;
use redial_service_config::Retries;
use tower_service::Service;

use crate::BoxError;
use crate::ahead::Ahead;
use crate::attempt::FIRST;
use crate::backends::UsedBackends;
use crate::begun::{Begun, Recording};
use crate::body::ResponseBody;
use crate::control::Control;
use crate::finish::of_body;
use crate::future::{Kind, ResponseFuture};
use crate::meter::Held;
use crate::methods::PlanRef;
use crate::observe::Sent;
use crate::options::CallOptions;
use crate::pending::Pending;
use crate::pool::Pooled;
use crate::report::{CallReports, PolicyKind};
use crate::shared::Shared;
use crate::sizes::Sizes;
use crate::state::{Begin, State};
use crate::sync::{Mutex, lock};
use crate::tape::{Replay, Tape};
use crate::template::{PREVIOUS, Said, Template};
use crate::timeout::{self, TIMEOUT};
use crate::wrap::{ClientAdapter, Tonic};

/// When a call began that has waited for its config since then: an extension of its request, whose
/// `grpc-timeout` is what remains.
#[derive(Clone, Copy, Debug)]
pub struct CallBegan(pub tokio::time::Instant);

/// A channel with retry and hedging around it.
#[derive(Debug)]
pub struct RetryService<S, W = Tonic> {
    inner: S,
    /// Further attempts are made on clones of this one; a call that needs none clones nothing.
    spare: Arc<Mutex<S>>,
    shared: Arc<Shared>,
    bodies: W,
}

impl<S: Clone, W: Clone> Clone for RetryService<S, W> {
    fn clone(&self) -> Self {
        RetryService {
            inner: self.inner.clone(),
            spare: self.spare.clone(),
            shared: self.shared.clone(),
            bodies: self.bodies.clone(),
        }
    }
}

impl<S, W> RetryService<S, W> {
    pub(crate) fn new(inner: S, shared: Arc<Shared>, bodies: W) -> Self
    where
        S: Clone,
    {
        RetryService { spare: Arc::new(Mutex::new(inner.clone())), inner, shared, bodies }
    }

    /// The channel below.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// The timeout that the config in force has for a method.
    #[must_use]
    pub fn config_timeout(&self, path: &str, retries: Retries) -> Option<Duration> {
        let method = PlanRef::new(self.shared.method(path), retries);
        method.plan().policy().rules().deadline
    }

    /// What was made ready and is not called: it may keep a place until it is called or dropped.
    fn give_up_readiness(&mut self)
    where
        S: Clone,
    {
        self.inner = lock(&self.spare).clone();
    }

    /// What can be changed and read while calls run.
    #[must_use]
    pub fn control(&self) -> Control {
        Control::new(self.shared.clone())
    }
}

impl<S, B, R, W> Service<Request<B>> for RetryService<S, W>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<BoxError>,
    R: Body<Data = Bytes> + Unpin + 'static,
    R::Error: Into<BoxError>,
    W: ClientAdapter<B>,
{
    type Response = Response<ResponseBody<R>>;
    type Error = BoxError;
    type Future = ResponseFuture<S, B, W, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, mut request: Request<B>) -> ResponseFuture<S, B, W, R> {
        let options = match request.extensions().get::<CallOptions>() {
            None => CallOptions::default(),
            Some(_) => request.extensions_mut().remove().unwrap_or_default(),
        };
        let retries = self.shared.retries(options.retries, request.extensions());
        if retries == Retries::Off
            && options.call_log.is_none()
            && options.attempt_timeout.is_none()
            && !self.shared.has_terms()
            && !self.shared.observing.is_listened_to()
            && Said::is_nothing(request.headers())
        {
            let bodies = self.bodies.clone();
            return ResponseFuture::new(Some(self.inner.call(request)), Kind::Pass(bodies));
        }
        self.begin(request, retries, options)
    }
}

impl<S, W> RetryService<S, W> {
    /// Begins a call that somebody watches.
    // Apart, so that one that nobody watches is handed on as it is without us.
    #[inline(never)]
    fn begin<B, R>(
        &mut self,
        mut request: Request<B>,
        retries: Retries,
        CallOptions { wait_for_ready, call_log, attempt_timeout, .. }: CallOptions,
    ) -> ResponseFuture<S, B, W, R>
    where
        S: Service<Request<B>, Response = Response<R>> + Clone,
        S::Error: Into<BoxError>,
        B: Body<Data = Bytes> + Unpin + Send + 'static,
        B::Error: Into<BoxError>,
        R: 'static,
        W: ClientAdapter<B>,
    {
        let began = request.extensions_mut().remove::<CallBegan>().map(|CallBegan(at)| at);
        let said = Said::of(request.headers());
        let Said { deadline, previous, .. } = said;
        // What the request says is what remains of its deadline.
        let remaining = deadline;
        let waited = began.map_or(Duration::ZERO, |began| began.elapsed());
        let deadline = remaining.map(|remaining| remaining.saturating_add(waited));
        let usual = said.is_usual();
        if previous {
            // What the application set under this name would be taken for ours (G30).
            request.headers_mut().remove(PREVIOUS);
        }
        let method = PlanRef::new(self.shared.method(request.uri().path()), retries);
        let method = match attempt_timeout {
            Some(timeout) => method.with_attempt_timeout(timeout),
            None => method,
        };
        let observer = self.shared.observing.call(&method, request.uri().path());
        let template = Template::of(&request, usual, method.usual_head());
        // With retries disabled there is one attempt, so there is no backend to exclude.
        let distinct = self.shared.distinct && retries != Retries::Off;
        let used = distinct.then(|| UsedBackends::of(request.extensions()));
        if let Some(used) = &used {
            request.extensions_mut().insert(used.for_attempt(FIRST.attempt));
        }
        let reports = self.shared.reports != CallReports::Off;
        let began = began.map(|began| self.shared.clock.moment(began));
        let recording = Recording { call_log, observer, used, reports, began };
        let plan = method.plan();
        // The first attempt carries the config's deadline, or its own timeout, if that is smaller.
        let rules = plan.policy().rules();
        let of_config = rules.deadline.map(|deadline| deadline.saturating_sub(waited));
        let shortest = [of_config, rules.attempt_timeout].into_iter().flatten().min();
        if let Some(shortest) = shortest.filter(|it| remaining.is_none_or(|own| *it < own)) {
            request.headers_mut().insert(TIMEOUT, timeout::format(shortest));
        }
        let wait_for_ready = wait_for_ready.unwrap_or(plan.waits_for_ready());
        // In gRPC the policy is the declaration that a call may run twice (P8).
        let idempotent = matches!(method.policy_kind(), PolicyKind::Retry | PolicyKind::Hedging);
        let keeps = retries != Retries::Off;
        let mut sizes = method.request_max().map(Sizes::new);
        // At its deadline a call lets go of its body, which a connection would go on reading.
        let bounded = deadline.is_some() || shortest.is_some();
        let ahead = if keeps || recording.observer.counts_bytes() || sizes.is_some() || bounded {
            match Ahead::read(request.body_mut(), &mut sizes) {
                Ok(ahead) => Some(ahead),
                Err(failure) => {
                    self.give_up_readiness();
                    let (params, clock) = (
                        CallParams { deadline, idempotent, ..CallParams::default() },
                        self.shared.clock,
                    );
                    Begun::unstarted(method, params, recording, clock, failure.code());
                    let finish = Some(Box::new(of_body(failure, 0)));
                    return ResponseFuture::new(None, Kind::Ended(finish, self.bodies.clone()));
                }
            }
        } else {
            None
        };
        let limit = self.shared.client.per_rpc_buffer_limit_in_bytes;
        let mut held = Held::new(self.shared.meter.clone(), limit);
        let sealed = ahead.as_ref().is_some_and(|ahead| !held.add(ahead.len() as u64));
        let mut state = State::begin(Begin {
            method,
            shared: self.shared.clone(),
            template,
            params: CallParams {
                deadline,
                idempotent,
                not_replayable: keeps && sealed,
                ..CallParams::default()
            },
            wait_for_ready,
            recording,
            writes: matches!(ahead, Some(Ahead::Part(_))),
        });
        let starts = state.starts();
        let sent = if starts { state.sent(FIRST.attempt) } else { Sent::default() };
        let wrap = |replay: Replay<B>| self.bodies.wrap(replay.counted(sent));
        let mut call = Pooled::new(state);
        let mut tape = None;
        match ahead {
            None => {}
            Some(Ahead::Whole(bytes)) => {
                if keeps && !sealed {
                    call.keep(&bytes, held);
                }
                *request.body_mut() = wrap(Replay::whole(bytes));
            }
            Some(Ahead::Part(frames)) => {
                let (parts, body) = request.into_parts();
                let frames = frames.into_iter().flatten().collect();
                let written = Arc::new(Tape::new(body, frames, held, sizes));
                request = Request::from_parts(parts, wrap(written.open(FIRST.attempt)));
                if !keeps {
                    // It passes, and is heard of if it fails.
                    written.choose(FIRST.attempt);
                }
                tape = Some(written);
            }
        }
        let future = if starts {
            let _inside = call.state().and_then(|state| state.inside_attempt(FIRST.attempt));
            Some(self.inner.call(request))
        } else {
            self.give_up_readiness();
            None
        };
        let (spare, bodies) = (self.spare.clone(), self.bodies.clone());
        ResponseFuture::new(future, Kind::Call(Pending::new(call, spare, bodies, tape, sealed)))
    }
}
