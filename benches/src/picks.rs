//! Lock contention between threads that pick a backend of one balanced channel.
//!
//! `cargo run --release --manifest-path benches/Cargo.toml --features balance --bin picks` prints
//! the table. An attempt is started and dropped immediately, which takes the lock around the list
//! of backends twice, to pick and to release, and sends nothing. Threads with separate channels do
//! the same without the shared lock: the difference is the cost of the lock. This measures time,
//! since waiting executes no instructions; the result is the median of many short rounds.

use std::net::SocketAddr;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use redial_grpc_balance::{self as balance, ConnectivityState, BalancedChannel, Connector, ConnectFuture, Io};
use redial_grpc::{Retries, RetryLayer};
use tokio::io::AsyncWriteExt as _;
use tonic::body::Body;
use tower::Service;

const ROUNDS: usize = 1500;
const PICKS: u32 = 2_000;

fn main() {
    println!(
        "| backends | policy | 1 thread | 2 threads, a channel each | 2 threads, one channel |"
    );
    println!("| --- | --- | --- | --- | --- |");
    for backends in [3, 1000] {
        for policy in ["pick_first", "round_robin"] {
            let channels = [(); 2].map(|()| Ready::new(backends, policy));
            let [one, other] = channels.each_ref().map(|ready| &ready.channel);
            let mut rounds = [const { Vec::new() }; 3];
            for _ in 0..ROUNDS {
                // Interleaved, so that a slow phase of the machine affects all variants.
                for (rounds, channels) in
                    rounds.iter_mut().zip([&[one][..], &[one, other], &[one, one]])
                {
                    rounds.extend(round(channels));
                }
            }
            let [alone, apart, together] = rounds.map(|mut rounds| {
                rounds.sort_unstable();
                rounds[rounds.len() / 2].as_nanos() / u128::from(PICKS)
            });
            println!("| {backends} | {policy} | {alone} ns | {apart} ns | {together} ns |");
        }
    }
}

/// The time from the first to the last pick of one thread per channel, if the threads overlapped.
fn round(channels: &[&BalancedChannel]) -> Option<Duration> {
    let barrier = Barrier::new(channels.len());
    let pick = |channel: &BalancedChannel| {
        let mut channel = channel.clone();
        barrier.wait();
        let began = Instant::now();
        for _ in 0..PICKS {
            let mut request = http::Request::new(Body::empty());
            *request.uri_mut() = http::Uri::from_static("/redial.test.Echo/Unary");
            drop(channel.call(request));
        }
        (began, Instant::now())
    };
    let times: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = channels.iter().map(|it| scope.spawn(|| pick(it))).collect();
        threads.into_iter().map(|it| it.join().expect("it picks")).collect()
    });
    let (begun, ended) = (times.iter().map(|it| it.0), times.iter().map(|it| it.1));
    let whole = ended.clone().max()?.duration_since(begun.clone().min()?);
    let common = ended.min()?.saturating_duration_since(begun.max()?);
    // Threads that did not overlap had no contention.
    (common * 10 > whole * 9).then_some(whole)
}

/// A channel with connected backends, and its runtime.
struct Ready {
    channel: BalancedChannel,
    _runtime: tokio::runtime::Runtime,
}

impl Ready {
    fn new(backends: u16, policy: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        // Retries off, for the least overhead of the layer above.
        let layer = RetryLayer::builder().retries(Retries::Off);
        let address = |nth: u16| SocketAddr::from(([10, 0, 0, 1], 1 + nth));
        let channel = balance::channel("http://picks.test")
            .addresses((0..backends).map(address))
            .layer(layer)
            .default_service_config(format!(r#"{{ "loadBalancingPolicy": "{policy}" }}"#))
            .connector(Greeting)
            .build()
            .expect("a channel");
        runtime.block_on(async {
            channel.start();
            let least = if policy == "round_robin" { usize::from(backends) } else { 1 };
            let ready = || {
                let states = channel.snapshot().backends.into_iter().map(|it| it.state);
                states.filter(|it| *it == ConnectivityState::Ready).count()
            };
            while ready() < least {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        Ready { channel, _runtime: runtime }
    }
}

/// Pipes to servers that only send their SETTINGS.
#[derive(Debug)]
struct Greeting;

impl Connector for Greeting {
    fn connect(&self, _: SocketAddr) -> ConnectFuture<'_> {
        Box::pin(async {
            let (ours, mut theirs) = tokio::io::duplex(64 * 1024);
            // An empty SETTINGS frame (RFC 9113, section 6.5).
            theirs.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await?;
            tokio::spawn(async move {
                let _open = theirs;
                std::future::pending::<()>().await;
            });
            Ok(Box::new(ours) as Box<dyn Io>)
        })
    }
}
