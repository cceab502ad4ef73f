//! The cluster configuration of a bucket: nodes, and which of them has each vbucket.

use std::fmt;

use serde::Deserialize;

/// The maximum number of vbuckets in a configuration; Couchbase has 1024.
const VBUCKETS_MAX: usize = 1 << 15;
/// The maximum number of nodes in a configuration.
const NODES_MAX: usize = 4096;

/// The address of a node's KV service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    host: String,
    port: u16,
}

impl Address {
    /// The address of a host name or IP address.
    #[must_use]
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Address { host: host.into(), port }
    }

    /// The host name or IP address, without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Reads `host:port` or `[address]:port`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let host = match host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']')?,
            None if host.contains(':') => return None,
            None => host,
        };
        if host.is_empty() {
            return None;
        }
        Some(Address::new(host, port.parse().ok()?))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Which port of a node the client connects to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Plain,
    Tls,
}

/// The vbucket map of a bucket. Nodes are indices into `nodes`; a missing node is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Topology {
    revision: (i64, i64),
    /// A bucket that is deleted and created anew has another one.
    bucket_uuid: Option<String>,
    /// The address of each node; `None`: the node has no KV service with this transport.
    pub(crate) nodes: Vec<Option<Address>>,
    /// The active node of each vbucket, then its replicas.
    vbuckets: Vec<Vec<i32>>,
}

/// A node for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) vbucket: u16,
    /// `None`: no node has this vbucket now.
    pub(crate) node: Option<usize>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Config {
    #[serde(default)]
    rev: i64,
    #[serde(default)]
    rev_epoch: i64,
    uuid: Option<String>,
    #[serde(default)]
    nodes_ext: Vec<NodeExt>,
    v_bucket_server_map: Option<ServerMap>,
}

#[derive(Deserialize)]
struct NodeExt {
    hostname: Option<String>,
    #[serde(default)]
    services: Services,
}

#[derive(Default, Deserialize)]
struct Services {
    kv: Option<u16>,
    #[serde(rename = "kvSSL")]
    kv_ssl: Option<u16>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ServerMap {
    server_list: Vec<String>,
    v_bucket_map: Vec<Vec<i32>>,
}

impl Topology {
    /// A single node without a cluster map: plain memcached.
    pub(crate) fn single(address: Address) -> Self {
        let (revision, vbuckets) = ((0, 0), vec![vec![0]]);
        Topology { revision, bucket_uuid: None, nodes: vec![Some(address)], vbuckets }
    }

    /// Reads a configuration. `host` is the one that sent it, which stands for `$HOST`.
    ///
    /// # Errors
    /// It is not the configuration of a bucket.
    pub(crate) fn parse(
        json: &[u8],
        host: &str,
        transport: Transport,
    ) -> Result<Self, TopologyError> {
        let config: Config = serde_json::from_slice(json).map_err(TopologyError::json)?;
        let map = config.v_bucket_server_map.ok_or(TopologyError::NoVbuckets)?;
        let vbuckets = map.v_bucket_map;
        if !vbuckets.len().is_power_of_two() || vbuckets.len() > VBUCKETS_MAX {
            return Err(TopologyError::VbucketCount(vbuckets.len()));
        }
        if map.server_list.len() > NODES_MAX {
            return Err(TopologyError::NodeCount(map.server_list.len()));
        }
        let node_count = map.server_list.len();
        let in_range = |node: &i32| usize::try_from(*node).is_ok_and(|node| node < node_count);
        if let Some(node) = vbuckets.iter().flatten().find(|node| **node >= 0 && !in_range(node)) {
            return Err(TopologyError::Node(*node));
        }
        let nodes = map.server_list.iter().map(|listed| {
            let text = listed.replace("$HOST", &bracketed(host));
            let plain = Address::parse(&text).ok_or(TopologyError::Address(text))?;
            Ok(match transport {
                Transport::Plain => Some(plain),
                Transport::Tls => tls_address(&config.nodes_ext, &plain, host),
            })
        });
        let nodes: Vec<_> = nodes.collect::<Result<_, _>>()?;
        // A client without endpoints would not see the next configuration either.
        if nodes.iter().all(Option::is_none) {
            return Err(TopologyError::NoAddress(transport));
        }
        let revision = (config.rev_epoch, config.rev);
        Ok(Topology { revision, bucket_uuid: config.uuid, nodes, vbuckets })
    }

    /// Whether this configuration replaces another one.
    pub(crate) fn is_newer_than(&self, other: &Topology) -> bool {
        self.revision > other.revision
    }

    /// The UUID of the bucket, if the server sends one.
    pub(crate) fn bucket_uuid(&self) -> Option<&str> {
        self.bucket_uuid.as_deref()
    }

    pub(crate) fn revision(&self) -> (i64, i64) {
        self.revision
    }

    /// The node for a key; `copy` 0 is the active one, others are replicas.
    pub(crate) fn route(&self, key: &[u8], copy: usize) -> Route {
        // The number of vbuckets is a power of two.
        let hash = (crc32fast::hash(key) >> 16) & 0x7fff;
        let vbucket = hash as usize & (self.vbuckets.len() - 1);
        let node = self.vbuckets[vbucket].get(copy).and_then(|node| usize::try_from(*node).ok());
        Route { vbucket: vbucket as u16, node }
    }
}

/// The TLS port of the node with this plain address.
fn tls_address(nodes: &[NodeExt], plain: &Address, host: &str) -> Option<Address> {
    let hostname = |node: &NodeExt| node.hostname.clone().unwrap_or_else(|| host.to_owned());
    let is_it =
        |node: &&NodeExt| node.services.kv == Some(plain.port) && hostname(node) == plain.host;
    let node = nodes.iter().find(is_it)?;
    Some(Address::new(hostname(node), node.services.kv_ssl?))
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

/// A configuration that the client cannot use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TopologyError {
    Json(String),
    NoVbuckets,
    VbucketCount(usize),
    NodeCount(usize),
    Node(i32),
    Address(String),
    NoAddress(Transport),
}

impl TopologyError {
    #[allow(clippy::needless_pass_by_value, reason = "the signature that `map_err` wants")]
    fn json(error: serde_json::Error) -> Self {
        TopologyError::Json(error.to_string())
    }
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cluster config: ")?;
        match self {
            TopologyError::Json(error) => f.write_str(error),
            TopologyError::NoVbuckets => f.write_str("no vbuckets, so it is not a bucket's"),
            TopologyError::VbucketCount(count) => {
                write!(f, "{count} vbuckets; expected a power of two up to {VBUCKETS_MAX}")
            }
            TopologyError::NodeCount(count) => {
                write!(f, "{count} nodes; at most {NODES_MAX} are accepted")
            }
            TopologyError::Node(node) => write!(f, "a vbucket on node {node}, which is not listed"),
            TopologyError::NoAddress(Transport::Plain) => f.write_str("no node with a KV service"),
            TopologyError::NoAddress(Transport::Tls) => {
                f.write_str("no node with a TLS port of the KV service")
            }
            TopologyError::Address(text) => write!(f, "{text:?} is not an address like host:port"),
        }
    }
}

impl std::error::Error for TopologyError {}

#[cfg(test)]
mod tests {
    //! Goal: keys find their node, and unusable configurations are refused with the reason.

    use super::*;

    fn config(servers: &str, map: &str) -> String {
        format!(
            r#"{{"rev": 7, "revEpoch": 2, "nodesExt": [
                {{"services": {{"kv": 11210, "kvSSL": 11207}}}},
                {{"hostname": "b", "services": {{"kv": 11210}}}}],
                "vBucketServerMap": {{"serverList": {servers}, "vBucketMap": {map}}}}}"#
        )
    }

    #[test]
    fn topology_routes_keys_by_their_hash() {
        let config = config(r#"["$HOST:11210", "b:11210"]"#, "[[0,1],[1,0],[1,-1],[-1,0]]");
        let topology = Topology::parse(config.as_bytes(), "a", Transport::Plain).unwrap();
        assert_eq!(topology.nodes[0], Some(Address::new("a", 11210)));
        // The CRC of "foo" is 0x8c736521: (0x8c73 & 0x7fff) % 4 = 3.
        let route = |copy| topology.route(b"foo", copy);
        assert_eq!(route(0), Route { vbucket: 3, node: None });
        assert_eq!(route(1), Route { vbucket: 3, node: Some(0) });
        assert_eq!(route(2), Route { vbucket: 3, node: None });
    }

    #[test]
    fn topology_uses_the_tls_ports() {
        let config = config(r#"["$HOST:11210", "b:11210"]"#, "[[0,1]]");
        let topology = Topology::parse(config.as_bytes(), "::1", Transport::Tls).unwrap();
        assert_eq!(topology.nodes, [Some(Address::new("::1", 11207)), None]);
    }

    #[test]
    fn topology_compares_epoch_before_revision() {
        let topology = |epoch, revision| Topology {
            revision: (epoch, revision),
            ..Topology::single(Address::new("a", 1))
        };
        assert!(topology(1, 2).is_newer_than(&topology(1, 1)));
        assert!(topology(2, 1).is_newer_than(&topology(1, 9)));
        assert!(!topology(1, 1).is_newer_than(&topology(1, 1)));
    }

    #[test]
    fn topology_refuses_what_it_cannot_use() {
        let parse = |text: &str| {
            Topology::parse(text.as_bytes(), "a", Transport::Plain).unwrap_err().to_string()
        };
        assert!(parse("{}").contains("no vbuckets"));
        assert!(parse("[").starts_with("cluster config: EOF"));
        assert!(parse(&config(r#"["a:1"]"#, "[[0],[0],[0]]")).contains("3 vbuckets"));
        assert!(parse(&config(r#"["a:1"]"#, "[]")).contains("0 vbuckets"));
        assert!(parse(&config(r#"["a:1"]"#, "[[1]]")).contains("node 1, which is not listed"));
        assert!(parse(&config("[]", "[[-1]]")).contains("no node with a KV service"));
        let without_tls = config(r#"["b:11210"]"#, "[[0]]");
        let error = Topology::parse(without_tls.as_bytes(), "a", Transport::Tls).unwrap_err();
        assert!(error.to_string().contains("no node with a TLS port"), "{error}");
        assert!(parse(&config(r#"["a"]"#, "[[0]]")).contains("\"a\" is not an address"));
        let nodes = vec!["\"a:1\""; NODES_MAX + 1].join(",");
        assert!(parse(&config(&format!("[{nodes}]"), "[[0]]")).contains("4097 nodes"));
        let vbuckets = vec!["[0]"; VBUCKETS_MAX * 2].join(",");
        assert!(parse(&config(r#"["a:1"]"#, &format!("[{vbuckets}]"))).contains("65536 vbuckets"));
        let vbuckets = vec!["[0]"; VBUCKETS_MAX].join(",");
        let config = config(r#"["a:1"]"#, &format!("[{vbuckets}]"));
        assert!(Topology::parse(config.as_bytes(), "a", Transport::Plain).is_ok());
    }

    #[test]
    fn topology_addresses_have_a_host_and_a_port() {
        assert_eq!(Address::parse("[::1]:7").unwrap().to_string(), "[::1]:7");
        for wrong in ["", "a", "a:", ":1", "::1", "a:70000", "[::1:7"] {
            assert_eq!(Address::parse(wrong), None, "{wrong}");
        }
    }
}
