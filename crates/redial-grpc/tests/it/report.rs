//! Call reports: the status of a failed call has a `CallReport` as its source.

use std::error::Error;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;

use http_body::Body as _;
use redial_echo::echo_client::EchoClient;
use redial_faults::grpc::{Answer, Close, Script, Server, StatusNumber};
use redial_grpc::{
    AttemptReport, BackendId, CallOptions, CallReport, CallReports, Code as Grpc,
    LOGGED_MESSAGE_MAX, PolicyKind, Retries, RetryLayer, SharedCallLog, StopReason, UsedBackends,
};
use tonic::{Code, Request};
use tower::{Service, ServiceBuilder, ServiceExt as _};

use crate::common::harness::{
    CallOutcome, HEDGE, Harness, RETRY, UNARY, channel, config, endpoint, layer, message, ms,
    raw_request,
};

fn slow_busy() -> Answer {
    Answer::trailers_only(StatusNumber::UNAVAILABLE).text("busy").after(ms(5))
}

/// Attempt, start and duration in ms, status and message.
type Row<'r> = (u32, u128, u128, Option<Grpc>, Option<&'r str>);

fn rows(report: &CallReport) -> Vec<Row<'_>> {
    let row = |it: &'_ AttemptReport| -> (u32, u128, u128, Option<Grpc>) {
        (it.attempt(), it.started().as_millis(), it.elapsed().as_millis(), it.status())
    };
    let history = report.history().iter();
    history.map(|it| (row(it).0, row(it).1, row(it).2, row(it).3, it.message())).collect()
}

#[tokio::test(start_paused = true)]
async fn report_lists_each_attempt_with_status_message_and_time() {
    let layer = layer(RETRY).for_server("reports-attempts").build();
    let closed = Answer::close(Close::Graceful).after(ms(7));
    let mut harness = Harness::with_layer(layer, Server::new([slow_busy(), closed, slow_busy()]));
    let outcome = harness.call().await;
    assert_eq!((outcome.code(), outcome.status().message()), (Code::Unavailable, "busy"));
    let report = outcome.report();
    assert_eq!((report.method(), report.target()), (UNARY, Some("reports-attempts")));
    assert_eq!(
        (report.policy(), report.stop_reason()),
        (PolicyKind::Retry, StopReason::AttemptsExhausted)
    );
    assert_eq!((report.attempts(), report.elapsed(), report.omitted()), (3, ms(167), 0));
    assert!(report.is_answered());
    let unavailable = Some(Grpc::Unavailable);
    let lost = "transport error: connection error: stream closed because of a broken pipe";
    assert_eq!(
        rows(report),
        [
            (1, 0, 5, unavailable, Some("busy")),
            (2, 55, 7, unavailable, Some(lost)),
            (3, 162, 5, unavailable, Some("busy")),
        ]
    );
    assert_eq!(
        report.to_string(),
        format!(
            "gave up after 3 attempts in 167.0ms: no attempt left; \
             attempt 1: UNAVAILABLE after 5.0ms: busy; attempt 2: UNAVAILABLE after 7.0ms: {lost}; \
             attempt 3: UNAVAILABLE after 5.0ms: busy"
        )
    );
}

/// Without a call log the state machine is created at the first failure; the times must still be right.
#[tokio::test(start_paused = true)]
async fn report_without_call_log_has_the_same_times() {
    let mut harness = Harness::new(RETRY, [slow_busy(), slow_busy(), slow_busy()]);
    let status = harness.client.unary(message("x")).await.unwrap_err();
    let report = CallReport::of_status(&status).unwrap();
    let unavailable = Some(Grpc::Unavailable);
    let row = |attempt, started| (attempt, started, 5, unavailable, Some("busy"));
    assert_eq!(rows(report), [row(1, 0), row(2, 55), row(3, 160)]);
    assert_eq!(report.elapsed(), ms(165));
}

#[tokio::test(start_paused = true)]
async fn report_of_hedges_shows_cancelled_ones() {
    let fatal = Answer::trailers_only(StatusNumber::INVALID_ARGUMENT).text("wrong").after(ms(30));
    let mut harness = Harness::new(HEDGE, [Answer::hang(), fatal, Answer::hang()]);
    let outcome = harness.call().await;
    let report = outcome.report();
    assert_eq!(
        (report.policy(), report.stop_reason()),
        (PolicyKind::Hedging, StopReason::NotRetryable)
    );
    assert_eq!(
        rows(report),
        [
            (1, 0, 50, None, None),
            (2, 20, 30, Some(Grpc::InvalidArgument), Some("wrong")),
            (3, 40, 10, None, None),
        ]
    );
    let text = report.to_string();
    assert!(text.contains("attempt 1: cancelled after 50.0ms; attempt 2: INVALID"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn report_gives_the_reason_for_not_retrying() {
    let stopped = |outcome: &CallOutcome| {
        let report = outcome.report();
        assert_eq!(outcome.code(), Code::Unavailable);
        (report.policy(), report.stop_reason(), report.to_string())
    };
    let mut harness = Harness::new("", [slow_busy()]);
    let (policy, reason, text) = stopped(&harness.call().await);
    assert_eq!((policy, reason), (PolicyKind::None, StopReason::NotRetryable));
    assert!(text.contains("in 5.0ms: no retry policy for this method; attempt 1"), "{text}");

    let mut harness = Harness::new(RETRY, vec![slow_busy(); 5]);
    let _three = harness.call().await;
    let (policy, reason, text) = stopped(&harness.call().await);
    assert_eq!((policy, reason), (PolicyKind::Retry, StopReason::Throttled));
    assert!(text.contains(": the retry budget is spent; attempt 1"), "{text}");

    let mut harness = Harness::new(RETRY, [slow_busy()]);
    let mut request = Request::new(message("x"));
    request.extensions_mut().insert(CallOptions::new().retries(Retries::Transparent));
    let (policy, reason, text) = stopped(&harness.call_with(request).await);
    assert_eq!((policy, reason), (PolicyKind::Disabled, StopReason::NotRetryable));
    assert!(text.contains(": retries are disabled; attempt 1"), "{text}");

    let mut harness = Harness::new(RETRY, [slow_busy().pushback("soon")]);
    let (_, reason, text) = stopped(&harness.call().await);
    assert_eq!(reason, StopReason::ServerRefused);
    assert!(
        text.ends_with("busy (malformed grpc-retry-pushback-ms \"soon\": not retried)"),
        "{text}"
    );
}

/// A report changes only the source of the status.
#[tokio::test(start_paused = true)]
async fn report_leaves_the_status_as_the_server_sent_it() {
    let answer = || {
        let answer =
            Answer::trailers_only(StatusNumber::RESOURCE_EXHAUSTED).text("100% of the quota");
        answer.metadata("quota", "7").metadata("grpc-status-details-bin", "AQID")
    };
    let mut seen = Vec::new();
    for reports in [CallReports::StatusSource, CallReports::ResponseExtension, CallReports::Off] {
        let layer = layer(RETRY).call_reports(reports).build();
        let mut harness = Harness::with_layer(layer, Server::new([slow_busy(), answer()]));
        let outcome = harness.call().await;
        let status = outcome.status();
        assert_eq!(status.source().is_some(), reports == CallReports::StatusSource, "{reports:?}");
        let metadata = format!("{:?}", status.metadata().clone().into_headers());
        let details = status.details().to_vec();
        seen.push((status.code(), status.message().to_owned(), details, metadata));
    }
    assert_eq!((seen[0].0, &*seen[0].1), (Code::ResourceExhausted, "100% of the quota"));
    assert_eq!(seen[0].2, [1, 2, 3]);
    assert!(seen[0].3.contains("quota") && seen[0].3.contains("grpc-previous-rpc-attempts"));
    assert!(seen.iter().all(|one| *one == seen[0]), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn report_is_an_extension_for_outer_layers() {
    let layer = layer(RETRY).call_reports(CallReports::ResponseExtension).build();
    let harness = Harness::with_layer(layer, Server::new(vec![slow_busy(); 3]));
    let response = harness.service().ready().await.unwrap().call(raw_request(b"x")).await.unwrap();
    assert_eq!(response.headers()["grpc-status"], "14");
    assert_eq!(response.headers()["grpc-message"], "busy");
    let report = response.extensions().get::<CallReport>().unwrap();
    assert_eq!((report.attempts(), report.stop_reason()), (3, StopReason::AttemptsExhausted));
}

/// Without a response the report is always the source of the status.
#[tokio::test(start_paused = true)]
async fn report_of_a_lost_connection_has_its_error_as_source() {
    for reports in [CallReports::StatusSource, CallReports::ResponseExtension] {
        let layer = layer("").call_reports(reports).build();
        let mut harness = Harness::with_layer(layer, Server::new([Answer::close(Close::Graceful)]));
        let outcome = harness.call().await;
        let report = outcome.report();
        assert!(!report.is_answered());
        assert!(report.source().is_some_and(<dyn Error>::is::<tonic::transport::Error>));
    }
}

#[tokio::test(start_paused = true)]
async fn report_and_call_log_redact_and_truncate_messages() {
    let long = "secret ".repeat(100);
    let answer = Answer::trailers_only(StatusNumber::INTERNAL).text(&long);
    let layer = layer(RETRY).redact_messages(|text| text.replace("secret", "***")).build();
    let mut harness = Harness::with_layer(layer, Server::new([answer]));
    let call_log = SharedCallLog::new();
    let mut request = Request::new(message("x"));
    request.extensions_mut().insert(CallOptions::new().call_log(&call_log));
    let status = harness.client.unary(request).await.unwrap_err();
    assert_eq!(status.message(), long, "the application gets what the server sent");
    let report = CallReport::of_status(&status).unwrap();
    let shown = report.history()[0].message().unwrap();
    assert_eq!(shown.len(), LOGGED_MESSAGE_MAX + "...".len());
    for text in [shown.to_owned(), report.to_string(), call_log.take().to_string()] {
        assert!(text.contains("*** ***") && !text.contains("secret"), "{text}");
    }
}

/// A load balancer names the backend of each attempt.
#[tokio::test(start_paused = true)]
async fn report_and_call_log_name_the_backend_of_attempts() {
    let config = config(RETRY);
    let layer = RetryLayer::builder().config(config).distinct_backends().build();
    let server = Server::new(Script::from(vec![slow_busy(); 3])).on_pipe();
    let channel = channel(&endpoint(), &server.connector());
    let naming = ServiceBuilder::new().layer(layer).map_request(
        |request: http::Request<tonic::body::Body>| {
            let used = request.extensions().get::<UsedBackends>().unwrap();
            let number = used.to_vec().len() as u64;
            used.record(BackendId::new(number));
            used.set_name(format!("backend-{number}"));
            request
        },
    );
    let mut client = EchoClient::new(naming.service(channel));
    let call_log = SharedCallLog::new();
    let mut request = Request::new(message("x"));
    request.extensions_mut().insert(CallOptions::new().call_log(&call_log));
    let status = client.unary(request).await.unwrap_err();
    let report = CallReport::of_status(&status).unwrap();
    let names: Vec<_> = report.history().iter().map(|it| it.backend().unwrap()).collect();
    assert_eq!(names, ["backend-0", "backend-1", "backend-2"]);
    assert!(report.to_string().contains("attempt 2 to backend-1: UNAVAILABLE"), "{report}");
    let text = call_log.take().to_string();
    assert!(text.contains(": UNAVAILABLE: busy (backend backend-2)"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn panic_of_a_redaction_ends_every_later_body_poll() {
    let layer = layer(RETRY).redact_messages(|_| panic!("the redaction panics")).build();
    let answer = Answer::headers().trailers(StatusNumber::UNAVAILABLE).text("x");
    let harness = Harness::with_layer(layer, Server::new([answer]));
    let mut service = harness.service();
    let response = service.ready().await.unwrap().call(raw_request(b"x")).await.unwrap();
    let mut body = Box::pin(response.into_body());
    for _ in 0..2 {
        let panicked =
            poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| body.as_mut().poll_frame(cx))) {
                Ok(polled) => polled.map(|_| false),
                Err(_) => Poll::Ready(true),
            });
        assert!(panicked.await);
        assert!(!body.is_end_stream(), "a client must not take it for a complete response");
    }
}
