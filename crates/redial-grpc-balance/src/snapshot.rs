//! What a channel shows of its backends.

use std::net::SocketAddr;
use std::time::Duration;

use redial_service_config::Problem;
use tokio::time::Instant;

use super::resolver::ConfigError;
use super::subchannels::{self, Connection};
use redial_grpc::BackendId;

/// A moment of a channel: its backends, and what its resolver had to say.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ChannelSnapshot {
    /// The backends of the list in force, in its order.
    pub backends: Vec<Backend>,
    /// Why the list is not a newer one, if the last resolution failed.
    pub resolution_error: Option<String>,
    /// Why the resolver's service config is not in force, if it is bad or could not be found out.
    pub config_error: Option<ConfigError>,
    /// What is legal in what the resolver last said of the service config, and surely not meant: in
    /// the config, or beside it, as a choice by DNS that is passed over. A config that is refused
    /// leaves those of the one before.
    pub config_warnings: Vec<Problem>,
}

/// One backend in one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backend {
    /// Its address.
    pub address: SocketAddr,
    /// What it is called in [`UsedBackends`](crate::UsedBackends).
    pub id: BackendId,
    /// Whether it is connected.
    pub state: ConnectivityState,
    /// How many attempts in a row failed there.
    pub consecutive_failures: u32,
    /// For how long it is still avoided; zero when the next call may try it again.
    pub ejected_for: Option<Duration>,
    /// How many attempts it has now.
    pub in_flight: u64,
}

/// Whether a backend is connected.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectivityState {
    /// Nobody needs it: `pick_first` dials no more than it must.
    Idle,
    /// It is being dialled.
    Connecting,
    /// It takes calls.
    Ready,
    /// It could not be connected, and is dialled again after its backoff.
    TransientFailure(String),
}

impl Backend {
    pub(crate) fn of<C: Connection>(subchannel: &subchannels::Subchannel<C>, now: Instant) -> Self {
        let state = match &subchannel.state {
            subchannels::State::Idle => ConnectivityState::Idle,
            subchannels::State::Ready(connection) if connection.is_open() => {
                ConnectivityState::Ready
            }
            subchannels::State::Connecting { .. } | subchannels::State::Ready(_) => {
                ConnectivityState::Connecting
            }
            subchannels::State::TransientFailure { reason } => {
                ConnectivityState::TransientFailure(reason.to_string())
            }
        };
        let ejected = subchannel.outlier_state.ejected_until();
        Backend {
            address: subchannel.address,
            id: subchannel.backend_id,
            state,
            consecutive_failures: subchannel.outlier_state.consecutive_failures,
            ejected_for: ejected.map(|until| until.saturating_duration_since(now)),
            in_flight: subchannel.in_flight,
        }
    }
}
