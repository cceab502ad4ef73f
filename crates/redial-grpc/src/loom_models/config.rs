//! The current config: the throttle, the method table, and both together.

use std::sync::Arc;

use loom::thread;
use redial_core::throttle::Bucket;
use redial_service_config::{ClientOptions, RetryThrottling, ServiceConfig};

use super::model;
use crate::layer::RetryLayerBuilder;
use crate::methods::{Counters, Methods};
use crate::shared::Shared;
use crate::sync::ArcSwap;
use crate::throttle::{Server, Throttle};

fn throttling(max: u32) -> Option<RetryThrottling> {
    RetryThrottling::new(max, 100)
}

fn find(methods: &ArcSwap<Methods>, path: &str, counters: &Counters) -> *const () {
    Arc::as_ptr(&Methods::find(methods, path, counters).counters).cast()
}

// A lost update would restore tokens that another config has removed in between.
#[test]
fn throttle_concurrent_reconfigurations_are_sequential() {
    model(|| {
        let server = Arc::new(Server::default());
        server.configure(throttling(10));
        let call = Throttle::Server(server.clone());
        (0..5).for_each(|_| call.failed());
        let other = {
            let server = server.clone();
            thread::spawn(move || server.configure(throttling(100)))
        };
        server.configure(None);
        server.configure(throttling(20));
        other.join().unwrap();
        let left = server.tokens().unwrap();
        assert!(left == 20.0 || left == 100.0, "{left} tokens do not match either config");
    });
}

// Tokens and parameters change in one atomic step; otherwise the failure could be subtracted from
// tokens that are being replaced, and be lost.
#[test]
fn throttle_failure_during_config_swap_is_counted_once() {
    model(|| {
        let server = Arc::new(Server::default());
        server.configure(throttling(10));
        let call = Throttle::Server(server.clone());
        let other = {
            let server = server.clone();
            thread::spawn(move || server.configure(throttling(100)))
        };
        call.failed();
        let seen = call.tokens(0).unwrap();
        other.join().unwrap();
        let left = server.tokens().unwrap();
        assert!([9.0, 90.0, 99.0].contains(&seen), "{seen}");
        assert!([90.0, 99.0].contains(&left), "{left}");
        call.failed();
        assert_eq!(server.tokens(), Some(left - 1.0), "failures count in the new config");
    });
}

// Both copies of the method table must be merged; storing the second would lose the first.
#[test]
fn config_concurrent_first_calls_register_both_methods() {
    model(|| {
        let methods = Methods::new(ServiceConfig::default(), &ClientOptions::default());
        let (methods, counters) = (Arc::new(ArcSwap::from_pointee(methods)), Arc::default());
        let other = {
            let (methods, counters) = (Arc::clone(&methods), Arc::<Counters>::clone(&counters));
            thread::spawn(move || drop(Methods::find(&methods, "/a.B/one", &counters)))
        };
        drop(Methods::find(&methods, "/a.B/two", &counters));
        other.join().unwrap();
        assert_eq!(methods.load().known(), ["/a.B/one", "/a.B/two"]);
    });
}

// Lookup and insertion of counters happen under one lock.
#[test]
fn statistics_concurrent_first_calls_share_one_set_of_counters() {
    model(|| {
        let methods = Methods::new(ServiceConfig::default(), &ClientOptions::default());
        let (methods, counters) = (Arc::new(ArcSwap::from_pointee(methods)), Arc::default());
        let other = {
            let (methods, counters) = (Arc::clone(&methods), Arc::<Counters>::clone(&counters));
            thread::spawn(move || find(&methods, "/a.B/one", &counters) as usize)
        };
        let own = find(&methods, "/a.B/one", &counters) as usize;
        assert_eq!(other.join().unwrap(), own);
        assert_eq!(find(&methods, "/a.B/one", &counters) as usize, own);
    });
}

/// Either a config with a deadline and a throttle, or an empty one.
fn config(whole: bool) -> ServiceConfig {
    let text = match whole {
        true => {
            r#"{"methodConfig": [{"name": [{}], "timeout": "1s"}],
                "retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1}}"#
        }
        false => "{}",
    };
    ServiceConfig::parse(text).unwrap()
}

fn shared() -> Arc<Shared> {
    Arc::new(Shared::new(RetryLayerBuilder::default().config(config(false))))
}

// Config updates are serialized by a lock, so deadline and throttle belong to the same config.
#[test]
fn config_concurrent_updates_apply_one_whole_config() {
    model(|| {
        let shared = shared();
        let other = {
            let shared = shared.clone();
            thread::spawn(move || shared.set_config(config(true)))
        };
        shared.set_config(config(false));
        other.join().unwrap();
        let whole = shared.methods.load().have_limits();
        let parts = (shared.has_limits(), shared.server.tokens().is_some());
        assert_eq!(parts, (whole, whole));
    });
}

// A first call checks that its config is still current before it adds its plan to the table.
#[test]
fn config_first_call_does_not_leak_its_plan() {
    model(|| {
        let shared = shared();
        let call = {
            let shared = shared.clone();
            thread::spawn(move || drop(shared.method("/a.B/one")))
        };
        shared.set_config(config(true));
        call.join().unwrap();
        let method = crate::methods::PlanRef::new(shared.method("/a.B/one"), Default::default());
        assert!(method.rules().deadline.is_some(), "the call uses the previous config");
    });
}
