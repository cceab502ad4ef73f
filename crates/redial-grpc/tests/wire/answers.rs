//! Answers of every kind: Trailers-Only, headers first, and what is not gRPC at all (decisions G3, G6,
//! G7, G10, G20 and G21).

use http::StatusCode;
use redial::StopReason;
use redial_faults::grpc::{Answer, Close, How, Reason, Server, StatusNumber as Peer};
use redial_grpc::Retries;
use tonic::{Code, Status};

use super::rig::{HEDGE, RETRY, Rig, layer, message, ms};

/// A policy with this list of codes.
fn listing(codes: &str) -> String {
    RETRY.replace(r#"["UNAVAILABLE"]"#, codes)
}

fn busy() -> Answer {
    Answer::trailers_only(Peer::UNAVAILABLE)
}

#[tokio::test(start_paused = true)]
async fn the_last_failure_is_handed_on_unchanged() {
    let last = busy()
        .text("100 % busy\u{e9}")
        .metadata("who", "me")
        .metadata("who", "and I")
        .metadata("raw-bin", "AAEC")
        .metadata("grpc-status-details-bin", "CAM");
    let mut rig = Rig::new(RETRY, [busy().text("first"), busy().text("second"), last]);
    let told = rig.call().await;
    let status = told.status();
    assert_eq!((status.code(), status.message()), (Code::Unavailable, "100 % busy\u{e9}"));
    let who: Vec<_> = status.metadata().get_all("who").iter().collect();
    assert_eq!(who, ["me", "and I"]);
    let raw = status.metadata().get_bin("raw-bin").unwrap().to_bytes().unwrap();
    assert_eq!(raw, &[0_u8, 1, 2][..]);
    assert_eq!(status.details(), [8, 3]);
    assert_eq!(told.previous_told().as_deref(), Some("2"));
    assert_eq!((told.end().0, told.starts()), (StopReason::AttemptsExhausted, vec![0, 50, 150]));
}

#[tokio::test(start_paused = true)]
async fn a_status_in_the_headers_is_trailers_only_whether_or_not_they_end_the_stream() {
    let open = busy().without_end_stream();
    let mut rig = Rig::new(RETRY, [open.clone(), open.clone(), open.text("third")]);
    let told = rig.call().await;
    assert_eq!((told.code(), told.status().message()), (Code::Unavailable, "third"));
    assert_eq!((told.starts(), rig.tokens()), (vec![0, 50, 150], 7_000));
    rig.server.idle().await;
    // Nobody reads them, so they are reset when they are judged, and not when the call ends.
    let resets =
        rig.server.record().streams.iter().map(|it| it.reset.unwrap().at).collect::<Vec<_>>();
    assert_eq!(resets, [ms(0), ms(50), ms(150)]);
}

/// tonic panics on details that are not base64, so those are dropped. With retries disabled and
/// nothing to watch the response is passed on as it came.
#[tokio::test(start_paused = true)]
async fn status_details_that_do_not_decode_are_dropped() {
    const DETAILS: &str = "grpc-status-details-bin";
    let begun = || Answer::headers().message("").trailers(Peer::ABORTED);
    let ok = || Answer::headers().message("").trailers(Peer::OK);
    let open = || Answer::trailers_only(Peer::ABORTED).without_end_stream();
    let answers = [Answer::trailers_only(Peer::ABORTED), open(), begun(), ok()];
    for answer in answers {
        for retries in [Retries::All, Retries::Transparent, Retries::Off] {
            for fields in [RETRY, ""] {
                for (details, kept) in [("CAM", &[8, 3][..]), ("CAM=", &[8, 3]), ("!garbage!", &[])]
                {
                    let answer = answer.clone().metadata(DETAILS, details).metadata("who", "me");
                    let layer = layer(fields).retries(retries).build();
                    // The call log makes the layer watch a call without retries.
                    let told = Rig::of(layer, Server::new([answer])).call().await;
                    let Err(status) = told.result else { continue };
                    assert_eq!((status.code(), status.details()), (Code::Aborted, kept));
                    assert_eq!(status.metadata().get("who").unwrap(), "me");
                }
            }
        }
    }
}

/// A failure whose stream stays open must not take the only place that its retry could have.
#[tokio::test(start_paused = true)]
async fn a_failure_that_does_not_end_its_stream_leaves_room_for_the_retry() {
    let large = Answer::http(StatusCode::SERVICE_UNAVAILABLE, "text/html", vec![b'x'; 10_000_000]);
    for (policy, fault) in
        [(RETRY, busy().without_end_stream()), (HEDGE, busy().without_end_stream()), (RETRY, large)]
    {
        let server = Server::new([fault, Answer::echo()]).concurrent_streams(1);
        let mut rig = Rig::of(layer(policy).build(), server);
        let told = tokio::time::timeout(ms(1000), rig.call()).await.unwrap();
        assert_eq!((told.code(), told.previous()), (Code::Ok, vec![None, Some(1)]));
        assert_eq!(told.record.streams[0].reset.unwrap().reason, Reason::CANCEL);
    }
}

/// What the application sees is what the call was judged by, whatever a client would make of the
/// body: tonic looks for messages in it.
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_grpc_is_the_status_that_it_is_judged_by() {
    let html =
        |status| Answer::http(StatusCode::from_u16(status).unwrap(), "text/html", "<h1>no</h1>");
    let table = [
        (html(400), Code::Internal, "INTERNAL"),
        (html(401), Code::Unauthenticated, "UNAUTHENTICATED"),
        (html(403), Code::PermissionDenied, "PERMISSION_DENIED"),
        (html(404), Code::Unimplemented, "UNIMPLEMENTED"),
        (html(429), Code::Unavailable, "UNAVAILABLE"),
        (html(502), Code::Unavailable, "UNAVAILABLE"),
        (html(503), Code::Unavailable, "UNAVAILABLE"),
        (html(504), Code::Unavailable, "UNAVAILABLE"),
        (html(500), Code::Unknown, "UNKNOWN"),
        (html(200), Code::Unknown, "UNKNOWN"),
        (Answer::http_empty(StatusCode::NOT_FOUND), Code::Unimplemented, "UNIMPLEMENTED"),
        (Answer::http_empty(StatusCode::OK), Code::Unknown, "UNKNOWN"),
        (
            Answer::headers().without("content-type").message("").trailers(Peer::OK),
            Code::Unknown,
            "UNKNOWN",
        ),
    ];
    for (answer, code, name) in table {
        let mut rig =
            Rig::new(&listing(r#"["ABORTED"]"#), [answer.clone().metadata("via", "proxy")]);
        let told = rig.call().await;
        assert_eq!((told.code(), told.end().0), (code, StopReason::NotRetryable), "{answer:?}");
        let text = told.status().message();
        assert!(text.starts_with("not a gRPC response: HTTP "), "{text}");
        assert_eq!((rig.tokens(), told.starts()), (10_000, vec![0]), "{answer:?}");

        let listed = listing(&format!(r#"["{name}"]"#));
        let mut rig = Rig::new(&listed, [answer.clone(), answer.clone(), answer.clone()]);
        let told = rig.call().await;
        assert_eq!(
            (told.code(), told.end().0),
            (code, StopReason::AttemptsExhausted),
            "{answer:?}"
        );
        assert_eq!(told.previous(), [None, Some(1), Some(2)], "{answer:?}");
        assert_eq!((rig.tokens(), rig.statistics()), (7_000, (2, 2, 0)), "{answer:?}");
        assert_eq!(told.previous_told().as_deref(), Some("2"));
    }
}

#[tokio::test(start_paused = true)]
async fn the_headers_of_an_answer_that_is_not_grpc_are_the_metadata_of_its_status() {
    let answer =
        Answer::http_empty(StatusCode::SERVICE_UNAVAILABLE).metadata("server", "proxy/1.0");
    let mut rig = Rig::new("", [answer]);
    let told = rig.call().await;
    assert_eq!(told.status().metadata().get("server").unwrap(), "proxy/1.0");
    let text = "not a gRPC response: HTTP 503 with no content type";
    assert_eq!(told.status().message(), text);
}

/// Decision G6: it is treated like a status, and so is what a gateway says of a retry beside it.
/// Red: `judge(code, Pushback::None)` for `Head::Foreign` in `Pending::outcome`.
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_grpc_may_have_pushback() {
    let answer = |pushback: &str| {
        Answer::http_empty(StatusCode::SERVICE_UNAVAILABLE).pushback(pushback.as_bytes())
    };
    let table = [("500", vec![0, 500], Code::Ok), ("-1", vec![0], Code::Unavailable)];
    for (pushback, starts, code) in table {
        let mut rig = Rig::new(RETRY, [answer(pushback), Answer::echo()]);
        let told = rig.call().await;
        assert_eq!((told.code(), told.starts()), (code, starts), "{pushback}");
    }
    // Whatever the policy, it drains the throttle.
    let mut rig = Rig::new("", [answer("-1")]);
    assert_eq!((rig.call().await.end().0, rig.tokens()), (StopReason::NotRetryable, 9_000));
}

#[tokio::test(start_paused = true)]
async fn a_status_beats_the_http_status_and_the_content_type() {
    let answer = |code: Peer| {
        let fields = Answer::http_empty(StatusCode::INTERNAL_SERVER_ERROR);
        fields.metadata("grpc-status", code.0.to_string()).metadata("content-type", "text/html")
    };
    let mut rig = Rig::new(RETRY, [answer(Peer::UNAVAILABLE), answer(Peer::ABORTED)]);
    let told = rig.call().await;
    assert_eq!((told.code(), told.starts()), (Code::Aborted, vec![0, 50]));
}

#[tokio::test(start_paused = true)]
async fn a_response_without_a_status_is_unknown_and_belongs_to_its_attempt() {
    let unknown = listing(r#"["UNKNOWN"]"#);
    for answer in [
        Answer::headers().message("").trailers(Peer::OK).without("grpc-status"),
        Answer::headers().message("").then_end_stream(),
        Answer::headers().then_end_stream(),
        Answer::headers().message("").then_reset(Reason::NO_ERROR),
    ] {
        let mut rig = Rig::new(&unknown, [answer.clone()]);
        let told = rig.call().await;
        assert_eq!(
            (told.code(), told.end().0),
            (Code::Unknown, StopReason::Committed),
            "{answer:?}"
        );
        assert_eq!((told.starts(), rig.tokens()), (vec![0], 9_000), "{answer:?}");
    }
}

/// Red if what nobody watches is handed on as tonic has it: it knows other statuses and texts.
#[tokio::test(start_paused = true)]
async fn what_a_failure_looks_like_does_not_depend_on_who_watches() {
    let html =
        |status| Answer::http(StatusCode::from_u16(status).unwrap(), "text/html", "<h1>no</h1>");
    let begun = || Answer::headers().message("");
    let answers = [
        html(200),
        html(400),
        html(404),
        html(429),
        html(500),
        html(503),
        Answer::http_empty(StatusCode::OK),
        Answer::http_empty(StatusCode::BAD_GATEWAY),
        Answer::headers().without("content-type").message("").trailers(Peer::OK),
        Answer::headers().then_end_stream(),
        begun().then_end_stream(),
        begun().trailers(Peer::OK).without("grpc-status"),
        begun().trailers(Peer::ABORTED).text("late"),
        busy().text("busy").metadata("who", "me"),
        busy().without_end_stream(),
        Answer::trailers_only(Peer(99)),
        begun().trailers(Peer(-1)),
        Answer::reset(Reason::CANCEL),
        Answer::reset(Reason::INTERNAL_ERROR),
        Answer::reset(Reason::ENHANCE_YOUR_CALM),
        begun().then_reset(Reason::REFUSED_STREAM),
        begun().then_reset(Reason::CANCEL),
        begun().then_reset(Reason::NO_ERROR),
        begun().then_reset(Reason::ENHANCE_YOUR_CALM),
        begun().then_reset(Reason::INADEQUATE_SECURITY),
        begun().then_close(Close::Orderly),
    ];
    for answer in answers {
        for retries in [Retries::Transparent, Retries::Off] {
            let layer = layer("").retries(retries).build();
            let mut rig = Rig::of(layer, Server::new([answer.clone(), answer.clone()]));
            let watched = rig.call().await;
            let unwatched = rig.client.unary(message("")).await.expect_err("it failed");
            let look = |status: &Status| {
                let metadata: Vec<_> =
                    status.metadata().clone().into_headers().into_iter().collect();
                (status.code(), status.message().to_owned(), format!("{metadata:?}"))
            };
            assert_eq!(look(watched.status()), look(&unwatched), "{retries:?} {answer:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_after_the_headers_is_handed_on_and_counted() {
    let after = |code| Answer::headers().message("").trailers(code);
    for (code, stop_reason, tokens) in [
        (Peer::UNAVAILABLE, StopReason::Committed, 9_000),
        (Peer::ABORTED, StopReason::NotRetryable, 10_000),
    ] {
        let mut rig = Rig::new(RETRY, [after(code).text("late")]);
        let told = rig.call().await;
        assert_eq!((told.end().0, rig.tokens()), (stop_reason, tokens));
        assert_eq!((told.status().message(), told.starts()), ("late", vec![0]));
    }
}

/// Decision G10: on OK it changes nothing; after the commit it can only drain the throttle.
#[tokio::test(start_paused = true)]
async fn pushback_in_trailers_changes_nothing_but_the_tokens() {
    let trailers = |code| Answer::headers().message("").trailers(code);
    let table = [
        (trailers(Peer::OK).pushback("-1"), Code::Ok, 10_000),
        (trailers(Peer::OK).pushback("50"), Code::Ok, 10_000),
        (trailers(Peer::UNAVAILABLE).pushback("50"), Code::Unavailable, 9_000),
        (trailers(Peer::UNAVAILABLE).pushback("-1"), Code::Unavailable, 9_000),
        (trailers(Peer::ABORTED).pushback("50"), Code::Aborted, 10_000),
        (trailers(Peer::ABORTED).pushback("-1"), Code::Aborted, 9_000),
    ];
    for (answer, code, tokens) in table {
        let mut rig = Rig::new(RETRY, [answer.clone()]);
        let told = rig.call().await;
        assert_eq!((told.code(), told.starts()), (code, vec![0]), "{answer:?}");
        assert_eq!(rig.tokens(), tokens, "{answer:?}");
    }
}

/// Decision G13: "do not retry" drains the throttle whatever its status and its policy, once.
#[tokio::test(start_paused = true)]
async fn do_not_retry_is_counted_once_whatever_the_status_and_the_policy() {
    for (policy, code) in [
        ("", Peer::ABORTED),
        ("", Peer::UNAVAILABLE),
        (RETRY, Peer::ABORTED),
        (RETRY, Peer::UNAVAILABLE),
    ] {
        for pushback in ["-1", "soon"] {
            let mut rig = Rig::new(policy, [Answer::trailers_only(code).pushback(pushback)]);
            let told = rig.call().await;
            assert_eq!((told.starts(), rig.tokens()), (vec![0], 9_000), "{policy} {code:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn trailers_only_ok_succeeds_and_is_counted() {
    let mut rig = Rig::new(RETRY, [busy(), Answer::trailers_only(Peer::OK)]);
    let answer = rig.client.server_stream(message("x")).await.unwrap();
    assert_eq!(answer.metadata().get("grpc-previous-rpc-attempts").unwrap(), "1");
    assert_eq!(answer.into_inner().message().await.unwrap(), None);
    assert_eq!(rig.tokens(), 9_100);
}

/// Decisions G20 and G21, as the server sees them.
#[tokio::test(start_paused = true)]
async fn a_fatal_hedge_ends_all_and_of_failures_the_last_to_come_is_handed_on() {
    let slow = Answer::hang();
    let fatal = Answer::trailers_only(Peer::ABORTED).text("fatal").after(ms(5));
    let mut rig = Rig::new(HEDGE, [slow.clone(), fatal, slow]);
    let told = rig.call().await;
    assert_eq!((told.code(), told.status().message()), (Code::Aborted, "fatal"));
    assert_eq!(told.end(), (StopReason::NotRetryable, 25));
    rig.server.idle().await;
    let record = rig.server.record();
    assert_eq!(record.streams.len(), 2);
    assert_eq!(record.streams[0].end.unwrap().how, How::ResetByClient(Reason::CANCEL));

    let failing = |text, after| busy().text(text).after(ms(after));
    let all = [failing("slowest", 100), failing("fastest", 30), failing("third", 1)];
    let mut rig = Rig::new(HEDGE, all);
    let told = rig.call().await;
    assert_eq!(
        (told.status().message(), told.end()),
        ("slowest", (StopReason::AttemptsExhausted, 100))
    );
    assert_eq!(told.starts(), [0, 20, 40]);
    assert_eq!(told.previous_told(), None, "it is the first attempt's");
    assert_eq!(rig.tokens(), 7_000);
}

#[tokio::test(start_paused = true)]
async fn of_hedges_the_first_headers_win_even_if_they_fail_later() {
    let winner =
        Answer::headers().after(ms(1)).trailers(Peer::UNAVAILABLE).after(ms(50)).text("won");
    let mut rig = Rig::new(HEDGE, [Answer::hang(), winner]);
    let told = rig.call().await;
    assert_eq!((told.status().message(), told.end()), ("won", (StopReason::Committed, 70)));
    assert_eq!(told.previous_told().as_deref(), Some("1"));
    let lost = told.record.streams[0].reset.unwrap();
    assert_eq!((lost.at, lost.reason), (ms(21), Reason::CANCEL));
}
