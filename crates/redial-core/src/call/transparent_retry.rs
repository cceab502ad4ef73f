//! Transparent retries: an attempt that was provably not processed is repeated without counting as
//! an attempt (decisions G26 to G29).

use core::ops::Deref;
use core::time::Duration;

use super::{Call, Slot};
use crate::time::{self, Ns};
use crate::{Environment, Event, Policy, Proof};

/// The maximum number of transparent retries of unsent requests (decision G27).
const UNSENT_RETRIES_MAX: u32 = 1000;
/// The delay before the second such retry; it doubles with each further one.
const UNSENT_BACKOFF_FIRST: Ns = time::ns(Duration::from_millis(10));
/// The maximum delay before such a retry.
const UNSENT_BACKOFF_MAX: Ns = time::ns(Duration::from_secs(1));

impl<P: Deref<Target = Policy>> Call<P> {
    /// Schedules a transparent retry if there is proof and one is left; returns whether it did.
    pub(super) fn schedule_transparent_retry(
        &mut self,
        slot: usize,
        number: u32,
        attempt: u32,
        proof: Option<Proof>,
        now: Ns,
        env: &mut impl Environment,
    ) -> bool {
        let Some(proof) = proof else { return false };
        if !self.policy.rules().transparent_retries || self.is_committed() {
            return false;
        }
        let after = match proof {
            Proof::Unprocessed if self.unprocessed_retried => return false,
            Proof::Unprocessed => {
                self.unprocessed_retried = true;
                0
            }
            Proof::Unsent if self.unsent_retries >= UNSENT_RETRIES_MAX => return false,
            Proof::Unsent => {
                self.unsent_retries += 1;
                unsent_backoff(self.unsent_retries)
            }
        };
        env.record(now, Event::TransparentRetryScheduled { attempt, after, proof });
        let at = now.saturating_add(after);
        self.slots.set(slot, Slot { at, attempt, number });
        self.waiting |= 1 << slot;
        if after == 0 && now < self.deadline {
            self.pending_starts |= 1 << slot;
        }
        true
    }
}

/// The delay before transparent retry `k` of an unsent request: 0, 10 ms, then doubled up to 1 s.
fn unsent_backoff(k: u32) -> Ns {
    match k {
        0 | 1 => 0,
        _ => UNSENT_BACKOFF_FIRST.saturating_mul(1 << (k - 2).min(16)).min(UNSENT_BACKOFF_MAX),
    }
}
