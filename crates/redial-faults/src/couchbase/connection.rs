//! A connection: the handshake, and the answers to requests.

use std::io;
use std::sync::Arc;

use bytes::BytesMut;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use super::frames::{self, Reply, Request};
use super::record::{RequestOutcome, RequestRecord};
use super::scram::{Exchange, Mechanism};
use super::script::{Answer, AnswerAction};
use super::state::{Arrived, Shared};
use super::store::UNKNOWN_COMMAND;

/// How many answers wait for a client that does not read.
const REPLIES_MAX: usize = 1024;
const READ_BYTES: usize = 16 << 10;

const SUCCESS: u16 = 0x00;
const NOT_MY_VBUCKET: u16 = 0x07;
const AUTH_ERROR: u16 = 0x20;
const AUTH_CONTINUE: u16 = 0x21;
const NO_ACCESS: u16 = 0x24;
const UNKNOWN_COLLECTION: u16 = 0x88;
const FEATURE_COLLECTIONS: u16 = 0x12;
/// The features that the server grants; collections only if it has them.
const FEATURES: [u16; 2] = [0x07, 0x08];

/// What is written next.
enum Output {
    Bytes(Vec<u8>),
    Close,
}

/// An output, and the request that it answers, if the hook has to be called.
type Answered = (Output, Option<RequestRecord>);

/// Serves a connection until it ends.
pub(super) async fn serve<S>(stream: S, node: usize, connection: usize, shared: Arc<Shared>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut generation = shared.generation.subscribe();
    let identity = shared.lock().identity.clone();
    let served = async {
        match identity {
            None => exchange(stream, node, connection, &shared).await,
            Some(identity) => {
                let stream = TlsAcceptor::from(identity.config).accept(stream).await?;
                exchange(stream, node, connection, &shared).await
            }
        }
    };
    // A failed connection is the client's to notice.
    let _: io::Result<()> = tokio::select! {
        biased;
        _ = generation.changed() => Ok(()),
        ended = served => ended,
    };
    shared.lock().connections_open -= 1;
}

async fn exchange<S>(
    stream: S,
    node: usize,
    connection: usize,
    shared: &Arc<Shared>,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (reader, mut writer) = tokio::io::split(stream);
    let (replies, mut outputs) = mpsc::channel::<Answered>(REPLIES_MAX);
    let written = async {
        while let Some((output, answered)) = outputs.recv().await {
            let Output::Bytes(bytes) = output else {
                writer.shutdown().await?;
                shared.answered(answered.as_ref());
                return Ok(());
            };
            writer.write_all(&bytes).await?;
            writer.flush().await?;
            shared.answered(answered.as_ref());
        }
        writer.shutdown().await
    };
    let session = Session { shared, node, connection, replies, phase: Phase::default() };
    tokio::select! {
        read = session.read(reader) => read,
        written = written => written,
    }
}

/// What the client has negotiated.
#[derive(Default)]
struct Phase {
    collections: bool,
    authenticated: bool,
    selected: bool,
    scram: Option<Exchange>,
}

struct Session<'a> {
    shared: &'a Arc<Shared>,
    node: usize,
    connection: usize,
    replies: mpsc::Sender<Answered>,
    phase: Phase,
}

impl Session<'_> {
    async fn read(mut self, mut reader: impl AsyncRead + Unpin) -> io::Result<()> {
        let mut buffer = BytesMut::with_capacity(READ_BYTES);
        let mut reads = self.shared.reads.subscribe();
        loop {
            // The server lives as long as its connections, so the sender does too.
            let _ = reads.wait_for(|reads| *reads).await;
            while let Some(request) = frames::decode(&mut buffer).map_err(io::Error::other)? {
                self.handle(request).await;
            }
            if reader.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        }
    }

    async fn handle(&mut self, request: Request) {
        let opaque = request.opaque;
        let reply = match request.opcode {
            0x1f => self.hello(&request),
            0x20 => Reply::value(self.shared.lock().script.mechanisms.join(" ")),
            0x21 => self.sasl_auth(&request),
            0x22 => self.sasl_step(&request),
            0x89 => self.select_bucket(&request),
            0xb5 => self.config(),
            0xba => self.manifest(),
            0xfe => Reply::value(self.shared.lock().error_map()),
            _ => return self.answer(request).await,
        };
        self.send(reply.encode(request.opcode, opaque), None).await;
    }

    async fn send(&self, bytes: Vec<u8>, answered: Option<RequestRecord>) {
        // The writer ends with the connection.
        let _ = self.replies.send((Output::Bytes(bytes), answered)).await;
    }

    fn hello(&mut self, request: &Request) -> Reply {
        let has_collections = self.shared.lock().collections.is_some();
        let granted = request.value.chunks_exact(2).filter(|wanted| {
            let feature = u16::from_be_bytes([wanted[0], wanted[1]]);
            FEATURES.contains(&feature) || (has_collections && feature == FEATURE_COLLECTIONS)
        });
        let granted: Vec<u8> = granted.flatten().copied().collect();
        self.phase.collections =
            granted.chunks_exact(2).any(|feature| *feature == FEATURE_COLLECTIONS.to_be_bytes());
        Reply::value(granted)
    }

    fn sasl_auth(&mut self, request: &Request) -> Reply {
        let state = self.shared.lock();
        if !state.script.mechanisms.iter().any(|name| name.as_bytes() == request.key) {
            return Reply::status(AUTH_ERROR);
        }
        if let Some(mechanism) = Mechanism::named(&request.key) {
            let Some((exchange, challenge)) = Exchange::start(mechanism, &request.value) else {
                return Reply::status(AUTH_ERROR);
            };
            self.phase.scram = Some(exchange);
            return Reply { status: AUTH_CONTINUE, ..Reply::value(challenge) };
        }
        if request.key[..] == *b"OAUTHBEARER" {
            let expected =
                state.script.token.as_ref().map(|it| format!("n,,\u{1}auth=Bearer {it}\u{1}\u{1}"));
            let accepted = expected.is_some_and(|expected| expected.as_bytes() == request.value);
            self.phase.authenticated = accepted;
            return if accepted { Reply::default() } else { Reply::status(AUTH_ERROR) };
        }
        // PLAIN: authorization, user and password, with zeros between them.
        let mut parts = request.value.split(|byte| *byte == 0).skip(1);
        let (user, password) = (parts.next().unwrap_or_default(), parts.next());
        let user = String::from_utf8_lossy(user);
        let expected = state.script.users.get(&*user).map(String::as_bytes);
        if expected.is_some() && expected == password {
            self.phase.authenticated = true;
            return Reply::default();
        }
        Reply::status(AUTH_ERROR)
    }

    fn sasl_step(&mut self, request: &Request) -> Reply {
        let Some(exchange) = self.phase.scram.take() else { return Reply::status(AUTH_ERROR) };
        let password = self.shared.lock().script.users.get(exchange.user()).cloned();
        match password.and_then(|password| exchange.finish(&password, &request.value)) {
            Some(proof) => {
                self.phase.authenticated = true;
                Reply::value(proof)
            }
            None => Reply::status(AUTH_ERROR),
        }
    }

    fn select_bucket(&mut self, request: &Request) -> Reply {
        let state = self.shared.lock();
        let is_guarded = !state.script.users.is_empty() || state.script.token.is_some();
        if is_guarded && !self.phase.authenticated {
            return Reply::status(AUTH_ERROR);
        }
        let is_known = state.script.bucket.as_bytes() == request.key;
        let status = if is_known { state.bucket_status } else { NO_ACCESS };
        self.phase.selected = status == SUCCESS;
        Reply::status(status)
    }

    fn config(&self) -> Reply {
        let mut state = self.shared.lock();
        state.polls += 1;
        let authenticated = state.script.users.is_empty() || self.phase.authenticated;
        match (self.phase.selected, authenticated, state.config_status) {
            (false, false, _) => Reply::status(NO_ACCESS),
            (false, true, _) => Reply::value(state.global_config().to_string()),
            (true, _, SUCCESS) => Reply::value(state.config().to_string()),
            (true, _, refused) => Reply::status(refused),
        }
    }

    fn manifest(&self) -> Reply {
        let mut state = self.shared.lock();
        state.manifests += 1;
        state.manifest().map_or(Reply::status(UNKNOWN_COMMAND), Reply::value)
    }

    /// Answers a request as the script says.
    async fn answer(&self, request: Request) {
        let (shared, node, connection) = (self.shared.clone(), self.node, self.connection);
        let at = Instant::now();
        let arrived = Arrived { request: &request, at, node, connection };
        if let Some(refused) = self.refusal(&request) {
            let answered = shared.record(&arrived, RequestOutcome::Status(refused.status));
            return self.send(refused.encode(request.opcode, request.opaque), answered).await;
        }
        let answer = shared.lock().next_answer(&frames::command(request.opcode));
        let Answer { after, action, context, .. } = answer;
        let replies = self.replies.clone();
        let played = async move {
            if !after.is_zero() {
                tokio::time::sleep(after).await;
            }
            let arrived = Arrived { request: &request, at, node, connection };
            let (outcome, output) = play(&action, context.as_deref(), &request, &shared);
            let answered = shared.record(&arrived, outcome);
            match output {
                // The writer ends with the connection.
                Some(output) => drop(replies.send((output, answered)).await),
                None => shared.answered(answered.as_ref()),
            }
        };
        if after.is_zero() {
            played.await;
        } else {
            tokio::spawn(played);
        }
    }

    /// What the state of the cluster answers, whatever the script says.
    fn refusal(&self, request: &Request) -> Option<Reply> {
        let state = self.shared.lock();
        if !self.phase.selected {
            return Some(Reply::status(NO_ACCESS));
        }
        let is_document = !matches!(request.opcode, 0x0a | 0x50..=0x5f | 0xbb);
        if is_document && !state.has_vbucket(self.node, request) {
            return Some(Reply {
                status: NOT_MY_VBUCKET,
                ..Reply::value(state.config().to_string())
            });
        }
        let unknown = is_document && self.phase.collections && !state.has_collection(&request.key);
        unknown.then(|| Reply::status(UNKNOWN_COLLECTION))
    }
}

/// Carries an answer out.
fn play(
    action: &AnswerAction,
    context: Option<&str>,
    request: &Request,
    shared: &Shared,
) -> (RequestOutcome, Option<Output>) {
    let bytes = |reply: &Reply| reply.encode(request.opcode, request.opaque);
    match action {
        AnswerAction::Serve => {
            let reply = execute(request, shared);
            (RequestOutcome::Status(reply.status), Some(Output::Bytes(bytes(&reply))))
        }
        AnswerAction::Status(status) => {
            let extended = |text| json!({"error": {"context": text}}).to_string();
            let reply = Reply::value(context.map(extended).unwrap_or_default());
            let output = Output::Bytes(bytes(&Reply { status: *status, ..reply }));
            (RequestOutcome::Status(*status), Some(output))
        }
        AnswerAction::Close => (RequestOutcome::Closed, Some(Output::Close)),
        AnswerAction::ExecuteAndClose => {
            execute(request, shared);
            (RequestOutcome::Closed, Some(Output::Close))
        }
        AnswerAction::Hang => (RequestOutcome::Hung, None),
        AnswerAction::WrongCommand => {
            let bytes = Reply::default().encode(!request.opcode, request.opaque);
            (RequestOutcome::WrongCommand, Some(Output::Bytes(bytes)))
        }
        AnswerAction::Truncate(length) => {
            let mut bytes = bytes(&execute(request, shared));
            bytes.truncate(*length);
            (RequestOutcome::Truncated(*length), Some(Output::Bytes(bytes)))
        }
    }
}

fn execute(request: &Request, shared: &Shared) -> Reply {
    let mut state = shared.lock();
    match request.opcode {
        0x0a => Reply::default(),
        0xbb => {
            let uid = state.manifest_uid();
            let Some(id) = state.collection_id(&request.value) else {
                return Reply::status(UNKNOWN_COLLECTION);
            };
            let extras = [&uid.to_be_bytes()[..], &id.to_be_bytes()].concat();
            Reply { extras, ..Reply::default() }
        }
        _ => state.store.execute(request),
    }
}
