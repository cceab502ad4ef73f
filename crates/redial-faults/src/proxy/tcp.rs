//! TCP connections: bytes are copied in both directions, whatever they mean.

use std::sync::Arc;

use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;

use super::client_io::{Breaker, ClientIo};
use super::fault::BreakKind;
use super::shared::Shared;

/// Copies bytes until both sides have closed. The client gets a reset if the upstream server
/// cannot be reached or fails.
pub(super) async fn serve(shared: Arc<Shared>, breaker: Arc<Breaker>, mut io: ClientIo) {
    let copied = match TcpStream::connect(&shared.options.to).await {
        Ok(mut upstream) => {
            // Send small packets immediately; if this fails they are only delayed.
            let _ = upstream.set_nodelay(true);
            copy_bidirectional(&mut io, &mut upstream).await.map(drop)
        }
        Err(error) => Err(error),
    };
    if copied.is_err() {
        breaker.fail(BreakKind::Reset);
    }
}
