//! A loaded policy is freed with the last of its clones: a million are loaded, used and dropped, and the
//! live bytes are compared before and after.
#![cfg(feature = "serde")]
#![allow(unsafe_code)]

#[path = "common/live_bytes.rs"]
mod live_bytes;

use live_bytes::live;
use redial::config::AnyPolicy;
use redial::{Hedged, Policy, config::PolicyConfig};

const POLICIES: usize = 1_000_000;

const TEXTS: [&str; 4] = [
    r#"{}"#,
    r#"{"backoff": {"table": ["1ms", "2ms"]}, "throttle": {"tokens": {"max": 10, "ratio": 0.1}}}"#,
    r#"{"attempts": 2, "throttle": {"cost": {}}, "deadline": "5s"}"#,
    r#"{"attempts": 2, "backoff": {"table": []}}"#,
];

/// Loads a policy, uses it and drops it; also a text that is refused.
fn load_and_drop(text: &str) {
    let Ok(written) = serde_json::from_str::<PolicyConfig>(text) else { return };
    let Ok(AnyPolicy::Policy(policy)) = written.load() else { return };
    let clone = policy.clone();
    assert!(policy.retry(|| Ok::<_, ()>(7)).when(|()| true).call().is_ok());
    drop((policy, clone));
}

#[test]
fn policy_create_and_drop_does_not_leak() {
    for text in &TEXTS[..3] {
        assert!(serde_json::from_str::<Policy>(text).is_ok(), "{text}");
    }
    let hedged = r#"{"hedge": {"delay": "20ms"}}"#;
    assert!(serde_json::from_str::<Hedged>(hedged).is_ok());
    let half = || {
        for i in 0..POLICIES / 2 {
            load_and_drop(TEXTS[i % TEXTS.len()]);
            if i % 16 == 0 {
                drop(serde_json::from_str::<Hedged>(hedged));
            }
        }
        live()
    };
    // One-time allocations are no leak: those of the first use, and those of the test harness's thread
    // during the first half.
    let before = half();
    assert_eq!(half() - before, 0, "bytes were left behind");
}
