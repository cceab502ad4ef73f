//! Options of a cost bucket: each option that is set replaces the value of a base configuration.

use redial_core::PolicyError;
use redial_core::throttle::{CostBucketConfig, WhenEmpty};

/// The cost of a retry by kind of failure; `None` uses the preset's cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
pub struct CostOptions {
    /// After a server failure.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub server: Option<f64>,
    /// After a client failure.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub client: Option<f64>,
    /// After throttling.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub throttling: Option<f64>,
    /// After a timeout.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub timeout: Option<f64>,
}

/// The options of a cost bucket; `None` uses the preset's value.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
pub struct BucketOptions {
    /// The capacity in tokens.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub capacity: Option<f64>,
    /// The cost of a retry.
    pub costs: CostOptions,
    /// The tokens that a success at the first attempt adds.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub success: Option<f64>,
    /// The tokens that are added per second.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub refill_per_second: Option<f64>,
    /// Whether a retry waits for tokens or fails when the bucket is empty.
    #[cfg_attr(
        feature = "serde",
        serde(with = "crate::config::when_empty", skip_serializing_if = "Option::is_none")
    )]
    pub empty: Option<WhenEmpty>,
}

impl BucketOptions {
    /// The configuration `base` with these options applied.
    ///
    /// # Errors
    /// A cost that is set is above the capacity. (A cost of `base` may be: a small bucket then never
    /// grants a retry for that kind.) All other checks happen when the bucket is made.
    pub fn apply_to(&self, base: CostBucketConfig) -> Result<CostBucketConfig, PolicyError> {
        let capacity = self.capacity.unwrap_or(base.capacity);
        let CostOptions { server, client, throttling, timeout } = self.costs;
        let given = [server, client, throttling, timeout];
        if given.into_iter().flatten().any(|cost| cost > capacity) {
            return Err(PolicyError::CostAboveCapacity);
        }
        Ok(CostBucketConfig {
            capacity,
            server: server.unwrap_or(base.server),
            client: client.unwrap_or(base.client),
            throttling: throttling.unwrap_or(base.throttling),
            timeout: timeout.unwrap_or(base.timeout),
            success: self.success.unwrap_or(base.success),
            refill_per_second: self.refill_per_second.unwrap_or(base.refill_per_second),
            empty: self.empty.unwrap_or(base.empty),
        })
    }
}
