//! Goal: `redial faults proxy` is usable from any language: its first line is the address, each
//! request and connection gets a line, the record file has the same as JSON, it exits on request,
//! and input errors are explained. Method: the binary runs between a plain socket and a server of
//! the standard library.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::temporary::Temporary;

/// A running proxy, killed at the end of the test.
struct FaultProxy {
    process: Child,
    out: BufReader<ChildStdout>,
    address: String,
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redial"));
    // So that a hanging test ends.
    command.args(["faults", "proxy", "--for", "60s"]).args(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

impl FaultProxy {
    fn start(arguments: &[&str]) -> FaultProxy {
        let mut process = command(arguments).spawn().expect("it starts");
        let mut out = BufReader::new(process.stdout.take().unwrap());
        let mut address = String::new();
        out.read_line(&mut address).unwrap();
        FaultProxy { process, out, address: address.trim_end().to_owned() }
    }

    /// The exit code, the rest of the standard output, and the standard error.
    fn end(mut self) -> (Option<i32>, String, String) {
        let (mut out, mut err) = (String::new(), String::new());
        self.out.read_to_string(&mut out).unwrap();
        self.process.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        (self.process.wait().unwrap().code(), out, err)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A server that answers every connection with `ok`.
fn upstream() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let Ok(mut socket) = socket else { return };
            let _ = socket.read(&mut [0; 4096]);
            let response = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";
            let _ = socket.write_all(response.as_bytes());
        }
    });
    address
}

/// The response to one request, up to an error.
fn get(address: &str, headers: &str) -> String {
    let mut socket = TcpStream::connect(address).unwrap();
    let request = format!("GET /x HTTP/1.1\r\nhost: h\r\nconnection: close\r\n{headers}\r\n");
    socket.write_all(request.as_bytes()).unwrap();
    let mut response = Vec::new();
    let _ = socket.read_to_end(&mut response);
    String::from_utf8(response).unwrap()
}

#[test]
fn faults_proxy_injects_the_script_and_prints_what_passed() {
    let to = upstream().to_string();
    let script = Temporary::new(
        r#"{ "requests": [{"status": 429, "headers": {"retry-after": "1"}}, {"status": 500, "after_upstream": true}] }"#,
    );
    let proxy = FaultProxy::start(&["--to", &to, "--script", script.path(), "--requests", "3"]);
    let first = get(&proxy.address, "");
    assert!(first.starts_with("HTTP/1.1 429 ") && first.contains("retry-after: 1"), "{first}");
    assert!(get(&proxy.address, "").starts_with("HTTP/1.1 500 "));
    assert!(get(&proxy.address, "").ends_with("\r\n\r\nok"));
    let (code, out, err) = proxy.end();
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let lines: Vec<_> = out.lines().collect();
    let requests: Vec<_> = lines.iter().filter(|line| line.contains("GET /x")).collect();
    assert!(
        requests[0].contains(": 0 bytes, not forwarded, fault: status 429; answered 429 after "),
        "{out}"
    );
    assert!(
        requests[1].contains("upstream 200, fault: status 500 after upstream; answered 500"),
        "{out}"
    );
    assert!(requests[2].contains("upstream 200; answered 200"), "{out}");
    let last = lines.last().unwrap();
    assert_eq!(*last, "3 requests, 2 forwarded, 2 with a fault; 3 connections, 0 with a fault");
}

#[test]
fn faults_proxy_record_and_json_have_one_object_per_line() {
    let to = upstream().to_string();
    let record = Temporary::new("");
    let proxy =
        FaultProxy::start(&["--to", &to, "--json", "--record", record.path(), "--requests", "1"]);
    let first: Value = serde_json::from_str(&proxy.address).unwrap();
    let address = first["listening"].as_str().unwrap();
    let response = get(address, "x-redial-fault: {\"status\": 503}\r\nauthorization: secret\r\n");
    assert!(response.starts_with("HTTP/1.1 503 "), "{response}");
    let (code, out, err) = proxy.end();
    assert_eq!(code, Some(0));
    assert!(err.starts_with("1 requests, 0 forwarded, 1 with a fault; "), "{err}");
    let written = std::fs::read_to_string(record.path()).unwrap();
    assert_eq!(out, written);
    assert!(!written.contains("secret"), "{written}");
    let exchange: Value = serde_json::from_str(written.lines().next().unwrap()).unwrap();
    assert_eq!((&exchange["fault"], &exchange["source"]), (&json!("status 503"), &json!("header")));
}

#[test]
fn faults_proxy_seed_decides_the_rates() {
    let to = upstream().to_string();
    let script = Temporary::new(r#"{ "rules": [{"rate": 0.5, "fault": {"status": 503}}] }"#);
    let pattern = |seed: &str| -> Vec<bool> {
        let arguments = ["--to", &to, "--script", script.path(), "--seed", seed];
        let proxy = FaultProxy::start(&arguments);
        (0..20).map(|_| get(&proxy.address, "").contains(" 503 ")).collect()
    };
    assert_eq!(pattern("1"), pattern("1"));
    assert_ne!(pattern("1"), pattern("2"));
}

#[test]
fn faults_proxy_tcp_forwards_bytes_and_counts_connections() {
    let to = upstream().to_string();
    let script = Temporary::new(r#"{ "connections": [{"close": {"down_bytes": 8}}] }"#);
    let arguments = ["--to", &to, "--tcp", "--script", script.path(), "--requests", "2"];
    let proxy = FaultProxy::start(&arguments);
    assert_eq!(get(&proxy.address, ""), "HTTP/1.1");
    assert!(get(&proxy.address, "").ends_with("ok"));
    let (code, out, _) = proxy.end();
    assert_eq!(code, Some(0));
    assert!(out.contains(", 8 down, fault: close at byte 8 to the client; closed after "), "{out}");
    assert!(
        out.ends_with("0 requests, 0 forwarded, 0 with a fault; 2 connections, 1 with a fault\n"),
        "{out}"
    );
}

#[test]
fn faults_proxy_explains_wrong_input() {
    let wrong = Temporary::new("{ \"requests\": [\n  {\"status\": 99}] }");
    let requests = Temporary::new(r#"{ "requests": [{"status": 503}] }"#);
    let missing = format!("{}.missing/record", wrong.path());
    let cases = [
        (vec!["--script", wrong.path()], format!("{}:2:", wrong.path())),
        (vec!["--script", wrong.path()], "99 is no final status of HTTP: 200 to 999".to_owned()),
        (vec!["--script", requests.path(), "--tcp"], "redial: a TCP proxy sees no".to_owned()),
        (vec!["--record", &missing], format!("redial: cannot write {missing}: ")),
        (vec!["--listen", "nonsense"], "redial: cannot listen on nonsense: ".to_owned()),
    ];
    for (arguments, expected) in cases {
        let output = command(&arguments).args(["--to", "127.0.0.1:9"]).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{err}");
        assert!(err.contains(&expected), "{err}");
    }
    let output = command(&["--to", "http://127.0.0.1:9/"]).output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    let expected = "redial: \"http://127.0.0.1:9/\" is no server: expected a host and a port, like 127.0.0.1:8080\n";
    assert_eq!((output.status.code(), err.as_str()), (Some(2), expected));
}

#[test]
fn faults_proxy_documented_scripts_are_valid() {
    let page = include_str!("../../../../docs/fault-proxy.md");
    let (_, script) = page.split_once("```json\n").unwrap();
    let (script, _) = script.split_once("```").unwrap();
    serde_json::from_str::<redial_faults::proxy::Script>(script).unwrap();
    let output = command(&["--help"]).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let start = help.find("{ \"requests\"").unwrap();
    let end = help.find("A request can also carry").unwrap();
    serde_json::from_str::<redial_faults::proxy::Script>(&help[start..end]).unwrap();
}
