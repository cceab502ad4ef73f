//! The client's policy, as a value.
//!
//! | name | in code | attempts | backoff | ends by | throttle |
//! | --- | --- | --- | --- | --- | --- |
//! | `milvus` | [`milvus`] | 4 | 20, 40, 80 ms, no jitter | attempts; each has 15 s | none |

use redial::{Builder, Policy, Throttle};

use crate::options::Options;

/// The Milvus client's interceptor (section M). It has no throttle; the builder takes one. Which
/// statuses are repeated is [`Interceptor`](crate::Interceptor)'s.
pub const fn milvus() -> Builder<Policy> {
    Policy::from_rules(Options::DEFAULT.rules()).throttle(Throttle::none())
}
