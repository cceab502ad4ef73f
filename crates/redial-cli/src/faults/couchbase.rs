//! `redial faults couchbase`: a scripted Couchbase cluster on sockets.

use std::io::{self, Write};
use std::sync::atomic::Ordering;
use std::time::Duration;

use redial_faults::couchbase::{Identity, RequestOutcome, RequestRecord, Script, Server};

use super::{Queue, Signals, duration, script, until};
use crate::scenarios::source::Diagnostic;

/// An example script, so that the help text is enough to start.
const SCRIPT_HELP: &str = r#"A script that fails twice, loses a connection and then serves:
  { "bucket": "travel", "users": { "app": "secret" }, "nodes": 2,
    "attempts": [ { "status": 134 }, { "after": 5, "status": 9 }, { "close": true } ] }

docs/couchbase.md, "The scripted server", says what else a script may have."#;

/// The arguments of `redial faults couchbase`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = SCRIPT_HELP)]
pub(super) struct Arguments {
    /// The host on which every node listens.
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    host: String,
    /// The port of the first node; 0 takes any free port. Other nodes take free ports.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
    /// Play this script. Without one, the bucket "default" serves every request.
    #[arg(long, value_name = "FILE")]
    script: Option<String>,
    /// Speak TLS with a new certificate for the host, which is written to this file as PEM.
    #[arg(long, value_name = "FILE")]
    tls: Option<String>,
    /// Print JSON: one object with the addresses, then one for each request.
    #[arg(long)]
    json: bool,
    /// Exit after this time, for example 500ms, 10s, 5m. By default it runs until a signal.
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    for_: Option<Duration>,
    /// Exit when this many requests were answered.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
}

impl Arguments {
    pub(super) fn script(&self) -> Result<Script, Vec<Diagnostic>> {
        self.script.as_ref().map_or_else(|| Ok(Script::new()), |path| script::script(path))
    }
}

/// Runs the cluster until a signal, the time limit or the request limit.
pub(super) async fn serve(
    script: Script,
    arguments: &Arguments,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<u8> {
    let (queue, mut answered) = Queue::<RequestRecord>::new();
    let lost = queue.lost.clone();
    let mut server = Server::new(script).on_request(move |request| queue.push(request.clone()));
    if let Some(path) = &arguments.tls {
        let identity = match Identity::self_signed([arguments.host.as_str()]) {
            Ok(identity) => identity,
            Err(error) => {
                let host = &arguments.host;
                writeln!(err, "redial: cannot make a certificate for {host}: {error}")?;
                return Ok(2);
            }
        };
        if let Err(error) = std::fs::write(path, identity.certificate_pem()) {
            writeln!(err, "redial: cannot write {path}: {error}")?;
            return Ok(2);
        }
        server = server.tls(identity);
    }
    let signals = Signals::new()?;
    let server = match server.listen_on(&arguments.host, arguments.port).await {
        Ok(server) => server,
        Err(error) => {
            let (host, port) = (&arguments.host, arguments.port);
            writeln!(err, "redial: cannot listen on {host}:{port}: {error}")?;
            return Ok(2);
        }
    };
    let addresses: Vec<_> =
        server.addresses().into_iter().map(|(host, port)| format!("{host}:{port}")).collect();
    if arguments.json {
        writeln!(out, "{}", serde_json::json!({ "addresses": addresses }))?;
    } else {
        writeln!(out, "{}", addresses.join(" "))?;
    }
    out.flush()?;
    let mut until = std::pin::pin!(until(signals, arguments.for_));
    let mut left = arguments.requests;
    while left != Some(0) {
        let request = tokio::select! {
            biased;
            () = &mut until => break,
            Some(request) = answered.recv() => request,
        };
        line(out, &request, arguments.json)?;
        out.flush()?;
        left = left.map(|left| left - 1);
    }
    let summary: &mut dyn Write = if arguments.json { err } else { out };
    let (requests, connections) = (server.request_count(), server.connection_count());
    write!(summary, "{requests} requests, {connections} connections")?;
    match lost.load(Ordering::Relaxed) {
        0 => writeln!(summary)?,
        lost => writeln!(summary, ", {lost} lines lost")?,
    }
    Ok(0)
}

fn line(out: &mut dyn Write, request: &RequestRecord, json: bool) -> io::Result<()> {
    if json {
        serde_json::to_writer(&mut *out, request)?;
        return writeln!(out);
    }
    let at = request.at.as_secs_f64() * 1e3;
    let key = String::from_utf8_lossy(&request.key);
    let outcome = match request.outcome {
        RequestOutcome::Status(status) => format!("status {status:#04x}"),
        RequestOutcome::Closed => "connection closed".to_owned(),
        RequestOutcome::Hung => "no answer".to_owned(),
        RequestOutcome::WrongCommand => "answer to another command".to_owned(),
        RequestOutcome::Truncated(bytes) => format!("answer cut after {bytes} bytes"),
        _ => "another outcome".to_owned(),
    };
    let RequestRecord { node, command, vbucket, .. } = request;
    writeln!(out, "{at:.3} ms  node {node}  {command} {key:?} (vbucket {vbucket}): {outcome}")
}
