//! What is kept for repetition.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use redial_echo::EchoRequest;
use redial_faults::grpc::{
    Answer, Close, Door, LastStream, Once, Reason, Script, Server, StatusNumber as Peer, Stream,
};
use tokio_stream::StreamExt as _;
use tonic::{Request, Status};
use tower_service::Service as _;

use super::rig::{HEDGE, RETRY, Rig, framed, layer, message, ms, raw_of};

fn busy() -> Answer {
    Answer::trailers_only(Peer::UNAVAILABLE)
}

/// In grpc-java buffers are leaked when a retry starts (#9340).
///
/// Red: do not give back what is held (no `self.release()` in the `drop` of `Held`).
#[tokio::test(start_paused = true)]
async fn buffer_meter_returns_to_zero_after_every_outcome() {
    let scripts = || -> Vec<Script> {
        let doors = [Door::Refused, Door::ClosedAtOnce, Door::ClosedAfterPreface];
        let doors = doors.map(|door| Script::new().door(door, ms(0)).otherwise(Answer::echo()));
        let lists: Vec<Vec<Answer>> = vec![
            vec![Answer::echo()],
            vec![busy(), Answer::echo()],
            vec![busy(); 3],
            vec![busy().pushback("-1")],
            vec![Answer::trailers_only(Peer::ABORTED)],
            vec![Answer::trailers_only(Peer::OK)],
            vec![Answer::headers().message("").trailers(Peer::UNAVAILABLE)],
            vec![Answer::headers().then_reset(Reason::CANCEL)],
            vec![Answer::reset(Reason::REFUSED_STREAM), Answer::echo()],
            vec![Answer::reset(Reason::REFUSED_STREAM); 3],
            vec![Answer::go_away(LastStream::Below, Reason::NO_ERROR), Answer::echo()],
            vec![Answer::close(Close::Abrupt), Answer::hang()],
            vec![Answer::hang(), busy(), Answer::echo()],
            vec![Answer::hang(); 3],
        ];
        doors.into_iter().chain(lists.into_iter().map(Script::from)).collect()
    };
    for policy in [RETRY, HEDGE, ""] {
        for limit in [1 << 20, 10] {
            for script in scripts() {
                let what = format!("{script:?} with {policy:?}");
                let layer = layer(policy).per_rpc_buffer_limit_in_bytes(limit).build();
                let server = Server::new(script.otherwise(Answer::trailers_only(Peer::ABORTED)));
                let mut rig = Rig::of(layer, server);
                let messages = tokio_stream::iter(["a", "b", "c"].map(message));
                let mut request = Request::new(messages);
                request.set_timeout(ms(500));
                let (first, second) = (rig.client.clone(), &mut rig.client);
                // One call of each kind at once, and both are over.
                let unary = async { first.clone().unary(message("x")).await.is_ok() };
                let stream = async { second.client_stream(request).await.is_ok() };
                let _ =
                    tokio::time::timeout(ms(2_000), async { tokio::join!(unary, stream) }).await;
                assert_eq!(rig.control.bytes_kept(), 0, "{what}");
            }
        }
    }
}

/// In grpc-go a buffer went back to its pool while a replay still read it (#3292). Bytes cannot do
/// that here; that each attempt is sent the same is left to show.
///
/// Red: begin one frame later (`next: 1` in `Replay::tape` for attempts above the first).
#[tokio::test(start_paused = true)]
async fn replay_bytes_identical() {
    for policy in [RETRY, HEDGE] {
        // Sizes around those at which frames are cut: tonic's 32 KiB, HTTP/2's 16 KiB, windows.
        let sizes = [0, 1, 16_379, 16_384, 32_763, 32_768, 65_530, 65_536, 200_000, 3];
        let payloads = sizes.map(|size| {
            let bytes = (0..size).map(|place| (place * 31 + size) as u8);
            EchoRequest { payload: bytes.collect::<Vec<_>>().into(), ..EchoRequest::default() }
        });
        let slow = busy().once(Once::Request).after(ms(100));
        let script = [slow.clone(), slow, Answer::reply("").once(Once::Request).after(ms(100))];
        let mut rig = Rig::new(policy, script);
        // The application is still writing while attempts read.
        let (send, receive) = tokio::sync::mpsc::channel(1);
        tokio::spawn(async move {
            for payload in payloads {
                send.send(payload).await.unwrap();
                tokio::time::sleep(ms(3)).await;
            }
        });
        let messages = tokio_stream::wrappers::ReceiverStream::new(receive);
        rig.client.client_stream(messages).await.unwrap();
        let streams = rig.server.record().streams;
        assert_eq!(streams.len(), 3);
        for stream in &streams {
            assert_eq!(stream.messages, 10);
            assert_eq!((stream.bytes, stream.digest), (streams[0].bytes, streams[0].digest));
        }
    }
}

/// A frame that is counted as long as anybody holds it.
struct Counted {
    bytes: Bytes,
    live: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A request of so many messages of 1,005 bytes each, which are there whenever they are asked for.
struct Written {
    /// How many frames somebody holds.
    live: Arc<AtomicUsize>,
    /// How many it were at the most.
    most: Arc<AtomicUsize>,
}

impl Written {
    fn new() -> Self {
        Written { live: Arc::default(), most: Arc::default() }
    }

    fn request(&self, mut each: impl FnMut() + Send + 'static) -> http::Request<tonic::body::Body> {
        let (live, most) = (self.live.clone(), self.most.clone());
        let frames = tokio_stream::iter(0..MESSAGES).map(move |_| {
            most.fetch_max(live.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            each();
            let frame = Counted { bytes: framed(&[7; 1_000]), live: live.clone() };
            Ok::<_, Status>(Frame::data(Bytes::from_owner(frame)))
        });
        raw_of(tonic::body::Body::new(StreamBody::new(frames)))
    }

    /// All of it has arrived, and nobody held more than a fifth of it at once: what the limit
    /// allows, and what is in the hands of the connection.
    fn has_passed(&self, stream: &Stream) {
        assert_eq!((stream.messages, stream.bytes), (MESSAGES as u64, MESSAGES as u64 * 1_005));
        assert_eq!(self.live.load(Ordering::Relaxed), 0);
        let most = self.most.load(Ordering::Relaxed);
        assert!(most < MESSAGES / 5, "{most} frames at once");
    }
}

const MESSAGES: usize = 10_000;

/// In grpc-java a long stream to which no headers come is kept to its end (#10637).
///
/// Red: keep all of it (`|| self.held.add(..) || true` in `Inner::keep`).
#[tokio::test(start_paused = true)]
async fn bidi_without_headers_bounded_by_per_rpc_limit() {
    const LIMIT: u64 = 100_000;
    let layer = layer(RETRY).per_rpc_buffer_limit_in_bytes(LIMIT).build();
    let answer = Answer::reply("").once(Once::Request);
    let rig = Rig::of(layer, Server::new([answer]).payload_bytes_kept(0));
    let (written, kept) = (Written::new(), Arc::new(AtomicU64::new(0)));
    let (control, seen) = (rig.control.clone(), kept.clone());
    let request = written.request(move || {
        seen.fetch_max(control.bytes_kept(), Ordering::Relaxed);
    });
    let mut service = rig.service();
    std::future::poll_fn(|cx| service.poll_ready(cx)).await.unwrap();
    let response = service.call(request).await.unwrap();
    assert_eq!(response.status(), 200);
    let kept = kept.load(Ordering::Relaxed);
    assert!((LIMIT / 2..=LIMIT).contains(&kept), "{kept}");
    assert_eq!(rig.control.bytes_kept(), 0);
    written.has_passed(&rig.server.record().streams[0]);
}

/// In grpc-js what is written on a long stream is kept for ever, though the call belongs to one
/// attempt (grpc-node#2371).
///
/// Red: hand out what is kept without taking it (`if self.beyond.is_none()` in place of
/// `if self.chosen.is_none()` in `Inner::frame`).
#[tokio::test(start_paused = true)]
async fn long_stream_after_commit_constant_memory() {
    // The retry has its headers at once, and reads until the clock has nothing else to do.
    let served = Answer::headers().once(Once::Headers).trailers(Peer::OK).after(ms(10_000));
    let script = [busy().once(Once::Headers).accepts(1), served];
    let rig = Rig::of(layer(RETRY).build(), Server::new(script).payload_bytes_kept(0));
    let written = Written::new();
    let mut service = rig.service();
    std::future::poll_fn(|cx| service.poll_ready(cx)).await.unwrap();
    let mut response = service.call(written.request(|| {})).await.unwrap().into_body();
    assert_eq!(rig.control.bytes_kept(), 0, "it belongs to an attempt");
    let trailers = response.frame().await.unwrap().unwrap().into_trailers().unwrap();
    assert_eq!(trailers["grpc-status"], "0");
    written.has_passed(&rig.server.record().streams[1]);
}
