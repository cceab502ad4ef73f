//! The state of the cluster and of the connections that an attempt meets.

use std::sync::{Arc, Mutex, PoisonError};

use redial_couchbase::Response;
use redial_couchbase::client::{Address, Connecting, Connector, Stream};
use redial_couchbase::reason;
use redial_faults::couchbase::{Answer, AnswerAction, Handle, Identity, Script, Server};
use tokio::io::DuplexStream;
use tokio::sync::Semaphore;

use super::Step;
use redial::time::Ns;

/// How many connections an open gate lets through.
const MANY: usize = 1_000_000;

/// A state in which a request cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::scenarios) enum UnsentState {
    /// The node does not accept the connection.
    Disconnected,
    /// There is no cluster configuration yet.
    Unconfigured,
    /// The bucket warms up, so there is no cluster configuration yet.
    WarmingUp,
    /// No node has the vbucket.
    NoNode,
    /// The circuit breaker is open.
    OpenBreaker,
    WrongPassword,
    UntrustedCertificate,
    RefusedBucket,
    NoScope,
    NoCollection,
}

impl UnsentState {
    /// The state that raises a reason.
    pub(super) fn raising(name: &str) -> Option<Self> {
        Some(match reason::parse(name).ok()?.name() {
            "SOCKET_NOT_AVAILABLE" => UnsentState::Disconnected,
            "SERVICE_NOT_AVAILABLE" => UnsentState::Unconfigured,
            "NODE_NOT_AVAILABLE" => UnsentState::NoNode,
            "CIRCUIT_BREAKER_OPEN" => UnsentState::OpenBreaker,
            "AUTHENTICATION_ERROR" => UnsentState::WrongPassword,
            "TLS_ERROR" => UnsentState::UntrustedCertificate,
            "BUCKET_ACCESS_ERROR" => UnsentState::RefusedBucket,
            "SCOPE_NOT_FOUND" => UnsentState::NoScope,
            "COLLECTION_NOT_FOUND" => UnsentState::NoCollection,
            _ => return None,
        })
    }

    /// Whether a client can be in this state only before its first request.
    pub(in crate::scenarios) const fn is_initial(self) -> bool {
        matches!(
            self,
            UnsentState::Unconfigured
                | UnsentState::WarmingUp
                | UnsentState::OpenBreaker
                | UnsentState::NoScope
                | UnsentState::NoCollection
        )
    }

    pub(super) const fn needs_collection(self) -> bool {
        matches!(self, UnsentState::NoScope | UnsentState::NoCollection)
    }
}

/// Lets connections through, or keeps them waiting.
#[derive(Clone)]
struct Gate(Arc<Semaphore>);

impl Gate {
    fn open(&self) {
        self.limit(MANY);
    }

    /// Lets this many connections through.
    fn limit(&self, connections: usize) {
        self.0.forget_permits(usize::MAX >> 3);
        self.0.add_permits(connections);
    }
}

/// Connects through the gate.
pub(super) struct GatedConnector<F> {
    gate: Gate,
    open: Arc<F>,
}

impl<F> Connector for GatedConnector<F>
where
    F: Fn(usize) -> std::io::Result<DuplexStream> + Send + Sync + 'static,
{
    fn connect(&self, address: &Address) -> Connecting {
        let node = address.host().strip_prefix("node").and_then(|node| node.parse().ok());
        let (gate, open) = (self.gate.clone(), self.open.clone());
        Box::pin(async move {
            let permit = gate.0.acquire().await.map_err(std::io::Error::other)?;
            permit.forget();
            Ok(Box::new(open(node.unwrap_or(0))?) as Box<dyn Stream>)
        })
    }
}

/// A cluster whose state changes from attempt to attempt.
pub(super) struct Environment {
    pub(super) server: Handle,
    gate: Gate,
    identities: Option<(Identity, Identity)>,
    steps: Vec<(Ns, Step)>,
    /// How an attempt that succeeds is answered.
    success: AnswerAction,
    state: Mutex<Option<UnsentState>>,
}

pub(super) const USER: (&str, &str) = ("app", "secret");
const SCOPE: &str = "scope";
const COLLECTION: &str = "collection";

impl Environment {
    pub(super) fn new(steps: Vec<(Ns, Step)>, operation: &str) -> Self {
        let mut script = Script::new().nodes(2).replicas(1).vbuckets(1).user(USER.0, USER.1);
        let has = |wanted: fn(UnsentState) -> bool| {
            steps.iter().any(|(_, step)| matches!(step, Step::Unsent(state) if wanted(*state)))
        };
        if has(UnsentState::needs_collection) || operation == "kv.get_collection_id" {
            script = script.scope(SCOPE, [COLLECTION]);
        }
        for (_, step) in &steps {
            if let Step::Response(Response::Kv { status, error_map: Some(entry), .. }) = step {
                script = script.error_map(*status, entry.attributes().to_vec());
            }
        }
        let mut server = Server::new(script);
        let mut identities = None;
        if has(|state| state == UnsentState::UntrustedCertificate) {
            let identity =
                || Identity::self_signed(["node0", "node1"]).expect("the names are valid");
            let pair = (identity(), identity());
            server = server.tls(pair.0.clone());
            identities = Some(pair);
        }
        let server = server.on_pipe().expect("the script is valid");
        let success = success(operation);
        let gate = Gate(Arc::new(Semaphore::new(MANY)));
        Environment { server, gate, identities, steps, success, state: Mutex::new(None) }
    }

    pub(super) fn connector(&self) -> impl Connector + use<> {
        GatedConnector { gate: self.gate.clone(), open: Arc::new(self.server.connector()) }
    }

    /// The certificate that the client trusts, if it uses TLS.
    pub(super) fn trusted(&self) -> Option<&Identity> {
        self.identities.as_ref().map(|(trusted, _)| trusted)
    }

    pub(super) fn step(&self, index: usize) -> Option<&Step> {
        self.steps.get(index).map(|(_, step)| step)
    }

    /// Prepares the state and the answer for an attempt, from 0.
    pub(super) fn prepare(&self, index: usize) {
        let Some((after, step)) = self.steps.get(index) else { return };
        let state = match step {
            Step::Unsent(state) => Some(*state),
            _ => None,
        };
        let present = {
            let mut present = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *present, state)
        };
        if let Some(present) = present {
            self.leave(present);
        }
        let action = match step {
            Step::Unsent(state) => return self.enter(*state),
            Step::Succeed => self.success.clone(),
            Step::Response(Response::Kv { status, .. }) => AnswerAction::Status(*status),
            Step::Close => AnswerAction::Close,
            Step::WrongCommand => AnswerAction::WrongCommand,
            Step::Hang | Step::Response(_) | Step::NoSource => AnswerAction::Hang,
        };
        let after = std::time::Duration::from_nanos(*after);
        self.server.push_answers([Answer::new(action).after(after)]);
    }

    fn enter(&self, state: UnsentState) {
        match state {
            UnsentState::Disconnected | UnsentState::Unconfigured => self.gate.limit(0),
            UnsentState::WarmingUp => self.server.set_bucket_status(0x01),
            UnsentState::NoNode => self.server.move_vbuckets(None),
            UnsentState::OpenBreaker => return,
            UnsentState::WrongPassword => self.server.set_password(USER.0, "another"),
            UnsentState::UntrustedCertificate => {
                if let Some((_, untrusted)) = &self.identities {
                    self.server.set_identity(untrusted.clone());
                }
            }
            UnsentState::RefusedBucket => self.server.set_bucket_status(0x24),
            UnsentState::NoScope => return self.server.remove_scope(SCOPE),
            UnsentState::NoCollection => {
                return self.server.set_scope(SCOPE, ["another".to_owned()]);
            }
        }
        if matches!(
            state,
            UnsentState::WrongPassword
                | UnsentState::UntrustedCertificate
                | UnsentState::RefusedBucket
                | UnsentState::WarmingUp
        ) {
            // Each node is tried once; then connections wait until the state changes.
            self.gate.limit(2);
        }
        self.server.drop_connections();
    }

    fn leave(&self, state: UnsentState) {
        match state {
            UnsentState::NoNode => {
                self.server.move_vbuckets(Some(0));
                self.server.drop_connections();
            }
            UnsentState::WrongPassword => self.server.set_password(USER.0, USER.1),
            UnsentState::UntrustedCertificate => {
                if let Some((trusted, _)) = &self.identities {
                    self.server.set_identity(trusted.clone());
                }
            }
            UnsentState::RefusedBucket | UnsentState::WarmingUp => self.server.set_bucket_status(0),
            UnsentState::NoScope | UnsentState::NoCollection => {
                self.server.set_scope(SCOPE, [COLLECTION]);
            }
            UnsentState::Disconnected | UnsentState::Unconfigured | UnsentState::OpenBreaker => {}
        }
        self.gate.open();
    }
}

/// Scope and collection of a call that needs them.
pub(super) const NAMED: (&str, &str) = (SCOPE, COLLECTION);

/// How an operation that succeeds is answered: with its result, or with an empty success.
fn success(operation: &str) -> AnswerAction {
    match operation {
        "kv.get"
        | "kv.get_replica"
        | "kv.get_and_lock"
        | "kv.get_and_touch"
        | "kv.exists"
        | "kv.increment"
        | "kv.decrement"
        | "kv.get_collection_id" => AnswerAction::Serve,
        _ => AnswerAction::Status(0),
    }
}
