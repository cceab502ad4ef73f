//! The output of attempts: passed on as it comes, or held back until the last attempt is known.
//!
//! Invariant: no byte is lost. Output that is held back goes to standard output if its attempt was
//! the last one, and to standard error if another attempt follows.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;

use tempfile::SpooledTempFile;
use tokio::sync::oneshot;

use super::attempt_end::{LastBecause, Matched, Patterns};
use super::run_state::RunState;

/// How much of the output or input is kept in memory; more of it goes to a temporary file.
pub(super) const MEMORY_MAX: usize = 1 << 20;
/// Longer lines are compared with patterns in pieces of this size.
const LINE_MAX: usize = 1 << 16;
/// How much is read at once.
const CHUNK: usize = 1 << 16;
/// The largest pipe of a process without privileges, on Linux by default.
const PIPE_MAX: u64 = 1 << 20;

/// Where the output of the command goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Out,
    Err,
}

impl Stream {
    pub(super) fn write_all(self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Stream::Out => {
                let mut out = io::stdout().lock();
                out.write_all(bytes)?;
                out.flush()
            }
            Stream::Err => io::stderr().lock().write_all(bytes),
        }
    }
}

/// Whether the reader of standard output is gone, which the command learns from SIGPIPE.
#[cfg(unix)]
pub(super) fn is_closed() -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let out = io::stdout();
    let mut polled = [PollFd::new(&out, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&now)).is_ok()
        && polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

/// The output of one attempt that is held back.
#[derive(Clone, Debug)]
pub(super) struct Held(Arc<Mutex<HeldState>>);

#[derive(Debug)]
struct HeldState {
    spool: SpooledTempFile,
    bytes: u64,
    bytes_max: u64,
    /// Where what was held went, and where the rest goes.
    passed_on: Option<Stream>,
}

impl Held {
    pub(super) fn new(bytes_max: u64) -> Self {
        let spool = SpooledTempFile::new(MEMORY_MAX);
        let state = HeldState { spool, bytes: 0, bytes_max, passed_on: None };
        Held(Arc::new(Mutex::new(state)))
    }

    fn lock(&self) -> MutexGuard<'_, HeldState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds output. What cannot be held back is passed on; `on_limit` gets the reason before that.
    fn write(&self, bytes: &[u8], on_limit: impl FnOnce(LastBecause)) -> Result<(), OutputError> {
        let mut state = self.lock();
        let stream = match state.passed_on {
            // The attempt may have been given up, and another one may run.
            Some(stream) => stream,
            None => {
                let Err(because) = state.keep(bytes) else { return Ok(()) };
                on_limit(because);
                state.pass_on(Stream::Out)?;
                Stream::Out
            }
        };
        stream.write_all(bytes).map_err(|error| OutputError { stream, error })
    }

    /// Whether nothing is held back. Then what still comes goes to `stream`.
    pub(super) fn is_empty(&self, stream: Stream) -> bool {
        // A pump that waits for a slow reader has the lock.
        let Ok(mut state) = self.0.try_lock() else { return false };
        if state.bytes == 0 {
            state.passed_on.get_or_insert(stream);
        }
        state.bytes == 0
    }

    /// Writes what is held back.
    pub(super) fn release_to(&self, stream: Stream) -> Result<(), OutputError> {
        let mut state = self.lock();
        if state.passed_on.is_some() { Ok(()) } else { state.pass_on(stream) }
    }
}

impl HeldState {
    fn keep(&mut self, bytes: &[u8]) -> Result<(), LastBecause> {
        let total = self.bytes.saturating_add(bytes.len() as u64);
        if total > self.bytes_max {
            return Err(LastBecause::OutputLimit);
        }
        self.spool.write_all(bytes).map_err(|_| LastBecause::OutputNotKept)?;
        self.bytes = total;
        Ok(())
    }

    fn pass_on(&mut self, stream: Stream) -> Result<(), OutputError> {
        self.passed_on = Some(stream);
        self.copy_to(stream).map_err(|error| OutputError { stream, error })
    }

    fn copy_to(&mut self, stream: Stream) -> io::Result<()> {
        self.spool.seek(SeekFrom::Start(0))?;
        // A part of a write that failed may be behind them.
        let mut kept = (&mut self.spool).take(self.bytes);
        let mut chunk = vec![0; CHUNK];
        loop {
            match kept.read(&mut chunk)? {
                0 => return Ok(()),
                count => stream.write_all(&chunk[..count])?,
            }
        }
    }
}

/// Output is lost, or its reader is gone.
pub(super) struct OutputError {
    pub(super) stream: Stream,
    pub(super) error: io::Error,
}

/// Where a pump writes.
pub(super) enum Sink {
    Live(Stream),
    Held(Held),
}

/// A thread that copies an output.
#[derive(Debug)]
pub(super) struct Pump {
    /// What the output matched, at its end.
    pub(super) matched: oneshot::Receiver<Matched>,
    progress: Arc<Progress>,
}

/// How far a pump has come.
#[derive(Debug, Default)]
struct Progress {
    /// Counts the begins and the ends of reads: it is odd while the pump waits for output.
    reads: AtomicU64,
    /// How many bytes have been passed on or kept.
    bytes: AtomicU64,
}

/// What a pump had done at some time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done {
    reads: u64,
    bytes: u64,
}

impl Pump {
    pub(super) fn done(&self) -> Done {
        let Progress { reads, bytes } = &*self.progress;
        Done { reads: reads.load(Ordering::SeqCst), bytes: bytes.load(Ordering::SeqCst) }
    }

    /// Whether the pump has been waiting for output since `before`: then its pipe is empty.
    pub(super) fn has_waited_since(&self, before: Done) -> bool {
        let now = self.done();
        now.reads == before.reads && now.reads % 2 == 1
    }

    /// Whether all that was in the pipe at `before` has been copied.
    pub(super) fn has_copied_a_pipe_since(&self, before: Done) -> bool {
        self.done().bytes - before.bytes > PIPE_MAX + CHUNK as u64
    }
}

/// Copies the output of a process on a thread of its own, until its end.
///
/// # Errors
/// There is no thread.
pub(super) fn pump(
    mut reader: impl Read + Send + 'static,
    mut sink: Sink,
    run: Arc<RunState>,
) -> io::Result<Pump> {
    let (sender, matched) = oneshot::channel();
    let progress = Arc::new(Progress::default());
    let pump = Pump { matched, progress: progress.clone() };
    Builder::new().spawn(move || {
        let mut lines = Lines::new(&run.patterns);
        let mut chunk = vec![0; CHUNK];
        loop {
            progress.reads.fetch_add(1, Ordering::SeqCst);
            let read = reader.read(&mut chunk);
            progress.reads.fetch_add(1, Ordering::SeqCst);
            let count = match read {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            lines.add(&chunk[..count]);
            if let Err(error) = sink.write(&chunk[..count], &run) {
                // The command gets SIGPIPE, as if it had written to a closed stream itself.
                run.not_written(&error);
                break;
            }
            progress.bytes.fetch_add(count as u64, Ordering::SeqCst);
        }
        let matched = lines.end();
        drop(reader);
        // The attempt may have been given up.
        let _ = sender.send(matched);
    })?;
    Ok(pump)
}

/// Does work that can wait for a slow reader on a thread of its own, so that signals are handled
/// meanwhile.
pub(super) async fn on_thread(work: impl Fn() + Send + Sync + 'static) {
    let (sender, ended) = oneshot::channel();
    let work = Arc::new(work);
    let started = Builder::new().spawn({
        let work = work.clone();
        move || {
            work();
            // A signal may have ended the wait.
            let _ = sender.send(());
        }
    });
    match started {
        Ok(_) => drop(ended.await),
        // Output matters more than signals.
        Err(_) => work(),
    }
}

impl Sink {
    fn write(&mut self, bytes: &[u8], run: &RunState) -> Result<(), OutputError> {
        match self {
            Sink::Live(stream) => {
                stream.write_all(bytes).map_err(|error| OutputError { stream: *stream, error })
            }
            Sink::Held(held) => held.write(bytes, |because| run.set_last(because)),
        }
    }
}

/// Compares the lines of an output with the patterns.
struct Lines<'p> {
    patterns: &'p Patterns,
    line: Vec<u8>,
    matched: Matched,
}

impl<'p> Lines<'p> {
    fn new(patterns: &'p Patterns) -> Self {
        Lines { patterns, line: Vec::new(), matched: Matched::default() }
    }

    fn add(&mut self, bytes: &[u8]) {
        if self.patterns.is_empty() {
            return;
        }
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.line.len() >= LINE_MAX {
                self.check();
            }
        }
    }

    fn check(&mut self) {
        let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        self.patterns.check(line, &mut self.matched);
        self.line.clear();
    }

    fn end(mut self) -> Matched {
        if !self.line.is_empty() {
            self.check();
        }
        self.matched
    }
}
