//! Classification: the order of S8 as tables.

use std::error::Error as _;
use std::fmt;
use std::io::{self, ErrorKind};

use super::designs::Clock;
use redial::classify::Hint;
use redial::{
    Directive, Failure, FailureKind, Last, Policy, Stage, StopReason, classify::ClassifyRule, ms,
};
use redial_smithy::{
    CHAIN_MAX, ClientErrors, ErrorFault, ServiceError, classifier, io_errors, io_failure,
};

/// An SDK error.
#[derive(Debug, Default)]
struct SdkError {
    throttling: bool,
    retryable: bool,
    fault: Option<ErrorFault>,
    client: bool,
    hint: Hint,
    source: Option<io::Error>,
}

impl fmt::Display for SdkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sdk")
    }
}

impl std::error::Error for SdkError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

impl ServiceError for SdkError {
    fn is_throttling(&self) -> bool {
        self.throttling
    }
    fn is_retryable(&self) -> bool {
        self.retryable
    }
    fn fault(&self) -> Option<ErrorFault> {
        self.fault
    }
    fn is_client_error(&self) -> bool {
        self.client
    }
    fn hint(&self) -> Hint {
        self.hint
    }
}

fn reset() -> io::Error {
    ErrorKind::ConnectionReset.into()
}

/// The classification of an error without a hook.
fn kind(error: &SdkError, client_errors: ClientErrors) -> Option<FailureKind> {
    classifier().client_errors(client_errors).failure(error).map(|failure| failure.kind)
}

#[test]
fn classifier_follows_the_documented_order() {
    let all = ClientErrors::All;
    let none = SdkError::default;
    let (server, client) = (Some(ErrorFault::Server), Some(ErrorFault::Client));
    let rows = [
        // 1: throttling, regardless of other metadata
        (SdkError { throttling: true, ..none() }, Some(FailureKind::Throttling)),
        (
            SdkError { throttling: true, retryable: true, fault: server, ..none() },
            Some(FailureKind::Throttling),
        ),
        (SdkError { throttling: true, client: true, ..none() }, Some(FailureKind::Throttling)),
        (
            SdkError { throttling: true, source: Some(reset()), ..none() },
            Some(FailureKind::Throttling),
        ),
        // 2: a retryable service error, by its fault
        (SdkError { retryable: true, fault: server, ..none() }, Some(FailureKind::Server)),
        (SdkError { retryable: true, fault: client, ..none() }, Some(FailureKind::Client)),
        (
            SdkError { retryable: true, fault: server, client: true, ..none() },
            Some(FailureKind::Server),
        ),
        (SdkError { fault: server, ..none() }, None),
        (SdkError { fault: client, ..none() }, None),
        // 3: all client errors
        (SdkError { client: true, ..none() }, Some(FailureKind::Client)),
        (
            SdkError { client: true, source: Some(ErrorKind::TimedOut.into()), ..none() },
            Some(FailureKind::Client),
        ),
        // 4: transient I/O errors
        (
            SdkError { source: Some(ErrorKind::TimedOut.into()), ..none() },
            Some(FailureKind::Timeout),
        ),
        (SdkError { fault: server, source: Some(reset()), ..none() }, Some(FailureKind::Client)),
        // 6: everything else fails
        (SdkError { retryable: true, ..none() }, None),
        (none(), None),
    ];
    for (error, expected) in rows {
        assert_eq!(kind(&error, all), expected, "{error:?}");
    }
}

#[test]
fn classifier_can_retry_only_retryable_client_errors() {
    let only = ClientErrors::RetryableOnly;
    let marked = SdkError { client: true, retryable: true, ..SdkError::default() };
    assert_eq!(kind(&marked, only), Some(FailureKind::Client));
    let unmarked = SdkError { client: true, ..SdkError::default() };
    assert_eq!(kind(&unmarked, only), None);
    // An I/O error in its source chain still counts.
    let late = Some(ErrorKind::TimedOut.into());
    let unmarked = SdkError { client: true, source: late, ..SdkError::default() };
    assert_eq!(kind(&unmarked, only), Some(FailureKind::Timeout));
}

#[test]
fn classifier_sets_stage_by_error_origin() {
    let wait = Hint::After(ms(7));
    let throttled = SdkError { throttling: true, hint: wait, ..SdkError::default() };
    let expected = Failure::throttling().retry_after(ms(7));
    assert_eq!(classifier().failure(&throttled), Some(expected));
    let client = SdkError { client: true, ..SdkError::default() };
    let expected = Failure::client().at(Stage::InFlight);
    assert_eq!(classifier().failure(&client), Some(expected));
}

#[test]
fn io_errors_map_to_kind_and_stage() {
    use ErrorKind as K;
    let in_flight = Some(Failure::client().at(Stage::InFlight));
    let unsent = Some(Failure::client().at(Stage::Unsent));
    let rows = [
        (K::TimedOut, Some(Failure::timeout())),
        (K::WouldBlock, Some(Failure::timeout())),
        (K::ConnectionRefused, unsent),
        (K::AddrNotAvailable, unsent),
        (K::ConnectionReset, in_flight),
        (K::ConnectionAborted, in_flight),
        (K::BrokenPipe, in_flight),
        (K::UnexpectedEof, in_flight),
        (K::NotConnected, in_flight),
        (K::HostUnreachable, in_flight),
        (K::NetworkUnreachable, in_flight),
        (K::NetworkDown, in_flight),
        (K::Interrupted, in_flight),
        (K::NotFound, None),
        (K::PermissionDenied, None),
        (K::InvalidData, None),
        (K::Other, None),
    ];
    for (kind, expected) in rows {
        assert_eq!(io_failure(&io::Error::from(kind)), expected, "{kind:?}");
        let result: io::Result<()> = Err(kind.into());
        assert_eq!(io_errors().classify(&result), expected.map(Directive::Retry), "{kind:?}");
        assert_eq!(classifier().classify(&result), expected.map(Directive::Retry), "{kind:?}");
    }
}

/// An error with a source.
#[derive(Debug)]
struct Wrapped(Box<dyn std::error::Error + Send + Sync>);

impl fmt::Display for Wrapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("wrapped")
    }
}

impl std::error::Error for Wrapped {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.0)
    }
}

#[test]
fn io_errors_are_found_anywhere_in_source_chain() {
    let known = io_failure(&reset());
    assert!(known.is_some());
    let wrapped = Wrapped(Box::new(Wrapped(Box::new(reset()))));
    assert_eq!(io_failure(&wrapped), known);
    // `source` of an I/O error skips what it wraps.
    let inside = io::Error::other(reset());
    assert!(inside.source().is_none());
    assert_eq!(io_failure(&inside), known);
    assert_eq!(io_failure(&Wrapped(Box::new(io::Error::other(wrapped)))), known);
    assert_eq!(io_failure(&Wrapped(Box::new(io::Error::other("no idea")))), None);
}

#[test]
fn io_errors_source_chain_is_limited() {
    let chain = |wraps: usize| {
        (0..wraps).fold(Wrapped(Box::new(reset())), |inner, _| Wrapped(Box::new(inner)))
    };
    // The innermost wrapper and the I/O error count as two.
    assert!(io_failure(&chain(CHAIN_MAX - 2)).is_some());
    assert!(io_failure(&chain(CHAIN_MAX - 1)).is_none());
}

#[test]
fn classifier_hook_runs_last_and_for_errors_only() {
    let mut asked = 0;
    let retry = Some(Directive::Retry(Failure::server()));
    let mut rules = classifier().hook(|error: &io::Error| {
        asked += 1;
        (error.kind() == ErrorKind::NotFound).then_some(Directive::Retry(Failure::server()))
    });
    assert_eq!(rules.classify(&io::Result::Ok(())), None);
    assert_eq!(rules.classify(&io::Result::<()>::Err(ErrorKind::NotFound.into())), retry);
    assert_eq!(rules.classify(&io::Result::<()>::Err(ErrorKind::InvalidData.into())), None);
    let known = rules.classify(&io::Result::<()>::Err(reset()));
    assert_eq!(known, io_failure(&reset()).map(Directive::Retry));
    assert_eq!(asked, 2, "neither for a value nor for a classified error");

    let mut rules = io_errors().hook(|_: &io::Error| Some(Directive::Fail));
    assert_eq!(rules.classify(&io::Result::<()>::Err(reset())), known);
    assert_eq!(
        rules.classify(&io::Result::<()>::Err(ErrorKind::Other.into())),
        Some(Directive::Fail)
    );
}

/// Runs a call whose attempts return the values of `next`.
fn play<J: ClassifyRule<u8, io::Error>>(
    rules: J,
    mut next: impl FnMut() -> io::Result<u8>,
) -> Result<u8, redial::Error<io::Error, u8>> {
    let clock = Clock::default();
    let policy = Policy::constant(ms(1)).attempts(9).build();
    let call = policy.retry(|| std::future::ready(next())).classify(rules);
    clock.run(call.sleeping_on(clock).into_future())
}

#[test]
fn classifier_fails_unknown_errors_and_accepts_values() {
    let unknown = play(classifier(), || Err(ErrorKind::InvalidData.into()));
    let error = unknown.expect_err("nobody knows it");
    assert_eq!((error.stop_reason(), error.attempts()), (StopReason::NotRetryable, 1));
    assert_eq!(play(classifier(), || Ok(1)).ok(), Some(1));
}

#[test]
fn classifier_with_value_rule_acts_as_waiter() {
    // Before or after the classifier, which does not classify values.
    let pending = |state: &io::Result<u8>| match state {
        Ok(3) => Some(Directive::Fail),
        Ok(_) => Some(Directive::Retry(Failure::server())),
        Err(error) => (error.kind() == ErrorKind::NotFound).then_some(Directive::Succeed),
    };
    let mut count = 0;
    let counted = play(classifier().or(pending), || {
        count += 1;
        if count == 2 { Err(reset()) } else { Ok(count) }
    });
    let error = counted.expect_err("the third is not accepted");
    assert_eq!((error.stop_reason(), error.attempts()), (StopReason::NotRetryable, 3));
    assert_eq!(error.into_last_value(), Some(3), "a failure that holds the value (P11)");

    let gone = play(pending.or(classifier()), || Err(ErrorKind::NotFound.into()));
    let end = gone.expect_err("an error is the result");
    assert_eq!(
        end.stop_reason(),
        StopReason::Succeeded,
        "an error that ends it as it should (P11)"
    );
    assert!(matches!(end.into_parts().0, Some(Last::Error(_))));
}
