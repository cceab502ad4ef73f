//! The log: a line for each retry and each request that is not retried, with request, attempt, delay and
//! reason; a call log yields the same lines as the hook. Requests run against a scripted fake; events are
//! constructed by hand where a driver does not produce them.

mod common;

use std::sync::{Arc, Mutex};

use common::{AttemptOutcome, Server, after, fails, ok, status};
use redial::{
    CallLog, Directive, Event, Failure, StopReason,
    classify::Classification,
    ms, s,
    strategy::{Decision, Request},
};
use redial_couchbase::{
    BestEffort, FailFast, Orchestrator, RetryLogEvent, RetryLogLine, RetryLogger, operation,
    reason, retry_log_lines,
};

#[tokio::test(start_paused = true)]
async fn log_line_has_request_attempt_delay_and_reason() {
    type Kept = Vec<(String, String, u32, RetryLogEvent)>;
    let lines: Arc<Mutex<Kept>> = Arc::default();
    let kept = lines.clone();
    let orchestrator = Orchestrator::with(BestEffort::new()).on_log(move |context, line| {
        let entry = (context.to_string(), line.to_string(), line.attempt, line.event);
        kept.lock().expect("no panic").push(entry);
    });
    let server = Server::new([
        after(3, reason::KV_LOCKED),
        fails(reason::KV_NOT_MY_VBUCKET),
        fails(reason::SOCKET_CLOSED_WHILE_IN_FLIGHT),
    ]);
    let request = orchestrator.request(operation::KV_UPSERT, s(2)).label("airline_10");
    assert!(request.run(|attempt| server.answer(attempt)).await.is_err());
    let line = |text: &str, attempt, event| {
        ("kv.upsert airline_10".to_owned(), text.to_owned(), attempt, event)
    };
    let expected = [
        line("retry KV_LOCKED", 1, RetryLogEvent::Retry { after: ms(1) }),
        line("retry KV_NOT_MY_VBUCKET", 2, RetryLogEvent::Retry { after: ms(10) }),
        line(
            "not-retried SOCKET_CLOSED_WHILE_IN_FLIGHT",
            3,
            RetryLogEvent::NotRetried { stop_reason: StopReason::NotIdempotent },
        ),
    ];
    assert_eq!(*lines.lock().expect("no panic"), expected);
}

#[tokio::test(start_paused = true)]
async fn log_lines_from_call_log_equal_hook_lines() {
    let scripts: [Vec<AttemptOutcome>; 5] = [
        vec![ok()],
        vec![status(0x86), status(0x07), ok()],
        vec![status(0x86), status(0x01)],
        vec![fails(reason::UNKNOWN)],
        vec![status(0x09), AttemptOutcome::Nothing],
    ];
    for script in scripts {
        let heard: Arc<Mutex<Vec<RetryLogLine>>> = Arc::default();
        let kept = heard.clone();
        let orchestrator =
            Orchestrator::new().on_log(move |_, line| kept.lock().expect("no panic").push(*line));
        let (server, mut call_log) = (Server::new(script), CallLog::new());
        let request = orchestrator.request(operation::KV_GET, s(2)).call_log(&mut call_log);
        let _ = request.run(|attempt| server.answer(attempt)).await;
        assert_eq!(retry_log_lines(call_log.events()), *heard.lock().expect("no panic"));
    }
}

#[tokio::test(start_paused = true)]
async fn log_retry_is_written_before_the_attempt() {
    let order: Arc<Mutex<Vec<String>>> = Arc::default();
    let (kept, sent) = (order.clone(), order.clone());
    let orchestrator = Orchestrator::with(BestEffort::new())
        .on_log(move |_, line| kept.lock().expect("no panic").push(line.to_string()));
    let request = orchestrator.request(operation::KV_GET, s(2));
    let result = request.run(|attempt| {
        sent.lock().expect("no panic").push(format!("attempt {}", attempt.number()));
        let first = attempt.number() == 1;
        async move { if first { Err(redial_couchbase::Response::kv(0x09)) } else { Ok(()) } }
    });
    assert!(result.await.is_ok());
    assert_eq!(*order.lock().expect("no panic"), ["attempt 1", "retry KV_LOCKED", "attempt 2"]);
}

#[tokio::test(start_paused = true)]
async fn log_declined_retry_as_not_retried() {
    fn fails_itself(_: &Request<'_>) -> Decision {
        Decision::Fail("broken".into())
    }
    for orchestrator in [Orchestrator::with(FailFast), Orchestrator::with(fails_itself)] {
        let (server, mut call_log) = (Server::new([status(0x09)]), CallLog::new());
        let request = orchestrator.request(operation::KV_GET, s(2)).call_log(&mut call_log);
        assert!(request.run(|attempt| server.answer(attempt)).await.is_err());
        let lines = retry_log_lines(call_log.events());
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0].to_string(), "not-retried KV_LOCKED");
        assert_eq!((lines[0].attempt, lines[0].delay()), (1, None));
        assert_eq!(
            lines[0].event,
            RetryLogEvent::NotRetried { stop_reason: StopReason::StrategyDeclined }
        );
    }
}

#[test]
fn log_failure_without_reason_as_unknown() {
    let failed = Directive::Retry(Failure::server());
    let events = [
        (0, Event::CallStarted { deadline: Some(100), idempotent: true }),
        (0, Event::AttemptStarted { attempt: 1, number: 1 }),
        (5, Event::AttemptOutcome { attempt: 1, classification: Classification::from(failed) }),
        (5, Event::CallEnded { stop_reason: StopReason::StrategyDeclined, attempt: Some(1) }),
    ];
    let lines = retry_log_lines(&events);
    assert_eq!(lines.iter().map(ToString::to_string).collect::<Vec<_>>(), ["not-retried UNKNOWN"]);
}

#[test]
fn log_has_no_line_for_final_or_dropped_call() {
    for (directive, stop_reason) in [
        (Directive::Succeed, StopReason::Succeeded),
        (Directive::Fail, StopReason::NotRetryable),
        (Directive::Retry(Failure::server()), StopReason::Cancelled),
    ] {
        let mut log = RetryLogger::new();
        let classification = Classification::from(directive);
        assert_eq!(log.line(0, &Event::AttemptStarted { attempt: 1, number: 1 }), None);
        assert_eq!(log.line(0, &Event::AttemptOutcome { attempt: 1, classification }), None);
        assert_eq!(
            log.line(0, &Event::CallEnded { stop_reason, attempt: None }),
            None,
            "{stop_reason}"
        );
    }
}
