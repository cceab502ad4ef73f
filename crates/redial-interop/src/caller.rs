//! The client under test: a tonic channel behind a retry layer whose policy retries the status
//! codes of the cases.
//!
//! Invariant: every case has its own channel and layer, so that cases are independent.

use redial_grpc::{Control, RetryLayer, RetryService};
use tonic::transport::{Channel, Endpoint};
use tower::Layer;

use crate::BoxError;
use crate::orca::open_rca_service_client::OpenRcaServiceClient;
use crate::testing::test_service_client::TestServiceClient;

/// How many attempts a call makes that ends with UNKNOWN, the status that the cases use.
pub(crate) const ATTEMPTS: u32 = 3;

const CONFIG: &str = r#"{
  "methodConfig": [{
    "name": [{}],
    "retryPolicy": { "maxAttempts": 3, "initialBackoff": "0.01s", "maxBackoff": "0.1s",
                     "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE", "UNKNOWN"] }
  }],
  "retryThrottling": { "maxTokens": 1000, "tokenRatio": 1 }
}"#;

/// Makes channels to one server.
#[derive(Clone, Debug)]
pub struct Caller {
    endpoint: Endpoint,
}

/// A channel with the layer around it, and the layer's control handle.
pub(crate) struct Connection {
    pub(crate) channel: RetryService<Channel>,
    pub(crate) control: Control,
}

impl Caller {
    /// Calls the server at `address`, a host and a port.
    ///
    /// # Errors
    /// If it is not an address.
    pub fn new(address: &str) -> Result<Self, BoxError> {
        Ok(Self { endpoint: Endpoint::from_shared(format!("http://{address}"))? })
    }

    pub(crate) fn connect(&self) -> Result<Connection, BoxError> {
        let layer = RetryLayer::from_json(CONFIG)?;
        let control = layer.control();
        Ok(Connection { channel: layer.layer(self.endpoint.connect_lazy()), control })
    }
}

impl Connection {
    pub(crate) fn client(&self) -> TestServiceClient<RetryService<Channel>> {
        TestServiceClient::new(self.channel.clone())
    }

    pub(crate) fn load(&self) -> OpenRcaServiceClient<RetryService<Channel>> {
        OpenRcaServiceClient::new(self.channel.clone())
    }
}
