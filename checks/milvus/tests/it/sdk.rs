//! The SDK's own client, whose channel cannot be reached: the interceptor is around its calls, and
//! its own retries are off.

use milvus::v2 as sdk;
use milvus::v2::error::Error as SdkError;
use milvus::v2::prelude::*;
use redial_milvus::{Code, GrpcStatus, Options, StatusOf, WriteRetries};

use crate::collection::{Collection, direct};
use crate::processes::milvus_lite;
use crate::rows::{proxy_to, unavailable};

/// The gRPC status of an SDK error. What is no gRPC error is the server's answer, or a mistake of
/// the request: not retried.
fn status_of(error: SdkError) -> StatusOf<SdkError> {
    let code = match &error {
        SdkError::Grpc(status) => GrpcStatus::code(status),
        _ => Code::InvalidArgument,
    };
    let execution = match &error {
        SdkError::Grpc(status) if status.is_unsent() => redial_milvus::Execution::Excluded,
        _ => redial_milvus::Execution::Possible,
    };
    StatusOf::new(code, error).execution(execution)
}

fn row(collection: &str) -> sdk::request::dml::InsertRequest {
    sdk::request::dml::InsertRequest::builder()
        .collection_name(collection)
        .rows(vec![serde_json::json!({"vector": [1.0, 1.0, 1.0, 1.0]})])
        .build()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn milvus_sdk_calls_run_through_the_interceptor() {
    let server = milvus_lite().await;
    let proxy = proxy_to(server.addr).await;
    let mut direct = direct(&format!("http://{}", server.addr));
    let collection = Collection::new("sdk");
    collection.set_up(&mut direct).await;
    let config = ConnectConfig::new().uri(proxy.url()).retry(RetryConfig::new().max_attempts(1));
    let client = ClientV2::new(&config).await.unwrap();
    // The SDK asks for the schema before its first insert.
    client.insert(row("sdk")).await.unwrap();
    assert_eq!(collection.rows(&mut direct).await, 1);

    let interceptor = Options::DEFAULT.interceptor().unwrap();
    let insert = || async { client.insert(row("sdk")).await.map_err(status_of) };
    proxy.requests([unavailable(), unavailable()]);
    interceptor.call("Insert", insert).send().await.unwrap();
    assert_eq!(collection.rows(&mut direct).await, 2);
    proxy.requests([unavailable().after_upstream()]);
    interceptor.call("Insert", insert).send().await.unwrap();
    assert_eq!(collection.rows(&mut direct).await, 4, "the insert ran twice");

    let protected = Options::DEFAULT.write_retries(WriteRetries::OnlyIfNotRun);
    let protected = protected.interceptor().unwrap();
    proxy.requests([unavailable().after_upstream()]);
    let error = protected.call("Insert", insert).send().await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert_eq!(collection.rows(&mut direct).await, 5, "the insert ran once");
    proxy.requests(vec![unavailable(); 4]);
    let error = interceptor.call("Insert", insert).send().await.unwrap_err();
    assert!(error.message().contains("injected"), "{error}");
    assert!(error.message().contains(" (retried 3 times, "), "{error}");
    assert!(matches!(error.into_status().unwrap().into_error(), SdkError::Grpc(_)));
}
