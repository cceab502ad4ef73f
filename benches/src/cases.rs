//! The cases: each runs its call `n` times.

use std::future::{Future, IntoFuture};
use std::hint::black_box;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use redial::throttle::{Bucket, CallSite, RetryBudget};
use redial::tower::RetryLayer;
use redial::{Hedged, Jitter, Policy, Throttle, ms, s};
use redial_core::{Cost, Grant, FailureKind};
use tower::Layer as _;

use crate::operation::{Busy, FAILURES, blocking, is_transient, operation};

pub struct Case {
    pub group: &'static str,
    pub name: &'static str,
    pub run: fn(u64),
}

macro_rules! cases {
    ($($group:literal { $($(#[$when:meta])? $name:literal => $run:expr,)* })*) => {
        pub const CASES: &[Case] =
            &[$($($(#[$when])? Case { group: $group, name: $name, run: $run },)*)*];
    };
}

cases! {
    "async, success at once" {
        "bare operation" => |n| each(n, |seed| poll_once(operation(seed, &0))),
        "hand-written loop" => |n| each(n, |seed| poll_once(hand(seed))),
        "redial, no budget" => |n| each(n, |seed| poll_once(NO_BUDGET.retry(|| operation(seed, &0)).when(is_transient).into_future())),
        "redial::retry, budget full" => |n| each(n, |seed| poll_once(site(seed).into_future())),
        "redial::retry, budget filling" => |n| { drain(); each(n, |seed| poll_once(site(seed).into_future())) },
        "redial, static policy, budget full" => |n| each(n, |seed| poll_once(STATIC.retry(|| operation(seed, &0)).when(is_transient).into_future())),
        "redial, with a deadline" => |n| each(n, |seed| poll_once(DEADLINE.retry(|| operation(seed, &0)).when(is_transient).into_future())),
        "tokio-retry" => |n| each(n, |seed| poll_once(tokio_retry::RetryIf::start(tokio_retry::strategy::ExponentialBackoff::from_millis(2).factor(50).take(2), || operation(seed, &0), is_transient))),
        "backon" => |n| each(n, |seed| { use backon::Retryable; poll_once((|| operation(seed, &0)).retry(backon::ExponentialBuilder::default()).when(is_transient).into_future()) }),
        #[cfg(feature = "tryhard")]
        "tryhard" => |n| each(n, |seed| poll_once(tryhard::retry_fn(|| operation(seed, &0)).retries(2).exponential_backoff(ms(100)).into_future())),
        "backoff" => |n| each(n, |seed| poll_once(backoff::future::retry(backoff::ExponentialBackoff::default(), || async { operation(seed, &0).await.map_err(backoff::Error::transient) }))),
        "tower::retry" => |n| peers::tower_retry(n, false),
        "tower::retry, TpsBudget" => |n| peers::tower_retry(n, true),
    }
    "tower service, success at once" {
        "bare service" => |n| services::call(n, services::service()),
        "tower::retry" => |n| peers::tower_retry(n, false),
        "tower::retry, TpsBudget" => |n| peers::tower_retry(n, true),
        "redial layer, no budget" => |n| services::call(n, RetryLayer::new(&NO_BUDGET).when(is_transient).layer(services::service())),
        "redial layer, default policy, budget full" => |n| services::call(n, RetryLayer::standard().when(is_transient).layer(services::service())),
        "redial layer, static policy, budget full" => |n| services::call(n, RetryLayer::new(&STATIC).when(is_transient).layer(services::service())),
        "redial layer, policy built at run time, budget full" => |n| services::call(n, RetryLayer::new(STATIC.clone()).when(is_transient).layer(services::service())),
        "redial layer, hedged, budget full" => |n| services::call(n, RetryLayer::new(&HEDGED).when(is_transient).layer(services::service())),
    }
    "two failures with zero delay, then success" {
        "bare operation, three times" => |n| each(n, |seed| { FAILURES.store(2, Ordering::Relaxed); let mut last = 0; for _ in 0..3 { last = poll_any(operation(seed, &0)); } last }),
        "hand-written loop" => |n| each(n, |seed| { FAILURES.store(2, Ordering::Relaxed); poll_once(hand_immediate(seed)) }),
        "redial, no budget" => |n| each(n, |seed| { FAILURES.store(2, Ordering::Relaxed); poll_once(IMMEDIATE_FREE.retry(|| operation(seed, &0)).when(is_transient).into_future()) }),
        "redial, with a budget" => |n| each(n, |seed| { FAILURES.store(2, Ordering::Relaxed); poll_once(IMMEDIATE.retry(|| operation(seed, &0)).when(is_transient).into_future()) }),
        "tokio-retry" => |n| runtime(n, async |seed| { FAILURES.store(2, Ordering::Relaxed); tokio_retry::RetryIf::start(tokio_retry::strategy::FixedInterval::from_millis(0).take(2), || operation(seed, &0), is_transient).await }),
        "backon" => |n| runtime(n, async |seed| { use backon::Retryable; FAILURES.store(2, Ordering::Relaxed); (|| operation(seed, &0)).retry(backon::ConstantBuilder::default().with_delay(ms(0))).when(is_transient).await }),
    }
    "a deadline is set and the operation pends once" {
        "bare operation" => |n| runtime(n, async |seed| operation_pends(seed).await),
        "tokio::time::timeout around it" => |n| runtime(n, async |seed| tokio::time::timeout(s(10), operation_pends(seed)).await.unwrap_or(Err(Busy))),
        "redial" => |n| runtime(n, async |seed| DEADLINE.retry(|| operation_pends(seed)).when(is_transient).await.map_err(|_| Busy)),
    }
    "blocking, success" {
        "bare operation" => |n| each(n, |seed| blocking(seed).unwrap_or(0)),
        "hand-written loop" => |n| each(n, |seed| hand_blocking(seed).unwrap_or(0)),
        "hand-written loop and one clock read" => |n| each(n, |seed| { black_box(std::time::Instant::now()); hand_blocking(seed).unwrap_or(0) }),
        "redial::retry" => |n| each(n, |seed| redial::retry(|| blocking(seed)).when(is_transient).call().unwrap_or(0)),
        "redial, no budget" => |n| each(n, |seed| NO_BUDGET.retry(|| blocking(seed)).when(is_transient).call().unwrap_or(0)),
        "retry" => |n| each(n, |seed| retry::retry(retry::delay::Exponential::from_millis(100).take(2), || blocking(seed)).unwrap_or(0)),
        "backon" => |n| each(n, |seed| { use backon::BlockingRetryable; (|| blocking(seed)).retry(backon::ExponentialBuilder::default()).when(is_transient).call().unwrap_or(0) }),
        "backoff" => |n| each(n, |seed| backoff::retry(backoff::ExponentialBackoff::default(), || blocking(seed).map_err(backoff::Error::transient)).unwrap_or(0)),
    }
    "budget" {
        "empty loop" => |n| { for i in 0..n { black_box(i); } },
        "redial, deposit into a full one" => |n| { let budget = RetryBudget::standard(); for i in 0..n { black_box(&budget).succeeded(None); black_box(i); } },
        "redial, deposit" => |n| { let budget = emptied(); for i in 0..n { black_box(&budget).succeeded(None); black_box(i); } },
        "redial, withdraw" => |n| { let budget = large(); for i in 0..n { black_box(black_box(&budget).withdraw(COST, 0)); black_box(i); } },
        "redial, withdraw from the default budget and refund" => |n| { let site = CallSite::here(); for i in 0..n { if let Grant::Now(withdrawal) = black_box(site).withdraw(COST, black_box(0)) { site.refund(withdrawal); } black_box(i); } },
        "redial, withdraw and refund" => |n| { let budget = large(); for i in 0..n { if let Grant::Now(withdrawal) = black_box(&budget).withdraw(COST, black_box(0)) { black_box(&budget).refund(withdrawal); } black_box(i); } },
        "redial, refill and withdraw" => |n| { let budget = large().per_second(1.0); for i in 0..n { black_box(black_box(&budget).withdraw(COST, i as u64 * 2_000_000)); black_box(i); } },
        "tower TpsBudget, deposit" => |n| { use tower::retry::budget::Budget as _; let budget = tps(); for i in 0..n { black_box(&budget).deposit(); black_box(i); } },
        "tower TpsBudget, withdraw" => |n| { use tower::retry::budget::Budget as _; let budget = tps(); for _ in 0..20_000 { budget.deposit(); } for i in 0..n { black_box(black_box(&budget).withdraw()); black_box(i); } },
    }
    "hedging" {
        "bare operation" => |n| runtime(n, async |seed| operation(seed, &0).await),
        "redial, ready at once" => |n| runtime(n, async |seed| HEDGED.retry(|| operation(seed, &0)).when(is_transient).await.map_err(|_| Busy)),
        "bare operation that pends once" => |n| runtime(n, async |seed| operation_pends(seed).await),
        "redial, pends once" => |n| runtime(n, async |seed| HEDGED.retry(|| operation_pends(seed)).when(is_transient).await.map_err(|_| Busy)),
        "tower-resilience-hedge, ready at once" => peers::resilience_hedge,
    }
}

const COST: Cost = Cost { kind: FailureKind::Server };

static NO_BUDGET: Policy = Policy::exponential(ms(100)).throttle(Throttle::none()).build();
static STATIC: Policy = Policy::exponential(ms(100)).build();
static DEADLINE: Policy = Policy::exponential(ms(100)).deadline(s(10)).build();
static IMMEDIATE_FREE: Policy = Policy::immediate().throttle(Throttle::none()).build();
static LARGE: RetryBudget = match RetryBudget::try_new(1e6, 1e6) {
    Ok(budget) => budget,
    Err(_) => panic!("valid"),
};
static IMMEDIATE: Policy = Policy::immediate().throttle(Throttle::budget(&LARGE)).build();
static HEDGED: Hedged = Policy::hedged(ms(20)).attempts(3).build();

#[inline(always)]
fn site(
    seed: &u64,
) -> redial::Retry<
    'static,
    redial::parts::When<impl FnMut(&Busy) -> bool>,
    redial::parts::Site,
    impl FnMut() -> crate::operation::Operation + '_,
    redial::parts::Async,
> {
    redial::retry(move || operation(seed, &0)).when(is_transient)
}

/// Empties the budget of `site`, on a clock that does not wait.
fn drain() {
    struct Never;
    impl redial::time::Sleeper for Never {
        type Sleep = std::future::Ready<()>;
        fn now(&self) -> u64 {
            0
        }
        fn sleep_until(&self, _at: u64) -> Self::Sleep {
            std::future::ready(())
        }
    }
    for _ in 0..6 {
        FAILURES.store(3, Ordering::Relaxed);
        let mut call = pin!(site(&1).sleeping_on(Never).into_future());
        let ended = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(ended.is_ready(), "a sleep that is over at once");
    }
    FAILURES.store(0, Ordering::Relaxed);
}

fn emptied() -> RetryBudget {
    let budget = RetryBudget::try_new(1e6, 0.001).expect("valid");
    while budget.withdraw(COST, 0) != Grant::Refused {}
    budget
}

fn large() -> RetryBudget {
    RetryBudget::try_new(1e6, 0.0).expect("valid")
}

fn tps() -> tower::retry::budget::TpsBudget {
    tower::retry::budget::TpsBudget::new(s(10), 10, 0.5)
}

#[inline(never)]
fn each(n: u64, call: impl Fn(&u64) -> u64) {
    for i in 0..n {
        black_box(call(black_box(&i)));
    }
}

#[inline(always)]
fn poll_once<T, E>(future: impl Future<Output = Result<T, E>>) -> T {
    let mut future = pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(value)) => value,
        _ => panic!("not ready with a value"),
    }
}

fn poll_any(future: impl Future<Output = Result<u64, Busy>>) -> u64 {
    let mut future = pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result.unwrap_or(0),
        Poll::Pending => panic!("not ready"),
    }
}

/// Runs the calls in a task of a current-thread runtime; the operation that pends is woken by the
/// runtime's next turn.
fn runtime(n: u64, call: impl AsyncFn(&u64) -> Result<u64, Busy>) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        for i in 0..n {
            black_box(call(black_box(&i)).await.unwrap_or(0));
        }
    });
}

/// Pends once and wakes itself immediately.
async fn operation_pends(seed: &u64) -> Result<u64, Busy> {
    let mut pended = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut pended, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
    operation(seed, &0).await
}

/// A typical hand-written retry loop.
async fn hand(seed: &u64) -> Result<u64, Busy> {
    let mut attempt = 0;
    loop {
        match operation(seed, &0).await {
            Ok(value) => return Ok(value),
            Err(error) if attempt < 2 && is_transient(&error) => {
                tokio::time::sleep(Duration::from_millis(100 << attempt)).await;
                attempt += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

/// The same without a delay.
async fn hand_immediate(seed: &u64) -> Result<u64, Busy> {
    let mut attempt = 0;
    loop {
        match operation(seed, &0).await {
            Ok(value) => return Ok(value),
            Err(error) if attempt < 2 && is_transient(&error) => attempt += 1,
            Err(error) => return Err(error),
        }
    }
}

fn hand_blocking(seed: &u64) -> Result<u64, Busy> {
    let mut attempt = 0;
    loop {
        match blocking(seed) {
            Ok(value) => return Ok(value),
            Err(error) if attempt < 2 && is_transient(&error) => {
                std::thread::sleep(Duration::from_millis(100 << attempt));
                attempt += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Sizes of the futures around the operation of 64 bytes.
pub fn sizes() -> Vec<(&'static str, usize)> {
    use backon::Retryable;
    let seed = 1;
    let other = 2u64;
    // Two references: the closure of 16 bytes in the targets.
    let op = || operation(&seed, &other);
    vec![
        ("bare operation", size_of_val(&op())),
        ("hand-written loop", size_of_val(&hand(&seed))),
        ("redial::retry", size_of_val(&redial::retry(op).when(is_transient).into_future())),
        (
            "redial, with a deadline",
            size_of_val(&DEADLINE.retry(op).when(is_transient).into_future()),
        ),
        ("redial, hedged", size_of_val(&HEDGED.retry(op).when(is_transient).into_future())),
        #[cfg(feature = "tryhard")]
        (
            "tryhard",
            size_of_val(
                &tryhard::retry_fn(op).retries(2).exponential_backoff(ms(100)).into_future(),
            ),
        ),
        (
            "tokio-retry",
            size_of_val(&tokio_retry::RetryIf::start(
                tokio_retry::strategy::ExponentialBackoff::from_millis(2).take(2),
                op,
                is_transient as fn(&Busy) -> bool,
            )),
        ),
        (
            "backon",
            size_of_val(
                &op.retry(backon::ExponentialBuilder::default()).when(is_transient).into_future(),
            ),
        ),
    ]
}

/// Spawns a retry that sleeps for an hour.
pub fn spawn_sleeper(which: &str, set: &tokio::task::LocalSet) {
    use backon::Retryable;
    static HOUR: Policy =
        Policy::constant(s(3600)).jitter(Jitter::None).throttle(Throttle::none()).build();
    // Two captured words, as the closure of a real call has.
    let (one, two) = (black_box(1), black_box(2));
    let op = move || Fails64(black_box([one, two, one, two, one, two, one, two]));
    match which {
        "bare sleep" => drop(set.spawn_local(tokio::time::sleep(s(3600)))),
        "redial" => drop(set.spawn_local(HOUR.retry(op).when(is_transient).into_future())),
        "redial in an async block" => {
            drop(set.spawn_local(async move { HOUR.retry(op).when(is_transient).await }));
        }
        "backon" => {
            let every = backon::ConstantBuilder::default().with_delay(s(3600));
            drop(set.spawn_local(op.retry(every).when(is_transient).into_future()));
        }
        "tokio-retry" => {
            let every = tokio_retry::strategy::FixedInterval::new(s(3600)).take(2);
            drop(set.spawn_local(tokio_retry::RetryIf::start(
                every,
                op,
                is_transient as fn(&Busy) -> bool,
            )));
        }
        other => panic!("no sleeper {other}"),
    }
}

struct Fails64(#[allow(dead_code)] [u64; 8]);

impl Future for Fails64 {
    type Output = Result<u64, Busy>;
    fn poll(self: std::pin::Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Err(Busy))
    }
}

/// Requests through a tower service.
mod services {
    use super::*;
    use crate::operation::Operation;
    use tower::Service;
    use tower::util::ServiceFn;

    pub(super) fn service() -> ServiceFn<impl FnMut(u64) -> Operation + Clone> {
        tower::service_fn(|seed: u64| operation(&seed, &0))
    }

    pub(super) fn call(n: u64, mut service: impl Service<u64, Response = u64>) {
        for i in 0..n {
            black_box(poll_once(service.call(i)));
        }
    }
}

mod peers {
    use super::*;
    use tower::{Service, ServiceExt};

    /// The policy that users of tower have to write.
    #[derive(Clone)]
    struct Thrice {
        left: u32,
        budget: Option<std::sync::Arc<tower::retry::budget::TpsBudget>>,
    }

    impl tower::retry::Policy<u64, u64, Busy> for Thrice {
        type Future = std::future::Ready<()>;
        fn retry(&mut self, _: &mut u64, result: &mut Result<u64, Busy>) -> Option<Self::Future> {
            use tower::retry::budget::Budget as _;
            match result {
                Ok(_) => {
                    if let Some(budget) = &self.budget {
                        budget.deposit();
                    }
                    None
                }
                Err(_) if self.left > 0 => {
                    if self.budget.as_ref().is_some_and(|budget| !budget.withdraw()) {
                        return None;
                    }
                    self.left -= 1;
                    Some(std::future::ready(()))
                }
                Err(_) => None,
            }
        }
        fn clone_request(&mut self, request: &u64) -> Option<u64> {
            Some(*request)
        }
    }

    pub(super) fn tower_retry(n: u64, budget: bool) {
        let budget = budget.then(|| std::sync::Arc::new(tps()));
        let policy = Thrice { left: 2, budget };
        services::call(n, tower::retry::Retry::new(policy, services::service()));
    }

    pub(super) fn resilience_hedge(n: u64) {
        let layer = tower_resilience_hedge::HedgeLayer::builder()
            .delay(ms(20))
            .max_hedged_attempts(2)
            .build();
        let service = tower::service_fn(|seed: u64| async move { operation(&seed, &0).await });
        let mut service = layer.layer(service);
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            for i in 0..n {
                let ready = service.ready().await.unwrap_or_else(|_| panic!("ready"));
                black_box(ready.call(i).await.unwrap_or(0));
            }
        });
    }
}
