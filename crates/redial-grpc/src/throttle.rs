//! One retry throttle per server name and process (decision G15), and the retry budget of a layer.
//!
//! Calls refer to the server, not to its token bucket, so a config update applies to running calls.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use redial::throttle::{RetryBudget, WithBudget};
use redial::{Sleeper as _, Tokio};
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

impl Bucket for Server {
    fn watches_calls(&self) -> bool {
        false
    }
    fn failed(&self) {
        self.tokens.failed();
    }
    fn withdraw(&self, cost: Cost, now: Ns) -> Grant {
        self.tokens.withdraw(cost, now)
    }
    // gRPC's throttle does not charge for retries, so there is nothing to refund.
    fn refund(&self, _withdrawal: Withdrawal) {}
    fn succeeded(&self, withdrawal: Option<Withdrawal>) {
        self.tokens.succeeded(withdrawal);
    }
    fn tokens(&self, now: Ns) -> Option<f64> {
        self.tokens.tokens(now)
    }
}

/// The throttle of a layer's calls.
#[derive(Clone, Debug)]
pub(crate) enum Throttle {
    /// None: the retries of the call are off (G12).
    None,
    /// That of the server.
    Server(Arc<Server>),
    /// That of the server and the layer's retry budget.
    WithBudget(Arc<WithBudget>),
}

impl Throttle {
    /// The throttle of this server, with the layer's retry budget if it has one.
    pub(crate) fn new(server: Arc<Server>, budget: Option<Arc<RetryBudget>>) -> Self {
        match budget {
            None => Throttle::Server(server),
            Some(budget) => Throttle::WithBudget(Arc::new(WithBudget::new(server, budget))),
        }
    }
}

impl Bucket for Throttle {
    fn watches_calls(&self) -> bool {
        false
    }
    fn failed(&self) {
        match self {
            Throttle::None => {}
            Throttle::Server(server) => server.failed(),
            Throttle::WithBudget(both) => both.failed(),
        }
    }
    fn withdraw(&self, cost: Cost, now: Ns) -> Grant {
        match self {
            Throttle::None => Grant::Now(Withdrawal(0)),
            Throttle::Server(server) => server.withdraw(cost, now),
            // A budget that refills is shared with calls of `redial`. Its time must be from their clock: the
            // clock of a layer has another origin.
            Throttle::WithBudget(both) => both.withdraw(cost, Tokio.now()),
        }
    }
    fn refund(&self, withdrawal: Withdrawal) {
        if let Throttle::WithBudget(both) = self {
            both.refund(withdrawal);
        }
    }
    fn succeeded(&self, withdrawal: Option<Withdrawal>) {
        match self {
            Throttle::None => {}
            Throttle::Server(server) => server.succeeded(withdrawal),
            Throttle::WithBudget(both) => both.succeeded(withdrawal),
        }
    }
    fn tokens(&self, now: Ns) -> Option<f64> {
        match self {
            Throttle::None => None,
            Throttle::Server(server) => server.tokens.tokens(now),
            Throttle::WithBudget(both) => both.tokens(now),
        }
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
        Throttle::Server(server.clone()).failed();
        assert_eq!(Server::named("throttle-test-one").tokens(), Some(9.0));
        assert_eq!(Server::named("throttle-test-two").tokens(), None);
        drop(server);
        assert_eq!(Server::named("throttle-test-one").tokens(), None, "dropped with its last user");
    }

    #[test]
    fn throttle_change_applies_to_running_calls() {
        let server = Arc::new(Server::default());
        server.configure(throttling(10));
        let call = Throttle::Server(server.clone());
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

    #[test]
    fn throttle_with_budget_refunds_the_budget_when_the_server_refuses() {
        let (server, budget) = (Arc::new(Server::default()), Arc::new(RetryBudget::new(2.0, 0.5)));
        let throttle = Throttle::new(server.clone(), Some(budget.clone()));
        let ask = || throttle.withdraw(Cost { kind: redial::FailureKind::Server }, 0);
        assert_eq!(ask(), Grant::Now(Withdrawal(0)));
        assert_eq!(budget.tokens(0), Some(1.0));
        server.configure(throttling(2));
        throttle.failed();
        assert_eq!(ask(), Grant::Refused, "half of the server's tokens are left");
        assert_eq!(budget.tokens(0), Some(1.0));
        throttle.refund(Withdrawal(0));
        assert_eq!(budget.tokens(0), Some(2.0));
        assert_eq!(server.tokens(), Some(1.0));
    }
}
