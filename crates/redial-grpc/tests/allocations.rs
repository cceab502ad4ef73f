//! Heap allocations of a call through the layer: none with retries disabled, few otherwise. The inner
//! service responds at once, and the request body counts how often it is polled.

// The counting allocator implements `GlobalAlloc`.
#![allow(unsafe_code)]

#[path = "../../redial/tests/common/allocation_count.rs"]
mod counting;

use std::cell::Cell;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use counting::allocations;
use http::{HeaderValue, Request, Response};
use http_body::{Body, Frame};
use redial_grpc::{BackendId, Replay, Retries, RetryLayer, UsedBackends};
use tower::{Layer, Service};

thread_local! {
    /// How often the request bodies of this thread were polled.
    static POLLS: Cell<u32> = const { Cell::new(0) };
}

/// A body with one message of five bytes, or its replay in an attempt; neither is boxed.
enum Message {
    Own(bool),
    Replayed(Replay<Message>),
}

impl Body for Message {
    type Data = Bytes;
    type Error = redial_grpc::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match &mut *self {
            Message::Own(sent) => {
                POLLS.set(POLLS.get() + 1);
                let first = !std::mem::replace(sent, true);
                let frame = first.then(|| Ok(Frame::data(Bytes::from_static(&[0; 5]))));
                Poll::Ready(frame)
            }
            Message::Replayed(replay) => {
                Pin::new(replay).poll_frame(cx).map(|it| it.map(|it| it.map_err(Into::into)))
            }
        }
    }
}

/// Responds at once with Trailers-Only OK, without polling the request body.
#[derive(Clone)]
struct ImmediateService;

impl Service<Request<Message>> for ImmediateService {
    type Response = Response<Message>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Message>, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Message>) -> Self::Future {
        if let Some(used) = request.extensions().get::<UsedBackends>() {
            used.record(BackendId::new(1));
        }
        let mut response = Response::new(Message::Own(true));
        response.headers_mut().insert("grpc-status", HeaderValue::from_static("0"));
        ready(Ok(response))
    }
}

/// The allocations of one call, without those of the request and the response.
fn allocations_of_call(retries: Retries) -> u64 {
    let layer = RetryLayer::builder().retries(retries).build().adapter(Message::Replayed);
    let mut channel = layer.layer(ImmediateService);
    let mut call = move || {
        let mut request = Request::new(Message::Own(false));
        *request.uri_mut() = http::Uri::from_static("/a.B/C");
        let mut cx = Context::from_waker(Waker::noop());
        assert!(channel.poll_ready(&mut cx).is_ready());
        let polled = pin!(channel.call(request)).poll(&mut cx);
        assert!(matches!(polled, Poll::Ready(Ok(_))));
    };
    let alone = || {
        let mut request = Request::new(Message::Own(false));
        *request.uri_mut() = http::Uri::from_static("/a.B/C");
        drop(pin!(ImmediateService.call(request)).poll(&mut Context::from_waker(Waker::noop())));
    };
    // The first call allocates the state of the method.
    call();
    let bare = allocations(alone);
    allocations(call) - bare
}

#[test]
fn allocations_with_retries_disabled_are_zero() {
    POLLS.set(0);
    assert_eq!(allocations_of_call(Retries::Off), 0);
    assert_eq!(POLLS.get(), 0);
}

#[test]
fn allocations_of_a_retryable_call_are_at_most_three() {
    let allocated = allocations_of_call(Retries::All);
    assert!(allocated <= 3, "{allocated}");
}

/// The additional allocations of a call with `distinct_backends`.
fn allocations_of_distinct_backends(retries: Retries) -> u64 {
    let of = |distinct: bool| {
        let builder = RetryLayer::builder().retries(retries);
        let builder = if distinct { builder.distinct_backends() } else { builder };
        let mut channel = builder.build().adapter(Message::Replayed).layer(ImmediateService);
        let mut call = move || {
            let mut request = Request::new(Message::Own(false));
            *request.uri_mut() = http::Uri::from_static("/a.B/C");
            // Requests of a generated client have an extension already.
            request.extensions_mut().insert(0_u8);
            request.headers_mut().insert("grpc-timeout", HeaderValue::from_static("1S"));
            let mut cx = Context::from_waker(Waker::noop());
            assert!(channel.poll_ready(&mut cx).is_ready());
            let polled = pin!(channel.call(request)).poll(&mut cx);
            assert!(matches!(polled, Poll::Ready(Ok(_))));
        };
        call();
        allocations(call)
    };
    of(true) - of(false)
}

#[test]
fn allocations_of_distinct_backends_are_a_list_and_an_extension() {
    assert_eq!(
        allocations_of_distinct_backends(Retries::All),
        3,
        "the list, its first entry, and the box that extensions put a value into"
    );
    assert_eq!(allocations_of_distinct_backends(Retries::Off), 0, "there is no other attempt");
}
