//! What the orchestrator costs a request of the Couchbase client that succeeds at once, in instructions
//! (callgrind): the same client and connection without it, with tokio's timeout alone, and with it.
//!
//! `cargo run --release --manifest-path benches/Cargo.toml --features couchbase --bin couchbase` starts memcached,
//! a process of its own, so that only the client is counted. Instructions of a case are the difference of two
//! whole runs, divided by the difference of their counts; of a few such differences the median is printed.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redial_couchbase::client::{Address, Client, ClientOptions, Collection, TIMEOUT};

const FEW: u64 = 200;
const MANY: u64 = 2_200;
/// How often a case is counted: turns of the event loop differ a little.
const RUNS: usize = 3;
const READY_MAX: Duration = Duration::from_secs(30);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["run", case, port, n] => {
            run(case, port.parse().expect("a port"), n.parse().expect("a count"))
        }
        [] => table(),
        _ => panic!("no argument is expected"),
    }
}

fn table() {
    let server = Memcached::start();
    println!("| request that succeeds | alone | with tokio's timeout | with the orchestrator |");
    println!("| --- | --- | --- | --- |");
    for operation in ["get", "upsert"] {
        let [alone, timeout, with] = ["alone", "with timeout", "orchestrated"]
            .map(|kind| instructions(&format!("{operation} {kind}"), server.port));
        let more =
            |count: f64| format!("{:+.0} ({:+.1} %)", count - alone, (count / alone - 1.0) * 100.0);
        println!("| {operation} | {alone:.0} | {} | {} |", more(timeout), more(with));
    }
}

fn instructions(case: &str, port: u16) -> f64 {
    let mut counts: Vec<f64> = (0..RUNS)
        .map(|_| (whole(case, port, MANY) - whole(case, port, FEW)) / (MANY - FEW) as f64)
        .collect();
    counts.sort_by(f64::total_cmp);
    counts[RUNS / 2]
}

/// The instructions of a program that makes these requests.
fn whole(case: &str, port: u16, n: u64) -> f64 {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().expect("this program"))
        .args(["run", case, &port.to_string(), &n.to_string()])
        .output()
        .expect("valgrind is installed");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let line = text.lines().find(|line| line.contains("Collected")).expect("a total");
    line.rsplit(' ').next().and_then(|number| number.parse().ok()).expect("a number")
}

/// Makes the requests of a case, one after the other.
fn run(case: &str, port: u16, n: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let client = Client::open(ClientOptions::memcached(Address::new("127.0.0.1", port)));
        client.wait_until_ready(READY_MAX).await.expect("memcached is there");
        let documents = client.default_collection();
        documents.upsert("key", "value").await.expect("it is stored");
        for _ in 0..n {
            request(case, &documents).await;
        }
    });
}

async fn request(case: &str, documents: &Collection) {
    let get = || documents.get("key");
    let upsert = || documents.upsert("key", "value");
    let is_done = match case {
        "get alone" => get().send_once().await.is_ok(),
        "get with timeout" => {
            matches!(tokio::time::timeout(TIMEOUT, get().send_once()).await, Ok(Ok(_)))
        }
        "get orchestrated" => get().await.is_ok(),
        "upsert alone" => upsert().send_once().await.is_ok(),
        "upsert with timeout" => {
            matches!(tokio::time::timeout(TIMEOUT, upsert().send_once()).await, Ok(Ok(_)))
        }
        "upsert orchestrated" => upsert().await.is_ok(),
        _ => panic!("there is no case {case:?}"),
    };
    assert!(is_done, "memcached serves it");
}

/// A memcached on a free port.
struct Memcached {
    process: Child,
    port: u16,
}

impl Memcached {
    fn start() -> Self {
        let free = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = free.local_addr().expect("it is bound").port();
        drop(free);
        let process = Command::new("memcached")
            .args(["-l", "127.0.0.1", "-p", &port.to_string(), "-U", "0", "-u", "nobody"])
            .stdout(Stdio::null())
            .spawn()
            .expect("memcached is installed");
        let server = Memcached { process, port };
        for _ in 0..500 {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return server;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("memcached does not listen");
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
