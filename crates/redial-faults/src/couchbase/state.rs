//! The state of the cluster that all connections share.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::frames::Request;
use super::record::{REQUESTS_KEPT, RequestOutcome, RequestRecord};
use super::script::{Answer, Script};
use super::store::Store;
use super::tls::Identity;

/// The management port of the first node in configurations, as on real servers.
const MANAGEMENT_PORT: usize = 8091;

/// Called for each request.
pub(super) type OnRequest = dyn Fn(&RequestRecord) + Send + Sync;

pub(super) struct Shared {
    state: Mutex<State>,
    pub(super) started: Instant,
    /// Connections that began in an earlier generation are closed.
    pub(super) generation: watch::Sender<u64>,
    /// Whether connections read requests.
    pub(super) reads: watch::Sender<bool>,
    pub(super) on_request: Option<Box<OnRequest>>,
}

/// The ids of collections, by scope and name.
pub(super) type CollectionIds = BTreeMap<String, BTreeMap<String, u32>>;

pub(super) struct State {
    pub(super) script: Script,
    pub(super) answers: VecDeque<Answer>,
    pub(super) bucket_status: u16,
    pub(super) collections: Option<CollectionIds>,
    manifest_uid: u64,
    next_collection: u32,
    /// The nodes of each vbucket: the active one, then replicas; -1: none.
    vbuckets: Vec<Vec<i32>>,
    revision: u64,
    pub(super) addresses: Vec<(String, u16)>,
    pub(super) identity: Option<Identity>,
    pub(super) store: Store,
    pub(super) records: Vec<RequestRecord>,
    pub(super) requests: u64,
    pub(super) polls: u64,
    pub(super) connections: usize,
    pub(super) connections_open: usize,
}

impl Shared {
    pub(super) fn new(
        script: Script,
        identity: Option<Identity>,
        on_request: Option<Box<OnRequest>>,
    ) -> Self {
        let nodes = script.nodes;
        let node = |vbucket: usize, copy: usize| ((vbucket + copy) % nodes) as i32;
        let copies = |vbucket| (0..=script.replicas).map(|copy| node(vbucket, copy)).collect();
        let vbuckets = (0..script.vbuckets).map(copies).collect();
        let mut state = State {
            answers: script.answers.iter().cloned().collect(),
            bucket_status: 0,
            collections: None,
            manifest_uid: 1,
            // Lower ids are reserved.
            next_collection: 8,
            vbuckets,
            revision: 1,
            addresses: Vec::new(),
            identity,
            store: Store::default(),
            records: Vec::new(),
            requests: 0,
            polls: 0,
            connections: 0,
            connections_open: 0,
            script,
        };
        if let Some(scopes) = state.script.collections.clone() {
            let default = BTreeMap::from([("_default".to_owned(), 0)]);
            state.collections = Some(BTreeMap::from([("_default".to_owned(), default)]));
            for (scope, collections) in scopes {
                state.set_scope(&scope, collections);
            }
        }
        let (generation, reads) = (watch::Sender::new(0), watch::Sender::new(true));
        let state = Mutex::new(state);
        Shared { state, started: Instant::now(), generation, reads, on_request }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a request. Returns it if there is a hook, for [`answered`](Shared::answered).
    pub(super) fn record(
        &self,
        request: &Arrived<'_>,
        outcome: RequestOutcome,
    ) -> Option<RequestRecord> {
        let record = RequestRecord {
            at: request.at.duration_since(self.started),
            node: request.node,
            connection: request.connection,
            command: super::frames::command(request.request.opcode),
            key: request.request.key.to_vec(),
            vbucket: request.request.vbucket,
            outcome,
        };
        let answered = self.on_request.is_some().then(|| record.clone());
        let mut state = self.lock();
        state.requests += 1;
        if state.records.len() < REQUESTS_KEPT {
            state.records.push(record);
        }
        answered
    }

    /// Calls the hook for a request whose answer has been written.
    pub(super) fn answered(&self, request: Option<&RequestRecord>) {
        if let (Some(hook), Some(request)) = (&self.on_request, request) {
            hook(request);
        }
    }
}

/// A request with where and when it arrived.
pub(super) struct Arrived<'a> {
    pub(super) request: &'a Request,
    pub(super) at: Instant,
    pub(super) node: usize,
    pub(super) connection: usize,
}

impl State {
    pub(super) fn set_scope(&mut self, scope: &str, collections: Vec<String>) {
        let scopes = self.collections.get_or_insert_default();
        let present = scopes.remove(scope).unwrap_or_default();
        let mut ids = BTreeMap::new();
        for name in collections {
            let id = present.get(&name).copied().unwrap_or_else(|| {
                self.next_collection += 1;
                self.next_collection - 1
            });
            ids.insert(name, id);
        }
        scopes.insert(scope.to_owned(), ids);
        self.manifest_uid += 1;
    }

    pub(super) fn remove_scope(&mut self, scope: &str) {
        if let Some(scopes) = &mut self.collections {
            scopes.remove(scope);
            self.manifest_uid += 1;
        }
    }

    /// Makes a node the active one of all vbuckets; `None`: they have no node.
    pub(super) fn move_vbuckets(&mut self, node: Option<usize>) {
        let node = node.map_or(-1, |node| node as i32);
        for vbucket in &mut self.vbuckets {
            vbucket[0] = node;
        }
        self.revision += 1;
    }

    /// Whether the node has this vbucket; a replica counts for reads of replicas.
    pub(super) fn has_vbucket(&self, node: usize, request: &Request) -> bool {
        let Some(nodes) = self.vbuckets.get(usize::from(request.vbucket)) else { return false };
        let node = node as i32;
        match request.opcode {
            0x83 => nodes[1..].contains(&node),
            _ => nodes[0] == node,
        }
    }

    /// The configuration of the cluster, without a bucket.
    pub(super) fn global_config(&self) -> Value {
        // Nothing listens at the management ports; clients identify nodes by them.
        let node = |(index, (host, port)): (usize, &(String, u16))| {
            let services = json!({"kv": port, "kvSSL": port, "mgmt": MANAGEMENT_PORT + index});
            json!({"hostname": host, "services": services})
        };
        let nodes: Vec<_> = self.addresses.iter().enumerate().map(node).collect();
        json!({
            "rev": self.revision,
            "revEpoch": 1,
            "nodesExt": nodes,
            "clusterCapabilitiesVer": [1, 0],
            "clusterCapabilities": {},
        })
    }

    /// The configuration of the cluster and its bucket.
    pub(super) fn config(&self) -> Value {
        let nodes: Vec<_> =
            self.addresses.iter().map(|(host, _)| json!({"hostname": host})).collect();
        let servers: Vec<_> =
            self.addresses.iter().map(|(host, port)| format!("{host}:{port}")).collect();
        let mut config = self.global_config();
        config["name"] = json!(self.script.bucket);
        config["nodeLocator"] = json!("vbucket");
        config["nodes"] = json!(nodes);
        config["vBucketServerMap"] = json!({
            "hashAlgorithm": "CRC",
            "numReplicas": self.script.replicas,
            "serverList": servers,
            "vBucketMap": self.vbuckets,
        });
        config
    }

    /// The manifest of the collections.
    pub(super) fn manifest(&self) -> Option<String> {
        let collection =
            |(name, id): (&String, &u32)| json!({"name": name, "uid": format!("{id:x}")});
        let scopes = self.collections.as_ref()?.iter().enumerate();
        let scopes: Vec<_> = scopes
            .map(|(index, (name, collections))| {
                let collections: Vec<_> = collections.iter().map(collection).collect();
                json!({"name": name, "uid": format!("{index:x}"), "collections": collections})
            })
            .collect();
        let uid = format!("{:x}", self.manifest_uid);
        Some(json!({"uid": uid, "scopes": scopes}).to_string())
    }

    pub(super) fn manifest_uid(&self) -> u64 {
        self.manifest_uid
    }

    /// The id of `scope.collection`.
    pub(super) fn collection_id(&self, path: &[u8]) -> Option<u32> {
        let (scope, collection) = std::str::from_utf8(path).ok()?.split_once('.')?;
        self.collections.as_ref()?.get(scope)?.get(collection).copied()
    }

    /// Whether the key has the prefix of a collection that exists.
    pub(super) fn has_collection(&self, key: &[u8]) -> bool {
        let Some(scopes) = &self.collections else { return true };
        let mut id: u64 = 0;
        for (index, byte) in key.iter().take(5).enumerate() {
            id |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                return scopes.values().flat_map(BTreeMap::values).any(|it| u64::from(*it) == id);
            }
        }
        false
    }

    pub(super) fn error_map(&self) -> String {
        let entry = |(status, attributes): (&u16, &Vec<String>)| {
            let name = format!("TEST_{status:X}");
            let entry = json!({"name": name, "desc": "of the script", "attrs": attributes});
            (format!("{status:x}"), entry)
        };
        let errors: serde_json::Map<_, _> = self.script.error_map.iter().map(entry).collect();
        json!({"version": 2, "revision": 1, "errors": errors}).to_string()
    }

    /// The next answer for a command.
    pub(super) fn next_answer(&mut self, command: &str) -> Answer {
        let fits = |answer: &Answer| answer.command.as_ref().is_none_or(|it| it == command);
        let index = self.answers.iter().position(fits);
        index.and_then(|index| self.answers.remove(index)).unwrap_or(Answer::serve())
    }
}
