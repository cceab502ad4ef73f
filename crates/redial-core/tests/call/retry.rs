//! Plain retries.

use super::*;

// Decision P5.
#[test]
fn retry_with_zero_delay_starts_without_a_timer() {
    retry(Rules { backoff: Backoff::Constant(Duration::ZERO), ..BASE }, |driver| {
        driver.report(1, FAILED);
        assert_eq!((driver.numbers(), driver.call.wake_at()), (vec![1, 2], None));
    });
}
