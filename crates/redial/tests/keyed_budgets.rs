//! Retry budgets by key: one budget per key, the bound on keys, and the order of eviction.

use std::sync::Arc;
use std::thread;

use redial::throttle::{Bucket, Cost, Grant, KeyedBudgets, RetryBudget, WithBudget};
use redial::{AnyPolicy, FailureKind, Policy, ms};

const COST: Cost = Cost { kind: FailureKind::Server };

/// Takes one retry of this key; returns how many are left.
fn take<K: Ord + Clone>(budgets: &KeyedBudgets<K>, key: &K) -> f64 {
    let budget = budgets.get(key);
    budget.withdraw(COST, 0);
    budget.tokens(0).expect("a budget")
}

#[test]
fn keyed_budgets_keep_as_many_keys_as_allowed() {
    let budgets: KeyedBudgets<u32> = KeyedBudgets::new(3);
    for key in 0..3 {
        take(&budgets, &key);
    }
    assert_eq!(budgets.len(), 3);
    for key in 0..3 {
        assert_eq!(take(&budgets, &key), 8.0, "at the bound, every key keeps its budget");
    }
}

#[test]
fn keyed_budgets_evict_the_least_recently_used_key() {
    let budgets: KeyedBudgets<u32> = KeyedBudgets::new(3);
    for key in [0, 1, 2, 0] {
        take(&budgets, &key);
    }
    assert_eq!((take(&budgets, &3), budgets.len()), (9.0, 3));
    // Key 1 was used least recently: it starts anew, and evicts key 2.
    assert_eq!((take(&budgets, &0), take(&budgets, &3)), (7.0, 8.0));
    assert_eq!((take(&budgets, &1), take(&budgets, &0)), (9.0, 6.0));
    assert_eq!(take(&budgets, &2), 9.0);
    assert_eq!(budgets.len(), 3);
}

#[test]
fn keyed_budgets_of_no_keys_keep_one() {
    let budgets: KeyedBudgets<u32> = KeyedBudgets::new(0);
    assert!(budgets.is_empty());
    assert_eq!((take(&budgets, &7), take(&budgets, &7), budgets.len()), (9.0, 8.0, 1));
}

#[test]
fn keyed_budgets_list_their_tokens_without_using_the_keys() {
    const SECOND: u64 = 1_000_000_000;
    let budgets = KeyedBudgets::like(2, RetryBudget::new(5.0, 0.0).per_second(0.5));
    assert_eq!(budgets.tokens_at(0), []);
    budgets.get(&"b").withdraw(COST, 10 * SECOND);
    budgets.get(&"a");
    // Each key once, in order, with the refill.
    assert_eq!(budgets.tokens_at(10 * SECOND), [("a", 5.0), ("b", 4.0)]);
    assert_eq!(budgets.tokens_at(11 * SECOND), [("a", 5.0), ("b", 4.5)]);
    // `b` is still the key that was used least recently.
    budgets.get(&"c");
    assert_eq!(budgets.tokens_at(11 * SECOND), [("a", 5.0), ("c", 5.0)]);
}

#[test]
fn keyed_budgets_evicted_budget_stays_with_its_calls() {
    let budgets: KeyedBudgets<&str> = KeyedBudgets::new(1);
    let held = budgets.get(&"a");
    budgets.get(&"b");
    held.withdraw(COST, 0);
    assert_eq!(held.tokens(0), Some(9.0));
    assert_eq!(budgets.get(&"a").tokens(0), Some(10.0));
}

#[test]
fn keyed_budgets_have_the_parameters_of_their_template() {
    static TENANTS: KeyedBudgets<String> =
        KeyedBudgets::like(10, RetryBudget::new(3.0, 0.5).per_second(2.0));
    assert_eq!(TENANTS.get("a").parameters(), (3.0, 0.5, 2.0));
    assert_eq!(
        format!("{:?}", KeyedBudgets::<u8>::new(2)).split('{').next(),
        Some("KeyedBudgets ")
    );
}

#[test]
fn keyed_budgets_are_exact_across_threads() {
    let budgets: KeyedBudgets<u32> = KeyedBudgets::like(4, RetryBudget::new(1000.0, 0.0));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..400).for_each(|n| assert!(take(&budgets, &(n % 4)) < 1000.0)));
        }
    });
    for key in 0..4 {
        assert_eq!(budgets.get(&key).tokens(0), Some(200.0));
    }
}

#[test]
fn keyed_budgets_fit_every_kind_of_policy_and_throttle() {
    let budgets: KeyedBudgets<&str> = KeyedBudgets::like(10, RetryBudget::new(5.0, 0.1));
    let policy = Policy::constant(ms(1)).build();
    let hedged = Policy::hedged(ms(1)).build();
    assert_eq!(policy.with_budget(budgets.get(&"a")).tokens(0), Some(5.0));
    assert_eq!(hedged.with_budget(budgets.get(&"a")).tokens(0), Some(5.0));
    let any = AnyPolicy::Policy(policy.clone()).with_budget(budgets.get(&"a"));
    assert!(matches!(any, AnyPolicy::Policy(policy) if policy.tokens(0) == Some(5.0)));
    // Beside another throttle, a retry needs both.
    let tokens = redial::throttle::TokenBucket::new(100.0, 0.1).expect("valid");
    let both = WithBudget::new(Arc::new(tokens), budgets.get(&"a"));
    (0..5).for_each(|_| assert_ne!(both.withdraw(COST, 0), Grant::Refused));
    assert_eq!(policy.sharing(Arc::new(both)).tokens(0), Some(0.0));
}
