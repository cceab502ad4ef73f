//! One retry throttle per server name and process (decision G15).
//!
//! Calls refer to the server, not to its token bucket, so a config update applies to running calls.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use redial_core::throttle::{Bucket, TokenBucket};
use redial_core::{Cost, Grant, Ns, Withdrawal};
use redial_service_config::RetryThrottling;

/// Named servers with at least one live layer or call.
static SERVERS: Mutex<Option<HashMap<Box<str>, Weak<Server>>>> = Mutex::new(None);

/// State shared by all calls to one server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) tokens: TokenBucket,
}

impl Default for Server {
    fn default() -> Self {
        Server { tokens: TokenBucket::none() }
    }
}

impl Server {
    /// The server with this name, created on first use.
    pub(crate) fn named(name: &str) -> Arc<Server> {
        let mut servers = SERVERS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let servers = servers.get_or_insert_default();
        if let Some(server) = servers.get(name).and_then(Weak::upgrade) {
            return server;
        }
        servers.retain(|_, server| server.strong_count() > 0);
        let server = Arc::new(Server::default());
        servers.insert(name.into(), Arc::downgrade(&server));
        server
    }

    /// Applies a new config: equal parameters keep the tokens, other parameters scale them.
    pub(crate) fn configure(&self, throttling: Option<RetryThrottling>) {
        self.tokens
            .adopt_parameters(&throttling.map_or_else(TokenBucket::none, RetryThrottling::tokens));
    }

    /// Tokens left; `None` without a throttle.
    pub(crate) fn tokens(&self) -> Option<f64> {
        self.tokens.tokens(0)
    }
}

/// The throttle of a call: that of its server, or none if retries are off (G12).
#[derive(Debug)]
pub(crate) struct Throttle(pub(crate) Option<Arc<Server>>);

impl Bucket for Throttle {
    fn failed(&self) {
        if let Some(server) = &self.0 {
            server.tokens.failed();
        }
    }
    fn withdraw(&self, cost: Cost, now: Ns) -> Grant {
        match &self.0 {
            Some(server) => server.tokens.withdraw(cost, now),
            None => Grant::Now(Withdrawal(0)),
        }
    }
    // gRPC's throttle does not charge for retries, so there is nothing to refund.
    fn refund(&self, _withdrawal: Withdrawal) {}
    fn succeeded(&self, withdrawal: Option<Withdrawal>) {
        if let Some(server) = &self.0 {
            server.tokens.succeeded(withdrawal);
        }
    }
    fn tokens(&self, now: Ns) -> Option<f64> {
        self.0.as_ref()?.tokens.tokens(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn throttling(max: u32) -> Option<RetryThrottling> {
        RetryThrottling::new(max, 100)
    }

    #[test]
    fn throttle_is_shared_by_server_name_while_in_use() {
        let server = Server::named("throttle-test-one");
        server.configure(throttling(10));
        Throttle(Some(server.clone())).failed();
        assert_eq!(Server::named("throttle-test-one").tokens(), Some(9.0));
        assert_eq!(Server::named("throttle-test-two").tokens(), None);
        drop(server);
        assert_eq!(Server::named("throttle-test-one").tokens(), None, "dropped with its last user");
    }

    #[test]
    fn throttle_change_applies_to_running_calls() {
        let server = Arc::new(Server::default());
        server.configure(throttling(10));
        let call = Throttle(Some(server.clone()));
        call.failed();
        server.configure(throttling(10));
        assert_eq!(call.tokens(0), Some(9.0), "equal parameters keep the tokens");
        server.configure(throttling(100));
        assert_eq!(call.tokens(0), Some(90.0), "other parameters scale the tokens");
        server.configure(None);
        assert_eq!(call.tokens(0), None);
        assert_eq!(
            call.withdraw(Cost { kind: redial::FailureKind::Server }, 0),
            Grant::Now(Withdrawal(0))
        );
    }
}
