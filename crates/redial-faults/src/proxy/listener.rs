//! A listening socket that can refuse connections and keep its port.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::sleep;

/// How many connections wait to be accepted.
const BACKLOG: u32 = 1024;
/// The pause after a failure to accept or to listen, which is temporary: no file descriptors, or
/// another process holds the port for a moment.
pub(super) const PAUSE: Duration = Duration::from_millis(10);

/// What happens to new connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Connections {
    Accepted,
    Refused,
}

/// A socket that is bound and does not listen refuses connections. A second one is bound all the
/// time, so that no other process can take the port while the first is closed.
#[derive(Debug)]
pub(super) struct Listener {
    addr: SocketAddr,
    listening: Option<TcpListener>,
    spare: Option<TcpSocket>,
}

impl Listener {
    /// Binds the address; connections are refused until [`set`](Listener::set) says otherwise.
    pub(super) fn bind(addr: SocketAddr) -> io::Result<Listener> {
        let socket = bound(addr)?;
        let addr = socket.local_addr()?;
        Ok(Listener { addr, listening: None, spare: Some(socket) })
    }

    pub(super) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Refuses or accepts connections from now on.
    pub(super) fn set(&mut self, connections: Connections) -> io::Result<()> {
        match (connections, &self.listening) {
            (Connections::Refused, _) => self.listening = None,
            (Connections::Accepted, Some(_)) => {}
            (Connections::Accepted, None) => {
                let socket = match self.spare.take() {
                    Some(socket) => socket,
                    None => bound(self.addr)?,
                };
                // Before the first listens: afterwards the address is in use. Where a system does
                // not allow this, the port is free while connections are refused.
                self.spare = bound(self.addr).ok();
                self.listening = Some(socket.listen(BACKLOG)?);
            }
        }
        Ok(())
    }

    /// The next connection; none comes while they are refused.
    pub(super) async fn accept(&self) -> (TcpStream, SocketAddr) {
        let Some(listener) = &self.listening else { return std::future::pending().await };
        loop {
            match listener.accept().await {
                Ok(accepted) => return accepted,
                Err(_) => sleep(PAUSE).await,
            }
        }
    }
}

fn bound(addr: SocketAddr) -> io::Result<TcpSocket> {
    let socket = match addr {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // Also for connections of an earlier listener that still wait for their last packets.
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    Ok(socket)
}
