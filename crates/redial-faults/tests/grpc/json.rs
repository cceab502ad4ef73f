//! Scripts as JSON: their meaning, and errors in them.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use redial_faults::grpc::{
    Action, Answer, AnswerStep, Close, GoAway, LastStream, OnConnect, Payload, Reason,
    ResponseHeaders, Script, Server, StatusNumber, WaitFor,
};
use serde_json::{Value, json};

use super::raw::{Client, message, ms};

#[track_caller]
fn answer(text: &str) -> Answer {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[track_caller]
fn mistake(text: &str) -> String {
    match serde_json::from_str::<Answer>(text) {
        Ok(answer) => panic!("{text} is {answer:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn json_scenario_attempts_have_the_same_meaning() {
    let cases = [
        (r#"{"outcome": "UNAVAILABLE"}"#, Answer::trailers_only(StatusNumber::UNAVAILABLE)),
        (
            r#"{"outcome": "ABORTED", "after": 2.5, "pushback": "-1"}"#,
            Answer::trailers_only(StatusNumber::ABORTED)
                .pushback("-1")
                .after(Duration::from_micros(2500)),
        ),
        (
            r#"{"outcome": "ABORTED", "pushback": ["1", "", "\u00ff"]}"#,
            Answer::trailers_only(StatusNumber::ABORTED)
                .pushback("1")
                .pushback("")
                .pushback(b"\xff"),
        ),
        (
            r#"{"outcome": "OK", "after": 3}"#,
            Answer::headers().after(ms(3)).message("").trailers(StatusNumber::OK),
        ),
        (
            r#"{"outcome": "OK", "after": 3, "headers": 1}"#,
            Answer::headers().after(ms(1)).message("").after(ms(3)).trailers(StatusNumber::OK),
        ),
        (
            r#"{"outcome": "INTERNAL", "after": 3, "headers": 1}"#,
            Answer::headers().after(ms(1)).trailers(StatusNumber::INTERNAL).after(ms(3)),
        ),
        (r#"{"outcome": "hang"}"#, Answer::hang()),
        (r#"{"outcome": "hang", "headers": 4}"#, Answer::headers().after(ms(4))),
        (
            r#"{"seen": "unprocessed", "after": 5}"#,
            Answer::reset(Reason::REFUSED_STREAM).after(ms(5)),
        ),
        (r#"{"seen": "unsent"}"#, Answer::unsent()),
        (r#"{"seen": "unconnected", "after": 3}"#, Answer::unconnected().after(ms(3))),
        (
            r#"{"outcome": "UNAVAILABLE", "accepts": 2}"#,
            Answer::trailers_only(StatusNumber::UNAVAILABLE).accepts(2),
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(answer(text), expected, "{text}");
    }
}

#[test]
fn json_faults_have_their_own_fields() {
    let go_away = |last| Answer::go_away(last, Reason::NO_ERROR);
    let cases = [
        (r#"{"outcome": 99, "message": "a%"}"#, Answer::trailers_only(StatusNumber(99)).text("a%")),
        (r#"{"outcome": "OK", "replies": []}"#, Answer::trailers_only(StatusNumber::OK)),
        (
            r#"{"outcome": "ABORTED", "metadata": {"a": "1", "b": ["2", "3"]}, "end_stream": false}"#,
            Answer::trailers_only(StatusNumber::ABORTED)
                .metadata("a", "1")
                .metadata("b", "2")
                .metadata("b", "3")
                .without_end_stream(),
        ),
        (
            r#"{"outcome": "OK", "after": 9, "replies": [{"after": 2, "text": "ü"}, {"hex": "00fF"}, {"echo": true}]}"#,
            Answer::headers()
                .after(ms(2))
                .message("ü")
                .message(&[0, 255][..])
                .after(ms(9))
                .echo_one()
                .trailers(StatusNumber::OK),
        ),
        (r#"{"outcome": "OK", "replies": [{"echo_rest": true}]}"#, Answer::echo()),
        (r#"{"reset": "CANCEL"}"#, Answer::reset(Reason::CANCEL)),
        (r#"{"reset": 4294967295}"#, Answer::reset(Reason::from(u32::MAX))),
        (
            r#"{"headers": 1, "reset": "NO_ERROR", "after": 2, "replies": [{"bytes": 3}]}"#,
            Answer::headers()
                .after(ms(1))
                .message(vec![0; 3])
                .after(ms(2))
                .then_reset(Reason::NO_ERROR),
        ),
        (r#"{"goaway": {"last": "below"}}"#, go_away(LastStream::Below)),
        (r#"{"goaway": {"last": "this"}}"#, go_away(LastStream::This)),
        (
            r#"{"goaway": {"last": "above"}, "close": "abrupt", "after": 3}"#,
            go_away(LastStream::Above).after(ms(3)).then_close(Close::Abrupt),
        ),
        (
            r#"{"goaway": {"last": 7, "code": 77, "debug": "why"}}"#,
            Answer::go_away(LastStream::Id(7), Reason::from(77)).debug("why"),
        ),
        (
            r#"{"close": "orderly", "once": "headers"}"#,
            Answer::close(Close::Graceful).wait_for(WaitFor::Headers),
        ),
        (r#"{"close": "orderly", "once": "quiet"}"#, Answer::close(Close::Graceful)),
        (
            r#"{"close": "abrupt", "once": "request"}"#,
            Answer::close(Close::Abrupt).wait_for(WaitFor::Request),
        ),
        (
            r#"{"headers": 0, "close": "orderly", "once": {"messages": 2}}"#,
            Answer::headers().then_close(Close::Graceful).wait_for(WaitFor::Messages(2)),
        ),
        (
            r#"{"http": {"status": 404, "type": "text/html", "body": "no"}, "after": 1}"#,
            Answer::of([
                step(1, headers(404, &[("content-type", "text/html")], false)),
                step(1, Action::Data("no".into())),
                step(1, Action::EndStream),
            ]),
        ),
        (r#"{"http": {"status": 502}}"#, Answer::http_empty(StatusCode::BAD_GATEWAY)),
        (
            r#"{"door": "silent", "after": 2}"#,
            Answer::on_connect(OnConnect::SendNothing).after(ms(2)),
        ),
        (r#"{"door": "closed-at-once"}"#, Answer::on_connect(OnConnect::CloseImmediately)),
    ];
    for (text, expected) in cases {
        assert_eq!(answer(text), expected, "{text}");
    }
}

fn step(after: u64, action: Action) -> AnswerStep {
    AnswerStep { after: ms(after), action }
}

fn fields(list: &[(&'static str, &'static str)]) -> HeaderMap {
    list.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
}

fn headers(status: u16, list: &[(&'static str, &'static str)], end_stream: bool) -> Action {
    let status = StatusCode::from_u16(status).unwrap();
    Action::Headers(ResponseHeaders { status, fields: fields(list), end_stream })
}

#[test]
fn json_steps_express_every_answer() {
    let text = r#"{ "once": "request", "steps": [
        { "headers": {"status": 200, "fields": {"content-type": "application/grpc", "x": ["1", "2"]}} },
        { "after": 1, "message": {"text": "a"} },
        { "after": 2, "data": {"hex": "0000"} },
        { "after": 3, "goaway": {"last": "above"} },
        { "after": 4, "trailers": {"grpc-status": "0"} },
        { "after": 5, "close": "orderly" } ] }"#;
    let go_away = GoAway { last: LastStream::Above, reason: Reason::NO_ERROR, debug: Bytes::new() };
    let expected = Answer::of([
        step(
            0,
            headers(200, &[("content-type", "application/grpc"), ("x", "1"), ("x", "2")], false),
        ),
        step(1, Action::Message(Payload::Bytes("a".into()))),
        step(2, Action::Data(vec![0, 0].into())),
        step(3, Action::GoAway(go_away)),
        step(4, Action::Trailers(fields(&[("grpc-status", "0")]))),
        step(5, Action::Close(Close::Graceful)),
    ]);
    assert_eq!(answer(text), expected.wait_for(WaitFor::Request));
    let text = r#"{"steps": [{"headers": {"end_stream": true}}]}"#;
    assert_eq!(answer(text), Answer::of([step(0, headers(200, &[], true))]));
    let text =
        r#"{"steps": [{"headers": {}}, {"message": {"echo_rest": true}}, {"end_stream": true}]}"#;
    let echo = step(0, Action::Message(Payload::EchoRest));
    let expected =
        Answer::of([step(0, headers(200, &[], false)), echo, step(0, Action::EndStream)]);
    assert_eq!(answer(text), expected);
    assert_eq!(answer(r#"{"steps": []}"#), Answer::hang());
}

#[test]
fn json_meaningless_fields_are_refused_with_advice() {
    let cases = [
        (r#"{}"#, "an attempt has one of \"outcome\", \"seen\""),
        (r#"{"outcome": "OK", "reset": "CANCEL"}"#, "an attempt has one of"),
        (r#"{"outcome": "OK", "seen": "unsent"}"#, "an attempt has one of"),
        (
            r#"{"outcome": "ok"}"#,
            "unknown status \"ok\"; expected \"hang\", a number or one of OK, CANCELLED",
        ),
        (r#"{"outcome": 1.5}"#, "expected a name or a number"),
        (
            r#"{"outcom": "OK"}"#,
            "unknown field `outcom`, expected one of `once`, `accepts`, `after`",
        ),
        (r#"{"outcome": "OK", "outcome": "OK"}"#, "duplicate field `outcome`"),
        (
            r#"{"outcome": "OK", "after": -1}"#,
            "expected milliseconds that are not negative, found -1",
        ),
        (r#"{"outcome": "OK", "after": 1e300}"#, "expected milliseconds that are not negative"),
        (r#"{"outcome": "OK", "headers": 5, "after": 4}"#, "ahead of the end"),
        (
            r#"{"outcome": "OK", "after": 4, "replies": [{"after": 5, "bytes": 0}]}"#,
            "ahead of the end",
        ),
        (
            r#"{"outcome": "OK", "after": 9, "replies": [{"after": 5, "bytes": 0}, {"after": 4, "bytes": 0}]}"#,
            "they come in order",
        ),
        (r#"{"outcome": "OK", "replies": [{}]}"#, "expected one of \"text\", \"hex\""),
        (r#"{"outcome": "OK", "replies": [{"hex": "0"}]}"#, "two digits for each byte"),
        (r#"{"outcome": "OK", "replies": [{"hex": "0g"}]}"#, "two digits for each byte"),
        (r#"{"outcome": "OK", "replies": [{"echo": false}]}"#, "expected true, or no such field"),
        (r#"{"outcome": "OK", "replies": [{"bytes": 67108865}]}"#, "at most 67108864 are made up"),
        (r#"{"outcome": "ABORTED", "pushback": "a\nb"}"#, "cannot stand in a header"),
        (r#"{"outcome": "ABORTED", "pushback": "\u0100"}"#, "nothing above U+00FF"),
        (r#"{"outcome": "ABORTED", "pushback": 5}"#, "expected a text, or a list of texts"),
        // Error messages must not contain Rust type names.
        (r#"{"outcome": "OK", "after": "5ms"}"#, "expected a number of milliseconds"),
        (r#"{"http": 503}"#, "integer `503`, expected an object like {\"status\": 503}"),
        (r#"{"goaway": true}"#, "boolean `true`, expected an object like {\"last\": \"below\"}"),
        (r#"{"outcome": "OK", "replies": ["abc"]}"#, "expected an object like {\"text\": \"abc\"}"),
        (r#"{"steps": ["end"]}"#, "string \"end\", expected an object like {\"end_stream\": true}"),
        (r#"{"steps": [{"headers": 200}]}"#, "expected an object like {\"status\": 200}"),
        (r#"{"outcome": "ABORTED", "metadata": {"a b": "1"}}"#, "\"a b\" is no name of a header"),
        (r#"{"outcome": "ABORTED", "metadata": {"a": "1", "a": "2"}}"#, "\"a\" is there twice"),
        (
            r#"{"outcome": "ABORTED", "metadata": {"connection": "close"}}"#,
            "no header fields about the connection",
        ),
        (r#"{"outcome": "hang", "pushback": "5"}"#, "\"pushback\" has no effect"),
        (r#"{"seen": "unsent", "headers": 5}"#, "\"headers\" has no effect"),
        (r#"{"seen": "unconnected", "accepts": 5}"#, "\"accepts\" has no effect"),
        (r#"{"seen": "lost"}"#, "unknown variant `lost`"),
        (r#"{"outcome": "hang", "replies": [{"bytes": 0}]}"#, "\"replies\" has no effect"),
        (r#"{"outcome": "OK", "headers": 0, "end_stream": false}"#, "\"end_stream\" has no effect"),
        (
            r#"{"reset": "CANCLE"}"#,
            "unknown error code \"CANCLE\"; expected a number or one of NO_ERROR",
        ),
        (r#"{"reset": -1}"#, "has 32 bits"),
        (r#"{"goaway": {}}"#, "missing field `last`"),
        (
            r#"{"goaway": {"last": "beneath"}}"#,
            "unknown last stream \"beneath\"; expected one of \"below\"",
        ),
        (r#"{"goaway": {"last": 2147483648}}"#, "a stream id has 31 bits"),
        (r#"{"close": "slowly"}"#, "unknown way to close \"slowly\""),
        (r#"{"http": {"status": 99}}"#, "99 is no status of HTTP"),
        (r#"{"http": {"status": 103}}"#, "below 200"),
        (r#"{"door": "shut"}"#, "unknown door \"shut\"; expected one of \"open\""),
        (r#"{"once": "later", "outcome": "OK"}"#, "unknown variant `later`"),
        (r#"{"accepts": -1, "outcome": "OK"}"#, "invalid value"),
        (r#"{"steps": [{}]}"#, "a step has \"after\" and one of"),
        (r#"{"steps": [{"headers": {}, "reset": 1}]}"#, "a step has \"after\" and one of"),
        (r#"{"after": 1, "steps": []}"#, "\"after\" has no effect"),
        (r#"{"steps": [{"message": {"text": ""}}]}"#, "headers come before messages"),
        (r#"{"steps": [{"trailers": {}}]}"#, "headers come before messages"),
        (r#"{"steps": [{"headers": {}}, {"headers": {}}]}"#, "response headers are sent once"),
        (
            r#"{"steps": [{"headers": {}}, {"end_stream": true}, {"reset": 1}]}"#,
            "the stream has ended already",
        ),
        (r#"{"steps": [{"reset": 1}, {"headers": {}}]}"#, "the stream has ended already"),
        (
            r#"{"steps": [{"close": "orderly"}, {"close": "orderly"}]}"#,
            "after the connection is closed",
        ),
        (r#"{"steps": [{"headers": {}}, {"data": {"echo": true}}]}"#, "an echo is a message"),
        (
            r#"{"steps": [{"headers": {}}, {"message": {"after": 1, "text": ""}}]}"#,
            "\"after\" belongs to the step",
        ),
    ];
    for (text, expected) in cases {
        let mistake = mistake(text);
        assert!(mistake.contains(expected), "{text}\n  {mistake}\n  lacks: {expected}");
    }
}

#[test]
fn json_generated_message_size_is_limited() {
    let text = r#"{"outcome": "OK", "replies": [{"bytes": 67108864}]}"#;
    assert_eq!(answer(text), Answer::reply(vec![0; 64 * 1024 * 1024]));
}

#[test]
fn json_file_errors_have_line_and_column() {
    let cases = [
        ("{\n \"attempt\": [] }", "unknown field `attempt`", 2),
        ("{\n \"calls\": {\"a\": [],\n \"a\": []} }", "\"a\" is there twice", 3),
        (
            "{\n \"attempts\": [\n {\"outcome\": \"OK\"},\n {\"outcome\": \"KO\"} ] }",
            "unknown status",
            4,
        ),
        ("{\n \"otherwise\": {\"seen\": \"unsent\"} }", "the default answer needs a stream", 2),
        ("{\n \"doors\": [{}] }", "missing field `door`", 2),
        ("[]", "expected a script: an object", 1),
        ("{\n \"attempts\": [[]] }", "expected an attempt: an object", 2),
    ];
    for (text, expected, line) in cases {
        let error = serde_json::from_str::<Server>(text).unwrap_err();
        assert!(error.to_string().contains(expected), "{text}: {error}");
        assert_eq!(error.line(), line, "{text}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn json_file_is_played() {
    let text = r#"{
        "about": "all of it",
        "attempts": [{"outcome": "ABORTED", "after": 4}],
        "calls": {"b": [{"outcome": "OK", "replies": [{"text": "b"}]}], "a": [{"outcome": "CANCELLED"}]},
        "doors": [{"door": "closed-at-once"}, {"door": "open", "after": 3}],
        "otherwise": {"outcome": "NOT_FOUND"},
        "concurrent_streams": 7 }"#;
    let server = serde_json::from_str::<Server>(text).unwrap().on_pipe();
    drop(server.connect().await.unwrap());
    let mut client = Client::of(&server).await;
    let seen = client.unary("x").await;
    assert_eq!(seen.header("grpc-status"), Some("10"), "{seen:?}");
    assert_eq!(seen.ended, ms(7), "3 for the door, 4 for the answer");
    assert_eq!(client.unary("x").await.header("grpc-status"), Some("5"));
    assert_eq!(client.unary_with(&[("x-redial-call", "b")], "x").await.data, message("b"));
    assert_eq!(
        client.unary_with(&[("x-redial-call", "a")], "x").await.header("grpc-status"),
        Some("1")
    );
    assert_eq!(client.max_streams(), 7);
}

#[tokio::test(start_paused = true)]
async fn json_calls_can_be_played_in_turn() {
    let text = r#"{ "in_turn": true, "calls": {
        "1": [{"outcome": 1}, {"outcome": 2}], "0": [{"outcome": 3}] } }"#;
    let server = serde_json::from_str::<Server>(text).unwrap().on_pipe();
    let mut client = Client::of(&server).await;
    let mut statuses = Vec::new();
    for fields in [&[][..], &[("x-redial-call", "1")], &[], &[]] {
        let seen = client.unary_with(fields, "x").await;
        statuses.push(seen.header("grpc-status").unwrap().to_owned());
    }
    assert_eq!(statuses, ["1", "2", "3", "13"], "in the order of the file");
}

#[tokio::test(start_paused = true)]
async fn json_stream_record_uses_milliseconds() {
    let answer = Answer::trailers_only(StatusNumber::ABORTED).after(ms(5));
    let script = Script::new().call("one", [answer]).default_answer(Answer::hang());
    let server = Server::new(script).on_pipe();
    let mut client = Client::of(&server).await;
    let fields =
        [("x-redial-call", "one"), ("grpc-timeout", "1500u"), ("grpc-previous-rpc-attempts", "3")];
    client.unary_with(&fields, "ab").await;
    let mut call = client.begin(&[], false).await.unwrap();
    tokio::time::sleep(ms(1)).await;
    call.request.send_reset(Reason::from(77));
    server.idle().await;
    let record = server.shutdown().await;
    let first: Value = serde_json::to_value(&record.streams[0]).unwrap();
    let expected = json!({
        "stream": 1, "connection": 1, "id": 1, "call": "one", "attempt": 1, "scripted": true,
        "arrived": 0.0, "path": "/echo.Echo/Get",
        "headers": {"x-redial-call": ["one"], "grpc-timeout": ["1500u"], "grpc-previous-rpc-attempts": ["3"]},
        "previous": 3, "timeout": 1.5, "messages": 1, "bytes": 7, "digest": first["digest"],
        "payloads": ["6162"], "half_closed": 0.0, "reset": null,
        "end": {"at": 5.0, "how": "answered", "status": "ABORTED"} });
    assert_eq!(first, expected);
    let second: Value = serde_json::to_value(&record.streams[1]).unwrap();
    assert_eq!(second["reset"], json!({"at": 6.0, "code": "77"}));
    assert_eq!(second["end"], json!({"at": 6.0, "how": "reset-by-client", "code": "77"}));
    assert_eq!((&second["half_closed"], &second["timeout"]), (&Value::Null, &Value::Null));
}
