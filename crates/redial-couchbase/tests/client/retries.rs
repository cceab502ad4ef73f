use std::sync::{Arc, Mutex};
use std::time::Duration;

use redial::strategy::{Decision, Request, Strategy};
use redial::throttle::{Bucket as _, RetryBudget};
use redial::{CallLog, StopReason, ms, s};
use redial_couchbase::client::{Client, RequestError};
use redial_couchbase::response::status;
use redial_couchbase::{
    BestEffort, Reason, RequestContext, Response, RetryLogLine, TimeoutKind, reason,
};
use redial_faults::couchbase::{Answer, AnswerAction, RequestOutcome, Script};
use tokio::time::Instant;

use crate::common::{Lines, arrivals, options, ready, serve, until};

fn statuses(codes: &[u16]) -> Vec<Answer> {
    codes.iter().map(|code| Answer::status(*code)).collect()
}

#[tokio::test(start_paused = true)]
async fn retries_best_effort_doubles_from_one_millisecond() {
    let origin = Instant::now();
    let (client, server) = ready(Script::new()).await;
    server.push_answers(statuses(&[0x86, 0x86, 0x85, 0x09]));
    let start = Instant::now();
    client.default_collection().upsert("a", "1").await.unwrap();
    let met = arrivals(&server, origin, start);
    let times: Vec<_> = met.iter().map(|(at, _)| *at).collect();
    assert_eq!(times, [0, 1, 3, 7, 15]);
}

#[tokio::test(start_paused = true)]
async fn retries_of_not_my_vbucket_follow_the_controlled_backoff() {
    let origin = Instant::now();
    let server = serve(Script::new());
    let lines = Lines::default();
    // Always-retry reasons do not ask the strategy, not even one that never retries.
    let options = lines.of(options(&server).strategy(|request: &Request<'_>| {
        if request.reason() == Some(reason::SERVICE_NOT_AVAILABLE) {
            return BestEffort::new().retry_after(request);
        }
        Decision::Decline
    }));
    let client = Client::open(options);
    client.wait_until_ready(ms(100)).await.unwrap();
    server.push_answers(statuses(&[0x07, 0x07, 0x07, 0x88]));
    let start = Instant::now();
    client.default_collection().upsert("a", "1").await.unwrap();
    let times: Vec<_> = arrivals(&server, origin, start).iter().map(|(at, _)| *at).collect();
    assert_eq!(times, [0, 1, 11, 61, 161], "1, 10, 50, 100 ms");
    let expected =
        ["KV_NOT_MY_VBUCKET", "KV_NOT_MY_VBUCKET", "KV_NOT_MY_VBUCKET", "KV_COLLECTION_OUTDATED"];
    assert_eq!(lines.take(), expected.map(|reason| format!("retry {reason}")));
}

#[tokio::test(start_paused = true)]
async fn retries_name_the_reason_of_every_listed_status() {
    for (code, reason) in [
        (0x09, reason::KV_LOCKED),
        (0x85, reason::KV_TEMPORARY_FAILURE),
        (0x86, reason::KV_TEMPORARY_FAILURE),
        (0xa2, reason::KV_SYNC_WRITE_IN_PROGRESS),
        (0xa4, reason::KV_SYNC_WRITE_RE_COMMIT_IN_PROGRESS),
        (0x7ff0, reason::KV_ERROR_MAP_RETRY_INDICATED),
    ] {
        let script = Script::new().error_map(0x7ff0, ["temp", "retry-later"]);
        let (client, server) = ready(script).await;
        server.push_answers(statuses(&[code; 3]));
        let documents = client.default_collection();
        let mut log = CallLog::default();
        documents.upsert("a", "1").call_log(&mut log).await.unwrap();
        let lines: Vec<_> = redial_couchbase::retry_log_lines(log.events())
            .iter()
            .map(|line| line.reason)
            .collect();
        assert_eq!(lines, [reason; 3]);
        // Fail fast, by the request's own strategy.
        server.push_answers(statuses(&[code]));
        let declined = documents.upsert("a", "1").strategy(|_: &Request<'_>| Decision::Decline);
        let error = declined.await.unwrap_err();
        assert_eq!((error.reason(), error.attempts()), (Some(reason), 1));
        assert_eq!(error.stop_reason(), StopReason::StrategyDeclined);
    }
}

#[tokio::test(start_paused = true)]
async fn retries_ask_the_error_map_for_unknown_statuses_only() {
    let script = Script::new().error_map(0x7ff1, ["item-only"]).error_map(0x03, ["retry-now"]);
    let (client, server) = ready(script).await;
    for code in [0x7ff1, 0x7fff, 0x03] {
        server.push_answers(statuses(&[code]));
        let error = client.default_collection().get("a").await.unwrap_err();
        assert_eq!((error.attempts(), error.reason()), (1, None), "{code:#x}");
        assert_eq!(error.stop_reason(), StopReason::NotRetryable);
    }
}

#[tokio::test(start_paused = true)]
async fn retries_ignore_the_intervals_of_the_error_map() {
    let origin = Instant::now();
    let script = Script::new().error_map(0x7ff0, ["retry-later"]).retry_interval(0x7ff0, ms(70));
    let (client, server) = ready(script).await;
    let times = async |strategy: fn(&Request<'_>) -> Decision| {
        tokio::time::sleep(ms(1)).await;
        server.push_answers(statuses(&[0x7ff0; 3]));
        let start = Instant::now();
        client.default_collection().upsert("a", "1").strategy(strategy).await.unwrap();
        arrivals(&server, origin, start).iter().map(|(at, _)| *at).collect::<Vec<_>>()
    };
    assert_eq!(times(|request| BestEffort::new().retry_after(request)).await, [0, 1, 3, 7]);
    // They are there for a strategy of the application.
    let as_the_server_wishes = |request: &Request<'_>| {
        let response = RequestContext::of(request).and_then(RequestContext::last_response);
        let Some(Response::Kv { error_map: Some(entry), .. }) = response else {
            return Decision::Decline;
        };
        entry.retry().map(|spec| spec.delay(request.retry_attempts())).into()
    };
    assert_eq!(times(as_the_server_wishes).await, [0, 70, 140, 210]);
}

#[tokio::test(start_paused = true)]
async fn retries_repeat_a_lost_read_but_not_a_lost_write() {
    let (client, server) = ready(Script::new()).await;
    let documents = client.default_collection();
    documents.upsert("n", "1").await.unwrap();
    server.push_answers([Answer::close()]);
    assert!(documents.get("n").await.is_ok(), "idempotent");
    server.push_answers([Answer::new(AnswerAction::ExecuteAndClose)]);
    let error = documents.increment("n", 1, None).await.unwrap_err();
    assert_eq!(error.reason(), Some(reason::SOCKET_CLOSED_WHILE_IN_FLIGHT));
    assert_eq!((error.stop_reason(), error.attempts()), (StopReason::NotIdempotent, 1));
    tokio::time::sleep(ms(1)).await;
    assert_eq!(documents.get("n").await.unwrap().value, "2", "it was executed once");
}

#[tokio::test(start_paused = true)]
async fn retries_repeat_a_write_that_was_never_sent() {
    let (client, server) = ready(Script::new()).await;
    // No new connection becomes ready before the bucket is there again.
    server.set_bucket_status(0x01);
    server.drop_connections();
    until(|| !client.endpoints()[0].is_connected).await;
    let mut log = CallLog::default();
    let documents = client.default_collection();
    let back = async {
        tokio::time::sleep(ms(5)).await;
        server.set_bucket_status(0x00);
    };
    let write = documents.upsert("a", "1").call_log(&mut log).into_future();
    let (written, ()) = tokio::join!(write, back);
    written.unwrap();
    let lines = redial_couchbase::retry_log_lines(log.events());
    let reasons: Vec<_> = lines.iter().map(ToString::to_string).collect();
    assert_eq!(reasons, ["retry SOCKET_NOT_AVAILABLE"; 4]);
    let delays: Vec<_> = lines.iter().filter_map(RetryLogLine::delay).collect();
    assert_eq!(delays, [1, 2, 4, 8].map(ms));
    let met: Vec<_> = server.requests().iter().map(|request| request.outcome).collect();
    assert_eq!(met, [RequestOutcome::Status(0)], "it arrived once");
}

#[tokio::test(start_paused = true)]
async fn retries_repeat_a_queued_write_but_not_a_written_one() {
    let server = serve(Script::new());
    let lines = Lines::default();
    let client = Client::open(lines.of(options(&server)));
    client.wait_until_ready(ms(100)).await.unwrap();
    server.stop_reading();
    let documents = client.default_collection();
    let break_connection = async {
        tokio::time::sleep(ms(1)).await;
        server.drop_connections();
        server.resume_reading();
    };
    let second = async {
        // The first one fills the buffers of the pipe, so this one stays in the queue.
        tokio::task::yield_now().await;
        documents.upsert("b", "1").await
    };
    let first = documents.upsert("a", vec![b'x'; 200 << 10]).into_future();
    let (first, second, ()) = tokio::join!(first, second, break_connection);
    let error = first.unwrap_err();
    assert_eq!(error.reason(), Some(reason::SOCKET_CLOSED_WHILE_IN_FLIGHT));
    second.unwrap();
    let lines = lines.take();
    assert!(lines.contains(&"retry SOCKET_NOT_AVAILABLE".to_owned()), "{lines:?}");
    assert!(lines.contains(&"not-retried SOCKET_CLOSED_WHILE_IN_FLIGHT".to_owned()), "{lines:?}");
    assert_eq!(server.request_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn retries_never_follow_an_answer_to_another_command() {
    let (client, server) = ready(Script::new()).await;
    server.push_answers([Answer::new(AnswerAction::WrongCommand)]);
    let error = client.default_collection().get("a").await.unwrap_err();
    assert_eq!(error.reason(), Some(reason::UNKNOWN));
    assert_eq!((error.stop_reason(), error.attempts()), (StopReason::StrategyDeclined, 1));
}

#[tokio::test(start_paused = true)]
async fn retries_delay_is_capped_at_the_timeout() {
    let (client, server) = ready(Script::new()).await;
    let answer = Answer::status(0x09).after(ms(2000));
    server.push_answers([answer]);
    let slow = |_: &Request<'_>| Decision::Retry(ms(1000));
    let start = Instant::now();
    let documents = client.default_collection();
    let request = documents.upsert("a", "1").strategy(slow).timeout(ms(2500));
    let error = request.await.unwrap_err();
    assert_eq!(start.elapsed(), ms(2500), "500 ms in place of 1 s");
    assert_eq!(error.timeout(), Some(TimeoutKind::Unambiguous), "the server refused it");
    tokio::time::sleep(ms(1000)).await;
    assert_eq!(server.requests().len(), 1, "it was not sent again");
}

#[tokio::test(start_paused = true)]
async fn retries_timeout_says_whether_the_write_may_have_run() {
    let (client, server) = ready(Script::new()).await;
    let documents = client.default_collection();
    server.push_answers([Answer::hang(), Answer::hang(), Answer::status(0x86)]);
    let error = documents.upsert("a", "1").timeout(ms(20)).await.unwrap_err();
    assert_eq!(error.timeout(), Some(TimeoutKind::Ambiguous));
    assert_eq!(error.elapsed(), ms(20));
    let error = documents.get("a").timeout(ms(20)).await.unwrap_err();
    assert_eq!(error.timeout(), Some(TimeoutKind::Unambiguous), "idempotent");
    // Without a connection nothing is sent.
    server.set_bucket_status(0x01);
    server.drop_connections();
    tokio::time::sleep(ms(1)).await;
    let error = documents.upsert("a", "1").timeout(ms(20)).await.unwrap_err();
    assert_eq!(error.timeout(), Some(TimeoutKind::Unambiguous), "{error}");
    assert_eq!(error.reason(), Some(reason::SOCKET_NOT_AVAILABLE));
}

#[tokio::test(start_paused = true)]
async fn retries_asynchronous_strategy_of_one_request_decides_later() {
    let origin = Instant::now();
    let (client, server) = ready(Script::new()).await;
    server.push_answers(statuses(&[0x86, 0x86]));
    let later = |request: &Request<'_>| {
        let retries = request.retry_attempts();
        Decision::later(async move {
            tokio::time::sleep(ms(30)).await;
            (retries < 1).then_some(ms(5))
        })
    };
    let start = Instant::now();
    let error = client.default_collection().upsert("a", "1").strategy(later).await.unwrap_err();
    assert_eq!(error.stop_reason(), StopReason::StrategyDeclined);
    let times: Vec<_> = arrivals(&server, origin, start).iter().map(|(at, _)| *at).collect();
    assert_eq!(times, [0, 35]);
    assert_eq!(start.elapsed(), ms(65));
}

#[tokio::test(start_paused = true)]
async fn retries_strategy_reads_the_data_of_the_request() {
    struct IsRobot;
    let server = serve(Script::new());
    let client = Client::open(options(&server).strategy(|request: &Request<'_>| {
        match request.data::<IsRobot>() {
            Some(IsRobot) => Decision::Decline,
            None => BestEffort::new().retry_after(request),
        }
    }));
    client.wait_until_ready(ms(100)).await.unwrap();
    server.push_answers(statuses(&[0x86, 0x86]));
    let documents = client.default_collection();
    let error = documents.upsert("a", "1").data(IsRobot).await.unwrap_err();
    assert_eq!(error.attempts(), 1);
    documents.upsert("a", "1").await.unwrap();
}

/// What a strategy sees of a request.
#[derive(Debug, PartialEq)]
struct Seen {
    retries: u32,
    earlier: Vec<Reason>,
    reason: Reason,
    elapsed: Duration,
    remaining: Duration,
    status: u16,
}

#[tokio::test(start_paused = true)]
async fn retries_strategy_sees_attempts_reasons_and_times() {
    use reason::{KV_LOCKED, KV_NOT_MY_VBUCKET, KV_TEMPORARY_FAILURE};
    let (client, server) = ready(Script::new()).await;
    server.push_answers(statuses(&[0x07, 0x86]));
    server.push_answers([Answer::status(0x09).after(ms(10)), Answer::status(0x86)]);
    let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
    let notes = seen.clone();
    let strategy = move |request: &Request<'_>| {
        let context = RequestContext::of(request).unwrap();
        assert_eq!((context.to_string().as_str(), context.timeout()), ("kv.upsert a", ms(100)));
        assert!(!request.is_idempotent());
        let Some(Response::Kv { status, .. }) = context.last_response() else { panic!() };
        notes.lock().unwrap().push(Seen {
            retries: request.retry_attempts(),
            earlier: request.reasons().to_vec(),
            reason: request.reason().unwrap(),
            elapsed: request.elapsed(),
            remaining: request.remaining().unwrap(),
            status,
        });
        BestEffort::new().retry_after(request)
    };
    let documents = client.default_collection();
    documents.upsert("a", "1").timeout(ms(100)).strategy(strategy).await.unwrap();
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    let expected = |retries, earlier: &[Reason], reason, elapsed, status| Seen {
        retries,
        earlier: earlier.to_vec(),
        reason,
        elapsed: ms(elapsed),
        remaining: ms(100 - elapsed),
        status,
    };
    // The strategy is not asked about 0x07, whose retry counts and whose reason is in the list.
    let order = [KV_NOT_MY_VBUCKET, KV_TEMPORARY_FAILURE, KV_LOCKED];
    assert_eq!(
        seen,
        [
            expected(1, &order[..1], KV_TEMPORARY_FAILURE, 1, 0x86),
            expected(2, &order[..2], KV_LOCKED, 13, 0x09),
            expected(3, &order, KV_TEMPORARY_FAILURE, 17, 0x86),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn retries_strategy_of_a_client_keeps_its_log_and_throttle() {
    let (server, lines) = (serve(Script::new()), Lines::default());
    let budget = Arc::new(RetryBudget::try_new(2.0, 0.1).unwrap());
    let options = lines.of(options(&server).throttled(budget.clone()));
    let client = Client::open(options.strategy(|_: &Request<'_>| Decision::Retry(ms(3))));
    // To wait for the connections is no failure.
    client.wait_until_ready(ms(100)).await.unwrap();
    assert_eq!(budget.tokens(0), Some(2.0));
    server.push_answers(statuses(&[0x86; 3]));
    let error = client.default_collection().upsert("a", "1").await.unwrap_err();
    assert_eq!((error.stop_reason(), error.attempts()), (StopReason::Throttled, 3));
    assert_eq!(error.elapsed(), ms(6), "the delays of the strategy");
    let expected = ["retry", "retry", "not-retried"];
    assert_eq!(lines.take(), expected.map(|what| format!("{what} KV_TEMPORARY_FAILURE")));
}

#[tokio::test(start_paused = true)]
async fn retries_of_a_wait_for_connections_are_not_throttled() {
    let server = serve(Script::new());
    server.set_bucket_status(0x01);
    let budget = Arc::new(RetryBudget::try_new(2.0, 0.1).unwrap());
    let client = Client::open(options(&server).throttled(budget.clone()));
    let warm = async {
        tokio::time::sleep(ms(300)).await;
        server.set_bucket_status(0x00);
    };
    let (ready, ()) = tokio::join!(client.wait_until_ready(s(10)), warm);
    ready.unwrap();
    assert_eq!(budget.tokens(0), Some(2.0));
}

#[tokio::test(start_paused = true)]
async fn retries_with_application_context_repeat_a_replace() {
    const NOT_THERE_YET: Reason = Reason::new("NOT_THERE_YET").allow_non_idempotent();
    let (client, _server) = ready(Script::new()).await;
    let documents = client.default_collection();
    let creating = async {
        tokio::time::sleep(ms(20)).await;
        documents.insert("a", "first").await
    };
    let replacing = documents.replace("a", "second").retry_status(status::NOT_FOUND, NOT_THERE_YET);
    let (replaced, created) = tokio::join!(replacing.into_future(), creating);
    created.unwrap();
    replaced.unwrap();
    assert_eq!(documents.get("a").await.unwrap().value, "second");
    let request = documents.replace("b", "x").retry_status(status::NOT_FOUND, NOT_THERE_YET);
    let error = request.timeout(ms(50)).await.unwrap_err();
    assert_eq!(error.reason(), Some(NOT_THERE_YET));
    let text = error.last().map(ToString::to_string);
    assert_eq!(text.as_deref(), Some("NOT_THERE_YET, kv status 0x01 to replace"));
}

#[tokio::test(start_paused = true)]
async fn retries_make_no_promise_about_order() {
    let (client, server) = ready(Script::new()).await;
    server.push_answers(statuses(&[0x86]));
    let documents = client.default_collection();
    let (first, second) = tokio::join!(
        documents.upsert("a", "first").into_future(),
        documents.upsert("a", "second").into_future()
    );
    first.unwrap();
    second.unwrap();
    assert_eq!(documents.get("a").await.unwrap().value, "first", "it was retried after the second");
}

#[tokio::test(start_paused = true)]
async fn retries_dropped_request_is_forgotten() {
    let (client, server) = ready(Script::new()).await;
    server.push_answers([Answer::hang(), Answer::status(0x86)]);
    let documents = client.default_collection();
    let dropped = tokio::time::timeout(ms(10), documents.upsert("a", "1").into_future()).await;
    assert!(dropped.is_err());
    let parked = documents.upsert("a", "1").strategy(|_: &Request<'_>| Decision::Retry(ms(1000)));
    let dropped = tokio::time::timeout(ms(10), parked.into_future()).await;
    assert!(dropped.is_err());
    assert_eq!(client.requests_in_retry(), 0);
    assert_eq!(documents.upsert("a", "1").await.map(|_| ()).ok(), Some(()));
}

#[tokio::test(start_paused = true)]
async fn retries_error_tells_attempts_reason_and_time() {
    let (client, server) = ready(Script::new()).await;
    server.push_answers(statuses(&[0x86; 100]));
    let error = client.default_collection().get("airline_10").timeout(ms(20)).await.unwrap_err();
    let expected = "kv.get airline_10: unambiguous timeout, kv status 0x86 to get \
                    (5 attempts in 20 ms; gave up: no time left before the deadline)";
    assert_eq!(error.to_string(), expected);
    assert!(matches!(error.last(), Some(RequestError::Response(_))));
    assert_eq!(error.elapsed(), Duration::from_millis(20));
}

#[tokio::test(start_paused = true)]
async fn retries_error_has_the_explanation_of_the_server() {
    let (client, server) = ready(Script::new()).await;
    server.push_answers([Answer::status(0x04).context("the extras are too short")]);
    let error = client.default_collection().get("airline_10").await.unwrap_err();
    let text = error.last().map(ToString::to_string);
    assert_eq!(text.as_deref(), Some("kv status 0x04 to get: the extras are too short"));
}
