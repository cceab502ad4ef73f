//! A retry budget for each key: a host, a tenant, a shard.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redial_core::Ns;
use redial_core::throttle::RetryBudget;

/// Retry budgets by key, so that one failing host or tenant cannot spend the retries of the others.
///
/// The number of keys is bounded. A new key beyond the bound replaces the key that was used least
/// recently; calls that still hold its budget keep it, and the key starts with a full budget if it comes
/// back. Choose a bound above the number of keys in use at a time: a caller that uses more keys than that
/// gets a full budget each time.
///
/// The map has a lock, which is held for the lookup only. The budgets themselves have none.
///
/// ```
/// use redial::throttle::KeyedBudgets;
/// use redial::{Policy, ms};
///
/// static FETCH: Policy = Policy::exponential(ms(100)).build();
/// static HOSTS: KeyedBudgets<String> = KeyedBudgets::new(1000);
///
/// fn fetch(host: &str) -> Result<u32, redial::Error<std::io::Error>> {
///     let policy = FETCH.with_budget(HOSTS.get(host));
///     policy.retry(|| get(host)).when(|error| error.kind() == std::io::ErrorKind::TimedOut).call()
/// }
/// # fn get(_: &str) -> std::io::Result<u32> { Ok(7) }
/// # assert_eq!(fetch("example.com").unwrap(), 7);
/// ```
///
/// Beside another throttle, use [`WithBudget::new(throttle, HOSTS.get(host))`](crate::throttle::WithBudget).
pub struct KeyedBudgets<K> {
    budgets: Mutex<Budgets<K>>,
    keys_max: usize,
    /// The parameters of each budget.
    template: RetryBudget,
}

struct Budgets<K> {
    /// The budget of each key, and when it was used last.
    by_key: BTreeMap<K, (Arc<RetryBudget>, u64)>,
    by_use: BTreeMap<u64, K>,
    uses: u64,
}

impl<K> KeyedBudgets<K> {
    /// Default budgets for at most this many keys; 0 counts as 1.
    ///
    /// ```
    /// use redial::throttle::KeyedBudgets;
    ///
    /// static TENANTS: KeyedBudgets<u64> = KeyedBudgets::new(10_000);
    /// assert_eq!(TENANTS.get(&7).parameters(), (10.0, 0.1, 1.0));
    /// ```
    #[cfg(not(loom))]
    #[must_use]
    pub const fn new(keys_max: usize) -> Self {
        KeyedBudgets::like(keys_max, RetryBudget::standard())
    }

    /// Default budgets for at most this many keys. Under loom, budgets are not constants.
    #[cfg(loom)]
    #[must_use]
    pub fn new(keys_max: usize) -> Self {
        KeyedBudgets::like(keys_max, RetryBudget::standard())
    }

    /// Budgets with the parameters of this one, for at most this many keys; 0 counts as 1.
    ///
    /// ```
    /// use redial::throttle::{KeyedBudgets, RetryBudget};
    ///
    /// static TENANTS: KeyedBudgets<u64> =
    ///     KeyedBudgets::like(10_000, RetryBudget::new(3.0, 0.05).per_second(0.1));
    /// assert_eq!(TENANTS.get(&7).parameters(), (3.0, 0.05, 0.1));
    /// ```
    #[must_use]
    pub const fn like(keys_max: usize, template: RetryBudget) -> Self {
        let keys_max = if keys_max == 0 { 1 } else { keys_max };
        let budgets = Budgets { by_key: BTreeMap::new(), by_use: BTreeMap::new(), uses: 0 };
        KeyedBudgets { budgets: Mutex::new(budgets), keys_max, template }
    }

    /// The number of keys that have a budget.
    ///
    /// ```
    /// use redial::throttle::KeyedBudgets;
    ///
    /// let hosts = KeyedBudgets::new(2);
    /// ["a", "b", "a", "c"].map(|host| hosts.get(&host));
    /// assert_eq!(hosts.len(), 2);
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().by_key.len()
    }

    /// Whether no key has a budget.
    ///
    /// ```
    /// use redial::throttle::KeyedBudgets;
    ///
    /// assert!(KeyedBudgets::<u64>::new(2).is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills the budgets of all keys: by hand in an incident, or for a test
    /// ([`FreshBudgets::and`](crate::testing::FreshBudgets::and)).
    ///
    /// ```
    /// use redial::throttle::KeyedBudgets;
    /// use redial::{Policy, ms};
    ///
    /// static CALL: Policy = Policy::constant(ms(1)).attempts(3).build();
    /// static TENANTS: KeyedBudgets<u64> = KeyedBudgets::new(100);
    ///
    /// let call = || CALL.retry(|| Err::<(), _>("busy")).when(|_| true).with_budget(TENANTS.get(&7));
    /// for _ in 0..6 {
    ///     let _ = call().call();
    /// }
    /// assert_eq!(call().call().unwrap_err().attempts(), 1);
    /// TENANTS.refill();
    /// assert_eq!(call().call().unwrap_err().attempts(), 3);
    /// ```
    pub fn refill(&self) {
        self.lock().by_key.values().for_each(|(budget, _)| budget.refill());
    }

    /// The tokens of each key at this time of the clock that its calls use, with the refill since a retry asked last;
    /// see [`RetryBudget::tokens_at`]. For a dashboard, or to find the tenant that has spent its retries. It does not
    /// count as a use of the keys, and it copies all of them while the map is locked.
    ///
    /// ```
    /// use redial::throttle::{KeyedBudgets, RetryBudget};
    /// use redial::time::{Sleeper, Tokio};
    /// use redial::{Policy, ms};
    ///
    /// static CALL: Policy = Policy::constant(ms(1)).attempts(3).build();
    /// static TENANTS: KeyedBudgets<String> = KeyedBudgets::like(100, RetryBudget::new(5.0, 0.1));
    ///
    /// TENANTS.get("healthy");
    /// let call = CALL.retry(|| Err::<(), _>("busy")).when(|_| true).with_budget(TENANTS.get("failing"));
    /// call.call().unwrap_err();
    /// let tokens = TENANTS.tokens_at(Tokio.now());
    /// assert_eq!(tokens, [("failing".to_owned(), 3.0), ("healthy".to_owned(), 5.0)]);
    /// ```
    #[must_use]
    pub fn tokens_at(&self, now: Ns) -> Vec<(K, f64)>
    where
        K: Clone,
    {
        let budgets = self.lock();
        let by_key = budgets.by_key.iter();
        by_key.map(|(key, (budget, _))| (key.clone(), budget.tokens_at(now))).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Budgets<K>> {
        // A panic of `K::cmp` or `K::clone` loses at most the order of use of one key.
        self.budgets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Ord + Clone> KeyedBudgets<K> {
    /// The budget of this key; a new one if the key has none.
    ///
    /// ```
    /// use redial::throttle::{Bucket, KeyedBudgets};
    /// use std::sync::Arc;
    ///
    /// let hosts: KeyedBudgets<String> = KeyedBudgets::new(100);
    /// assert!(Arc::ptr_eq(&hosts.get("a"), &hosts.get("a")));
    /// assert!(!Arc::ptr_eq(&hosts.get("a"), &hosts.get("b")));
    /// ```
    pub fn get<Q>(&self, key: &Q) -> Arc<RetryBudget>
    where
        K: Borrow<Q>,
        Q: Ord + ToOwned<Owned = K> + ?Sized,
    {
        let budgets = &mut *self.lock();
        if let Some((budget, used)) = budgets.by_key.get_mut(key) {
            // The key that was used last stays the last one: most callers use one host at a time.
            if *used == budgets.uses {
                return budget.clone();
            }
            budgets.uses += 1;
            if let Some(key) = budgets.by_use.remove(used) {
                budgets.by_use.insert(budgets.uses, key);
            }
            *used = budgets.uses;
            return budget.clone();
        }
        while budgets.by_key.len() >= self.keys_max {
            match budgets.by_use.pop_first() {
                Some((_, oldest)) => budgets.by_key.remove(oldest.borrow()),
                // Only after a panic in `K`: start again rather than grow.
                None => return self.start_again(budgets),
            };
        }
        budgets.uses += 1;
        let budget = Arc::new(self.template.fresh());
        let key = key.to_owned();
        budgets.by_use.insert(budgets.uses, key.clone());
        budgets.by_key.insert(key, (budget.clone(), budgets.uses));
        budget
    }

    fn start_again(&self, budgets: &mut Budgets<K>) -> Arc<RetryBudget> {
        budgets.by_key.clear();
        Arc::new(self.template.fresh())
    }
}

impl<K> fmt::Debug for KeyedBudgets<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedBudgets")
            .field("keys", &self.len())
            .field("keys_max", &self.keys_max)
            .field("template", &self.template)
            .finish()
    }
}
