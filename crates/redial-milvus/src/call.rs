//! The interceptor: runs calls through `redial`'s driver with the rules of the Milvus client.

use std::fmt;
use std::sync::Arc;

use redial::parts::Async;
use redial::time::Sleeper;
use redial::{Last, Policy, time::DefaultSleeper};
use redial_core::throttle::Bucket;
use redial_core::{Directive, Event, Failure, PolicyError, Stage};

use crate::error::{Error, ErrorCause, ErrorText};
use crate::log::{LogFormatter, LogLine, Logger};
use crate::options::{Options, WriteRetries, is_write};
use crate::status::{GrpcStatus, MessageValidity, classify, inner_status, invalid_message};

/// The retry interceptor: runs unary calls with the client's retry options. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Interceptor {
    policy: Policy,
    options: Options,
    invalid_codes: Arc<[i32]>,
    /// The throttle, for policies with another timeout.
    #[cfg(feature = "layer")]
    bucket: Option<SharedBucket>,
    logger: Option<Logger>,
}

/// A throttle that several interceptors may share.
#[cfg(feature = "layer")]
#[derive(Clone)]
struct SharedBucket(Arc<dyn Bucket + Send + Sync>);

#[cfg(feature = "layer")]
impl fmt::Debug for SharedBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedBucket(..)")
    }
}

impl Interceptor {
    /// An interceptor with these options.
    ///
    /// # Errors
    /// The options contradict each other.
    pub fn new(options: Options) -> Result<Self, PolicyError> {
        Ok(Interceptor {
            policy: options.policy()?,
            options,
            invalid_codes: Arc::new([]),
            #[cfg(feature = "layer")]
            bucket: None,
            logger: None,
        })
    }

    /// The codes of a status inside a response message that make it invalid and therefore retried; none
    /// by default. [`RATE_LIMIT`](crate::RATE_LIMIT) is a useful one.
    #[must_use]
    pub fn invalid_codes(mut self, codes: impl Into<Arc<[i32]>>) -> Self {
        self.invalid_codes = codes.into();
        self
    }

    /// Adds a throttle: a retry budget, or a bucket that several interceptors share.
    #[must_use]
    pub fn sharing(mut self, bucket: Arc<dyn Bucket + Send + Sync>) -> Self {
        #[cfg(feature = "layer")]
        {
            self.bucket = Some(SharedBucket(bucket.clone()));
        }
        self.policy = self.policy.sharing(bucket);
        self
    }

    /// Receives the log lines of all calls, which are of debug level. Without a receiver they become
    /// `tracing` debug events under the target `redial::milvus`, if the feature `tracing` is on.
    #[must_use]
    pub fn log(mut self, log: impl Fn(&LogLine) + Send + Sync + 'static) -> Self {
        self.logger = Some(Logger::new(log));
        self
    }

    /// Writes the log lines of all calls to the standard error stream: successful responses in green
    /// and failed ones in red if that is a terminal.
    #[must_use]
    pub fn log_to_stderr(mut self) -> Self {
        self.logger = Some(Logger::stderr());
        self
    }

    /// The same interceptor with another timeout of each attempt; `None` if the options would
    /// contradict each other.
    #[cfg(feature = "layer")]
    pub(crate) fn with_timeout(&self, timeout: std::time::Duration) -> Option<Self> {
        let options = self.options.timeout(timeout);
        let mut policy = options.policy().ok()?;
        if let Some(SharedBucket(bucket)) = &self.bucket {
            policy = policy.sharing(bucket.clone());
        }
        Some(Interceptor { policy, options, ..self.clone() })
    }

    /// The retry options.
    #[must_use]
    pub const fn options(&self) -> &Options {
        &self.options
    }

    /// The policy that the options describe.
    #[must_use]
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// A unary call of this method (`Search`, or with the service as a prefix). `operation` sends the
    /// same request in each attempt (decision M9).
    pub fn call<'a, F>(&'a self, method: &'a str, operation: F) -> InterceptedCall<'a, F> {
        let not_idempotent =
            self.options.write_retries == WriteRetries::OnlyIfNotRun && is_write(method);
        InterceptedCall {
            interceptor: self,
            method,
            operation,
            validity: AcceptAll,
            sleeper: DefaultSleeper::default(),
            log: None,
            not_idempotent,
        }
    }
}

/// Decides whether a response is a valid message.
pub trait ResponseCheck<T> {
    /// The failure of an invalid response; `None` if it is valid. `codes` is the interceptor's list of
    /// invalid codes.
    fn check(&mut self, response: &T, codes: &[i32]) -> Option<Failure>;
}

/// Accepts every response as valid.
#[derive(Clone, Copy, Debug)]
pub struct AcceptAll;

impl<T> ResponseCheck<T> for AcceptAll {
    fn check(&mut self, _response: &T, _codes: &[i32]) -> Option<Failure> {
        None
    }
}

/// Finds invalid responses with a predicate; made by [`InterceptedCall::invalid_when`].
#[derive(Clone, Copy, Debug)]
pub struct InvalidWhen<P>(P);

impl<T, P: FnMut(&T) -> bool> ResponseCheck<T> for InvalidWhen<P> {
    fn check(&mut self, response: &T, _codes: &[i32]) -> Option<Failure> {
        (self.0)(response).then(invalid_message)
    }
}

/// Finds invalid responses by the status code inside the message; made by
/// [`InterceptedCall::inner_code`].
#[derive(Clone, Copy, Debug)]
pub struct InnerCode<P>(P);

impl<T, P: FnMut(&T) -> Option<i32>> ResponseCheck<T> for InnerCode<P> {
    fn check(&mut self, response: &T, codes: &[i32]) -> Option<Failure> {
        (self.0)(response).filter(|code| codes.contains(code)).map(inner_status)
    }
}

/// A call before it is sent; [`send`](InterceptedCall::send) runs it.
#[must_use = "a call does nothing until it is sent"]
pub struct InterceptedCall<'a, F, V = AcceptAll, Z = DefaultSleeper> {
    interceptor: &'a Interceptor,
    method: &'a str,
    operation: F,
    validity: V,
    sleeper: Z,
    log: Option<LogSink<'a>>,
    not_idempotent: bool,
}

/// The receiver of log lines.
type LogSink<'a> = Box<dyn FnMut(&LogLine) + Send + 'a>;

impl<'a, F, V, Z> InterceptedCall<'a, F, V, Z> {
    /// Treats responses for which the predicate is true as invalid messages.
    pub fn invalid_when<T, P: FnMut(&T) -> bool>(
        self,
        is_invalid: P,
    ) -> InterceptedCall<'a, F, InvalidWhen<P>, Z> {
        self.with_validity(InvalidWhen(is_invalid))
    }

    /// Extracts the status code inside a response; a code of [`Interceptor::invalid_codes`] makes the
    /// response invalid.
    pub fn inner_code<T, P: FnMut(&T) -> Option<i32>>(
        self,
        code: P,
    ) -> InterceptedCall<'a, F, InnerCode<P>, Z> {
        self.with_validity(InnerCode(code))
    }

    pub(crate) fn with_validity<W>(self, validity: W) -> InterceptedCall<'a, F, W, Z> {
        let InterceptedCall {
            interceptor, method, operation, sleeper, log, not_idempotent, ..
        } = self;
        InterceptedCall { interceptor, method, operation, validity, sleeper, log, not_idempotent }
    }

    /// Uses this sleeper instead of tokio's timer.
    pub fn sleeping_on<Y>(self, sleeper: Y) -> InterceptedCall<'a, F, V, Y> {
        let InterceptedCall {
            interceptor, method, operation, validity, log, not_idempotent, ..
        } = self;
        InterceptedCall { interceptor, method, operation, validity, sleeper, log, not_idempotent }
    }

    /// Receives the log lines, which are of debug level. Without a receiver they become `tracing` debug
    /// events under the target `redial::milvus`, if the feature `tracing` is on.
    pub fn log(mut self, log: impl FnMut(&LogLine) + Send + 'a) -> Self {
        self.log = Some(Box::new(log));
        self
    }

    /// Declares the call as not idempotent, regardless of its method.
    pub fn not_idempotent(mut self) -> Self {
        self.not_idempotent = true;
        self
    }

    /// Sends the call.
    ///
    /// # Errors
    /// The status, invalid message or timeout that ended the call.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the running attempt; nothing is retried.
    pub async fn send<R, T, S>(self) -> Result<T, Error<S, T>>
    where
        F: FnMut() -> R,
        R: Future<Output = Result<T, S>>,
        S: GrpcStatus,
        V: ResponseCheck<T>,
        Z: Sleeper,
    {
        let InterceptedCall { interceptor, method, operation, mut validity, sleeper, log, .. } =
            self;
        let mut log = log.or_else(|| interceptor.logger.as_ref().map(logged)).or_else(traced);
        let mut formatter = log.as_ref().map(|_| LogFormatter::new(method, &interceptor.options));
        let mut last_attempt = None;
        let mut call = interceptor
            .policy
            .retry::<F, Async>(operation)
            .classify(|result: &Result<T, S>| {
                Some(classify_result(result, &mut validity, &interceptor.invalid_codes))
            })
            .sleeping_on(sleeper)
            .on_event(|context, event| {
                if let Event::CallEnded { attempt, .. } = event {
                    last_attempt = *attempt;
                }
                if let (Some(formatter), Some(log)) = (&mut formatter, &mut log) {
                    formatter.format(context.at, event, |line| log(&line));
                }
            });
        if self.not_idempotent {
            call = call.not_idempotent();
        }
        let error = match call.await {
            Ok(response) => return Ok(response),
            Err(error) => error,
        };
        let (last, report) = error.into_parts();
        let error_text = |message, invalid| ErrorText {
            stop_reason: report.stop_reason,
            retries: report.attempts.saturating_sub(1),
            elapsed: report.elapsed,
            message,
            invalid,
        };
        let cause = match (last_attempt, last) {
            (Some(_), Some(Last::Error(status))) => {
                let text = error_text(status.message(), false).render();
                let same = text == status.message();
                ErrorCause::Status(if same { status } else { status.with_message(text) })
            }
            (Some(_), Some(Last::Value(response))) => {
                ErrorCause::Invalid { text: error_text("", true).render(), response }
            }
            (_, Some(Last::Error(last_status))) => {
                ErrorCause::Timeout { last_status: Some(last_status) }
            }
            _ => ErrorCause::Timeout { last_status: None },
        };
        Err(Error::new(cause, report))
    }
}

/// Passes log lines to the interceptor's receiver.
fn logged<'a>(logger: &'a Logger) -> LogSink<'a> {
    Box::new(|line| logger.log(line))
}

/// Emits log lines as `tracing` events if a subscriber has this target enabled at debug level.
#[cfg(feature = "tracing")]
fn traced<'a>() -> Option<LogSink<'a>> {
    tracing::enabled!(target: "redial::milvus", tracing::Level::DEBUG).then(|| -> LogSink<'a> {
        Box::new(|line| tracing::debug!(target: "redial::milvus", "{line}"))
    })
}

#[cfg(not(feature = "tracing"))]
const fn traced<'a>() -> Option<LogSink<'a>> {
    None
}

/// Classifies the result of an attempt (decisions M3 and M7).
fn classify_result<T, S: GrpcStatus>(
    result: &Result<T, S>,
    validity: &mut impl ResponseCheck<T>,
    codes: &[i32],
) -> Directive {
    let status = match result {
        Ok(response) => {
            let invalid = validity.check(response, codes);
            return invalid.map_or(Directive::Succeed, Directive::Retry);
        }
        Err(status) => status,
    };
    if status.is_cancelled_by_caller() {
        return Directive::Fail;
    }
    match classify(status.code(), MessageValidity::Valid) {
        Directive::Retry(failure) if status.is_unsent() => {
            Directive::Retry(failure.at(Stage::Unsent))
        }
        // An error with the code OK is a bug of the client library, but still an error.
        Directive::Succeed => Directive::Fail,
        directive => directive,
    }
}

impl<F, V, Z> fmt::Debug for InterceptedCall<'_, F, V, Z> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterceptedCall")
            .field("method", &self.method)
            .field("not_idempotent", &self.not_idempotent)
            .finish_non_exhaustive()
    }
}
