//! Dropped requests and panics.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Waker};

use redial::throttle::RetryBudget;
use redial::tower::RetryLayer;
use redial::{Policy, Throttle, ms};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::common::{Failed, Scripted, always};

static BUDGET: RetryBudget = RetryBudget::new(4.0, 0.0);
static SLOW: Policy =
    Policy::constant(ms(50)).attempts(3).throttle(Throttle::budget(&BUDGET)).build();

#[tokio::test(start_paused = true)]
async fn tower_dropped_request_refunds_its_retry() {
    let inner = Scripted::answers(&[Err(Failed::Busy)]);
    let log = inner.log();
    let mut service = RetryLayer::new(&SLOW).when(always).layer(inner);
    let request = service.ready().await.unwrap().call(1);
    assert!(tokio::time::timeout(ms(20), request).await.is_err());
    assert_eq!(log().len(), 1);
    assert_eq!(SLOW.tokens(0), Some(4.0));
}

#[tokio::test(start_paused = true)]
async fn tower_dropped_request_drops_its_attempt() {
    struct CountDrop(Arc<AtomicU32>);
    impl Drop for CountDrop {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let dropped = Arc::new(AtomicU32::new(0));
    let count = dropped.clone();
    let inner = service_fn(move |_: u32| {
        let guard = CountDrop(count.clone());
        async move {
            let _guard = guard;
            std::future::pending::<Result<u32, Failed>>().await
        }
    });
    let request = RetryLayer::new(&SLOW).when(always).layer(inner).oneshot(1);
    assert!(tokio::time::timeout(ms(20), request).await.is_err());
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn tower_request_that_is_not_polled_is_not_sent() {
    let inner = Scripted::answers(&[Ok(7)]);
    let log = inner.log();
    let mut service = RetryLayer::new(&SLOW).when(always).layer(inner);
    drop(service.ready().await.unwrap().call(1));
    assert!(log().is_empty());
}

#[test]
fn tower_panic_of_the_service_is_propagated() {
    static COUNTED: Policy = Policy::immediate().throttle(Throttle::none()).build();
    let inner = service_fn(|_: u32| async { panic!("the service") as Result<u32, Failed> });
    let mut service = RetryLayer::new(&COUNTED).when(always).layer(inner);
    let mut request = pin!(service.call(1));
    let cx = &mut Context::from_waker(Waker::noop());
    let mut poll = || std::panic::catch_unwind(AssertUnwindSafe(|| request.as_mut().poll(cx)));
    assert!(poll().is_err());
    assert!(poll().is_err(), "polled after completion");
}
