//! Deadlines: the layer owns them, through connecting, attempts, backoff and body (decisions G4, G5).

use std::time::Duration;

use http_body_util::BodyExt as _;
use redial::StopReason;
use redial_echo::EchoRequest;
use redial_echo::echo_client::EchoClient;
use redial_faults::grpc::{Answer, Door, How, Reason, Script, Server, StatusNumber as Peer};
use redial_grpc::{CallReports, DeadlineAction, Retries};
use tokio::time::Instant;
use tonic::{Code, Request};
use tower::ServiceBuilder;
use tower_service::Service as _;

use super::rig::{HEDGE, RETRY, Rig, channel, endpoint, layer, message, ms, raw_request};

fn within(deadline: Duration) -> Request<EchoRequest> {
    let mut request = Request::new(message("x"));
    request.set_timeout(deadline);
    request
}

fn busy() -> Answer {
    Answer::trailers_only(Peer::UNAVAILABLE)
}

fn timeouts(rig: &Rig) -> Vec<Option<Duration>> {
    rig.server.record().streams.iter().map(redial_faults::grpc::Stream::timeout).collect()
}

#[tokio::test(start_paused = true)]
async fn each_attempt_carries_what_remains() {
    let slow = || busy().after(ms(100));
    let mut rig = Rig::new(RETRY, [slow(), slow(), Answer::echo()]);
    assert_eq!(rig.call_with(within(ms(1000))).await.code(), Code::Ok);
    assert_eq!(timeouts(&rig), [Some(ms(1000)), Some(ms(850)), Some(ms(650))]);

    let mut rig = Rig::new(HEDGE, [Answer::hang(), Answer::hang(), Answer::echo()]);
    assert_eq!(rig.call_with(within(ms(1000))).await.code(), Code::Ok);
    assert_eq!(timeouts(&rig), [Some(ms(1000)), Some(ms(980)), Some(ms(960))]);

    let refused = Answer::reset(Reason::REFUSED_STREAM).after(ms(100));
    let mut rig = Rig::new("", [refused, Answer::echo()]);
    assert_eq!(rig.call_with(within(ms(1000))).await.code(), Code::Ok);
    assert_eq!(timeouts(&rig), [Some(ms(1000)), Some(ms(900))], "a replacement, too");

    let mut rig = Rig::new(RETRY, [busy(), Answer::echo()]);
    assert_eq!(rig.call().await.code(), Code::Ok);
    assert_eq!(timeouts(&rig), [None, None], "without a deadline there is none");
}

/// A retry that waits for a place below carries what remains when it has got it, and is not sent at
/// all if that is nothing.
/// Red: `if false && !stamp(&mut request)` in `Attempt::poll`.
#[tokio::test(start_paused = true)]
async fn an_attempt_that_waits_until_the_service_is_ready_carries_what_remains_then() {
    for (deadline, code) in [(500, Code::Ok), (150, Code::DeadlineExceeded)] {
        let slow = Answer::headers().after(ms(200)).message("").trailers(Peer::OK);
        let answers = [busy(), slow, Answer::echo()];
        let rig = Rig::new(RETRY, answers);
        let channel = channel(&endpoint(), &rig.server.connector());
        let one_place = tower::limit::GlobalConcurrencyLimitLayer::new(1);
        let service =
            ServiceBuilder::new().layer(rig.layer.clone()).layer(one_place).service(channel);
        let (mut client, mut other) = (EchoClient::new(service.clone()), EchoClient::new(service));
        let call = tokio::spawn(async move { client.unary(within(ms(deadline))).await });
        tokio::time::sleep(ms(10)).await;
        // It takes the place from 10 to 210 ms; the retry is due at 50.
        other.unary(message("x")).await.unwrap();
        let answer = call.await.unwrap();
        assert_eq!(answer.map_or_else(|status| status.code(), |_| Code::Ok), code);
        rig.server.idle().await;
        let sent = timeouts(&rig);
        match code {
            Code::Ok => assert_eq!(sent, [Some(ms(500)), None, Some(ms(290))]),
            _ => assert_eq!(sent, [Some(ms(150)), None]),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_smaller_of_config_and_call_is_the_deadline() {
    let fields = format!(r#"{RETRY}, "timeout": "0.3s""#);
    for (own, deadline) in [(None, 300), (Some(400), 300), (Some(200), 200)] {
        let mut rig = Rig::new(&fields, [busy(), Answer::hang()]);
        let request = own.map_or_else(|| Request::new(message("x")), |own| within(ms(own)));
        let told = rig.call_with(request).await;
        assert_eq!(
            (told.code(), told.end()),
            (Code::DeadlineExceeded, (StopReason::Deadline, deadline))
        );
        assert_eq!(timeouts(&rig), [Some(ms(deadline)), Some(ms(deadline - 50))]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_a_server_reports_is_retried_if_listed_and_a_local_one_never() {
    let policy = RETRY.replace("UNAVAILABLE", "DEADLINE_EXCEEDED");
    let late = Answer::trailers_only(Peer::DEADLINE_EXCEEDED);
    let mut rig = Rig::new(&policy, [late.clone(), late, Answer::echo()]);
    let told = rig.call_with(within(ms(1000))).await;
    assert_eq!((told.code(), told.starts()), (Code::Ok, vec![0, 50, 150]));
    assert_eq!(rig.tokens(), 8_100);

    let mut rig = Rig::new(&policy, [Answer::hang()]);
    let told = rig.call_with(within(ms(1000))).await;
    assert_eq!((told.code(), told.starts()), (Code::DeadlineExceeded, vec![0]));
    assert_eq!((told.end(), rig.tokens()), ((StopReason::Deadline, 1000), 10_000));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_has_passed_starts_nothing_and_ends_at_once() {
    for fields in [RETRY, HEDGE, ""] {
        let mut rig = Rig::new(fields, [Answer::echo()]);
        let call = rig.call_with(within(Duration::ZERO));
        let told = tokio::time::timeout(ms(1000), call).await.expect("it ends");
        assert_eq!((told.code(), told.end()), (Code::DeadlineExceeded, (StopReason::Deadline, 0)));
        assert_eq!((told.starts().len(), told.record.counts.streams), (0, 0));
        assert_eq!(told.status().message(), "the deadline passed (0 attempts)");
        assert_eq!((rig.tokens(), rig.control.bytes_kept()), (10_000, 0));
    }
    let mut rig = Rig::new(&format!(r#"{RETRY}, "timeout": "0s""#), [Answer::echo()]);
    let told = tokio::time::timeout(ms(1000), rig.call()).await.expect("it ends");
    assert_eq!((told.code(), told.record.counts.streams), (Code::DeadlineExceeded, 0));
}

#[tokio::test(start_paused = true)]
async fn the_deadline_ends_every_phase_at_its_moment() {
    let connecting = Script::new().door(Door::Open, ms(10_000));
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
        let mut rig = Rig::new(policy, script);
        let began = Instant::now();
        let told = rig.call_with(within(ms(100))).await;
        assert_eq!(
            (told.code(), told.end()),
            (Code::DeadlineExceeded, (StopReason::Deadline, 100)),
            "{what}"
        );
        assert_eq!(began.elapsed(), ms(100), "{what}");
        tokio::time::timeout(ms(1), rig.server.idle()).await.expect("every stream is reset");
        for stream in rig.server.record().streams {
            let how = stream.end.unwrap().how;
            let answered = matches!(how, How::Answered(_));
            assert!(answered || how == How::ResetByClient(Reason::CANCEL), "{what}: {how:?}");
        }
        assert_eq!(rig.control.bytes_kept(), 0, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_ran_out_of_time_says_what_happened_last() {
    let mut rig = Rig::new(RETRY, [busy(), busy().pushback("60000")]);
    let told = rig.call_with(within(ms(200))).await;
    let text = "the deadline passed (2 attempts); last failed attempt: UNAVAILABLE";
    assert_eq!(told.status().message(), text);
    assert_eq!(told.previous_told().as_deref(), Some("1"));

    let closed = Answer::close(redial_faults::grpc::Close::Orderly);
    let mut rig = Rig::new(&RETRY.replace("0.1s", "60s").replace("1s", "60s"), [closed]);
    let told = rig.call_with(within(ms(200))).await;
    assert_eq!(told.code(), Code::DeadlineExceeded);
    assert_eq!(told.chain(), ["tonic::transport::Error", "hyper", "io BrokenPipe"]);
}

#[tokio::test(start_paused = true)]
async fn who_does_not_wait_in_vain_hears_the_last_failure_at_once() {
    let layer = layer(RETRY).deadline_action(DeadlineAction::FailFast).build();
    let mut rig = Rig::of(layer, Server::new([busy().text("busy").pushback("60000")]));
    let told = rig.call_with(within(ms(200))).await;
    assert_eq!((told.code(), told.status().message()), (Code::Unavailable, "busy"));
    assert_eq!(told.end(), (StopReason::Deadline, 0));
}

/// tonic's own `Endpoint::timeout` is the caller's doing: it is told as what it is, when it happens,
/// and is never retried.
#[tokio::test(start_paused = true)]
async fn a_timeout_of_the_channel_is_a_deadline_and_never_retried() {
    let policy = RETRY.replace("UNAVAILABLE", "DEADLINE_EXCEEDED");
    for own in [None, Some(10_000)] {
        let endpoint = endpoint().timeout(ms(50));
        let mut rig = Rig::over(&endpoint, layer(&policy).build(), Server::new(Answer::hang()));
        let request = own.map_or_else(|| Request::new(message("x")), |own| within(ms(own)));
        let told = rig.call_with(request).await;
        assert_eq!(
            (told.code(), told.end()),
            (Code::DeadlineExceeded, (StopReason::NotRetryable, 50))
        );
        assert_eq!((told.starts(), told.proofs()), (vec![0], vec![None]));
        assert_eq!(told.chain(), ["tonic::transport::Error", "tonic::TimeoutExpired"]);
        assert_eq!((rig.tokens(), rig.statistics()), (10_000, (0, 0, 0)));
    }
}

/// The channel has a timer of its own, set to what the header says, which is rounded down: here by
/// most of a second.
#[tokio::test(start_paused = true)]
async fn a_timer_below_that_fires_a_moment_early_is_the_deadline() {
    let mut rig = Rig::new(RETRY, [busy(), Answer::hang()]);
    let deadline = Duration::from_secs(200_000);
    let told = rig.call_with(within(deadline)).await;
    assert_eq!(timeouts(&rig)[1], Some(Duration::from_secs(199_999)));
    assert_eq!(
        (told.code(), told.end()),
        (Code::DeadlineExceeded, (StopReason::Deadline, 200_000_000))
    );
}

/// Dropping the response's body is all that is left to do when the deadline passes while it comes.
#[tokio::test(start_paused = true)]
async fn a_stream_that_is_read_past_the_deadline_ends_with_it() {
    let answer = Answer::headers().message("").message("").after(ms(60)).message("").after(ms(120));
    let mut rig = Rig::new(RETRY, [answer]);
    let began = Instant::now();
    let mut stream = rig.client.server_stream(within(ms(100))).await.unwrap().into_inner();
    assert!(stream.message().await.unwrap().is_some());
    assert!(stream.message().await.unwrap().is_some());
    let status = stream.message().await.unwrap_err();
    assert_eq!((status.code(), began.elapsed()), (Code::DeadlineExceeded, ms(100)));
    assert_eq!(status.message(), "the deadline passed while receiving the response");
    rig.server.idle().await;
    assert_eq!(rig.server.record().streams[0].reset.unwrap().at, ms(100));
    assert_eq!(rig.tokens(), 10_000);
}

/// A status in the headers does not end a stream that stays open: the deadline does.
/// Red: `ResponseBody::pass` for such a response.
#[tokio::test(start_paused = true)]
async fn deadline_holds_after_ok_in_headers_of_an_open_stream() {
    let ok = || Answer::trailers_only(Peer::OK).without_end_stream();
    for retries in [Retries::All, Retries::Transparent, Retries::Off] {
        for policy in [RETRY, HEDGE, ""] {
            let rig = || Rig::of(layer(policy).retries(retries).build(), Server::new(ok()));
            let what = format!("{policy} {retries:?}");
            let mut unary = rig();
            let began = Instant::now();
            let call = unary.call_with(within(ms(100)));
            let told = tokio::time::timeout(ms(5_000), call).await.expect("it ends");
            assert_eq!((told.code(), began.elapsed()), (Code::DeadlineExceeded, ms(100)), "{what}");
            assert_eq!(told.end(), (StopReason::Deadline, 100), "{what}");
            assert_eq!((unary.tokens(), unary.control.bytes_kept()), (10_000, 0), "{what}");

            let mut streaming = rig();
            let began = Instant::now();
            let call = streaming.client.server_stream(within(ms(100)));
            let mut stream = call.await.unwrap().into_inner();
            let ended = tokio::time::timeout(ms(5_000), stream.message()).await.expect("it ends");
            assert_eq!(ended.unwrap_err().code(), Code::DeadlineExceeded, "{what}");
            assert_eq!(began.elapsed(), ms(100), "{what}");
            streaming.server.idle().await;
            let how = streaming.server.record().streams[0].end.unwrap().how;
            assert_eq!(how, How::ResetByClient(Reason::CANCEL), "{what}");
        }
    }
}

/// What comes behind such headers reaches the application, and the call ends with their status
/// unless the trailers have one.
#[tokio::test(start_paused = true)]
async fn ok_in_headers_counts_when_the_stream_ends() {
    let open = || Answer::trailers_only(Peer::OK).without_end_stream().message("");
    let unsaid = || open().trailers(Peer::OK).without("grpc-status").metadata("who", "me");
    for (answer, code, tokens) in [
        (open().then_end_stream(), Code::Ok, 9_100),
        (unsaid(), Code::Ok, 9_100),
        (open().trailers(Peer::OK), Code::Ok, 9_100),
        (open().trailers(Peer::ABORTED), Code::Aborted, 9_000),
    ] {
        let what = format!("{answer:?}");
        let mut rig = Rig::new(RETRY, [busy(), answer]);
        let told = rig.call_with(within(ms(1_000))).await;
        assert_eq!((told.code(), told.previous_told().as_deref()), (code, Some("1")), "{what}");
        assert_eq!(rig.tokens(), tokens, "{what}");
    }
}

/// A client that reads the body of a failure, too, is not kept waiting for its end.
#[tokio::test(start_paused = true)]
async fn deadline_holds_after_a_failure_in_headers_of_an_open_stream() {
    let layer = layer("").call_reports(CallReports::ResponseExtension).build();
    let rig = Rig::of(layer, Server::new([busy().without_end_stream()]));
    let mut service = rig.service();
    std::future::poll_fn(|cx| service.poll_ready(cx)).await.unwrap();
    let mut request = raw_request(b"x");
    request.headers_mut().insert("grpc-timeout", "100m".parse().unwrap());
    let response = service.call(request).await.unwrap();
    assert_eq!(response.headers()["grpc-status"], "14");
    let collected = tokio::time::timeout(ms(5_000), response.into_body().collect()).await;
    assert!(collected.expect("it ends").unwrap().to_bytes().is_empty());
}

/// A server that keeps to `grpc-timeout` gives up when the client does, and a client that is polled
/// late finds its answer. It came after the deadline and does not replace the failure before it.
/// Red: keep what an attempt brought although the deadline has ended the call.
#[tokio::test(start_paused = true)]
async fn deadline_message_names_the_last_failure_before_the_deadline() {
    let late = || Answer::trailers_only(Peer::DEADLINE_EXCEEDED).after(ms(70));
    let lost = || Answer::close(redial_faults::grpc::Close::Orderly).after(ms(70));
    for last in [Answer::hang(), late(), late().without_end_stream(), lost()] {
        let what = format!("{last:?}");
        let mut rig = Rig::new(RETRY, [busy(), last]);
        let mut call = Box::pin(rig.client.unary(within(ms(100))));
        assert!(tokio::time::timeout(ms(60), &mut call).await.is_err(), "the retry runs");
        // The connection is polled meanwhile, the call is not.
        tokio::time::sleep(ms(70)).await;
        let status = call.await.unwrap_err();
        let text = "the deadline passed (2 attempts); last failed attempt: UNAVAILABLE";
        assert_eq!((status.code(), status.message()), (Code::DeadlineExceeded, text), "{what}");
    }
}
