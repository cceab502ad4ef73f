//! Goal: `redial faults grpc` is usable from any language: its first line is the address, each
//! stream gets a line, it exits on request, and input errors are explained. Method: the binary
//! runs, and a client on the raw `h2` crate connects to it.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use bytes::Bytes;
use http::{HeaderMap, Request};
use redial_cli::faults::SCRIPT_BYTES_MAX;
use serde_json::{Value, json};

use crate::temporary::Temporary;

/// A running server, killed at the end of the test.
struct FaultServer {
    process: Child,
    out: BufReader<ChildStdout>,
    first: String,
}

impl FaultServer {
    fn start(arguments: &[&str]) -> FaultServer {
        let mut process = Command::new(env!("CARGO_BIN_EXE_redial"))
            .args(["faults", "grpc"])
            .args(arguments)
            // So that a hanging test ends.
            .args(if arguments.contains(&"--for") { &[][..] } else { &["--for", "60s"] })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut out = BufReader::new(process.stdout.take().unwrap());
        let mut first = String::new();
        out.read_line(&mut first).unwrap();
        FaultServer { process, out, first: first.trim_end().to_owned() }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// The exit code, the rest of the standard output, and the standard error.
    fn end(mut self) -> (Option<i32>, String, String) {
        let (mut out, mut err) = (String::new(), String::new());
        self.out.read_to_string(&mut out).unwrap();
        self.process.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        (self.process.wait().unwrap().code(), out, err)
    }

    #[cfg(unix)]
    fn signal(&self, name: &str) {
        let id = self.process.id().to_string();
        let sent = Command::new("kill").args([name, &id]).status().expect("it runs");
        assert!(sent.success());
    }
}

impl Drop for FaultServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The response: headers, and trailers if any.
type Seen = Result<(HeaderMap, Bytes, Option<HeaderMap>), h2::Error>;

/// Makes sequential unary calls over one connection, each with these headers.
fn calls(address: &str, calls: &[&[(&str, &str)]]) -> Vec<Seen> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let socket = tokio::net::TcpStream::connect(address).await.unwrap();
        let (client, connection) = h2::client::handshake(socket).await.unwrap();
        let connection = tokio::spawn(connection);
        let mut seen = Vec::new();
        for fields in calls {
            seen.push(call(client.clone(), fields).await);
        }
        drop(client);
        // The client closes gracefully, so that the server's line shows no error.
        let _ = connection.await;
        seen
    })
}

async fn call(client: h2::client::SendRequest<Bytes>, fields: &[(&str, &str)]) -> Seen {
    let mut request = Request::post("http://server/echo.Echo/Get");
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let mut client = client.ready().await?;
    let (response, mut body) = client.send_request(request.body(()).unwrap(), false)?;
    body.send_data(Bytes::from_static(b"\0\0\0\0\x02hi"), true)?;
    let (head, mut body) = response.await?.into_parts();
    let mut data = Vec::new();
    while let Some(piece) = body.data().await {
        data.extend_from_slice(&piece?);
    }
    Ok((head.headers, data.into(), body.trailers().await?))
}

fn status(seen: &Seen) -> &str {
    let (headers, _, trailers) = seen.as_ref().unwrap();
    let fields = trailers.as_ref().unwrap_or(headers);
    fields.get("grpc-status").unwrap().to_str().unwrap()
}

const NONE: &[(&str, &str)] = &[];

#[test]
fn faults_command_echoes_and_logs_streams_by_default() {
    let mut server = FaultServer::start(&["--streams", "2"]);
    let seen = calls(
        &server.first,
        &[&[("grpc-timeout", "2S"), ("grpc-previous-rpc-attempts", "1")], NONE],
    );
    assert_eq!(seen[0].as_ref().unwrap().1, "\0\0\0\0\x02hi");
    assert_eq!((status(&seen[0]), status(&seen[1])), ("0", "0"));
    let line = server.line();
    let expected = " ms /echo.Echo/Get attempt 1 previous 1 timeout 2000.0 ms: 1 message, 7 bytes, half-closed; answered OK after ";
    assert!(line.contains(expected), "{line}");
    assert!(line.ends_with("ms (not in the script)"), "{line}");
    let (code, out, err) = server.end();
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let out: Vec<_> = out.lines().collect();
    assert_eq!(out.len(), 2);
    assert!(out[0].contains("attempt 2"), "{out:?}");
    assert_eq!(out[1], "2 streams, 2 not in the script, 1 connections");
}

#[test]
fn faults_command_json_prints_one_object_per_line() {
    let script = Temporary::new(
        r#"{ "calls": {"a": [{"outcome": "UNAVAILABLE", "pushback": "7"}, {"reset": "REFUSED_STREAM"}]} }"#,
    );
    let mut server = FaultServer::start(&["--json", "--script", script.path(), "--streams", "2"]);
    let first: Value = serde_json::from_str(&server.first).unwrap();
    let address = first["listening"].as_str().unwrap().to_owned();
    assert_eq!(first, json!({ "listening": address }));
    let a = &[("x-redial-call", "a")][..];
    let seen = calls(&address, &[a, a]);
    assert_eq!(status(&seen[0]), "14");
    let pushback = seen[0].as_ref().unwrap().0.get("grpc-retry-pushback-ms").unwrap();
    assert_eq!(pushback, "7");
    assert_eq!(seen[1].as_ref().unwrap_err().reason(), Some(h2::Reason::REFUSED_STREAM));
    for attempt in 1..3 {
        let stream: Value = serde_json::from_str(&server.line()).unwrap();
        assert_eq!((&stream["stream"], &stream["attempt"]), (&json!(attempt), &json!(attempt)));
        assert_eq!((&stream["call"], &stream["scripted"]), (&json!("a"), &json!(true)));
        assert_eq!((&stream["messages"], &stream["payloads"]), (&json!(1), &json!(["6869"])));
        assert!(stream["end"]["at"].as_f64() >= stream["arrived"].as_f64());
        let how = if attempt == 1 { "answered" } else { "reset" };
        assert_eq!(stream["end"]["how"], json!(how));
    }
    let (code, out, err) = server.end();
    assert_eq!((code, out.as_str()), (Some(0), ""));
    assert_eq!(err, "2 streams, 0 not in the script, 1 connections\n");
}

/// Two calls, of which the second is retried.
const SCENARIO: &str = r#"{ "about": "x", "scenarios": [
  { "name": "other", "policy": {"generic": {}}, "calls": [{"attempts": [{"outcome": "server"}], "expect": {}}] },
  { "name": "wanted", "from": "G1", "policy": {"grpc": {"config": {}}}, "calls": [
      { "method": "/echo.Echo/Get", "attempts": [{"outcome": "OK"}], "expect": {} },
      { "method": "/echo.Echo/Get", "at": 5, "attempts": [
          {"outcome": "ABORTED", "pushback": ["1", "2"]}, {"outcome": "NOT_FOUND", "after": 30, "headers": 10}], "expect": {} } ] },
  { "name": "empty", "policy": {"grpc": {"config": {}}}, "calls": [] },
  { "name": "refused", "policy": {"grpc": {"config": {}}}, "calls": [{"attempts": [{"seen": "unconnected"}]}] },
  { "name": "wrong", "policy": {"grpc": {"config": {}}}, "calls": [
      {"attempts": [{"outcome": "OK"}, {"outcom": "OK"}]},
      {"attempts": [{"outcome": "KO"}]} ] } ] }"#;

#[test]
fn faults_command_plays_scenario_calls_in_order() {
    let file = Temporary::new(SCENARIO);
    let server =
        FaultServer::start(&["--scenario", file.path(), "--name", "wanted", "--streams", "4"]);
    let seen = calls(&server.first, &[NONE, NONE, NONE, NONE]);
    let statuses: Vec<_> = seen.iter().map(status).collect();
    assert_eq!(statuses, ["0", "10", "5", "13"]);
    let (code, out, _) = server.end();
    assert_eq!(code, Some(0));
    assert!(out.ends_with("4 streams, 1 not in the script, 1 connections\n"), "{out}");
}

#[test]
fn faults_command_plays_scenario_calls_by_name() {
    let file = Temporary::new(SCENARIO);
    let server =
        FaultServer::start(&["--scenario", file.path(), "--name", "wanted", "--streams", "3"]);
    let (zero, one) = (&[("x-redial-call", "0")][..], &[("x-redial-call", "1")][..]);
    let seen = calls(&server.first, &[one, zero, one]);
    let statuses: Vec<_> = seen.iter().map(status).collect();
    assert_eq!(statuses, ["10", "0", "5"]);
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn faults_command_help_script_works_as_described() {
    let help =
        Command::new(env!("CARGO_BIN_EXE_redial")).args(["faults", "grpc", "--help"]).output();
    let help = String::from_utf8(help.expect("it runs").stdout).unwrap();
    let (_, script) = help.split_once("then answers:\n").expect("there is an example");
    let (script, _) = script.split_once("\n\n").expect("it ends");
    let script = Temporary::new(script);
    let server = FaultServer::start(&["--script", script.path(), "--streams", "3"]);
    let seen = calls(&server.first, &[NONE, NONE, NONE]);
    assert_eq!((status(&seen[0]), status(&seen[2])), ("14", "0"));
    assert_eq!(seen[1].as_ref().unwrap_err().reason(), Some(h2::Reason::REFUSED_STREAM));
    let (code, out, _) = server.end();
    assert_eq!(code, Some(0));
    assert!(out.ends_with("3 streams, 0 not in the script, 1 connections\n"), "{out}");
}

#[cfg(unix)]
#[test]
fn faults_command_signal_logs_open_streams_and_exits() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for signal in ["-TERM", "-INT"] {
        let script = Temporary::new(r#"{ "otherwise": {"headers": 0, "outcome": "hang"} }"#);
        let server = FaultServer::start(&["--script", script.path()]);
        // The response headers show that the stream is open; it then hangs.
        let mut body = runtime.block_on(async {
            let socket = tokio::net::TcpStream::connect(&server.first).await.unwrap();
            let (client, connection) = h2::client::handshake(socket).await.unwrap();
            tokio::spawn(connection);
            let mut client = client.ready().await.unwrap();
            let request = Request::post("http://server/echo.Echo/Get").body(()).unwrap();
            let (response, _) = client.send_request(request, true).unwrap();
            response.await.unwrap().into_body()
        });
        server.signal(signal);
        assert!(runtime.block_on(body.data()).unwrap().is_err());
        let (code, out, err) = server.end();
        assert_eq!((code, err.as_str()), (Some(0), ""));
        let lines: Vec<_> = out.lines().collect();
        assert_eq!(lines.len(), 2, "{out}");
        assert!(lines[0].contains("half-closed; connection closed after"), "{out}");
    }
}

#[test]
fn faults_command_exits_after_its_time_limit() {
    let server = FaultServer::start(&["--for", "50ms"]);
    assert!(server.first.starts_with("127.0.0.1:"), "{}", server.first);
    let (code, out, err) = server.end();
    let expected = "0 streams, 0 not in the script, 0 connections\n";
    assert_eq!((code, out.as_str(), err.as_str()), (Some(0), expected, ""));
}

/// The exit code, nothing on the standard output, and the standard error.
fn refused(arguments: &[&str]) -> String {
    let mut all = vec!["faults", "grpc"];
    all.extend(arguments);
    let output = Command::new(env!("CARGO_BIN_EXE_redial")).args(all).output().expect("it runs");
    let Output { status, stdout, stderr } = output;
    assert_eq!((status.code(), stdout.as_slice()), (Some(2), &b""[..]), "{arguments:?}");
    String::from_utf8(stderr).unwrap()
}

/// Syntax errors have the same messages as in scenario files.
#[test]
fn faults_command_invalid_script_is_reported_with_position() {
    let cases = [
        ("", ":1:1: not JSON: the text is empty"),
        (
            "\u{feff}{}",
            ":1:1: not JSON: a byte order mark before the JSON; save the text without it",
        ),
        ("{\n  // a note\n}", ":2:3: not JSON: comments are not JSON; remove the comment"),
        ("{ \"attempts\": [ }", ":1:17: not JSON: unexpected close brace"),
        (
            "{ \"attempts\": [\n  { \"outcome\": \"OK\" },\n  { \"outcome\": \"KO\" } ] }",
            ":3:21: unknown status \"KO\"; expected \"hang\"",
        ),
        ("{\n  \"attempt\": [] }", ":2:11: unknown field `attempt`, expected one of"),
        (
            "{ \"attempts\": [ {\"outcome\": \"OK\", \"reset\": 1} ] }",
            "an attempt has one of \"outcome\"",
        ),
        ("{ \"attempts\": [] } x", ":1:20: not JSON: "),
        ("[]", "expected a script: an object"),
    ];
    for (text, expected) in cases {
        let script = Temporary::new(text);
        let err = refused(&["--script", script.path()]);
        assert!(err.starts_with(script.path()) && err.contains(expected), "{text}\n{err}");
        assert_eq!(err.lines().count(), 1, "{err}");
    }
    let script = Temporary::new([0xff, 0xfe]);
    assert!(refused(&["--script", script.path()]).contains(":1:1: not UTF-8"));
    assert!(
        refused(&["--script", "/no/such/file.json"])
            .starts_with("/no/such/file.json: cannot be read")
    );
}

#[test]
fn faults_command_script_size_is_limited() {
    let mut text = vec![b' '; SCRIPT_BYTES_MAX as usize];
    text[0] = b'{';
    text[1] = b'}';
    let script = Temporary::new(&text);
    assert_eq!(FaultServer::start(&["--script", script.path(), "--for", "1ms"]).end().0, Some(0));
    text.push(b' ');
    let script = Temporary::new(&text);
    assert!(refused(&["--script", script.path()]).contains("it is larger than 16777216 bytes"));
}

/// The reported length is not trusted: a device reports 0 and never ends.
#[cfg(unix)]
#[test]
fn faults_command_endless_device_exceeds_the_script_limit() {
    let err = refused(&["--script", "/dev/zero"]);
    assert_eq!(err, "/dev/zero: cannot be read: it is larger than 16777216 bytes\n");
}

#[test]
fn faults_command_invalid_scenario_is_reported_with_position() {
    let file = Temporary::new(SCENARIO);
    let refused =
        |name| refused(&["--scenario", file.path(), "--name", name]).replace(file.path(), "FILE");
    let names = "\"other\", \"wanted\", \"empty\", \"refused\", \"wrong\"";
    assert_eq!(
        refused("none"),
        format!("FILE: there is no scenario named \"none\"; there are {names}\n")
    );
    let text = refused("other");
    assert!(text.starts_with("FILE:2:3: ") && text.contains("this one has \"generic\""), "{text}");
    assert_eq!(refused("empty"), "FILE:7:3: the scenario has no calls to play\n");
    let text = refused("wrong");
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 2, "every mistake: {text}");
    assert!(
        lines[0].starts_with("FILE:10:") && lines[0].contains("unknown field `outcom`"),
        "{text}"
    );
    assert!(
        lines[1].starts_with("FILE:11:") && lines[1].contains("unknown status \"KO\""),
        "{text}"
    );
    let text = refused("refused");
    assert!(text.contains("a listening socket refuses no connection"), "{text}");
}

#[test]
fn faults_command_contradictory_arguments_are_refused() {
    let cases: [(&[&str], &str); 7] = [
        (&["--script", "a", "--scenario", "b", "--name", "c"], "cannot be used with"),
        (&["--scenario", "a"], "--name"),
        (&["--name", "a"], "--scenario"),
        (&["--for", "5"], "expected a whole number and ms, s or m"),
        (&["--streams", "0"], "0 is not in 1.."),
        (&["--listen", "nowhere"], "cannot listen on nowhere"),
        (&["more"], "unexpected argument"),
    ];
    for (arguments, expected) in cases {
        let err = refused(arguments);
        assert!(err.contains(expected), "{arguments:?}\n{err}");
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    assert!(refused(&["--listen", &address]).contains(&format!("cannot listen on {address}: ")));
}

#[test]
fn faults_command_documented_script_is_valid() {
    let document = include_str!("../../../../docs/scenarios.md");
    let (_, script) = document.split_once("## A server that fails").expect("the section is there");
    let (_, script) = script.split_once("```json\n").expect("there is an example");
    let (script, _) = script.split_once("```").expect("it ends");
    let script = Temporary::new(script);
    let server = FaultServer::start(&["--script", script.path(), "--streams", "3"]);
    let seen = calls(&server.first, &[NONE, NONE, NONE]);
    assert_eq!(seen.iter().map(status).collect::<Vec<_>>(), ["14", "13", "0"]);
    let (code, out, _) = server.end();
    assert_eq!(code, Some(0));
    assert!(out.ends_with("3 streams, 0 not in the script, 1 connections\n"), "{out}");
}
