//! The output of attempts: passed on as it comes, or held back until the last attempt is known.
//!
//! Invariant: no byte is lost. Output that is held back goes to standard output if its attempt was
//! the last one, and to standard error if another attempt follows.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

/// The output of one attempt that is held back.
#[derive(Clone, Debug)]
pub(super) struct Held(Arc<Mutex<HeldState>>);

#[derive(Debug)]
struct HeldState {
    spool: SpooledTempFile,
    bytes: u64,
    bytes_max: u64,
    /// The limit was reached: what was held is passed on, and so is the rest.
    passed_on: bool,
}

impl Held {
    pub(super) fn new(bytes_max: u64) -> Self {
        let spool = SpooledTempFile::new(MEMORY_MAX);
        let state = HeldState { spool, bytes: 0, bytes_max, passed_on: false };
        Held(Arc::new(Mutex::new(state)))
    }

    fn lock(&self) -> MutexGuard<'_, HeldState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds output. Returns whether it is still held back.
    fn write(&self, bytes: &[u8]) -> io::Result<bool> {
        let mut state = self.lock();
        let total = state.bytes.saturating_add(bytes.len() as u64);
        if !state.passed_on && total > state.bytes_max {
            state.passed_on = true;
            state.copy_to(Stream::Out)?;
        }
        if state.passed_on {
            Stream::Out.write_all(bytes)?;
            return Ok(false);
        }
        state.spool.write_all(bytes)?;
        state.bytes = total;
        Ok(true)
    }

    /// Writes what is held back.
    pub(super) fn release_to(self, stream: Stream) -> io::Result<()> {
        let mut state = self.lock();
        if state.passed_on {
            return Ok(());
        }
        state.passed_on = true;
        state.copy_to(stream)
    }
}

impl HeldState {
    fn copy_to(&mut self, stream: Stream) -> io::Result<()> {
        self.spool.seek(SeekFrom::Start(0))?;
        let mut chunk = vec![0; CHUNK];
        loop {
            match self.spool.read(&mut chunk)? {
                0 => return Ok(()),
                count => stream.write_all(&chunk[..count])?,
            }
        }
    }
}

/// Where a pump writes.
pub(super) enum Sink {
    Live(Stream),
    Held(Held),
}

/// Copies the output of a process on a thread of its own, until its end. The receiver gets the
/// matches.
pub(super) fn pump(
    mut reader: impl Read + Send + 'static,
    mut sink: Sink,
    run: Arc<RunState>,
) -> oneshot::Receiver<Matched> {
    let (sender, receiver) = oneshot::channel();
    std::thread::spawn(move || {
        let mut lines = Lines::new(&run.patterns);
        let mut chunk = vec![0; CHUNK];
        loop {
            let count = match reader.read(&mut chunk) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            lines.add(&chunk[..count]);
            if let Err(error) = sink.write(&chunk[..count], &run) {
                // The command gets SIGPIPE, as if it had written to the closed stream itself.
                let because = match error.kind() {
                    io::ErrorKind::BrokenPipe => LastBecause::OutputClosed,
                    _ => LastBecause::OutputLimit,
                };
                if because == LastBecause::OutputLimit {
                    print_error!("redial: the output cannot be written: {error}");
                }
                run.set_last(because);
                break;
            }
        }
        let matched = lines.end();
        drop(reader);
        // The attempt may have been given up.
        let _ = sender.send(matched);
    });
    receiver
}

impl Sink {
    fn write(&mut self, bytes: &[u8], run: &RunState) -> io::Result<()> {
        match self {
            Sink::Live(stream) => stream.write_all(bytes),
            Sink::Held(held) => {
                if !held.write(bytes)? {
                    run.set_last(LastBecause::OutputLimit);
                }
                Ok(())
            }
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
