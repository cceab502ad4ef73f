//! Outlier detection with real calls.

use std::collections::BTreeMap;
use std::time::Duration;

use redial_echo::EchoRequest;
use redial_grpc_balance::{
    BASE_EJECTION_TIME_DEFAULT, CONSECUTIVE_FAILURES_DEFAULT, ConnectivityState, OutlierDetection,
};
use tokio::time::Instant;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Code;

use super::support::{Client, Log, Pipes, RETRY, config, failing, until};

#[tokio::test(start_paused = true)]
async fn outlier_detection_ejects_a_failing_backend_and_probes_it_once() {
    let (pipes, log) = (Pipes::default(), Log::default());
    let manners: Vec<_> = (1..=3).map(|nth| pipes.serve(nth, &log)).collect();
    manners[0].fail(Code::Unavailable);
    let channel = pipes.to(3, &config("round_robin", RETRY)).build().unwrap();
    let mut client = Client::new(channel.clone());
    for _ in 0..30 {
        client.unary(failing(0)).await.unwrap();
    }
    assert_eq!(log.counts()[&1], CONSECUTIVE_FAILURES_DEFAULT as usize, "then it was left alone");
    assert_eq!(channel.snapshot().backends[0].consecutive_failures, CONSECUTIVE_FAILURES_DEFAULT);
    let left = channel.snapshot().backends[0].ejected_for.unwrap();
    assert!(left > Duration::ZERO && left <= BASE_EJECTION_TIME_DEFAULT);

    log.take();
    tokio::time::sleep(left).await;
    for _ in 0..10 {
        client.unary(failing(0)).await.unwrap();
    }
    assert_eq!(log.counts()[&1], 1, "one call tried it");
    let longer = channel.snapshot().backends[0].ejected_for.unwrap();
    assert!(longer > BASE_EJECTION_TIME_DEFAULT, "the second time is longer");

    manners[0].fail(Code::Ok);
    log.take();
    tokio::time::sleep(longer).await;
    for _ in 0..30 {
        client.unary(failing(0)).await.unwrap();
    }
    assert_eq!(log.counts(), BTreeMap::from([(1, 10), (2, 10), (3, 10)]), "it is back");
    assert_eq!(channel.snapshot().backends[0].ejected_for, None);
}

#[tokio::test(start_paused = true)]
async fn outlier_detection_keeps_backends_in_use_when_all_fail() {
    let (pipes, log) = (Pipes::default(), Log::default());
    for nth in 1..=3 {
        pipes.serve(nth, &log).fail(Code::Unavailable);
    }
    let channel = pipes.to(3, &config("round_robin", "")).build().unwrap();
    let mut client = Client::new(channel.clone());
    for _ in 0..60 {
        assert_eq!(client.unary(failing(0)).await.unwrap_err().message(), "scripted failure");
    }
    let ejected = channel.snapshot().backends.iter().filter(|it| it.ejected_for.is_some()).count();
    assert_eq!(ejected, 1, "at most half of three");
    let alone = pipes.to(1, &config("round_robin", "")).build().unwrap();
    let mut client = Client::new(alone.clone());
    for _ in 0..20 {
        assert_eq!(client.unary(failing(0)).await.unwrap_err().message(), "scripted failure");
    }
    assert_eq!(alone.snapshot().backends[0].ejected_for, None);
}

#[tokio::test(start_paused = true)]
async fn outlier_detection_counts_listed_codes_and_can_be_off() {
    let (pipes, log) = (Pipes::default(), Log::default());
    pipes.serve(1, &log).fail(Code::Internal);
    pipes.serve(2, &log);
    let failures = |outliers: Option<OutlierDetection>| {
        let mut channel = pipes.to(2, &config("round_robin", ""));
        if let Some(outliers) = outliers {
            channel = channel.outlier_detection(outliers);
        }
        let channel = channel.build().unwrap();
        let mut client = Client::new(channel.clone());
        async move {
            for _ in 0..40 {
                let _either = client.unary(failing(0)).await;
            }
            let first = &channel.snapshot().backends[0];
            (first.consecutive_failures, first.ejected_for.is_some())
        }
    };
    assert_eq!(failures(None).await, (0, false), "an error of the application's is an answer");
    let internal = OutlierDetection::default()
        .consecutive_failures(3)
        .codes([redial_grpc_balance::Code::Internal]);
    assert_eq!(failures(Some(internal)).await, (3, true));
    let off = OutlierDetection::off().codes([redial_grpc_balance::Code::Internal]);
    let (failures, ejected) = failures(Some(off)).await;
    assert!(failures > 3 && !ejected);
}

/// A timeout of one second per call, and no retries.
const BOUNDED: &str = r#""timeout": "1s""#;

/// Otherwise the silent backend would keep a third of the calls forever.
#[tokio::test(start_paused = true)]
async fn outlier_detection_ejects_a_silent_backend_after_missed_deadlines() {
    let (pipes, log) = (Pipes::default(), Log::default());
    // Long enough for the deadlines below and for two ejections.
    let vanished = Duration::from_secs(120);
    pipes.close_after_at(1, vanished);
    pipes.serve(2, &log);
    pipes.serve(3, &log);
    let channel = pipes.to(3, &config("round_robin", BOUNDED)).build().unwrap();
    let mut client = Client::new(channel.clone());
    let first = || channel.snapshot().backends[0].clone();
    channel.start();
    until("all are connected", || {
        channel.snapshot().backends.iter().all(|it| it.state == ConnectivityState::Ready)
    })
    .await;
    let started = Instant::now();

    let mut late = 0;
    for _ in 0..30 {
        late += u32::from(is_late(client.unary(failing(0)).await));
        assert_eq!(first().consecutive_failures, late, "each deadline is one failure");
    }
    assert_eq!(late, CONSECUTIVE_FAILURES_DEFAULT, "then it was left alone");
    let left = first().ejected_for.unwrap();
    assert!(left > Duration::ZERO && left <= BASE_EJECTION_TIME_DEFAULT);

    tokio::time::sleep(left).await;
    let mut late = 0;
    for _ in 0..10 {
        late += u32::from(is_late(client.unary(failing(0)).await));
    }
    assert_eq!(late, 1, "one call tried it");
    let longer = first().ejected_for.unwrap();
    assert!(longer > BASE_EJECTION_TIME_DEFAULT, "the second time is longer");

    // The machine is back: its old connection closes, and the next connection attempt succeeds.
    pipes.serve(1, &log);
    tokio::time::sleep_until(started + vanished + longer).await;
    until("it is connected again", || first().state == ConnectivityState::Ready).await;
    log.take();
    for _ in 0..30 {
        client.unary(failing(0)).await.unwrap();
    }
    assert_eq!(log.counts(), BTreeMap::from([(1, 10), (2, 10), (3, 10)]), "it is back");
    assert_eq!(first().ejected_for, None);
}

fn is_late<T>(answer: Result<T, tonic::Status>) -> bool {
    match answer {
        Ok(_) => false,
        Err(status) if status.code() == Code::DeadlineExceeded => true,
        Err(status) => panic!("{status}"),
    }
}

#[tokio::test(start_paused = true)]
async fn outlier_detection_ignores_losing_hedges_and_cancelled_calls() {
    let (pipes, log) = (Pipes::default(), Log::default());
    pipes.close_after_at(1, Duration::from_secs(3600));
    pipes.serve(2, &log);
    pipes.serve(3, &log);
    let hedged = r#""timeout": "1s",
        "hedgingPolicy": { "maxAttempts": 2, "hedgingDelay": "0.1s" }"#;
    let channel = pipes.to(3, &config("round_robin", hedged)).build().unwrap();
    let mut client = Client::new(channel.clone());
    for _ in 0..30 {
        client.unary(failing(0)).await.unwrap();
    }
    assert!(log.counts().values().sum::<usize>() >= 30, "others answered");

    let alone = pipes.to(1, &config("round_robin", BOUNDED)).build().unwrap();
    let mut lonely = Client::new(alone.clone());
    for _ in 0..10 {
        let cancelled = tokio::time::timeout(Duration::from_millis(999), lonely.unary(failing(0)));
        cancelled.await.expect_err("no server responds");
    }
    for channel in [channel, alone] {
        let first = &channel.snapshot().backends[0];
        assert_eq!((first.consecutive_failures, first.in_flight), (0, 0));
        assert_eq!(first.ejected_for, None);
    }
    assert!(is_late(lonely.unary(failing(0)).await));
}

/// A stream that is still open at its deadline is no failure of its backend.
#[tokio::test(start_paused = true)]
async fn outlier_detection_ignores_deadlines_of_streams_with_messages() {
    let (pipes, log) = (Pipes::default(), Log::default());
    pipes.serve(1, &log);
    let channel = pipes.to(1, &config("round_robin", BOUNDED)).build().unwrap();
    let mut client = Client::new(channel.clone());
    for messages in [0, 1] {
        let (ask, queries) = tokio::sync::mpsc::unbounded_channel();
        ask.send(EchoRequest { responses: Some(messages), ..failing(0) }).unwrap();
        let answers = client.bidi(UnboundedReceiverStream::new(queries)).await;
        let mut answers = answers.expect("the headers arrive immediately").into_inner();
        for _ in 0..messages {
            answers.message().await.unwrap().expect("so many answers");
        }
        let before = channel.snapshot().backends[0].consecutive_failures;
        assert!(is_late(answers.message().await), "the stream is open to its end");
        drop((ask, answers));
        assert_eq!(
            channel.snapshot().backends[0].consecutive_failures - before,
            u32::from(messages == 0)
        );
    }
}

/// Otherwise a backend that serves endless streams would get one probe every ten seconds forever.
#[tokio::test(start_paused = true)]
async fn outlier_detection_probe_stream_with_a_message_ends_the_ejection() {
    let (pipes, log) = (Pipes::default(), Log::default());
    let server_control = pipes.serve(1, &log);
    pipes.serve(2, &log);
    let channel = pipes.to(2, &config("round_robin", "")).build().unwrap();
    let mut client = Client::new(channel.clone());
    server_control.fail(Code::Unavailable);
    for _ in 0..4 * CONSECUTIVE_FAILURES_DEFAULT {
        let _either = client.unary(failing(0)).await;
    }
    let first = || channel.snapshot().backends[0].clone();
    tokio::time::sleep(first().ejected_for.expect("it is ejected")).await;
    server_control.fail(Code::Ok);
    log.take();
    let ask = EchoRequest { responses: Some(60), delay_ms: 60_000, ..failing(0) };
    let mut stream = client.server_stream(ask).await.unwrap().into_inner();
    assert_eq!(log.take(), [1], "it tries");
    client.unary(failing(0)).await.unwrap();
    assert!(first().ejected_for.is_some(), "nothing is known yet");
    stream.message().await.unwrap().expect("the first of sixty");
    assert_eq!(first().ejected_for, None, "it answers");
    log.take();
    for _ in 0..10 {
        client.unary(failing(0)).await.unwrap();
    }
    assert_eq!(log.counts(), BTreeMap::from([(1, 5), (2, 5)]));
    drop(stream);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((first().in_flight, first().consecutive_failures), (0, 0));
}
