//! A snapshot of a channel for applications and diagnostics.

use std::net::SocketAddr;
use std::time::Duration;

use redial_service_config::Problem;
use tokio::time::Instant;

use super::resolver::ConfigError;
use super::subchannels::{self, Connection};
use redial_grpc::BackendId;

/// The state of a channel at one moment: its backends and the result of the last resolution.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ChannelSnapshot {
    /// The backends of the current address list, in its order.
    pub backends: Vec<Backend>,
    /// Why the last resolution failed. The previous addresses stay in use.
    pub resolution_error: Option<String>,
    /// Why the resolver's service config is not active, if it is invalid or could not be queried.
    pub config_error: Option<ConfigError>,
    /// Likely mistakes in the last service config of the resolver: in the config itself, or in the
    /// record that contains it, for example a choice in DNS that is skipped because of an unknown
    /// field. A rejected config does not change them.
    pub config_warnings: Vec<Problem>,
}

/// The state of one backend at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backend {
    /// The address.
    pub address: SocketAddr,
    /// Its id in [`UsedBackends`](crate::UsedBackends).
    pub id: BackendId,
    /// The connectivity state of its connection.
    pub state: ConnectivityState,
    /// How many consecutive attempts failed.
    pub consecutive_failures: u32,
    /// The remaining ejection time of [outlier detection](crate::OutlierDetection); zero when the
    /// next call may probe the backend. `None`: it is not ejected.
    pub ejected_for: Option<Duration>,
    /// How many attempts are in flight.
    pub in_flight: u64,
}

/// The connectivity state of a backend, as in gRPC.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectivityState {
    /// Not connected, because no call needs it: `pick_first` connects only the addresses that it
    /// needs.
    Idle,
    /// A connection attempt is in progress.
    Connecting,
    /// Connected, and accepts calls.
    Ready,
    /// The last connection attempt failed with this error. The next one follows after the
    /// connection backoff.
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
