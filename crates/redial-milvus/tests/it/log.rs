//! Log lines: kinds, order and texts (M8).

use redial::CallLog;
use redial_milvus::{LogColor, LogLine, log_lines};

use super::*;

/// The documented lines in order: the request, then the response of each attempt, and before
/// each retry three lines.
fn kinds(attempts: usize) -> Vec<&'static str> {
    let mut kinds = vec!["request", "response"];
    for _ in 1..attempts {
        kinds.extend(UNTIL_GONE);
        kinds.push("response");
    }
    kinds
}

#[test]
fn log_lines_follow_documented_order() {
    let unavailable = (10, boom(Code::Unavailable));
    let played = play(Options::default(), &[(5, OK)]);
    assert_eq!(played.kinds(), kinds(1));
    let played = play(Options::default(), &[unavailable.clone(), (5, OK)]);
    assert_eq!(played.kinds(), kinds(2));
    let played = play(Options::default(), &[unavailable.clone(), (5, boom(Code::Unimplemented))]);
    assert_eq!(played.kinds(), kinds(2), "retries are not exhausted");
    let played = play(Options::default(), &[unavailable]);
    assert_eq!(played.kinds(), [kinds(4), vec!["failed-after-retries"]].concat());
}

#[test]
fn log_lines_start_with_documented_brackets() {
    let played = play(
        Options::default().max_retries(1).timeout(ms(2500)),
        &[(12, boom(Code::Unavailable)), (7, boom(Code::Internal))],
    );
    let texts: Vec<&str> = played.log.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "[Request] Search (timeout 2500ms)",
            "[Response(12ms)] Search: UNAVAILABLE",
            "[Retry Delay 20ms] Search: after UNAVAILABLE",
            "[Retry Attempt 1/1] Search: will be sent again in 20ms",
            "[Retry Executing 1/1] Search: sent again",
            "[Response(7ms)] Search: INTERNAL",
            "[Failed after retries(39ms)] Search: 1 retries made",
        ]
    );
    let played = play(Options::default().timeout(ms(9)), &[(HANG, OK)]);
    assert_eq!(played.log[1].1, "[Response(9ms)] Search: no answer in time");
    let played = play(Options::default(), &[(1, boom(Code::NotFound)), (2, OK)]);
    assert_eq!(played.log[5].1, "[Response(2ms)] Search: ok");
}

#[test]
fn log_lines_from_call_log_equal_live_lines() {
    let clock = Clock::default();
    let options = Options::default();
    let interceptor = options.interceptor().expect("valid");
    let steps = [(12, boom(Code::Unavailable)), (3, boom(Code::Aborted)), (1, OK)];
    let script = Script::new(&clock, steps.clone());
    let mut call_log = CallLog::new();
    let call = interceptor.policy().retry(|| script.attempt());
    let call = call.when(|status: &TestStatus| {
        redial_milvus::classify(status.code, redial_milvus::MessageValidity::Valid)
    });
    let call = call.sleeping_on(clock).call_log(&mut call_log).into_future();
    assert!(clock.run(call).is_ok());
    let lines = log_lines("Search", &options, call_log.events());
    let bad: Vec<_> = lines.iter().filter(|line| line.is_failure).map(|line| &*line.text).collect();
    let failed = ["[Response(12ms)] Search: UNAVAILABLE", "[Response(3ms)] Search: ABORTED"];
    assert_eq!(bad, failed);
    let from_call_log: Vec<_> = lines.into_iter().map(|line| (line.kind, line.text)).collect();
    assert_eq!(from_call_log, play(options, &steps).log);
}

#[test]
fn log_lines_color_only_responses() {
    let line = |kind, is_failure| LogLine { kind, at: 0, text: "[..] Search".into(), is_failure };
    let good = line(LogLineKind::Response, false);
    let bad = line(LogLineKind::Response, true);
    assert_eq!(good.colored(LogColor::Ansi), "\u{1b}[32m[..] Search\u{1b}[0m");
    assert_eq!(bad.colored(LogColor::Ansi), "\u{1b}[31m[..] Search\u{1b}[0m");
    for line in [&good, &bad] {
        assert_eq!(line.colored(LogColor::Plain), line.text);
        assert_eq!(line.to_string(), line.text);
    }
    let request = line(LogLineKind::Request, false);
    assert_eq!(request.colored(LogColor::Ansi), request.text);
    let file = std::fs::File::open(file!()).or_else(|_| std::fs::File::open("Cargo.toml"));
    assert_eq!(
        LogColor::for_stream(&file.expect("a file")),
        LogColor::Plain,
        "a file is no terminal"
    );
}

#[cfg(feature = "tracing")]
#[path = "../common/events.rs"]
mod events;

#[cfg(feature = "tracing")]
#[test]
fn log_lines_without_hook_are_debug_events() {
    use events::DebugEvents;

    let clock = Clock::default();
    let interceptor = Options::default().interceptor().expect("valid");
    let script = Script::new(&clock, [(0, boom(Code::Unavailable)), (4, OK)]);
    let events = DebugEvents::default();
    tracing::subscriber::with_default(events.clone(), || {
        let call = interceptor.call("Search", || script.attempt()).sleeping_on(clock);
        assert!(clock.run(call.send()).is_ok());
    });
    let texts = events.texts();
    assert_eq!(texts.len(), 6, "{texts:?}");
    assert_eq!(texts[5], "[Response(4ms)] Search: ok");
}
