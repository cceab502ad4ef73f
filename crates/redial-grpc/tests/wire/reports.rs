//! A failed call explains itself: its status has a report as its source, and so have other clients
//! and layers around this one by other ways.

use std::error::Error;

use redial_echo::echo_client::EchoClient;
use redial_faults::grpc::{Answer, Close, Script, Server, StatusNumber as Peer};
use redial_grpc::{
    AttemptReport, BackendId, CallOptions, CallReport, CallReports, Code as Grpc,
    LOGGED_MESSAGE_MAX, PolicyKind, Retries, RetryLayer, SharedCallLog, StopReason, UsedBackends,
};
use tonic::{Code, Request};
use tower::{Service as _, ServiceBuilder, ServiceExt as _};

use super::rig::{
    HEDGE, RETRY, Rig, Told, UNARY, channel, endpoint, layer, message, ms, raw_request,
};

fn busy() -> Answer {
    Answer::trailers_only(Peer::UNAVAILABLE).text("busy").after(ms(5))
}

/// When attempts started and how long they took, in ms, their status and message.
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
    let closed = Answer::close(Close::Orderly).after(ms(7));
    let mut rig = Rig::of(layer, Server::new([busy(), closed, busy()]));
    let told = rig.call().await;
    assert_eq!((told.code(), told.status().message()), (Code::Unavailable, "busy"));
    let report = told.report();
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

/// Also a call whose machine begins with its first failure has true times.
#[tokio::test(start_paused = true)]
async fn report_without_call_log_has_the_same_times() {
    let mut rig = Rig::new(RETRY, [busy(), busy(), busy()]);
    let status = rig.client.unary(message("x")).await.unwrap_err();
    let report = CallReport::of_status(&status).unwrap();
    let unavailable = Some(Grpc::Unavailable);
    let row = |attempt, started| (attempt, started, 5, unavailable, Some("busy"));
    assert_eq!(rows(report), [row(1, 0), row(2, 55), row(3, 160)]);
    assert_eq!(report.elapsed(), ms(165));
}

#[tokio::test(start_paused = true)]
async fn report_of_hedges_shows_cancelled_ones() {
    let fatal = Answer::trailers_only(Peer::INVALID_ARGUMENT).text("wrong").after(ms(30));
    let mut rig = Rig::new(HEDGE, [Answer::hang(), fatal, Answer::hang()]);
    let told = rig.call().await;
    let report = told.report();
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
async fn report_tells_why_there_was_no_retry() {
    let stopped = |told: &Told| {
        let report = told.report();
        assert_eq!(told.code(), Code::Unavailable);
        (report.policy(), report.stop_reason(), report.to_string())
    };
    let mut rig = Rig::new("", [busy()]);
    let (policy, reason, text) = stopped(&rig.call().await);
    assert_eq!((policy, reason), (PolicyKind::None, StopReason::NotRetryable));
    assert!(text.contains("in 5.0ms: no retry policy for this method; attempt 1"), "{text}");

    let mut rig = Rig::new(RETRY, vec![busy(); 5]);
    let _three = rig.call().await;
    let (policy, reason, text) = stopped(&rig.call().await);
    assert_eq!((policy, reason), (PolicyKind::Retry, StopReason::Throttled));
    assert!(text.contains(": the retry budget is spent; attempt 1"), "{text}");

    let mut rig = Rig::new(RETRY, [busy()]);
    let mut request = Request::new(message("x"));
    request.extensions_mut().insert(CallOptions::new().retries(Retries::Transparent));
    let (policy, reason, text) = stopped(&rig.call_with(request).await);
    assert_eq!((policy, reason), (PolicyKind::Disabled, StopReason::NotRetryable));
    assert!(text.contains(": retries are disabled; attempt 1"), "{text}");

    let mut rig = Rig::new(RETRY, [busy().pushback("soon")]);
    let (_, reason, text) = stopped(&rig.call().await);
    assert_eq!(reason, StopReason::ServerRefused);
    assert!(
        text.ends_with("busy (malformed grpc-retry-pushback-ms \"soon\": not retried)"),
        "{text}"
    );
}

/// Only the source is new: what the server sent is what the application gets.
#[tokio::test(start_paused = true)]
async fn report_leaves_the_status_as_the_server_sent_it() {
    let answer = || {
        let answer = Answer::trailers_only(Peer::RESOURCE_EXHAUSTED).text("100% of the quota");
        answer.metadata("quota", "7").metadata("grpc-status-details-bin", "AQID")
    };
    let mut seen = Vec::new();
    for reports in [CallReports::StatusSource, CallReports::ResponseExtension, CallReports::Off] {
        let layer = layer(RETRY).call_reports(reports).build();
        let mut rig = Rig::of(layer, Server::new([busy(), answer()]));
        let told = rig.call().await;
        let status = told.status();
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
async fn report_is_an_extension_where_layers_around_read_responses() {
    let layer = layer(RETRY).call_reports(CallReports::ResponseExtension).build();
    let rig = Rig::of(layer, Server::new(vec![busy(); 3]));
    let response = rig.service().ready().await.unwrap().call(raw_request(b"x")).await.unwrap();
    assert_eq!(response.headers()["grpc-status"], "14");
    assert_eq!(response.headers()["grpc-message"], "busy");
    let report = response.extensions().get::<CallReport>().unwrap();
    assert_eq!((report.attempts(), report.stop_reason()), (3, StopReason::AttemptsExhausted));
}

/// A call that ends without a response has no other place for it.
#[tokio::test(start_paused = true)]
async fn report_of_a_lost_connection_has_its_error_as_source() {
    for reports in [CallReports::StatusSource, CallReports::ResponseExtension] {
        let layer = layer("").call_reports(reports).build();
        let mut rig = Rig::of(layer, Server::new([Answer::close(Close::Orderly)]));
        let told = rig.call().await;
        let report = told.report();
        assert!(!report.is_answered());
        assert!(report.source().is_some_and(<dyn Error>::is::<tonic::transport::Error>));
    }
}

/// After the response headers a status comes with the body, where nothing can be attached.
#[tokio::test(start_paused = true)]
async fn call_log_has_the_message_of_a_failure_after_the_commit() {
    let answer = Answer::headers().trailers(Peer::INTERNAL).text("disk full");
    let mut rig = Rig::new(RETRY, [busy(), answer]);
    let call_log = SharedCallLog::new();
    let mut request = Request::new(message("x"));
    request.extensions_mut().insert(CallOptions::new().call_log(&call_log));
    let status = rig.client.unary(request).await.unwrap_err();
    assert_eq!((status.code(), status.source().is_some()), (Code::Internal, false));
    let text = call_log.take().to_string();
    assert!(text.contains("attempt 1 failed: a server failure (UNAVAILABLE): UNAVAILABLE: busy"));
    assert!(text.contains("attempt 2 failed, not retryable: INTERNAL: disk full"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn call_log_and_report_redact_and_cut_messages() {
    let long = "secret ".repeat(100);
    let answer = Answer::trailers_only(Peer::INTERNAL).text(&long);
    let layer = layer(RETRY).redact_messages(|text| text.replace("secret", "***")).build();
    let mut rig = Rig::of(layer, Server::new([answer]));
    let call_log = SharedCallLog::new();
    let mut request = Request::new(message("x"));
    request.extensions_mut().insert(CallOptions::new().call_log(&call_log));
    let status = rig.client.unary(request).await.unwrap_err();
    assert_eq!(status.message(), long, "the application gets what the server sent");
    let report = CallReport::of_status(&status).unwrap();
    let shown = report.history()[0].message().unwrap();
    assert_eq!(shown.len(), LOGGED_MESSAGE_MAX + "...".len());
    for text in [shown.to_owned(), report.to_string(), call_log.take().to_string()] {
        assert!(text.contains("*** ***") && !text.contains("secret"), "{text}");
    }
}

/// By default the inner layer turns a failed response into an error: it is still the server's answer.
#[tokio::test(start_paused = true)]
async fn outer_layer_judges_a_reported_answer_as_the_answer_it_is() {
    let listed = RETRY.replace("UNAVAILABLE", "DEADLINE_EXCEEDED");
    let late = Answer::trailers_only(Peer::DEADLINE_EXCEEDED).text("upstream").pushback("70");
    let server = Server::new([late, Answer::echo()]).on_pipe();
    let channel = channel(&endpoint(), &server.connector());
    let (outer, inner) = (layer(&listed).build(), layer("").build());
    let service = ServiceBuilder::new().layer(outer).layer(inner).service(channel);
    let began = tokio::time::Instant::now();
    EchoClient::new(service).unary(message("x")).await.unwrap();
    assert_eq!(began.elapsed(), ms(70), "the server's pushback is kept");
}

/// A balancer names the backend of each attempt; the report and the call log show it.
#[tokio::test(start_paused = true)]
async fn report_and_call_log_name_the_backend_of_each_attempt() {
    let config = super::rig::config(RETRY);
    let layer = RetryLayer::builder().config(config).distinct_backends().build();
    let server = Server::new(Script::from(vec![busy(); 3])).on_pipe();
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
