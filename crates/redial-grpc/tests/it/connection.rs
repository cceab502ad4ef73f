//! Connections that are refused, or that close before a request was written (decisions G27 to G29), and
//! `waitForReady` (decision G41). `checks/channel-only` runs these tests with a smaller tonic, too.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use redial::StopReason;
use redial_core::Proof;
use redial_echo::echo_client::EchoClient;
use redial_faults::grpc::{Answer, Close, LastStream, OnConnect, Reason, Script, Server};
use redial_grpc::{CallOptions, Retries, RetryLayer};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tonic::transport::Endpoint;
use tonic::{Code, Request};
use tower::ServiceBuilder;

use crate::common::harness::{
    HEDGE, Harness, RETRY, UNARY, endpoint, layer, message, ms, source_chain,
};

/// grpc-go: #8417, users expect a retry after a refused connection. It needs a policy or
/// `waitForReady`, because it would hide a wrong address.
#[tokio::test(start_paused = true)]
async fn connection_refused_without_policy_is_not_retried() {
    let mut harness = Harness::new("", [Answer::unconnected(), Answer::echo()]);
    let outcome = harness.call().await;
    assert_eq!((outcome.code(), outcome.starts()), (Code::Unavailable, vec![0]));
    assert_eq!(outcome.chain().last().unwrap(), "io ConnectionRefused");
    let mut harness = Harness::new(RETRY, [Answer::unconnected(), Answer::echo()]);
    assert_eq!(harness.call().await.starts(), [0, 50], "retried with a policy");
}

const UNSENT: Option<Proof> = Some(Proof::Unsent);

const WAITS: &str = r#""waitForReady": true"#;

const REFUSED: [&str; 3] =
    ["tonic::transport::Error", "tonic::ConnectError", "io ConnectionRefused"];

fn options(options: CallOptions) -> Request<redial_echo::EchoRequest> {
    let mut request = Request::new(message("x"));
    request.extensions_mut().insert(options);
    request
}

/// A connection that ends with an error of this kind.
struct FailingConnection(DuplexStream, io::ErrorKind);

impl AsyncRead for FailingConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        std::task::ready!(Pin::new(&mut self.0).poll_read(cx, buf))?;
        let ended = buf.filled().len() == before;
        Poll::Ready(if ended { Err(self.1.into()) } else { Ok(()) })
    }
}

impl AsyncWrite for FailingConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[tokio::test(start_paused = true)]
async fn connection_closed_before_request_is_retried_transparently() {
    for action in [OnConnect::CloseImmediately, OnConnect::CloseAfterPreface] {
        for policy in ["", RETRY] {
            let mut answers = vec![Answer::on_connect(action); 4];
            answers.push(Answer::echo());
            let mut harness = Harness::new(policy, answers);
            let outcome = harness.call().await;
            assert_eq!((outcome.code(), outcome.attempts()), (Code::Ok, 1), "{action:?}");
            assert_eq!(outcome.starts(), [0, 0, 10, 30, 70], "{action:?}");
            assert_eq!(outcome.proofs(), [UNSENT, UNSENT, UNSENT, UNSENT, None], "{action:?}");
            assert_eq!(outcome.previous(), [None], "one stream arrived, as the first attempt");
            assert_eq!((harness.statistics(), harness.tokens()), ((0, 0, 4), 10_000));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn connection_closed_a_thousand_times_ends_with_unavailable() {
    let closed_connections = |count| {
        let script = Script::new().attempts([Answer::echo()]);
        (0..count).fold(script, |it, _| it.on_connect(OnConnect::CloseAfterPreface, ms(0)))
    };
    let mut harness = Harness::new("", closed_connections(1000));
    let outcome = harness.call().await;
    assert_eq!((outcome.code(), outcome.starts().len()), (Code::Ok, 1001));
    let mut harness = Harness::new("", closed_connections(1001));
    let outcome = harness.call().await;
    assert_eq!((outcome.code(), outcome.starts().len()), (Code::Unavailable, 1001));
    assert_eq!(outcome.chain(), ["tonic::transport::Error", "hyper canceled", "connection closed"]);
    assert_eq!((harness.statistics(), outcome.record.counts.streams), ((0, 0, 1000), 0));
}

#[tokio::test(start_paused = true)]
async fn connection_closed_before_request_with_retries_disabled_is_unavailable() {
    let layer = layer(RETRY).retries(Retries::Off).build();
    let mut harness = Harness::with_layer(layer, Server::new([Answer::unsent(), Answer::unsent()]));
    let outcome = harness.call().await;
    assert_eq!((outcome.code(), outcome.starts()), (Code::Unavailable, vec![0]));
    assert_eq!((harness.statistics(), harness.tokens()), ((0, 0, 0), 10_000));
    // A call without a call log takes the fast path, with the same status.
    let status = harness.client.unary(message("x")).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unavailable, outcome.status().message()));
}

#[tokio::test(start_paused = true)]
async fn connection_refused_follows_the_policy() {
    let mut harness = Harness::new("", [Answer::unconnected()]);
    let outcome = harness.call().await;
    assert_eq!((outcome.code(), outcome.end().0), (Code::Unavailable, StopReason::NotRetryable));
    assert_eq!((outcome.starts(), outcome.proofs()), (vec![0], vec![None]));
    assert_eq!(outcome.chain(), REFUSED);

    let mut harness =
        Harness::new(RETRY, [Answer::unconnected(), Answer::unconnected(), Answer::echo()]);
    let outcome = harness.call().await;
    assert_eq!((outcome.code(), outcome.starts()), (Code::Ok, vec![0, 50, 150]));
    assert_eq!(outcome.previous(), [Some(2)], "includes the attempts that never arrived");
    assert_eq!((harness.statistics(), harness.tokens()), ((2, 1, 0), 8_100));

    let mut harness = Harness::new(RETRY, vec![Answer::unconnected(); 3]);
    let outcome = harness.call().await;
    assert_eq!(
        (outcome.code(), outcome.end()),
        (Code::Unavailable, (StopReason::AttemptsExhausted, 150))
    );
    assert_eq!(outcome.chain(), REFUSED);
    assert_eq!(outcome.previous_attempts_header().as_deref(), Some("2"));
}

#[tokio::test(start_paused = true)]
async fn connection_refused_with_wait_for_ready_is_retried() {
    let script =
        || vec![Answer::unconnected(), Answer::unsent(), Answer::unconnected(), Answer::echo()];
    let (unset, waits) = (CallOptions::new, || CallOptions::new().wait_for_ready());
    for (fields, own) in [(WAITS, unset()), ("", waits()), (WAITS, waits())] {
        let mut harness = Harness::new(fields, script());
        let outcome = harness.call_with(options(own)).await;
        assert_eq!((outcome.code(), outcome.attempts()), (Code::Ok, 1));
        assert_eq!(
            outcome.starts(),
            [0, 0, 10, 30],
            "refused and lost connections share one backoff"
        );
        assert_eq!(outcome.proofs(), [UNSENT, UNSENT, UNSENT, None]);
        assert_eq!((harness.statistics(), harness.tokens()), ((0, 0, 3), 10_000));
    }
}

#[tokio::test(start_paused = true)]
async fn connection_wait_for_ready_of_call_overrides_config() {
    let mut harness = Harness::new(WAITS, [Answer::unconnected()]);
    let outcome = harness.call_with(options(CallOptions::new().fail_fast())).await;
    assert_eq!((outcome.code(), outcome.starts()), (Code::Unavailable, vec![0]));
    assert_eq!(outcome.chain(), REFUSED);
}

#[tokio::test(start_paused = true)]
async fn connection_wait_for_ready_ends_at_the_deadline() {
    let script = (0..100).fold(Script::new(), |it, _| it.on_connect(OnConnect::Refuse, ms(0)));
    let mut harness = Harness::new(WAITS, script);
    let mut request = Request::new(message("x"));
    request.set_timeout(ms(100));
    let outcome = harness.call_with(request).await;
    assert_eq!(
        (outcome.code(), outcome.end()),
        (Code::DeadlineExceeded, (StopReason::Deadline, 100))
    );
    assert_eq!(outcome.starts(), [0, 0, 10, 30, 70]);
    assert_eq!(outcome.chain(), REFUSED, "the last failure is the source");
    let text = "the deadline passed (1 attempt); last failed attempt: UNAVAILABLE: ";
    assert!(outcome.status().message().starts_with(text), "{}", outcome.status().message());
}

#[tokio::test(start_paused = true)]
async fn connection_wait_for_ready_needs_transparent_retries() {
    for (retries, code, starts) in
        [(Retries::Transparent, Code::Ok, vec![0, 0]), (Retries::Off, Code::Unavailable, vec![0])]
    {
        let mut harness = Harness::new(WAITS, [Answer::unconnected(), Answer::echo()]);
        let outcome = harness.call_with(options(CallOptions::new().retries(retries))).await;
        assert_eq!((outcome.code(), outcome.starts()), (code, starts), "{retries:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn connection_refused_sends_the_next_hedge_at_once() {
    let mut harness = Harness::new(HEDGE, [Answer::unconnected(), Answer::echo()]);
    let outcome = harness.call().await;
    assert_eq!((outcome.code(), outcome.starts()), (Code::Ok, vec![0, 0]));
    assert_eq!((outcome.previous(), harness.tokens()), (vec![Some(1)], 9_100));
}

/// An established connection can end with the same error kinds as a refused one, for example when a route
/// is lost. The request may have been processed, so there is no transparent retry.
#[tokio::test(start_paused = true)]
async fn connection_established_then_lost_is_not_refused() {
    use io::ErrorKind::{AddrNotAvailable, ConnectionRefused, HostUnreachable, NetworkUnreachable};
    for kind in [HostUnreachable, NetworkUnreachable, ConnectionRefused, AddrNotAvailable] {
        let server = Server::new(vec![Answer::close(Close::Graceful); 2]).on_pipe();
        let connector = server.connector();
        let connect = tower::service_fn(move |_| {
            let connector = connector.clone();
            async move {
                io::Result::Ok(TokioIo::new(FailingConnection(connector.connect().await?, kind)))
            }
        });
        let channel = endpoint().connect_with_connector_lazy(connect);
        let layer = layer(WAITS).build();
        let channel = ServiceBuilder::new().layer(layer.clone()).service(channel);
        let status = EchoClient::new(channel).unary(message("x")).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
        assert_eq!(
            source_chain(&status),
            ["tonic::transport::Error", "hyper", &format!("io {kind:?}")]
        );
        assert_eq!(server.counts().streams, 1, "{kind:?}");
        assert_eq!(layer.control().statistics()[UNARY].retries.transparent, 0);
    }
}

/// In real time, over TCP. A connection that closes before anything was written cannot be produced there.
#[tokio::test]
async fn connection_errors_over_tcp_prove_the_same() {
    let policy = RETRY.replace("0.1s", "0.002s");
    let faults = [
        (Answer::close(Close::Abrupt), 1),
        (Answer::close(Close::Graceful), 1),
        (Answer::reset(Reason::REFUSED_STREAM), 0),
        (Answer::go_away(LastStream::Below, Reason::NO_ERROR), 0),
    ];
    for (fault, retries) in faults {
        let script = Script::new().attempts([fault.clone(), Answer::echo()]);
        let server = Server::new(script).listen("127.0.0.1:0").await.unwrap();
        let layer = layer(&policy).build();
        let endpoint = Endpoint::try_from(format!("http://{}", server.addr())).unwrap();
        let channel = ServiceBuilder::new().layer(layer.clone()).service(endpoint.connect_lazy());
        let answer = EchoClient::new(channel).unary(message("x")).await.unwrap();
        assert_eq!(answer.into_inner().payload, "x");
        let made = layer.control().statistics()[UNARY].retries;
        assert_eq!((made.retries, made.transparent), (retries, 1 - retries), "{fault:?}");
    }
}

/// In real time: a port without a listener.
#[tokio::test]
async fn connection_refused_over_tcp_without_policy_is_not_retried() {
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let endpoint = Endpoint::try_from(format!("http://127.0.0.1:{port}")).unwrap();
    let layer = RetryLayer::builder().build();
    let channel = ServiceBuilder::new().layer(layer.clone()).service(endpoint.connect_lazy());
    let status = EchoClient::new(channel).unary(message("x")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    let chain = source_chain(&status);
    assert_eq!(chain[..2], REFUSED[..2]);
    assert_eq!(chain.last().unwrap(), "io ConnectionRefused");
    let made = layer.control().statistics()[UNARY].retries;
    assert_eq!((made.retries, made.transparent), (0, 0));
}
