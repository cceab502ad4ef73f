//! The standard input of attempts. A pipe is kept while the first attempt reads it, and replayed to
//! the next ones; a file is read again from where it was.
//!
//! Invariant: nothing is read from a pipe before an attempt asks for it, so that a pipe without an
//! end does not delay the command.

use std::collections::VecDeque;
use std::io::{self, IsTerminal, Read, Seek, SeekFrom, Write};
use std::process::Stdio;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;

use tempfile::SpooledTempFile;

use super::arguments::{Arguments, StdinMode};
use super::attempt_end::LastBecause;
use super::output::MEMORY_MAX;
use super::run_state::RunState;

/// How much is read at once.
const CHUNK: usize = 1 << 16;

/// The input of all attempts.
#[derive(Clone, Debug)]
pub(super) enum Input {
    Null,
    Inherit,
    /// A regular file, and the offset at which each attempt begins.
    #[cfg_attr(not(unix), allow(dead_code))]
    File(u64),
    Replay(Arc<InputSpool>),
}

impl Input {
    /// # Errors
    /// The command could not read it.
    pub(super) fn new(arguments: &Arguments) -> Result<Self, String> {
        let terminal = io::stdin().is_terminal();
        let reads = matches!(arguments.stdin, Some(StdinMode::Inherit | StdinMode::Replay));
        if terminal && reads && !arguments.foreground {
            return Err("the standard input is a terminal, which the command can only read with \
                        --foreground; add it, or use --stdin none"
                .to_owned());
        }
        let mode = arguments.stdin.unwrap_or(match (terminal, arguments.foreground) {
            (true, true) => StdinMode::Inherit,
            // In a process group of its own, the command cannot read from the terminal.
            (true, false) => StdinMode::None,
            (false, _) => StdinMode::Replay,
        });
        Ok(match mode {
            StdinMode::None => Input::Null,
            StdinMode::Inherit => Input::Inherit,
            StdinMode::Replay => Input::replay(arguments.stdin_limit),
        })
    }

    #[cfg(unix)]
    fn replay(bytes_max: u64) -> Self {
        use rustix::fs::{FileType, SeekFrom, fstat, seek};
        let stdin = io::stdin();
        let Ok(stat) = fstat(&stdin) else { return Input::Null };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => match seek(&stdin, SeekFrom::Current(0)) {
                Ok(offset) => Input::File(offset),
                Err(_) => Input::Replay(InputSpool::new(bytes_max)),
            },
            // `/dev/null`, for one.
            FileType::CharacterDevice => Input::Inherit,
            _ => Input::Replay(InputSpool::new(bytes_max)),
        }
    }

    #[cfg(not(unix))]
    fn replay(bytes_max: u64) -> Self {
        Input::Replay(InputSpool::new(bytes_max))
    }

    /// The input of the next attempt.
    pub(super) fn stdio(&self) -> Stdio {
        match self {
            Input::Null => Stdio::null(),
            Input::Inherit => Stdio::inherit(),
            Input::File(_offset) => {
                #[cfg(unix)]
                let _ = rustix::fs::seek(io::stdin(), rustix::fs::SeekFrom::Start(*_offset));
                Stdio::inherit()
            }
            Input::Replay(_) => Stdio::piped(),
        }
    }
}

/// Input that is kept for further attempts.
#[derive(Debug)]
pub(super) struct InputSpool {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    spool: SpooledTempFile,
    /// How many bytes are kept.
    kept: u64,
    kept_max: u64,
    /// What came beyond the limit, for the running attempt.
    beyond: VecDeque<Vec<u8>>,
    over_limit: bool,
    /// An attempt waits for more.
    wanted: bool,
    ended: bool,
    /// Why the rest of the input cannot be had.
    lost: Option<String>,
    reader_started: bool,
    /// The number of the attempt that reads; older ones end.
    generation: u64,
}

/// Stops the thread that feeds an attempt when the attempt has ended.
#[derive(Debug)]
pub(super) struct Feeder(Arc<InputSpool>);

impl Drop for Feeder {
    fn drop(&mut self) {
        self.0.lock().generation += 1;
        self.0.changed.notify_all();
    }
}

impl InputSpool {
    fn new(kept_max: u64) -> Arc<Self> {
        let state = State {
            spool: SpooledTempFile::new(MEMORY_MAX),
            kept: 0,
            kept_max,
            beyond: VecDeque::new(),
            over_limit: false,
            wanted: false,
            ended: false,
            lost: None,
            reader_started: false,
            generation: 0,
        };
        Arc::new(InputSpool { state: Mutex::new(state), changed: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Feeds an attempt on a thread of its own.
    pub(super) fn feed(
        self: &Arc<Self>,
        mut to: impl Write + Send + 'static,
        run: Arc<RunState>,
    ) -> io::Result<Feeder> {
        let generation = {
            let mut state = self.lock();
            if !state.reader_started {
                let spool = self.clone();
                Builder::new().spawn(move || spool.read_input())?;
                state.reader_started = true;
            }
            state.generation
        };
        let spool = self.clone();
        Builder::new().spawn(move || {
            let mut at = 0;
            let on_last = |because| run.set_last(because);
            while let Some(chunk) = spool.next_chunk(&mut at, generation, on_last) {
                // The command need not read its input to the end.
                if to.write_all(&chunk).is_err() {
                    break;
                }
            }
        })?;
        Ok(Feeder(self.clone()))
    }

    /// The next part of the input, once it is there; `None` at its end, or if the attempt has ended.
    /// `on_last` is called before a part is taken that the next attempt would not get, and if the rest
    /// is lost. Then this waits for the end of the attempt: the command must not take what it got for
    /// the whole input.
    fn next_chunk(
        &self,
        at: &mut u64,
        generation: u64,
        on_last: impl Fn(LastBecause),
    ) -> Option<Vec<u8>> {
        let mut state = self.lock();
        loop {
            if state.generation != generation {
                return None;
            }
            if *at < state.kept && state.lost.is_none() {
                match state.read_kept(at) {
                    Ok(chunk) => return Some(chunk),
                    Err(error) => state.lose(format!("the kept input cannot be read: {error}")),
                }
            }
            if let Some(text) = state.lost.clone() {
                drop(state);
                print_error!("redial: {text}");
                on_last(LastBecause::InputLost);
                let mut state = self.lock();
                while state.generation == generation {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                return None;
            }
            if !state.beyond.is_empty() {
                // Before the lock is released: a retry that starts now must see it.
                on_last(LastBecause::InputLimit);
                return state.beyond.pop_front();
            }
            if state.ended {
                return None;
            }
            state.wanted = true;
            self.changed.notify_all();
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Reads the input of this program whenever an attempt waits for it.
    fn read_input(&self) {
        let mut chunk = vec![0; CHUNK];
        loop {
            let mut state = self.lock();
            while !state.wanted {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            drop(state);
            let read = io::stdin().lock().read(&mut chunk);
            if read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::Interrupted) {
                continue;
            }
            let mut state = self.lock();
            state.wanted = false;
            match read {
                Ok(count) => state.add(&chunk[..count]),
                Err(error) => state.lose(format!("the standard input cannot be read: {error}")),
            }
            let ended = state.ended || state.lost.is_some();
            drop(state);
            self.changed.notify_all();
            if ended {
                return;
            }
        }
    }
}

impl State {
    fn read_kept(&mut self, at: &mut u64) -> io::Result<Vec<u8>> {
        let mut chunk = vec![0; CHUNK.min(usize::try_from(self.kept - *at).unwrap_or(CHUNK))];
        self.spool.seek(SeekFrom::Start(*at))?;
        let count = self.spool.read(&mut chunk)?;
        chunk.truncate(count);
        *at += count as u64;
        if count == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(chunk) }
    }

    fn lose(&mut self, text: String) {
        self.lost = Some(text);
    }

    /// Adds what was read; nothing is the end.
    fn add(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            self.ended = true;
            return;
        }
        let total = self.kept.saturating_add(bytes.len() as u64);
        let kept = !self.over_limit
            && total <= self.kept_max
            && self.spool.seek(SeekFrom::Start(self.kept)).is_ok()
            && self.spool.write_all(bytes).is_ok();
        if kept {
            self.kept = total;
        } else {
            self.over_limit = true;
            self.beyond.push_back(bytes.to_vec());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_input_beyond_the_limit_is_reported_before_being_taken() {
        let spool = InputSpool::new(4);
        spool.lock().add(b"kept");
        spool.lock().add(b"beyond");
        let mut at = 0;
        let kept = spool.next_chunk(&mut at, 0, |_| panic!("it can be replayed"));
        assert_eq!(kept.as_deref(), Some(&b"kept"[..]));
        let reported = std::cell::Cell::new(None);
        let beyond = spool.next_chunk(&mut at, 0, |because| {
            assert!(spool.state.try_lock().is_err(), "no other thread can take it");
            reported.set(Some(because));
        });
        let limit = Some(LastBecause::InputLimit);
        assert_eq!((beyond.as_deref(), reported.get()), (Some(&b"beyond"[..]), limit));
    }
}
