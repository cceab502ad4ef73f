//! Runs gRPC scenarios in real time over loopback TCP.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use redial::testing::draws;
use redial::time::Ns;
use redial_faults::grpc::OnConnect;
use redial_service_config::ClientOptions;
use tokio::net::{TcpSocket, TcpStream};
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

use super::super::Live;
use super::{CallLogMode, Setup, Sizes, TimeScale, failing_connections, observation, run, server};
use crate::scenarios::model::Scenario;
use crate::scenarios::play::Actual;

/// The slowdown of the scenario.
const SLOWDOWN: Ns = 10;
/// The tolerance: 20 ms of scenario time, 200 ms of real time.
pub(in crate::scenarios) const TCP_TOLERANCE: Ns = 20_000_000;

/// Runs a scenario over loopback TCP; `text` is its config, `core` the result of the core level.
///
/// # Errors
/// No socket is available, or TCP cannot reproduce the scenario.
pub(in crate::scenarios) fn play_over_tcp(
    scenario: &Scenario,
    text: &str,
    client: ClientOptions,
    core: &Actual,
) -> io::Result<Live> {
    let time_scale = TimeScale::slower_by(SLOWDOWN);
    let (Some(config), Some(sizes)) = (time_scale.config(text), Sizes::of(scenario, &client))
    else {
        return Err(io::Error::other("it cannot be played at this level"));
    };
    let client = sizes.client(time_scale.client(client));
    let setup = Setup { scenario, config: &config, client, time_scale, sizes };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _guard = draws(scenario.draws.iter().copied());
    runtime.block_on(async {
        let server = server(setup).listen((Ipv4Addr::LOCALHOST, 0)).await?;
        // A bound socket that does not listen refuses connections.
        let unlistened = TcpSocket::new_v4()?;
        unlistened.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let refused = unlistened.local_addr()?;
        let failing = failing_connections(setup, |action, after| match action {
            OnConnect::Refuse => Ok(channel(refused, after)),
            _ => Err(io::Error::other("an unsent attempt over TCP is a race")),
        });
        let failing = failing.into_iter().map(|(id, channel)| channel.map(|it| (id, it)));
        let main = channel(server.addr(), Duration::ZERO);
        let seen =
            run(setup, &server, main, failing.collect::<io::Result<_>>()?, CallLogMode::Kept).await;
        Ok(observation::read(setup, &seen, core, TCP_TOLERANCE))
    })
}

/// A channel whose connects are delayed.
fn channel(address: SocketAddr, after: Duration) -> Channel {
    Endpoint::from_static("http://loopback").connect_with_connector_lazy(service_fn(
        move |_| async move {
            tokio::time::sleep(after).await;
            let socket = TcpStream::connect(address).await?;
            socket.set_nodelay(true)?;
            io::Result::Ok(TokioIo::new(socket))
        },
    ))
}
