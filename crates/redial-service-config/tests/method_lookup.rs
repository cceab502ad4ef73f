//! Lookup of a method's entry by its most specific name, without allocation: an allocator counts the
//! allocations of this thread.
#![allow(unsafe_code)]

#[path = "../../redial/tests/common/allocation_count.rs"]
mod counting;

use counting::allocations;
use redial_service_config::{ClientOptions, Code, LoadBalancing, Pushback, ServiceConfig};

const CONFIG: &str = r#"{"methodConfig": [
    {"name": [{"service": "a.B"}], "timeout": "1s"},
    {"name": [{"service": "a.B", "method": "C"}, {"service": "x.Y"}], "timeout": "2s"},
    {"name": [{}], "timeout": "3s"},
    {"timeout": "4s"},
    {"name": [{"service": "a.B", "method": "x/y"}, {"service": "a/b"}], "timeout": "5s"}]}"#;

#[test]
fn lookup_prefers_method_then_service_then_default() {
    let config = ServiceConfig::parse(CONFIG).expect("it is valid");
    for (path, entry) in [
        ("/a.B/C", 1),
        ("/a.B/D", 0),
        ("/a.B/c", 0),
        ("/a.B/", 0),
        ("/x.Y/C", 1),
        ("/x.Y/anything", 1),
        ("/a.C/C", 2),
        ("/a.B", 2),
        ("/a.B/C/", 2),
        ("/", 2),
        ("", 2),
        ("/a.B/x/y", 2),
        ("/a/b/C", 4),
        ("a.B/C", 1),
    ] {
        assert_eq!(config.lookup(path), Some(entry), "{path}");
    }
    let no_default = ServiceConfig::parse(r#"{"methodConfig": [{"name": [{"service": "a"}]}]}"#);
    let no_default = no_default.expect("it is valid");
    assert_eq!((no_default.lookup("/a/M"), no_default.lookup("/b/M")), (Some(0), None));
    assert!(no_default.method("/b/M").is_none());
}

#[test]
fn lookup_and_classification_do_not_allocate() {
    let config = ServiceConfig::parse(CONFIG).expect("it is valid");
    let plans: Vec<_> =
        config.entries().iter().map(|entry| ClientOptions::default().plan(Some(entry))).collect();
    let found = allocations(|| {
        for path in ["/a.B/C", "/a.B/D", "/nobody/knows", "", "/a.B/x/y"] {
            let plan = config.lookup(path).map(|entry| &plans[entry]);
            let classified = plan.map(|plan| plan.classify(Code::Unavailable, Pushback::None));
            assert!(classified.is_some());
        }
    });
    assert_eq!(found, 0);
    assert_eq!(allocations(|| drop(config.clone())), 0, "a clone is one more reference");
    drop(ServiceConfig::default());
    assert_eq!(allocations(|| drop(ServiceConfig::default())), 0);
}

#[test]
fn lookup_in_empty_config_finds_no_entry() {
    for config in [ServiceConfig::default(), ServiceConfig::parse("{}").expect("it is valid")] {
        assert!(config.entries().is_empty() && config.warnings().is_empty());
        assert_eq!((config.lookup("/a.B/C"), config.retry_throttling()), (None, None));
        assert_eq!(config.load_balancing(), LoadBalancing::PickFirst);
    }
    let robin = ServiceConfig::parse(r#"{"loadBalancingPolicy": "round_robin"}"#).expect("valid");
    assert_eq!(robin.load_balancing(), LoadBalancing::RoundRobin);
}

#[test]
fn service_config_identity_is_shared_by_clones_only() {
    let config = ServiceConfig::parse("{}").unwrap();
    assert!(config.ptr_eq(&config.clone()));
    assert!(!config.ptr_eq(&ServiceConfig::parse("{}").unwrap()));
}
