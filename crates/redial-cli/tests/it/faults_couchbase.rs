//! Goal: `redial faults couchbase` is usable from any language: its first line has the addresses, each
//! request gets a line, it exits on request, and input errors are explained. Method: the binary runs,
//! and the reference client connects to it.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use redial_couchbase::client::{Address, Client, ClientOptions};
use serde_json::Value;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::temporary::Temporary;

/// Runs the command with a script, and two requests of a client; returns the output.
fn played(script: &str, arguments: &[&str]) -> Vec<String> {
    played_with(script, arguments, |options| options.credentials("app", "secret"))
}

/// The same with further options of the client, once the command listens.
fn played_with(
    script: &str,
    arguments: &[&str],
    with: impl FnOnce(ClientOptions) -> ClientOptions,
) -> Vec<String> {
    let file = Temporary::new(script);
    let mut process = Command::new(env!("CARGO_BIN_EXE_redial"))
        .args(["faults", "couchbase", "--for", "60s", "--script", file.path()])
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let mut out = BufReader::new(process.stdout.take().unwrap());
    let mut first = String::new();
    out.read_line(&mut first).unwrap();
    let json = serde_json::from_str::<Value>(&first).ok();
    let addresses: Vec<String> = match &json {
        Some(json) => serde_json::from_value(json["addresses"].clone()).unwrap(),
        None => first.split_whitespace().map(str::to_owned).collect(),
    };
    let (host, port) = addresses[0].rsplit_once(':').unwrap();
    let options = ClientOptions::new([Address::new(host, port.parse().unwrap())], "travel")
        .timeout(Duration::from_secs(30));
    let options = with(options);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let documents = Client::open(options).default_collection();
        documents.upsert("a", "1").await.unwrap();
        assert_eq!(documents.get("a").await.unwrap().value, "1");
    });
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!(process.wait().unwrap().code(), Some(0));
    std::iter::once(first.as_str()).chain(rest.lines()).map(str::to_owned).collect()
}

const SCRIPT: &str = r#"{ "bucket": "travel", "users": { "app": "secret" }, "nodes": 2,
    "attempts": [ { "status": 134 }, { "after": 5, "status": 9 } ] }"#;

#[test]
fn faults_couchbase_serves_a_client_and_prints_requests() {
    let lines = played(SCRIPT, &["--requests", "4"]);
    assert_eq!(lines[0].split_whitespace().count(), 2, "two nodes: {}", lines[0]);
    assert!(lines[1].contains("upsert \"a\" (vbucket "), "{}", lines[1]);
    assert!(lines[1].ends_with("status 0x86") && lines[2].ends_with("status 0x09"), "{lines:?}");
    assert!(lines[4].contains("get \"a\"") && lines[4].ends_with("status 0x00"), "{lines:?}");
    assert!(lines[5].starts_with("4 requests, "), "{lines:?}");
}

#[test]
fn faults_couchbase_json_prints_one_object_per_line() {
    let lines = played(SCRIPT, &["--requests", "4", "--json"]);
    let objects: Vec<Value> =
        lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(objects[0]["addresses"].as_array().unwrap().len(), 2);
    assert_eq!((&objects[1]["command"], &objects[1]["status"]), (&"upsert".into(), &134.into()));
    assert_eq!(objects.len(), 5);
}

#[test]
fn faults_couchbase_invalid_script_is_reported_with_position() {
    for (script, text) in [
        ("{ \"nodes\": 17 }", "nodes: 17; expected 1 to 16"),
        ("{ \"vbuckets\": 3 }", "vbuckets: 3; expected a power of two up to 1024"),
        ("{ \"replicas\": 1 }", "replicas: 1; expected less than the 1 nodes"),
        ("{ \"attempts\": [{}] }", "an attempt has exactly one of status, close"),
        ("{ \"attempts\": [{\"hang\": true, \"status\": 1}] }", "exactly one of"),
        (
            "{ \"attempts\": [{\"hang\": true, \"command\": \"gett\"}] }",
            "attempts[0].command: unknown",
        ),
        (
            "{ \"attempts\": [{\"hang\": true, \"context\": \"x\"}] }",
            "attempts[0].context: it belongs to a status",
        ),
        ("{ \"attempts\": [{\"hang\": true, \"after\": -1}] }", "after: expected milliseconds"),
        ("{ \"error_map\": {\"xyz\": []} }", "error_map: \"xyz\"; expected a status"),
        ("{ \"mechanisms\": [\"MD5\"] }", "mechanisms: \"MD5\"; expected SCRAM-SHA512"),
        ("{ \"knots\": 1 }", "unknown field `knots`"),
    ] {
        let file = Temporary::new(script);
        let output = Command::new(env!("CARGO_BIN_EXE_redial"))
            .args(["faults", "couchbase", "--for", "10s", "--script", file.path()])
            .output()
            .unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{script}: {err}");
        assert!(err.contains(text) && err.contains(file.path()), "{script}: {err}");
    }
}

#[test]
fn faults_couchbase_tls_and_token_serve_a_client() {
    let pem = Temporary::new("");
    let script = r#"{ "bucket": "travel", "token": "a.b.c" }"#;
    let with = |options: ClientOptions| {
        let certificate = CertificateDer::from_pem_file(pem.path()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        options.tls(Arc::new(config)).token("a.b.c")
    };
    let lines = played_with(script, &["--requests", "2", "--tls", pem.path()], with);
    assert!(lines[2].ends_with("status 0x00"), "{lines:?}");
}

#[test]
fn faults_couchbase_unwritable_certificate_is_an_error() {
    let output = Command::new(env!("CARGO_BIN_EXE_redial"))
        .args(["faults", "couchbase", "--for", "10s", "--tls", "/no/such/folder/ca.pem"])
        .output()
        .unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{err}");
    assert!(err.contains("cannot write /no/such/folder/ca.pem"), "{err}");
}

#[test]
fn faults_couchbase_documented_scripts_are_valid() {
    let page = include_str!("../../../../docs/couchbase.md");
    let (_, section) = page.split_once("## The scripted server").unwrap();
    let (_, script) = section.split_once("```json\n").unwrap();
    let (script, _) = script.split_once("```").unwrap();
    serde_json::from_str::<redial_faults::couchbase::Script>(script).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_redial"))
        .args(["faults", "couchbase", "--help"])
        .output()
        .unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let start = help.find("{ \"bucket\"").unwrap();
    let end = help.find("docs/couchbase.md,").unwrap();
    serde_json::from_str::<redial_faults::couchbase::Script>(&help[start..end]).unwrap();
}
