//! A program of another language, running: lines go in and come out.

use std::collections::BTreeMap;
use std::io;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::oneshot;

use super::protocol::{Answer, Told};

/// The longest line that a program may print.
const LINE_MAX: u64 = 1 << 20;
/// What would lead a program's calls elsewhere.
const PROXIES: [&str; 6] =
    ["http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy"];

/// Who waits for which answer; `None` once the program says nothing any more.
type Waiting = Arc<Mutex<Option<BTreeMap<u64, oneshot::Sender<Answer>>>>>;

/// A running program. It is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Program {
    command: String,
    input: tokio::sync::Mutex<ChildStdin>,
    waiting: Waiting,
    problem: Arc<Mutex<Option<String>>>,
    _child: Child,
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
        let started = line.kill_on_drop(true).spawn();
        let mut child = started
            .map_err(|error| io::Error::other(format!("cannot start {command}: {error}")))?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (input, output) = pipes.ok_or_else(|| io::Error::other("a program without pipes"))?;
        let waiting = Waiting::new(Mutex::new(Some(BTreeMap::new())));
        let problem = Arc::new(Mutex::new(None));
        tokio::spawn(listen(output, waiting.clone(), problem.clone()));
        let input = tokio::sync::Mutex::new(input);
        Ok(Program { command: command.to_owned(), input, waiting, problem, _child: child })
    }

    /// Has it play a scenario.
    ///
    /// # Errors
    /// It has ended, or said what is not in the protocol.
    pub(super) async fn play(&self, told: &Told) -> io::Result<Answer> {
        let (sender, answer) = oneshot::channel();
        match lock(&self.waiting).as_mut() {
            Some(waiting) => waiting.insert(told.id, sender),
            None => return Err(self.ended()),
        };
        let mut line = serde_json::to_vec(told)?;
        line.push(b'\n');
        let mut input = self.input.lock().await;
        let written = async {
            input.write_all(&line).await?;
            input.flush().await
        };
        written.await.map_err(|_| self.ended())?;
        drop(input);
        answer.await.map_err(|_| self.ended())
    }

    fn ended(&self) -> io::Error {
        let problem = lock(&self.problem).clone();
        let problem = problem.unwrap_or_else(|| "it ended before it had answered".to_owned());
        io::Error::other(format!("{}: {problem}", self.command))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
            Err(error) => break Some(format!("it printed {:?}: {error}", line.trim_end())),
        };
        let sender = lock(&waiting).as_mut().and_then(|waiting| waiting.remove(&answer.id));
        match sender {
            // Who does not wait any more needs no answer.
            Some(sender) => drop(sender.send(answer)),
            None => break Some(format!("it answered {}, which nobody asked", answer.id)),
        }
    };
    *lock(&problem) = problems;
    *lock(&waiting) = None;
}
