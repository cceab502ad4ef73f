//! Goal: configs that were in force leave nothing behind, however many there were and whatever calls
//! were under way. Method: one thread puts configs in force as fast as it can, while another makes
//! calls of a service in memory that are retried, hedged, streamed and dropped; the bytes that are
//! alive are counted before, meanwhile and after.
//!
//! A part of a million swaps, or as many as `REDIAL_SWAPS` says: `cargo xtask test swaps` makes all.
#![allow(unsafe_code)]

#[path = "../../redial/tests/common/live_bytes.rs"]
mod living;

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use living::live;
use redial_grpc::{RetryLayer, ServiceConfig};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};

/// How many swaps are made if nobody says how many.
const SWAPS: usize = 100_000;

/// What may differ afterwards: `arc_swap` keeps a few slots for threads that once read.
const AFTERWARDS_MAX: usize = 512;

/// What is alive meanwhile stays below this: the configs that calls under way hold are few.
const MEANWHILE_MAX: isize = 1 << 20;

/// Every so many swaps the config comes as text, and once more as a text that is refused.
const TEXT_EVERY: usize = 100;

const TEXTS: [&str; 4] = [
    r#"{ "methodConfig": [{ "name": [{ "service": "a.B" }], "timeout": "60s",
        "retryPolicy": { "maxAttempts": 4, "initialBackoff": "0.001s", "maxBackoff": "0.002s",
        "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"] } }],
        "retryThrottling": { "maxTokens": 100, "tokenRatio": 0.5 } }"#,
    r#"{ "methodConfig": [{ "name": [{ "service": "a.B" }],
        "hedgingPolicy": { "maxAttempts": 3, "hedgingDelay": "0.001s",
        "nonFatalStatusCodes": ["UNAVAILABLE"] } }],
        "retryThrottling": { "maxTokens": 10, "tokenRatio": 1 } }"#,
    r#"{ "methodConfig": [
        { "name": [{ "service": "a.B", "method": "One" }], "maxRequestMessageBytes": 1000 },
        { "name": [{}], "waitForReady": true } ] }"#,
    "{}",
];

/// Answers, after the request was read: UNAVAILABLE to the first attempt of one method, else OK.
async fn answer(mut request: Request<Body>) -> Result<Response<Body>, Infallible> {
    let first = !request.headers().contains_key("grpc-previous-rpc-attempts");
    let fails = first && request.uri().path() == "/a.B/Two";
    tokio::time::sleep(Duration::from_millis(2)).await;
    while let Some(Ok(_)) = request.body_mut().frame().await {}
    let response = Response::builder().header("content-type", "application/grpc");
    let response = response.header("grpc-status", if fails { "14" } else { "0" });
    Ok(response.body(Body::empty()).expect("valid"))
}

/// A message of so many bytes.
fn message(size: u8) -> Bytes {
    [&[0, 0, 0, 0, size][..], &vec![7; size.into()]].concat().into()
}

/// A request of three messages that come one after the other.
fn request(path: &str) -> Request<Body> {
    let (sender, receiver) = mpsc::channel(2);
    tokio::spawn(async move {
        for size in [1, 2, 3] {
            // Who dropped its call reads no more.
            let _ = sender.send(Ok::<_, Infallible>(Frame::data(message(size)))).await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    let body = StreamBody::new(ReceiverStream::new(receiver));
    Request::post(path).body(Body::new(body)).expect("valid")
}

/// Makes calls until it is told to stop; how many.
fn calls(layer: RetryLayer, stop: &AtomicBool) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let mut service = ServiceBuilder::new().layer(layer).service(service_fn(answer));
        let mut made = 0;
        loop {
            for path in ["/a.B/One", "/a.B/Two", "/c.D/Three"] {
                let one = service.ready().await.expect("ready").call(request(path));
                let dropped = service.ready().await.expect("ready").call(request(path));
                let dropped = tokio::time::timeout(Duration::from_millis(1), dropped);
                let (one, dropped) = tokio::join!(one, dropped);
                assert!(dropped.is_err(), "nothing answers so early");
                // Without a policy the status is returned, as an error that holds it.
                assert!(one.map_or_else(|error| error.is::<tonic::Status>(), |_| true));
                made += 2;
            }
            if stop.load(Ordering::Relaxed) {
                return made;
            }
        }
    })
}

/// Puts so many configs in force while calls are made; the most that was alive.
fn swap(layer: &RetryLayer, configs: &[ServiceConfig], swaps: usize) -> isize {
    let stop = AtomicBool::new(false);
    let control = layer.control();
    let mut most = 0;
    std::thread::scope(|scope| {
        let calls = scope.spawn(|| calls(layer.clone(), &stop));
        for swap in 0..swaps {
            let place = swap % configs.len();
            if swap % TEXT_EVERY == 0 {
                assert!(control.set_json(TEXTS[place]).is_ok());
                assert!(control.set_json("{ \"methodConfig\": 7 }").is_err());
            } else {
                control.set_config(configs[place].clone());
            }
            most = most.max(live());
        }
        stop.store(true, Ordering::Relaxed);
        assert!(calls.join().expect("no call panics") > 0);
    });
    let entries = control.config().entries().len();
    assert_eq!(entries, configs[(swaps - 1) % configs.len()].entries().len());
    assert_eq!(control.bytes_kept(), 0);
    // One that no call has used, so that what it remembers of calls is the same each time.
    control.set_config(configs[0].clone());
    most
}

#[test]
fn a_million_config_swaps_leave_memory_where_it_was() {
    let swaps = std::env::var("REDIAL_SWAPS");
    let swaps = swaps.map_or(SWAPS, |swaps| swaps.parse().expect("a number"));
    let configs = TEXTS.map(|text| ServiceConfig::parse(text).expect("valid"));
    let layer = RetryLayer::builder().config(configs[0].clone()).build();
    // What the process allocates once, at its first use, is not a leak.
    swap(&layer, &configs, 1000);
    let before = live();
    let most = swap(&layer, &configs, swaps);
    let after = live();
    assert!(after.abs_diff(before) <= AFTERWARDS_MAX, "{before} bytes before, {after} after");
    assert!(most - before < MEANWHILE_MAX, "{} bytes more meanwhile", most - before);
}
