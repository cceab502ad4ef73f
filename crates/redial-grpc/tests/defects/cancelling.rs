//! Calls that nobody waits for any more.

use std::time::Duration;

use redial::{Event, StopReason};
use redial_echo::EchoRequest;
use redial_faults::grpc::{Answer, How, Reason, Script, Server, StatusNumber as Peer};
use redial_grpc::{CallOptions, Retries, SharedCallLog};
use tokio::runtime::Handle;
use tokio_stream::StreamExt as _;
use tonic::Request;
use tower_service::Service as _;

use super::rig::{HEDGE, RETRY, Rig, layer, message, ms, raw_request};

const CANCELLED: How = How::ResetByClient(Reason::CANCEL);

fn busy() -> Answer {
    Answer::trailers_only(Peer::UNAVAILABLE)
}

/// In grpc-java a call that is cancelled while its last entry is replayed never cancels its stream
/// (#8393).
///
/// Red: keep the attempt (`std::mem::forget(self.rare.take());` in the `drop` of `Pending`).
#[tokio::test(start_paused = true)]
async fn cancel_while_replaying_cancels_wire_stream() {
    // The retry's window is shut in the middle of what the first attempt was sent.
    for accepts in [0, 1, 2] {
        let first = busy().once(redial_faults::grpc::Once::Messages(3));
        let mut rig = Rig::new(RETRY, [first, Answer::hang().accepts(accepts)]);
        let messages = tokio_stream::iter((0..3).map(|_| message(&"m".repeat(20_000))));
        // The application keeps its side open.
        let messages = messages.chain(tokio_stream::pending::<EchoRequest>());
        let call = rig.client.client_stream(messages);
        assert!(tokio::time::timeout(ms(100), call).await.is_err());
        tokio::time::timeout(ms(1), rig.server.idle()).await.expect("the stream is over");
        let record = rig.server.record();
        assert_eq!((record.streams.len(), record.streams[1].messages), (2, accepts));
        let end = record.streams[1].end.unwrap();
        assert_eq!((end.how, end.at), (CANCELLED, ms(100)), "after {accepts} messages");
        assert_eq!(rig.control.bytes_kept(), 0);
    }
}

/// In grpc-java a stream is leaked when cancelling races with its start (#13034).
///
/// Red: do not give back what is held (no `self.release()` in the `drop` of `Held`).
#[tokio::test(start_paused = true)]
async fn drop_before_first_poll_leaks_nothing() {
    for policy in [RETRY, HEDGE] {
        let rig = Rig::new(policy, Script::new().otherwise(Answer::hang()));
        let mut service = rig.service();
        let settled = async || {
            tokio::time::sleep(ms(1)).await;
            Handle::current().metrics().num_alive_tasks()
        };
        let call_log = SharedCallLog::new();
        let mut request = raw_request(b"0123456789");
        request.extensions_mut().insert(CallOptions::new().call_log(&call_log));
        std::future::poll_fn(|cx| service.poll_ready(cx)).await.unwrap();
        let before = settled().await;
        let call = service.call(request);
        assert_eq!(rig.control.bytes_kept(), 15);
        drop(call);
        assert_eq!(rig.control.bytes_kept(), 0);
        let last = call_log.read().events().last().unwrap().1;
        assert_eq!(last, Event::CallEnded { stop_reason: StopReason::Cancelled, attempt: None });
        tokio::time::sleep(ms(1_000)).await;
        assert_eq!(settled().await, before, "no task is left");
        let open = rig.server.record().streams.iter().filter(|it| it.end.is_none()).count();
        assert_eq!((open, rig.statistics(), rig.tokens()), (0, (0, 0, 0), 10_000));
    }
}

/// In grpc-js calls that are cancelled are never freed where only transparent retries are on
/// (grpc-node#2301).
///
/// Red: keep the call's state in its box (no `place.forget_state();` in `refund`).
#[tokio::test(start_paused = true)]
async fn cancelled_call_frees_everything() {
    for retries in [Retries::Transparent, Retries::All, Retries::Off] {
        let script = Script::new().attempts([Answer::reply("")]).otherwise(Answer::hang());
        let mut rig = Rig::of(layer(RETRY).retries(retries).build(), Server::new(script));
        rig.client.unary(message("warm")).await.unwrap();
        let settled = async || {
            tokio::time::sleep(ms(1)).await;
            Handle::current().metrics().num_alive_tasks()
        };
        let before = settled().await;
        for after in [0, 1, 20] {
            let call_log = SharedCallLog::new();
            let mut request = Request::new(message("x"));
            request.extensions_mut().insert(CallOptions::new().call_log(&call_log));
            let call = rig.client.unary(request);
            assert!(tokio::time::timeout(Duration::from_millis(after), call).await.is_err());
            assert_eq!(settled().await, before, "{retries:?} after {after} ms");
            assert_eq!((rig.control.bytes_kept(), rig.server.counts().streams_open), (0, 0));
            let last = call_log.read().events().last().unwrap().1;
            assert_eq!(
                last,
                Event::CallEnded { stop_reason: StopReason::Cancelled, attempt: None }
            );
        }
        let streams = rig.server.record().streams;
        assert!(streams[1..].iter().all(|it| it.end.unwrap().how == CANCELLED));
    }
}
