//! Full retry budgets for a test: see [`fresh_budgets`].

use std::fmt;
use std::marker::PhantomData;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use redial_core::throttle::{RetryBudget, refill_call_sites};

use crate::any_policy::AnyPolicy;
use crate::policy::{Hedged, Policy};
use crate::throttle::KeyedBudgets;

/// The thread that holds the guard.
static HOLDER: Mutex<Option<ThreadId>> = Mutex::new(None);
static RELEASED: Condvar = Condvar::new();

/// Gives a test full budgets until it is dropped; see [`fresh_budgets`].
#[must_use = "the budgets are the test's own until this guard is dropped"]
pub struct FreshBudgets {
    /// Budgets of the application that are filled as well.
    named: Vec<&'static (dyn Refill + Sync)>,
    /// Not `Send`: the holder is known by its thread.
    thread: PhantomData<*const ()>,
}

/// Fills the default budgets of all call sites, for the test that holds the guard and for every task and
/// thread that it starts. They are filled again when the guard is dropped.
///
/// The budget of a `static` policy belongs to the process. Without the guard, a test that fails calls
/// spends it, and another test of the same program that expects a retry fails with `throttled`.
///
/// A test that asks for the guard waits until no other test holds it, so tests with the guard run one
/// after the other. A test without it runs beside them, and can still spend the same budgets: use the
/// guard in every test that shares a policy with others. Budgets that the application names, also those
/// by key, and those of policies made at run time, are filled with [`FreshBudgets::and`].
///
/// ```
/// use redial::{Policy, testing};
///
/// static FETCH: Policy = Policy::immediate().attempts(3).build();
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// // In a `#[test]` or `#[tokio::test]`:
/// let _budgets = testing::fresh_budgets();
/// for _ in 0..5 {
///     let result = FETCH.retry(async || Err::<(), _>("busy")).when(|_| true).await;
///     assert_eq!(result.unwrap_err().attempts(), 3);
/// }
/// assert_eq!(FETCH.tokens(0), Some(0.0));
/// drop(_budgets);
/// assert_eq!(FETCH.tokens(0), Some(10.0));
/// # }
/// ```
///
/// # Panics
/// This thread already holds the guard.
pub fn fresh_budgets() -> FreshBudgets {
    let me = thread::current().id();
    let mut holder = holder();
    while let Some(other) = *holder {
        assert!(other != me, "this thread already holds fresh budgets");
        holder = RELEASED.wait(holder).unwrap_or_else(PoisonError::into_inner);
    }
    *holder = Some(me);
    drop(holder);
    refill_call_sites();
    FreshBudgets { named: Vec::new(), thread: PhantomData }
}

fn holder() -> MutexGuard<'static, Option<ThreadId>> {
    // The assertion above panics while the lock is held, and changes nothing.
    HOLDER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What [`FreshBudgets::and`] fills: a [`RetryBudget`], all budgets of a [`KeyedBudgets`], or the retry budget of
/// a policy.
pub trait Refill: sealed::Sealed {
    #[doc(hidden)]
    fn refill(&self);
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::RetryBudget {}
    impl<K> Sealed for super::KeyedBudgets<K> {}
    impl Sealed for super::Policy {}
    impl Sealed for super::Hedged {}
    impl Sealed for super::AnyPolicy {}
}

impl Refill for RetryBudget {
    fn refill(&self) {
        RetryBudget::refill(self);
    }
}

impl<K> Refill for KeyedBudgets<K> {
    fn refill(&self) {
        KeyedBudgets::refill(self);
    }
}

/// A policy that was built at run time owns its budget, which its clones share. A throttle that is no retry
/// budget stays as it is.
impl Refill for Policy {
    fn refill(&self) {
        self.handle.refill();
    }
}

impl Refill for Hedged {
    fn refill(&self) {
        self.0.refill();
    }
}

impl Refill for AnyPolicy {
    fn refill(&self) {
        self.either().refill();
    }
}

impl FreshBudgets {
    /// Fills this budget, these budgets by key, or the budget of this policy as well, now and when the guard is
    /// dropped.
    ///
    /// ```
    /// use redial::throttle::{KeyedBudgets, RetryBudget};
    /// use redial::{Policy, testing};
    /// use std::sync::LazyLock;
    ///
    /// static DATABASE: RetryBudget = RetryBudget::standard();
    /// static TENANTS: KeyedBudgets<String> = KeyedBudgets::new(100);
    /// // Built or loaded at run time, so it owns its budget.
    /// static LOADED: LazyLock<Policy> = LazyLock::new(Policy::default);
    ///
    /// let _budgets = testing::fresh_budgets().and(&DATABASE).and(&TENANTS).and(&*LOADED);
    /// ```
    pub fn and(mut self, budget: &'static (impl Refill + Sync)) -> Self {
        budget.refill();
        self.named.push(budget);
        self
    }
}

impl fmt::Debug for FreshBudgets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FreshBudgets").field("named", &self.named.len()).finish_non_exhaustive()
    }
}

impl Drop for FreshBudgets {
    fn drop(&mut self) {
        refill_call_sites();
        self.named.iter().for_each(|budget| budget.refill());
        *holder() = None;
        RELEASED.notify_one();
    }
}
