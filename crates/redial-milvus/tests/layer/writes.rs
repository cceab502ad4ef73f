//! Inserts, upserts and deletes: repeated by default, and only with proof on request.

use redial_faults::grpc::{Answer, OnConnect, Reason, Script};
use redial_milvus::{Options, RATE_LIMIT, WriteRetries};
use tonic::Request;

use super::*;

const PROTECTED: Options = Options::DEFAULT.write_retries(WriteRetries::OnlyIfNotRun);

async fn write(client: &mut Client, method: &str) -> Result<Bytes, Status> {
    unary(client, method, Request::new("rows".into())).await
}

#[tokio::test(start_paused = true)]
async fn layer_writes_are_repeated_by_default_and_not_when_protected() {
    for method in ["Insert", "Upsert", "Delete"] {
        let (mut client, server) = client(Options::DEFAULT, [busy(), Answer::echo()]);
        assert_eq!(write(&mut client, method).await.unwrap(), "rows");
        assert_eq!(server.counts().streams, 2, "{method}");
        let (mut client, server) = super::client(PROTECTED, [busy(), Answer::echo()]);
        let status = write(&mut client, method).await.unwrap_err();
        assert_eq!((status.message(), server.counts().streams), ("busy", 1), "{method}");
    }
    // Reads are repeated all the same.
    let (mut client, server) = client(PROTECTED, [busy(), Answer::echo()]);
    assert_eq!(search(&mut client).await.unwrap(), "query");
    assert_eq!(server.counts().streams, 2);
}

#[tokio::test(start_paused = true)]
async fn layer_protected_writes_are_repeated_with_proof() {
    // The server refused the stream unseen.
    let refused = Answer::reset(Reason::REFUSED_STREAM);
    let (mut client, server) = client(PROTECTED, [refused, Answer::echo()]);
    assert_eq!(write(&mut client, "Insert").await.unwrap(), "rows");
    assert_eq!(server.counts().streams, 2);
    // There was no connection.
    let script = Script::new().on_connect(OnConnect::Refuse, ms(0)).attempts([Answer::echo()]);
    let (mut client, server) = super::client(PROTECTED, script);
    assert_eq!(write(&mut client, "Insert").await.unwrap(), "rows");
    assert_eq!(server.counts().connections, 2);
    // The server rejected the request by its rate limit.
    let limited = Answer::reply(Bytes::from_static(&[0x0a, 2, 0x18, 8]));
    let layer = interceptor(PROTECTED).invalid_codes([RATE_LIMIT]).layer();
    let (mut client, server) = client_of(layer, [limited, Answer::echo()]);
    assert_eq!(write(&mut client, "Insert").await.unwrap(), "rows");
    assert_eq!(server.counts().streams, 2);
}

#[tokio::test(start_paused = true)]
async fn layer_protected_write_is_not_repeated_after_a_lost_connection() {
    let lost = Answer::close(redial_faults::grpc::Close::Graceful)
        .wait_for(redial_faults::grpc::WaitFor::Request);
    let (mut client, server) = client(PROTECTED, [lost, Answer::echo()]);
    let status = write(&mut client, "Insert").await.unwrap_err();
    assert!(!status.message().contains("retried"), "{status:?}");
    assert_eq!(server.counts().streams, 1);
}

#[tokio::test(start_paused = true)]
async fn layer_protected_write_is_not_repeated_after_response_headers() {
    // A stream that the server refused unseen has no response.
    let refused_late = Answer::headers().then_reset(Reason::REFUSED_STREAM);
    let (mut client, server) = client(PROTECTED, [refused_late, Answer::echo()]);
    write(&mut client, "Insert").await.unwrap_err();
    assert_eq!(server.counts().streams, 1);
}
