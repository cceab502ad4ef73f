//! Goal: retries of S3 operations against a real server, through failures of the connection. Method: s3s-fs on
//! a loopback socket in this process, behind the fault proxy, in real time. `cargo xtask test aws-minio` runs
//! the same tests against `MinIO`.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use aws_sdk_s3::Client;
use aws_sdk_s3::config::RequestChecksumCalculation;
use aws_sdk_s3::config::timeout::TimeoutConfig;
use aws_sdk_s3::presigning::PresigningConfig;
use aws_sdk_s3::primitives::{ByteStream, SdkBody};
use bytes::Bytes;
use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder as ConnBuilder;
use redial::{Policy, StopReason, Throttle, ms, s};
use redial_aws::{
    CallOptions, ReportSlot, RetryInterceptor, Wait, is_not_found, wait, with_retries,
};
use redial_faults::proxy::{Fault, Handle, Proxy, ProxyRule};
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use s3s_fs::FileSystem;
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::clients;

/// The program of MinIO; if it is set, it is the server in place of s3s-fs.
const MINIO: &str = "REDIAL_MINIO";

/// How long MinIO may take to start on a busy machine.
const START_MAX: Duration = Duration::from_secs(60);

/// A real S3 server with a bucket, and a proxy before it.
struct Server {
    proxy: Handle,
    client: Client,
    _minio: Option<Minio>,
    _folder: TempDir,
}

/// A process of MinIO; dropping it ends the process.
struct Minio(Child);

impl Drop for Minio {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Minio {
    async fn start(program: &OsStr, folder: &Path) -> (SocketAddr, Self) {
        let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (address, console) = (free(), free());
        let process = Command::new(program)
            .args(["server", "--address", &address.to_string()])
            .args(["--console-address", &console.to_string()])
            .arg(folder.join("data"))
            .env("HOME", folder)
            .env("MINIO_ROOT_USER", clients::KEY)
            .env("MINIO_ROOT_PASSWORD", clients::SECRET)
            .env("MINIO_UPDATE", "off")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("MinIO runs");
        let mut minio = Minio(process);
        let began = Instant::now();
        while tokio::net::TcpStream::connect(address).await.is_err() {
            assert!(minio.0.try_wait().unwrap().is_none(), "MinIO ended");
            assert!(began.elapsed() < START_MAX, "MinIO does not answer");
            tokio::time::sleep(ms(50)).await;
        }
        (address, minio)
    }
}

fn quick(attempts: u32) -> RetryInterceptor {
    let policy = Policy::constant(ms(5)).attempts(attempts).throttle(Throttle::none()).build();
    RetryInterceptor::new(policy).unwrap()
}

/// Serves the S3 protocol with a folder.
async fn s3s_fs(folder: &Path) -> SocketAddr {
    let mut service = S3ServiceBuilder::new(FileSystem::new(folder).unwrap());
    service.set_auth(SimpleAuth::from_single(clients::KEY, clients::SECRET));
    let service = service.build();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let service = service.clone();
            tokio::spawn(async move {
                let server = ConnBuilder::new(TokioExecutor::new());
                // A connection that the proxy resets is none of this server's concern.
                let _ = server.serve_connection(TokioIo::new(socket), service).await;
            });
        }
    });
    address
}

/// Creates the bucket, not through the proxy. MinIO answers 503 until it is initialized.
async fn create_bucket(server: SocketAddr) {
    let policy = Policy::constant(ms(50)).unlimited().deadline(START_MAX);
    let retries = RetryInterceptor::new(policy.throttle(Throttle::none()).build()).unwrap();
    let config = with_retries!(clients::s3(&format!("http://{server}")), retries);
    let client = Client::from_conf(config.build());
    client.create_bucket().bucket("shop").send().await.unwrap();
}

async fn server(retries: RetryInterceptor) -> Server {
    let folder = tempfile::tempdir().unwrap();
    let (address, minio) = match std::env::var_os(MINIO) {
        Some(program) => {
            let (address, minio) = Minio::start(&program, folder.path()).await;
            (address, Some(minio))
        }
        None => (s3s_fs(folder.path()).await, None),
    };
    let proxy = Proxy::http(address).listen("127.0.0.1:0").await.unwrap();
    let config = with_retries!(clients::s3(&proxy.url()), retries)
        // Plain HTTP: the SDK sends checksums of streams only with TLS.
        .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
        .timeout_config(TimeoutConfig::builder().operation_attempt_timeout(s(10)).build());
    let client = Client::from_conf(config.build());
    create_bucket(address).await;
    Server { proxy, client, _minio: minio, _folder: folder }
}

impl Server {
    async fn read(&self, key: &str) -> Bytes {
        let object = self.client.get_object().bucket("shop").key(key).send().await.unwrap();
        object.body.collect().await.unwrap().into_bytes()
    }

    /// How many requests with this method the proxy has seen.
    fn count(&self, method: &str) -> usize {
        let record = self.proxy.record();
        record.exchanges.iter().filter(|exchange| exchange.method == method).count()
    }
}

fn slow_down() -> Fault {
    let body = "<Error><Code>SlowDown</Code><Message>reduce your rate</Message></Error>";
    Fault::status(503).header("content-type", "application/xml").body(body)
}

/// Larger than the buffers of the sockets.
fn large() -> Bytes {
    (0..4_000_000_u32).map(|index| (index % 251) as u8).collect::<Vec<_>>().into()
}

#[tokio::test]
async fn s3_object_is_stored_and_read_through_faults() {
    let server = server(quick(4)).await;
    server.proxy.requests([Fault::status(500), slow_down(), Fault::reset()]);
    let put =
        server.client.put_object().bucket("shop").key("a").body(ByteStream::from_static(b"one"));
    put.send().await.unwrap();
    assert_eq!(server.count("PUT"), 4);
    server.proxy.requests([Fault::close(), Fault::status(503), Fault::status(502)]);
    assert_eq!(server.read("a").await, "one");
    assert_eq!(server.count("GET"), 4);
}

#[tokio::test]
async fn s3_connection_that_is_refused_is_retried() {
    let server = server(quick(2_000)).await;
    server.proxy.refuse_connections().await;
    let put =
        server.client.put_object().bucket("shop").key("a").body(ByteStream::from_static(b"one"));
    let put = tokio::spawn(put.send());
    tokio::time::sleep(ms(40)).await;
    server.proxy.accept_connections().await;
    put.await.unwrap().unwrap();
    assert_eq!(server.read("a").await, "one");
}

#[tokio::test]
async fn s3_body_in_memory_is_sent_again_from_its_start() {
    let server = server(quick(4)).await;
    let body = large();
    server.proxy.requests([Fault::reset().at_request_bytes(1_000_000), slow_down()]);
    let put = server.client.put_object().bucket("shop").key("a").body(body.clone().into());
    put.send().await.unwrap();
    assert!(server.read("a").await == body, "the object is complete");
    let record = server.proxy.record();
    let uploads: Vec<_> =
        record.exchanges.iter().filter(|it| it.path.starts_with("/shop/a")).collect();
    assert_eq!(uploads[2].request_bytes, body.len() as u64);
}

#[tokio::test]
async fn s3_body_from_a_file_is_replayed_from_its_start() {
    let server = server(quick(4)).await;
    let body = large();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &body).unwrap();
    server.proxy.requests([Fault::reset().at_request_bytes(1_000_000), Fault::status(500)]);
    let stream = ByteStream::from_path(file.path()).await.unwrap();
    server.client.put_object().bucket("shop").key("a").body(stream).send().await.unwrap();
    assert!(server.read("a").await == body, "the object is complete");
}

#[tokio::test]
async fn s3_streaming_body_gets_one_attempt() {
    let retries = RetryInterceptor::aws_2026();
    let server = server(retries.clone()).await;
    let body = large();
    for fault in [Fault::reset().at_request_bytes(1_000_000), slow_down()] {
        let before = server.count("PUT");
        server.proxy.requests([fault]);
        let stream = ByteStream::new(SdkBody::from_body_1_x(Full::new(body.clone())));
        let report = ReportSlot::new();
        let put = server.client.put_object().bucket("shop").key("a").body(stream);
        let put = put.content_length(body.len() as i64).customize();
        put.interceptor(CallOptions::new().report(&report)).send().await.unwrap_err();
        assert_eq!(server.count("PUT"), before + 1, "a stream cannot be sent twice");
        assert_eq!(report.take().unwrap().stop_reason, StopReason::Committed);
    }
    assert_eq!(retries.policy().tokens(0), Some(500.0), "nothing was withdrawn");
    let head = server.client.head_object().bucket("shop").key("a").send().await;
    assert!(is_not_found(&head.unwrap_err()), "no half of an object is stored");
}

#[tokio::test]
async fn s3_lost_answer_of_a_put_is_repeated() {
    let server = server(quick(3)).await;
    server.proxy.requests([Fault::reset().after_upstream()]);
    let put =
        server.client.put_object().bucket("shop").key("a").body(ByteStream::from_static(b"one"));
    put.send().await.unwrap();
    let record = server.proxy.record();
    let uploads: Vec<_> =
        record.exchanges.iter().filter(|it| it.path.starts_with("/shop/a")).collect();
    assert_eq!(uploads.len(), 2);
    assert!(uploads.iter().all(|it| it.forwarded.is_some()), "the server saw both");
    assert_eq!(uploads[0].request_digest, uploads[1].request_digest);
}

#[tokio::test]
async fn s3_slow_answer_is_cut_by_the_attempt_timeout() {
    let policy = Policy::constant(ms(5)).attempts(3).attempt_timeout(ms(300)).retry_timeouts();
    let retries = RetryInterceptor::new(policy.throttle(Throttle::none()).build()).unwrap();
    let server = server(retries).await;
    server.proxy.requests([Fault::stall(), Fault::pass().delay(s(20))]);
    let began = Instant::now();
    server.client.list_buckets().send().await.unwrap();
    let took = began.elapsed();
    assert!((ms(600)..s(15)).contains(&took), "two timeouts: {took:?}");
}

#[tokio::test]
async fn s3_presigned_request_counts_for_nothing() {
    let retries = RetryInterceptor::aws_2026();
    let server = server(retries.clone()).await;
    server.proxy.requests([Fault::status(503)]);
    server.client.list_buckets().send().await.unwrap();
    server.proxy.rule(ProxyRule::new(Fault::status(503)));
    server.client.list_buckets().send().await.unwrap_err();
    let tokens = retries.policy().tokens(0);
    assert_eq!(tokens, Some(500.0 - 28.0));
    let presigning = PresigningConfig::expires_in(Duration::from_secs(60)).unwrap();
    let get = server.client.get_object().bucket("shop").key("a");
    assert!(get.presigned(presigning).await.unwrap().uri().contains("X-Amz-Signature"));
    assert_eq!(retries.policy().tokens(0), tokens, "no request was sent");
}

static POLL: Policy =
    Policy::constant(ms(20)).unlimited().deadline(s(30)).throttle(Throttle::none()).build();

#[tokio::test]
async fn s3_waiter_waits_until_the_object_exists() {
    let server = server(quick(3)).await;
    let (client, other) = (server.client.clone(), server.client.clone());
    let put = tokio::spawn(async move {
        tokio::time::sleep(ms(100)).await;
        other.put_object().bucket("shop").key("a").body(Bytes::from("one").into()).send().await
    });
    let exists = wait(
        &POLL,
        || client.head_object().bucket("shop").key("a").send(),
        |result| match result {
            Ok(_) => Wait::Done,
            Err(error) if is_not_found(error) => Wait::NotYet,
            Err(_) => Wait::Other,
        },
    );
    let (head, report) = exists.with_report().await.unwrap();
    assert_eq!(head.content_length(), Some(3));
    assert!(report.attempts > 1, "{report:?}");
    put.await.unwrap().unwrap();
}
