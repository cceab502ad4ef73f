//! What a call through the layer allocates: nothing with retries disabled, little otherwise.
//! Method: a service that answers at once, with a body that counts how often it is asked.

// Whoever counts allocations is an allocator.
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
    /// How often this thread's bodies were asked.
    static ASKED: Cell<u32> = const { Cell::new(0) };
}

/// One message of five bytes, or what an attempt gets of it; both without a box.
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
            Message::Own(told) => {
                ASKED.set(ASKED.get() + 1);
                let first = !std::mem::replace(told, true);
                let frame = first.then(|| Ok(Frame::data(Bytes::from_static(&[0; 5]))));
                Poll::Ready(frame)
            }
            Message::Replayed(replay) => {
                Pin::new(replay).poll_frame(cx).map(|it| it.map(|it| it.map_err(Into::into)))
            }
        }
    }
}

/// Answers at once with Trailers-Only OK, and never looks at the request's body.
#[derive(Clone)]
struct AtOnce;

impl Service<Request<Message>> for AtOnce {
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

/// What one call allocates, apart from what request and response do themselves.
fn of_a_call(retries: Retries) -> u64 {
    let layer = RetryLayer::builder().retries(retries).build().adapter(Message::Replayed);
    let mut channel = layer.layer(AtOnce);
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
        drop(pin!(AtOnce.call(request)).poll(&mut Context::from_waker(Waker::noop())));
    };
    // What is made once for a method is made before it is counted.
    call();
    let bare = allocations(alone);
    allocations(call) - bare
}

#[test]
fn with_retries_disabled_nothing_is_allocated_and_the_body_is_not_touched() {
    ASKED.set(0);
    assert_eq!(of_a_call(Retries::Off), 0);
    assert_eq!(ASKED.get(), 0);
}

#[test]
fn a_call_that_may_be_repeated_allocates_three_times_at_the_most() {
    let allocated = of_a_call(Retries::All);
    assert!(allocated <= 3, "{allocated}");
}

/// What a call costs whose attempts are to go to distinct backends, more than any other.
fn of_distinct_backends(retries: Retries) -> u64 {
    let of = |distinct: bool| {
        let builder = RetryLayer::builder().retries(retries);
        let builder = if distinct { builder.distinct_backends() } else { builder };
        let mut channel = builder.build().adapter(Message::Replayed).layer(AtOnce);
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
fn distinct_backends_cost_the_first_attempt_no_more_than_the_extension() {
    assert_eq!(of_distinct_backends(Retries::All), 1, "the box that extensions put a value into");
    assert_eq!(of_distinct_backends(Retries::Off), 0, "there is no other attempt");
}
