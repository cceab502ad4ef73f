use std::time::Duration;

use redial::{CallLog, StopReason, ms, s};
use redial_couchbase::TimeoutKind;
use redial_couchbase::client::{CircuitBreakerState, Client};
use redial_faults::couchbase::{Answer, RequestOutcome, Script};
use tokio::time::Instant;

use crate::common::{ClientError, Lines, arrivals, options, ready, serve};

/// What the application, the server and the log see of a request.
#[derive(Debug, PartialEq)]
struct Observed {
    /// `None`: the application dropped it.
    result: Option<Result<String, String>>,
    elapsed: Duration,
    kind: Option<TimeoutKind>,
    arrivals: Vec<(u128, RequestOutcome)>,
    lines: Vec<String>,
    waiting: usize,
    breaker: CircuitBreakerState,
}

/// Makes one request, with or without a call from the start.
async fn observed(
    answers: &[Answer],
    is_write: bool,
    timeout: Duration,
    dropped_after: Duration,
    from_start: bool,
) -> Observed {
    let (origin, lines, server) = (Instant::now(), Lines::default(), serve(Script::new()));
    let client = Client::open(lines.of(options(&server).requests_in_retry_max(1)));
    client.wait_until_ready(s(1)).await.unwrap();
    let documents = client.default_collection();
    documents.upsert("a", "0").await.unwrap();
    tokio::time::sleep(ms(5)).await;
    server.push_answers(answers.iter().cloned());
    let (start, mut call_log) = (Instant::now(), CallLog::new());
    let text = |result: Result<String, ClientError>| {
        let kind = result.as_ref().err().and_then(ClientError::timeout);
        (result.map_err(|error| format!("{error} {error:?}")), kind)
    };
    let request = async {
        if is_write {
            let mut request = documents.upsert("a", "1").timeout(timeout);
            if from_start {
                request = request.call_log(&mut call_log);
            }
            text(request.await.map(|mutation| format!("{mutation:?}")))
        } else {
            let mut request = documents.get("a").timeout(timeout);
            if from_start {
                request = request.call_log(&mut call_log);
            }
            text(request.await.map(|document| format!("{document:?}")))
        }
    };
    let result = tokio::time::timeout(dropped_after, request).await.ok();
    let (result, kind) = result.map_or((None, None), |(result, kind)| (Some(result), kind));
    let elapsed = start.elapsed();
    let waiting = client.requests_in_retry();
    tokio::time::sleep(ms(5)).await;
    let breaker = client.endpoints()[0].circuit_breaker;
    let arrivals = arrivals(&server, origin, start);
    Observed { result, elapsed, kind, arrivals, lines: lines.take(), waiting, breaker }
}

#[tokio::test(start_paused = true)]
async fn first_attempt_before_call_changes_nothing_observable() {
    let status = Answer::status;
    let first = [
        Answer::serve(),
        Answer::serve().after(ms(10)),
        Answer::hang(),
        Answer::close(),
        status(0x86),
        status(0x07),
        status(0x09).after(ms(3)),
        status(0x09).after(ms(10)),
        status(0x01),
        status(0xff),
    ];
    let then = [Answer::serve(), Answer::hang(), status(0x86).after(ms(2))];
    let (mut retried, mut timed_out) = (0, 0);
    for answers in first.iter().flat_map(|first| then.iter().map(move |then| [first, then])) {
        for is_write in [false, true] {
            for (timeout, dropped_after) in
                [(ms(0), s(9)), (ms(10), s(9)), (ms(50), s(9)), (s(2), ms(7))]
            {
                let answers = answers.map(Clone::clone);
                let play =
                    |from_start| observed(&answers, is_write, timeout, dropped_after, from_start);
                let expected = play(true).await;
                let case = (&answers, is_write, timeout);
                assert_eq!(play(false).await, expected, "{case:?}");
                assert_eq!(expected.waiting, 0, "{case:?}");
                retried += u32::from(expected.arrivals.len() > 1);
                timed_out += u32::from(expected.kind.is_some());
            }
        }
    }
    assert!(retried > 40 && timed_out > 40, "{retried} and {timed_out}");
}

#[tokio::test(start_paused = true)]
async fn first_attempt_timeout_before_sending_is_unambiguous() {
    let (client, server) = ready(Script::new().scope("s", ["c"])).await;
    // The client asks for the collections before it sends the first request to one.
    server.stop_reading();
    let documents = client.collection("s", "c");
    let error = documents.upsert("a", "1").timeout(ms(20)).await.unwrap_err();
    assert_eq!(error.timeout(), Some(TimeoutKind::Unambiguous));
    assert_eq!((error.stop_reason(), error.attempts()), (StopReason::Deadline, 1));
    assert_eq!(error.elapsed(), ms(20));
    // Sent while the attempt is pending.
    server.push_answers([Answer::hang()]);
    let resumes = async {
        tokio::time::sleep(ms(5)).await;
        server.resume_reading();
    };
    let request = documents.upsert("a", "1").timeout(ms(20)).into_future();
    let error = tokio::join!(request, resumes).0.unwrap_err();
    assert_eq!((error.timeout(), error.elapsed()), (Some(TimeoutKind::Ambiguous), ms(20)));
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn first_attempt_timeouts_on_one_connection_are_exact() {
    let (client, server) = ready(Script::new()).await;
    let documents = client.default_collection();
    let timeouts = [30, 10, 50, 20, 10];
    for turn in 0..3 {
        server.push_answers([(); 5].map(|()| Answer::hang()));
        let start = Instant::now();
        let requests = timeouts.map(|timeout| {
            let documents = documents.clone();
            tokio::spawn(async move {
                let error = documents.upsert("a", "1").timeout(ms(timeout)).await.unwrap_err();
                assert_eq!(error.timeout(), Some(TimeoutKind::Ambiguous));
                (error.elapsed(), start.elapsed())
            })
        });
        for (request, timeout) in requests.into_iter().zip(timeouts) {
            assert_eq!(request.await.unwrap(), (ms(timeout), ms(timeout)), "turn {turn}");
        }
        // Between timeouts others succeed, and a slow one is not cut short.
        server.push_answers([Answer::serve().after(ms(40))]);
        documents.upsert("a", "1").timeout(ms(41)).await.unwrap();
    }
}

/// glibc's allocator keeps freed blocks of up to 1032 bytes at hand; larger ones cost some 300
/// instructions more for each request.
#[cfg(target_pointer_width = "64")]
#[tokio::test(start_paused = true)]
async fn first_attempt_future_fits_small_blocks() {
    let (client, _server) = ready(Script::new()).await;
    let documents = client.default_collection();
    let sizes = [
        size_of_val(&*documents.get("a").into_future()),
        size_of_val(&*documents.upsert("a", "1").into_future()),
    ];
    assert!(sizes.iter().all(|size| *size <= 1032), "{sizes:?}");
}
