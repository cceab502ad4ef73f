//! Goal: our frames are those of an independent implementation. Method: Debian's memcached, which
//! speaks the binary protocol, over loopback TCP. It knows nothing of Couchbase: no buckets, vbuckets,
//! locks or retryable statuses.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redial::s;
use redial_couchbase::BestEffort;
use redial_couchbase::client::{Address, Client, ClientOptions, RequestError};
use redial_couchbase::response::status;

/// A running memcached.
struct Memcached {
    process: Child,
    port: u16,
}

impl Memcached {
    fn start() -> Self {
        // A free port, as long as no other program takes it first.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        drop(listener);
        // The user is used only by root, who has to name one.
        let process = Command::new("memcached")
            .args(["-l", "127.0.0.1", "-B", "binary", "-U", "0", "-u", "nobody", "-p"])
            .arg(port.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("memcached starts");
        Memcached { process, port }
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test]
#[ignore = "needs memcached: cargo xtask test couchbase-memcached"]
async fn memcached_understands_our_frames() {
    let memcached = Memcached::start();
    let address = Address::new("127.0.0.1", memcached.port);
    let options = ClientOptions::memcached(address).strategy(BestEffort::new()).timeout(s(30));
    let client = Client::open(options);
    client.wait_until_ready(s(30)).await.unwrap();
    let documents = client.default_collection();
    let status_of =
        |error: redial_couchbase::Error<RequestError>| error.last().and_then(RequestError::status);
    client.noop().await.unwrap();
    assert_eq!(status_of(documents.get("a").await.unwrap_err()), Some(status::NOT_FOUND));
    let inserted = documents.insert("a", "one").await.unwrap();
    let error = documents.insert("a", "two").await.unwrap_err();
    assert_eq!(status_of(error), Some(status::EXISTS));
    let read = documents.get("a").await.unwrap();
    assert_eq!((&read.value[..], read.cas), (&b"one"[..], inserted.cas));
    documents.replace("a", "two").cas(inserted.cas).await.unwrap();
    let error = documents.replace("a", "three").cas(inserted.cas).await.unwrap_err();
    assert_eq!(status_of(error), Some(status::EXISTS));
    documents.append("a", "!").await.unwrap();
    assert_eq!(documents.get_and_touch("a", s(60)).await.unwrap().value, "two!");
    documents.touch("a", s(60)).await.unwrap();
    assert_eq!(documents.increment("n", 1, Some(7)).await.unwrap().value, 7);
    assert_eq!(documents.decrement("n", 2, None).await.unwrap().value, 5);
    documents.remove("a").await.unwrap();
    let large = vec![b'x'; 512 << 10];
    documents.upsert("large", large.clone()).await.unwrap();
    assert_eq!(documents.get("large").await.unwrap().value, large);
}

#[tokio::test]
#[ignore = "needs memcached: cargo xtask test couchbase-memcached"]
async fn memcached_answers_many_requests_on_one_connection() {
    let memcached = Memcached::start();
    let address = Address::new("127.0.0.1", memcached.port);
    let options = ClientOptions::memcached(address).strategy(BestEffort::new()).timeout(s(60));
    let client = Client::open(options);
    client.wait_until_ready(s(30)).await.unwrap();
    let tasks = (0..32).map(|task| {
        let documents = client.default_collection();
        tokio::spawn(async move {
            for number in 0..50 {
                let key = format!("key{task}.{number}");
                documents.upsert(key.clone(), key.clone()).await.unwrap();
                assert_eq!(documents.get(key.clone()).await.unwrap().value, key);
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
}

#[tokio::test]
#[ignore = "needs memcached: cargo xtask test couchbase-memcached"]
async fn memcached_that_ends_and_starts_again_is_found() {
    let mut memcached = Memcached::start();
    let address = Address::new("127.0.0.1", memcached.port);
    let options = ClientOptions::memcached(address).strategy(BestEffort::new()).timeout(s(60));
    let client = Client::open(options);
    client.wait_until_ready(s(30)).await.unwrap();
    let documents = client.default_collection();
    documents.upsert("a", "1").await.unwrap();
    memcached.process.kill().unwrap();
    memcached.process.wait().unwrap();
    let error = documents.get("a").timeout(Duration::from_millis(200)).await.unwrap_err();
    assert!(error.is_timeout() && !error.is_ambiguous(), "{error}");
    let port = memcached.port;
    memcached = {
        let process = Command::new("memcached")
            .args(["-l", "127.0.0.1", "-B", "binary", "-U", "0", "-u", "nobody", "-p"])
            .arg(port.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Memcached { process, port }
    };
    documents.upsert("a", "2").await.unwrap();
    assert_eq!(documents.get("a").await.unwrap().value, "2");
    drop(memcached);
}
