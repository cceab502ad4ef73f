//! The state of the cluster that all connections share.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
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

/// The id of the first collection; lower ids are reserved.
const FIRST_COLLECTION: u32 = 8;

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

fn default_scope() -> CollectionIds {
    BTreeMap::from([("_default".to_owned(), BTreeMap::from([("_default".to_owned(), 0)]))])
}

pub(super) struct State {
    pub(super) script: Script,
    pub(super) answers: VecDeque<Answer>,
    pub(super) bucket_status: u16,
    pub(super) config_status: u16,
    pub(super) collections: Option<CollectionIds>,
    /// How many buckets of this name came before this one.
    bucket_generation: u64,
    manifest_uid: u64,
    next_collection: u32,
    /// The nodes of each vbucket: the active one, then replicas; -1: none.
    vbuckets: Vec<Vec<i32>>,
    revision: u64,
    pub(super) addresses: Vec<(String, u16)>,
    /// The nodes that have left the cluster configuration.
    failed_over: BTreeSet<usize>,
    /// The nodes whose KV service has no TLS port.
    without_tls: BTreeSet<usize>,
    pub(super) identity: Option<Identity>,
    pub(super) store: Store,
    pub(super) records: Vec<RequestRecord>,
    pub(super) requests: u64,
    pub(super) polls: u64,
    pub(super) manifests: u64,
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
            config_status: 0,
            collections: None,
            bucket_generation: 0,
            manifest_uid: 1,
            next_collection: FIRST_COLLECTION,
            vbuckets,
            revision: 1,
            addresses: Vec::new(),
            failed_over: BTreeSet::new(),
            without_tls: BTreeSet::new(),
            identity,
            store: Store::default(),
            records: Vec::new(),
            requests: 0,
            polls: 0,
            manifests: 0,
            connections: 0,
            connections_open: 0,
            script,
        };
        if let Some(scopes) = state.script.collections.clone() {
            state.collections = Some(default_scope());
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

    /// Deletes the bucket, and creates it anew without documents and scopes.
    pub(super) fn recreate_bucket(&mut self) {
        self.bucket_generation += 1;
        self.store = Store::default();
        self.manifest_uid = 1;
        self.next_collection = FIRST_COLLECTION;
        if let Some(scopes) = &mut self.collections {
            *scopes = default_scope();
        }
        self.revision += 1;
    }

    /// Makes a node the active one of all vbuckets; `None`: they have no node.
    pub(super) fn move_vbuckets(&mut self, node: Option<usize>) {
        let node = node.map_or(-1, |node| node as i32);
        for vbucket in &mut self.vbuckets {
            vbucket[0] = node;
        }
        self.revision += 1;
    }

    /// Takes a node out of the cluster configuration; the next node gets its vbuckets, if one is left.
    pub(super) fn fail_over(&mut self, node: usize) {
        self.failed_over.insert(node);
        let nodes = self.script.nodes;
        let mut others = (1..nodes).map(|step| (node + step) % nodes);
        let next = others.find(|other| !self.failed_over.contains(other));
        let (node, next) = (node as i32, next.map_or(-1, |next| next as i32));
        for vbucket in &mut self.vbuckets {
            for (copy, holder) in vbucket.iter_mut().enumerate() {
                if *holder == node {
                    *holder = if copy == 0 { next } else { -1 };
                }
            }
        }
        self.revision += 1;
    }

    /// Whether the configuration has a TLS port for the KV service of a node.
    pub(super) fn set_tls_port(&mut self, node: usize, is_listed: bool) {
        if is_listed {
            self.without_tls.remove(&node);
        } else {
            self.without_tls.insert(node);
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

    /// The nodes of the configuration.
    fn listed(&self) -> Vec<usize> {
        (0..self.addresses.len()).filter(|node| !self.failed_over.contains(node)).collect()
    }

    /// The configuration of the cluster, without a bucket.
    pub(super) fn global_config(&self) -> Value {
        // Nothing listens at the management ports; clients identify nodes by them.
        let node = |index: usize| {
            let (host, port) = &self.addresses[index];
            let mut services = json!({"kv": port, "mgmt": MANAGEMENT_PORT + index});
            if !self.without_tls.contains(&index) {
                services["kvSSL"] = json!(port);
            }
            json!({"hostname": host, "services": services})
        };
        let nodes: Vec<_> = self.listed().into_iter().map(node).collect();
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
        let listed = self.listed();
        let addresses = || listed.iter().map(|node| &self.addresses[*node]);
        let nodes: Vec<_> = addresses().map(|(host, _)| json!({"hostname": host})).collect();
        let servers: Vec<_> = addresses().map(|(host, port)| format!("{host}:{port}")).collect();
        // The map counts the listed nodes only.
        let position = |node: &i32| {
            let position = listed.iter().position(|it| *it as i32 == *node);
            position.map_or(-1, |position| position as i32)
        };
        let positions = |nodes: &Vec<i32>| nodes.iter().map(position).collect::<Vec<_>>();
        let map: Vec<_> = self.vbuckets.iter().map(positions).collect();
        let mut config = self.global_config();
        config["name"] = json!(self.script.bucket);
        config["uuid"] = json!(format!("{:032x}", self.bucket_generation));
        config["nodeLocator"] = json!("vbucket");
        config["nodes"] = json!(nodes);
        config["vBucketServerMap"] = json!({
            "hashAlgorithm": "CRC",
            "numReplicas": self.script.replicas,
            "serverList": servers,
            "vBucketMap": map,
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
            let mut entry = json!({"name": name, "desc": "of the script", "attrs": attributes});
            if let Some(interval) = self.script.intervals.get(status) {
                let interval = interval.as_millis() as u64;
                entry["retry"] =
                    json!({"strategy": "constant", "interval": interval, "after": interval});
            }
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
