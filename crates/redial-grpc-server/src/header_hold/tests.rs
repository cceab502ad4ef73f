//! The layer around a handler whose stream the test feeds, polled by hand: headers are sent at the
//! right moment and in the right form, and no part of a response is lost.

use std::convert::Infallible;
use std::future::{self, Ready};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, StreamBody};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::Instant;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Status;
use tower::limit::ConcurrencyLimitLayer;
use tower::{Layer as _, Service as _, ServiceExt as _, service_fn};

use super::*;
use crate::PeekedBody;

type Item = Result<Frame<Bytes>, Status>;
type Fed = StreamBody<UnboundedReceiverStream<Item>>;
type Answer = Response<PeekedBody<Fed>>;
type Returned = Ready<Result<Response<Fed>, Infallible>>;

/// A call whose handler returns at the first poll, with a stream that the test feeds.
struct Call {
    future: Pin<Box<HoldFuture<Returned, Fed>>>,
    feed: UnboundedSender<Item>,
    hold: HeaderHold,
}

impl Call {
    fn through(layer: HoldLayer, head: Response<()>) -> Self {
        let (feed, items) = unbounded_channel();
        let mut response =
            Some(head.map(|()| StreamBody::new(UnboundedReceiverStream::new(items))));
        let mut hold = None;
        let handler = service_fn(|request: Request<()>| {
            hold = Some(HeaderHold::of(&request));
            future::ready(Ok(response.take().unwrap()))
        });
        let future = Box::pin(layer.layer(handler).call(Request::new(())));
        Self { future, feed, hold: hold.unwrap() }
    }

    fn new() -> Self {
        Self::through(HoldLayer::new(), grpc())
    }

    fn send(&self, item: Item) {
        self.feed.send(item).unwrap();
    }

    fn is_pending(&mut self) -> bool {
        self.poll(Waker::noop()).is_pending()
    }

    fn answer(&mut self) -> Answer {
        match self.poll(Waker::noop()) {
            Poll::Ready(Ok(answer)) => answer,
            Poll::Pending => panic!("the headers are held"),
        }
    }

    fn poll(&mut self, waker: &Waker) -> Poll<Result<Answer, Infallible>> {
        self.future.as_mut().poll(&mut Context::from_waker(waker))
    }
}

/// The headers of the handler's response.
fn grpc() -> Response<()> {
    let head = Response::builder().header("content-type", "application/grpc").header("early", "1");
    head.body(()).unwrap()
}

fn message(text: &'static str) -> Item {
    Ok(Frame::data(Bytes::from_static(text.as_bytes())))
}

fn trailers(code: &str) -> Item {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", code.parse().unwrap());
    trailers.insert("late", "1".parse().unwrap());
    Ok(Frame::trailers(trailers))
}

fn header<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
    answer.headers().get(name).map(|value| value.to_str().unwrap())
}

/// The next frame of a body: its data, or the `grpc-status` of its trailers.
async fn next(answer: &mut Answer) -> Option<Result<String, Status>> {
    let frame = answer.body_mut().frame().await?;
    Some(frame.map(|frame| match frame.into_data() {
        Ok(data) => String::from_utf8(data.to_vec()).unwrap(),
        Err(frame) => {
            let trailers = frame.into_trailers().unwrap();
            format!("status {}", trailers["grpc-status"].to_str().unwrap())
        }
    }))
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn hold_delays_headers_until_the_first_message() {
    let mut call = Call::new();
    assert!(call.is_pending());
    assert!(call.is_pending());
    call.send(message("one"));
    call.send(message("two"));
    let mut answer = call.answer();
    assert_eq!(header(&answer, "early"), Some("1"));
    assert_eq!(header(&answer, "grpc-status"), None);
    assert!(!answer.body().is_end_stream());
    assert_eq!(next(&mut answer).await.unwrap().unwrap(), "one");
    assert_eq!(next(&mut answer).await.unwrap().unwrap(), "two");
    call.send(trailers("14"));
    drop(call);
    assert_eq!(next(&mut answer).await.unwrap().unwrap(), "status 14");
    assert!(next(&mut answer).await.is_none());
}

#[tokio::test]
async fn hold_merges_an_early_error_with_all_metadata() {
    let mut call = Call::new();
    assert!(call.is_pending());
    call.send(trailers("14"));
    let mut answer = call.answer();
    assert!(answer.body().is_end_stream());
    assert_eq!(answer.body().size_hint().exact(), Some(0));
    for (name, value) in [("grpc-status", "14"), ("early", "1"), ("late", "1")] {
        assert_eq!(header(&answer, name), Some(value), "{name}");
    }
    assert!(next(&mut answer).await.is_none());
}

#[tokio::test]
async fn hold_empty_stream_sends_headers_and_trailers() {
    let mut call = Call::new();
    call.send(trailers("0"));
    let mut answer = call.answer();
    assert!(!answer.body().is_end_stream());
    assert_eq!(header(&answer, "grpc-status"), None);
    assert_eq!(next(&mut answer).await.unwrap().unwrap(), "status 0");
}

#[tokio::test]
async fn hold_stream_without_trailers_ends_the_response() {
    let mut call = Call::new();
    call.feed = unbounded_channel().0;
    let mut answer = call.answer();
    assert!(answer.body().is_end_stream());
    assert_eq!(header(&answer, "grpc-status"), None);
    assert!(next(&mut answer).await.is_none());
}

#[tokio::test]
async fn hold_body_error_is_sent_as_a_status() {
    let mut call = Call::new();
    call.send(Err(Status::data_loss("torn")));
    let answer = call.answer();
    assert!(answer.body().is_end_stream());
    assert_eq!(header(&answer, "grpc-status"), Some("15"));
    assert_eq!(header(&answer, "grpc-message"), Some("torn"));
    assert_eq!(header(&answer, "early"), Some("1"));
}

#[tokio::test]
async fn hold_flush_before_return_sends_headers_unchanged() {
    let mut call = Call::new();
    call.hold.flush();
    call.send(trailers("14"));
    let mut answer = call.answer();
    assert_eq!(header(&answer, "grpc-status"), None);
    assert_eq!(next(&mut answer).await.unwrap().unwrap(), "status 14");
}

#[tokio::test]
async fn hold_flush_from_another_task_sends_the_headers() {
    let mut call = Call::new();
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    assert!(call.poll(&waker).is_pending());
    let handle = call.hold.clone();
    std::thread::spawn(move || handle.flush()).join().unwrap();
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
    let mut answer = call.answer();
    call.hold.flush();
    assert_eq!(count.0.load(Ordering::Relaxed), 1, "headers go out once");
    call.send(message("one"));
    assert_eq!(next(&mut answer).await.unwrap().unwrap(), "one");
}

#[test]
fn hold_flush_wakes_the_latest_task() {
    let mut call = Call::new();
    let (first, second) = (Arc::new(Count::default()), Arc::new(Count::default()));
    assert!(call.poll(&Waker::from(Arc::clone(&first))).is_pending());
    assert!(call.poll(&Waker::from(Arc::clone(&second))).is_pending());
    call.hold.flush();
    assert_eq!(first.0.load(Ordering::Relaxed), 0);
    assert_eq!(second.0.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn hold_flush_within_a_poll_applies_to_that_poll() {
    for item in [trailers("14"), Err(Status::data_loss("torn")), message("one")] {
        let expected = match &item {
            Err(status) => Err(status.code()),
            Ok(frame) if frame.is_trailers() => Ok("status 14".to_owned()),
            Ok(_) => Ok("one".to_owned()),
        };
        let mut item = Some(item);
        let handler = service_fn(|request: Request<()>| {
            let hold = HeaderHold::of(&request);
            let item = item.take();
            let items = futures_of(move || {
                hold.flush();
                item
            });
            future::ready(Ok::<_, Infallible>(grpc().map(|()| StreamBody::new(items))))
        });
        let mut service = HoldLayer::new().layer(handler);
        let mut answer = service.call(Request::new(())).await.unwrap();
        assert!(!answer.headers().contains_key("grpc-status"));
        let frame = answer.body_mut().frame().await.unwrap();
        let seen = frame.map_err(|status| status.code()).map(|frame| match frame.into_data() {
            Ok(data) => String::from_utf8(data.to_vec()).unwrap(),
            Err(_) => "status 14".to_owned(),
        });
        assert_eq!(seen, expected);
    }
}

/// A stream of one item that is computed when it is polled.
fn futures_of(
    make: impl FnOnce() -> Option<Item> + Unpin,
) -> impl tokio_stream::Stream<Item = Item> + Unpin {
    let mut make = Some(make);
    tokio_stream::StreamExt::filter_map(tokio_stream::once(()), move |()| make.take()?())
}

#[tokio::test(start_paused = true)]
async fn hold_ends_at_its_time_limit() {
    let begun = Instant::now();
    let mut call = Call::through(HoldLayer::new().at_most(Duration::from_secs(5)), grpc());
    let mut answer = call.future.as_mut().await.unwrap();
    assert_eq!(begun.elapsed(), Duration::from_secs(5));
    call.send(trailers("14"));
    assert_eq!(header(&answer, "grpc-status"), None);
    assert_eq!(next(&mut answer).await.unwrap().unwrap(), "status 14");
}

#[tokio::test(start_paused = true)]
async fn hold_without_a_limit_waits_for_the_first_frame() {
    let mut call = Call::new();
    let held = tokio::time::timeout(Duration::from_secs(86_400), call.future.as_mut()).await;
    assert!(held.is_err());
    call.send(trailers("14"));
    assert_eq!(header(&call.answer(), "grpc-status"), Some("14"));
}

#[tokio::test]
async fn hold_limit_of_zero_still_merges_an_immediate_error() {
    let layer = HoldLayer::new().at_most(Duration::ZERO);
    let mut call = Call::through(layer, grpc());
    call.send(trailers("14"));
    assert_eq!(header(&call.answer(), "grpc-status"), Some("14"));

    let mut call = Call::through(layer, grpc());
    assert_eq!(header(&call.answer(), "grpc-status"), None);
}

#[tokio::test]
async fn hold_passes_other_responses_through() {
    let with = |name: &'static str, value: &str| {
        let mut head = grpc();
        head.headers_mut().insert(name, value.parse().unwrap());
        head
    };
    let heads = [with("content-type", "text/plain"), with("grpc-status", "14")];
    for head in heads {
        let headers = head.headers().clone();
        let mut call = Call::through(HoldLayer::new(), head);
        call.send(trailers("5"));
        let mut answer = call.answer();
        assert_eq!(*answer.headers(), headers);
        assert_eq!(next(&mut answer).await.unwrap().unwrap(), "status 5");
    }
}

#[tokio::test]
async fn hold_sends_an_oversized_error_in_trailers() {
    let mut head = grpc();
    head.headers_mut().insert("long", "x".repeat(16 * 1024).parse().unwrap());
    let mut call = Call::through(HoldLayer::new(), head);
    call.send(trailers("14"));
    let mut answer = call.answer();
    assert_eq!(header(&answer, "grpc-status"), None);
    assert_eq!(next(&mut answer).await.unwrap().unwrap(), "status 14");
}

#[tokio::test]
async fn hold_dropped_response_drops_the_stream() {
    let mut call = Call::new();
    assert!(call.is_pending());
    assert!(!call.feed.is_closed());
    drop(call.future);
    assert!(call.feed.is_closed());
}

#[tokio::test]
async fn hold_drops_the_handler_future_once_it_returned() {
    let (_feed, items) = unbounded_channel::<Item>();
    let mut body = Some(StreamBody::new(UnboundedReceiverStream::new(items)));
    let handler = service_fn(move |_: Request<()>| {
        let body = body.take().unwrap_or_else(|| {
            let (feed, items) = unbounded_channel();
            feed.send(message("one")).unwrap();
            StreamBody::new(UnboundedReceiverStream::new(items))
        });
        future::ready(Ok::<_, Infallible>(grpc().map(|()| body)))
    });
    let mut service = HoldLayer::new().layer(ConcurrencyLimitLayer::new(1).layer(handler));
    let mut held = Box::pin(service.ready().await.unwrap().call(Request::new(())));
    assert!(held.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    // The handler's permit was released with it, so the limit admits a second call.
    let mut answer = service.ready().await.unwrap().call(Request::new(())).await.unwrap();
    assert_eq!(answer.body_mut().frame().await.unwrap().unwrap().into_data().unwrap(), "one");
}

#[tokio::test]
async fn hold_flush_releases_all_layers() {
    let (feed, items) = unbounded_channel::<Item>();
    let mut body = Some(StreamBody::new(UnboundedReceiverStream::new(items)));
    let mut hold = None;
    let handler = service_fn(|request: Request<()>| {
        hold = Some(HeaderHold::of(&request));
        future::ready(Ok::<_, Infallible>(grpc().map(|()| body.take().unwrap())))
    });
    let mut service = HoldLayer::new().layer(HoldLayer::new().layer(handler));
    let mut held = Box::pin(service.call(Request::new(())));
    assert!(held.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    hold.unwrap().flush();
    assert!(held.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    drop(feed);
}

#[tokio::test]
async fn hold_returns_service_errors_unchanged() {
    let handler = service_fn(|_: Request<()>| future::ready(Err::<Response<Fed>, _>("broken")));
    let answered = HoldLayer::new().layer(handler).oneshot(Request::new(())).await;
    assert_eq!(answered.unwrap_err(), "broken");
}

#[test]
fn hold_handle_without_the_layer_does_nothing() {
    let hold = HeaderHold::of(&Request::new(()));
    hold.flush();
    assert!(hold.is_released());
    assert_eq!(format!("{hold:?}"), "HeaderHold { released: true }");
}
