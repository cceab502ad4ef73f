//! Requests that wait when their connection or their channel ends.

use std::future::Future;
use std::sync::{Arc, Mutex};

use redial_core::Proof;
use redial_faults::grpc::{Answer, Close, Door, Script, Server};
use redial_grpc::{CallOptions, RetryLayer, SharedCallLog};
use tokio::task::AbortHandle;
use tonic::{Code, Request};

use super::rig::{RETRY, Rig, Told, endpoint, layer, message, ms};

/// Three calls at once to a server that takes one stream at a time: the first is under way, the
/// second waits in the connection for its turn, the third in the connection's queue. Then the
/// connection ends.
async fn three_calls(policy: &str) -> [Told; 3] {
    let script = Script::new().attempts([Answer::close(Close::Orderly).after(ms(50))]);
    let server = Server::new(script.otherwise(Answer::echo())).concurrent_streams(1);
    let rig = Rig::of(layer(policy).build(), server);
    let mut calls = Vec::new();
    for _ in 0..3 {
        let mut client = rig.client.clone();
        let call_log = SharedCallLog::new();
        let mut request = Request::new(message("x"));
        request.extensions_mut().insert(CallOptions::new().call_log(&call_log));
        calls.push((call_log, tokio::spawn(async move { client.unary(request).await })));
        // Each has its place before the next comes.
        tokio::time::sleep(ms(1)).await;
    }
    let mut all = Vec::new();
    for (call_log, call) in calls {
        let result = call.await.unwrap();
        all.push(rig.told(&call_log, result));
    }
    all.try_into().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_queued_request_is_unsent_and_one_that_waits_for_its_turn_proves_nothing() {
    let [open, waiting, queued] = three_calls("").await;
    let broken = ["tonic::transport::Error", "hyper", "io BrokenPipe"];
    assert_eq!((open.code(), open.proofs()), (Code::Unavailable, vec![None]));
    assert_eq!(open.chain(), broken);
    // It never left, but the same error comes when a runtime drops a connection after it did: a gap
    // that only who owns the connection can close.
    assert_eq!((waiting.code(), waiting.proofs()), (Code::Unavailable, vec![None]));
    let gone = ["tonic::transport::Error", "hyper user", "runtime dropped the dispatch task"];
    assert_eq!(waiting.chain(), gone);
    assert_eq!((queued.code(), queued.starts()), (Code::Ok, vec![0, 48]));
    assert_eq!(queued.proofs(), [Some(Proof::Unsent), None]);
    assert_eq!(queued.previous().last().unwrap(), &None);
}

#[tokio::test(start_paused = true)]
async fn with_a_policy_all_three_end_well() {
    let [open, waiting, queued] = three_calls(RETRY).await;
    assert_eq!((open.code(), open.starts()), (Code::Ok, vec![0, 100]));
    assert_eq!((waiting.code(), waiting.starts()), (Code::Ok, vec![0, 99]));
    assert_eq!((queued.code(), queued.starts()), (Code::Ok, vec![0, 48]));
    assert_eq!(waiting.previous_told().as_deref(), Some("1"), "it counts as an attempt");
    assert_eq!(queued.previous_told(), None, "and this does not");
}

/// An executor whose tasks a test can end.
#[derive(Clone, Default)]
struct Mortal(Arc<Mutex<Vec<AbortHandle>>>);

impl<F> hyper::rt::Executor<F> for Mortal
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    fn execute(&self, future: F) {
        self.0.lock().unwrap().push(tokio::spawn(future).abort_handle());
    }
}

impl Mortal {
    fn end(&self) {
        self.0.lock().unwrap().iter().for_each(AbortHandle::abort);
    }
}

fn on(executor: &Mortal, layer: RetryLayer, answer: Answer) -> Rig {
    let endpoint = endpoint().executor(executor.clone());
    Rig::over(&endpoint, layer, Server::new(Script::new().otherwise(answer)))
}

#[tokio::test(start_paused = true)]
async fn a_channel_that_is_dead_before_the_call_fails_it_without_an_attempt() {
    let executor = Mortal::default();
    let mut rig = on(&executor, layer(RETRY).build(), Answer::echo());
    assert_eq!(rig.call().await.code(), Code::Ok);
    executor.end();
    tokio::task::yield_now().await;
    let status = rig.client.unary(message("x")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unknown);
    assert!(status.message().contains("Service was not ready"), "{status:?}");
    assert_eq!(rig.statistics(), (0, 0, 0));
}

/// A dead channel stays dead: waiting for it would be for ever.
#[tokio::test(start_paused = true)]
async fn a_channel_that_dies_under_a_call_ends_it_at_the_next_attempt() {
    let fields = format!(r#"{RETRY}, "waitForReady": true"#);
    let executor = Mortal::default();
    let mut rig = on(&executor, layer(&fields).build(), Answer::hang());
    let (told, ()) = tokio::join!(rig.call(), async {
        tokio::time::sleep(ms(10)).await;
        executor.end();
    });
    assert_eq!((told.code(), told.starts()), (Code::Unknown, vec![0, 60]));
    assert_eq!(told.proofs(), [None, None]);
    assert_eq!(told.chain(), ["tonic::transport::Error", "buffer's worker closed unexpectedly"]);
    assert_eq!((rig.statistics(), rig.control.bytes_kept()), ((1, 1, 0), 0));
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_answers_no_ping_is_unavailable() {
    let endpoint = endpoint()
        .http2_keep_alive_interval(ms(100))
        .keep_alive_timeout(ms(30))
        .keep_alive_while_idle(true);
    for (policy, code, starts) in
        [("", Code::Unavailable, vec![0]), (RETRY, Code::Ok, vec![0, 180])]
    {
        let script = Script::new().door(Door::Silent, ms(0)).attempts([Answer::echo()]);
        let mut rig = Rig::over(&endpoint, layer(policy).build(), Server::new(script));
        let told = rig.call().await;
        assert_eq!((told.code(), told.starts()), (code, starts));
        if code == Code::Unavailable {
            let chain = told.chain();
            assert_eq!(chain[..2], ["tonic::transport::Error", "hyper timeout"]);
            assert_eq!(told.proofs(), [None], "it may have run");
        }
    }
}
