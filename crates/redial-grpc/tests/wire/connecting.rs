//! Connections that are refused, or that end before a request was written on them (decisions G27 to
//! G29, and `waitForReady` of G41).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use redial::StopReason;
use redial_core::Proof;
use redial_echo::echo_client::EchoClient;
use redial_faults::grpc::{Answer, Close, Door, LastStream, Reason, Script, Server};
use redial_grpc::{CallOptions, Retries, RetryLayer};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tonic::transport::Endpoint;
use tonic::{Code, Request};
use tower::ServiceBuilder;

use super::rig::{HEDGE, RETRY, Rig, chain, endpoint, layer, message, ms};

const UNSENT: Option<Proof> = Some(Proof::Unsent);
const WAITS: &str = r#""waitForReady": true"#;
const REFUSED: [&str; 3] =
    ["tonic::transport::Error", "tonic::ConnectError", "io ConnectionRefused"];

fn options(options: CallOptions) -> Request<redial_echo::EchoRequest> {
    let mut request = Request::new(message("x"));
    request.extensions_mut().insert(options);
    request
}

#[tokio::test(start_paused = true)]
async fn what_was_never_sent_is_replaced_until_it_is() {
    for door in [Door::ClosedAtOnce, Door::ClosedAfterPreface] {
        for policy in ["", RETRY] {
            let mut answers = vec![Answer::door(door); 4];
            answers.push(Answer::echo());
            let mut rig = Rig::new(policy, answers);
            let told = rig.call().await;
            assert_eq!((told.code(), told.attempts()), (Code::Ok, 1), "{door:?}");
            assert_eq!(told.starts(), [0, 0, 10, 30, 70], "{door:?}");
            assert_eq!(told.proofs(), [UNSENT, UNSENT, UNSENT, UNSENT, None], "{door:?}");
            assert_eq!(told.previous(), [None], "one stream arrived, as the first attempt");
            assert_eq!((rig.statistics(), rig.tokens()), ((0, 0, 4), 10_000));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_thousand_replacements_what_was_never_sent_is_unavailable() {
    let doors = |count| {
        let script = Script::new().attempts([Answer::echo()]);
        (0..count).fold(script, |it, _| it.door(Door::ClosedAfterPreface, ms(0)))
    };
    let mut rig = Rig::new("", doors(1000));
    let told = rig.call().await;
    assert_eq!((told.code(), told.starts().len()), (Code::Ok, 1001));
    let mut rig = Rig::new("", doors(1001));
    let told = rig.call().await;
    assert_eq!((told.code(), told.starts().len()), (Code::Unavailable, 1001));
    assert_eq!(told.chain(), ["tonic::transport::Error", "hyper canceled", "connection closed"]);
    assert_eq!((rig.statistics(), told.record.counts.streams), ((0, 0, 1000), 0));
}

#[tokio::test(start_paused = true)]
async fn with_retries_disabled_what_was_never_sent_is_unavailable() {
    let layer = layer(RETRY).retries(Retries::Off).build();
    let mut rig = Rig::of(layer, Server::new([Answer::unsent(), Answer::unsent()]));
    let told = rig.call().await;
    assert_eq!((told.code(), told.starts()), (Code::Unavailable, vec![0]));
    assert_eq!((rig.statistics(), rig.tokens()), ((0, 0, 0), 10_000));
    // A call that nobody observes takes a shorter way, to the same status.
    let status = rig.client.unary(message("x")).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unavailable, told.status().message()));
}

#[tokio::test(start_paused = true)]
async fn a_refused_connection_is_left_to_the_policy() {
    let mut rig = Rig::new("", [Answer::unconnected()]);
    let told = rig.call().await;
    assert_eq!((told.code(), told.end().0), (Code::Unavailable, StopReason::NotRetryable));
    assert_eq!((told.starts(), told.proofs()), (vec![0], vec![None]));
    assert_eq!(told.chain(), REFUSED);

    let mut rig = Rig::new(RETRY, [Answer::unconnected(), Answer::unconnected(), Answer::echo()]);
    let told = rig.call().await;
    assert_eq!((told.code(), told.starts()), (Code::Ok, vec![0, 50, 150]));
    assert_eq!(told.previous(), [Some(2)], "it says how many came before, seen or not");
    assert_eq!((rig.statistics(), rig.tokens()), ((2, 1, 0), 8_100));

    let mut rig = Rig::new(RETRY, vec![Answer::unconnected(); 3]);
    let told = rig.call().await;
    assert_eq!(
        (told.code(), told.end()),
        (Code::Unavailable, (StopReason::AttemptsExhausted, 150))
    );
    assert_eq!(told.chain(), REFUSED);
    assert_eq!(told.previous_told().as_deref(), Some("2"));
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_connection_is_replaced_until_there_is_one() {
    let script =
        || vec![Answer::unconnected(), Answer::unsent(), Answer::unconnected(), Answer::echo()];
    for (fields, own) in [(WAITS, None), ("", Some(true)), (WAITS, Some(true))] {
        let mut rig = Rig::new(fields, script());
        let own = own.map_or_else(CallOptions::new, |it| CallOptions::new().wait_for_ready(it));
        let told = rig.call_with(options(own)).await;
        assert_eq!((told.code(), told.attempts()), (Code::Ok, 1));
        assert_eq!(
            told.starts(),
            [0, 0, 10, 30],
            "what was refused and what was lost count as one"
        );
        assert_eq!(told.proofs(), [UNSENT, UNSENT, UNSENT, None]);
        assert_eq!((rig.statistics(), rig.tokens()), ((0, 0, 3), 10_000));
    }
}

#[tokio::test(start_paused = true)]
async fn a_calls_own_word_on_waiting_beats_the_config() {
    let mut rig = Rig::new(WAITS, [Answer::unconnected()]);
    let told = rig.call_with(options(CallOptions::new().wait_for_ready(false))).await;
    assert_eq!((told.code(), told.starts()), (Code::Unavailable, vec![0]));
    assert_eq!(told.chain(), REFUSED);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_connection_ends_at_the_deadline_and_says_what_was_refused() {
    let script = (0..100).fold(Script::new(), |it, _| it.door(Door::Refused, ms(0)));
    let mut rig = Rig::new(WAITS, script);
    let mut request = Request::new(message("x"));
    request.set_timeout(ms(100));
    let told = rig.call_with(request).await;
    assert_eq!((told.code(), told.end()), (Code::DeadlineExceeded, (StopReason::Deadline, 100)));
    assert_eq!(told.starts(), [0, 0, 10, 30, 70]);
    assert_eq!(told.chain(), REFUSED, "the last failure is the source");
    let text = "the deadline passed (1 attempt); last failed attempt: UNAVAILABLE: ";
    assert!(told.status().message().starts_with(text), "{}", told.status().message());
}

#[tokio::test(start_paused = true)]
async fn only_transparent_retries_wait_for_a_connection_and_none_do_not() {
    for (retries, code, starts) in
        [(Retries::Transparent, Code::Ok, vec![0, 0]), (Retries::Off, Code::Unavailable, vec![0])]
    {
        let mut rig = Rig::new(WAITS, [Answer::unconnected(), Answer::echo()]);
        let told = rig.call_with(options(CallOptions::new().retries(retries))).await;
        assert_eq!((told.code(), told.starts()), (code, starts), "{retries:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hedge_that_is_refused_sends_the_next_at_once() {
    let mut rig = Rig::new(HEDGE, [Answer::unconnected(), Answer::echo()]);
    let told = rig.call().await;
    assert_eq!((told.code(), told.starts()), (Code::Ok, vec![0, 0]));
    assert_eq!((told.previous(), rig.tokens()), (vec![Some(1)], 9_100));
}

/// A connection whose end is an error of this kind.
struct Ends(DuplexStream, io::ErrorKind);

impl AsyncRead for Ends {
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

impl AsyncWrite for Ends {
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

/// The kinds of errors that a connection is refused with can also end one on which a request has
/// been written: a route that is lost, say. That proves nothing, and nobody may repeat it unasked.
#[tokio::test(start_paused = true)]
async fn a_connection_that_was_made_is_not_refused_whatever_ends_it() {
    use io::ErrorKind::{AddrNotAvailable, ConnectionRefused, HostUnreachable, NetworkUnreachable};
    for kind in [HostUnreachable, NetworkUnreachable, ConnectionRefused, AddrNotAvailable] {
        let server = Server::new(vec![Answer::close(Close::Orderly); 2]).on_pipe();
        let connector = server.connector();
        let connect = tower::service_fn(move |_| {
            let connector = connector.clone();
            async move { io::Result::Ok(TokioIo::new(Ends(connector.connect().await?, kind))) }
        });
        let channel = endpoint().connect_with_connector_lazy(connect);
        let layer = layer(WAITS).build();
        let channel = ServiceBuilder::new().layer(layer.clone()).service(channel);
        let status = EchoClient::new(channel).unary(message("x")).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
        assert_eq!(chain(&status), ["tonic::transport::Error", "hyper", &format!("io {kind:?}")]);
        assert_eq!(server.counts().streams, 1, "{kind:?}");
        assert_eq!(layer.control().statistics()[super::rig::UNARY].retries.transparent, 0);
    }
}

/// In real time, over sockets: the same errors are found there. (That nothing was written when the
/// connection ended cannot be arranged there.)
#[tokio::test]
async fn over_tcp_evidence_is_the_same() {
    let policy = RETRY.replace("0.1s", "0.002s");
    let faults = [
        (Answer::close(Close::Abrupt), 1),
        (Answer::close(Close::Orderly), 1),
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
        let made = layer.control().statistics()[super::rig::UNARY].retries;
        assert_eq!((made.retries, made.transparent), (retries, 1 - retries), "{fault:?}");
    }
}

/// In real time: a port on which nobody listens.
#[tokio::test]
async fn over_tcp_a_refused_connection_is_unavailable_and_not_retried_without_a_policy() {
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let endpoint = Endpoint::try_from(format!("http://127.0.0.1:{port}")).unwrap();
    let layer = RetryLayer::builder().build();
    let channel = ServiceBuilder::new().layer(layer.clone()).service(endpoint.connect_lazy());
    let status = EchoClient::new(channel).unary(message("x")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    let chain = chain(&status);
    assert_eq!(chain[..2], REFUSED[..2]);
    assert_eq!(chain.last().unwrap(), "io ConnectionRefused");
    let made = layer.control().statistics()[super::rig::UNARY].retries;
    assert_eq!((made.retries, made.transparent), (0, 0));
}
