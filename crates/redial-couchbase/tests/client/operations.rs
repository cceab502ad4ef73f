use std::time::Duration;

use redial_couchbase::client::{
    Cas, Existence, InvalidRequest, Lookup, PathError, PathMutation, RequestError,
};
use redial_couchbase::response::status;
use redial_faults::couchbase::Script;

use crate::common::{ClientError, ready};

const SECOND: Duration = Duration::from_secs(1);

fn status_of(error: &ClientError) -> Option<u16> {
    error.last().and_then(RequestError::status)
}

#[tokio::test(start_paused = true)]
async fn operations_write_and_read_documents() {
    let (client, _server) = ready(Script::new()).await;
    let documents = client.default_collection();
    let missing = documents.get("a").await.unwrap_err();
    assert_eq!(status_of(&missing), Some(status::NOT_FOUND));
    assert_eq!(missing.attempts(), 1, "a known response is final");
    let first = documents.insert("a", "one").await.unwrap();
    let error = documents.insert("a", "two").await.unwrap_err();
    assert_eq!(status_of(&error), Some(status::EXISTS));
    let second = documents.replace("a", "two").cas(first.cas).await.unwrap();
    let error = documents.replace("a", "three").cas(first.cas).await.unwrap_err();
    assert_eq!(status_of(&error), Some(status::EXISTS));
    let document = documents.get("a").await.unwrap();
    assert_eq!((&document.value[..], document.cas), (&b"two"[..], second.cas));
    documents.append("a", "!").await.unwrap();
    documents.prepend("a", "<").await.unwrap();
    assert_eq!(documents.get("a").await.unwrap().value, "<two!");
    assert!(matches!(documents.exists("a").await.unwrap(), Existence::Exists(_)));
    documents.remove("a").await.unwrap();
    assert_eq!(documents.exists("a").await.unwrap(), Existence::Missing);
    let error = documents.replace("a", "x").await.unwrap_err();
    assert_eq!(status_of(&error), Some(status::NOT_FOUND));
    client.noop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn operations_count() {
    let (client, _server) = ready(Script::new()).await;
    let documents = client.default_collection();
    let error = documents.increment("n", 1, None).await.unwrap_err();
    assert_eq!(status_of(&error), Some(status::NOT_FOUND));
    assert_eq!(documents.increment("n", 1, Some(40)).await.unwrap().value, 40);
    assert_eq!(documents.increment("n", 2, None).await.unwrap().value, 42);
    assert_eq!(documents.decrement("n", 50, None).await.unwrap().value, 0);
}

#[tokio::test(start_paused = true)]
async fn operations_expire_and_touch() {
    let (client, _server) = ready(Script::new()).await;
    let documents = client.default_collection();
    documents.upsert("a", "1").expiry(SECOND).await.unwrap();
    tokio::time::sleep(SECOND / 2).await;
    assert_eq!(documents.get_and_touch("a", 2 * SECOND).await.unwrap().value, "1");
    tokio::time::sleep(SECOND).await;
    documents.touch("a", 2 * SECOND).await.unwrap();
    tokio::time::sleep(3 * SECOND / 2).await;
    assert!(documents.get("a").await.is_ok(), "it was touched");
    tokio::time::sleep(SECOND).await;
    assert_eq!(status_of(&documents.get("a").await.unwrap_err()), Some(status::NOT_FOUND));
    let error = documents.remove("a").expiry(SECOND).await.unwrap_err();
    let Some(RequestError::Invalid(InvalidRequest::NoExpiry)) = error.last() else {
        panic!("{error}")
    };
}

#[tokio::test(start_paused = true)]
async fn operations_unlock_with_wrong_cas_is_a_cas_mismatch() {
    let (client, _server) = ready(Script::new()).await;
    let documents = client.default_collection();
    documents.upsert("a", "1").await.unwrap();
    let locked = documents.get_and_lock("a", 10 * SECOND).await.unwrap();
    let error = documents.unlock("a", Cas(locked.cas.0 + 1)).await.unwrap_err();
    assert!(error.cas_mismatch().is_some());
    assert_eq!(error.attempts(), 1);
    let text = error.to_string();
    assert!(text.starts_with("kv.unlock a: CAS mismatch, kv status 0x09 to unlock"), "{text}");
    documents.unlock("a", locked.cas).await.unwrap();
    documents.upsert("a", "2").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn operations_locked_document_is_retried_until_its_lock_ends() {
    let (client, server) = ready(Script::new()).await;
    let documents = client.default_collection();
    documents.upsert("a", "1").await.unwrap();
    documents.get_and_lock("a", SECOND).await.unwrap();
    let before = tokio::time::Instant::now();
    documents.upsert("a", "2").await.unwrap();
    let waited = before.elapsed();
    assert!((SECOND..2 * SECOND).contains(&waited), "{waited:?}");
    assert!(server.requests().len() > 5);
}

#[tokio::test(start_paused = true)]
async fn operations_read_and_change_parts_of_documents() {
    let (client, _server) = ready(Script::new()).await;
    let documents = client.default_collection();
    documents.upsert("a", r#"{"name": {"first": "Ada"}, "n": 1}"#).await.unwrap();
    let paths = [Lookup::get("name.first"), Lookup::exists("n"), Lookup::get("none")];
    let found = documents.lookup_in("a", paths).await.unwrap();
    assert_eq!(found.values[0].as_deref(), Ok(&br#""Ada""#[..]));
    assert_eq!(found.values[1].as_deref(), Ok(&[][..]));
    assert_eq!(found.values[2], Err(PathError::NOT_FOUND));
    let changes = [PathMutation::upsert("name.last", "\"L\""), PathMutation::remove("n")];
    let changed = documents.mutate_in("a", changes).await.unwrap();
    assert_eq!(changed.failed, None);
    let refused = documents.mutate_in("a", [PathMutation::insert("name", "1")]).await.unwrap();
    assert_eq!(refused.failed, Some((0, PathError::EXISTS)));
    let document = documents.get("a").await.unwrap();
    assert_eq!(document.value, r#"{"name":{"first":"Ada","last":"L"}}"#);
    assert_eq!(document.cas, changed.cas);
    let error = documents.lookup_in("a", []).await.unwrap_err();
    assert_eq!(error.last().unwrap().to_string(), "0 paths; 1 to 16 are allowed");
}

#[tokio::test(start_paused = true)]
async fn operations_read_replicas_from_their_nodes() {
    let (client, server) = ready(Script::new().nodes(3).replicas(1)).await;
    let documents = client.default_collection();
    for key in ["a", "b", "c", "d", "e", "f"] {
        documents.upsert(key, key).await.unwrap();
        assert_eq!(documents.get_replica(key, 1).await.unwrap().value, key);
    }
    let requests = server.requests();
    for pair in requests.chunks(2) {
        assert_eq!(pair[1].node, (pair[0].node + 1) % 3, "the replica is on the next node");
    }
    assert!(requests.iter().any(|request| request.node != requests[0].node));
    let error = documents.get_replica("a", 2).timeout(SECOND / 10).await.unwrap_err();
    assert_eq!(error.reason(), Some(redial_couchbase::reason::NODE_NOT_AVAILABLE));
}

#[tokio::test(start_paused = true)]
async fn operations_keep_collections_apart() {
    let script = Script::new().scope("inventory", ["airline", "hotel"]);
    let (client, server) = ready(script).await;
    let airlines = client.collection("inventory", "airline");
    let hotels = client.collection("inventory", "hotel");
    airlines.upsert("a", "airline").await.unwrap();
    hotels.upsert("a", "hotel").await.unwrap();
    client.default_collection().upsert("a", "default").await.unwrap();
    assert_eq!(airlines.get("a").await.unwrap().value, "airline");
    assert_eq!(hotels.get("a").await.unwrap().value, "hotel");
    assert_eq!(client.default_collection().get("a").await.unwrap().value, "default");
    let vbuckets: Vec<_> = server.requests().iter().map(|request| request.vbucket).collect();
    assert!(vbuckets.windows(2).all(|pair| pair[0] == pair[1]), "the prefix is not hashed");
    let id = airlines.collection_id().await.unwrap().id;
    assert_eq!(server.requests()[0].key, [id as u8, b'a']);
    // RFC 49: 0x88 means here that there is no such collection, and is final.
    let error = client.collection("inventory", "train").collection_id().await.unwrap_err();
    assert_eq!((status_of(&error), error.attempts()), (Some(0x88), 1));
}

#[tokio::test(start_paused = true)]
async fn operations_on_a_collection_need_a_server_with_collections() {
    let (client, _server) = ready(Script::new()).await;
    let error = client.collection("s", "c").get("a").await.unwrap_err();
    let text = "the server has no collections; use the default collection";
    assert_eq!(error.last().unwrap().to_string(), text);
}
