//! Starts `CouchbaseMock`, and gives it commands. The tests of `redial-couchbase-sdk` use this file, too.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The variable with the path of the jar; `cargo xtask test couchbase-mock` sets it.
const JAR: &str = "REDIAL_COUCHBASE_MOCK";
/// Administrator:password, the mock's own account.
pub(crate) const ACCOUNT: &str = "Authorization: Basic QWRtaW5pc3RyYXRvcjpwYXNzd29yZA==\r\n";
/// How long the mock may take to start on a busy machine.
const START_MAX: Duration = Duration::from_secs(60);
/// How long an HTTP request to it may take.
pub(crate) const HTTP_MAX: Duration = Duration::from_secs(30);

/// A running mock. It ends with this value: it watches the monitor's connection.
pub(crate) struct Mock {
    process: Child,
    _monitor: TcpStream,
    pub(crate) rest_port: u16,
}

impl Mock {
    /// Starts a mock with the buckets `default` and `secure` (password `secret`).
    pub(crate) fn start(nodes: usize, replicas: usize) -> Self {
        let jar = std::env::var(JAR)
            .unwrap_or_else(|_| panic!("{JAR} names the jar; run `cargo xtask test couchbase`"));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let monitor = listener.local_addr().expect("it is bound").to_string();
        let (nodes, replicas) = (nodes.to_string(), replicas.to_string());
        let arguments = [
            "-jar",
            &jar,
            "-h",
            "127.0.0.1",
            "-p",
            "0",
            "-n",
            &nodes,
            "-v",
            "64",
            "-R",
            &replicas,
            "-c",
            "-b",
            "default:,secure:secret",
            "--harakiri-monitor",
            &monitor,
        ];
        let process = Command::new("java")
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("java starts");
        let (mut monitor, rest_port) = report(&listener);
        monitor.set_read_timeout(None).expect("it is a socket");
        let _ = monitor.flush();
        Mock { process, _monitor: monitor, rest_port }
    }

    /// The KV ports of the nodes that have this bucket.
    pub(crate) fn kv_ports(&self, bucket: &str) -> Vec<u16> {
        let info = self.http(&format!("/pools/default/buckets/{bucket}"));
        let info: Value = serde_json::from_str(&info).expect("the mock describes its bucket");
        let nodes = info["nodes"].as_array().expect("a list").iter();
        let port = |node: &Value| u16::try_from(node["ports"]["direct"].as_u64()?).ok();
        nodes.map(|node| port(node).expect("a port")).collect()
    }

    /// Gives a command, for example `opfail?bucket=default&code=134&count=3&servers=[]`.
    pub(crate) fn command(&self, command: &str) -> Value {
        let answer = self.http(&format!("/mock/{command}"));
        let answer: Value = serde_json::from_str(&answer).expect("an answer in JSON");
        assert_eq!(answer["status"], "ok", "{command}: {answer}");
        answer
    }

    /// Fails the next requests of all nodes.
    pub(crate) fn fail(&self, status: u16, count: i32) {
        self.command(&format!("opfail?bucket=default&code={status}&count={count}&servers=[]"));
    }

    /// Starts the log of a node's commands.
    pub(crate) fn start_log(&self, node: usize) {
        self.command(&format!("start_cmdlog?idx={node}&bucket=default"));
    }

    /// When commands with this opcode arrived at a node, in ms.
    pub(crate) fn log(&self, node: usize, opcode: u64) -> Vec<u64> {
        let answer = self.command(&format!("get_cmdlog?idx={node}&bucket=default"));
        let list = answer["payload"].as_array().expect("a list").clone();
        let here = list.iter().filter(|entry| entry["opcode"] == opcode);
        here.map(|entry| entry["ms_timestamp"].as_u64().expect("a time")).collect()
    }

    fn http(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.rest_port)).expect("it listens");
        stream.set_read_timeout(Some(HTTP_MAX)).expect("it is a socket");
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: mock\r\nConnection: close\r\n{ACCOUNT}\r\n");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("it answers");
        let (head, body) = response.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.starts_with("HTTP/1.1 200"), "{path}: {head}");
        if head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
            return unchunked(body);
        }
        body.to_owned()
    }
}

/// The connection on which the mock reports its port, and the port.
fn report(listener: &TcpListener) -> (TcpStream, u16) {
    listener.set_nonblocking(true).expect("it is a socket");
    let started = Instant::now();
    let mut stream = loop {
        match listener.accept() {
            Ok((stream, _)) => break stream,
            Err(_) if started.elapsed() < START_MAX => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => panic!("the mock does not report: {error}"),
        }
    };
    stream.set_nonblocking(false).expect("it is a socket");
    stream.set_read_timeout(Some(START_MAX)).expect("it is a socket");
    let mut port = String::new();
    let mut byte = [0];
    // The number ends with a zero.
    while stream.read_exact(&mut byte).is_ok() && byte[0] != 0 {
        port.push(char::from(byte[0]));
    }
    (stream, port.parse().expect("the port of the mock"))
}

fn unchunked(mut body: &str) -> String {
    let mut text = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("a size");
        if size == 0 {
            break;
        }
        text.push_str(&rest[..size]);
        body = &rest[size + 2..];
    }
    text
}

impl Drop for Mock {
    fn drop(&mut self) {
        // It ends by itself when the monitor's connection is closed; this is faster.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
