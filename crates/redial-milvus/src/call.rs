//! Calls through the interceptor: this crate's own driver, with Milvus's rules.

use std::fmt;
use std::sync::Arc;

use redial::parts::Async;
use redial::{Last, Policy, Sleeper, time::DefaultSleeper};
use redial_core::throttle::Bucket;
use redial_core::{Directive, Event, Failure, PolicyError, Stage};

use crate::error::{Error, ErrorCause, ErrorText};
use crate::log::{LogFormatter, LogLine};
use crate::options::{Options, WriteRetries, is_write};
use crate::status::{GrpcStatus, MessageValidity, classify, inner_status, invalid_message};

/// Runs calls with the client's options; cheap to clone.
#[derive(Clone, Debug)]
pub struct Interceptor {
    policy: Policy,
    options: Options,
    invalid_codes: Arc<[i32]>,
}

impl Interceptor {
    /// What runs calls with these options.
    ///
    /// # Errors
    /// The options contradict each other.
    pub fn new(options: Options) -> Result<Self, PolicyError> {
        Ok(Interceptor { policy: options.policy()?, options, invalid_codes: Arc::new([]) })
    }

    /// Which codes of a status inside a message make it invalid, so that it is asked for again; none
    /// by default. [`RATE_LIMIT`](crate::RATE_LIMIT) is one that you may want.
    #[must_use]
    pub fn invalid_codes(mut self, codes: impl Into<Arc<[i32]>>) -> Self {
        self.invalid_codes = codes.into();
        self
    }

    /// The same, with a throttle: a budget, or one that is shared.
    #[must_use]
    pub fn sharing(mut self, bucket: Arc<dyn Bucket + Send + Sync>) -> Self {
        self.policy = self.policy.sharing(bucket);
        self
    }

    /// Its options.
    #[must_use]
    pub const fn options(&self) -> &Options {
        &self.options
    }

    /// Its policy.
    #[must_use]
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// A unary call of this method (`Search`, or with its service before it). The operation sends
    /// the same request each time (decision M9).
    pub fn call<'a, F>(&'a self, method: &'a str, operation: F) -> InterceptedCall<'a, F> {
        let must_not_run_twice =
            self.options.write_retries == WriteRetries::OnlyIfNotRun && is_write(method);
        InterceptedCall {
            interceptor: self,
            method,
            operation,
            validity: AcceptAll,
            sleeper: DefaultSleeper::default(),
            log: None,
            must_not_run_twice,
        }
    }
}

/// Says whether an answer is a valid message.
pub trait ResponseCheck<T> {
    /// What is wrong with the answer; `codes` is the interceptor's list.
    fn check(&mut self, response: &T, codes: &[i32]) -> Option<Failure>;
}

/// Every answer is valid.
#[derive(Clone, Copy, Debug)]
pub struct AcceptAll;

impl<T> ResponseCheck<T> for AcceptAll {
    fn check(&mut self, _answer: &T, _codes: &[i32]) -> Option<Failure> {
        None
    }
}

/// A predicate says which answers are invalid; made by [`InterceptedCall::invalid_when`].
#[derive(Clone, Copy, Debug)]
pub struct InvalidWhen<P>(P);

impl<T, P: FnMut(&T) -> bool> ResponseCheck<T> for InvalidWhen<P> {
    fn check(&mut self, response: &T, _codes: &[i32]) -> Option<Failure> {
        (self.0)(response).then(invalid_message)
    }
}

/// The code of a status inside the answer says it; made by [`InterceptedCall::inner_code`].
#[derive(Clone, Copy, Debug)]
pub struct InnerCode<P>(P);

impl<T, P: FnMut(&T) -> Option<i32>> ResponseCheck<T> for InnerCode<P> {
    fn check(&mut self, response: &T, codes: &[i32]) -> Option<Failure> {
        (self.0)(response).filter(|code| codes.contains(code)).map(inner_status)
    }
}

/// A call that is being written; [`send`](Call::send) runs it.
#[must_use = "a call does nothing until it is sent"]
pub struct InterceptedCall<'a, F, V = AcceptAll, Z = DefaultSleeper> {
    interceptor: &'a Interceptor,
    method: &'a str,
    operation: F,
    validity: V,
    sleeper: Z,
    log: Option<Log<'a>>,
    must_not_run_twice: bool,
}

/// Where the lines go.
type Log<'a> = Box<dyn FnMut(&LogLine) + Send + 'a>;

impl<'a, F, V, Z> InterceptedCall<'a, F, V, Z> {
    /// Which answers are not valid messages.
    pub fn invalid_when<T, P: FnMut(&T) -> bool>(
        self,
        is_invalid: P,
    ) -> InterceptedCall<'a, F, InvalidWhen<P>, Z> {
        self.with_validity(InvalidWhen(is_invalid))
    }

    /// Where the code of a status inside the answer is found; one of
    /// [`Interceptor::invalid_codes`] makes the answer invalid.
    pub fn inner_code<T, P: FnMut(&T) -> Option<i32>>(
        self,
        code: P,
    ) -> InterceptedCall<'a, F, InnerCode<P>, Z> {
        self.with_validity(InnerCode(code))
    }

    /// Who says which answers are valid.
    fn with_validity<W>(self, validity: W) -> InterceptedCall<'a, F, W, Z> {
        let InterceptedCall {
            interceptor,
            method,
            operation,
            sleeper,
            log,
            must_not_run_twice,
            ..
        } = self;
        InterceptedCall {
            interceptor,
            method,
            operation,
            validity,
            sleeper,
            log,
            must_not_run_twice,
        }
    }

    /// Waits on this sleeper in place of tokio.
    pub fn sleeping_on<Y>(self, sleeper: Y) -> InterceptedCall<'a, F, V, Y> {
        let InterceptedCall {
            interceptor,
            method,
            operation,
            validity,
            log,
            must_not_run_twice,
            ..
        } = self;
        InterceptedCall {
            interceptor,
            method,
            operation,
            validity,
            sleeper,
            log,
            must_not_run_twice,
        }
    }

    /// Where the log lines go, for the debug level. Without it they are debug events of `tracing`
    /// under the target `redial::milvus`, if that feature is on.
    pub fn log(mut self, log: impl FnMut(&LogLine) + Send + 'a) -> Self {
        self.log = Some(Box::new(log));
        self
    }

    /// Declares that the call must not run twice, whatever its method.
    pub fn not_idempotent(mut self) -> Self {
        self.must_not_run_twice = true;
        self
    }

    /// Runs the call.
    ///
    /// # Errors
    /// The status, invalid message or timeout that it ended with.
    ///
    /// # Cancel safety
    /// Dropping the future drops the attempt that runs; nothing is retried.
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
        let mut log = log.or_else(traced);
        let mut logger = log.as_ref().map(|_| LogFormatter::new(method, &interceptor.options));
        let mut handed_on = None;
        let mut call = interceptor
            .policy
            .retry::<F, Async>(operation)
            .classify(|result: &Result<T, S>| {
                Some(judge(result, &mut validity, &interceptor.invalid_codes))
            })
            .sleeping_on(sleeper)
            .on_event(|at, event| {
                if let Event::CallEnded { attempt, .. } = event {
                    handed_on = *attempt;
                }
                if let (Some(logger), Some(log)) = (&mut logger, &mut log) {
                    logger.event(at, event, |line| log(&line));
                }
            });
        if self.must_not_run_twice {
            call = call.not_idempotent();
        }
        let error = match call.await {
            Ok(response) => return Ok(response),
            Err(error) => error,
        };
        let (last, report) = error.into_parts();
        let ending = |message, invalid| ErrorText {
            stop_reason: report.stop_reason,
            retries: report.attempts.saturating_sub(1),
            elapsed: report.elapsed,
            message,
            invalid,
        };
        let cause = match (handed_on, last) {
            (Some(_), Some(Last::Error(status))) => {
                let text = ending(status.message(), false).render();
                let same = text == status.message();
                ErrorCause::Status(if same { status } else { status.with_message(text) })
            }
            (Some(_), Some(Last::Value(response))) => {
                ErrorCause::Invalid { text: ending("", true).render(), response }
            }
            (_, Some(Last::Error(before))) => ErrorCause::TooLate { before: Some(before) },
            _ => ErrorCause::TooLate { before: None },
        };
        Err(Error::new(cause, report))
    }
}

/// Events for those who listen to this target at the debug level.
#[cfg(feature = "tracing")]
fn traced<'a>() -> Option<Log<'a>> {
    tracing::enabled!(target: "redial::milvus", tracing::Level::DEBUG).then(|| -> Log<'a> {
        Box::new(|line| tracing::debug!(target: "redial::milvus", "{line}"))
    })
}

#[cfg(not(feature = "tracing"))]
const fn traced<'a>() -> Option<Log<'a>> {
    None
}

/// How a result is judged (decisions M3 and M7).
fn judge<T, S: GrpcStatus>(
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
        // An error whose code is OK is a client's mistake; it is still an error.
        Directive::Succeed => Directive::Fail,
        directive => directive,
    }
}

impl<F, V, Z> fmt::Debug for InterceptedCall<'_, F, V, Z> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("method", &self.method)
            .field("must_not_run_twice", &self.must_not_run_twice)
            .finish_non_exhaustive()
    }
}
