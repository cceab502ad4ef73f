//! Connections with TLS and the verification of certificates.

use std::collections::BTreeSet;
use std::time::Duration;

use redial_grpc_balance::RetryLayer;
use redial_grpc_balance::{self as balance, BalancedChannel, ChannelBuilder, ConnectivityState};
use tonic::Code;
use tonic::transport::{Certificate, ClientTlsConfig, Identity, ServerTlsConfig};

use super::support::{Client, Log, RETRY, Replica, config, failing, responding_server, until};

/// Servers with a certificate for `echo.test`, and the root that a client must trust.
struct Environment {
    replicas: Vec<Replica>,
    log: Log,
    root: Certificate,
}

impl Environment {
    fn of(count: usize) -> Self {
        let made = rcgen::generate_simple_self_signed(["echo.test".to_owned()]).unwrap();
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let tls = ServerTlsConfig::new().identity(Identity::from_pem(&certificate, key));
        let log = Log::default();
        let start = |name| Replica::start_with(name, &log, Some(tls.clone()));
        let replicas = (0..count).map(start).collect();
        Environment { replicas, log, root: Certificate::from_pem(certificate) }
    }

    fn to(&self, target: &str) -> ChannelBuilder {
        let first = Duration::from_millis(50);
        balance::channel(target)
            .addresses(self.replicas.iter().map(|replica| replica.address))
            .default_service_config(config("round_robin", RETRY))
            .connect_backoff(first, 4 * first)
            .layer(RetryLayer::builder().for_server(format!("{:p}", self.replicas.as_ptr())))
    }

    /// A channel that trusts the servers' certificate.
    fn trusting(&self, target: &str) -> BalancedChannel {
        let tls = ClientTlsConfig::new().ca_certificate(self.root.clone());
        self.to(target).endpoint(|endpoint| endpoint.tls_config(tls)).build().unwrap()
    }
}

async fn refused(env: &Environment, channel: BalancedChannel) -> String {
    let status = Client::new(channel.clone()).unary(failing(0)).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(env.log.take(), [0; 0], "no attempt reached a server");
    status.message().to_owned()
}

#[tokio::test]
async fn tls_verifies_the_target_name_at_every_address() {
    let mut env = Environment::of(2);
    let channel = env.trusting("https://echo.test");
    let mut client = Client::new(channel.clone());
    let ready = |nth: usize| {
        let snapshot = channel.snapshot();
        snapshot.backends.get(nth).is_some_and(|it| it.state == ConnectivityState::Ready)
    };
    channel.start();
    until("both are connected", || ready(0) && ready(1)).await;
    client.unary(failing(1)).await.expect("a retry finds the other");
    assert_eq!(env.log.take().into_iter().collect::<BTreeSet<_>>().len(), 2);
    // A lost TLS connection is noticed and made again.
    env.replicas[0].kill();
    until("the loss is seen", || !ready(0)).await;
    assert_eq!(responding_server(&mut client, failing(0)).await.unwrap(), 1);
    env.replicas[0].restart();
    until("it is back", || ready(0)).await;
    client.unary(failing(1)).await.unwrap();
    assert_eq!(env.log.take().into_iter().collect::<BTreeSet<_>>().len(), 2);
}

#[tokio::test]
async fn tls_accepts_a_target_name_with_a_trailing_dot() {
    let env = Environment::of(1);
    Client::new(env.trusting("https://echo.test.")).unary(failing(0)).await.unwrap();
}

#[tokio::test]
async fn tls_rejects_a_certificate_for_another_name() {
    let env = Environment::of(1);
    let message = refused(&env, env.trusting("https://other.test")).await;
    assert!(message.contains("certificate not valid for name \"other.test\""), "{message}");
}

#[tokio::test]
async fn tls_is_on_for_https_and_rejects_unknown_issuers() {
    let env = Environment::of(1);
    let message = refused(&env, env.to("https://echo.test").build().unwrap()).await;
    assert!(message.contains("UnknownIssuer"), "{message}");
}

#[tokio::test]
async fn tls_server_rejects_plaintext_targets() {
    let env = Environment::of(1);
    refused(&env, env.trusting("http://echo.test")).await;
}
