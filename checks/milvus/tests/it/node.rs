//! The Milvus Node SDK under the same faults: its delays, deadlines, texts and rows beside ours.
//!
//! Each assertion about a difference names the decision that explains it, and is a row of the table
//! in docs/milvus.md.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use redial_faults::grpc::StatusNumber;
use redial_faults::proxy::{Exchange, Fault, Handle, ProxyRule};
use redial_milvus::Options;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::TOLERANCE;
use crate::collection::{Client, Collection, client, direct};
use crate::processes::{Server, folder, milvus_lite};
use crate::rows::{proxy_to, unavailable};

const SERVICE: &str = "/milvus.proto.milvus.MilvusService/";

/// The program around the Node SDK.
struct Node {
    process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Node {
    async fn start(proxy: SocketAddr, options: &Value) -> Node {
        let mut process = Command::new("node")
            .arg(folder("REDIAL_MILVUS_NODE").join("calls.js"))
            .args([proxy.to_string(), options.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("node starts");
        let input = process.stdin.take().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut node = Node { process, input, output };
        assert_eq!(node.answer().await, json!({ "ready": true }));
        node
    }

    async fn answer(&mut self) -> Value {
        let line = timeout(TOLERANCE, self.output.next_line()).await.expect("it answers in time");
        let line = line.unwrap().expect("it does not end");
        serde_json::from_str(&line).unwrap()
    }

    async fn call(&mut self, call: &str, collection: &Collection) -> Value {
        let line = json!({ "call": call, "collection": collection.name });
        self.input.write_all(format!("{line}\n").as_bytes()).await.unwrap();
        self.answer().await
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // `kill_on_drop` does the rest.
        let _ = self.process.start_kill();
    }
}

/// Both clients in front of one proxy.
struct Setup {
    _server: std::sync::Arc<Server>,
    proxy: Handle,
    direct: Client,
    ours: Client,
    node: Node,
}

impl Setup {
    async fn new() -> Setup {
        let server = milvus_lite().await;
        let proxy = proxy_to(server.addr).await;
        let direct = direct(&format!("http://{}", server.addr));
        let ours = client(&proxy.url(), Options::DEFAULT.interceptor().unwrap());
        let node = Node::start(proxy.addr(), &json!({})).await;
        Setup { _server: server, proxy, direct, ours, node }
    }

    /// Injects a fault into the next requests of this method.
    fn inject(&self, method: &str, times: u64, fault: Fault) {
        self.proxy.clear();
        self.proxy.rule(ProxyRule::new(fault).path(&format!("{SERVICE}{method}")).times(times));
    }

    /// The attempts of this method since the last `seen` requests.
    async fn attempts(&self, method: &str, seen: &mut usize) -> Vec<Exchange> {
        self.proxy.idle().await;
        let record = self.proxy.record();
        let path = format!("{SERVICE}{method}");
        let new =
            record.exchanges.iter().skip(*seen).filter(|it| it.path == path).cloned().collect();
        *seen = record.exchanges.len();
        new
    }
}

/// The pauses between attempts, in milliseconds.
fn pauses(attempts: &[Exchange]) -> Vec<u128> {
    let pause = |pair: &[Exchange]| pair[1].arrived.saturating_sub(pair[0].end.unwrap().at);
    attempts.windows(2).map(|pair| pause(pair).as_millis()).collect()
}

/// The `grpc-timeout` of each attempt.
fn deadlines(attempts: &[Exchange]) -> Vec<Duration> {
    attempts.iter().map(|it| redial_faults::grpc::timeout(&it.headers).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_sdk_delays_are_the_same_and_deadlines_shorter() {
    let mut setup = Setup::new().await;
    let collection = Collection::new("node_delays");
    collection.set_up(&mut setup.direct).await;
    setup.node.call("insert", &collection).await;
    let mut seen = 0;
    setup.attempts("Query", &mut seen).await;

    setup.inject("Query", 4, unavailable());
    let answer = setup.node.call("query", &collection).await;
    let node = setup.attempts("Query", &mut seen).await;
    setup.inject("Query", 4, unavailable());
    let status = collection.query(&mut setup.ours).await.unwrap_err();
    let ours = setup.attempts("Query", &mut seen).await;

    // Same: four attempts, 20, 40 and 80 ms apart (M1, M2), with the same message (M9).
    for attempts in [&node, &ours] {
        assert_eq!(attempts.len(), 4);
        for (pause, expected) in pauses(attempts).into_iter().zip([20, 40, 80]) {
            // Timers of Node may fire a millisecond early.
            assert!(pause + 2 >= expected && pause < expected + TOLERANCE.as_millis(), "{pause}");
        }
        assert!(attempts.iter().all(|it| it.request_digest == attempts[0].request_digest));
    }
    // Different (M4): the Node SDK computes a deadline before the delay, so that attempts lose it.
    assert_eq!(deadlines(&ours), [Duration::from_secs(15); 4]);
    let full = Duration::from_secs(15);
    for (deadline, lost) in deadlines(&node).into_iter().zip([0, 20, 40, 80]) {
        assert!(
            deadline <= full - Duration::from_millis(lost) + Duration::from_millis(2),
            "{deadline:?}"
        );
    }
    // Different: grpc-js puts the code in front of the text. The suffix is the same (M6).
    let text = answer["error"].as_str().unwrap();
    assert!(text.starts_with("14 UNAVAILABLE: injected (retried 3 times, "), "{text}");
    assert!(status.message().starts_with("injected (retried 3 times, "), "{status:?}");
    assert!(text.ends_with("ms)") && status.message().ends_with("ms)"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_sdk_duplicates_an_insert_as_our_default_does() {
    let mut setup = Setup::new().await;
    let collection = Collection::new("node_rows");
    collection.set_up(&mut setup.direct).await;
    setup.inject("Insert", 1, unavailable());
    let answer = setup.node.call("insert", &collection).await;
    assert_eq!(answer["error"], Value::Null, "{answer}");
    assert_eq!(collection.rows(&mut setup.direct).await, 1);
    setup.inject("Insert", 1, unavailable().after_upstream());
    let answer = setup.node.call("insert", &collection).await;
    assert_eq!(answer["error"], Value::Null, "{answer}");
    assert_eq!(collection.rows(&mut setup.direct).await, 3, "it ran twice");
    setup.inject("Insert", 1, unavailable().after_upstream());
    collection.insert(&mut setup.ours).await.unwrap();
    assert_eq!(collection.rows(&mut setup.direct).await, 5, "it ran twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_sdk_retries_the_same_codes_but_hides_unimplemented() {
    let mut setup = Setup::new().await;
    let collection = Collection::new("node_codes");
    collection.set_up(&mut setup.direct).await;
    let mut seen = 0;
    for code in StatusNumber::named().filter(|it| *it != StatusNumber::OK) {
        let fault = || Fault::grpc_status(code).message("injected");
        setup.attempts("GetVersion", &mut seen).await;
        setup.inject("GetVersion", 1, fault());
        let answer = setup.node.call("version", &collection).await;
        let node = setup.attempts("GetVersion", &mut seen).await;
        setup.inject("GetVersion", 1, fault());
        let request = milvus::proto::milvus::GetVersionRequest::default();
        let ours_result = setup.ours.get_version(request).await;
        let ours = setup.attempts("GetVersion", &mut seen).await;
        assert_eq!(node.len(), ours.len(), "{code}");
        // Different: the Node SDK turns UNIMPLEMENTED into an empty success; an error is an error.
        let node_failed = answer["error"].is_string();
        let hidden = code == StatusNumber::UNIMPLEMENTED;
        assert_eq!(node_failed, ours_result.is_err() && !hidden, "{code}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_sdk_local_timeout_is_final_as_ours() {
    // Long enough for the Node SDK to connect on a busy machine.
    let server = milvus_lite().await;
    let proxy = proxy_to(server.addr).await;
    let mut node = Node::start(proxy.addr(), &json!({ "timeout": 4000 })).await;
    let options = Options::DEFAULT.timeout(Duration::from_millis(4000));
    let mut ours = client(&proxy.url(), options.interceptor().unwrap());
    let path = format!("{SERVICE}GetVersion");
    let stalled = || {
        let record = proxy.record();
        record.exchanges.iter().filter(|it| it.path == path && it.fault.is_some()).count()
    };
    let calls = || proxy.record().exchanges.iter().filter(|it| it.path == path).count();
    let before = calls();
    proxy.rule(ProxyRule::new(Fault::stall()).path(&path).times(1));
    let answer = node.call("version", &Collection::new("none")).await;
    let text = answer["error"].as_str().unwrap();
    assert!(text.starts_with("4 DEADLINE_EXCEEDED"), "{text}");
    assert!(!text.contains("retried"), "{text}");
    assert_eq!((stalled(), calls()), (1, before + 1));
    proxy.clear();
    proxy.rule(ProxyRule::new(Fault::stall()).path(&path).times(1));
    let request = milvus::proto::milvus::GetVersionRequest::default();
    let status = ours.get_version(request).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::DeadlineExceeded);
    assert!(!status.message().contains("retried"), "{status:?}");
    assert_eq!((stalled(), calls()), (2, before + 2));
}
