//! `redial faults`: a scripted server or a fault proxy on a socket, for clients in any language.
//!
//! The first line of standard output is the address, so that a test that starts the command knows
//! where to connect. Then one line follows for each stream or request as it ends.

mod couchbase;
mod line;
mod proxy;
mod script;

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redial_faults::grpc::{Answer, Counts, Script, Server, StreamRecord};
use tokio::sync::mpsc;

use crate::scenarios::source::Diagnostic;

pub use script::SCRIPT_BYTES_MAX;

/// How many lines are queued for a slow reader; further lines are dropped and counted.
pub const LINES_MAX: usize = 100_000;
/// How many payload bytes of a stream are kept for its line.
pub const PAYLOAD_BYTES_KEPT: u64 = 1024;
/// How many streams the record keeps; lines are written from a callback instead.
const STREAMS_KEPT: usize = 100;

/// The arguments of `redial faults`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXIT_CODES)]
pub struct Arguments {
    #[command(subcommand)]
    faults: Faults,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  ended by a signal, its time or its number of requests
  2  the script cannot be read, the address cannot be used, or the command was used wrongly";

#[derive(Clone, Debug, clap::Subcommand)]
enum Faults {
    /// A gRPC server that fails on demand: Trailers-Only, resets, GOAWAY, closed connections.
    ///
    /// The first line of its output is the address on which it listens. The request header
    /// x-redial-call names the call that an attempt belongs to; without it, attempts are used in
    /// order of arrival. This is a test double, not a real server.
    #[command(after_long_help = SCRIPT_HELP)]
    Grpc(GrpcArguments),
    /// A TCP and HTTP proxy that injects faults in front of a real server.
    ///
    /// It refuses, resets, stalls and delays connections, cuts them at a byte, and answers with any
    /// status: by script, by rate and by header. The first line of its output is the address on
    /// which it listens. Without a script it passes everything, and prints what passed.
    #[command(after_long_help = proxy::SCRIPT_HELP)]
    Proxy(proxy::ProxyArguments),
    /// A Couchbase cluster that fails on demand: statuses, closed connections, no answers.
    ///
    /// The first line of its output has the addresses of its nodes. It speaks the KV protocol and keeps
    /// documents in memory. This is a test double, not a real server.
    Couchbase(couchbase::Arguments),
}

/// An example script, so that the help text is enough to start.
const SCRIPT_HELP: &str = r#"A script that fails twice and then answers:
  { "attempts": [
      { "after": 5, "outcome": "UNAVAILABLE", "message": "busy", "pushback": "50" },
      { "reset": "REFUSED_STREAM" },
      { "outcome": "OK", "replies": [{ "echo": true }] } ] }

docs/scenarios.md, "A server that fails", says what else an attempt may meet."#;

#[derive(Clone, Debug, clap::Args)]
struct GrpcArguments {
    /// Where to listen; port 0 takes any free port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: String,
    /// Play this script. Without one, every request is echoed.
    #[arg(long, value_name = "FILE", conflicts_with = "scenario")]
    script: Option<String>,
    /// Play the attempts of a scenario in this file: its calls are named "0", "1", ...; requests
    /// that name no call get them one after the other.
    #[arg(long, value_name = "FILE", requires = "name")]
    scenario: Option<String>,
    /// The name of the scenario.
    #[arg(long, requires = "scenario")]
    name: Option<String>,
    /// Print JSON: one object with the address, then one for each stream.
    #[arg(long)]
    json: bool,
    /// Exit after this time, for example 500ms, 10s, 5m. By default it runs until a signal.
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    for_: Option<Duration>,
    /// Exit when this many streams have ended.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    streams: Option<u64>,
}

/// A whole number and its unit.
fn duration(text: &str) -> Result<Duration, String> {
    let expected = || "expected a whole number and ms, s or m, for example 500ms".to_owned();
    let digits = text.find(|it: char| !it.is_ascii_digit()).ok_or_else(expected)?;
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| expected())?;
    let ms = match unit {
        "ms" => Some(number),
        "s" => number.checked_mul(1000),
        "m" => number.checked_mul(60_000),
        _ => None,
    };
    ms.map(Duration::from_millis).ok_or_else(expected)
}

/// Runs the server until a signal, the time limit or the stream limit. Returns 0 then, and 2 if it
/// could not start.
///
/// # Errors
/// The output cannot be written, or there is no runtime.
pub fn run(arguments: &Arguments, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<u8> {
    // The streams run on a separate thread: a slow reader of the output does not delay the server.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let diagnostics = match &arguments.faults {
        Faults::Grpc(arguments) => match server(arguments) {
            Ok(server) => return runtime.block_on(serve(server, arguments, out, err)),
            Err(diagnostics) => diagnostics,
        },
        Faults::Proxy(arguments) => match arguments.proxy() {
            Ok(proxy) => return runtime.block_on(proxy::serve(proxy, arguments, out, err)),
            Err(diagnostics) => diagnostics,
        },
        Faults::Couchbase(arguments) => match arguments.script() {
            Ok(script) => return runtime.block_on(couchbase::serve(script, arguments, out, err)),
            Err(diagnostics) => diagnostics,
        },
    };
    for diagnostic in diagnostics {
        writeln!(err, "{diagnostic}")?;
    }
    Ok(2)
}

fn server(arguments: &GrpcArguments) -> Result<Server, Vec<Diagnostic>> {
    match (&arguments.script, &arguments.scenario, &arguments.name) {
        (Some(path), ..) => script::script(path),
        (None, Some(path), Some(name)) => script::scenario(path, name).map(Server::new),
        _ => Ok(Server::new(Script::new().default_answer(Answer::echo()))),
    }
}

async fn serve(
    server: Server,
    arguments: &GrpcArguments,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<u8> {
    let (queue, mut ended) = Queue::<StreamRecord>::new();
    let lost = queue.lost.clone();
    let server = server
        .streams_kept(STREAMS_KEPT)
        .payload_bytes_kept(PAYLOAD_BYTES_KEPT)
        .on_end(move |stream| queue.push(stream.clone()));
    let signals = Signals::new()?;
    let server = match server.listen(&arguments.listen).await {
        Ok(server) => server,
        Err(error) => {
            writeln!(err, "redial: cannot listen on {}: {error}", arguments.listen)?;
            return Ok(2);
        }
    };
    line::address(out, server.addr(), arguments.json)?;
    out.flush()?;
    let mut until = std::pin::pin!(until(signals, arguments.for_));
    let mut left = arguments.streams;
    while left != Some(0) {
        let stream = tokio::select! {
            biased;
            () = &mut until => break,
            Some(stream) = ended.recv() => stream,
        };
        line::stream(out, &stream, arguments.json)?;
        out.flush()?;
        left = left.map(|left| left - 1);
    }
    let counts = server.shutdown().await.counts;
    // Streams that ended because of the shutdown.
    while left != Some(0)
        && let Ok(stream) = ended.try_recv()
    {
        line::stream(out, &stream, arguments.json)?;
        left = left.map(|left| left - 1);
    }
    let summary: &mut dyn Write = if arguments.json { err } else { out };
    summarize(summary, counts, lost.load(Ordering::Relaxed))?;
    Ok(0)
}

/// Streams to be printed. Adding one never blocks.
struct Queue<T> {
    sender: mpsc::Sender<T>,
    lost: Arc<AtomicU64>,
}

impl<T> Queue<T> {
    fn new() -> (Queue<T>, mpsc::Receiver<T>) {
        let (sender, receiver) = mpsc::channel(LINES_MAX);
        (Queue { sender, lost: Arc::default() }, receiver)
    }

    fn push(&self, item: T) {
        if self.sender.try_send(item).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn summarize(out: &mut dyn Write, counts: Counts, lost: u64) -> io::Result<()> {
    let Counts { streams, streams_unscripted, connections, .. } = counts;
    write!(
        out,
        "{streams} streams, {streams_unscripted} not in the script, {connections} connections"
    )?;
    if lost > 0 {
        write!(out, ", {lost} lines lost")?;
    }
    writeln!(out)
}

/// Waits for a signal or for the time limit.
async fn until(signals: Signals, time: Option<Duration>) {
    tokio::select! {
        () = signals.any() => {}
        () = tokio::time::sleep(time.unwrap_or(Duration::MAX)), if time.is_some() => {}
    }
}

/// The signals for a graceful shutdown.
#[cfg(unix)]
pub(crate) struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    pub(crate) fn new() -> io::Result<Signals> {
        use tokio::signal::unix::{SignalKind, signal};
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(Signals { interrupt, terminate: signal(SignalKind::terminate())? })
    }

    pub(crate) async fn any(mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// The signals that end the command in an orderly way.
#[cfg(not(unix))]
pub(crate) struct Signals;

#[cfg(not(unix))]
impl Signals {
    pub(crate) fn new() -> io::Result<Signals> {
        Ok(Signals)
    }

    pub(crate) async fn any(self) {
        // Without a handler the signal ends the process.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_queue_drops_and_counts_lines_over_the_limit() {
        let (queue, mut receiver) = Queue::new();
        for number in 0..LINES_MAX {
            queue.push(number);
        }
        assert_eq!(queue.lost.load(Ordering::Relaxed), 0);
        queue.push(LINES_MAX);
        assert_eq!(queue.lost.load(Ordering::Relaxed), 1);
        assert_eq!(std::iter::from_fn(|| receiver.try_recv().ok()).count(), LINES_MAX);
        let mut text = Vec::new();
        summarize(&mut text, Counts::default(), 1).unwrap();
        assert_eq!(text, b"0 streams, 0 not in the script, 0 connections, 1 lines lost\n");
    }

    #[test]
    fn faults_duration_is_a_number_and_a_unit() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(duration("5m"), Ok(Duration::from_secs(300)));
        for wrong in ["", "5", "s", "-1s", "1.5s", "1h", "5 s", "99999999999999999999s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
        assert!(duration("18446744073709551615m").is_err(), "it overflows");
    }
}
