use std::time::Duration;

use redial::{StopReason, ms, s};
use redial_couchbase::client::{Address, Client, ClientOptions};
use redial_couchbase::{BestEffort, TimeoutKind, reason};
use redial_faults::couchbase::{Answer, Identity, RequestOutcome, Script, Server};
use tokio::time::Instant;

use crate::common::{Lines, arrivals, options, ready, serve, until};
use crate::terminal::tls;

#[tokio::test(start_paused = true)]
async fn topology_in_not_my_vbucket_leads_to_the_node() {
    let origin = Instant::now();
    let (client, server) = ready(Script::new().nodes(2)).await;
    let documents = client.default_collection();
    documents.upsert("a", "1").await.unwrap();
    let node = server.requests()[0].node;
    server.move_vbuckets(Some(1 - node));
    let start = Instant::now();
    documents.upsert("a", "2").await.unwrap();
    let met = arrivals(&server, origin, start);
    assert_eq!(
        met[met.len() - 2..],
        [(0, RequestOutcome::Status(7)), (1, RequestOutcome::Status(0))]
    );
    assert_eq!(server.requests().last().unwrap().node, 1 - node);
    assert_eq!(client.config_revision(), Some((1, 2)));
}

#[tokio::test(start_paused = true)]
async fn topology_is_polled_at_its_interval() {
    let server = serve(Script::new().nodes(2));
    let client = Client::open(options(&server).config_poll_interval(s(1)));
    client.wait_until_ready(s(1)).await.unwrap();
    let polls = server.config_polls();
    tokio::time::sleep(ms(10_100)).await;
    assert_eq!(server.config_polls() - polls, 10, "one for each interval");
    server.move_vbuckets(Some(0));
    tokio::time::sleep(s(1)).await;
    assert_eq!(client.config_revision(), Some((1, 2)));
    // Both nodes are asked in turn; without connections nothing is asked.
    server.set_bucket_status(0x24);
    server.drop_connections();
    tokio::time::sleep(ms(1)).await;
    let polls = server.config_polls();
    tokio::time::sleep(s(5)).await;
    assert_eq!(server.config_polls(), polls);
}

#[tokio::test(start_paused = true)]
async fn topology_without_a_node_for_the_vbucket_waits_for_one() {
    let server = serve(Script::new());
    let client = Client::open(options(&server).config_poll_interval(ms(100)));
    client.wait_until_ready(s(1)).await.unwrap();
    server.move_vbuckets(None);
    until(|| client.config_revision() == Some((1, 2))).await;
    let documents = client.default_collection();
    let error = documents.upsert("a", "1").timeout(ms(50)).await.unwrap_err();
    assert_eq!(error.reason(), Some(reason::NODE_NOT_AVAILABLE));
    let back = async {
        tokio::time::sleep(ms(200)).await;
        server.move_vbuckets(Some(0));
    };
    let (written, ()) = tokio::join!(documents.upsert("a", "1").into_future(), back);
    written.unwrap();
}

#[tokio::test(start_paused = true)]
async fn topology_too_early_request_waits_for_the_first_configuration() {
    let server = serve(Script::new());
    let client = Client::open(options(&server));
    client.default_collection().upsert("a", "1").await.unwrap();
    let missing = Client::open(ClientOptions::new([], "default").strategy(BestEffort::new()));
    let request = missing.default_collection();
    let error = request.get("a").timeout(ms(50)).await.unwrap_err();
    assert_eq!(error.reason(), Some(reason::SERVICE_NOT_AVAILABLE));
}

#[tokio::test(start_paused = true)]
async fn topology_node_without_the_service_is_service_not_available() {
    let identity = Identity::self_signed(["node0", "node1"]).unwrap();
    let server = Server::new(Script::new().nodes(2)).tls(identity.clone()).on_pipe().unwrap();
    server.withdraw_tls_port(1);
    let lines = Lines::default();
    let options = lines.of(options(&server).tls(tls(&identity)).config_poll_interval(ms(100)));
    let client = Client::open(options);
    client.wait_until_ready(s(1)).await.unwrap();
    let documents = client.default_collection();
    let keys = (0..20).map(|number| format!("key{number}"));
    let mut missed = Vec::new();
    for key in keys {
        match documents.upsert(key.clone(), "1").timeout(ms(20)).await {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.reason(), Some(reason::SERVICE_NOT_AVAILABLE));
                assert_eq!(error.timeout(), Some(TimeoutKind::Unambiguous), "it was never sent");
                missed.push(key);
            }
        }
    }
    assert!((1..20).contains(&missed.len()), "the keys of one of two nodes: {missed:?}");
    assert_eq!(server.request_count(), 20 - missed.len() as u64);
    // A write waits for the service although it is not idempotent.
    lines.take();
    let back = async {
        tokio::time::sleep(ms(50)).await;
        server.offer_tls_port(1);
    };
    let write = documents.upsert(missed[0].clone(), "1").into_future();
    let (written, ()) = tokio::join!(write, back);
    written.unwrap();
    assert_eq!(lines.take()[0], "retry SERVICE_NOT_AVAILABLE");
}

#[tokio::test(start_paused = true)]
async fn topology_without_any_address_is_refused() {
    let identity = Identity::self_signed(["node0"]).unwrap();
    let server = Server::new(Script::new()).tls(identity.clone()).on_pipe().unwrap();
    let client = Client::open(options(&server).tls(tls(&identity)).config_poll_interval(ms(100)));
    client.wait_until_ready(s(1)).await.unwrap();
    let documents = client.default_collection();
    server.withdraw_tls_port(0);
    tokio::time::sleep(s(1)).await;
    assert_eq!(client.config_revision(), Some((1, 1)), "it is not used");
    documents.upsert("a", "1").await.unwrap();
    // A new connection says why it cannot be used.
    server.drop_connections();
    tokio::time::sleep(ms(10)).await;
    let error = client.endpoints()[0].connect_error.clone().unwrap();
    assert_eq!(error, "cluster config: no node with a TLS port of the KV service");
    assert!(client.wait_until_ready(ms(50)).await.is_err());
    server.offer_tls_port(0);
    documents.upsert("a", "2").await.unwrap();
    assert_eq!(client.config_revision(), Some((1, 3)));
    client.wait_until_ready(s(1)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn topology_without_nodes_is_refused() {
    let server = serve(Script::new());
    let client = Client::open(options(&server).config_poll_interval(ms(100)));
    client.wait_until_ready(s(1)).await.unwrap();
    server.fail_over(0);
    tokio::time::sleep(s(1)).await;
    assert_eq!((client.config_revision(), client.endpoints().len()), (Some((1, 1)), 1));
}

#[tokio::test(start_paused = true)]
async fn topology_manifest_is_fetched_once_for_concurrent_requests() {
    let (client, server) = ready(Script::new().scope("s", ["c"])).await;
    let documents = client.collection("s", "c");
    let requests: Vec<_> = (0..100)
        .map(|number| {
            let documents = documents.clone();
            tokio::spawn(
                async move { documents.upsert(format!("key{number}"), "1").await.map(drop) },
            )
        })
        .collect();
    for request in requests {
        request.await.unwrap().unwrap();
    }
    assert_eq!((server.manifest_requests(), server.request_count()), (1, 100));
}

#[tokio::test(start_paused = true)]
async fn topology_without_a_silent_node_ends_its_requests() {
    let server = serve(Script::new().nodes(2));
    let options = options(&server).config_poll_interval(ms(100)).timeout(s(30));
    let client = Client::open(options);
    client.wait_until_ready(s(1)).await.unwrap();
    let documents = client.default_collection();
    documents.upsert("a", "1").await.unwrap();
    let node = server.requests()[0].node;
    // The node that is failed over keeps its connections and answers nothing any more.
    server.push_answers([Answer::hang(), Answer::hang()]);
    let start = Instant::now();
    let fail_over = async {
        tokio::time::sleep(ms(1)).await;
        server.fail_over(node);
    };
    let (read, write) =
        (documents.get("a").into_future(), documents.increment("a", 1, None).into_future());
    let (read, write, ()) = tokio::join!(read, write, fail_over);
    assert_eq!(read.unwrap().value, "1", "from the other node");
    let error = write.unwrap_err();
    assert_eq!(error.reason(), Some(reason::SOCKET_CLOSED_WHILE_IN_FLIGHT));
    assert_eq!((error.stop_reason(), error.attempts()), (StopReason::NotIdempotent, 1));
    assert!(start.elapsed() < ms(300), "two polls, not the timeout: {:?}", start.elapsed());
    assert_eq!(client.endpoints().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn topology_failed_poll_is_not_retried_before_the_next() {
    let server = serve(Script::new());
    let client = Client::open(options(&server).config_poll_interval(s(1)));
    client.wait_until_ready(s(1)).await.unwrap();
    let polls = server.config_polls();
    // A status that best effort would retry.
    server.set_config_status(0x86);
    tokio::time::sleep(ms(5100)).await;
    assert_eq!(server.config_polls() - polls, 5, "one for each interval");
    server.move_vbuckets(Some(0));
    assert_eq!(client.config_revision(), Some((1, 1)));
    server.set_config_status(0x00);
    tokio::time::sleep(s(1)).await;
    assert_eq!(client.config_revision(), Some((1, 2)), "the next one succeeds");
}

#[tokio::test(start_paused = true)]
async fn topology_is_polled_at_the_shortest_interval() {
    let server = serve(Script::new());
    let client = Client::open(options(&server).config_poll_interval(Duration::ZERO));
    client.wait_until_ready(s(1)).await.unwrap();
    let polls = server.config_polls();
    server.move_vbuckets(Some(0));
    tokio::time::sleep(ms(500)).await;
    assert_eq!(server.config_polls() - polls, 10, "every 50 ms");
    assert_eq!(client.config_revision(), Some((1, 2)));
}

#[tokio::test(start_paused = true)]
async fn topology_of_a_recreated_bucket_has_new_collections() {
    let (client, server) = ready(Script::new().scope("s", ["a", "b", "c"])).await;
    // The manifest of the new bucket is older by its number.
    for _ in 0..5 {
        server.set_scope("s", ["a", "b", "c"]);
    }
    let documents = client.collection("s", "c");
    documents.upsert("k", "1").await.unwrap();
    server.recreate_bucket();
    server.set_scope("s", ["c"]);
    until(|| !client.endpoints()[0].is_connected).await;
    documents.upsert("k", "2").await.unwrap();
    assert_eq!(documents.get("k").await.unwrap().value, "2");
    // A collection of the old bucket is not known any more.
    let error = client.collection("s", "a").get("k").timeout(ms(50)).await.unwrap_err();
    assert_eq!(error.reason(), Some(reason::COLLECTION_NOT_FOUND));
}

/// In real time over TCP: only results are compared.
#[tokio::test]
async fn topology_over_tcp_uses_all_nodes() {
    let script = Script::new().nodes(3).user("app", "secret").scope("s", ["c"]);
    let server = Server::new(script).listen("127.0.0.1").await.unwrap();
    let (host, port) = server.address(0);
    let options = ClientOptions::new([Address::new(host, port)], "default")
        .credentials("app", "secret")
        .timeout(s(30));
    let client = Client::open(options);
    client.wait_until_ready(s(30)).await.unwrap();
    let documents = client.collection("s", "c");
    server.push_answers([Answer::status(0x86), Answer::status(0x86)]);
    for number in 0..100 {
        let key = format!("key{number}");
        documents.upsert(key.clone(), key.clone()).await.unwrap();
        assert_eq!(documents.get(key.clone()).await.unwrap().value, key);
    }
    let nodes = [0, 1, 2].map(|node| server.requests().iter().filter(|it| it.node == node).count());
    assert!(nodes.iter().all(|requests| *requests > 20), "{nodes:?}");
    drop(client);
    assert_eq!(server.request_count(), 202);
}
