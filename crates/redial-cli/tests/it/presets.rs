//! Goal: each preset matches its design, by name and as a value, with its own throttle or none.
//! Method: the rules are compared with the numbers in the decisions, and the policies run on
//! virtual time.

use std::sync::Arc;

use redial::testing::{Clock, block_on};
use redial::throttle::RetryBudget;
use redial::{Failure, Policy, PolicyError, StopReason, Throttle, ms, s};
use redial_cli::presets::{self, Preset};

/// Runs a call whose attempts fail immediately: the number of attempts and the stop reason.
fn play(policy: &Policy) -> (u32, StopReason) {
    let mut attempts = 0;
    let attempt = || {
        attempts += 1;
        async { Err::<(), _>(Failure::server()) }
    };
    let call = policy.retry(attempt).when(|failure| Some(*failure)).sleeping_on(Clock).seed(1);
    let stop_reason = block_on(call.into_future())
        .map_or_else(|error| error.stop_reason(), |()| StopReason::Succeeded);
    (attempts, stop_reason)
}

#[test]
fn presets_are_found_by_name() {
    let names = [
        "smithy-standard",
        "aws-2026",
        "aws-2026-dynamodb",
        "milvus",
        "couchbase-best-effort",
        "limits",
    ];
    assert_eq!(Preset::ALL.map(Preset::name), names);
    for preset in Preset::ALL {
        assert_eq!(presets::by_name(preset.name()), Some(preset));
        assert!(!preset.about().is_empty() && !preset.throttle().is_empty());
    }
    assert_eq!(presets::by_name("Limits"), None);
}

#[test]
fn presets_by_name_equal_those_in_code() {
    let deadline = s(2);
    let in_code = [
        redial_smithy::presets::smithy_standard().time_max(deadline).policy(),
        redial_smithy::presets::aws_2026().time_max(deadline).policy(),
        redial_smithy::presets::aws_2026_dynamodb().time_max(deadline).policy(),
        redial_milvus::Options::default().deadline(deadline).policy(),
        redial_couchbase::presets::couchbase_best_effort(deadline).try_build(),
        redial::presets::limits().deadline(deadline).try_build(),
    ];
    for (preset, in_code) in Preset::ALL.into_iter().zip(in_code) {
        let by_name = preset.policy_within(deadline).expect("valid");
        assert_eq!(by_name.rules(), in_code.expect("valid").rules(), "{}", preset.name());
    }
    let milvus = Preset::Milvus.policy().expect("valid");
    assert_eq!(milvus.rules(), redial_milvus::presets::milvus().build().rules());
}

#[test]
fn presets_keep_the_throttle_of_their_design() {
    for preset in Preset::ALL {
        let tokens = preset.policy_within(s(20)).expect("valid").tokens(0);
        let expected = match preset {
            Preset::SmithyStandard | Preset::Aws2026 | Preset::Aws2026Dynamodb => Some(500.0),
            _ => None,
        };
        assert_eq!(tokens, expected, "{}", preset.name());
        assert_eq!(preset.throttle().starts_with("none"), expected.is_none());
    }
}

#[test]
fn presets_accept_a_retry_budget() {
    for preset in Preset::ALL {
        let budget = Arc::new(RetryBudget::try_new(1.0, 0.1).expect("valid"));
        let policy = preset.policy_within(s(20)).expect("valid").sharing(budget);
        assert_eq!(play(&policy), (2, StopReason::Throttled), "{}", preset.name());
    }
}

#[test]
fn presets_best_effort_requires_a_deadline() {
    let refused = Preset::CouchbaseBestEffort.policy().map(|_| ());
    assert_eq!(refused, Err(PolicyError::Unlimited));
}

#[test]
fn presets_build_in_a_static() {
    static LIMITED: Policy = redial::presets::limits().attempts(4).build();
    static KV: Policy = redial_couchbase::presets::couchbase_best_effort(ms(2500)).build();
    static SEARCH: Policy = redial_milvus::presets::milvus().throttle(Throttle::here()).build();
    assert_eq!(LIMITED.rules().attempts, Some(4));
    assert_eq!(KV.rules().deadline, Some(ms(2500)));
    assert_eq!(SEARCH.tokens(0), Some(10.0));
}
