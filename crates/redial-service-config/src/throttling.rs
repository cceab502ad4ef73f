//! `retryThrottling` of a service config and the token bucket that it configures (decisions G11 and
//! G36).

use redial_core::throttle::TokenBucket;

/// A validated `retryThrottling` section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RetryThrottling {
    max_tokens: u32,
    /// In thousandths of a token.
    token_ratio: u32,
}

impl RetryThrottling {
    /// The largest `maxTokens` that A6 allows.
    pub const MAX_TOKENS: u32 = 1000;

    /// A token bucket that starts with `max_tokens`; each success adds `token_ratio` thousandths.
    /// `None` if A6 does not allow the values: `max_tokens` is not in 1 to 1000, or the ratio is 0.
    #[must_use]
    pub const fn new(max_tokens: u32, token_ratio: u32) -> Option<RetryThrottling> {
        if max_tokens == 0 || max_tokens > RetryThrottling::MAX_TOKENS || token_ratio == 0 {
            return None;
        }
        Some(RetryThrottling { max_tokens, token_ratio })
    }

    /// The capacity, which is also the initial number of tokens: 1 to 1000.
    #[must_use]
    pub const fn max_tokens(self) -> u32 {
        self.max_tokens
    }

    /// The tokens that a success adds, in thousandths; at least 1.
    #[must_use]
    pub const fn token_ratio(self) -> u32 {
        self.token_ratio
    }

    /// A full token bucket with these parameters.
    #[must_use]
    pub fn tokens(self) -> TokenBucket {
        let max = f64::from(self.max_tokens);
        let ratio = f64::from(self.token_ratio) / 1000.0;
        TokenBucket::new(max, ratio).expect("both values were validated")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redial_core::Bucket;

    #[test]
    fn retry_throttling_rejects_values_outside_a6_bounds() {
        assert_eq!(RetryThrottling::new(0, 1), None);
        assert_eq!(RetryThrottling::new(1001, 1), None);
        assert_eq!(RetryThrottling::new(10, 0), None);
        assert!(RetryThrottling::new(1, 1).is_some());
        assert!(RetryThrottling::new(1000, u32::MAX).is_some());
    }

    #[test]
    fn retry_throttling_success_adds_exact_token_ratio() {
        for ratio in (1..=1000).chain([1001, 546, 999_999, 1_000_000, u32::MAX]) {
            let tokens = RetryThrottling::new(1000, ratio).unwrap().tokens();
            (0..1000).for_each(|_| tokens.failed());
            tokens.succeeded(None);
            let expected = f64::from(ratio.min(1_000_000)) / 1000.0;
            assert_eq!(tokens.tokens(0), Some(expected), "{ratio}");
        }
    }
}
