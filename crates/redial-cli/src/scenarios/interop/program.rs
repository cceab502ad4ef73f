//! A running program of another language, with JSON lines as input and output.
//!
//! The program is not trusted. Its output is read up to a limit, and only requested answers are
//! accepted; after a protocol violation it is ignored. At the end it is killed with its child
//! processes, and waited for.

use std::collections::BTreeMap;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::oneshot;

use super::protocol::{Answer, CaseRequest};

/// The longest line that a program may print, including the line feed.
const LINE_MAX: u64 = 1 << 20;
/// How much of an invalid line is shown.
const SHOWN_MAX: usize = 200;
/// How long a program may take to exit after it closed a pipe or was killed.
const END_MAX: Duration = Duration::from_secs(5);
/// Environment variables that would send the calls through a proxy.
const PROXIES: [&str; 6] =
    ["http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy"];

/// The pending requests by id; `None` once the program's output has ended.
type Waiting = Arc<Mutex<Option<BTreeMap<u64, oneshot::Sender<Answer>>>>>;

/// A running program. It is killed when this is dropped; [`Program::end`] waits for it, too.
#[derive(Debug)]
pub(super) struct Program {
    command: String,
    input: tokio::sync::Mutex<ChildStdin>,
    waiting: Waiting,
    problem: Arc<Mutex<Option<String>>>,
    child: tokio::sync::Mutex<Child>,
}

impl Program {
    /// Starts a program: a command line, split at blanks, and the mode as last argument.
    ///
    /// # Errors
    /// There is no such program.
    pub(super) fn start(command: &str, mode: &str) -> io::Result<Self> {
        let mut words = command.split_whitespace();
        let name = words.next().ok_or_else(|| io::Error::other("a program has a name"))?;
        let mut line = Command::new(name);
        line.args(words).arg(mode).stdin(Stdio::piped()).stdout(Stdio::piped());
        for proxy in PROXIES {
            line.env_remove(proxy);
        }
        // Its own process group, so that its child processes can be killed with it. It then gets no
        // interrupt from the terminal; we do.
        #[cfg(unix)]
        line.process_group(0);
        let started = line.kill_on_drop(true).spawn();
        let mut child = started
            .map_err(|error| io::Error::other(format!("cannot start {command}: {error}")))?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (input, output) = pipes.ok_or_else(|| io::Error::other("a program without pipes"))?;
        let waiting = Waiting::new(Mutex::new(Some(BTreeMap::new())));
        let problem = Arc::new(Mutex::new(None));
        tokio::spawn(read_answers(output, waiting.clone(), problem.clone()));
        let input = tokio::sync::Mutex::new(input);
        let child = tokio::sync::Mutex::new(child);
        Ok(Program { command: command.to_owned(), input, waiting, problem, child })
    }

    /// Runs a scenario in the program. Not cancel safe: if this future is dropped, a partial line
    /// may have been written, and the program is unusable.
    ///
    /// # Errors
    /// It has exited, or violated the protocol.
    pub(super) async fn play(&self, request: &CaseRequest) -> io::Result<Answer> {
        let (sender, answer) = oneshot::channel();
        let is_running = match lock(&self.waiting).as_mut() {
            Some(waiting) => {
                waiting.insert(request.id, sender);
                true
            }
            None => false,
        };
        if !is_running {
            return Err(self.ended().await);
        }
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        let written = async {
            let mut input = self.input.lock().await;
            input.write_all(&line).await?;
            input.flush().await
        };
        if written.await.is_err() {
            // It stopped reading; its earlier output may contain the reason.
            let _heard = tokio::time::timeout(END_MAX, answer).await;
            return Err(self.ended().await);
        }
        match answer.await {
            Ok(answer) => Ok(answer),
            Err(_) => Err(self.ended().await),
        }
    }

    /// Kills the program, and waits until it has exited.
    ///
    /// # Errors
    /// It violated the protocol.
    pub(super) async fn end(&self) -> io::Result<()> {
        let mut child = self.child.lock().await;
        kill(&mut child);
        let gone = tokio::time::timeout(END_MAX, child.wait()).await.is_ok();
        drop(child);
        let problem = lock(&self.problem).clone();
        match problem {
            Some(problem) => Err(self.error(&problem)),
            None if !gone => Err(self.error("it was killed, and does not end")),
            None => Ok(()),
        }
    }

    /// Why there are no more answers.
    async fn ended(&self) -> io::Error {
        if let Some(problem) = lock(&self.problem).as_deref() {
            return self.error(problem);
        }
        match self.status().await {
            Some(status) => self.error(&format!("it ended before it had answered: {status}")),
            None => self.error("it closed its input or output before it had answered"),
        }
    }

    /// Its exit status, if it has exited or is about to.
    async fn status(&self) -> Option<ExitStatus> {
        let mut child = self.child.lock().await;
        tokio::time::timeout(END_MAX, child.wait()).await.ok()?.ok()
    }

    fn error(&self, problem: &str) -> io::Error {
        io::Error::other(format!("{}: {problem}", self.command))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        kill(self.child.get_mut());
    }
}

/// Kills the process group. Without effect if it has already exited.
fn kill(child: &mut Child) {
    // Until it is waited for, its process id is not reused.
    #[cfg(unix)]
    if let Some(group) = child.id().and_then(|id| rustix::process::Pid::from_raw(id.cast_signed()))
    {
        let _killed = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let _killed = child.start_kill();
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A line, truncated.
fn shown(line: &str) -> String {
    let line = line.trim_end();
    match line.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{:?}...", &line[..end]),
        None => format!("{line:?}"),
    }
}

/// Passes each answer to its request, until the output ends.
async fn read_answers(output: ChildStdout, waiting: Waiting, problem: Arc<Mutex<Option<String>>>) {
    let mut output = BufReader::new(output);
    let problems = loop {
        let mut line = String::new();
        match (&mut output).take(LINE_MAX).read_line(&mut line).await {
            Ok(0) => break None,
            Ok(_) if !line.ends_with('\n') => {
                break Some(format!(
                    "it printed a line of {LINE_MAX} bytes, or one without an end"
                ));
            }
            Ok(_) => {}
            Err(error) => break Some(format!("what it prints cannot be read: {error}")),
        }
        let answer: Answer = match serde_json::from_str(&line) {
            Ok(answer) => answer,
            Err(error) => break Some(format!("it printed {}: {error}", shown(&line))),
        };
        let sender = lock(&waiting).as_mut().and_then(|waiting| waiting.remove(&answer.id));
        match sender {
            // A cancelled request needs no answer.
            Some(sender) => drop(sender.send(answer)),
            None => {
                break Some(format!("it answered {}, which is not a pending request", answer.id));
            }
        }
    };
    *lock(&problem) = problems;
    *lock(&waiting) = None;
}

#[cfg(all(test, unix))]
mod tests;
