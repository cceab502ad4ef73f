//! Config swaps do not leak memory, even with calls in flight.
//!
//! One thread swaps configs as fast as it can, while another makes calls to an in-memory service that are
//! retried, hedged, streamed and cancelled. The live heap bytes are compared before, during and after.
//!
//! `REDIAL_SWAPS` sets the number of swaps; `cargo xtask test swaps` makes a million.
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

/// The default number of swaps.
const SWAPS: usize = 100_000;

/// The allowed difference afterwards: `arc_swap` keeps a few slots per reader thread.
const AFTERWARDS_MAX: usize = 512;

/// The allowed growth meanwhile: calls in flight hold only a few old configs.
const MEANWHILE_MAX: isize = 1 << 20;

/// Every so many swaps the config is set as JSON, followed by an invalid one.
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

/// Responds after the request was read: UNAVAILABLE to the first attempt of one method, otherwise OK.
async fn answer(mut request: Request<Body>) -> Result<Response<Body>, Infallible> {
    let first = !request.headers().contains_key("grpc-previous-rpc-attempts");
    let fails = first && request.uri().path() == "/a.B/Two";
    tokio::time::sleep(Duration::from_millis(2)).await;
    while let Some(Ok(_)) = request.body_mut().frame().await {}
    let response = Response::builder().header("content-type", "application/grpc");
    let response = response.header("grpc-status", if fails { "14" } else { "0" });
    Ok(response.body(Body::empty()).expect("valid"))
}

/// A message of this many bytes, with its prefix.
fn message(size: u8) -> Bytes {
    [&[0, 0, 0, 0, size][..], &vec![7; size.into()]].concat().into()
}

/// A streaming request of three messages.
fn request(path: &str) -> Request<Body> {
    let (sender, receiver) = mpsc::channel(2);
    tokio::spawn(async move {
        for size in [1, 2, 3] {
            // Fails if the call was cancelled.
            let _ = sender.send(Ok::<_, Infallible>(Frame::data(message(size)))).await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    let body = StreamBody::new(ReceiverStream::new(receiver));
    Request::post(path).body(Body::new(body)).expect("valid")
}

/// Makes calls until `stop` is set, and returns their number.
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
                assert!(dropped.is_err(), "no response arrives so early");
                // Without a policy the failure is returned as an error that contains the status.
                assert!(one.map_or_else(|error| error.is::<tonic::Status>(), |_| true));
                made += 2;
            }
            if stop.load(Ordering::Relaxed) {
                return made;
            }
        }
    })
}

/// Swaps configs while calls are made, and returns the maximum of live bytes.
fn swap(layer: &RetryLayer, configs: &[ServiceConfig], swaps: usize) -> isize {
    let stop = AtomicBool::new(false);
    let control = layer.control();
    let mut most = 0;
    std::thread::scope(|scope| {
        let calls = scope.spawn(|| calls(layer.clone(), &stop));
        for swap in 0..swaps {
            let index = swap % configs.len();
            if swap % TEXT_EVERY == 0 {
                assert!(control.set_json(TEXTS[index]).is_ok());
                assert!(control.set_json("{ \"methodConfig\": 7 }").is_err());
            } else {
                control.set_config(configs[index].clone());
            }
            most = most.max(live());
        }
        stop.store(true, Ordering::Relaxed);
        assert!(calls.join().expect("no call panics") > 0);
    });
    let entries = control.config().entries().len();
    assert_eq!(entries, configs[(swaps - 1) % configs.len()].entries().len());
    assert_eq!(control.bytes_kept(), 0);
    // A fresh config without per-method state, so that both measurements are comparable.
    control.set_config(configs[0].clone());
    most
}

#[test]
fn config_swaps_do_not_leak_memory() {
    let swaps = std::env::var("REDIAL_SWAPS");
    let swaps = swaps.map_or(SWAPS, |swaps| swaps.parse().expect("a number"));
    let configs = TEXTS.map(|text| ServiceConfig::parse(text).expect("valid"));
    let layer = RetryLayer::builder().config(configs[0].clone()).build();
    // Allocations at the first use are not a leak.
    swap(&layer, &configs, 1000);
    let before = live();
    let most = swap(&layer, &configs, swaps);
    let after = live();
    assert!(after.abs_diff(before) <= AFTERWARDS_MAX, "{before} bytes before, {after} after");
    assert!(most - before < MEANWHILE_MAX, "{} bytes more meanwhile", most - before);
}
