//! A bucket of costs as options: each value that is given replaces one of a base.

use redial_core::PolicyError;
use redial_core::throttle::{CostBucketConfig, WhenEmpty};

/// What a retry costs after each kind of failure; what is not given comes from the preset.
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

/// The bucket; what is not given comes from the preset.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
pub struct BucketOptions {
    /// How many tokens it holds.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub capacity: Option<f64>,
    /// What a retry costs.
    pub costs: CostOptions,
    /// What a success at the first try adds.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub success: Option<f64>,
    /// How many tokens come back per second.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub refill_per_second: Option<f64>,
    /// What an empty bucket does.
    #[cfg_attr(
        feature = "serde",
        serde(with = "crate::config::when_empty", skip_serializing_if = "Option::is_none")
    )]
    pub empty: Option<WhenEmpty>,
}

impl BucketOptions {
    /// These values, and those of `base` where none is given.
    ///
    /// # Errors
    /// A cost that is given is above the capacity. (One that comes from `base` may be: a small
    /// bucket then never pays for that kind.) Everything else is found when
    /// the bucket is made.
    pub fn over(&self, base: CostBucketConfig) -> Result<CostBucketConfig, PolicyError> {
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
