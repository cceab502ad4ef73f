//! Configs of the SDK's clients for tests.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_smithy_http_client::Builder as HttpBuilder;
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use redial_aws::{RetryInterceptor, with_retries};

/// Letters only: `DynamoDB` Local refuses others.
pub(crate) const KEY: &str = "accesskey";
pub(crate) const SECRET: &str = "secret-access-key";

pub(crate) fn credentials() -> Credentials {
    Credentials::new(KEY, SECRET, None, None, "test")
}

/// A plain HTTP client without TLS.
pub(crate) fn http_client() -> SharedHttpClient {
    HttpBuilder::new().build_http()
}

/// The config of a DynamoDB client, with the SDK's default retries.
pub(crate) fn dynamodb(url: &str) -> aws_sdk_dynamodb::config::Builder {
    aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(credentials())
        .endpoint_url(url)
        .http_client(http_client())
}

#[allow(dead_code, reason = "not every test that includes this file uses it")]
/// The config of an S3 client, with the SDK's default retries.
pub(crate) fn s3(url: &str) -> aws_sdk_s3::config::Builder {
    aws_sdk_s3::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(credentials())
        .endpoint_url(url)
        .force_path_style(true)
        .http_client(http_client())
}

/// A DynamoDB client with these retries.
pub(crate) fn client(
    config: aws_sdk_dynamodb::config::Builder,
    retries: &RetryInterceptor,
) -> Client {
    Client::from_conf(with_retries!(config, retries.clone()).build())
}
