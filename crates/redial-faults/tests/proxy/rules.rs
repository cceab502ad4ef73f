//! Faults by rate, by count, by header and by call.

use http::{Request, StatusCode};
use http_body_util::Full;
use redial_faults::proxy::{Fault, FaultSource, Handle, ProxyRule, Script};

use super::support::*;

/// The statuses of requests that are sent one after the other.
async fn statuses(proxy: &Handle, count: usize) -> Vec<u16> {
    let client = client();
    let mut statuses = Vec::new();
    for _ in 0..count {
        let (status, ..) = send(&client, post(proxy, "/", "x")).await.unwrap();
        statuses.push(status.as_u16());
    }
    statuses
}

#[tokio::test]
async fn rule_rate_is_deterministic_by_seed() {
    let upstream = Upstream::start().await;
    let mut seen = Vec::new();
    for seed in [1, 1, 2] {
        let script = Script::new().rule(ProxyRule::new(Fault::status(503)).rate(0.3)).seed(seed);
        let proxy = http_proxy(&upstream, script).await;
        seen.push(statuses(&proxy, 60).await);
    }
    assert_eq!(seen[0], seen[1]);
    assert_ne!(seen[0], seen[2]);
    let failed = seen[0].iter().filter(|status| **status == 503).count();
    assert!((8..=28).contains(&failed), "{failed} of 60");
}

#[tokio::test]
async fn rule_skip_and_times_select_by_count() {
    let upstream = Upstream::start().await;
    let rule = ProxyRule::new(Fault::status(500)).skip(1).times(2);
    let proxy = http_proxy(&upstream, rule).await;
    assert_eq!(statuses(&proxy, 5).await, [200, 500, 500, 200, 200]);
    let sources: Vec<_> = proxy.record().exchanges.iter().map(|it| it.source).collect();
    let rule = Some(FaultSource::Rule(0));
    assert_eq!(sources, [None, rule, rule, None, None]);
}

#[tokio::test]
async fn rule_selects_by_method_path_and_header() {
    let upstream = Upstream::start().await;
    let script = Script::new()
        .rule(ProxyRule::new(Fault::status(501)).method("PUT"))
        .rule(ProxyRule::new(Fault::status(502)).path("/a/*"))
        .rule(ProxyRule::new(Fault::status(503)).header("x-fail", "yes"))
        .rule(ProxyRule::new(Fault::status(504)).header("x-any", "*"));
    let proxy = http_proxy(&upstream, script).await;
    let client = client();
    let cases = [
        ("PUT", "/a/b", None, 501),
        ("GET", "/a/b", None, 502),
        ("GET", "/b?x=/a/", Some(("x-fail", "yes")), 503),
        ("GET", "/b", Some(("x-fail", "no")), 200),
        ("GET", "/b", Some(("x-any", "thing")), 504),
    ];
    for (method, path, header, expected) in cases {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", proxy.url()));
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        let (status, ..) = send(&client, request.body(Full::default()).unwrap()).await.unwrap();
        assert_eq!(status.as_u16(), expected, "{method} {path} {header:?}");
    }
}

#[tokio::test]
async fn call_header_selects_a_list_for_each_call() {
    let upstream = Upstream::start().await;
    let script = Script::new()
        .requests([Fault::status(500)])
        .call("a", [Fault::status(501), Fault::status(502)])
        .rule(ProxyRule::new(Fault::status(503)));
    let proxy = http_proxy(&upstream, script).await;
    let client = client();
    let mut seen = Vec::new();
    for name in ["a", "", "a", "b", "", "a"] {
        let mut request = post(&proxy, "/", "x");
        if !name.is_empty() {
            request.headers_mut().insert("x-redial-call", name.parse().unwrap());
        }
        seen.push(send(&client, request).await.unwrap().0.as_u16());
    }
    assert_eq!(seen, [501, 500, 502, 503, 503, 503]);
    assert_eq!(proxy.record().exchanges[0].call.as_deref(), Some("a"));
}

#[tokio::test]
async fn fault_header_carries_the_fault_and_is_removed() {
    let upstream = Upstream::start().await;
    let proxy = http_proxy(&upstream, [Fault::status(500)]).await;
    let client = client();
    let with = |json: &str| {
        let mut request = post(&proxy, "/", "x");
        request.headers_mut().insert("x-redial-fault", json.parse().unwrap());
        request
    };
    let (status, headers, _) =
        send(&client, with(r#"{"status": 429, "headers": {"retry-after": "3"}}"#)).await.unwrap();
    assert_eq!((status.as_u16(), &headers["retry-after"]), (429, &"3".parse().unwrap()));
    let (status, headers, _) = send(&client, with(r#"{"delay": 1}"#)).await.unwrap();
    assert_eq!(status, StatusCode::OK);
    // The server echoes every header that begins with "x-".
    assert!(!headers.contains_key("x-redial-fault"), "{headers:?}");
    let (status, _, body) = send(&client, with(r#"{"statu": 429}"#)).await.unwrap();
    let text = String::from_utf8_lossy(&body).into_owned();
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(text.starts_with("x-redial-fault: unknown field `statu`"), "{text}");
    assert_eq!(proxy.record().exchanges[0].source, Some(FaultSource::Header));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rates_under_concurrency_are_all_accounted_for() {
    let upstream = Upstream::start().await;
    let script = Script::new()
        .rule(ProxyRule::new(Fault::status(503).after_upstream()).rate(0.25))
        .rule(ProxyRule::new(Fault::reset()).rate(0.25))
        .seed(3);
    let proxy = http_proxy(&upstream, script).await;
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..300 {
        let (client, request) = (client(), post(&proxy, "/", "abc"));
        calls.spawn(
            async move { send(&client, request).await.map(|answer| answer.0.as_u16()).ok() },
        );
    }
    let seen = calls.join_all().await;
    let count = |wanted| seen.iter().filter(|it| **it == wanted).count() as u64;
    proxy.idle().await;
    let counts = proxy.counts();
    assert_eq!((counts.exchanges, counts.exchanges_open), (300, 0));
    assert_eq!(counts.faults, count(Some(503)) + count(None));
    assert_eq!(counts.forwarded, count(Some(503)) + count(Some(200)));
    assert_eq!(upstream.served(), counts.forwarded);
    assert!(count(None) > 20 && count(Some(503)) > 20, "{counts:?}");
}
