//! Idempotency of operations: exactly those of RFC 49's list are idempotent (decision C16).

use redial_couchbase::{RequestOperation, operation};

const IDEMPOTENT: [&str; 16] = [
    "kv.cluster_config",
    "kv.global_config",
    "kv.get",
    "kv.get_collection_id",
    "kv.get_collection_manifest",
    "kv.noop",
    "kv.observe_cas",
    "kv.observe_seqno",
    "kv.get_replica",
    "kv.lookup_in",
    "query.readonly",
    "analytics.readonly",
    "search",
    "views",
    "manager.get",
    "management.get",
];

const NOT_IDEMPOTENT: [&str; 21] = [
    "kv.get_and_lock",
    "kv.get_and_touch",
    "kv.touch",
    "kv.unlock",
    "kv.upsert",
    "kv.insert",
    "kv.replace",
    "kv.remove",
    "kv.mutate_in",
    "kv.increment",
    "kv.decrement",
    "kv.append",
    "kv.prepend",
    "query",
    "analytics",
    "manager.post",
    "manager.put",
    "manager.delete",
    "management.post",
    "management.put",
    "management.delete",
];

#[test]
fn operation_idempotency_matches_rfc_list() {
    for name in IDEMPOTENT {
        assert!(RequestOperation::parse(name).expect("a known name").is_idempotent(), "{name}");
    }
    for name in NOT_IDEMPOTENT {
        assert!(!RequestOperation::parse(name).expect("a known name").is_idempotent(), "{name}");
    }
    assert_eq!(operation::ALL.len(), IDEMPOTENT.len() + NOT_IDEMPOTENT.len());
}

#[test]
fn operation_parse_suggests_nearest_name() {
    let cases = [
        ("kv.gett", Some("kv.get")),
        ("kv.Get", Some("kv.get")),
        ("query.read_only", Some("query.readonly")),
        ("managment.put", Some("management.put")),
        ("zzz", None),
        ("", None),
    ];
    for (name, nearest) in cases {
        let error = RequestOperation::parse(name).expect_err("an unknown name");
        assert_eq!(error.nearest(), nearest, "{name}");
        assert!(error.to_string().starts_with("unknown operation"), "{error}");
    }
}

#[test]
fn operation_custom_is_not_idempotent_by_default() {
    assert!(!RequestOperation::new("kv.get_meta").is_idempotent());
    assert!(RequestOperation::declared_idempotent("kv.get_meta").is_idempotent());
}
