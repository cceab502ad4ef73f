use std::sync::{Arc, Mutex};

use redial_faults::grpc::Answer;
use redial_milvus::{LogColor, Options};

use crate::{busy, client_of, interceptor, search};

#[cfg(feature = "tracing")]
#[path = "../common/events.rs"]
mod events;

/// A terminal: the master of a new pseudo terminal is one.
#[cfg(target_os = "linux")]
fn terminal() -> LogColor {
    let terminal = std::fs::OpenOptions::new().read(true).write(true).open("/dev/ptmx");
    LogColor::for_stream(&terminal.expect("a pseudo terminal"))
}

#[cfg(not(target_os = "linux"))]
fn terminal() -> LogColor {
    LogColor::Ansi
}

#[tokio::test(start_paused = true)]
async fn layer_log_colors_responses_on_a_terminal() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let (sink, color) = (lines.clone(), terminal());
    let interceptor = interceptor(Options::DEFAULT)
        .log(move |line| sink.lock().unwrap().push(line.colored(color)));
    let (mut client, _server) = client_of(interceptor.layer(), [busy(), Answer::echo()]);
    search(&mut client).await.unwrap();
    let expected = [
        "[Request] Search (timeout 15000ms)",
        "\u{1b}[31m[Response(0ms)] Search: UNAVAILABLE\u{1b}[0m",
        "[Retry Delay 20ms] Search: after UNAVAILABLE",
        "[Retry Attempt 1/3] Search: will be sent again in 20ms",
        "[Retry Executing 1/3] Search: sent again",
        "\u{1b}[32m[Response(0ms)] Search: ok\u{1b}[0m",
    ];
    assert_eq!(*lines.lock().unwrap(), expected, "red for errors, green for success");
}

#[cfg(feature = "tracing")]
#[tokio::test(start_paused = true)]
async fn layer_log_lines_are_debug_events() {
    let events = events::DebugEvents::default();
    let guard = tracing::subscriber::set_default(events.clone());
    let layer = interceptor(Options::DEFAULT).layer();
    let (mut client, _server) = client_of(layer, [busy(), Answer::echo()]);
    search(&mut client).await.unwrap();
    drop(guard);
    let texts = events.texts();
    assert_eq!(texts.len(), 6, "{texts:?}");
    assert_eq!(texts[0], "[Request] Search (timeout 15000ms)");
    assert_eq!(texts[5], "[Response(0ms)] Search: ok");
}
