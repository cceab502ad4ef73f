//! A request of the client: its command, its options, and its attempts.

use std::any::Any;
use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use redial::strategy::Strategy;
use redial::time::{Sleeper as _, Tokio, ns};
use redial::{CallLog, Reason};
use tokio::time::{Instant, Sleep, sleep_until};

use super::bootstrap::label;
use super::breaker::Admission;
use super::cluster::{Cluster, CollectionName, Destination};
use super::documents::{Cas, Mutation};
use super::error::{InvalidRequest, RequestError};
use super::frame::{
    COLLECTION_KEY_BYTES_MAX, Extras, KEY_BYTES_MAX, RequestFrame, ResponseFrame, VALUE_BYTES_MAX,
    leb128,
};
use crate::context::RequestAttempt;
use crate::error::Error;
use crate::operation::RequestOperation;
use crate::orchestrator::RetryGate;
use crate::reason;
use crate::response::{Response, status};
use crate::started_attempt::StartedAttempt;

/// The seconds up to which the protocol takes an expiry as relative.
const RELATIVE_EXPIRY_MAX: u64 = 30 * 24 * 60 * 60;

/// What is sent for a request.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    pub(crate) operation: RequestOperation,
    pub(crate) opcode: u8,
    pub(crate) key: Bytes,
    pub(crate) value: Bytes,
    pub(crate) extras: Extras,
    /// Where the extras have the expiry.
    pub(crate) expiry_at: Option<usize>,
    pub(crate) cas: u64,
    /// 0: the active copy; others: replicas.
    pub(crate) copy: usize,
    /// A status besides success that has a result.
    pub(crate) also_accepts: Option<u16>,
    /// The key is not a document's: it is sent without the prefix of a collection.
    pub(crate) without_collection: bool,
    pub(crate) invalid: Option<InvalidRequest>,
}

impl Command {
    pub(crate) fn new(operation: RequestOperation, opcode: u8, key: impl Into<Bytes>) -> Self {
        Command {
            operation,
            opcode,
            key: key.into(),
            value: Bytes::new(),
            extras: Extras::default(),
            expiry_at: None,
            cas: 0,
            copy: 0,
            also_accepts: None,
            without_collection: false,
            invalid: None,
        }
    }

    fn set_expiry(&mut self, expiry: Duration) {
        let Some(at) = self.expiry_at else {
            self.invalid = Some(InvalidRequest::NoExpiry);
            return;
        };
        match expiry_seconds(expiry) {
            Some(seconds) => self.extras.set(at, seconds.to_be_bytes()),
            None => self.invalid = Some(InvalidRequest::ExpiryTooLong),
        }
    }

    /// Checks the limits. The prefix of the default collection is 0; a server without collections wants
    /// none.
    fn check(&self, prefix: &[u8]) -> Result<(), InvalidRequest> {
        let bytes = self.key.len();
        let max = if matches!(prefix, [] | [0]) { KEY_BYTES_MAX } else { COLLECTION_KEY_BYTES_MAX };
        match self.invalid {
            Some(invalid) => Err(invalid),
            None if self.key.is_empty() && !self.without_collection => {
                Err(InvalidRequest::KeyEmpty)
            }
            None if bytes > max => Err(InvalidRequest::KeyTooLong { bytes, max }),
            None if self.value.len() > VALUE_BYTES_MAX => {
                Err(InvalidRequest::ValueTooLong(self.value.len()))
            }
            None => Ok(()),
        }
    }
}

/// The protocol's seconds: relative up to 30 days, then since 1970; 0 is no expiry. `None`: too late.
pub(crate) fn expiry_seconds(expiry: Duration) -> Option<u32> {
    let seconds = expiry.as_secs().saturating_add(u64::from(expiry.subsec_nanos() > 0));
    if seconds <= RELATIVE_EXPIRY_MAX {
        return u32::try_from(seconds).ok();
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u32::try_from(now.as_secs().saturating_add(seconds)).ok()
}

/// A request before it is sent: `await` it. `T` is its result, `D` the user's data.
///
/// Each request has its own timeout and can have its own strategy, data for the strategy, and call log.
#[must_use = "a request does nothing until it is awaited"]
pub struct Request<'a, T, D = ()> {
    sender: Sender<'a>,
    decode: Decode<T>,
    timeout: Duration,
    strategy: Option<Arc<dyn Strategy>>,
    call_log: Option<&'a mut CallLog>,
    data: D,
}

/// Reads a result from a response; `None` if its body has the wrong shape.
type Decode<T> = fn(&ResponseFrame) -> Option<T>;

impl<'a, T> Request<'a, T> {
    pub(crate) fn new(
        cluster: &'a Arc<Cluster>,
        collection: CollectionName,
        command: Command,
        decode: Decode<T>,
    ) -> Self {
        let timeout = cluster.options.timeout;
        let sender = Sender { cluster, collection, command, retried_status: None };
        Request { sender, decode, timeout, strategy: None, call_log: None, data: () }
    }
}

impl<'a, T, D> Request<'a, T, D> {
    /// Sets the timeout of this request.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Overrides the client's strategy for this request.
    pub fn strategy(mut self, strategy: impl Strategy + 'static) -> Self {
        self.strategy = Some(Arc::new(strategy));
        self
    }

    /// Attaches data that a strategy can read ([`Request::data`](redial::strategy::Request::data)).
    pub fn data<E: Any + Send + Sync>(self, data: E) -> Request<'a, T, E> {
        let Request { sender, decode, timeout, strategy, call_log, .. } = self;
        Request { sender, decode, timeout, strategy, call_log, data }
    }

    /// Retries a status that RFC 49 does not list, because the application knows better ("retryable
    /// with application context"). A reason that
    /// [allows it](redial::Reason::allow_non_idempotent) is retried for writes, too.
    pub fn retry_status(mut self, status: u16, reason: Reason) -> Self {
        self.sender.retried_status = Some((status, reason));
        self
    }

    /// Records the events of this request in a call log.
    pub fn call_log(mut self, call_log: &'a mut CallLog) -> Self {
        self.call_log = Some(call_log);
        self
    }
}

impl<D> Request<'_, Mutation, D> {
    /// Fails with status 0x02 unless the document has this CAS.
    pub fn cas(mut self, cas: Cas) -> Self {
        self.sender.command.cas = cas.0;
        self
    }

    /// The document expires after this time, rounded up to seconds; zero: never.
    pub fn expiry(mut self, expiry: Duration) -> Self {
        self.sender.command.set_expiry(expiry);
        self
    }
}

impl<'a, T, D: Any + Send + Sync> Request<'a, T, D> {
    // Not an `async fn`: its future would have each argument twice.
    #[allow(clippy::manual_async_fn)]
    fn run(self) -> impl Future<Output = Result<T, Error<RequestError>>> + use<'a, T, D> {
        async move {
            let (sender, decode) = (&self.sender, self.decode);
            let is_sent = &AtomicBool::new(true);
            let watch = &DeadlineWatch::new(self.timeout);
            let signals;
            let mut pinned = pin!(None);
            let (mut start, mut first) = (None, None);
            let orchestrator = &sender.cluster.options.orchestrator;
            if self.call_log.is_none() && !orchestrator.observes_success() {
                signals = AttemptSignals::new(is_sent, self.timeout, Some(watch));
                pinned.set(Some(sender.send_decoded(decode, &signals)));
                let mut timer = None;
                let timer = |cx: &mut Context<'_>| watch.poll(&mut timer, signals.deadline, cx);
                match StartedAttempt::run(pinned, timer).await {
                    Ok(value) => return Ok(value),
                    Err(attempt) => {
                        let elapsed = ns(signals.started.elapsed());
                        (start, first) = (Some(Tokio.now().saturating_sub(elapsed)), Some(attempt));
                    }
                }
            }
            let mut request = orchestrator
                .request(sender.command.operation, self.timeout)
                .label(label(&sender.command.key))
                .data(self.data);
            if let Some(strategy) = self.strategy {
                request = request.sharing(strategy);
            }
            if let Some(call_log) = self.call_log {
                request = request.call_log(call_log);
            }
            let slot = &Arc::new(RetrySlot::new(sender.cluster.clone()));
            let gate: RetryGate = {
                let slot = slot.clone();
                Arc::new(move || slot.enter())
            };
            let operation = |attempt: RequestAttempt| {
                let first = first.take();
                async move {
                    if let Some(first) = first {
                        return mirrored(first.resume(), is_sent, &attempt).await;
                    }
                    slot.leave();
                    let signals = AttemptSignals::new(attempt.sent(), attempt.remaining(), None);
                    sender.send_decoded(decode, &signals).await
                }
            };
            let context = request.context();
            // In a box, so that a request that succeeds at once does not have its size.
            let result = Box::pin(request.run_call(context, start, Some(gate), operation)).await;
            result.map_err(|error| {
                if slot.is_refused() {
                    error.map_last(|last| RequestError::TooManyRequestsInRetry(Box::new(last)))
                } else {
                    error
                }
            })
        }
    }

    /// Sends the request once, without the orchestrator: for measuring what that costs.
    #[doc(hidden)]
    pub async fn send_once(self) -> Result<T, RequestError> {
        let is_sent = &AtomicBool::new(true);
        let signals = AttemptSignals::new(is_sent, Duration::MAX, None);
        self.sender.send_decoded(self.decode, &signals).await
    }
}

/// Runs an attempt that started before the request had a context, and copies to the context whether the
/// attempt was sent.
async fn mirrored<F: Future>(
    future: F,
    is_sent: &AtomicBool,
    attempt: &RequestAttempt,
) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|cx| {
        let result = future.as_mut().poll(cx);
        attempt.sent().store(is_sent.load(Ordering::Relaxed), Ordering::Relaxed);
        result
    })
    .await
}

impl<'a, T: Send + 'a, D: Any + Send + Sync> IntoFuture for Request<'a, T, D> {
    type Output = Result<T, Error<RequestError>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl<T, D> fmt::Debug for Request<'_, T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("operation", &self.sender.command.operation)
            .field("key", &self.sender.command.key)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// A place among the requests that wait for a retry. It is taken when a retry has been decided, so a
/// failure that is not retried keeps its own error.
struct RetrySlot {
    cluster: Arc<Cluster>,
    taken: AtomicBool,
    /// Whether no place was left.
    refused: AtomicBool,
}

impl RetrySlot {
    const fn new(cluster: Arc<Cluster>) -> Self {
        RetrySlot { cluster, taken: AtomicBool::new(false), refused: AtomicBool::new(false) }
    }

    /// Takes a place for a retry; `false`: none is left.
    fn enter(&self) -> bool {
        let entered = self.cluster.enter_retry();
        let flag = if entered { &self.taken } else { &self.refused };
        flag.store(true, Ordering::Relaxed);
        entered
    }

    /// Whether the request ended because no place was left.
    fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    /// Gives the place back: the retry begins, or the request ends.
    fn leave(&self) {
        if self.taken.swap(false, Ordering::Relaxed) {
            self.cluster.leave_retry();
        }
    }
}

impl Drop for RetrySlot {
    fn drop(&mut self) {
        self.leave();
    }
}

/// What an attempt and the request that runs it tell each other.
struct AttemptSignals<'a> {
    /// Whether the request was sent, for the kind of a timeout.
    is_sent: &'a AtomicBool,
    started: Instant,
    /// `None`: no clock reaches it.
    deadline: Option<Instant>,
    /// `None`: the attempt is dropped at its deadline.
    watch: Option<&'a DeadlineWatch>,
}

impl<'a> AttemptSignals<'a> {
    /// The signals of an attempt that starts now.
    fn new(is_sent: &'a AtomicBool, remaining: Duration, watch: Option<&'a DeadlineWatch>) -> Self {
        let started = Instant::now();
        AttemptSignals { is_sent, started, deadline: started.checked_add(remaining), watch }
    }
}

/// The deadline of a first attempt, which has no call with a timer yet. While the request is in flight its
/// connection watches the deadline; before that a timer does.
struct DeadlineWatch(AtomicU8);

impl DeadlineWatch {
    /// A timer watches it.
    const TIMER: u8 = 0;
    /// A timer watches it, also while the request is in flight.
    const TIMER_ONLY: u8 = 1;
    /// The connection watches it.
    const CONNECTION: u8 = 2;
    /// The connection says that it has passed.
    const PASSED: u8 = 3;

    /// A deadline that has passed already would end the request at once, before it is written (decision
    /// P10). The connection would see that later.
    fn new(timeout: Duration) -> Self {
        let state = if timeout.is_zero() { Self::TIMER_ONLY } else { Self::TIMER };
        DeadlineWatch(AtomicU8::new(state))
    }

    /// The state. Request and attempt are one task, so relaxed access is enough.
    fn state(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, state: u8) {
        self.0.store(state, Ordering::Relaxed);
    }

    /// Waits until the deadline has passed.
    fn poll(
        &self,
        timer: &mut Option<Pin<Box<Sleep>>>,
        deadline: Option<Instant>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        match (self.state(), deadline) {
            (Self::CONNECTION, _) | (_, None) => Poll::Pending,
            (Self::PASSED, _) => Poll::Ready(()),
            (_, Some(deadline)) => {
                timer.get_or_insert_with(|| Box::pin(sleep_until(deadline))).as_mut().poll(cx)
            }
        }
    }
}

/// Sends the attempts of a request.
struct Sender<'a> {
    cluster: &'a Arc<Cluster>,
    collection: CollectionName,
    command: Command,
    retried_status: Option<(u16, Reason)>,
}

impl Sender<'_> {
    async fn send_decoded<T>(
        &self,
        decode: Decode<T>,
        signals: &AttemptSignals<'_>,
    ) -> Result<T, RequestError> {
        let frame = self.send(signals).await?;
        decode(&frame).ok_or(RequestError::Protocol("its body has the wrong shape"))
    }

    async fn send(&self, signals: &AttemptSignals<'_>) -> Result<ResponseFrame, RequestError> {
        signals.is_sent.store(false, Ordering::Relaxed);
        let command = &self.command;
        let not_sent = |reason| self.cluster.not_sent(reason, &self.collection);
        let Destination { endpoint, vbucket } =
            self.cluster.route(&command.key, command.copy).map_err(not_sent)?;
        let ready = endpoint.ready().ok_or_else(|| not_sent(reason::SOCKET_NOT_AVAILABLE))?;
        let mut now = signals.started;
        if !command.without_collection && self.cluster.lacks_manifest(&self.collection, &ready) {
            // In a box, so that not every request has its size.
            Box::pin(self.cluster.fetch_missing_manifest(&self.collection, &ready)).await?;
            now = Instant::now();
        }
        let watch = signals.watch.filter(|watch| watch.state() == DeadlineWatch::TIMER);
        let (pending, mut watched) = {
            let mut prefix = Vec::new();
            if !command.without_collection
                && let Some(id) = self.cluster.collection_id(&self.collection, &ready)?
            {
                leb128(id, &mut prefix);
            }
            command.check(&prefix).map_err(RequestError::Invalid)?;
            let admission = endpoint.breaker.admit(now);
            let admission = admission.ok_or_else(|| not_sent(reason::CIRCUIT_BREAKER_OPEN))?;
            let deadline = signals.deadline;
            let watched = WatchedAdmission { admission: Some(admission), deadline };
            let frame = RequestFrame {
                opcode: command.opcode,
                vbucket,
                opaque: 0,
                cas: command.cas,
                extras: command.extras.as_slice(),
                key_prefix: &prefix,
                key: &command.key,
                value: &command.value,
            };
            let pending = ready.connection.send_until(frame, watch.and(deadline));
            let pending = pending.map_err(|error| match error {
                RequestError::NotSent(reason) => not_sent(reason),
                other => other,
            })?;
            (pending, watched)
        };
        // A request in the queue counts as sent: it can be written at any time.
        signals.is_sent.store(true, Ordering::Relaxed);
        if let Some(watch) = watch {
            watch.set(DeadlineWatch::CONNECTION);
        }
        let Some(received) = pending.receive_in_time().await else {
            if let Some(watch) = watch {
                watch.set(DeadlineWatch::PASSED);
            }
            // The request ends this attempt as it would at the end of a timer.
            return std::future::pending().await;
        };
        watched.report(&received);
        let frame = received?;
        match frame.status {
            status::SUCCESS => return Ok(frame),
            accepted if command.also_accepts == Some(accepted) => return Ok(frame),
            status::NOT_MY_VBUCKET => self.cluster.apply_json(&frame.value, &endpoint),
            status::COLLECTION_OUTDATED if !command.without_collection => {
                self.cluster.refresh_manifest();
            }
            _ => {}
        }
        let response = self.cluster.response(command.opcode, frame.status);
        let response = match frame.explanation() {
            Some(text) => response.with_context(text),
            None => response,
        };
        Err(self.error(response, frame.status))
    }

    fn error(&self, response: Response, status: u16) -> RequestError {
        match self.retried_status {
            Some((retried, reason)) if retried == status => {
                RequestError::Application { reason, response }
            }
            _ => RequestError::Response(response),
        }
    }
}

/// Reports to the circuit breaker, also if the request is dropped at its timeout.
struct WatchedAdmission {
    admission: Option<Admission>,
    deadline: Option<Instant>,
}

impl WatchedAdmission {
    fn report(&mut self, received: &Result<ResponseFrame, RequestError>) {
        let Some(admission) = self.admission.take() else { return };
        match received {
            Ok(_) | Err(RequestError::Protocol(_)) => admission.responded(),
            Err(_) => admission.failed(),
        }
    }
}

impl Drop for WatchedAdmission {
    fn drop(&mut self) {
        if let Some(admission) = self.admission.take()
            && self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
        {
            admission.failed();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_expiry_is_relative_up_to_thirty_days() {
        let days = |days: u64| Duration::from_secs(days * 24 * 60 * 60);
        assert_eq!(expiry_seconds(Duration::ZERO), Some(0));
        assert_eq!(expiry_seconds(Duration::from_millis(1)), Some(1));
        assert_eq!(expiry_seconds(days(30)), Some(2_592_000));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let absolute = u64::from(expiry_seconds(days(31)).unwrap());
        assert!((now + 31 * 86_400..now + 31 * 86_400 + 60).contains(&absolute));
        assert_eq!(expiry_seconds(days(365 * 200)), None);
        assert_eq!(expiry_seconds(Duration::MAX), None);
    }

    #[test]
    fn request_limits_are_exact() {
        let key = |bytes| Command::new(crate::operation::KV_GET, 0, vec![b'k'; bytes]);
        assert_eq!(key(KEY_BYTES_MAX).check(&[]), Ok(()));
        assert_eq!(key(KEY_BYTES_MAX).check(&[0]), Ok(()));
        let error = InvalidRequest::KeyTooLong { bytes: 251, max: 250 };
        assert_eq!(key(KEY_BYTES_MAX + 1).check(&[0]), Err(error));
        assert_eq!(key(COLLECTION_KEY_BYTES_MAX).check(&[0xd5, 0x0a]), Ok(()));
        let error = InvalidRequest::KeyTooLong { bytes: 247, max: 246 };
        assert_eq!(key(COLLECTION_KEY_BYTES_MAX + 1).check(&[8]), Err(error));
        assert_eq!(key(0).check(&[0]), Err(InvalidRequest::KeyEmpty));
        let value = |bytes| Command { value: Bytes::from(vec![0; bytes]), ..key(1) };
        assert_eq!(value(VALUE_BYTES_MAX).check(&[]), Ok(()));
        let error = value(VALUE_BYTES_MAX + 1).check(&[]).unwrap_err();
        assert_eq!(error, InvalidRequest::ValueTooLong(VALUE_BYTES_MAX + 1));
        let mut command = key(1);
        command.set_expiry(Duration::from_secs(1));
        assert_eq!(command.check(&[]), Err(InvalidRequest::NoExpiry));
    }
}
