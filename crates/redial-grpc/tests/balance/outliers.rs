//! Backends that keep failing.

use std::collections::BTreeMap;
use std::time::Duration;

use redial_grpc::balance::{AVOIDED_FIRST_DEFAULT, FAILURES_DEFAULT, Outliers};
use tonic::Code;

use crate::rig::{Client, Log, Pipes, RETRY, config, failing};

#[tokio::test(start_paused = true)]
async fn a_backend_that_keeps_failing_is_avoided_and_tried_again_by_one_call() {
    let (pipes, log) = (Pipes::default(), Log::default());
    let manners: Vec<_> = (1..=3).map(|nth| pipes.serve(nth, &log)).collect();
    manners[0].fail(Code::Unavailable);
    let channel = pipes.to(3, &config("round_robin", RETRY)).build().unwrap();
    let mut client = Client::new(channel.clone());
    for _ in 0..30 {
        client.unary(failing(0)).await.unwrap();
    }
    assert_eq!(log.counts()[&1], FAILURES_DEFAULT as usize, "then it was left alone");
    assert_eq!(channel.view().backends[0].failures, FAILURES_DEFAULT);
    let left = channel.view().backends[0].avoided_for.unwrap();
    assert!(left > Duration::ZERO && left <= AVOIDED_FIRST_DEFAULT);

    log.take();
    tokio::time::sleep(left).await;
    for _ in 0..10 {
        client.unary(failing(0)).await.unwrap();
    }
    assert_eq!(log.counts()[&1], 1, "one call tried it");
    let longer = channel.view().backends[0].avoided_for.unwrap();
    assert!(longer > AVOIDED_FIRST_DEFAULT, "the second time is longer");

    manners[0].fail(Code::Ok);
    log.take();
    tokio::time::sleep(longer).await;
    for _ in 0..30 {
        client.unary(failing(0)).await.unwrap();
    }
    assert_eq!(log.counts(), BTreeMap::from([(1, 10), (2, 10), (3, 10)]), "it is back");
    assert_eq!(channel.view().backends[0].avoided_for, None);
}

#[tokio::test(start_paused = true)]
async fn when_all_fail_all_are_still_used() {
    let (pipes, log) = (Pipes::default(), Log::default());
    for nth in 1..=3 {
        pipes.serve(nth, &log).fail(Code::Unavailable);
    }
    let channel = pipes.to(3, &config("round_robin", "")).build().unwrap();
    let mut client = Client::new(channel.clone());
    for _ in 0..60 {
        assert_eq!(client.unary(failing(0)).await.unwrap_err().message(), "as the test says");
    }
    let avoided = channel.view().backends.iter().filter(|it| it.avoided_for.is_some()).count();
    assert_eq!(avoided, 1, "half of three at the most");
    let alone = pipes.to(1, &config("round_robin", "")).build().unwrap();
    let mut client = Client::new(alone.clone());
    for _ in 0..20 {
        assert_eq!(client.unary(failing(0)).await.unwrap_err().message(), "as the test says");
    }
    assert_eq!(alone.view().backends[0].avoided_for, None);
}

#[tokio::test(start_paused = true)]
async fn only_listed_codes_count_and_it_can_be_switched_off() {
    let (pipes, log) = (Pipes::default(), Log::default());
    pipes.serve(1, &log).fail(Code::Internal);
    pipes.serve(2, &log);
    let failures = |outliers: Option<Outliers>| {
        let mut channel = pipes.to(2, &config("round_robin", ""));
        if let Some(outliers) = outliers {
            channel = channel.outliers(outliers);
        }
        let channel = channel.build().unwrap();
        let mut client = Client::new(channel.clone());
        async move {
            for _ in 0..40 {
                let _either = client.unary(failing(0)).await;
            }
            let first = &channel.view().backends[0];
            (first.failures, first.avoided_for.is_some())
        }
    };
    assert_eq!(failures(None).await, (0, false), "an error of the application's is an answer");
    let internal = Outliers::default().failures(3).codes([redial_grpc::Code::Internal]);
    assert_eq!(failures(Some(internal)).await, (3, true));
    let off = Outliers::off().codes([redial_grpc::Code::Internal]);
    let (failures, avoided) = failures(Some(off)).await;
    assert!(failures > 3 && !avoided);
}
