//! A program of another language, running: lines go in and come out.
//!
//! Rule: it is not trusted. What it prints is read up to a limit and believed if it was asked for; once it
//! has said anything else it is heard no more. When it is needed no more it is killed, with all that it
//! has started, and waited for.

use std::collections::BTreeMap;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::oneshot;

use super::protocol::{Answer, Told};

/// The longest line that a program may print, its end included.
const LINE_MAX: u64 = 1 << 20;
/// How much of a line is shown that makes no sense.
const SHOWN_MAX: usize = 200;
/// How long a program that has closed a pipe, or was killed, may take to end.
const END_MAX: Duration = Duration::from_secs(5);
/// What would lead a program's calls elsewhere.
const PROXIES: [&str; 6] =
    ["http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy"];

/// Who waits for which answer; `None` once the program says nothing any more.
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
    /// Starts a program: a command line whose words are apart by blanks, and one more word.
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
        // A group of its own, so that what it starts can be killed with it. Then nobody but us hears of an
        // interrupt at the terminal.
        #[cfg(unix)]
        line.process_group(0);
        let started = line.kill_on_drop(true).spawn();
        let mut child = started
            .map_err(|error| io::Error::other(format!("cannot start {command}: {error}")))?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (input, output) = pipes.ok_or_else(|| io::Error::other("a program without pipes"))?;
        let waiting = Waiting::new(Mutex::new(Some(BTreeMap::new())));
        let problem = Arc::new(Mutex::new(None));
        tokio::spawn(listen(output, waiting.clone(), problem.clone()));
        let input = tokio::sync::Mutex::new(input);
        let child = tokio::sync::Mutex::new(child);
        Ok(Program { command: command.to_owned(), input, waiting, problem, child })
    }

    /// Has it play a scenario. Who drops this makes it one that nobody can speak to any more: a part of
    /// its line may have been written.
    ///
    /// # Errors
    /// It has ended, or said what is not in the protocol.
    pub(super) async fn play(&self, told: &Told) -> io::Result<Answer> {
        let (sender, answer) = oneshot::channel();
        let is_heard = match lock(&self.waiting).as_mut() {
            Some(waiting) => {
                waiting.insert(told.id, sender);
                true
            }
            None => false,
        };
        if !is_heard {
            return Err(self.ended().await);
        }
        let mut line = serde_json::to_vec(told)?;
        line.push(b'\n');
        let written = async {
            let mut input = self.input.lock().await;
            input.write_all(&line).await?;
            input.flush().await
        };
        if written.await.is_err() {
            // It reads no more; what it printed before says why, if it has said anything.
            let _heard = tokio::time::timeout(END_MAX, answer).await;
            return Err(self.ended().await);
        }
        match answer.await {
            Ok(answer) => Ok(answer),
            Err(_) => Err(self.ended().await),
        }
    }

    /// Ends it, and waits until it has gone.
    ///
    /// # Errors
    /// It has said what is not in the protocol.
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

    /// Why it says nothing any more.
    async fn ended(&self) -> io::Error {
        if let Some(problem) = lock(&self.problem).as_deref() {
            return self.error(problem);
        }
        match self.status().await {
            Some(status) => self.error(&format!("it ended before it had answered: {status}")),
            None => self.error("it closed its input or output before it had answered"),
        }
    }

    /// How it ended, if it has or is about to.
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

/// Kills it, and what it has started. One that has ended already cannot be killed: then nothing happens.
fn kill(child: &mut Child) {
    // Until it is waited for, no other process has its number.
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

/// A line, or its beginning.
fn shown(line: &str) -> String {
    let line = line.trim_end();
    match line.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{:?}...", &line[..end]),
        None => format!("{line:?}"),
    }
}

/// Hands every answer to who waits for it, until there are no more.
async fn listen(output: ChildStdout, waiting: Waiting, problem: Arc<Mutex<Option<String>>>) {
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
            // Who does not wait any more needs no answer.
            Some(sender) => drop(sender.send(answer)),
            None => break Some(format!("it answered {}, for which nobody waits", answer.id)),
        }
    };
    *lock(&problem) = problems;
    *lock(&waiting) = None;
}

#[cfg(all(test, unix))]
mod tests;
