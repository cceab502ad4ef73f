//! Service configs in TXT records: when the record is queried, which choice applies, and the effect
//! of invalid, missing and unanswered records.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use hickory_proto::rr::rdata::TXT;
use hickory_proto::rr::{RData, RecordType};
use redial_grpc_balance::{ConfigError, Resolution, Resolver};
use redial_grpc_dns::{DnsError, DnsResolver, DnsResolverBuilder};
use redial_service_config::{LoadBalancing, Problems, Rule, ServiceConfig};

use super::name_server::{Answer, NameServer};

const NAME: &str = "_grpc_config.echo.test";
const ROUND_ROBIN: &str =
    r#"grpc_config=[{"serviceConfig": {"loadBalancingPolicy": "round_robin"}}]"#;

/// A server that has an address of `echo.test` with a TTL of zero.
async fn server() -> NameServer {
    let server = NameServer::start().await.unwrap();
    server.set_addresses("echo.test", 0, &["10.0.0.1".parse().unwrap()]);
    server
}

/// A resolver that queries the record each time.
fn builder(server: SocketAddr) -> DnsResolverBuilder {
    let builder = DnsResolver::builder("echo.test").name_servers([server]).config_from_txt();
    builder.min_refresh_interval(Duration::ZERO)
}

async fn resolve(resolver: &DnsResolver) -> Resolution {
    let found = resolver.resolve().await.expect("the addresses are known");
    assert_eq!(found.addresses.len(), 1);
    found
}

/// The result of the config lookup.
async fn config(resolver: &DnsResolver) -> Result<Option<ServiceConfig>, ConfigError> {
    resolve(resolver).await.config
}

fn problems(error: &ConfigError) -> &Problems {
    let error: &DnsError = error.downcast_ref().expect("an error of ours");
    error.problems().expect("the config is bad")
}

#[tokio::test]
async fn dns_txt_record_is_queried_only_when_enabled() {
    let server = server().await;
    server.set_txt(NAME, 0, ROUND_ROBIN);
    let resolver = DnsResolver::builder("echo.test").name_servers([server.address]);
    let resolver = resolver.min_refresh_interval(Duration::ZERO).build().unwrap();
    assert!(config(&resolver).await.unwrap().is_none());
    let queries = server.queries();
    assert!(!queries.is_empty() && queries.iter().all(|queries| queries.kind != RecordType::TXT));
    let resolver = builder(server.address).build().unwrap();
    let config = config(&resolver).await.unwrap().expect("there is one");
    assert_eq!(config.load_balancing(), LoadBalancing::RoundRobin);
    let queries = server.queries();
    let texts: Vec<_> = queries.iter().filter(|queries| queries.kind == RecordType::TXT).collect();
    assert_eq!(texts.iter().map(|queries| &*queries.name).collect::<Vec<_>>(), [NAME]);
}

#[tokio::test]
async fn dns_txt_unchanged_record_returns_the_same_config() {
    let server = server().await;
    server.set_txt(NAME, 0, ROUND_ROBIN);
    let resolver = builder(server.address).build().unwrap();
    let first = config(&resolver).await.unwrap().unwrap();
    assert!(config(&resolver).await.unwrap().unwrap().ptr_eq(&first));
    assert_eq!(server.query_count(RecordType::TXT), 2, "both were asked for");
    server.set_txt(NAME, 0, &ROUND_ROBIN.replace("round_robin", "pick_first"));
    let other = config(&resolver).await.unwrap().unwrap();
    assert_eq!(other.load_balancing(), LoadBalancing::PickFirst);
}

#[tokio::test]
async fn dns_txt_missing_record_means_no_config() {
    let server = server().await;
    let resolver = builder(server.address).build().unwrap();
    assert!(config(&resolver).await.unwrap().is_none(), "the name does not exist");
    server.set_answer(NAME, RecordType::TXT, Answer::NoRecord(0));
    assert!(config(&resolver).await.unwrap().is_none(), "it has no such record");
    server.set_txt(NAME, 0, "v=spf1 -all");
    assert!(config(&resolver).await.unwrap().is_none(), "its record is for others");
    server.set_txt(NAME, 0, "grpc_config=[]");
    assert!(config(&resolver).await.unwrap().is_none(), "no choice is for us");
    server.set_txt(NAME, 0, ROUND_ROBIN);
    assert!(config(&resolver).await.unwrap().is_some());
}

#[tokio::test]
async fn dns_txt_invalid_record_reports_position_until_fixed() {
    let server = server().await;
    server.set_txt(NAME, 0, r#"grpc_config=[{"serviceConfig": {"methodConfig": 5}}]"#);
    let resolver = builder(server.address).build().unwrap();
    let error = config(&resolver).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "_grpc_config.echo.test:1:37: error[type]: [0].serviceConfig.methodConfig: expected a list, found 5"
    );
    assert_eq!(problems(&error).as_slice()[0].rule, Rule::Type);
    let record = |text: &[u8]| RData::TXT(TXT::from_bytes(vec![text]));
    let two = [ROUND_ROBIN.as_bytes(), b"grpc_config=[]"].map(record);
    server.set_answer(NAME, RecordType::TXT, Answer::Records(0, two.into()));
    let error = config(&resolver).await.unwrap_err();
    assert_eq!(problems(&error).as_slice()[0].rule, Rule::Records);
    let others = [b"other".as_slice(), ROUND_ROBIN.as_bytes(), b"\xff"].map(record);
    server.set_answer(NAME, RecordType::TXT, Answer::Records(0, others.into()));
    assert!(config(&resolver).await.unwrap().is_some());
}

#[tokio::test]
async fn dns_txt_query_failure_still_returns_addresses() {
    let server = server().await;
    for answer in [Answer::ServFail, Answer::Silent] {
        server.set_answer(NAME, RecordType::TXT, answer.clone());
        let resolver = builder(server.address).timeout(Duration::from_secs(300)).build().unwrap();
        // The record has a shorter timeout than the resolution.
        let queries = tokio::time::timeout(Duration::from_secs(60), config(&resolver)).await;
        let error = queries.expect("the addresses do not wait for it").unwrap_err();
        let ours: &DnsError = error.downcast_ref().expect("an error of ours");
        assert!(ours.problems().is_none() && ours.source().is_some(), "{answer:?}");
        let text = "the TXT record _grpc_config.echo.test could not be queried";
        assert_eq!(error.to_string(), text);
    }
}

#[tokio::test]
async fn dns_txt_large_record_uses_tcp() {
    let server = server().await;
    let names = |count: usize| {
        let names: Vec<_> = (0..count).map(|it| format!("{{\"service\": \"s.S{it}\"}}")).collect();
        let config = format!("{{\"methodConfig\": [{{\"name\": [{}]}}]}}", names.join(","));
        format!("grpc_config=[{{\"serviceConfig\": {config}}}]")
    };
    let resolver = builder(server.address).build().unwrap();
    for (count, by_tcp) in [(5, false), (2_000, true)] {
        server.set_txt(NAME, 0, &names(count));
        let config = config(&resolver).await.unwrap().unwrap();
        assert_eq!(config.entries()[0].names.len(), count);
        let queries = server.queries();
        let texts = queries.iter().filter(|queries| queries.kind == RecordType::TXT);
        assert_eq!(texts.map(|queries| queries.by_tcp).max(), Some(by_tcp), "{count}");
    }
}

#[tokio::test]
async fn dns_txt_choice_matches_percentage_language_and_hostname() {
    let server = server().await;
    let list = r#"grpc_config=[
        {"clientLanguage": ["java"], "serviceConfig": {}},
        {"percentage": 10, "serviceConfig": {"loadBalancingPolicy": "round_robin"}},
        {"clientHostname": ["web-1"], "serviceConfig": {"loadBalancingPolicy": "round_robin"}},
        {"clientLanguage": ["Rust"], "serviceConfig": {"loadBalancingPolicy": "pick_first"}}]"#;
    server.set_txt(NAME, 300, list);
    for (draw, host, expected) in [
        (9, "web-2", LoadBalancing::RoundRobin),
        (10, "web-2", LoadBalancing::PickFirst),
        (99, "web-1", LoadBalancing::RoundRobin),
    ] {
        let resolver = builder(server.address).draw(draw).hostname(host).build().unwrap();
        let config = config(&resolver).await.unwrap().unwrap();
        assert_eq!(config.load_balancing(), expected, "{draw} {host}");
    }
}

#[tokio::test]
async fn dns_txt_percentage_is_drawn_once_per_resolver() {
    let server = server().await;
    let list = |event: usize| {
        format!(
            r#"grpc_config=[{{"percentage": 50, "serviceConfig": {{"note{event}": 1}}}}, {{"serviceConfig": {{}}}}]"#
        )
    };
    // The list differs each time, so the choice is made again each time. A resolver that draws a
    // new number each time would pass this test once in half a million runs.
    let resolver = builder(server.address).build().unwrap();
    let mut choices = Vec::new();
    for round in 0..20 {
        server.set_txt(NAME, 0, &list(round));
        config(&resolver).await.unwrap().unwrap();
        choices.push(resolver.warnings().len());
    }
    assert!(choices.iter().all(|choice| *choice == choices[0]), "{choices:?}");
}

#[tokio::test]
async fn dns_txt_hostname_defaults_to_the_system_hostname() {
    let server = server().await;
    let here = hostname::get().unwrap().into_string().unwrap();
    let list = format!(r#"grpc_config=[{{"clientHostname": ["{here}"], "serviceConfig": {{}}}}]"#);
    server.set_txt(NAME, 0, &list);
    assert!(config(&builder(server.address).build().unwrap()).await.unwrap().is_some());
    let elsewhere = builder(server.address).hostname("elsewhere").build().unwrap();
    assert!(config(&elsewhere).await.unwrap().is_none());
}

#[tokio::test]
async fn dns_txt_warnings_are_available_without_a_matching_choice() {
    let server = server().await;
    server.set_txt(NAME, 0, r#"grpc_config=[{"percentge": 5, "serviceConfig": {}}]"#);
    let resolver = builder(server.address).build().unwrap();
    assert!(config(&resolver).await.unwrap().is_none());
    let rules: Vec<_> = resolver.clone().warnings().iter().map(|it| it.rule).collect();
    assert_eq!(rules, [Rule::PassedOver, Rule::UnknownField]);
    assert!(format!("{resolver:?}").contains("echo.test"));
}

#[tokio::test]
async fn dns_ttl_is_the_shortest_of_all_records() {
    let server = server().await;
    server.set_addresses("echo.test", 600, &["10.0.0.1".parse().unwrap()]);
    let builder = builder(server.address);
    // A minute of tolerance for a slow machine.
    let cases = [
        (Answer::Records(300, vec![RData::TXT(TXT::from_bytes(vec![b"x"]))]), 240..=300),
        (Answer::Records(3_000, vec![RData::TXT(TXT::from_bytes(vec![b"x"]))]), 540..=600),
        (Answer::NoRecord(200), 140..=200),
        // A failed query is repeated soon.
        (Answer::ServFail, 20..=20),
    ];
    for (answer, expected) in cases {
        server.set_answer(NAME, RecordType::TXT, answer.clone());
        let resolver =
            builder.clone().min_refresh_interval(Duration::from_secs(20)).build().unwrap();
        let ttl = resolve(&resolver).await.ttl.unwrap();
        assert!(expected.contains(&ttl.as_secs()), "{answer:?}: {ttl:?}");
    }
    // A missing record is cached for the minimum interval, too.
    server.set_answer(NAME, RecordType::TXT, Answer::NoRecord(200));
    let resolver = builder.min_refresh_interval(Duration::from_secs(200)).build().unwrap();
    server.queries();
    for _ in 0..3 {
        resolve(&resolver).await;
    }
    assert_eq!(server.query_count(RecordType::TXT), 1);
}
