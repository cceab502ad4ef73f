//! `grpc-timeout` of each attempt, local timeouts and the total deadline.

use redial_faults::grpc::{Answer, StatusNumber};
use redial_milvus::Options;
use tonic::Request;

use super::*;

/// The `grpc-timeout` of each stream, in milliseconds.
fn timeouts(server: &Handle<Pipe>) -> Vec<u128> {
    server.record().streams.iter().map(|it| it.timeout().unwrap().as_millis()).collect()
}

#[tokio::test(start_paused = true)]
async fn layer_attempts_have_the_whole_timeout_each() {
    let (mut client, server) = client(Options::DEFAULT, [busy(), busy(), busy(), busy()]);
    search(&mut client).await.unwrap_err();
    assert_eq!(timeouts(&server), [15_000; 4]);
}

#[tokio::test(start_paused = true)]
async fn layer_timeout_of_the_call_replaces_the_option() {
    let (mut client, server) = client(Options::DEFAULT, [busy(), Answer::hang()]);
    let mut request = Request::new(Bytes::from_static(b"query"));
    request.set_timeout(ms(300));
    let start = tokio::time::Instant::now();
    let status = unary(&mut client, "Search", request).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::DeadlineExceeded);
    assert_eq!(timeouts(&server), [300, 300]);
    // The first attempt, the delay, and the whole timeout of the second.
    assert_eq!(start.elapsed(), ms(320));
}

#[tokio::test(start_paused = true)]
async fn layer_local_timeout_is_final_and_keeps_its_text() {
    let (mut client, server) =
        client(Options::DEFAULT.timeout(ms(50)), [Answer::hang(), Answer::echo()]);
    let status = search(&mut client).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::DeadlineExceeded);
    assert_eq!(status.message(), "deadline exceeded");
    tokio::time::sleep(ms(1000)).await;
    assert_eq!(server.counts().streams, 1);
}

#[tokio::test(start_paused = true)]
async fn layer_timeout_also_covers_the_body_of_the_response() {
    let half = Answer::headers().message("half").trailers(StatusNumber::OK).after(ms(60_000));
    let (mut client, server) = client(Options::DEFAULT.timeout(ms(50)), [half, Answer::echo()]);
    let status = search(&mut client).await.unwrap_err();
    assert_eq!((status.code(), server.counts().streams), (tonic::Code::DeadlineExceeded, 1));
}

#[tokio::test(start_paused = true)]
async fn layer_total_deadline_shortens_later_attempts() {
    let options = Options::DEFAULT.timeout(ms(400)).deadline(ms(500));
    let slow = || busy().after(ms(150));
    let (mut client, server) = client(options, [slow(), slow(), slow(), slow()]);
    let start = tokio::time::Instant::now();
    let status = search(&mut client).await.unwrap_err();
    assert_eq!(start.elapsed(), ms(500));
    assert_eq!(status.code(), tonic::Code::DeadlineExceeded);
    assert_eq!(arrivals(&server), [0, 170, 360]);
    assert_eq!(timeouts(&server), [400, 330, 140]);
}

/// Shorter than the option: the channel's own timer ends the attempt.
#[tokio::test(start_paused = true)]
async fn layer_timeout_of_the_channel_is_final() {
    let server = Server::new([Answer::hang(), Answer::echo()]).on_pipe();
    let channel = channel_of(&server, &Endpoint::from_static("http://pipe").timeout(ms(30)));
    let layer = interceptor(Options::DEFAULT).layer();
    let mut client = Grpc::new(ServiceBuilder::new().layer(layer).service(channel));
    let start = tokio::time::Instant::now();
    let status = unary(&mut client, "Insert", Request::new("rows".into())).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::DeadlineExceeded);
    assert_eq!((start.elapsed(), server.counts().streams), (ms(30), 1));
}
