//! Hooks and call logs.

use std::sync::{Arc, Mutex};

use redial::tower::RetryLayer;
use redial::{CallLog, Policy, Throttle, ms};
use tower::{Layer, Service, ServiceExt};

use crate::common::{Answer, Failed, Scripted, always};

static THRICE: Policy = Policy::constant(ms(10)).attempts(3).throttle(Throttle::none()).build();

#[tokio::test(start_paused = true)]
async fn tower_hooks_see_the_events_of_every_request() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let (first, second) = (lines.clone(), lines.clone());
    let service = RetryLayer::new(&THRICE)
        .on_event(move |_, event| first.lock().unwrap().push(event.to_string()))
        .call_options(move |request: &u32, options| {
            let (request, second) = (*request, second.clone());
            options.on_event(move |_, _| second.lock().unwrap().push(format!("of {request}")))
        })
        .when(always)
        .layer(Scripted::answers(&[Ok(1)]));
    service.clone().oneshot(1).await.unwrap();
    service.oneshot(2).await.unwrap();
    let lines = lines.lock().unwrap();
    assert_eq!(lines[2..4], ["attempt 1 started", "of 1"]);
    assert_eq!(lines.iter().filter(|line| *line == "attempt 1 started").count(), 2);
    assert_eq!(lines.last().unwrap(), "of 2");
}

#[tokio::test(start_paused = true)]
async fn tower_call_log_equals_that_of_a_plain_call() {
    let logs = Arc::new(Mutex::new(Vec::new()));
    let sink = logs.clone();
    let answers = [Err(Failed::Busy), Err(Failed::Busy), Ok(7)];
    let service = RetryLayer::new(&THRICE)
        .when(always)
        .record_errors()
        .call_logs(move |log| sink.lock().unwrap().push(log))
        .layer(Scripted::answers(&answers));
    service.oneshot(1).await.unwrap();

    let mut plain = CallLog::default();
    let mut answers = answers.into_iter();
    let operation = || std::future::ready(answers.next().unwrap());
    let call = THRICE.retry(operation).when(always).record_errors();
    call.call_log(&mut plain).await.unwrap();

    let logs = logs.lock().unwrap();
    assert_eq!(logs.len(), 1);
    // Every event with its time since the start, and the text of its error.
    assert_eq!(logs[0].to_string(), plain.to_string());
    assert_eq!(logs[0].detail(2).and_then(|it| it.error.as_deref()), Some("busy"));
}

#[tokio::test(start_paused = true)]
async fn tower_call_log_of_a_dropped_request_ends_with_cancelled() {
    let logs = Arc::new(Mutex::new(Vec::new()));
    let sink = logs.clone();
    let mut service = RetryLayer::new(&THRICE)
        .when(always)
        .call_logs(move |log: CallLog| sink.lock().unwrap().push(log.to_string()))
        .layer(Scripted::timed(&[(500, Ok(7))]));
    let request = service.ready().await.unwrap().call(1);
    assert!(tokio::time::timeout(ms(20), request).await.is_err());
    let logs = logs.lock().unwrap();
    assert!(logs[0].contains("cancelled"), "{}", logs[0]);
}

#[tokio::test(start_paused = true)]
async fn tower_notify_gets_each_retried_error() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let service = RetryLayer::new(&THRICE)
        .when(always)
        .notify(move |error: &Failed, delay| log.lock().unwrap().push((*error, delay)))
        .layer(Scripted::answers(&[Err(Failed::Busy), Ok(7)]));
    assert_eq!(service.oneshot(1).await.unwrap(), 7);
    assert_eq!(*seen.lock().unwrap(), [(Failed::Busy, ms(10))]);
}

#[tokio::test(start_paused = true)]
async fn tower_notify_and_record_errors_may_come_before_when() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let inner = Scripted::answers(&[Err(Failed::Busy)]);
    let layer = RetryLayer::new(&THRICE)
        .notify(move |error: &Failed, delay| log.lock().unwrap().push((*error, delay)))
        .when(always);
    layer.layer(inner).oneshot(1).await.unwrap_err();
    assert_eq!(*seen.lock().unwrap(), [(Failed::Busy, ms(10)); 2]);

    let layer = RetryLayer::new(&THRICE).record_errors().when(always);
    let error = layer.layer(Scripted::answers(&[Err(Failed::Busy)])).oneshot(1).await.unwrap_err();
    assert_eq!(error.report().error.as_deref(), Some("busy"));
}

#[tokio::test(start_paused = true)]
async fn tower_hooks_may_come_before_until_and_classify() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (first, second) = (seen.clone(), seen.clone());
    let layer = RetryLayer::new(&THRICE)
        .notify(move |error: &Failed, _| first.lock().unwrap().push(("first", *error)))
        .notify(move |error: &Failed, _| second.lock().unwrap().push(("second", *error)))
        .until(|value: &u32| *value > 5)
        .when(always);
    let inner = Scripted::answers(&[Ok(1), Err(Failed::Busy), Ok(7)]);
    assert_eq!(layer.layer(inner).oneshot(1).await.unwrap(), 7);
    assert_eq!(*seen.lock().unwrap(), [("first", Failed::Busy), ("second", Failed::Busy)]);

    let is_busy = |answer: &Answer| {
        answer.is_err().then(|| redial::Directive::Retry(redial::Failure::server()))
    };
    let layer = RetryLayer::new(&THRICE).record_errors().classify(is_busy);
    let error = layer.layer(Scripted::answers(&[Err(Failed::Busy)])).oneshot(1).await.unwrap_err();
    assert_eq!((error.attempts(), error.report().error.as_deref()), (3, Some("busy")));
}
