//! Goal: the scripted cluster keeps its limits, and refuses what it cannot play. Method: raw frames
//! over pipes; that a client can work with it is tested in `redial-couchbase`.

use std::time::Duration;

use redial_faults::couchbase::{
    Answer, CONNECTIONS_OPEN_MAX, NODES_MAX, RequestOutcome, SCRIPT_ANSWERS_MAX, Script, Server,
    VBUCKETS_MAX,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

/// Sends a frame, and returns status and value of the response.
async fn call(pipe: &mut DuplexStream, opcode: u8, key: &[u8]) -> (u16, Vec<u8>) {
    let mut frame = vec![0x80, opcode, 0, key.len() as u8, 0, 0, 0, 0];
    frame.extend((key.len() as u32).to_be_bytes());
    frame.extend([0; 12]);
    frame.extend(key);
    pipe.write_all(&frame).await.unwrap();
    let mut header = [0; 24];
    pipe.read_exact(&mut header).await.unwrap();
    let length = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
    let mut body = vec![0; length as usize];
    pipe.read_exact(&mut body).await.unwrap();
    assert_eq!((header[0], header[1]), (0x81, opcode));
    (u16::from_be_bytes([header[6], header[7]]), body[usize::from(header[4])..].to_vec())
}

const GET: u8 = 0x00;
const NOOP: u8 = 0x0a;
const SELECT_BUCKET: u8 = 0x89;
const GET_CLUSTER_CONFIG: u8 = 0xb5;

#[tokio::test(start_paused = true)]
async fn couchbase_server_answers_from_its_script_then_serves() {
    let script = Script::new()
        .vbuckets(1)
        .answers([Answer::status(0x86).to("get").after(Duration::from_millis(7))]);
    let server = Server::new(script).on_pipe().unwrap();
    let mut pipe = server.connect(0).unwrap();
    assert_eq!(call(&mut pipe, GET, b"k").await.0, 0x24, "no bucket is selected");
    assert_eq!(call(&mut pipe, SELECT_BUCKET, b"none").await.0, 0x24);
    assert_eq!(call(&mut pipe, SELECT_BUCKET, b"default").await.0, 0);
    assert_eq!(call(&mut pipe, NOOP, b"").await.0, 0, "the answer waits for a get");
    let start = tokio::time::Instant::now();
    assert_eq!(call(&mut pipe, GET, b"k").await.0, 0x86);
    assert_eq!(start.elapsed(), Duration::from_millis(7));
    assert_eq!(call(&mut pipe, GET, b"k").await.0, 0x01);
    let outcomes: Vec<_> = server.requests().iter().map(|request| request.outcome).collect();
    assert_eq!(outcomes[1..], [0, 0x86, 0x01].map(RequestOutcome::Status));
}

#[tokio::test(start_paused = true)]
async fn couchbase_server_sends_the_configuration_with_not_my_vbucket() {
    let server = Server::new(Script::new().nodes(2).vbuckets(1)).on_pipe().unwrap();
    let mut pipe = server.connect(1).unwrap();
    call(&mut pipe, SELECT_BUCKET, b"default").await;
    let (status, body) = call(&mut pipe, GET, b"k").await;
    assert_eq!(status, 0x07);
    let config: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(config["vBucketServerMap"]["serverList"][1], "node1:11210");
    assert_eq!(call(&mut pipe, GET_CLUSTER_CONFIG, b"").await, (0, body));
}

#[tokio::test(start_paused = true)]
async fn couchbase_server_names_its_nodes_before_a_bucket_is_selected() {
    let server = Server::new(Script::new().nodes(2)).on_pipe().unwrap();
    let mut pipe = server.connect(0).unwrap();
    let (status, body) = call(&mut pipe, GET_CLUSTER_CONFIG, b"").await;
    let config: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((status, &config["nodesExt"][1]["services"]["kv"]), (0, &11210.into()));
    assert_eq!(config["name"], serde_json::Value::Null);
    let server = Server::new(Script::new().user("app", "secret")).on_pipe().unwrap();
    let mut pipe = server.connect(0).unwrap();
    assert_eq!(call(&mut pipe, GET_CLUSTER_CONFIG, b"").await.0, 0x24, "not authenticated");
}

#[tokio::test(start_paused = true)]
async fn couchbase_server_limits_open_connections() {
    let server = Server::new(Script::new()).on_pipe().unwrap();
    let mut open: Vec<_> =
        (0..CONNECTIONS_OPEN_MAX).map(|_| server.connect(0).expect("below the limit")).collect();
    assert!(server.connect(0).is_err());
    open.pop();
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(server.connect(0).is_ok(), "a closed one makes room");
}

#[tokio::test]
async fn couchbase_server_refuses_invalid_scripts() {
    let check = |script: Script| script.check().map_err(|error| error.to_string());
    assert_eq!(check(Script::new().nodes(NODES_MAX)), Ok(()));
    assert!(check(Script::new().nodes(NODES_MAX + 1)).unwrap_err().starts_with("nodes: 17"));
    assert_eq!(check(Script::new().vbuckets(VBUCKETS_MAX)), Ok(()));
    assert!(check(Script::new().vbuckets(VBUCKETS_MAX * 2)).is_err());
    assert!(check(Script::new().vbuckets(0)).is_err());
    assert!(check(Script::new().replicas(1)).is_err());
    assert_eq!(check(Script::new().mechanisms(["SCRAM-SHA1", "OAUTHBEARER"])), Ok(()));
    let text = "mechanisms: \"scram-sha1\"; expected SCRAM-SHA512, SCRAM-SHA256, SCRAM-SHA1, PLAIN or OAUTHBEARER";
    assert_eq!(check(Script::new().mechanisms(["scram-sha1"])), Err(text.to_owned()));
    let many = |count| Script::new().answers((0..count).map(|_| Answer::serve()));
    assert_eq!(check(many(SCRIPT_ANSWERS_MAX)), Ok(()));
    assert!(check(many(SCRIPT_ANSWERS_MAX + 1)).is_err());
    let wrong = Server::new(Script::new().nodes(0)).listen("127.0.0.1").await;
    assert_eq!(wrong.unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
}
