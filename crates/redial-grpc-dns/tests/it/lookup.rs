//! Address lookups: sources, TTL, caching and errors.

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_proto::rr::RecordType;
use redial_grpc_balance::{Resolution, Resolver};
use redial_grpc_dns::{DnsError, DnsResolver};

use super::name_server::{Answer, NameServer};

fn ips(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

async fn resolve(resolver: &DnsResolver) -> Result<Resolution, DnsError> {
    resolver.resolve().await.map_err(|error| *error.downcast().expect("an error of ours"))
}

fn shown(addresses: &[SocketAddr]) -> Vec<String> {
    addresses.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn dns_lookup_returns_all_addresses_with_the_target_port() {
    let server = NameServer::start().await.unwrap();
    server.set_addresses("echo.test", 300, &ips(&["10.0.0.1", "10.0.0.2", "fd00::1"]));
    for (target, port) in
        [("echo.test:50051", 50051), ("dns:///echo.test", 443), ("http://echo.test", 80)]
    {
        let resolver = DnsResolver::builder(target).name_servers([server.address]).build().unwrap();
        let found = resolve(&resolver).await.unwrap();
        let expected = [format!("[fd00::1]:{port}"), format!("10.0.0.1:{port}")];
        assert_eq!(shown(&found.addresses)[..2], expected, "the families take turns");
        assert_eq!(found.addresses.len(), 3);
        assert!(matches!(found.config, Ok(None)));
    }
}

#[tokio::test]
async fn dns_target_selects_the_name_server() {
    let server = NameServer::start().await.unwrap();
    server.set_addresses("echo.test", 300, &ips(&["10.0.0.1"]));
    let target = format!("dns://{}/echo.test:80", server.address);
    let found = resolve(&DnsResolver::new(&target).unwrap()).await.unwrap();
    assert_eq!(shown(&found.addresses), ["10.0.0.1:80"]);
    assert!(server.queries().iter().all(|queries| queries.name == "echo.test"));
}

#[tokio::test]
async fn dns_is_not_queried_for_addresses_and_localhost() {
    let server = NameServer::start().await.unwrap();
    for (target, expected) in [
        ("127.0.0.1:80", &["127.0.0.1:80"][..]),
        ("dns:///[::1]:80", &["[::1]:80"]),
        ("ipv4:127.0.0.1:80,127.0.0.2:81", &["127.0.0.1:80", "127.0.0.2:81"]),
        ("localhost:80", &["[::1]:80", "127.0.0.1:80"]),
    ] {
        let builder = DnsResolver::builder(target).name_servers([server.address]);
        let found = resolve(&builder.config_from_txt().build().unwrap()).await.unwrap();
        assert_eq!(shown(&found.addresses), expected, "{target}");
        assert!(matches!(found.config, Ok(None)), "{target}");
        assert!(found.ttl.is_some_and(|time| time > Duration::from_secs(3600)), "{target}");
    }
    assert_eq!(server.queries(), []);
}

#[tokio::test]
async fn dns_answer_is_cached_and_reports_its_ttl() {
    let server = NameServer::start().await.unwrap();
    server.set_addresses("echo.test", 300, &ips(&["10.0.0.1", "fd00::1"]));
    let resolver =
        DnsResolver::builder("echo.test").name_servers([server.address]).build().unwrap();
    let ttl = resolve(&resolver).await.unwrap().ttl.unwrap();
    // A minute of tolerance for a slow machine.
    assert!((240..=300).contains(&ttl.as_secs()), "{ttl:?}");
    assert_eq!(server.queries().len(), 2, "A and AAAA");
    server.set_addresses("echo.test", 300, &ips(&["10.0.0.9"]));
    let again = resolve(&resolver).await.unwrap();
    assert_eq!(shown(&again.addresses), ["[fd00::1]:443", "10.0.0.1:443"]);
    assert_eq!(server.queries(), []);
}

/// A channel that has lost a backend must not get its address from the cache until the TTL expires,
/// and a name that is created late must be found before the negative TTL expires.
#[tokio::test]
async fn dns_lookup_after_the_refresh_interval_queries_again() {
    let server = NameServer::start().await.unwrap();
    let builder = DnsResolver::builder("echo.test").name_servers([server.address]);
    let resolver = builder.min_refresh_interval(Duration::ZERO).build().unwrap();
    server.set_addresses("echo.test", 3600, &[]);
    assert!(resolve(&resolver).await.unwrap_err().is_not_found());
    for ip in ["10.0.0.1", "10.0.0.9"] {
        server.set_addresses("echo.test", 3600, &ips(&[ip]));
        let found = resolve(&resolver).await.unwrap();
        assert_eq!(shown(&found.addresses), [format!("{ip}:443")]);
        assert!(found.ttl.is_some_and(|time| time > Duration::from_secs(3000)));
    }
}

#[tokio::test]
async fn dns_ttl_is_at_least_the_refresh_interval() {
    let server = NameServer::start().await.unwrap();
    server.set_addresses("echo.test", 0, &ips(&["10.0.0.1", "fd00::1"]));
    let builder = DnsResolver::builder("echo.test").name_servers([server.address]);
    let resolver = builder.clone().build().unwrap();
    let ttl = resolve(&resolver).await.unwrap().ttl.unwrap();
    assert!(ttl <= Duration::from_secs(30) && !ttl.is_zero(), "{ttl:?}");
    resolve(&resolver).await.unwrap();
    assert_eq!(server.queries().len(), 2, "A and AAAA, once");
    // Without a minimum interval, an answer with a TTL of zero is not cached.
    let resolver = builder.min_refresh_interval(Duration::ZERO).build().unwrap();
    for _ in 0..2 {
        assert_eq!(resolve(&resolver).await.unwrap().ttl, Some(Duration::ZERO));
        assert_eq!(server.queries().len(), 2);
    }
}

#[tokio::test]
async fn dns_failure_of_one_family_keeps_the_other() {
    let server = NameServer::start().await.unwrap();
    server.set_addresses("echo.test", 300, &ips(&["10.0.0.1"]));
    server.set_answer("echo.test", RecordType::AAAA, Answer::ServFail);
    let resolver =
        DnsResolver::builder("echo.test").name_servers([server.address]).build().unwrap();
    assert_eq!(shown(&resolve(&resolver).await.unwrap().addresses), ["10.0.0.1:443"]);
}

/// A lost packet must not remove the connected backends of a family.
#[tokio::test]
async fn dns_failed_family_keeps_its_last_addresses() {
    let server = NameServer::start().await.unwrap();
    server.set_addresses("echo.test", 300, &ips(&["10.0.0.1", "fd00::1"]));
    let builder = DnsResolver::builder("echo.test").name_servers([server.address]);
    let resolver = builder.min_refresh_interval(Duration::ZERO).build().unwrap();
    let both = resolve(&resolver).await.unwrap().addresses;
    assert_eq!(both.len(), 2);
    server.set_answer("echo.test", RecordType::A, Answer::ServFail);
    let found = resolve(&resolver).await.unwrap();
    assert_eq!((found.addresses, found.ttl), (both, Some(Duration::ZERO)), "asked again soon");
    server.set_answer("echo.test", RecordType::AAAA, Answer::ServFail);
    assert!(!resolve(&resolver).await.unwrap_err().is_not_found(), "nothing at all is a failure");
    server.set_addresses("echo.test", 300, &ips(&["fd00::1"]));
    assert_eq!(shown(&resolve(&resolver).await.unwrap().addresses), ["[fd00::1]:443"]);
}

#[tokio::test]
async fn dns_silent_family_delays_the_other_briefly() {
    let server = NameServer::start().await.unwrap();
    server.set_addresses("echo.test", 300, &ips(&["10.0.0.1"]));
    server.set_answer("echo.test", RecordType::AAAA, Answer::Silent);
    let builder = DnsResolver::builder("echo.test").name_servers([server.address]);
    let resolver = builder.timeout(Duration::from_secs(300)).build().unwrap();
    let queries = tokio::time::timeout(Duration::from_secs(60), resolve(&resolver)).await;
    let found = queries.expect("one family is there").unwrap();
    assert_eq!(shown(&found.addresses), ["10.0.0.1:443"]);
}

/// Most names have no address of one family, and that answer often arrives first.
#[tokio::test]
async fn dns_empty_family_waits_for_the_other() {
    let server = NameServer::start().await.unwrap();
    server.set_answer("slow.test", RecordType::AAAA, Answer::NoRecord(300));
    server.set_answer("slow.test", RecordType::A, Answer::Silent);
    let builder = DnsResolver::builder("slow.test").name_servers([server.address]);
    let resolver = builder.timeout(Duration::from_secs(2)).build().unwrap();
    let started = std::time::Instant::now();
    assert!(!resolve(&resolver).await.unwrap_err().is_not_found());
    assert!(started.elapsed() > Duration::from_millis(3500), "asked twice, 2 s each");
}

#[tokio::test]
async fn dns_error_distinguishes_missing_names_from_failed_queries() {
    let server = NameServer::start().await.unwrap();
    let builder = |target| DnsResolver::builder(target).name_servers([server.address]);
    server.set_addresses("none.test", 60, &[]);
    for target in ["none.test", "unknown.test"] {
        let error = resolve(&builder(target).build().unwrap()).await.unwrap_err();
        assert!(error.is_not_found(), "{error:?}");
        assert_eq!(error.to_string(), format!("{target} has no address"));
        assert_eq!(error.name(), target);
    }
    let none = Answer::NoRecord(0);
    for (answer, other) in [
        (Answer::ServFail, Answer::ServFail),
        (Answer::Silent, Answer::Silent),
        // Most names have no address of one family.
        (Answer::ServFail, none.clone()),
        (none.clone(), Answer::ServFail),
    ] {
        server.set_answer("bad.test", RecordType::A, answer.clone());
        server.set_answer("bad.test", RecordType::AAAA, other.clone());
        let resolver = builder("bad.test").timeout(Duration::from_millis(50)).build().unwrap();
        let error = resolve(&resolver).await.unwrap_err();
        assert!(!error.is_not_found(), "{answer:?}: {error:?}");
        assert_eq!(error.to_string(), "the addresses of bad.test could not be queried");
        assert!(error.source().is_some());
    }
}

#[test]
fn dns_invalid_target_is_a_resolver_build_error() {
    let error = DnsResolver::new("echo:0").unwrap_err();
    assert_eq!(
        error.to_string(),
        "\"echo:0\" is not a target: expected a port from 1 to 65535 after the host"
    );
    let long = format!("{}.test", "a".repeat(64));
    for name in [&*long, "a..test", ".test"] {
        let error = DnsResolver::new(name).unwrap_err().to_string();
        assert!(error.contains("is not a DNS name"), "{error}");
    }
    // The name of the record may be too long although the name itself is not.
    let name = vec!["a".repeat(60); 4].join(".");
    let builder = DnsResolver::builder(name).name_servers(["127.0.0.1:53".parse().unwrap()]);
    assert!(builder.clone().build().is_ok());
    assert!(
        builder.config_from_txt().build().unwrap_err().to_string().contains("is not a DNS name")
    );
}
