//! What `tracing` is told of a channel (target `redial::grpc`).

#[cfg(feature = "tracing")]
pub(crate) use told::*;
#[cfg(not(feature = "tracing"))]
pub(crate) use untold::*;

#[cfg(feature = "tracing")]
mod told {
    use std::net::SocketAddr;

    use redial_service_config::Problem;

    pub(crate) fn addresses(added: usize, removed: usize) {
        tracing::info!(target: "redial::grpc", added, removed, "backends changed");
    }

    pub(crate) fn unresolved(error: &str) {
        tracing::warn!(target: "redial::grpc", error, "name not resolved");
    }

    pub(crate) fn config_refused(error: &str) {
        tracing::warn!(target: "redial::grpc", error, "config refused");
    }

    /// One event for all of them, since a config may have many; the channel's view has the rest.
    pub(crate) fn config_warnings(all: &[Problem]) {
        if let Some(first) = all.first() {
            let warnings = all.len();
            tracing::warn!(target: "redial::grpc", warnings, %first, "config has warnings");
        }
    }

    pub(crate) fn avoided(address: SocketAddr) {
        tracing::warn!(target: "redial::grpc", %address, "backend ejected");
    }
}

#[cfg(not(feature = "tracing"))]
mod untold {
    use std::net::SocketAddr;

    use redial_service_config::Problem;

    pub(crate) fn addresses(_added: usize, _removed: usize) {}
    pub(crate) fn unresolved(_error: &str) {}
    pub(crate) fn config_refused(_error: &str) {}
    pub(crate) fn config_warnings(_all: &[Problem]) {}
    pub(crate) fn avoided(_address: SocketAddr) {}
}
