use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redial::{CallLog, ms, s};
use redial_couchbase::client::{
    Address, CONFIG_POLL_INTERVAL, CONFIG_POLL_TIMEOUT, CONNECTION_HEALTHY_AFTER, Client,
    ClientOptions, Connecting, Connector, RequestError, SEND_QUEUE_MAX, Stream,
};
use redial_couchbase::{BackoffCalculator, reason};
use redial_faults::couchbase::{Answer, AnswerAction, Script};
use tokio::time::Instant;

use crate::common::{PipeConnector, options, ready, serve};

#[tokio::test(start_paused = true)]
async fn connections_answer_concurrent_requests_out_of_order() {
    let (client, server) = ready(Script::new()).await;
    let documents = client.default_collection();
    let answers = (0..20).rev().map(|number| Answer::serve().after(ms(number)));
    server.push_answers(answers);
    let requests = (0..20).map(|number| {
        let key = format!("key{number}");
        let documents = documents.clone();
        tokio::spawn(async move { documents.upsert(key.clone(), key).await.map(|_| ()) })
    });
    for request in requests.collect::<Vec<_>>() {
        request.await.unwrap().unwrap();
    }
    for number in 0..20 {
        let key = format!("key{number}");
        assert_eq!(documents.get(key.clone()).await.unwrap().value, key);
    }
    assert_eq!(server.connection_count(), 1, "one connection is enough");
}

#[tokio::test(start_paused = true)]
async fn connections_full_send_queue_is_socket_not_available() {
    let server = serve(Script::new());
    let client = Client::open(options(&server).send_queue_max(2).circuit_breaker(None));
    client.wait_until_ready(s(1)).await.unwrap();
    server.stop_reading();
    let documents = client.default_collection();
    // One fills the buffers of the pipe, and two fill the queue.
    let large = vec![b'x'; 200 << 10];
    let mut waiting = Vec::new();
    for key in ["a", "b", "c"] {
        let (documents, large) = (documents.clone(), large.clone());
        waiting.push(tokio::spawn(async move { documents.upsert(key, large).await.map(|_| ()) }));
        tokio::time::sleep(ms(1)).await;
    }
    let error = documents.upsert("d", "1").timeout(ms(50)).await.unwrap_err();
    assert_eq!(error.reason(), Some(reason::SOCKET_NOT_AVAILABLE));
    assert!(!error.is_ambiguous(), "it was never sent");
    server.resume_reading();
    for request in waiting {
        request.await.unwrap().unwrap();
    }
    documents.upsert("d", "1").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn connections_dropped_request_in_the_queue_is_not_written() {
    let server = serve(Script::new());
    let client = Client::open(options(&server).circuit_breaker(None));
    client.wait_until_ready(s(1)).await.unwrap();
    server.stop_reading();
    let documents = client.default_collection();
    let large = vec![b'x'; 200 << 10];
    let stalled = {
        let documents = documents.clone();
        tokio::spawn(async move { documents.upsert("a", large).await.map(|_| ()) })
    };
    tokio::time::sleep(ms(1)).await;
    let error = documents.upsert("b", "1").timeout(ms(10)).await.unwrap_err();
    assert!(error.is_timeout());
    server.resume_reading();
    stalled.await.unwrap().unwrap();
    documents.get("b").await.unwrap_err();
    let keys: Vec<_> = server.requests().into_iter().map(|request| request.key).collect();
    assert_eq!(keys, [b"a", b"b"], "of b only the read");
}

#[tokio::test(start_paused = true)]
async fn connections_lost_ones_are_made_again() {
    let (client, server) = ready(Script::new()).await;
    for _ in 0..5 {
        server.drop_connections();
        tokio::time::sleep(ms(1)).await;
        client.wait_until_ready(s(1)).await.unwrap();
        client.default_collection().upsert("a", "1").await.unwrap();
    }
    assert_eq!(server.connection_count(), 6);
}

#[tokio::test(start_paused = true)]
async fn connections_with_a_cut_answer_time_out() {
    let (client, server) = ready(Script::new()).await;
    server.push_answers([Answer::new(AnswerAction::Truncate(10))]);
    let documents = client.default_collection();
    let error = documents.upsert("a", "1").timeout(ms(100)).await.unwrap_err();
    assert!(error.is_ambiguous());
    // The stream is out of step: the client waits for the rest until the connection is lost.
    let error = documents.get("a").timeout(ms(100)).await.unwrap_err();
    assert!(error.is_timeout() && !error.is_ambiguous());
    server.drop_connections();
    assert_eq!(documents.get("a").await.unwrap().value, "1", "the write was executed");
    assert_eq!(server.connection_count(), 2);
}

#[tokio::test(start_paused = true)]
async fn connections_end_with_the_last_clone() {
    let (client, server) = ready(Script::new()).await;
    let documents = client.default_collection();
    drop(client);
    documents.upsert("a", "1").await.unwrap();
    drop(documents);
    let (other, _other_server) = ready(Script::new()).await;
    drop(other);
    let before = server.connection_count();
    server.drop_connections();
    tokio::time::sleep(s(5)).await;
    assert_eq!(server.connection_count(), before, "it does not connect again");
}

#[tokio::test(start_paused = true)]
async fn connections_lost_in_flight_keep_their_cause() {
    let (client, server) = ready(Script::new()).await;
    server.push_answers([Answer::close()]);
    let error = client.default_collection().upsert("a", "1").await.unwrap_err();
    let Some(RequestError::ConnectionLost { cause: None, .. }) = error.last() else {
        panic!("{error:?}")
    };
    let text = "connection lost, SOCKET_CLOSED_WHILE_IN_FLIGHT";
    assert_eq!(error.last().unwrap().to_string(), text);
}

#[tokio::test(start_paused = true)]
async fn connections_lost_before_the_manifest_repeat_the_write() {
    let (client, server) = ready(Script::new().scope("s", ["c"])).await;
    server.stop_reading();
    let mut log = CallLog::default();
    let documents = client.collection("s", "c");
    let lost = async {
        tokio::time::sleep(ms(1)).await;
        server.drop_connections();
        server.resume_reading();
    };
    let write = documents.upsert("a", "1").call_log(&mut log).into_future();
    let (written, ()) = tokio::join!(write, lost);
    written.unwrap();
    let lines = redial_couchbase::retry_log_lines(log.events());
    assert_eq!(lines[0].reason, reason::SOCKET_NOT_AVAILABLE, "it was not sent");
    assert_eq!(server.request_count(), 1);
}

/// Accepts each connection and closes it at once, and counts them.
#[derive(Clone, Default)]
struct ClosingPeer(Arc<AtomicUsize>);

impl Connector for ClosingPeer {
    fn connect(&self, _: &Address) -> Connecting {
        let connections = self.0.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            if connections > 1000 {
                // A busy loop would stop the clock.
                std::future::pending::<()>().await;
            }
            Ok(Box::new(tokio::io::duplex(64).0) as Box<dyn Stream>)
        })
    }
}

#[tokio::test(start_paused = true)]
async fn connections_closed_at_once_are_made_with_backoff() {
    let peer = ClosingPeer::default();
    let options = ClientOptions::memcached(Address::new("peer", 11211)).connector(peer.clone());
    let client = Client::open(options);
    tokio::time::sleep(ms(10_500)).await;
    // After 1, 10, 50, 100 and 500 ms, then each second.
    assert_eq!(peer.0.load(Ordering::Relaxed), 15);
    let error = client.endpoints()[0].connect_error.clone();
    assert_eq!(error.as_deref(), Some("the connection was lost soon after it was made"));
}

#[tokio::test(start_paused = true)]
async fn connections_that_lasted_start_the_backoff_anew() {
    let (client, server) = ready(Script::new()).await;
    for lasted in [0, 1, 0] {
        for _ in 0..5 {
            server.drop_connections();
            tokio::time::sleep(s(2)).await;
            assert!(client.endpoints()[0].is_connected);
        }
        tokio::time::sleep(CONNECTION_HEALTHY_AFTER * lasted).await;
        server.drop_connections();
        // The sixth delay is 1 s, the first one 1 ms.
        tokio::time::sleep(ms(2)).await;
        assert_eq!(client.endpoints()[0].is_connected, lasted == 1);
        tokio::time::sleep(CONNECTION_HEALTHY_AFTER + s(1)).await;
        server.drop_connections();
        tokio::time::sleep(ms(2)).await;
    }
}

/// In real time and on two threads: the first endpoint connects while the others are started.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_made_during_the_start_are_used() {
    let server = serve(Script::new());
    let first = server.address(0).0;
    let addresses = (0..2000).map(|index| match index {
        0 => Address::new(first.clone(), 11210),
        index => Address::new(format!("silent{index}"), 11210),
    });
    let connector = PipeConnector(server.connector());
    let options = ClientOptions::new(addresses, "default").connector(FirstNode(connector));
    let client = Client::open(options.config_poll_interval(s(3600)));
    client.default_collection().upsert("a", "1").timeout(s(30)).await.unwrap();
    assert_eq!(client.endpoints().len(), 1, "the others are not in the configuration");
    assert_eq!(server.connection_count(), 1);
}

/// Connects to one node; others never answer.
struct FirstNode<C>(C);

impl<C: Connector> Connector for FirstNode<C> {
    fn connect(&self, address: &Address) -> Connecting {
        if address.host().starts_with("silent") {
            return Box::pin(std::future::pending());
        }
        self.0.connect(address)
    }
}

#[tokio::test(start_paused = true)]
async fn connections_that_are_silent_end_with_a_poll() {
    let server = serve(Script::new());
    let client = Client::open(options(&server).timeout(s(60)));
    client.wait_until_ready(s(1)).await.unwrap();
    let documents = client.default_collection();
    documents.upsert("a", "1").await.unwrap();
    server.stop_reading();
    let start = Instant::now();
    let heal = async {
        tokio::time::sleep(CONFIG_POLL_INTERVAL + CONFIG_POLL_TIMEOUT + ms(100)).await;
        server.resume_reading();
    };
    let (read, ()) = tokio::join!(documents.get("a").into_future(), heal);
    assert_eq!(read.unwrap().value, "1");
    assert!(start.elapsed() < s(6), "a poll and its timeout: {:?}", start.elapsed());
    assert_eq!(server.connection_count(), 2);
}

#[tokio::test(start_paused = true)]
async fn connections_with_a_blocked_writer_end_with_a_poll() {
    // In the first case the poll waits in the queue, in the second one the queue is full.
    for queue_max in [SEND_QUEUE_MAX, 1] {
        let server = serve(Script::new());
        let options = options(&server).timeout(s(60)).circuit_breaker(None);
        let client = Client::open(options.send_queue_max(queue_max));
        client.wait_until_ready(s(1)).await.unwrap();
        let documents = client.default_collection();
        documents.upsert("a", "1").await.unwrap();
        server.stop_reading();
        let start = Instant::now();
        let large = documents.upsert("b", vec![b'x'; 200 << 10]).into_future();
        let read = async {
            // The large one is being written.
            tokio::time::sleep(ms(1)).await;
            documents.get("a").await
        };
        let heal = async {
            tokio::time::sleep(CONFIG_POLL_INTERVAL + CONFIG_POLL_TIMEOUT + ms(100)).await;
            server.resume_reading();
        };
        let (large, read, ()) = tokio::join!(large, read, heal);
        let error = large.unwrap_err();
        assert_eq!(error.reason(), Some(reason::SOCKET_CLOSED_WHILE_IN_FLIGHT));
        assert_eq!(read.unwrap().value, "1", "it was not written, so it is sent again");
        assert!(start.elapsed() < s(7), "a poll and its timeout: {:?}", start.elapsed());
        assert_eq!(server.connection_count(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn connections_with_a_slow_long_write_are_kept() {
    let server = serve(Script::new());
    let client = Client::open(options(&server).timeout(s(60)));
    client.wait_until_ready(s(1)).await.unwrap();
    let documents = client.default_collection();
    let large = documents.upsert("a", vec![b'x'; 2 << 20]).into_future();
    let slow_reads = async {
        // The server reads a bit each second, so that the poll waits in the queue.
        for _ in 0..10 {
            server.stop_reading();
            tokio::time::sleep(s(1)).await;
            server.resume_reading();
            for _ in 0..2 {
                tokio::task::yield_now().await;
            }
        }
    };
    let (large, ()) = tokio::join!(large, slow_reads);
    large.unwrap();
    assert_eq!(server.connection_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn connections_that_are_silent_end_without_their_turn() {
    let server = serve(Script::new().nodes(4));
    let client = Client::open(options(&server).timeout(s(60)));
    client.wait_until_ready(s(1)).await.unwrap();
    server.stop_reading();
    let documents = client.default_collection();
    let reads: Vec<_> = (0..40)
        .map(|number| {
            let documents = documents.clone();
            tokio::spawn(async move { documents.get(format!("key{number}")).await.map(drop) })
        })
        .collect();
    // The second poll asks all nodes.
    tokio::time::sleep(CONFIG_POLL_INTERVAL * 2 + CONFIG_POLL_TIMEOUT + ms(100)).await;
    assert_eq!(server.connection_count(), 8, "each was replaced");
    server.resume_reading();
    for read in reads {
        let error = read.await.unwrap().unwrap_err();
        assert_eq!(error.last().unwrap().status(), Some(1), "an answer: {error}");
    }
}

/// Panics at the first connections.
struct PanickingConnector<C>(C, AtomicUsize);

impl<C: Connector> Connector for PanickingConnector<C> {
    fn connect(&self, address: &Address) -> Connecting {
        match self.1.fetch_add(1, Ordering::Relaxed) {
            0 => panic!("a connector that panics"),
            1 => Box::pin(async { panic!("a connection that panics") }),
            _ => self.0.connect(address),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn connections_are_made_after_a_panic_of_the_connector() {
    let server = serve(Script::new());
    let connector = PanickingConnector(PipeConnector(server.connector()), AtomicUsize::new(0));
    let client = Client::open(options(&server).connector(connector));
    tokio::time::sleep(ms(1)).await;
    let error = client.endpoints()[0].connect_error.clone();
    assert_eq!(error.as_deref(), Some("the application's connector or its delays panicked"));
    client.wait_until_ready(s(10)).await.unwrap();
    client.default_collection().upsert("a", "1").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn connections_are_made_after_a_panic_of_their_delays() {
    let server = serve(Script::new());
    server.set_bucket_status(0x24);
    let delays = BackoffCalculator::from_fn(|_| panic!("delays that panic"));
    let client = Client::open(options(&server).reconnect(delays));
    tokio::time::sleep(ms(1)).await;
    let error = client.endpoints()[0].connect_error.clone();
    assert_eq!(error.as_deref(), Some("the application's connector or its delays panicked"));
    server.set_bucket_status(0x00);
    client.wait_until_ready(s(10)).await.unwrap();
    client.default_collection().upsert("a", "1").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn connections_that_read_survive_a_slow_poll() {
    let server = serve(Script::new());
    let client = Client::open(options(&server).timeout(s(60)));
    client.wait_until_ready(s(1)).await.unwrap();
    let documents = client.default_collection();
    // The poll comes after 2.5 s, and waits behind the reading of the requests.
    server.push_answers([Answer::serve().after(s(3))]);
    let slow = {
        let documents = documents.clone();
        tokio::spawn(async move { documents.upsert("a", "1").await.map(|_| ()) })
    };
    tokio::time::sleep(ms(1)).await;
    server.stop_reading();
    slow.await.unwrap().unwrap();
    tokio::time::sleep(s(3)).await;
    assert_eq!(server.connection_count(), 1);
}
