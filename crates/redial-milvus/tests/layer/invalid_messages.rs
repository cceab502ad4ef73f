//! Invalid messages: a code of the status inside an OK response, or any predicate.

use redial_faults::grpc::Answer;
use redial_milvus::{Options, RATE_LIMIT};

use super::*;

/// `SearchResults` with a `Status` of this code.
fn results(code: u8) -> Bytes {
    Bytes::from(vec![0x0a, 2, 0x18, code])
}

fn answer(code: u8) -> Answer {
    Answer::reply(results(code))
}

#[tokio::test(start_paused = true)]
async fn layer_returns_inner_errors_unless_their_code_is_listed() {
    let (mut client, server) = client(Options::DEFAULT, [answer(8), answer(0)]);
    assert_eq!(search(&mut client).await.unwrap(), results(8));
    assert_eq!(server.counts().streams, 1);
}

#[tokio::test(start_paused = true)]
async fn layer_retries_listed_inner_codes() {
    let interceptor = interceptor(Options::DEFAULT).invalid_codes([RATE_LIMIT]);
    let script = [answer(8), answer(8), answer(100)];
    let (mut client, server) = client_of(interceptor.layer(), script);
    assert_eq!(search(&mut client).await.unwrap(), results(100));
    assert_eq!(arrivals(&server), [0, 20, 60]);
}

#[tokio::test(start_paused = true)]
async fn layer_exhausted_invalid_message_holds_the_last_answer() {
    let options = Options::DEFAULT.max_retries(1);
    let limited = interceptor(options).invalid_codes([RATE_LIMIT]).layer();
    let (mut client, _server) = client_of(limited, [answer(8), answer(8)]);
    let status = search(&mut client).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::ResourceExhausted);
    assert_eq!(status.message(), "invalid message (retried 1 times, 20ms)");
    assert_eq!(status.details(), &results(8)[..]);
    // Without a retry: the text alone.
    let single = interceptor(options.max_retries(0)).invalid_codes([100]).layer();
    let (mut client, _server) = client_of(single, [answer(100)]);
    let status = search(&mut client).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (tonic::Code::Unknown, "invalid message"));
}

#[tokio::test(start_paused = true)]
async fn layer_predicate_sees_method_and_message() {
    let layer = interceptor(Options::DEFAULT).layer().invalid_when(|answer| {
        assert_eq!(answer.method(), "Search");
        answer.message() == Some(b"empty")
    });
    let (mut client, server) = client_of(layer, [Answer::reply("empty"), Answer::reply("full")]);
    assert_eq!(search(&mut client).await.unwrap(), "full");
    assert_eq!(server.counts().streams, 2);
}
