//! A balanced channel with a name server: its addresses and its service config come from DNS, and
//! its calls go to real servers.

use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hickory_proto::rr::RecordType;
use redial_echo::echo_client::EchoClient;
use redial_echo::echo_server::EchoServer;
use redial_echo::{EchoRequest, Responder};
use redial_grpc_balance::RetryLayer;
use redial_grpc_balance::{
    self as balance, Backend, BalancedChannel, ChannelBuilder, ConnectivityState,
};
use redial_grpc_dns::{ChannelBuilderExt as _, DnsError, DnsResolver, DnsResolverBuilder};
use redial_service_config::Rule;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Code, Request, Status};

use super::name_server::{Answer, NameServer};

const NAME: &str = "_grpc_config.echo.test";

/// A record with a retry policy for all methods, over all servers.
fn retrying(attempts: u32) -> String {
    format!(
        r#"grpc_config=[{{"clientLanguage": ["rust"], "serviceConfig": {{
            "loadBalancingPolicy": "round_robin",
            "methodConfig": [{{"name": [{{}}], "retryPolicy": {{
                "maxAttempts": {attempts}, "initialBackoff": "0.001s", "maxBackoff": "0.01s",
                "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"] }} }}] }} }}]"#
    )
}

/// Echo servers at the same port of 127.0.0.1 and 127.0.0.2, since an address in DNS has no port.
/// Each counts its attempts.
async fn backends() -> (u16, [Arc<AtomicUsize>; 2]) {
    for _ in 0..20 {
        let first = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = first.local_addr().unwrap().port();
        let Ok(second) = TcpListener::bind(("127.0.0.2", port)).await else { continue };
        let counts = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        for (listener, count) in [first, second].into_iter().zip(counts.clone()) {
            let counted = move |request: Request<()>| {
                count.fetch_add(1, Ordering::Relaxed);
                Ok::<_, Status>(request)
            };
            let service = EchoServer::with_interceptor(Responder, counted);
            let server = Server::builder().add_service(service);
            tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        }
        return (port, counts);
    }
    panic!("no port is free on both addresses");
}

/// A name server, the echo servers behind `echo.test`, and the options of a channel to them.
struct Environment {
    names: NameServer,
    port: u16,
    counts: [Arc<AtomicUsize>; 2],
}

impl Environment {
    async fn new() -> Self {
        let names = NameServer::start().await.unwrap();
        let (port, counts) = backends().await;
        let env = Environment { names, port, counts };
        env.set_addresses(&["127.0.0.1", "127.0.0.2"]);
        env
    }

    /// A channel whose target names the name server.
    fn channel(&self, dns: fn(DnsResolverBuilder) -> DnsResolverBuilder) -> BalancedChannel {
        let target = format!("dns://{}/echo.test:{}", self.names.address, self.port);
        let channel = balance::channel(&target);
        self.build(channel.dns(|builder| dns(builder.min_refresh_interval(Duration::ZERO))))
    }

    /// A channel that resolves as often as possible, and whose default config has no retries.
    fn build(&self, channel: ChannelBuilder) -> BalancedChannel {
        channel
            .default_service_config(r#"{ "loadBalancingPolicy": "round_robin" }"#)
            .layer(RetryLayer::builder().for_server(format!("{:p}", self.counts[0])))
            .min_resolve_interval(Duration::from_millis(20))
            .build()
            .unwrap()
    }

    fn set_addresses(&self, ips: &[&str]) {
        let ips: Vec<_> = ips.iter().map(|ip| ip.parse().unwrap()).collect();
        self.names.set_addresses("echo.test", 0, &ips);
    }

    /// How many attempts have reached each server.
    fn reached(&self) -> [usize; 2] {
        self.counts.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// Waits until a resolution that started after this call has been applied.
    async fn wait_for_resolution(&self) {
        // When the second query arrives, the answer to the first one has been applied.
        self.names.queries();
        let mut queries = 0;
        until("the name is resolved anew", || {
            queries += self.names.query_count(RecordType::A);
            queries >= 3
        })
        .await;
    }
}

/// Waits until the condition holds; a generous limit ends a test that hangs.
async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..6_000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never: {what}");
}

/// A call that fails this many attempts.
async fn call(channel: &BalancedChannel, failures: u32) -> Result<(), Code> {
    let request = EchoRequest { failures, ..EchoRequest::default() };
    let answer = EchoClient::new(channel.clone()).unary(request).await;
    answer.map(drop).map_err(|status| status.code())
}

#[tokio::test]
async fn dns_config_is_active_until_changed_or_removed() {
    let env = Environment::new().await;
    env.names.set_txt(NAME, 0, &retrying(3));
    let channel = env.channel(DnsResolverBuilder::config_from_txt);

    call(&channel, 2).await.expect("the first call also uses the policy from DNS");
    assert_eq!(call(&channel, 3).await, Err(Code::Unavailable));
    for _ in 0..4 {
        call(&channel, 0).await.unwrap();
    }
    let both = || env.reached().iter().all(|count| *count > 0);
    until("both addresses are found and used", both).await;

    env.names.set_txt(NAME, 0, &retrying(4));
    env.wait_for_resolution().await;
    call(&channel, 3).await.expect("the next resolution has swapped the config");

    env.names.set_txt(NAME, 0, r#"grpc_config=[{"serviceConfig": {"methodConfig": {}}}]"#);
    env.wait_for_resolution().await;
    let error = channel.snapshot().config_error.expect("an invalid record is reported");
    assert_eq!(
        error.to_string(),
        "_grpc_config.echo.test:1:37: error[type]: [0].serviceConfig.methodConfig: expected a list, \
         found an object; write it in brackets: [{...}]"
    );
    assert!(error.downcast_ref::<DnsError>().is_some_and(|error| error.problems().is_some()));
    call(&channel, 3).await.expect("the current config stays active");

    env.names.set_answer(NAME, RecordType::TXT, Answer::ServFail);
    env.wait_for_resolution().await;
    let error = channel.snapshot().config_error.expect("a failed query is reported");
    assert_eq!(error.to_string(), "the TXT record _grpc_config.echo.test could not be queried");
    call(&channel, 3).await.expect("the current config stays active");

    env.names.set_answer(NAME, RecordType::TXT, Answer::NoRecord(0));
    env.wait_for_resolution().await;
    assert!(channel.snapshot().config_error.is_none());
    assert_eq!(call(&channel, 1).await, Err(Code::Unavailable), "the default is active again");
}

/// All known addresses are healthy, so only the TTL causes another lookup.
#[tokio::test]
async fn dns_address_changes_reach_the_channel() {
    let env = Environment::new().await;
    env.set_addresses(&["127.0.0.1"]);
    let channel = env.channel(|dns| dns);
    for _ in 0..4 {
        call(&channel, 0).await.unwrap();
    }
    assert_eq!(env.reached(), [4, 0]);

    let known = || {
        let is_ready = |it: &&Backend| it.state == ConnectivityState::Ready;
        let backends = channel.snapshot().backends;
        backends.iter().filter(is_ready).map(|it| it.address.ip().to_string()).collect::<Vec<_>>()
    };
    env.set_addresses(&["127.0.0.1", "127.0.0.2"]);
    until("the added one is connected", || known().len() == 2).await;
    for _ in 0..4 {
        call(&channel, 0).await.unwrap();
    }
    assert_eq!(env.reached(), [6, 2], "both take turns");

    env.set_addresses(&["127.0.0.2"]);
    until("the removed one is gone", || known() == ["127.0.0.2"]).await;
    for _ in 0..4 {
        call(&channel, 0).await.unwrap();
    }
    assert_eq!(env.reached(), [6, 6]);
}

/// The call's deadline bounds the wait for the config of a name server that never answers.
#[tokio::test]
async fn deadline_bounds_the_wait_for_a_silent_name_server() {
    let env = Environment::new().await;
    for kind in [RecordType::A, RecordType::AAAA] {
        env.names.set_answer("echo.test", kind, Answer::Silent);
    }
    env.names.set_answer(NAME, RecordType::TXT, Answer::Silent);
    let channel = env.channel(DnsResolverBuilder::config_from_txt);
    let mut client = EchoClient::new(channel);
    let mut request = Request::new(EchoRequest::default());
    request.set_timeout(Duration::from_millis(200));
    let started = std::time::Instant::now();
    let status = client.unary(request).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    // Without the bound it takes 5 s; the machine may be busy.
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
}

/// The channel's interval applies to the resolver, unless the resolver has its own. With the
/// resolver's default, the channel would get the cached answer for 30 s.
#[tokio::test]
async fn dns_lookups_respect_the_channels_minimum_interval() {
    let env = Environment::new().await;
    let target = format!("dns://{}/echo.test:{}", env.names.address, env.port);
    let channel = env.build(balance::channel(&target).dns(|dns| dns));
    let started = std::time::Instant::now();
    call(&channel, 0).await.unwrap();
    env.wait_for_resolution().await;
    assert!(started.elapsed() < Duration::from_secs(25), "{:?}", started.elapsed());
}

#[tokio::test]
async fn dns_config_is_off_by_default() {
    let env = Environment::new().await;
    env.names.set_txt(NAME, 0, &retrying(3));
    let channel = env.channel(|dns| dns);
    assert_eq!(call(&channel, 1).await, Err(Code::Unavailable));
    let mut queries = Vec::new();
    until("the name is resolved several times", || {
        queries.extend(env.names.queries());
        queries.len() > 6
    })
    .await;
    assert!(queries.iter().all(|queries| queries.kind != RecordType::TXT), "{queries:?}");
    assert_eq!(call(&channel, 1).await, Err(Code::Unavailable));
}

#[tokio::test]
async fn dns_config_invalid_at_start_keeps_the_default() {
    let env = Environment::new().await;
    env.names.set_txt(NAME, 0, "grpc_config={}");
    // A resolver that the application owns.
    let target = format!("dns:///echo.test:{}", env.port);
    let resolver = DnsResolver::builder(&*target).name_servers([env.names.address]);
    let resolver = resolver.config_from_txt().build().unwrap();
    let channel = env.build(balance::channel(&target).resolver(resolver.clone()));
    assert_eq!(call(&channel, 1).await, Err(Code::Unavailable));
    assert!(channel.snapshot().config_error.is_some());
    call(&channel, 0).await.expect("its addresses are good");
}

/// A choice with a misspelt condition is skipped. Only the warning explains why the default is
/// active.
#[tokio::test]
async fn dns_config_warnings_are_in_the_channel_snapshot() {
    let env = Environment::new().await;
    let misspelt = r#"grpc_config=[{"percentge": 5, "serviceConfig": {}}]"#;
    env.names.set_txt(NAME, 0, misspelt);
    let channel = env.channel(DnsResolverBuilder::config_from_txt);
    let rules = || {
        let warnings = channel.snapshot().config_warnings;
        warnings.iter().map(|warning| warning.rule).collect::<Vec<_>>()
    };
    assert_eq!(rules(), [], "nothing was asked yet");
    call(&channel, 0).await.unwrap();
    assert_eq!(rules(), [Rule::PassedOver, Rule::UnknownField]);
    assert!(channel.snapshot().config_error.is_none(), "it is legal");

    env.names.set_answer(NAME, RecordType::TXT, Answer::ServFail);
    env.wait_for_resolution().await;
    assert_eq!(
        rules(),
        [Rule::PassedOver, Rule::UnknownField],
        "a failed query keeps the warnings"
    );
    assert!(channel.snapshot().config_error.is_some());

    env.names.set_answer(NAME, RecordType::TXT, Answer::NoRecord(0));
    env.wait_for_resolution().await;
    assert_eq!(rules(), [], "the record is gone");

    // A config that is active has warnings of its own.
    env.names.set_txt(NAME, 0, r#"grpc_config=[{"serviceConfig": {"methodConfg": []}}]"#);
    env.wait_for_resolution().await;
    assert_eq!(rules(), [Rule::UnknownField]);
}

/// The warnings use the options of the channel's layer: a config with as many attempts as this
/// client allows must not be reported as too many.
#[tokio::test]
async fn dns_config_warnings_follow_the_layer_options() {
    let env = Environment::new().await;
    env.names.set_txt(NAME, 0, &retrying(8));
    for (cap, too_many) in [(8, false), (5, true)] {
        let target = format!("dns://{}/echo.test:{}", env.names.address, env.port);
        let layer = RetryLayer::builder().attempts_cap(cap).for_server(format!("cap {cap}"));
        let channel =
            balance::channel(&target).layer(layer).dns(DnsResolverBuilder::config_from_txt);
        let channel = channel.build().unwrap();
        call(&channel, 1).await.expect("DNS has a policy");
        let warnings = channel.snapshot().config_warnings;
        let warned = warnings.iter().any(|warning| warning.rule == Rule::AttemptsAboveCap);
        assert_eq!(warned, too_many, "{warnings:?}");
    }
}

/// Warnings are traced when they are new, not with every answer.
#[tokio::test]
async fn dns_config_warnings_are_traced_once() {
    use std::fmt::{Debug, Write as _};
    use std::sync::Mutex;

    use tracing::field::{Field, Visit};
    use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

    /// The fields of the channel's events, one line each.
    #[derive(Clone, Default)]
    struct Events(Arc<Mutex<Vec<String>>>);

    struct Fields(String);

    impl Visit for Fields {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            write!(self.0, "{field}={value:?} ").unwrap();
        }
    }

    impl<S: tracing::Subscriber> Layer<S> for Events {
        fn on_event(&self, event: &tracing::Event<'_>, _context: Context<'_, S>) {
            if event.metadata().target() == "redial::grpc" {
                let mut fields = Fields(format!("{} ", event.metadata().level()));
                event.record(&mut fields);
                self.0.lock().unwrap().push(fields.0);
            }
        }
    }

    let events = Events::default();
    let subscriber = tracing_subscriber::registry().with(events.clone());
    // The runtime of this test has one thread.
    let _guard = tracing::subscriber::set_default(subscriber);
    let warned = || {
        let all = events.0.lock().unwrap().clone();
        all.into_iter().filter(|it| it.contains("config has warnings")).collect::<Vec<_>>()
    };
    let env = Environment::new().await;
    env.names.set_txt(NAME, 0, r#"grpc_config=[{"percentge": 5, "serviceConfig": {}}]"#);
    let channel = env.channel(DnsResolverBuilder::config_from_txt);
    call(&channel, 0).await.unwrap();
    env.wait_for_resolution().await;
    let all = warned();
    let [line] = &*all else { panic!("{all:?}") };
    assert!(line.starts_with("WARN ") && line.contains("warnings=2"), "{line}");
    assert!(line.contains("[0]: an unknown field may be a condition"), "the first warning: {line}");

    env.names.set_txt(NAME, 0, r#"grpc_config=[{"serviceConfig": {"methodConfg": []}}]"#);
    env.wait_for_resolution().await;
    let all = warned();
    assert_eq!(all.len(), 2, "{all:?}");
    assert!(all[1].contains("warnings=1") && all[1].contains("methodConfg"), "{}", all[1]);
}

#[tokio::test]
async fn dns_invalid_name_is_a_build_error() {
    let channel = balance::channel("dns://127.0.0.1/a..test:1");
    let error = channel.dns(|dns| dns).build().unwrap_err();
    assert_eq!(error.to_string(), "the target cannot be resolved by DNS");
    let source = error.source().and_then(|source| source.downcast_ref::<DnsError>());
    assert_eq!(source.expect("why").name(), "dns://127.0.0.1/a..test:1");

    // The last option takes effect, and no other resolver can use a name server.
    let resolver = DnsResolver::new("echo.test:1").unwrap();
    let channel = balance::channel("dns://127.0.0.1/echo.test:1");
    let error = channel.dns(|dns| dns).resolver(resolver).build().unwrap_err();
    assert!(error.to_string().contains("write .dns(|dns| dns)"), "{error}");
}
