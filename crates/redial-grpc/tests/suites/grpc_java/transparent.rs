//! Attempts that provably did not run are replaced.

use redial_core::StopReason;
use redial_faults::grpc::{Answer, Reason, Script, Server, StatusNumber as Said};
use redial_grpc::{CallOptions, RetryLayer, SharedCallLog};
use tonic::Code;

use super::retrying;
use crate::suites::rig::*;

fn refused() -> Answer {
    Answer::reset(Reason::REFUSED_STREAM)
}

#[tokio::test(start_paused = true)]
async fn transparent_retry_happens_only_once_after_a_refusal() {
    let rig = rig(&retrying(), [refused(), refused(), replies("a")]);
    let heard = rig.unary("x").await;
    assert_eq!((heard.code, heard.previous), (Code::Ok, Some(1)));
    let statistics = rig.statistics("Unary").retries;
    assert_eq!((statistics.transparent, statistics.retries, statistics.failed), (1, 1, 0));
    let record = rig.finish().await;
    assert_eq!(starts(&record), [0, 0, 100_000]);
    assert_eq!(previous(&record), [None, None, Some(1)]);
}

#[tokio::test(start_paused = true)]
async fn transparent_retry_goes_on_for_what_was_never_sent_up_to_a_thousand_times() {
    // Theirs has no delays between them, and gives up after ten thousand (G27).
    let script = Script::new().attempts(vec![Answer::unsent(); 1001]);
    let rig = rig(&retrying().replace("UNAVAILABLE", "ABORTED"), script);
    let call_log = SharedCallLog::new();
    let mut asked = tonic::Request::new(request("x"));
    asked.extensions_mut().insert(CallOptions::new().call_log(&call_log));
    let heard = rig.ask(asked).await;
    assert_eq!((heard.code, heard.previous), (Code::Unavailable, None));
    assert_eq!(stop_reason(&call_log), StopReason::NotRetryable);
    assert_eq!(rig.statistics("Unary").retries.transparent, 1000);
    let record = rig.finish().await;
    assert_eq!((record.counts.streams, record.counts.connections), (0, 1001));
    let opened: Vec<_> = record.connections.iter().map(|it| it.opened.as_millis()).collect();
    assert_eq!(opened[..9], [0, 0, 10, 30, 70, 150, 310, 630, 1270]);
    assert_eq!(opened[9..11], [2270, 3270]);
}

#[tokio::test(start_paused = true)]
async fn normal_retry_then_a_refusal_is_still_replaced_once() {
    // Theirs replaces nothing once an attempt was processed (G26).
    let rig = rig(&retrying(), [fails(Said::UNAVAILABLE), refused(), refused(), replies("a")]);
    let heard = rig.unary("x").await;
    assert_eq!((heard.code, heard.previous), (Code::Ok, Some(2)));
    let record = rig.finish().await;
    assert_eq!(starts(&record), [0, 100_000, 100_000, 300_000]);
    assert_eq!(previous(&record), [None, Some(1), Some(1), Some(2)]);
}

#[tokio::test(start_paused = true)]
async fn normal_retry_then_a_second_refusal_that_is_not_retryable_ends_the_call() {
    let script = [fails(Said::DATA_LOSS), refused(), refused()];
    let rig = rig(&retrying().replace("UNAVAILABLE", "ABORTED"), script);
    let (heard, stop_reason) = rig.told("x").await;
    assert_eq!(
        (heard.code, heard.previous, stop_reason),
        (Code::Unavailable, Some(1), StopReason::NotRetryable)
    );
    assert_eq!(starts(&rig.finish().await), [0, 100_000, 100_000]);
}

#[tokio::test(start_paused = true)]
async fn without_a_policy_a_transparent_retry_happens_and_commits_nothing_early() {
    let script = [refused(), fails(Said::UNAVAILABLE)];
    let rig = rig_of(RetryLayer::builder(), Server::new(script));
    let mut talk = rig.bidi();
    talk.write(&["1"]);
    let status = talk.head().await.unwrap_err();
    assert_eq!((status.code(), talk.stop_reason()), (Code::Unavailable, StopReason::NotRetryable));
    let record = rig.finish().await;
    assert_eq!(previous(&record), [None, None]);
    assert_eq!(payloads(&record.streams[1]), ["1"]);
}

#[tokio::test(start_paused = true)]
async fn transparent_retry_that_is_cancelled_while_it_starts_leaves_nothing() {
    // The first time nothing is sent, the replacement is due at once, then after 10 ms.
    for moment in [1, 5, 10, 11] {
        let rig = rig(&retrying(), vec![Answer::unsent(), Answer::unsent(), Answer::hang()]);
        let call = rig.spawn("x");
        at(&rig, ms(moment)).await;
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
        rig.settle().await;
        assert_eq!(rig.statistics("Unary").retries.retries, 0);
        let record = rig.finish().await;
        // In the moment of its start it may or may not be there already.
        match moment {
            10 => assert!(record.streams.len() <= 1),
            11 => assert_eq!(record.streams.len(), 1),
            _ => assert_eq!((record.streams.len(), record.counts.connections), (0, 2)),
        }
        assert!(cancels(&record).iter().all(Option::is_some), "{moment}: {record:#?}");
    }
}
