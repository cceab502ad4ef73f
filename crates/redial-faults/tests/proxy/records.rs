//! What the record keeps, and what is written of it.

use std::sync::{Arc, Mutex};

use redial_faults::proxy::{ConnectionFault, Ended, Fault, Proxy, Script};
use serde_json::{Value, json};

use super::support::*;

#[tokio::test]
async fn record_keeps_the_newest_and_counts_all() {
    let upstream = Upstream::start().await;
    let proxy = Proxy::http(upstream.addr).kept(3).listen("127.0.0.1:0").await.unwrap();
    let client = client();
    for number in 1..=5 {
        send(&client, post(&proxy, "/", "x")).await.unwrap();
        proxy.idle().await;
        assert_eq!(proxy.record().exchanges.len(), number.min(3));
    }
    let record = proxy.record();
    let numbers: Vec<_> = record.exchanges.iter().map(|it| it.number).collect();
    assert_eq!((numbers, record.counts.exchanges), (vec![3, 4, 5], 5));
}

#[tokio::test]
async fn record_as_json_has_times_faults_and_no_credentials() {
    let upstream = Upstream::start().await;
    let lines = Arc::new(Mutex::new(Vec::<Value>::new()));
    let sink = lines.clone();
    let script = Script::new()
        .requests([Fault::reset().at_response_bytes(2).delay(ms(1))])
        .connections([ConnectionFault::pass().latency(ms(1))]);
    let proxy = Proxy::http(upstream.addr)
        .script(script)
        .on_end(move |ended| {
            let line = match ended {
                Ended::Exchange(exchange) => serde_json::to_value(exchange),
                Ended::Connection(connection) => serde_json::to_value(connection),
                other => panic!("{other:?}"),
            };
            sink.lock().unwrap().push(line.unwrap());
        })
        .listen("127.0.0.1:0")
        .await
        .unwrap();
    let mut request = post(&proxy, "/path?q", "abc");
    request.headers_mut().insert("authorization", "secret".parse().unwrap());
    request.headers_mut().insert("x-a", "b".parse().unwrap());
    send(&client(), request).await.unwrap_err();
    proxy.shutdown().await;
    let lines = lines.lock().unwrap();
    let exchange = &lines[0];
    assert_eq!(exchange["headers"]["authorization"], json!(["[removed]"]));
    assert_eq!(exchange["headers"]["x-a"], json!(["b"]));
    assert_eq!(exchange["fault"], json!("reset at response byte 2, delay 1 ms"));
    assert_eq!((&exchange["source"], &exchange["outcome"]), (&json!("requests"), &json!("reset")));
    assert_eq!((&exchange["method"], &exchange["path"]), (&json!("POST"), &json!("/path?q")));
    assert_eq!((&exchange["upstream_status"], &exchange["status"]), (&json!(200), &json!(200)));
    assert!(exchange["forwarded"].as_f64().unwrap() >= exchange["arrived"].as_f64().unwrap() + 1.0);
    assert_eq!(lines[1]["fault"], json!("pass, latency 1 ms"));
    assert_eq!(lines.len(), 2);
}
