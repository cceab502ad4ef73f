//! `redial faults proxy`: the fault proxy on a socket.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::sync::atomic::Ordering;
use std::time::Duration;

use redial_faults::proxy::{Connection, Counts, Ended, Exchange, Proxy};

use super::{Queue, Signals, duration, line, script, until};
use crate::scenarios::source::Diagnostic;

/// How many exchanges the record keeps; lines are written from a callback instead.
const KEPT: usize = 100;

/// An example script, so that the help text is enough to start.
pub(super) const SCRIPT_HELP: &str = r#"A script that fails twice, then now and then:
  { "requests": [
      { "status": 429, "headers": { "retry-after": "1" } },
      { "reset": {}, "after_upstream": true } ],
    "rules": [
      { "path": "/api/*", "rate": 0.1, "fault": { "status": 503 } },
      { "headers": { "x-slow": "*" }, "fault": { "delay": 250 } } ],
    "connections": [{ "close": { "down_bytes": 100 } }],
    "refuse": [{ "from": 5000, "for": 500 }] }

A request can also carry its own fault: x-redial-fault: {"status": 503}

docs/fault-proxy.md says what else it can do."#;

#[derive(Clone, Debug, clap::Args)]
pub(super) struct ProxyArguments {
    /// Where to listen; port 0 takes any free port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: String,
    /// The server behind the proxy: a host and a port.
    #[arg(long, value_name = "ADDRESS")]
    to: String,
    /// Forward bytes of any protocol, TLS included; only the faults of connections apply.
    #[arg(long)]
    tcp: bool,
    /// Inject the faults of this script. Without one, everything passes.
    #[arg(long, value_name = "FILE")]
    script: Option<String>,
    /// The seed of the rates; replaces that of the script.
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Write the record to this file: one JSON object for each request and each connection.
    #[arg(long, value_name = "FILE")]
    record: Option<String>,
    /// Print JSON: one object with the address, then one for each request and each connection.
    #[arg(long)]
    json: bool,
    /// Exit after this time, for example 500ms, 10s, 5m. By default it runs until a signal.
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    for_: Option<Duration>,
    /// Exit when this many requests (with --tcp: connections) have ended.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
}

impl ProxyArguments {
    pub(super) fn proxy(&self) -> Result<Proxy, Vec<Diagnostic>> {
        let mut script = match &self.script {
            Some(path) => script::script(path)?,
            None => redial_faults::proxy::Script::new(),
        };
        if let Some(seed) = self.seed {
            script = script.seed(seed);
        }
        let proxy = if self.tcp { Proxy::tcp(&self.to) } else { Proxy::http(&self.to) };
        Ok(proxy.script(script).kept(KEPT))
    }
}

/// A request or a connection that has ended.
enum Line {
    Exchange(Box<Exchange>),
    Connection(Box<Connection>),
}

impl Line {
    fn json(&self) -> serde_json::Result<String> {
        match self {
            Line::Exchange(exchange) => serde_json::to_string(exchange),
            Line::Connection(connection) => serde_json::to_string(connection),
        }
    }
}

/// Where the lines go.
struct Output<'o> {
    out: &'o mut dyn Write,
    record: Option<BufWriter<File>>,
    json: bool,
    tcp: bool,
    left: Option<u64>,
}

impl Output<'_> {
    fn write(&mut self, ended: &Line) -> io::Result<()> {
        let json = ended.json()?;
        if let Some(record) = &mut self.record {
            writeln!(record, "{json}")?;
        }
        match ended {
            _ if self.json => writeln!(self.out, "{json}")?,
            Line::Exchange(exchange) => text_of_exchange(self.out, exchange)?,
            Line::Connection(connection) => text_of_connection(self.out, connection)?,
        }
        if matches!(ended, Line::Connection(_)) == self.tcp {
            self.left = self.left.map(|left| left.saturating_sub(1));
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()?;
        self.record.as_mut().map_or(Ok(()), Write::flush)
    }
}

pub(super) async fn serve(
    proxy: Proxy,
    arguments: &ProxyArguments,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<u8> {
    let record = match arguments.record.as_ref().map(|path| (path, File::create(path))) {
        None => None,
        Some((_, Ok(file))) => Some(BufWriter::new(file)),
        Some((path, Err(error))) => {
            writeln!(err, "redial: cannot write {path}: {error}")?;
            return Ok(2);
        }
    };
    let (queue, mut ended) = Queue::<Line>::new();
    let lost = queue.lost.clone();
    let proxy = proxy.on_end(move |ended| match ended {
        Ended::Exchange(exchange) => queue.push(Line::Exchange(Box::new(exchange.clone()))),
        Ended::Connection(connection) => {
            queue.push(Line::Connection(Box::new(connection.clone())));
        }
        _ => {}
    });
    let signals = Signals::new()?;
    let proxy = match proxy.listen(&arguments.listen).await {
        Ok(proxy) => proxy,
        Err(error) => {
            match error.get_ref().filter(|_| error.kind() == io::ErrorKind::InvalidInput) {
                // The proxy's own text about the script or the server.
                Some(problem) => writeln!(err, "redial: {problem}")?,
                None => writeln!(err, "redial: cannot listen on {}: {error}", arguments.listen)?,
            }
            return Ok(2);
        }
    };
    line::address(out, proxy.addr(), arguments.json)?;
    let left = arguments.requests;
    let mut output = Output { out, record, json: arguments.json, tcp: arguments.tcp, left };
    output.flush()?;
    let mut until = std::pin::pin!(until(signals, arguments.for_));
    while output.left != Some(0) {
        let line = tokio::select! {
            biased;
            () = &mut until => break,
            Some(line) = ended.recv() => line,
        };
        output.write(&line)?;
        output.flush()?;
    }
    let counts = proxy.shutdown().await.counts;
    // What ended because of the shutdown.
    while let Ok(line) = ended.try_recv() {
        output.write(&line)?;
    }
    output.flush()?;
    let summary: &mut dyn Write = if arguments.json { err } else { output.out };
    summarize(summary, counts, lost.load(Ordering::Relaxed))?;
    Ok(0)
}

fn text_of_exchange(out: &mut dyn Write, exchange: &Exchange) -> io::Result<()> {
    write!(out, "{:>9} {} {}", line::ms(exchange.arrived), exchange.method, exchange.path)?;
    if let Some(call) = &exchange.call {
        write!(out, " call {call:?}")?;
    }
    write!(out, ": {}", line::count(exchange.request_bytes, "byte"))?;
    match exchange.upstream_status {
        Some(status) => write!(out, ", upstream {}", status.as_u16())?,
        None if exchange.forwarded.is_some() => write!(out, ", upstream without a response")?,
        None => write!(out, ", not forwarded")?,
    }
    if let Some(fault) = &exchange.fault {
        write!(out, ", fault: {fault}")?;
    }
    if let Some(end) = exchange.end {
        let status = exchange.status.map_or(String::new(), |it| format!(" {}", it.as_u16()));
        let took = line::ms(end.at.saturating_sub(exchange.arrived));
        write!(out, "; {}{status} after {took}", end.outcome)?;
    }
    writeln!(out)
}

fn text_of_connection(out: &mut dyn Write, connection: &Connection) -> io::Result<()> {
    let Connection { number, bytes_up, bytes_down, opened, .. } = connection;
    write!(
        out,
        "{:>9} connection {number}: {bytes_up} bytes up, {bytes_down} down",
        line::ms(*opened)
    )?;
    if let Some(fault) = &connection.fault {
        write!(out, ", fault: {fault}")?;
    }
    if let Some(closed) = connection.closed {
        write!(out, "; closed after {}", line::ms(closed.saturating_sub(*opened)))?;
    }
    writeln!(out)
}

fn summarize(out: &mut dyn Write, counts: Counts, lost: u64) -> io::Result<()> {
    let Counts { exchanges, forwarded, faults, connections, connection_faults, .. } = counts;
    write!(
        out,
        "{exchanges} requests, {forwarded} forwarded, {faults} with a fault; \
         {connections} connections, {connection_faults} with a fault"
    )?;
    if lost > 0 {
        write!(out, ", {lost} lines lost")?;
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_proxy_summary_counts_lost_lines() {
        let mut text = Vec::new();
        summarize(&mut text, Counts::default(), 2).unwrap();
        let expected = "0 requests, 0 forwarded, 0 with a fault; 0 connections, 0 with a fault, 2 lines lost\n";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }
}
