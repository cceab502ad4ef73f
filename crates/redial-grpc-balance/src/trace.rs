//! The `tracing` events of a channel (target `redial::grpc`).

#[cfg(not(feature = "tracing"))]
pub(crate) use disabled::*;
#[cfg(feature = "tracing")]
pub(crate) use enabled::*;

#[cfg(feature = "tracing")]
mod enabled {
    use std::net::SocketAddr;

    use redial_service_config::Problem;

    pub(crate) fn backends_changed(added: usize, removed: usize) {
        tracing::info!(target: "redial::grpc", added, removed, "backends changed");
    }

    pub(crate) fn resolution_failed(error: &str) {
        tracing::warn!(target: "redial::grpc", error, "name not resolved");
    }

    pub(crate) fn config_rejected(error: &str) {
        tracing::warn!(target: "redial::grpc", error, "config refused");
    }

    /// One event for all warnings, since a config may have many; the channel's snapshot lists them.
    pub(crate) fn config_warnings(all: &[Problem]) {
        if let Some(first) = all.first() {
            let warnings = all.len();
            tracing::warn!(target: "redial::grpc", warnings, %first, "config has warnings");
        }
    }

    pub(crate) fn backend_ejected(address: SocketAddr) {
        tracing::warn!(target: "redial::grpc", %address, "backend ejected");
    }
}

#[cfg(not(feature = "tracing"))]
mod disabled {
    use std::net::SocketAddr;

    use redial_service_config::Problem;

    pub(crate) fn backends_changed(_added: usize, _removed: usize) {}
    pub(crate) fn resolution_failed(_error: &str) {}
    pub(crate) fn config_rejected(_error: &str) {}
    pub(crate) fn config_warnings(_all: &[Problem]) {}
    pub(crate) fn backend_ejected(_address: SocketAddr) {}
}
