//! Long address lists and many queued calls. The tests count wakeups, because time says little on a
//! busy machine.

use std::pin::pin;

use redial_grpc_balance::ConnectivityState;
use tokio::task::JoinSet;

use super::support::{Client, Log, Pipes, config, failing, responding_server};

/// How many addresses refuse. The one after them serves.
const REFUSED: usize = 200;

/// The result of the future, and how often it was polled.
async fn polled<T>(future: impl Future<Output = T>) -> (T, usize) {
    let (mut future, mut polls) = (pin!(future), 0);
    let result = std::future::poll_fn(|cx| {
        polls += 1;
        future.as_mut().poll(cx)
    });
    (result.await, polls)
}

#[tokio::test(start_paused = true)]
async fn queued_call_is_not_woken_by_each_refused_address() {
    for balancing in ["pick_first", "round_robin"] {
        let (pipes, log) = (Pipes::default(), Log::default());
        pipes.serve(REFUSED + 1, &log);
        let channel = pipes.to(REFUSED + 1, &config(balancing, "")).build().unwrap();
        let mut calls = JoinSet::new();
        for _ in 0..20 {
            let mut client = Client::new(channel.clone());
            calls.spawn(async move { polled(responding_server(&mut client, failing(0))).await });
        }
        while let Some(call) = calls.join_next().await {
            let (server, polls) = call.unwrap();
            assert_eq!(server.unwrap(), REFUSED + 1);
            // The first poll, the connection, the response and its frames; not one per address.
            assert!(polls < 20, "{balancing}: {polls} polls");
        }
        for nth in 1..=REFUSED {
            assert_eq!(pipes.connect_attempts(nth).len(), 1, "{balancing}: {nth}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn pick_first_without_calls_tries_the_first_address_only() {
    let (pipes, log) = (Pipes::default(), Log::default());
    pipes.serve(3, &log);
    let channel = pipes.to(3, &config("pick_first", "")).build().unwrap();
    channel.start();
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    let states: Vec<_> = channel.snapshot().backends.into_iter().map(|it| it.state).collect();
    let refused = ConnectivityState::TransientFailure("connection refused".to_owned());
    assert_eq!(states, [refused, ConnectivityState::Idle, ConnectivityState::Idle]);
    assert_eq!(responding_server(&mut Client::new(channel), failing(0)).await.unwrap(), 3);
}
