//! Programs that run for a test, and end with it.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, LazyLock, Weak};
use std::time::Instant;

use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::{Duration, sleep};

/// How long a server may take to start.
const START_MAX: Duration = Duration::from_secs(60);

/// A server process, killed when dropped.
pub(crate) struct Server {
    process: Child,
    pub(crate) addr: SocketAddr,
    _folder: TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A folder that the test command sets.
pub(crate) fn folder(variable: &str) -> PathBuf {
    let Some(folder) = std::env::var_os(variable) else {
        panic!("{variable} is not set: run `cargo xtask test milvus`");
    };
    // Tests run in the folder of their package; the command runs in that of the project.
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder)
}

fn program(name: &str) -> PathBuf {
    folder("REDIAL_MILVUS_BIN").join(name)
}

/// A port that was free a moment ago: these servers cannot report the one that they choose.
pub(crate) fn free_addr() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

async fn start(name: &str, addr: SocketAddr, arguments: &[&str], folder: TempDir) -> Server {
    let log = std::fs::File::create(folder.path().join("log")).unwrap();
    let process = Command::new(program(name))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut server = Server { process, addr, _folder: folder };
    let begin = Instant::now();
    while TcpStream::connect(addr).await.is_err() {
        let log = || std::fs::read_to_string(server._folder.path().join("log")).unwrap_or_default();
        assert!(begin.elapsed() < START_MAX, "{name} does not listen: {}", log());
        if let Ok(Some(status)) = server.process.try_wait() {
            panic!("{name} ended with {status}: {}", log());
        }
        sleep(Duration::from_millis(50)).await;
    }
    server
}

/// milvus-lite, shared by the tests that run at the same time.
pub(crate) async fn milvus_lite() -> Arc<Server> {
    static RUNNING: LazyLock<Mutex<Weak<Server>>> = LazyLock::new(Mutex::default);
    let mut running = RUNNING.lock().await;
    if let Some(server) = running.upgrade() {
        return server;
    }
    let (addr, folder) = (free_addr(), TempDir::new().unwrap());
    let data = folder.path().join("data");
    let port = addr.port().to_string();
    let arguments =
        ["server", "--data-dir", data.to_str().unwrap(), "--host", "127.0.0.1", "--port", &port];
    let server = Arc::new(start("milvus-lite", addr, &arguments, folder).await);
    *running = Arc::downgrade(&server);
    server
}

/// Envoy with this configuration.
pub(crate) async fn envoy(addr: SocketAddr, config: &str) -> Server {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("envoy.json");
    std::fs::write(&path, config).unwrap();
    let path = path.to_str().unwrap().to_owned();
    let arguments = ["-c", &path, "--concurrency", "1", "--disable-hot-restart", "-l", "error"];
    start("envoy", addr, &arguments, folder).await
}
