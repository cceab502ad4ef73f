//! A relay between the official SDK and `CouchbaseMock`, which the SDK cannot use directly. It changes three
//! things in the mock's responses, and nothing else:
//!
//! - **`SASL_LIST_MECHS`: the trailing blank is removed.** The SDK splits the list at blanks, and fails at the
//!   empty last mechanism.
//! - **Cluster configurations get `clusterCapabilitiesVer` and `clusterCapabilities`.** The SDK requires these
//!   fields, which every server since 6.5 sends. Configurations are the values of `GET_CLUSTER_CONFIG` and of
//!   responses with status 0x07.
//! - **Configurations name the relay's addresses, with a host of its own for each node.** The SDK identifies
//!   nodes by host and management port; all nodes of the mock have the same.
//!
//! It can also close its connections, so that a test can lose one while a request is in flight.

use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

const SASL_LIST_MECHS: u8 = 0x20;
const GET_CLUSTER_CONFIG: u8 = 0xb5;
const NOT_MY_VBUCKET: u16 = 0x07;
/// The magic of a response whose header has one byte for framing extras and one for the key's length.
const FLEXIBLE_RESPONSE: u8 = 0x18;
const HEADER_BYTES: usize = 24;

/// A running relay; it ends with the runtime of the test.
pub(crate) struct Shim {
    routes: Arc<[Route]>,
    generation: watch::Sender<u32>,
}

/// A node: its port at the mock, and its address here.
struct Route {
    mock_port: u16,
    address: SocketAddr,
}

impl Shim {
    /// Listens for each node of the mock.
    pub(crate) async fn start(mock_ports: &[u16]) -> Self {
        let (mut routes, mut listeners) = (Vec::new(), Vec::new());
        for (index, mock_port) in mock_ports.iter().enumerate() {
            let listener = TcpListener::bind(format!("127.0.0.{}:0", index + 1)).await;
            let listener = listener.expect("a port is free");
            let address = listener.local_addr().expect("it is bound");
            routes.push(Route { mock_port: *mock_port, address });
            listeners.push(listener);
        }
        let (generation, _) = watch::channel(0);
        let shim = Shim { routes: routes.into(), generation };
        for (index, listener) in listeners.into_iter().enumerate() {
            let (routes, generation) = (shim.routes.clone(), shim.generation.clone());
            tokio::spawn(async move {
                while let Ok((client, _)) = listener.accept().await {
                    let mut closed = generation.subscribe();
                    let routes = routes.clone();
                    tokio::spawn(async move {
                        tokio::select! {
                            () = relay(client, index, &routes) => {}
                            _ = closed.changed() => {}
                        }
                    });
                }
            });
        }
        shim
    }

    /// The connection string of the cluster.
    pub(crate) fn url(&self) -> String {
        format!("couchbase://{}", self.routes[0].address)
    }

    /// Closes all open connections.
    pub(crate) fn close_connections(&self) {
        self.generation.send_modify(|generation| *generation += 1);
    }
}

/// Relays one connection until a side closes it.
async fn relay(client: TcpStream, node: usize, routes: &[Route]) {
    // A node that is down refuses connections: so does the relay, by closing this one.
    let Ok(server) = TcpStream::connect(("127.0.0.1", routes[node].mock_port)).await else {
        return;
    };
    let (Ok(()), Ok(())) = (client.set_nodelay(true), server.set_nodelay(true)) else { return };
    let (mut requests, to_client) = client.into_split();
    let (responses, mut to_server) = server.into_split();
    tokio::select! {
        _ = copy(&mut requests, &mut to_server) => {}
        _ = relay_responses(responses, to_client, routes) => {}
    }
}

async fn relay_responses(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    routes: &[Route],
) -> std::io::Result<()> {
    loop {
        let mut header = [0; HEADER_BYTES];
        from.read_exact(&mut header).await?;
        let body_bytes = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
        let mut body = vec![0; body_bytes as usize];
        from.read_exact(&mut body).await?;
        let before_value = usize::from(header[4])
            + match header[0] {
                FLEXIBLE_RESPONSE => usize::from(header[2]) + usize::from(header[3]),
                _ => usize::from(u16::from_be_bytes([header[2], header[3]])),
            };
        let value = body.split_off(before_value.min(body.len()));
        let status = u16::from_be_bytes([header[6], header[7]]);
        body.extend(match header[1] {
            SASL_LIST_MECHS => value.trim_ascii_end().to_vec(),
            opcode if opcode == GET_CLUSTER_CONFIG || status == NOT_MY_VBUCKET => {
                patched_config(value, routes)
            }
            _ => value,
        });
        let body_bytes = u32::try_from(body.len()).expect("as long as the mock's");
        header[8..12].copy_from_slice(&body_bytes.to_be_bytes());
        to.write_all(&[&header, &body[..]].concat()).await?;
    }
}

/// The configuration with the missing fields and the relay's addresses; other texts stay as they are.
fn patched_config(value: Vec<u8>, routes: &[Route]) -> Vec<u8> {
    let Ok(mut config) = serde_json::from_slice::<Value>(&value) else { return value };
    config["clusterCapabilitiesVer"] = json!([1, 0]);
    config["clusterCapabilities"] = json!({});
    let route_of = |port: u64| routes.iter().find(|route| u64::from(route.mock_port) == port);
    for node in config["nodesExt"].as_array_mut().into_iter().flatten() {
        if let Some(route) = node["services"]["kv"].as_u64().and_then(route_of) {
            node["hostname"] = json!(route.address.ip());
            node["services"]["kv"] = json!(route.address.port());
        }
    }
    for server in config["vBucketServerMap"]["serverList"].as_array_mut().into_iter().flatten() {
        let port =
            server.as_str().and_then(|it| it.rsplit_once(':')).and_then(|it| it.1.parse().ok());
        if let Some(route) = port.and_then(route_of) {
            *server = json!(route.address.to_string());
        }
    }
    config.to_string().into_bytes()
}
