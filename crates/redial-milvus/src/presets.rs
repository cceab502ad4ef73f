//! The Milvus client's policy as a ready-made value.
//!
//! | name | in code | attempts | backoff | ends by | throttle |
//! | --- | --- | --- | --- | --- | --- |
//! | `milvus` | [`milvus`] | 4 | 20, 40, 80 ms, no jitter | attempts; each has 15 s | none |

use redial::{Builder, Policy, Throttle};

use crate::options::Options;

/// The policy of the Milvus client's retry interceptor (section M of the decisions), without a throttle;
/// add one with the builder. The status codes to retry belong to [`Interceptor`](crate::Interceptor).
pub const fn milvus() -> Builder<Policy> {
    Policy::from_rules(Options::DEFAULT.rules()).throttle(Throttle::none())
}
