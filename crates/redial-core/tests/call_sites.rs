//! A program with more call sites than cells in the table: the surplus call sites share one budget,
//! and the program can find out.
//!
//! 517 call sites, each written out because a call site is a source location. This is a separate
//! test program, because the table is global and this test fills it.
#![cfg(not(loom))]

use redial_core::throttle::{CallSite, call_sites_share_a_budget, refill_call_sites};
use redial_core::{Bucket, Cost, FailureKind, Grant};

/// How many call sites have a budget of their own.
const CALL_SITES_MAX: usize = 511;

const COST: Cost = Cost { kind: FailureKind::Server };

#[track_caller]
fn here() -> CallSite {
    CallSite::here()
}

#[test]
fn call_site_budgets_after_the_511th_are_shared() {
    #[rustfmt::skip]
    let call_sites = [
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        here(), here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
    ];
    for (nth, call_site) in call_sites.iter().enumerate() {
        assert_eq!(call_sites_share_a_budget(), nth > CALL_SITES_MAX, "before place {nth}");
        assert!(matches!(call_site.withdraw(COST, 0), Grant::Now(_)));
    }
    let (own, shared) = call_sites.split_at(CALL_SITES_MAX);
    assert!(own.iter().all(|call_site| call_site.tokens(0) == Some(9.0)));
    assert_eq!(shared.len(), 6);
    assert!(shared.iter().all(|call_site| call_site.tokens(0) == Some(4.0)));
    assert!(own.iter().all(|call_site| !call_site.shares_budget()));
    assert!(shared.iter().all(|call_site| call_site.shares_budget()));
    refill_call_sites();
    assert!(call_sites.iter().all(|call_site| call_site.tokens(0) == Some(10.0)));
}
