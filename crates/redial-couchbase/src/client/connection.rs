//! One connection to a node: a bounded send queue, and responses matched by their opaque.
//!
//! A task owns the socket. Requests are queued for it; the queue is bounded, so that a server that does
//! not read makes requests fail with `SOCKET_NOT_AVAILABLE` instead of using up memory. When the
//! connection ends, requests that were written end with `SOCKET_CLOSED_WHILE_IN_FLIGHT`, and those that
//! were still queued with `SOCKET_NOT_AVAILABLE`, which proves that they were not executed.
//!
//! A request can leave its deadline to the connection. A second task has one timer for the first of these
//! deadlines: most requests get their response long before, so they cost no timer of their own.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};

use super::error::RequestError;
#[cfg(test)]
use super::frame::HEADER_BYTES;
use super::frame::{RequestFrame, ResponseFrame};
use crate::reason;

/// The maximum number of requests of a connection that await their response.
pub const IN_FLIGHT_MAX: usize = 65_536;
/// The maximum number of bytes that are queued for a connection: three values of the maximum length.
pub const SEND_QUEUE_BYTES_MAX: usize = 64 << 20;
/// How many bytes of queued requests are written together.
const WRITE_BYTES: usize = 64 << 10;
/// The size of a read.
const READ_BYTES: usize = 16 << 10;
/// How many turns of the runtime a response has, at a deadline, to be read.
const TURNS_AT_DEADLINE: usize = 4;

/// A byte stream to a server.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connection; requests can be sent from any task.
#[derive(Debug)]
pub(crate) struct Connection {
    queue: mpsc::Sender<Queued>,
    shared: Arc<Shared>,
    closed: watch::Receiver<bool>,
    task: tokio::task::AbortHandle,
}

#[derive(Debug)]
struct Queued {
    opaque: u32,
    bytes: Vec<u8>,
}

#[derive(Debug, Default)]
struct Shared {
    next_opaque: AtomicU32,
    /// How many times something was read.
    reads: AtomicU64,
    /// How many times something was written.
    writes: AtomicU64,
    /// The reads at the last check of [`awaits_without_reads`](Connection::awaits_without_reads).
    reads_checked: AtomicU64,
    in_flight: Mutex<InFlight>,
    /// A deadline is earlier than all others.
    earlier: Notify,
}

#[derive(Debug, Default)]
struct InFlight {
    requests: HashMap<u32, Pending>,
    /// The bytes of the requests that are queued, also of those that were dropped.
    queued_bytes: usize,
    /// The first deadline of the requests, or an earlier one of a request that has ended.
    first_deadline: Option<Instant>,
    /// Set when the connection has ended.
    end: Option<End>,
}

/// How much of a connection was read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    reads: u64,
    writes: u64,
}

/// Why a connection ended; `None`: the server closed it.
type End = Option<Arc<io::Error>>;

#[derive(Debug)]
struct Pending {
    written: bool,
    /// `None`: the request has a timer of its own, or no deadline.
    deadline: Option<Instant>,
    response: oneshot::Sender<Received>,
}

/// How a request in flight ends; `None`: its deadline has passed.
type Received = Option<Result<ResponseFrame, RequestError>>;

impl Connection {
    /// Starts the task of a connection.
    pub(crate) fn start(stream: Box<dyn Stream>, queue_max: usize) -> Self {
        let (queue, queued) = mpsc::channel(queue_max.max(1));
        let shared = Arc::new(Shared::default());
        let (close, closed) = watch::channel(false);
        let watched = shared.clone();
        let deadlines = tokio::spawn(async move { watched.watch_deadlines().await });
        let deadlines = deadlines.abort_handle();
        let guard = Running { shared: shared.clone(), close, deadlines };
        let task = tokio::spawn(async move {
            let (reader, writer) = tokio::io::split(stream);
            let end = tokio::select! {
                end = read(reader, &guard.shared) => end,
                end = write(writer, queued, &guard.shared) => end,
            };
            guard.shared.end(&end);
        });
        Connection { queue, shared, closed, task: task.abort_handle() }
    }

    /// Sends a request. The result is the response, or why there is none.
    ///
    /// # Errors
    /// The request was not sent: the connection has ended, or its queue is full.
    pub(crate) fn send(&self, frame: RequestFrame<'_>) -> Result<PendingResponse, RequestError> {
        self.send_until(frame, None)
    }

    /// Sends a request, and watches its deadline ([`PendingResponse::receive_in_time`]).
    ///
    /// # Errors
    /// As [`send`](Connection::send).
    pub(crate) fn send_until(
        &self,
        frame: RequestFrame<'_>,
        deadline: Option<Instant>,
    ) -> Result<PendingResponse, RequestError> {
        let not_available = || RequestError::NotSent(reason::SOCKET_NOT_AVAILABLE);
        let slot = self.queue.try_reserve().map_err(|_| not_available())?;
        let opaque = self.shared.next_opaque.fetch_add(1, Ordering::Relaxed);
        let bytes = frame.encoded_bytes();
        let (sender, response) = oneshot::channel();
        let is_first = {
            let mut in_flight = self.shared.lock();
            if in_flight.end.is_some()
                || in_flight.queued_bytes + bytes > SEND_QUEUE_BYTES_MAX
                || in_flight.requests.len() >= IN_FLIGHT_MAX
                || in_flight.requests.contains_key(&opaque)
            {
                return Err(not_available());
            }
            let pending = Pending { written: false, deadline, response: sender };
            in_flight.requests.insert(opaque, pending);
            in_flight.queued_bytes += bytes;
            let is_earlier =
                |deadline| in_flight.first_deadline.is_none_or(|first| deadline < first);
            let is_first = deadline.is_some_and(is_earlier);
            if is_first {
                in_flight.first_deadline = deadline;
            }
            is_first
        };
        if is_first {
            self.shared.earlier.notify_one();
        }
        slot.send(Queued { opaque, bytes: RequestFrame { opaque, ..frame }.encode() });
        let opcode = frame.opcode;
        Ok(PendingResponse { opaque, opcode, response, shared: self.shared.clone() })
    }

    /// Whether the connection has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.shared.lock().end.is_some()
    }

    /// Waits until the connection has ended.
    pub(crate) async fn closed(&self) {
        // An error means that the task is gone.
        let _ = self.closed.clone().wait_for(|closed| *closed).await;
    }

    /// Ends the connection and its requests, also while requests in flight hold it.
    pub(crate) fn close(&self) {
        self.task.abort();
    }

    /// How much was read and written, for [`is_silent_since`](Connection::is_silent_since).
    pub(crate) fn progress(&self) -> Progress {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Progress { reads: count(&self.shared.reads), writes: count(&self.shared.writes) }
    }

    /// Whether nothing was read since then, although everything was sent or nothing more can be
    /// written. A poll that waits in the queue behind a request that is being written says nothing about
    /// the server.
    pub(crate) fn is_silent_since(&self, since: Progress) -> bool {
        let now = self.progress();
        let is_sent = self.shared.lock().queued_bytes == 0;
        now.reads == since.reads && (is_sent || now.writes == since.writes)
    }

    /// Whether requests are queued or in flight, and nothing was read since the last call of this method.
    pub(crate) fn awaits_without_reads(&self) -> bool {
        let reads = self.progress().reads;
        let checked = self.shared.reads_checked.swap(reads, Ordering::Relaxed);
        checked == reads && !self.shared.lock().requests.is_empty()
    }

    /// The error that ended the connection, if there was one.
    pub(crate) fn error(&self) -> Option<Arc<io::Error>> {
        self.shared.lock().end.clone().flatten()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close();
    }
}

/// Ends all requests when the task ends, even if it is aborted.
struct Running {
    shared: Arc<Shared>,
    close: watch::Sender<bool>,
    deadlines: tokio::task::AbortHandle,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.deadlines.abort();
        self.shared.end(&None);
        self.close.send_replace(true);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, InFlight> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, end: &End) {
        let requests = {
            let mut in_flight = self.lock();
            if in_flight.end.is_some() {
                return;
            }
            in_flight.end = Some(end.clone());
            std::mem::take(&mut in_flight.requests)
        };
        for pending in requests.into_values() {
            let reason = if pending.written {
                reason::SOCKET_CLOSED_WHILE_IN_FLIGHT
            } else {
                reason::SOCKET_NOT_AVAILABLE
            };
            let lost = RequestError::ConnectionLost { reason, cause: end.clone() };
            // The request may be gone already.
            let _ = pending.response.send(Some(Err(lost)));
        }
    }

    /// Ends requests at their deadlines.
    async fn watch_deadlines(&self) {
        loop {
            let first = self.lock().first_deadline;
            let passed = async {
                match first {
                    Some(first) => sleep_until(first).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.earlier.notified() => {}
                () = passed => {
                    // Responses that have arrived by then come first (decision P4).
                    for _ in 0..TURNS_AT_DEADLINE {
                        tokio::task::yield_now().await;
                    }
                    self.expire(Instant::now());
                }
            }
        }
    }

    /// Ends the requests whose deadlines have passed.
    fn expire(&self, now: Instant) {
        let expired: Vec<Pending> = {
            let mut in_flight = self.lock();
            let is_over = |pending: &Pending| pending.deadline.is_some_and(|it| it <= now);
            let expired = in_flight.requests.extract_if(|_, pending| is_over(pending));
            let expired = expired.map(|(_, pending)| pending).collect();
            let left = in_flight.requests.values().filter_map(|pending| pending.deadline);
            in_flight.first_deadline = left.min();
            expired
        };
        for pending in expired {
            // The request may be gone already.
            let _ = pending.response.send(None);
        }
    }
}

/// A response that is awaited. Dropping it forgets the request: if it is still queued, it is not
/// written.
#[derive(Debug)]
pub(crate) struct PendingResponse {
    opaque: u32,
    opcode: u8,
    response: oneshot::Receiver<Received>,
    shared: Arc<Shared>,
}

impl PendingResponse {
    /// Waits for the response to a request whose deadline the connection does not watch.
    ///
    /// # Errors
    /// The connection was lost, or the server answered another command.
    pub(crate) async fn receive(self) -> Result<ResponseFrame, RequestError> {
        match self.receive_in_time().await {
            Some(received) => received,
            None => std::future::pending().await,
        }
    }

    /// Waits for the response until the deadline; `None`: it has passed.
    pub(crate) async fn receive_in_time(mut self) -> Received {
        let frame = match (&mut self.response).await {
            Ok(received) => match received? {
                Ok(frame) => frame,
                Err(error) => return Some(Err(error)),
            },
            // The sender is dropped only with the whole connection.
            Err(_) => {
                let reason = reason::SOCKET_CLOSED_WHILE_IN_FLIGHT;
                return Some(Err(RequestError::ConnectionLost { reason, cause: None }));
            }
        };
        Some(if frame.opcode == self.opcode {
            Ok(frame)
        } else {
            Err(RequestError::Protocol("it answers another command"))
        })
    }
}

impl Drop for PendingResponse {
    fn drop(&mut self) {
        self.shared.lock().requests.remove(&self.opaque);
    }
}

/// Reads responses until the connection ends.
async fn read(mut reader: ReadHalf<Box<dyn Stream>>, shared: &Shared) -> End {
    let mut buffer = BytesMut::with_capacity(READ_BYTES);
    loop {
        loop {
            let frame = match ResponseFrame::decode(&mut buffer) {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(error) => {
                    let error = io::Error::new(io::ErrorKind::InvalidData, error);
                    return Some(Arc::new(error));
                }
            };
            // A response without a request belongs to one that was dropped.
            let pending = shared.lock().requests.remove(&frame.opaque);
            if let Some(pending) = pending {
                let _ = pending.response.send(Some(Ok(frame)));
            }
        }
        buffer.reserve(READ_BYTES);
        match reader.read_buf(&mut buffer).await {
            Ok(0) => return None,
            Ok(_) => drop(shared.reads.fetch_add(1, Ordering::Relaxed)),
            Err(error) => return Some(Arc::new(error)),
        }
    }
}

/// Writes queued requests until the connection ends.
async fn write(
    mut writer: WriteHalf<Box<dyn Stream>>,
    mut queued: mpsc::Receiver<Queued>,
    shared: &Shared,
) -> End {
    let mut bytes = Vec::new();
    while let Some(first) = queued.recv().await {
        bytes.clear();
        let mut next = Some(first);
        while let Some(request) = next {
            let mut in_flight = shared.lock();
            in_flight.queued_bytes -= request.bytes.len();
            // From here on the server may get it. A request that was dropped is not written.
            if let Some(pending) = in_flight.requests.get_mut(&request.opaque) {
                pending.written = true;
                bytes.extend(&request.bytes);
            }
            drop(in_flight);
            next = if bytes.len() < WRITE_BYTES { queued.try_recv().ok() } else { None };
        }
        if let Err(error) = write_all(&mut writer, &bytes, shared).await {
            return Some(Arc::new(error));
        }
        // A large request does not keep its memory.
        bytes.shrink_to(2 * WRITE_BYTES);
    }
    None
}

/// Writes and flushes these bytes, and counts each write that the stream takes.
async fn write_all(
    writer: &mut WriteHalf<Box<dyn Stream>>,
    mut bytes: &[u8],
    shared: &Shared,
) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = writer.write(bytes).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        shared.writes.fetch_add(1, Ordering::Relaxed);
        bytes = &bytes[written..];
    }
    writer.flush().await
}

#[cfg(test)]
mod tests {
    //! Goal: the send queue is bounded in bytes, exactly; deadlines are watched exactly, with one timer.

    use redial::ms;

    use super::*;

    fn send(connection: &Connection, bytes: usize) -> Result<PendingResponse, RequestError> {
        let value = vec![0; bytes];
        connection.send(RequestFrame {
            opcode: 0x0a,
            vbucket: 0,
            opaque: 0,
            cas: 0,
            extras: &[],
            key_prefix: &[],
            key: &[],
            value: &value,
        })
    }

    #[tokio::test]
    async fn send_queue_byte_limit_is_exact() {
        let (stream, mut peer) = tokio::io::duplex(HEADER_BYTES);
        let connection = Connection::start(Box::new(stream), 1024);
        // The task writes the first one, of which the peer reads nothing.
        let first = send(&connection, 1).expect("the queue is empty");
        while connection.shared.lock().queued_bytes > 0 {
            tokio::task::yield_now().await;
        }
        let quarter = SEND_QUEUE_BYTES_MAX / 4 - HEADER_BYTES;
        let queued = [(); 4].map(|()| send(&connection, quarter).expect("it fits"));
        let refused = send(&connection, 0).expect_err("the queue is full");
        let RequestError::NotSent(reason) = refused else { panic!("{refused}") };
        assert_eq!(reason, reason::SOCKET_NOT_AVAILABLE);
        // What was dropped is not written, but gives its bytes back.
        drop(queued);
        tokio::io::copy(&mut (&mut peer).take(25), &mut tokio::io::sink()).await.unwrap();
        while connection.shared.lock().queued_bytes > 0 {
            tokio::task::yield_now().await;
        }
        send(&connection, quarter).expect("there is room again");
        drop(first);
    }

    const NOOP: RequestFrame<'_> = RequestFrame {
        opcode: 0x0a,
        vbucket: 0,
        opaque: 0,
        cas: 0,
        extras: &[],
        key_prefix: &[],
        key: &[],
        value: &[],
    };

    #[tokio::test(start_paused = true)]
    async fn connection_watches_deadlines_in_any_order() {
        let (stream, _peer) = tokio::io::duplex(1 << 16);
        let connection = Connection::start(Box::new(stream), 1024);
        let start = Instant::now();
        let at = |after| Some(start + ms(after));
        let request = |after| connection.send_until(NOOP, at(after)).expect("the queue is empty");
        let first_deadline = || connection.shared.lock().first_deadline;
        let ended = async |request: PendingResponse| {
            (request.receive_in_time().await.is_none(), start.elapsed())
        };
        let (late, early, dropped) = (request(30), request(10), request(5));
        let forever = connection.send(NOOP).expect("there is room");
        assert_eq!(first_deadline(), at(5));
        drop(dropped);
        let same = request(10);
        let ends = tokio::join!(ended(late), ended(early), ended(same));
        assert_eq!(ends, [30, 10, 10].map(|after| (true, ms(after))).into());
        assert_eq!(first_deadline(), None, "no request with a deadline is left");
        assert_eq!(connection.shared.lock().requests.len(), 1);
        // The next one is watched again.
        assert_eq!(ended(request(50)).await, (true, ms(50)));
        connection.close();
        let lost = forever.receive().await.expect_err("the connection has ended");
        assert!(matches!(lost, RequestError::ConnectionLost { .. }), "{lost}");
    }
}
