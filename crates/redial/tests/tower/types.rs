//! Named types, `Send`, and services in tasks.

use std::sync::Arc;

use redial::parts::{Origin, When};
use redial::testing::{Clock, block_on};
use redial::time::{Sleeper, SleepingOn, Tokio};
use redial::tower::{
    Cloned, NoOptions, ResponseFuture, RetryLayer, RetryService, SharedHedged, StaticPolicy,
};
use redial::{AnyPolicy, Hedged, Policy, Throttle, ms};
use tower::{Layer, Service, ServiceExt};

use crate::common::{Failed, Scripted, always};

static THRICE: Policy = Policy::constant(ms(10)).attempts(3).throttle(Throttle::none()).build();
static READ: Hedged = Policy::hedged(ms(10)).attempts(2).throttle(Throttle::none()).build();

type Accepts = When<fn(&Failed) -> bool>;
type Retries<P> = RetryLayer<P, Accepts>;
type Response<P> = ResponseFuture<Scripted, u32, P, Accepts, Cloned, Tokio>;

/// A struct names the service and its future.
struct Client<P> {
    service: RetryService<Scripted, Retries<P>>,
}

fn accepts() -> fn(&Failed) -> bool {
    always
}

#[tokio::test(start_paused = true)]
async fn tower_service_and_future_have_names() {
    let layer: Retries<StaticPolicy> = RetryLayer::new(&THRICE).when(accepts());
    let mut client = Client { service: layer.layer(Scripted::answers(&[Ok(7)])) };
    let response: Response<StaticPolicy> = client.service.ready().await.unwrap().call(1);
    assert_eq!(response.await.unwrap(), 7);
    let layer: Retries<SharedHedged> = RetryLayer::new(READ.clone()).when(accepts());
    let mut client = Client { service: layer.layer(Scripted::answers(&[Ok(7)])) };
    let response: Response<SharedHedged> = client.service.ready().await.unwrap().call(1);
    assert_eq!(response.await.unwrap(), 7);
}

#[test]
fn tower_layer_takes_the_sleeper_of_its_policy() {
    static ON_CLOCK: SleepingOn<Policy, Clock> =
        Policy::constant(ms(10)).attempts(3).throttle(Throttle::none()).build().sleeping_on(Clock);
    fn millis<P>(layer: &RetryLayer<P, Accepts, Cloned, NoOptions, Clock>) -> u64
    where
        P: Origin<'static>,
    {
        let answers = std::cell::Cell::new(0);
        let inner = tower::service_fn(|_: u32| {
            answers.set(answers.get() + 1);
            std::future::ready(if answers.get() < 3 { Err(Failed::Busy) } else { Ok(7) })
        });
        let start = Clock.now();
        assert_eq!(block_on(layer.layer(inner).oneshot(1)).unwrap(), 7);
        (Clock.now() - start) / 1_000_000
    }
    assert_eq!(millis(&RetryLayer::new(&ON_CLOCK).when(accepts())), 20);
    assert_eq!(millis(&RetryLayer::new(ON_CLOCK.clone()).when(accepts())), 20);
    let any = AnyPolicy::from(THRICE.clone()).sleeping_on(Clock);
    assert_eq!(millis(&RetryLayer::new(any).when(accepts())), 20);
}

#[tokio::test(start_paused = true)]
async fn tower_requests_run_in_spawned_tasks() {
    fn is_send<T: Send>(value: T) -> T {
        value
    }
    let answers = [Err(Failed::Busy), Ok(7)];
    let retried = RetryLayer::new(&THRICE).when(always).layer(Scripted::answers(&answers));
    let owned =
        RetryLayer::new(Arc::new(THRICE.clone())).when(always).layer(Scripted::answers(&answers));
    let hedged =
        RetryLayer::new(&READ).when(always).on_event(|_, _| {}).layer(Scripted::answers(&answers));
    let tasks = [
        tokio::spawn(is_send(retried.oneshot(1))),
        tokio::spawn(async move { owned.oneshot(1).await }),
        tokio::spawn(async move { hedged.oneshot(1).await }),
    ];
    for task in tasks {
        assert_eq!(task.await.unwrap().unwrap(), 7);
    }
}

#[tokio::test(start_paused = true)]
async fn tower_service_can_be_boxed_and_cloned() {
    let service =
        RetryLayer::new(&THRICE).when(always).layer(Scripted::answers(&[Err(Failed::Busy), Ok(7)]));
    let boxed = tower::util::BoxCloneSyncService::new(service.map_err(Box::new));
    assert_eq!(boxed.clone().oneshot(1).await.unwrap(), 7);
}

#[tokio::test(start_paused = true)]
async fn tower_layers_can_be_nested() {
    let inner = Scripted::answers(&[Err(Failed::Busy)]);
    let log = inner.log();
    let service = RetryLayer::new(&THRICE).when(always).layer(inner);
    let service = RetryLayer::new(&THRICE)
        .when(|error: &redial::Error<Failed>| error.last().is_some())
        .layer(service);
    let error = service.oneshot(1).await.unwrap_err();
    assert_eq!((error.attempts(), log().len()), (3, 9));
}
