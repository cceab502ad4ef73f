//! Programs of other projects as child processes.
//!
//! Invariant: a child is killed with its handle, and every wait has a limit.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::BoxError;

/// Environment variables that would send calls through a proxy.
const PROXIES: &[&str] =
    &["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"];

/// Whether `program` is installed.
pub(crate) async fn exists(program: &str, question: &str) -> Result<bool, BoxError> {
    match run(Path::new(program), [question], Duration::from_secs(60)).await {
        Ok(output) => Ok(output.status.success()),
        Err(problem) => match problem.downcast_ref::<std::io::Error>() {
            Some(problem) if problem.kind() == ErrorKind::NotFound => Ok(false),
            _ => Err(problem),
        },
    }
}

/// Runs a program to its end.
pub(crate) async fn run(
    program: &Path,
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    time_max: Duration,
) -> Result<Output, BoxError> {
    let output = command(program).args(arguments).stdin(Stdio::null()).output();
    let late = |_| format!("{}: not done after {} s", program.display(), time_max.as_secs());
    Ok(tokio::time::timeout(time_max, output).await.map_err(late)??)
}

/// A running server of another project.
pub(crate) struct Server {
    _child: Child,
    pub(crate) port: u16,
}

impl Server {
    /// Starts grpc-go's server on a free port, which it prints to its log.
    pub(crate) async fn start(program: &Path, time_max: Duration) -> Result<Self, BoxError> {
        let mut child = command(program)
            .args(["-port", "0"])
            .env("GRPC_GO_LOG_SEVERITY_LEVEL", "info")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let log = child.stderr.take().ok_or("the server has no log")?;
        let mut lines = BufReader::new(log).lines();
        let port = tokio::time::timeout(time_max, async {
            while let Some(line) = lines.next_line().await? {
                if let Some((_, address)) = line.split_once("listening on ") {
                    let port = address.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
                    return port.ok_or_else(|| format!("no port in `{line}`").into());
                }
            }
            Err::<u16, BoxError>("the server ended before it listened".into())
        });
        let port = port.await.map_err(|_| "the server does not say where it listens")??;
        // The log must be read: a full pipe would block the server.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(Self { _child: child, port })
    }
}

/// A server of `redial.test.Echo`, written with another language's library (interop/README.md).
pub(crate) struct Served {
    _child: Child,
    pub(crate) port: u16,
}

impl Served {
    /// Starts the command, split at blanks, and waits until it prints its address.
    pub(crate) async fn start(words: &str, proto: &Path) -> Result<Self, BoxError> {
        let mut words = words.split_whitespace();
        let program = words.next().ok_or("a program has a name")?;
        // It exits when its standard input is closed.
        let mut child = command(Path::new(program))
            .args(words)
            .arg("server")
            .arg(proto)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|problem| format!("cannot start {program}: {problem}"))?;
        let output = child.stdout.take().ok_or("the server has no output")?;
        let mut lines = BufReader::new(output).lines();
        let line = tokio::time::timeout(SERVED_MAX, lines.next_line()).await;
        let line = line.map_err(|_| "the server does not say where it listens")??;
        let line = line.ok_or("the server ended before it listened")?;
        let Listening { port } =
            serde_json::from_str(&line).map_err(|problem| format!("{line:?}: {problem}"))?;
        Ok(Self { _child: child, port })
    }
}

#[derive(serde::Deserialize)]
struct Listening {
    port: u16,
}

/// How long a server may take to start.
const SERVED_MAX: Duration = Duration::from_secs(60);

fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.kill_on_drop(true);
    for name in PROXIES {
        command.env_remove(name);
    }
    command
}
