//! Envoy as the fault injector, as operators run it in front of Milvus.

use std::net::SocketAddr;

use redial_milvus::{Options, WriteRetries};
use serde_json::json;

use crate::collection::{Collection, client, count, direct, ok};
use crate::processes::{envoy, free_addr, milvus_lite};

/// Envoy in front of a server: this share of the requests is answered with HTTP 503.
fn config(listen: SocketAddr, to: SocketAddr, percent: u32) -> String {
    let address = |addr: SocketAddr| json!({ "socket_address": { "address": addr.ip().to_string(), "port_value": addr.port() } });
    let types = "type.googleapis.com/envoy.extensions";
    let fault = json!({
        "@type": format!("{types}.filters.http.fault.v3.HTTPFault"),
        "abort": { "http_status": 503, "percentage": { "numerator": percent, "denominator": "HUNDRED" } }
    });
    let router = json!({ "@type": format!("{types}.filters.http.router.v3.Router") });
    let manager = json!({
        "@type": format!("{types}.filters.network.http_connection_manager.v3.HttpConnectionManager"),
        "stat_prefix": "milvus",
        "codec_type": "AUTO",
        "http_filters": [
            { "name": "envoy.filters.http.fault", "typed_config": fault },
            { "name": "envoy.filters.http.router", "typed_config": router } ],
        "route_config": { "virtual_hosts": [{ "name": "all", "domains": ["*"],
            "routes": [{ "match": { "prefix": "/" }, "route": { "cluster": "milvus" } }] }] }
    });
    let http2 = json!({
        "@type": format!("{types}.upstreams.http.v3.HttpProtocolOptions"),
        "explicit_http_config": { "http2_protocol_options": {} }
    });
    json!({ "static_resources": {
        "listeners": [{ "name": "milvus", "address": address(listen), "filter_chains": [{ "filters": [
            { "name": "envoy.filters.network.http_connection_manager", "typed_config": manager }] }] }],
        "clusters": [{ "name": "milvus", "type": "STATIC", "connect_timeout": "5s",
            "typed_extension_protocol_options": {
                "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http2 },
            "load_assignment": { "cluster_name": "milvus", "endpoints": [{ "lb_endpoints": [
                { "endpoint": { "address": address(to) } }] }] } }] } })
    .to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn milvus_behind_envoy_runs_each_call_exactly_once() {
    let server = milvus_lite().await;
    let addr = free_addr();
    let envoy = envoy(addr, &config(addr, server.addr, 50)).await;
    let mut direct = direct(&format!("http://{}", server.addr));
    let url = format!("http://{}", envoy.addr);
    // Envoy's faults come before the server, so that a repeated insert runs once: 20 rows are 20.
    let options = Options::DEFAULT.max_retries(20).delay_max(std::time::Duration::from_millis(20));
    let mut layered = client(&url, options.interceptor().unwrap());
    // Creates a collection and an index, and loads it.
    let collection = Collection::new("envoy");
    collection.set_up(&mut layered).await;
    assert!(collection.exists(&mut direct).await);
    for _ in 0..20 {
        assert_eq!(collection.insert(&mut layered).await.unwrap().insert_cnt, 1);
    }
    assert_eq!(collection.rows(&mut direct).await, 20);
    for _ in 0..5 {
        let found = collection.search(&mut layered).await.unwrap();
        assert_eq!(found.results.unwrap().scores.len(), 10);
        assert_eq!(count(&collection.query(&mut layered).await.unwrap()), 20);
    }
    // With protected writes some of 20 inserts fail, and the rows are those that were reported.
    let protected = options.write_retries(WriteRetries::OnlyIfNotRun);
    let mut layered = client(&url, protected.interceptor().unwrap());
    let mut inserted = 20;
    let mut failed = Vec::new();
    for _ in 0..20 {
        match collection.insert(&mut layered).await {
            Ok(_) => inserted += 1,
            Err(status) => failed.push(status),
        }
    }
    assert_eq!(collection.rows(&mut direct).await, inserted);
    // 20 of 20 have a chance of one in a million.
    let status = failed.first().expect("half of the requests fail");
    assert_eq!(status.code(), tonic::Code::Unavailable, "{status:?}");
    assert_eq!(status.message(), "fault filter abort");
    let mut layered = client(&url, options.interceptor().unwrap());
    ok(&collection.drop(&mut layered).await.unwrap());
    assert!(!collection.exists(&mut direct).await);
}
