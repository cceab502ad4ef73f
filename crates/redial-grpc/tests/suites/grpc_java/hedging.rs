//! Hedging: six attempts at most, one every 100 s.

use redial_core::StopReason;
use redial_faults::grpc::{Answer, Reason, Server, StatusNumber as Said};
use tonic::Code;

use super::{hedged, hedging_policy};
use crate::suites::rig::*;

fn six_attempts(script: Vec<Answer>) -> Rig {
    rig_of(exact(&hedged()).attempts_cap(6), Server::new(script))
}

/// A failure after which others may still succeed.
fn busy() -> Answer {
    fails(Said::UNAVAILABLE)
}

/// What is refused by a server that has not processed it.
fn refused() -> Answer {
    Answer::reset(Reason::REFUSED_STREAM)
}

#[tokio::test(start_paused = true)]
async fn hedging_everything_is_drained_one_hedge_fails_another_fails_fatally() {
    let script = vec![
        Answer::hang(),
        fails(Said::INTERNAL).after(s(200)),
        busy().after(s(60)),
        Answer::hang(),
    ];
    let rig = six_attempts(script);
    let mut talk = rig.bidi();
    talk.write(&["1", "2"]);
    rig.settle().await;
    talk.write(&["3"]);
    at(&rig, s(150)).await;
    talk.write(&["4", "5"]);
    at(&rig, s(250)).await;
    talk.write(&["6"]);
    at(&rig, s(265)).await;
    talk.write(&["7"]);
    let status = talk.head().await.unwrap_err();
    assert_eq!(
        (status.code(), talk.stop_reason(), rig.elapsed()),
        (Code::Internal, StopReason::NotRetryable, s(300))
    );
    assert_eq!(status.metadata().get("grpc-previous-rpc-attempts").unwrap(), "1");

    let record = rig.finish().await;
    // Theirs waits for the rhythm after a failure that is not fatal; ours does not (G17).
    assert_eq!(starts(&record), [0, 100_000, 200_000, 260_000]);
    assert_eq!(previous(&record), [None, Some(1), Some(2), Some(3)]);
    assert_eq!(cancels(&record), [Some(300_000), None, None, Some(300_000)]);
    let all = ["1", "2", "3", "4", "5", "6", "7"];
    let sent: Vec<_> = record.streams.iter().map(payloads).collect();
    assert_eq!(sent, [&all[..], &all[..], &all[..6], &all[..]]);
}

#[tokio::test(start_paused = true)]
async fn hedging_stops_at_max_attempts_and_the_last_one_left_wins() {
    let wins = Answer::headers().after(s(500)).trailers(Said::OK);
    let script = vec![
        fails(Said::DATA_LOSS).after(s(600)),
        busy().after(s(250)),
        wins,
        fails(Said::DATA_LOSS).after(s(310)),
        fails(Said::DATA_LOSS).after(s(270)),
        busy().after(s(180)),
    ];
    let rig = six_attempts(script);
    let mut talk = rig.bidi();
    at(&rig, s(650)).await;
    talk.write(&["after the others"]);
    let mut stream = talk.head().await.unwrap().into_inner();
    assert_eq!(rig.elapsed(), s(700));
    assert_eq!(stream.message().await.unwrap(), None);
    assert_eq!((talk.stop_reason(), rig.statistics("Bidi").hedges_won), (StopReason::Succeeded, 1));
    let record = rig.finish().await;
    assert_eq!(starts(&record), [0, 100, 200, 300, 350, 450].map(|s| s * 1000));
    assert_eq!(payloads(&record.streams[2]), ["after the others"]);
    assert_eq!(cancels(&record), [None; 6]);
}

#[tokio::test(start_paused = true)]
async fn hedging_response_headers_win_and_the_others_are_cancelled() {
    let wins = Answer::headers().after(s(150)).trailers(Said::OK).after(s(160));
    let rig = six_attempts(vec![Answer::hang(), wins, Answer::hang()]);
    let mut talk = rig.bidi();
    talk.half_close();
    let response = talk.head().await.unwrap();
    assert_eq!(response.metadata().get("grpc-previous-rpc-attempts").unwrap(), "1");
    assert_eq!(response.into_inner().message().await.unwrap(), None);
    let record = rig.finish().await;
    assert_eq!(cancels(&record), [Some(250_000), None, Some(250_000)]);
}

#[tokio::test(start_paused = true)]
async fn hedging_a_negative_pushback_ends_hedging_and_outstanding_ones_go_on() {
    let script = vec![Answer::hang(), busy().pushback("-1").after(s(150)), replies_at(s(800), "a")];
    let rig = six_attempts(script);
    let heard = rig.unary("x").await;
    assert_eq!((heard.code, heard.previous, rig.elapsed()), (Code::Ok, Some(2), s(1000)));
    let record = rig.finish().await;
    assert_eq!(starts(&record), [0, 100_000, 200_000]);
}

#[tokio::test(start_paused = true)]
async fn hedging_a_positive_pushback_replaces_the_timer() {
    let script = vec![
        busy().pushback("101000").after(s(150)),
        busy().pushback("99000").after(s(160)),
        Answer::hang(),
        fails(Said::INTERNAL).after(s(50)),
    ];
    let rig = six_attempts(script);
    let (heard, stop_reason) = rig.told("x").await;
    assert_eq!(
        (heard.code, heard.previous, stop_reason),
        (Code::Internal, Some(3), StopReason::NotRetryable)
    );
    let record = rig.finish().await;
    // 150 + 101; the second pushback comes at 260: 260 + 99.
    assert_eq!(starts(&record), [0, 100_000, 251_000, 359_000]);
    assert_eq!(cancels(&record), [None, None, Some(409_000), None]);
}

#[tokio::test(start_paused = true)]
async fn hedging_losers_that_start_with_the_winner_are_cancelled_without_a_deadlock() {
    let layer = exact(&hedged().replace("100s", "0s")).attempts_cap(6);
    let mut script = vec![Answer::hang(); 6];
    script[2] = replies("a");
    let rig = rig_of(layer, Server::new(script));
    let heard = rig.unary("x").await;
    assert_eq!((&*heard.text, heard.previous, rig.elapsed()), ("a", Some(2), s(0)));
    let record = rig.finish().await;
    assert_eq!(starts(&record), [0; 6]);
    let lost = Some(0);
    assert_eq!(cancels(&record), [lost, lost, None, lost, lost, lost]);
}

#[tokio::test(start_paused = true)]
async fn hedging_cancelled_resets_every_stream() {
    let rig = six_attempts(vec![Answer::hang(), Answer::hang()]);
    let talk = rig.bidi();
    talk.write(&["1"]);
    at(&rig, s(150)).await;
    assert_eq!(stop_reason(&talk.cancel().await), StopReason::Cancelled);
    at(&rig, s(1000)).await;
    assert_eq!(cancels(&rig.finish().await), [Some(150_000), Some(150_000)]);
}

#[tokio::test(start_paused = true)]
async fn hedging_per_rpc_buffer_limit_exceeded_commits_to_the_attempt_with_most_messages() {
    let layer = exact(&hedged()).per_rpc_buffer_limit_in_bytes(counted("1"));
    let answer = Answer::headers().after(s(300)).trailers(Said::OK);
    let rig = rig_of(layer, Server::new([answer, Answer::hang()]));
    let mut talk = rig.bidi();
    talk.write(&["1"]);
    at(&rig, s(150)).await;
    assert_eq!(rig.control.bytes_kept(), counted("1"), "once for both");
    talk.write(&["2"]);
    rig.settle().await;
    assert_eq!(rig.control.bytes_kept(), 0);
    assert_eq!(talk.all().await, (vec![], Code::Ok));
    let record = rig.finish().await;
    // Both were sent one: theirs keeps the one that crossed the limit, ours the first (G24).
    assert_eq!(cancels(&record), [None, Some(150_000)]);
    assert_eq!(payloads(&record.streams[0]), ["1", "2"]);
}

#[tokio::test(start_paused = true)]
async fn hedging_the_attempt_with_most_messages_need_not_be_the_first() {
    let layer = exact(&hedged()).per_rpc_buffer_limit_in_bytes(2 * counted("1"));
    let answer = Answer::headers().after(s(300)).trailers(Said::OK);
    let rig = rig_of(layer, Server::new([Answer::hang().accepts(0), answer]));
    let mut talk = rig.bidi();
    rig.settle().await;
    talk.write(&["1"]);
    at(&rig, s(110)).await;
    talk.write(&["2"]);
    at(&rig, s(120)).await;
    talk.write(&["3"]);
    assert_eq!(talk.all().await, (vec![], Code::Ok));
    let record = rig.finish().await;
    assert_eq!(cancels(&record), [Some(120_000), None]);
    assert_eq!(payloads(&record.streams[1]), ["1", "2", "3"]);
}

#[tokio::test(start_paused = true)]
async fn hedging_channel_buffer_limit_exceeded_commits_who_exceeds_it() {
    let layer = exact(&hedged()).retry_buffer_size_in_bytes(2 * counted("1"));
    let answer = Answer::headers().after(s(300)).trailers(Said::OK);
    let rig = rig_of(layer, Server::new([answer, Answer::hang(), Answer::hang()]));
    let mut talk = rig.bidi();
    talk.write(&["1"]);
    at(&rig, s(150)).await;
    let other = rig.bidi();
    other.write(&["1"]);
    rig.settle().await;
    assert_eq!(rig.control.bytes_kept(), 2 * counted("1"));
    talk.write(&["2"]);
    rig.settle().await;
    assert_eq!(rig.control.bytes_kept(), counted("1"), "what the other one keeps");
    other.cancel().await;
    assert_eq!(talk.all().await, (vec![], Code::Ok));
    let record = rig.finish().await;
    assert_eq!(cancels(&record), [None, Some(150_001), Some(150_002)]);
}

#[tokio::test(start_paused = true)]
async fn hedging_a_refusal_is_replaced_once_and_the_next_one_is_a_failure() {
    let script =
        vec![Answer::hang(), refused().after(s(150)), refused().after(s(60)), Answer::hang()];
    let config = hedged().replace("UNAVAILABLE", "ABORTED");
    let rig = rig_of(exact(&config).attempts_cap(6), Server::new(script));
    let (heard, stop_reason) = rig.told("x").await;
    assert_eq!(
        (heard.code, heard.previous, stop_reason),
        (Code::Unavailable, Some(2), StopReason::NotRetryable)
    );
    let record = rig.finish().await;
    assert_eq!(starts(&record), [0, 100_000, 200_000, 250_000]);
    assert_eq!(previous(&record), [None, Some(1), Some(2), Some(1)]);
    assert_eq!(cancels(&record), [Some(260_000), None, None, Some(260_000)]);
}

#[tokio::test(start_paused = true)]
async fn hedging_a_refusal_after_a_failure_is_still_replaced() {
    // Theirs replaces nothing once an attempt was processed (G26).
    let script = vec![
        Answer::hang(),
        busy().after(s(150)),
        refused().after(s(60)),
        Answer::hang(),
        replies_at(s(10), "a"),
    ];
    let rig = six_attempts(script);
    let heard = rig.unary("x").await;
    assert_eq!((heard.code, heard.previous), (Code::Ok, Some(2)));
    let record = rig.finish().await;
    assert_eq!(starts(&record), [0, 100_000, 200_000, 250_000, 260_000]);
    assert_eq!(previous(&record), [None, Some(1), Some(2), Some(3), Some(2)]);
    assert_eq!(cancels(&record), [Some(270_000), None, None, Some(270_000), None]);
}

/// Tokens: 4 at most.
fn four_tokens(script: Vec<Answer>) -> Rig {
    let layer = exact(&throttled(&hedging_policy(), 4, 0.8)).attempts_cap(6);
    rig_of(layer, Server::new(script))
}

#[tokio::test(start_paused = true)]
async fn hedging_throttled_by_another_call_ends_hedging_and_outstanding_ones_go_on() {
    let script = vec![
        busy().after(s(150)),
        Answer::hang(),
        replies_at(s(1000), "a"),
        fails(Said::INTERNAL).pushback("-1"),
    ];
    let rig = four_tokens(script);
    let call = rig.spawn("x");
    at(&rig, s(160)).await;
    assert_eq!((rig.attempts(), rig.control.tokens()), (3, Some(3.0)));
    rig.unary("the other").await;
    assert_eq!(rig.control.tokens(), Some(2.0));
    let heard = patiently(call).await.unwrap();
    assert_eq!((heard.code, heard.previous), (Code::Ok, Some(2)));
    assert_eq!(rig.statistics("Unary").throttled, 1);
    let record = rig.finish().await;
    // The third follows the failure at once (G17); the fourth is not sent at 250 s.
    assert_eq!(starts(&record), [0, 100_000, 150_000, 160_000]);
}

#[tokio::test(start_paused = true)]
async fn hedging_throttled_by_its_own_failures_hands_on_the_last() {
    let script = vec![
        busy().text("first").after(s(150)),
        busy().text("second").after(s(60)),
        busy().text("third").after(s(20)),
    ];
    let rig = four_tokens(script);
    let (heard, stop_reason) = rig.told("x").await;
    // Theirs ends with the failure that took the last token, and cancels the others (G14).
    assert_eq!(
        (heard.code, &*heard.text, stop_reason),
        (Code::Unavailable, "third", StopReason::Throttled)
    );
    assert_eq!((rig.elapsed(), rig.control.tokens()), (s(170), Some(1.0)));
    let record = rig.finish().await;
    assert_eq!(starts(&record), [0, 100_000, 150_000]);
    assert_eq!(cancels(&record), [None; 3]);
}
