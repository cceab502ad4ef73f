//! Deadlines: the layer enforces them while connecting, in attempts, in backoff and in the response body
//! (decisions G4 and G5).

use std::future::Future as _;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http_body_util::BodyExt as _;
use redial::StopReason;
use redial::testing::{Play, Script as Played, classified_as, hangs, succeeds};
use redial_core::Random;
use redial_echo::EchoRequest;
use redial_echo::echo_client::EchoClient;
use redial_faults::grpc::{Answer, OnConnect, Reason, Script, Server, StatusNumber, StreamOutcome};
use redial_grpc::{CallReports, ClientOptions, DeadlineAction, Retries, RetryLayer, ServiceConfig};
use redial_service_config::{Code as GrpcCode, Pushback};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::{Code, Request};
use tower::{Layer, ServiceBuilder, ServiceExt};
use tower_service::Service as _;

use crate::common::harness::{
    HEDGE, Harness, RETRY, UNARY, busy, channel, config, config_text, endpoint, layer, message, ms,
    raw_request, sent_timeouts, within,
};
use crate::common::streaming::{
    aborted_config, cancels, config_json, fails, harness, harness_with, no_hang, retry_policy, s,
    several_messages_then, six_attempts_config, sleep_until, starts,
};
use crate::common::{echo, retry_config};

// Peer test: grpc-java: headersRead_cancel.
#[tokio::test(start_paused = true)]
async fn deadline_after_headers_resets_the_stream() {
    let harness = harness(&six_attempts_config(), Answer::headers());
    let mut bidi = harness.bidi_with(Some(s(5)));
    bidi.write(&["1"]);
    let mut stream = bidi.response().await.unwrap().into_inner();
    let status = no_hang(stream.message()).await.unwrap_err();
    assert_eq!((status.code(), bidi.stop_reason()), (Code::DeadlineExceeded, StopReason::Deadline));
    harness.settle().await;
    assert!(bidi.is_request_dropped());
    assert_eq!(cancels(&harness.finish().await), [Some(5000)]);
}

// Peer test: grpc-java: RetryTest: serverCancelledAndClientDeadlineExceeded.
#[tokio::test(start_paused = true)]
async fn deadline_wins_over_a_later_cancellation_by_the_server() {
    // A server that enforces the deadline responds a millisecond too late.
    let late = [
        fails(StatusNumber::CANCELLED).after(ms(10_001)),
        Answer::reset(Reason::CANCEL).after(ms(10_001)),
    ];
    for answer in late {
        let harness = harness_with(RetryLayer::builder(), Server::new(answer));
        let outcome = harness.unary_with_deadline(s(10), "x").await;
        assert_eq!((outcome.code, outcome.previous), (Code::DeadlineExceeded, None));
        assert_eq!(harness.elapsed(), s(10));
        let record = harness.finish().await;
        assert_eq!(cancels(&record), [Some(10_000)]);
        assert_eq!(record.streams[0].timeout(), Some(s(10)));
    }
}

// Peer test: C-core: retry_cancellation.
#[tokio::test(start_paused = true)]
async fn deadline_during_second_attempt_resets_its_stream() {
    let harness = harness(&aborted_config(3), [fails(StatusNumber::ABORTED), Answer::hang()]);
    let outcome = harness.unary_with_deadline(s(5), "foo").await;
    assert_eq!((outcome.code, outcome.previous), (Code::DeadlineExceeded, Some(1)));
    assert_eq!(harness.elapsed(), s(5));
    let record = harness.finish().await;
    assert_eq!(cancels(&record), [None, Some(5000)]);
    let timeouts: Vec<_> = record.streams.iter().map(|it| it.timeout().unwrap()).collect();
    assert_eq!(timeouts, [s(5), s(4)]);
}

// Peer test: C-core: retry_cancel_during_delay.
#[tokio::test(start_paused = true)]
async fn deadline_during_backoff_makes_no_second_attempt() {
    let harness = harness(
        &config_json(&retry_policy(3, "10s", "120s", 1.6, "ABORTED")),
        fails(StatusNumber::ABORTED),
    );
    let outcome = harness.unary_with_deadline(s(5), "foo").await;
    assert_eq!((outcome.code, harness.elapsed()), (Code::DeadlineExceeded, s(5)));
    sleep_until(&harness, s(20)).await;
    assert_eq!(starts(&harness.finish().await), [0]);
}

// Peer test: C-core: retry_cancel_with_multiple_send_batches.
#[tokio::test(start_paused = true)]
async fn deadline_with_several_unsent_messages_ends_the_call() {
    let (harness, mut bidi) = several_messages_then(Some(s(3))).await;
    assert_eq!(bidi.response().await.unwrap_err().code(), Code::DeadlineExceeded);
    assert_eq!((bidi.stop_reason(), harness.elapsed()), (StopReason::Deadline, s(3)));
    sleep_until(&harness, s(20)).await;
    assert_eq!(starts(&harness.finish().await), [0]);
}

/// C-core: grpc#39935 and grpc#38908, `perAttemptRecvTimeout` hangs or crashes on the last attempt. It is
/// not part of A6, so it is an unknown field here. The timeout of tonic's channel applies to each attempt
/// and ends the last one, too.
#[tokio::test(start_paused = true)]
async fn deadline_of_channel_ends_the_last_attempt() {
    let unknown = RETRY.replace("{ ", r#"{ "perAttemptRecvTimeout": "1s", "#);
    let checked = ServiceConfig::parse(&config_text(&unknown)).unwrap();
    assert!(checked.warnings().iter().any(|it| it.path.ends_with("perAttemptRecvTimeout")));

    let busy = || Answer::trailers_only(StatusNumber::UNAVAILABLE);
    let server = Server::new([busy(), busy(), Answer::hang()]);
    let mut harness =
        Harness::with_endpoint(&endpoint().timeout(ms(40)), layer(RETRY).build(), server);
    let outcome = tokio::time::timeout(ms(5_000), harness.call()).await.expect("the call ends");
    assert_eq!(
        (outcome.code(), outcome.end()),
        (Code::DeadlineExceeded, (StopReason::NotRetryable, 190))
    );
    assert_eq!(outcome.starts(), [0, 50, 150]);
}

/// grpc-java: #12620, #10838 and #12185, a call never ends when its deadline races with a retry.
#[test]
fn deadline_race_with_backoff_timer_always_completes() {
    let fields = RETRY.replace(r#""maxAttempts": 3"#, r#""maxAttempts": 5"#);
    let config = config(&fields);
    let plan = ClientOptions::default().plan(config.method(UNARY));
    let policy = plan.to_policy(None);
    let (mut raced, mut ended) = (0, [0; 2]);
    for seed in 0..10_000 {
        let mut random = Random::new(seed);
        let mut whole = |most: u64| (random.draw() * most as f64) as u64;
        // Multiples of 10 ms, so that many retries are due exactly at the deadline.
        let deadline = ms(10 * (1 + whole(12)));
        let attempts: Vec<_> = (0..5)
            .map(|_| {
                let after = ms(10 * whole(4));
                let pushback = Pushback::After(ms(10 * whole(6)));
                match whole(8) {
                    0 => hangs(),
                    1 => succeeds().after(after),
                    2 | 3 => classified_as(plan.classify(GrpcCode::Unavailable, Pushback::None))
                        .after(after),
                    _ => classified_as(plan.classify(GrpcCode::Unavailable, pushback)).after(after),
                }
            })
            .collect();
        let draws = [whole(5) as f64 / 5.0];
        let call = Played::new(&policy, attempts).deadline(deadline);
        let played = Play::new().draws(draws).call(call).run().remove(0);
        let end = played.end().unwrap_or_else(|| panic!("seed {seed}: the call never ended"));
        assert!(end.at <= deadline, "seed {seed}: {end:?} after {deadline:?}");
        let late = played.starts().into_iter().filter(|at| *at >= deadline).count();
        assert_eq!(late, 0, "seed {seed}: an attempt started at the deadline");
        ended[usize::from(end.stop_reason == StopReason::Deadline)] += 1;
        raced += u32::from(end.stop_reason == StopReason::Deadline && end.at == deadline);
    }
    assert!(ended.iter().all(|count| *count > 1_000), "both stop reasons occur: {ended:?}");
    assert!(raced > 1_000, "{raced}");
}

#[tokio::test(start_paused = true)]
async fn deadline_remaining_is_sent_with_each_attempt() {
    let slow = || busy().after(ms(100));
    let mut harness = Harness::new(RETRY, [slow(), slow(), Answer::echo()]);
    assert_eq!(harness.call_with(within(ms(1000))).await.code(), Code::Ok);
    assert_eq!(sent_timeouts(&harness), [Some(ms(1000)), Some(ms(850)), Some(ms(650))]);

    let mut harness = Harness::new(HEDGE, [Answer::hang(), Answer::hang(), Answer::echo()]);
    assert_eq!(harness.call_with(within(ms(1000))).await.code(), Code::Ok);
    assert_eq!(sent_timeouts(&harness), [Some(ms(1000)), Some(ms(980)), Some(ms(960))]);

    let refused = Answer::reset(Reason::REFUSED_STREAM).after(ms(100));
    let mut harness = Harness::new("", [refused, Answer::echo()]);
    assert_eq!(harness.call_with(within(ms(1000))).await.code(), Code::Ok);
    assert_eq!(sent_timeouts(&harness), [Some(ms(1000)), Some(ms(900))], "a replacement, too");

    let mut harness = Harness::new(RETRY, [busy(), Answer::echo()]);
    assert_eq!(harness.call().await.code(), Code::Ok);
    assert_eq!(sent_timeouts(&harness), [None, None], "no timeout without a deadline");
}

/// A retry that waits for a permit of the inner service sends the time that is left when it gets it, and is
/// not sent after the deadline.
#[tokio::test(start_paused = true)]
async fn deadline_is_stamped_when_the_service_is_ready() {
    for (deadline, code) in [(500, Code::Ok), (150, Code::DeadlineExceeded)] {
        let slow = Answer::headers().after(ms(200)).message("").trailers(StatusNumber::OK);
        let answers = [busy(), slow, Answer::echo()];
        let harness = Harness::new(RETRY, answers);
        let channel = channel(&endpoint(), &harness.server.connector());
        let one_permit = tower::limit::GlobalConcurrencyLimitLayer::new(1);
        let service =
            ServiceBuilder::new().layer(harness.layer.clone()).layer(one_permit).service(channel);
        let (mut client, mut other) = (EchoClient::new(service.clone()), EchoClient::new(service));
        let call = tokio::spawn(async move { client.unary(within(ms(deadline))).await });
        tokio::time::sleep(ms(10)).await;
        // It holds the permit from 10 to 210 ms; the retry is due at 50 ms.
        other.unary(message("x")).await.unwrap();
        let answer = call.await.unwrap();
        assert_eq!(answer.map_or_else(|status| status.code(), |_| Code::Ok), code);
        harness.server.idle().await;
        let sent = sent_timeouts(&harness);
        match code {
            Code::Ok => assert_eq!(sent, [Some(ms(500)), None, Some(ms(290))]),
            _ => assert_eq!(sent, [Some(ms(150)), None]),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn deadline_is_the_shorter_of_config_and_call() {
    let fields = format!(r#"{RETRY}, "timeout": "0.3s""#);
    for (own, deadline) in [(None, 300), (Some(400), 300), (Some(200), 200)] {
        let mut harness = Harness::new(&fields, [busy(), Answer::hang()]);
        let request = own.map_or_else(|| Request::new(message("x")), |own| within(ms(own)));
        let outcome = harness.call_with(request).await;
        assert_eq!(
            (outcome.code(), outcome.end()),
            (Code::DeadlineExceeded, (StopReason::Deadline, deadline))
        );
        assert_eq!(sent_timeouts(&harness), [Some(ms(deadline)), Some(ms(deadline - 50))]);
    }
}

#[tokio::test(start_paused = true)]
async fn deadline_exceeded_is_retried_only_if_sent_by_server() {
    let policy = RETRY.replace("UNAVAILABLE", "DEADLINE_EXCEEDED");
    let late = Answer::trailers_only(StatusNumber::DEADLINE_EXCEEDED);
    let mut harness = Harness::new(&policy, [late.clone(), late, Answer::echo()]);
    let outcome = harness.call_with(within(ms(1000))).await;
    assert_eq!((outcome.code(), outcome.starts()), (Code::Ok, vec![0, 50, 150]));
    assert_eq!(harness.tokens(), 8_100);

    let mut harness = Harness::new(&policy, [Answer::hang()]);
    let outcome = harness.call_with(within(ms(1000))).await;
    assert_eq!((outcome.code(), outcome.starts()), (Code::DeadlineExceeded, vec![0]));
    assert_eq!((outcome.end(), harness.tokens()), ((StopReason::Deadline, 1000), 10_000));
}

#[tokio::test(start_paused = true)]
async fn deadline_already_passed_starts_no_attempt() {
    for fields in [RETRY, HEDGE, ""] {
        let mut harness = Harness::new(fields, [Answer::echo()]);
        let call = harness.call_with(within(Duration::ZERO));
        let outcome = tokio::time::timeout(ms(1000), call).await.expect("the call ends");
        assert_eq!(
            (outcome.code(), outcome.end()),
            (Code::DeadlineExceeded, (StopReason::Deadline, 0))
        );
        assert_eq!((outcome.starts().len(), outcome.record.counts.streams), (0, 0));
        assert_eq!(outcome.status().message(), "the deadline passed (0 attempts)");
        assert_eq!((harness.tokens(), harness.control.bytes_kept()), (10_000, 0));
    }
    let mut harness = Harness::new(&format!(r#"{RETRY}, "timeout": "0s""#), [Answer::echo()]);
    let outcome = tokio::time::timeout(ms(1000), harness.call()).await.expect("the call ends");
    assert_eq!((outcome.code(), outcome.record.counts.streams), (Code::DeadlineExceeded, 0));
}

#[tokio::test(start_paused = true)]
async fn deadline_ends_every_phase_on_time() {
    let connecting = Script::new().on_connect(OnConnect::Serve, ms(10_000));
    let begun = Answer::headers().message("").after(ms(1));
    let cases: [(&str, Script); 5] = [
        (RETRY, Answer::hang().into()),
        (RETRY, busy().pushback("60000").into()),
        (RETRY, connecting),
        (RETRY, begun.into()),
        (HEDGE, vec![Answer::hang(); 3].into()),
    ];
    for (policy, script) in cases {
        let what = format!("{script:?}");
        let mut harness = Harness::new(policy, script);
        let began = Instant::now();
        let outcome = harness.call_with(within(ms(100))).await;
        assert_eq!(
            (outcome.code(), outcome.end()),
            (Code::DeadlineExceeded, (StopReason::Deadline, 100)),
            "{what}"
        );
        assert_eq!(began.elapsed(), ms(100), "{what}");
        tokio::time::timeout(ms(1), harness.server.idle()).await.expect("every stream is reset");
        for stream in harness.server.record().streams {
            let how = stream.end.unwrap().outcome;
            let answered = matches!(how, StreamOutcome::Answered(_));
            assert!(
                answered || how == StreamOutcome::ResetByClient(Reason::CANCEL),
                "{what}: {how:?}"
            );
        }
        assert_eq!(harness.control.bytes_kept(), 0, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn deadline_status_names_the_last_failure() {
    let mut harness = Harness::new(RETRY, [busy(), busy().pushback("60000")]);
    let outcome = harness.call_with(within(ms(200))).await;
    let text = "the deadline passed (2 attempts); last failed attempt: UNAVAILABLE";
    assert_eq!(outcome.status().message(), text);
    assert_eq!(outcome.previous_attempts_header().as_deref(), Some("1"));

    let closed = Answer::close(redial_faults::grpc::Close::Graceful);
    let mut harness = Harness::new(&RETRY.replace("0.1s", "60s").replace("1s", "60s"), [closed]);
    let outcome = harness.call_with(within(ms(200))).await;
    assert_eq!(outcome.code(), Code::DeadlineExceeded);
    assert_eq!(outcome.chain(), ["tonic::transport::Error", "hyper", "io BrokenPipe"]);
}

#[tokio::test(start_paused = true)]
async fn deadline_fail_fast_returns_the_last_failure_at_once() {
    let layer = layer(RETRY).deadline_action(DeadlineAction::FailFast).build();
    let mut harness =
        Harness::with_layer(layer, Server::new([busy().text("busy").pushback("60000")]));
    let outcome = harness.call_with(within(ms(200))).await;
    assert_eq!((outcome.code(), outcome.status().message()), (Code::Unavailable, "busy"));
    assert_eq!(outcome.end(), (StopReason::Deadline, 0));
}

/// `Endpoint::timeout` of tonic is a limit that the caller chose, so it is never retried.
#[tokio::test(start_paused = true)]
async fn deadline_of_the_channel_is_never_retried() {
    let policy = RETRY.replace("UNAVAILABLE", "DEADLINE_EXCEEDED");
    for own in [None, Some(10_000)] {
        let endpoint = endpoint().timeout(ms(50));
        let mut harness =
            Harness::with_endpoint(&endpoint, layer(&policy).build(), Server::new(Answer::hang()));
        let request = own.map_or_else(|| Request::new(message("x")), |own| within(ms(own)));
        let outcome = harness.call_with(request).await;
        assert_eq!(
            (outcome.code(), outcome.end()),
            (Code::DeadlineExceeded, (StopReason::NotRetryable, 50))
        );
        assert_eq!((outcome.starts(), outcome.proofs()), (vec![0], vec![None]));
        assert_eq!(outcome.chain(), ["tonic::transport::Error", "tonic::TimeoutExpired"]);
        assert_eq!((harness.tokens(), harness.statistics()), (10_000, (0, 0, 0)));
    }
}

/// The channel sets its own timer from `grpc-timeout`, which is rounded down, here by almost a second.
#[tokio::test(start_paused = true)]
async fn deadline_timer_of_the_channel_may_fire_early() {
    let mut harness = Harness::new(RETRY, [busy(), Answer::hang()]);
    let deadline = Duration::from_secs(200_000);
    let outcome = harness.call_with(within(deadline)).await;
    assert_eq!(sent_timeouts(&harness)[1], Some(Duration::from_secs(199_999)));
    assert_eq!(
        (outcome.code(), outcome.end()),
        (Code::DeadlineExceeded, (StopReason::Deadline, 200_000_000))
    );
}

/// The deadline passes while the application reads the response stream.
#[tokio::test(start_paused = true)]
async fn deadline_ends_a_response_stream() {
    let answer = Answer::headers().message("").message("").after(ms(60)).message("").after(ms(120));
    let mut harness = Harness::new(RETRY, [answer]);
    let began = Instant::now();
    let mut stream = harness.client.server_stream(within(ms(100))).await.unwrap().into_inner();
    assert!(stream.message().await.unwrap().is_some());
    assert!(stream.message().await.unwrap().is_some());
    let status = stream.message().await.unwrap_err();
    assert_eq!((status.code(), began.elapsed()), (Code::DeadlineExceeded, ms(100)));
    assert_eq!(status.message(), "the deadline passed while receiving the response");
    harness.server.idle().await;
    assert_eq!(harness.server.record().streams[0].reset.unwrap().at, ms(100));
    assert_eq!(harness.tokens(), 10_000);
}

/// A status in the headers does not end a stream that the server keeps open.
#[tokio::test(start_paused = true)]
async fn deadline_holds_after_ok_in_headers_of_open_stream() {
    let ok = || Answer::trailers_only(StatusNumber::OK).without_end_stream();
    for retries in [Retries::All, Retries::Transparent, Retries::Off] {
        for policy in [RETRY, HEDGE, ""] {
            let harness =
                || Harness::with_layer(layer(policy).retries(retries).build(), Server::new(ok()));
            let what = format!("{policy} {retries:?}");
            let mut unary = harness();
            let began = Instant::now();
            let call = unary.call_with(within(ms(100)));
            let outcome = tokio::time::timeout(ms(5_000), call).await.expect("the call ends");
            assert_eq!(
                (outcome.code(), began.elapsed()),
                (Code::DeadlineExceeded, ms(100)),
                "{what}"
            );
            assert_eq!(outcome.end(), (StopReason::Deadline, 100), "{what}");
            assert_eq!((unary.tokens(), unary.control.bytes_kept()), (10_000, 0), "{what}");

            let mut streaming = harness();
            let began = Instant::now();
            let call = streaming.client.server_stream(within(ms(100)));
            let mut stream = call.await.unwrap().into_inner();
            let ended =
                tokio::time::timeout(ms(5_000), stream.message()).await.expect("the call ends");
            assert_eq!(ended.unwrap_err().code(), Code::DeadlineExceeded, "{what}");
            assert_eq!(began.elapsed(), ms(100), "{what}");
            streaming.server.idle().await;
            let how = streaming.server.record().streams[0].end.unwrap().outcome;
            assert_eq!(how, StreamOutcome::ResetByClient(Reason::CANCEL), "{what}");
        }
    }
}

/// A client that reads the body of a failed response does not wait for the end of the stream.
#[tokio::test(start_paused = true)]
async fn deadline_holds_after_failure_in_headers_of_open_stream() {
    let layer = layer("").call_reports(CallReports::ResponseExtension).build();
    let harness = Harness::with_layer(layer, Server::new([busy().without_end_stream()]));
    let mut service = harness.service();
    std::future::poll_fn(|cx| service.poll_ready(cx)).await.unwrap();
    let mut request = raw_request(b"x");
    request.headers_mut().insert("grpc-timeout", "100m".parse().unwrap());
    let response = service.call(request).await.unwrap();
    assert_eq!(response.headers()["grpc-status"], "14");
    let collected = tokio::time::timeout(ms(5_000), response.into_body().collect()).await;
    assert!(collected.expect("the call ends").unwrap().to_bytes().is_empty());
}

/// A server that enforces `grpc-timeout` fails the attempt at the deadline, and a client that is polled
/// late finds that failure. It does not replace the last failure before the deadline.
#[tokio::test(start_paused = true)]
async fn deadline_message_names_the_last_failure_before_the_deadline() {
    let late = || Answer::trailers_only(StatusNumber::DEADLINE_EXCEEDED).after(ms(70));
    let lost = || Answer::close(redial_faults::grpc::Close::Graceful).after(ms(70));
    for last in [Answer::hang(), late(), late().without_end_stream(), lost()] {
        let what = format!("{last:?}");
        let mut harness = Harness::new(RETRY, [busy(), last]);
        let mut call = Box::pin(harness.client.unary(within(ms(100))));
        assert!(tokio::time::timeout(ms(60), &mut call).await.is_err(), "the retry is in flight");
        // Meanwhile the connection is polled, but the call is not.
        tokio::time::sleep(ms(70)).await;
        let status = call.await.unwrap_err();
        let text = "the deadline passed (2 attempts); last failed attempt: UNAVAILABLE";
        assert_eq!((status.code(), status.message()), (Code::DeadlineExceeded, text), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn deadline_ends_a_stream_that_is_always_ready() {
    let mut answer = Answer::headers();
    for _ in 0..200 {
        answer = answer.message("");
    }
    let mut harness = Harness::new(RETRY, [answer.trailers(StatusNumber::OK)]);
    let mut stream = harness.client.server_stream(within(ms(100))).await.unwrap().into_inner();
    let began = tokio::time::Instant::now();
    let mut read = 0;
    let end = loop {
        match stream.message().await {
            Ok(Some(_)) => read += 1,
            Ok(None) => break Code::Ok,
            Err(status) => break status.code(),
        }
        tokio::time::sleep(ms(10)).await;
    };
    assert_eq!(end, Code::DeadlineExceeded, "after {read} messages");
    assert!(began.elapsed() <= ms(120), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn deadline_resets_the_stream_with_retries_disabled_too() {
    for retries in [Retries::All, Retries::Off] {
        for answer in [Answer::hang(), Answer::headers().message("").message("").after(ms(10_000))]
        {
            let layer = layer(RETRY).retries(retries).build();
            let mut harness = Harness::with_layer(
                layer,
                Server::new([answer.wait_for(redial_faults::grpc::WaitFor::Headers)]),
            );
            let (send, receive) = tokio::sync::mpsc::channel(4);
            send.send(message("x")).await.unwrap();
            let mut request = Request::new(ReceiverStream::new(receive));
            request.set_timeout(ms(100));
            let code = match harness.client.bidi(request).await {
                Err(status) => status.code(),
                Ok(response) => {
                    let mut stream = response.into_inner();
                    loop {
                        match stream.message().await {
                            Ok(Some(_)) => {}
                            Ok(None) => break Code::Ok,
                            Err(status) => break status.code(),
                        }
                    }
                }
            };
            assert_eq!(code, Code::DeadlineExceeded, "{retries:?}");
            let _ = tokio::time::timeout(ms(5_000), harness.server.idle()).await;
            let end = harness.server.record().streams[0].end.map(|end| (end.outcome, end.at));
            assert_eq!(
                end,
                Some((StreamOutcome::ResetByClient(Reason::CANCEL), ms(100))),
                "{retries:?}"
            );
            drop(send);
        }
    }
}

fn failing(failures: u32, payload: &'static str) -> EchoRequest {
    EchoRequest { payload: payload.into(), failures, ..EchoRequest::default() }
}

#[tokio::test(start_paused = true)]
async fn deadline_covers_headers_and_body() {
    let mut client = echo(&RetryLayer::from_json(&retry_config(3)).unwrap());
    for delay_ms in [1000, 40] {
        let began = Instant::now();
        let slow = EchoRequest { delay_ms, responses: Some(100), ..failing(0, "x") };
        let mut request = tonic::Request::new(slow);
        request.set_timeout(Duration::from_millis(100));
        let status = match client.server_stream(request).await {
            Err(status) => status,
            Ok(response) => {
                let mut stream = response.into_inner();
                loop {
                    match stream.message().await {
                        Ok(Some(_)) => {}
                        Ok(None) => panic!("the stream ended"),
                        Err(status) => break status,
                    }
                }
            }
        };
        assert_eq!(status.code(), Code::DeadlineExceeded, "{delay_ms}: {status:?}");
        let took = began.elapsed().as_millis();
        assert!((100..=102).contains(&took), "{took}");
    }
}

/// A tonic server enforces `grpc-timeout` and responds with CANCELLED. A client that is polled late finds
/// that response together with its own timer.
#[tokio::test(start_paused = true)]
async fn deadline_wins_over_a_failure_found_after_it() {
    let (answer, answered) = tokio::sync::oneshot::channel::<http::Response<Body>>();
    let answered = Arc::new(Mutex::new(Some(answered)));
    let server = tower::service_fn(move |_request: http::Request<Body>| {
        let answered = answered.lock().unwrap().take();
        async move { answered.ok_or("one attempt")?.await.map_err(|_| "an answer") }
    });
    let layer = RetryLayer::from_json(&retry_config(3)).unwrap();
    let mut request = http::Request::new(Body::empty());
    *request.uri_mut() = http::Uri::from_static("/redial.test.Echo/Unary");
    request.headers_mut().insert("grpc-timeout", http::HeaderValue::from_static("100m"));
    let mut call = pin!(layer.layer(server).oneshot(request));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(call.as_mut().poll(&mut cx).is_pending());
    tokio::time::advance(Duration::from_millis(150)).await;
    answer.send(tonic::Status::cancelled("Timeout expired").into_http()).unwrap();
    let Poll::Ready(Err(error)) = call.poll(&mut cx) else { panic!("the deadline has passed") };
    let status = error.downcast::<tonic::Status>().unwrap();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
}
