//! Goal: the client works with a server that this project did not write, and RFC 49's delays can be
//! measured at that server. Method: `CouchbaseMock`, the vendor's mock, with its fault commands, in real
//! time over loopback TCP; times have a lower bound and a generous upper one.
//!
//! What the mock does not have (0x88, 0xa2, 0xa4, collections, TLS, GET META) is tested against the
//! scripted server, in `tests/client`.

mod peers;
mod server;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use redial::strategy::{Decision, Request};
use redial::{CallLog, ms, s};
use redial_couchbase::client::{
    Address, Client, ClientOptions, Collection, Lookup, PathError, PathMutation, PlainSasl,
    RequestError,
};
use redial_couchbase::response::status;
use redial_couchbase::{
    BestEffort, FastFailOnTerminalError, TerminalError, TimeoutKind, reason, retry_log_lines,
};

use server::Mock;

const GET: u64 = 0x00;
const SET: u64 = 0x01;
/// How long connecting may take on a busy machine.
const READY_MAX: Duration = Duration::from_secs(20);
/// How much longer than asked for a request may take on a busy machine.
const LATE_MAX: u64 = 2000;
/// How much longer than asked for the shortest of some measured delays may be: less than the difference
/// between the delays of RFC 49 and those of reasons that are always retried.
const DELAY_TOLERANCE: u64 = 6;
/// How many times delays are measured.
const MEASUREMENTS: usize = 20;

impl Mock {
    /// Options for a bucket of the mock. It is polled for its configuration only by hand, since its
    /// injected failures hit polls, too.
    fn options(&self, bucket: &str) -> ClientOptions {
        let address = Address::new("127.0.0.1", self.kv_ports(bucket)[0]);
        ClientOptions::new([address], bucket)
            .strategy(BestEffort::new())
            .timeout(Duration::from_secs(30))
            .config_poll_interval(Duration::from_secs(3600))
    }
}

/// A mock with one node, and a client of its bucket `default`.
async fn started(nodes: usize) -> (Mock, Client) {
    let mock = Mock::start(nodes, 0);
    let client = Client::open(mock.options("default").credentials("default", ""));
    let ready = client.wait_until_ready(READY_MAX).await;
    ready.unwrap_or_else(|error| panic!("{error}: {:?}", client.endpoints()));
    (mock, client)
}

/// Runs a write that fails some times with a status, and returns the gaps between its arrivals at the
/// server, in ms, with the reasons of its retries.
async fn gaps(
    mock: &Mock,
    documents: &Collection,
    status: u16,
    count: i32,
) -> (Vec<u64>, Vec<String>) {
    mock.start_log(0);
    mock.fail(status, count);
    let mut log = CallLog::default();
    let written = documents.upsert("a", "1").call_log(&mut log).await;
    written.unwrap_or_else(|error| panic!("{status:#x}: {error}"));
    // The log is not cleared: the last ones are those of this request.
    let arrived = mock.log(0, SET);
    let gaps = arrived[arrived.len() - log_attempts(&log)..]
        .windows(2)
        .map(|pair| pair[1] - pair[0])
        .collect();
    (gaps, retry_log_lines(log.events()).iter().map(ToString::to_string).collect())
}

fn log_attempts(log: &CallLog) -> usize {
    let started = |event: &redial::Event| matches!(event, redial::Event::AttemptStarted { .. });
    log.events().iter().filter(|(_, event)| started(event)).count()
}

/// Measures the delays of a write that fails with a status until they are those of the design. No client
/// sends before its delay is over, and a busy machine only makes it longer, so of each delay the shortest
/// counts. The server's clock has whole milliseconds, so one may look a millisecond shorter.
async fn delays_are(
    mock: &Mock,
    documents: &Collection,
    status: u16,
    reason: &str,
    expected: &[u64],
) {
    let lines_expected = vec![format!("retry {reason}"); expected.len()];
    let mut shortest = vec![u64::MAX; expected.len()];
    let is_near = |(measured, expected): (&u64, &u64)| {
        (expected.saturating_sub(1)..=expected + DELAY_TOLERANCE).contains(measured)
    };
    for _ in 0..MEASUREMENTS {
        let count = i32::try_from(expected.len()).expect("a few");
        let (measured, lines) = gaps(mock, documents, status, count).await;
        assert_eq!((measured.len(), &lines), (expected.len(), &lines_expected), "{measured:?}");
        for (shortest, measured) in shortest.iter_mut().zip(measured) {
            *shortest = measured.min(*shortest);
        }
        if shortest.iter().zip(expected).all(is_near) {
            return;
        }
    }
    panic!("{status:#x}: measured {shortest:?}, expected {expected:?}");
}

#[tokio::test]
#[ignore = "needs Java and CouchbaseMock: cargo xtask test couchbase-mock"]
async fn mock_serves_the_operations() {
    let (_mock, client) = started(3).await;
    let documents = client.default_collection();
    let status_of =
        |error: redial_couchbase::Error<RequestError>| error.last().and_then(RequestError::status);
    assert_eq!(status_of(documents.get("a").await.unwrap_err()), Some(status::NOT_FOUND));
    let inserted = documents.insert("a", "one").await.unwrap();
    let error = documents.insert("a", "two").await.unwrap_err();
    assert_eq!(status_of(error), Some(status::EXISTS));
    documents.replace("a", "two").cas(inserted.cas).await.unwrap();
    assert_eq!(documents.get("a").await.unwrap().value, "two");
    documents.append("a", "!").await.unwrap();
    documents.prepend("a", "<").await.unwrap();
    assert_eq!(documents.get_and_touch("a", s(60)).await.unwrap().value, "<two!");
    documents.touch("a", s(60)).await.unwrap();
    let locked = documents.get_and_lock("a", s(15)).await.unwrap();
    documents.unlock("a", locked.cas).await.unwrap();
    documents.remove("a").await.unwrap();
    assert_eq!(status_of(documents.remove("a").await.unwrap_err()), Some(status::NOT_FOUND));
    assert_eq!(documents.increment("n", 1, Some(7)).await.unwrap().value, 7);
    assert_eq!(documents.increment("n", 3, None).await.unwrap().value, 10);
    assert_eq!(documents.decrement("n", 4, None).await.unwrap().value, 6);
    documents.upsert("j", r#"{"a": {"b": 1}}"#).await.unwrap();
    let found = documents.lookup_in("j", [Lookup::get("a.b"), Lookup::get("x")]).await.unwrap();
    assert_eq!(found.values[0].as_deref(), Ok(&b"1"[..]));
    assert_eq!(found.values[1], Err(PathError::NOT_FOUND));
    let changed = documents.mutate_in("j", [PathMutation::upsert("a.c", "2")]).await.unwrap();
    assert_eq!(changed.failed, None);
    let refused = documents.mutate_in("j", [PathMutation::insert("a.c", "3")]).await.unwrap();
    assert_eq!(refused.failed, Some((0, PathError::EXISTS)));
    for number in 0..200 {
        let key = format!("key{number}");
        documents.upsert(key.clone(), key.clone()).await.unwrap();
        assert_eq!(documents.get(key.clone()).await.unwrap().value, key, "of its node");
    }
}

#[tokio::test]
#[ignore = "needs Java and CouchbaseMock: cargo xtask test couchbase-mock"]
async fn mock_has_replicas() {
    let mock = Mock::start(3, 1);
    let client = Client::open(mock.options("default").credentials("default", ""));
    client.wait_until_ready(READY_MAX).await.unwrap();
    let documents = client.default_collection();
    documents.upsert("a", "1").await.unwrap();
    let read = documents.get_replica("a", 1).retry_status(status::NOT_FOUND, NOT_COPIED_YET);
    assert_eq!(read.await.unwrap().value, "1");
}

/// The application knows that the document was written, so the replica will get it.
const NOT_COPIED_YET: redial::Reason = redial::Reason::new("NOT_COPIED_YET");

#[tokio::test]
#[ignore = "needs Java and CouchbaseMock: cargo xtask test couchbase-mock"]
async fn mock_accepts_every_mechanism() {
    let mock = Mock::start(1, 0);
    for mechanism in ["SCRAM-SHA512", "SCRAM-SHA256", "SCRAM-SHA1", "PLAIN"] {
        mock.command(&format!(
            "set_sasl_mechanisms?bucket=secure&mechs=[%22{mechanism}%22]&servers=[]"
        ));
        let options = mock.options("secure").credentials("secure", "secret");
        let client = Client::open(options.plain_sasl(PlainSasl::Always));
        let ready = client.wait_until_ready(READY_MAX).await;
        ready.unwrap_or_else(|error| panic!("{mechanism}: {error}"));
        client.default_collection().upsert("a", mechanism).await.unwrap();
    }
}

#[tokio::test]
#[ignore = "needs Java and CouchbaseMock: cargo xtask test couchbase-mock"]
async fn mock_refuses_wrong_passwords_and_buckets_at_once() {
    let mock = Mock::start(1, 0);
    let options = mock.options("secure").strategy(FastFailOnTerminalError::new());
    let options = options.plain_sasl(PlainSasl::Always).credentials("secure", "wrong");
    // The mock does not check SCRAM's proof; the client notices that the mock has another password.
    let client = Client::open(options.clone());
    let connected = async {
        while client.endpoints()[0].connect_error.is_none() {
            tokio::time::sleep(ms(20)).await;
        }
    };
    tokio::time::timeout(READY_MAX, connected).await.expect("an attempt to connect has failed");
    assert!(client.wait_until_ready(ms(100)).await.unwrap_err().is_timeout());
    let error = client.endpoints()[0].connect_error.clone();
    assert_eq!(error.as_deref(), Some("the server does not know the password"));
    // It checks that of PLAIN.
    mock.command("set_sasl_mechanisms?bucket=secure&mechs=[%22PLAIN%22]&servers=[]");
    let client = Client::open(options);
    let error = client.wait_until_ready(READY_MAX).await.unwrap_err();
    let expected = Some(TerminalError::AuthenticationFailure);
    assert_eq!(error.terminal(), expected, "{error}: {:?}", client.endpoints());
    assert_eq!(error.reason(), Some(reason::AUTHENTICATION_ERROR));
    let options = mock.options("default").strategy(FastFailOnTerminalError::new());
    // The same nodes, but a bucket that this user may not have.
    let client = Client::open(options.bucket("none").credentials("default", ""));
    let error = client.wait_until_ready(READY_MAX).await.unwrap_err();
    assert_eq!(error.reason(), Some(reason::BUCKET_ACCESS_ERROR), "{error}");
}

#[tokio::test]
#[ignore = "needs Java and CouchbaseMock: cargo xtask test couchbase-mock"]
async fn mock_sees_the_delays_of_the_design() {
    let (mock, client) = started(1).await;
    let documents = client.default_collection();
    for (status, reason, expected) in [
        (0x86, "KV_TEMPORARY_FAILURE", &[1, 2, 4, 8][..]),
        (0x85, "KV_TEMPORARY_FAILURE", &[1, 2, 4]),
        (0x09, "KV_LOCKED", &[1, 2]),
        (0x07, "KV_NOT_MY_VBUCKET", &[1, 10, 50]),
        // An unknown status, which the mock's own error map marks as retryable.
        (0x7ff0, "KV_ERROR_MAP_RETRY_INDICATED", &[1, 2, 4]),
    ] {
        delays_are(&mock, &documents, status, reason, expected).await;
    }
}

#[tokio::test]
#[ignore = "needs Java and CouchbaseMock: cargo xtask test couchbase-mock"]
async fn mock_failure_without_retry_is_final() {
    let (mock, client) = started(1).await;
    let documents = client.default_collection();
    // Out of memory is known, and RFC 49 does not list it.
    mock.fail(0x82, 1);
    let error = documents.upsert("a", "1").await.unwrap_err();
    assert_eq!((error.attempts(), error.reason()), (1, None));
    mock.fail(0x86, 1);
    let declined = documents.upsert("a", "1").strategy(|_: &Request<'_>| Decision::Decline);
    assert_eq!(declined.await.unwrap_err().reason(), Some(reason::KV_TEMPORARY_FAILURE));
    documents.upsert("a", "1").await.unwrap();
}

#[tokio::test]
#[ignore = "needs Java and CouchbaseMock: cargo xtask test couchbase-mock"]
async fn mock_slow_or_cut_answers_time_out() {
    let (mock, client) = started(1).await;
    let documents = client.default_collection();
    documents.upsert("a", "1").await.unwrap();
    mock.command("hiccup?bucket=default&msecs=1500&offset=4&servers=[]");
    let started = Instant::now();
    let error = documents.upsert("a", "2").timeout(ms(100)).await.unwrap_err();
    assert_eq!(error.timeout(), Some(TimeoutKind::Ambiguous));
    assert!(started.elapsed() < Duration::from_millis(100 + LATE_MAX));
    let error = documents.get("a").timeout(ms(100)).await.unwrap_err();
    assert_eq!(error.timeout(), Some(TimeoutKind::Unambiguous));
    mock.command("hiccup?bucket=default&msecs=0&offset=0&servers=[]");
    mock.command("truncate?bucket=default&limit=10&servers=[]");
    let cut = Client::open(mock.options("default").credentials("default", ""));
    assert!(cut.wait_until_ready(ms(500)).await.unwrap_err().is_timeout());
    mock.command("truncate?bucket=default&limit=0&servers=[]");
}

#[tokio::test]
#[ignore = "needs Java and CouchbaseMock: cargo xtask test couchbase-mock"]
async fn mock_failover_and_respawn_are_followed() {
    let mock = Mock::start(3, 0);
    let options = mock.options("default").credentials("default", "");
    let client = Client::open(options.config_poll_interval(ms(200)));
    client.wait_until_ready(READY_MAX).await.unwrap();
    let documents = client.default_collection();
    let mut lost = 0;
    for command in ["", "failover", "respawn"] {
        let revision = client.config_revision();
        if !command.is_empty() {
            mock.command(&format!("{command}?bucket=default&idx=1"));
        }
        // A node that is failed over keeps its connections and is silent (the next test). Requests that
        // it got end when the client knows the new configuration: long before their timeout of 30 s.
        for number in 0..64 {
            let key = format!("key{number}");
            match documents.upsert(key.clone(), "1").timeout(s(30)).await {
                Ok(_) => {}
                Err(error) => {
                    let reason = error.reason();
                    assert_eq!(reason, Some(reason::SOCKET_CLOSED_WHILE_IN_FLIGHT), "{error}");
                    lost += 1;
                    // It may have been executed; the application repeats it, because it can.
                    documents.upsert(key.clone(), "1").await.unwrap();
                }
            }
            assert_eq!(documents.get(key).timeout(s(30)).await.unwrap().value, "1");
        }
        if !command.is_empty() {
            let followed = async {
                while client.config_revision() <= revision {
                    tokio::time::sleep(ms(20)).await;
                }
            };
            tokio::time::timeout(READY_MAX, followed).await.expect("a new configuration");
        }
    }
    assert!(lost <= 1, "one request at a time, and one node that was failed over: {lost}");
}

/// What the mock does, without the client: evidence for the test above.
#[tokio::test]
#[ignore = "needs Java and CouchbaseMock: cargo xtask test couchbase-mock"]
async fn mock_failed_over_node_keeps_connections_and_is_silent() {
    let mock = Mock::start(3, 0);
    let mut stream = TcpStream::connect(("127.0.0.1", mock.kv_ports("default")[1])).unwrap();
    stream.set_read_timeout(Some(ms(500))).unwrap();
    // LIST MECHANISMS, which needs no authentication.
    let mut request = [0; 24];
    (request[0], request[1]) = (0x80, 0x20);
    let mut exchange = || {
        stream.write_all(&request).unwrap();
        stream.read(&mut [0; 1024])
    };
    assert!(exchange().unwrap() > 24, "it answers");
    mock.command("failover?bucket=default&idx=1");
    // The thread that waits on its sockets may be inside one more turn.
    let silent = (0..3).map(|_| exchange()).last().unwrap();
    assert_eq!(silent.unwrap_err().kind(), ErrorKind::WouldBlock, "neither an answer nor an end");
    mock.command("respawn?bucket=default&idx=1");
    assert!(exchange().unwrap() > 24, "the same connection works again");
}

#[tokio::test]
#[ignore = "needs Java and CouchbaseMock: cargo xtask test couchbase-mock"]
async fn mock_lock_ends_by_time() {
    let (mock, client) = started(1).await;
    let documents = client.default_collection();
    documents.upsert("a", "1").await.unwrap();
    documents.get_and_lock("a", s(15)).await.unwrap();
    let mut log = CallLog::default();
    let start = Instant::now();
    let blocked = documents.upsert("a", "2").timeout(ms(100)).call_log(&mut log).await;
    assert!(blocked.unwrap_err().is_timeout());
    assert!(start.elapsed() >= ms(100), "the lock was held all the time");
    let lines = retry_log_lines(log.events());
    assert_eq!(lines[0].to_string(), "retry KV_LOCKED");
    mock.command("time_travel?Offset=20");
    documents.upsert("a", "2").await.unwrap();
    mock.start_log(0);
    assert_eq!(documents.get("a").await.unwrap().value, "2");
    assert_eq!(mock.log(0, GET).len(), 1);
}
