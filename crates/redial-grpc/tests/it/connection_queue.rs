//! Requests that wait for a connection or a free stream when the connection ends, and channels whose worker
//! task is gone. `checks/channel-only` runs these tests with a smaller tonic, too.

use std::future::Future;
use std::sync::{Arc, Mutex};

use redial_core::Proof;
use redial_faults::grpc::{Answer, Close, OnConnect, Script, Server};
use redial_grpc::{CallOptions, RetryLayer, SharedCallLog};
use tokio::task::AbortHandle;
use tonic::{Code, Request};

use crate::common::harness::{CallOutcome, Harness, RETRY, endpoint, layer, message, ms};

/// Three concurrent calls to a server with one stream at a time: the first is in flight, the second waits
/// inside the connection for a free stream, the third is in the queue of the connection. Then the
/// connection ends.
async fn three_calls(policy: &str) -> [CallOutcome; 3] {
    let script = Script::new().attempts([Answer::close(Close::Graceful).after(ms(50))]);
    let server = Server::new(script.default_answer(Answer::echo())).concurrent_streams(1);
    let harness = Harness::with_layer(layer(policy).build(), server);
    let mut calls = Vec::new();
    for _ in 0..3 {
        let mut client = harness.client.clone();
        let call_log = SharedCallLog::new();
        let mut request = Request::new(message("x"));
        request.extensions_mut().insert(CallOptions::new().call_log(&call_log));
        calls.push((call_log, tokio::spawn(async move { client.unary(request).await })));
        // Each call is queued before the next one starts.
        tokio::time::sleep(ms(1)).await;
    }
    let mut all = Vec::new();
    for (call_log, call) in calls {
        let result = call.await.unwrap();
        all.push(harness.outcome(&call_log, result));
    }
    all.try_into().unwrap()
}

/// An executor whose tasks a test can abort.
#[derive(Clone, Default)]
struct AbortableExecutor(Arc<Mutex<Vec<AbortHandle>>>);

impl<F> hyper::rt::Executor<F> for AbortableExecutor
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    fn execute(&self, future: F) {
        self.0.lock().unwrap().push(tokio::spawn(future).abort_handle());
    }
}

impl AbortableExecutor {
    fn abort_all(&self) {
        self.0.lock().unwrap().iter().for_each(AbortHandle::abort);
    }
}

fn harness_on(executor: &AbortableExecutor, layer: RetryLayer, answer: Answer) -> Harness {
    let endpoint = endpoint().executor(executor.clone());
    Harness::with_endpoint(&endpoint, layer, Server::new(Script::new().default_answer(answer)))
}

#[tokio::test(start_paused = true)]
async fn connection_queue_proves_queued_requests_unsent() {
    let [open, waiting, queued] = three_calls("").await;
    let broken = ["tonic::transport::Error", "hyper", "io BrokenPipe"];
    assert_eq!((open.code(), open.proofs()), (Code::Unavailable, vec![None]));
    assert_eq!(open.chain(), broken);
    // The request was not sent, but hyper returns the same error when a runtime drops a connection after
    // sending, so this is no proof.
    assert_eq!((waiting.code(), waiting.proofs()), (Code::Unavailable, vec![None]));
    let gone = ["tonic::transport::Error", "hyper user", "runtime dropped the dispatch task"];
    assert_eq!(waiting.chain(), gone);
    assert_eq!((queued.code(), queued.starts()), (Code::Ok, vec![0, 48]));
    assert_eq!(queued.proofs(), [Some(Proof::Unsent), None]);
    assert_eq!(queued.previous().last().unwrap(), &None);
}

#[tokio::test(start_paused = true)]
async fn connection_queue_loss_is_retried_by_policy() {
    let [open, waiting, queued] = three_calls(RETRY).await;
    assert_eq!((open.code(), open.starts()), (Code::Ok, vec![0, 100]));
    assert_eq!((waiting.code(), waiting.starts()), (Code::Ok, vec![0, 99]));
    assert_eq!((queued.code(), queued.starts()), (Code::Ok, vec![0, 48]));
    assert_eq!(waiting.previous_attempts_header().as_deref(), Some("1"), "it counts as an attempt");
    assert_eq!(queued.previous_attempts_header(), None, "a transparent retry does not count");
}

#[tokio::test(start_paused = true)]
async fn connection_worker_dead_before_call_fails_without_attempt() {
    let executor = AbortableExecutor::default();
    let mut harness = harness_on(&executor, layer(RETRY).build(), Answer::echo());
    assert_eq!(harness.call().await.code(), Code::Ok);
    executor.abort_all();
    tokio::task::yield_now().await;
    let status = harness.client.unary(message("x")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unknown);
    assert!(status.message().contains("Service was not ready"), "{status:?}");
    assert_eq!(harness.statistics(), (0, 0, 0));
}

/// A channel without its worker never becomes ready, so `waitForReady` does not apply.
#[tokio::test(start_paused = true)]
async fn connection_worker_death_ends_call_at_next_attempt() {
    let fields = format!(r#"{RETRY}, "waitForReady": true"#);
    let executor = AbortableExecutor::default();
    let mut harness = harness_on(&executor, layer(&fields).build(), Answer::hang());
    let (outcome, ()) = tokio::join!(harness.call(), async {
        tokio::time::sleep(ms(10)).await;
        executor.abort_all();
    });
    assert_eq!((outcome.code(), outcome.starts()), (Code::Unknown, vec![0, 60]));
    assert_eq!(outcome.proofs(), [None, None]);
    assert_eq!(outcome.chain(), ["tonic::transport::Error", "buffer's worker closed unexpectedly"]);
    assert_eq!((harness.statistics(), harness.control.bytes_kept()), ((1, 1, 0), 0));
}

#[tokio::test(start_paused = true)]
async fn connection_without_ping_response_is_unavailable() {
    let endpoint = endpoint()
        .http2_keep_alive_interval(ms(100))
        .keep_alive_timeout(ms(30))
        .keep_alive_while_idle(true);
    for (policy, code, starts) in
        [("", Code::Unavailable, vec![0]), (RETRY, Code::Ok, vec![0, 180])]
    {
        let script =
            Script::new().on_connect(OnConnect::SendNothing, ms(0)).attempts([Answer::echo()]);
        let mut harness =
            Harness::with_endpoint(&endpoint, layer(policy).build(), Server::new(script));
        let outcome = harness.call().await;
        assert_eq!((outcome.code(), outcome.starts()), (code, starts));
        if code == Code::Unavailable {
            let chain = outcome.chain();
            assert_eq!(chain[..2], ["tonic::transport::Error", "hyper timeout"]);
            assert_eq!(outcome.proofs(), [None], "the server may have processed it");
        }
    }
}
