//! The process of an attempt: its start, its end, and the end of all that it has started.

use std::ffi::OsString;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use super::OWN_ERROR;
use super::attempt_end::{CANNOT_EXECUTE, End, Exit, LastBecause, Matched, NOT_FOUND};
use super::input::{Feeder, Input};
#[cfg(unix)]
use super::output::is_closed;
use super::output::{Done, Held, Pump, Sink, Stream, pump};
use super::process_group::Group;
use super::run_state::{Live, RunState};

/// The variable that tells the command the number of the attempt, from 1.
const NUMBER: &str = "REDIAL_ATTEMPT";
/// How often a process group is asked whether it has ended.
const POLL: Duration = Duration::from_millis(10);
/// How long the end of a group is awaited after SIGKILL, and then the end of an output from which
/// nothing comes: a process that has left the group can keep it open.
const AFTER_KILL: Duration = Duration::from_secs(2);

/// What is run.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) command: Vec<OsString>,
    pub(super) input: Input,
    pub(super) output: OutputMode,
    pub(super) foreground: bool,
    pub(super) kill_after: Duration,
}

/// What happens to the output.
#[derive(Clone, Copy, Debug)]
pub(super) enum OutputMode {
    /// Held back up to this many bytes.
    Once(u64),
    Live,
}

/// A running attempt. If it is dropped, the process group is ended in the background.
pub(super) struct Process {
    running: Option<Running>,
    run: Arc<RunState>,
}

struct Running {
    child: Child,
    group: Group,
    pumps: Vec<Pump>,
    /// What the output that has ended matched.
    matched: Matched,
    feeder: Option<Feeder>,
    live: Live,
}

impl Process {
    /// Starts the program, as the attempt of this number.
    pub(super) fn start(run: &Arc<RunState>, number: u32) -> Result<Process, End> {
        let program = &run.program;
        let (name, arguments) = program
            .command
            .split_first()
            .ok_or_else(|| End::NotStarted { code: OWN_ERROR, text: "no command".to_owned() })?;
        let mut command = Command::new(name);
        command.args(arguments).stdin(program.input.stdio()).kill_on_drop(true);
        command.env(NUMBER, number.to_string());
        #[cfg(unix)]
        if !program.foreground {
            command.process_group(0);
        }
        let holds = matches!(program.output, OutputMode::Once(_));
        let watches = !run.patterns.is_empty();
        command.stdout(if holds || watches { Stdio::piped() } else { Stdio::inherit() });
        command.stderr(if watches { Stdio::piped() } else { Stdio::inherit() });
        let child = command.spawn().map_err(|error| not_started(name, &error))?;
        let group = Group::new(&child, program.foreground);
        let mut running = Running {
            child,
            group,
            pumps: Vec::new(),
            matched: Matched::default(),
            feeder: None,
            live: run.live(group),
        };
        if let Err(error) = running.connect(run) {
            let text = format!("its streams cannot be used: {error}");
            drop(Process { running: Some(running), run: run.clone() });
            return Err(End::NotStarted { code: OWN_ERROR, text });
        }
        Ok(Process { running: Some(running), run: run.clone() })
    }

    /// Waits for the end of the process and of its output.
    pub(super) async fn wait(mut self) -> Exit {
        let mut exit = Exit { end: End::Exited(0), matched: Matched::default(), last: None };
        let mut stopped = None;
        if let Some(running) = &mut self.running {
            tokio::select! {
                biased;
                status = running.command_end() => exit.end = end(status),
                () = self.run.input_lost() => exit.end = running.end_without_input(&self.run).await,
            }
            running.feeder = None;
            stopped = running.output_end(&self.run).await;
            if let Some(signal) = stopped {
                exit.end = End::Signalled(signal);
            }
            exit.matched = running.matched;
        }
        #[cfg(unix)]
        if matches!(self.run.program.output, OutputMode::Live)
            && exit.end.is_signal(rustix::process::Signal::PIPE.as_raw())
            && is_closed()
        {
            self.run.set_last(LastBecause::OutputClosed);
        }
        exit.last = self.run.last();
        // What a failed command has left behind must not run beside the next attempt.
        if (stopped.is_some() || self.run.rules.directive(&exit) != redial::Directive::Succeed)
            && let Some(running) = &mut self.running
            && running.group.has_members()
        {
            running.end_group(&self.run).await;
            // A signal may have come meanwhile.
            exit.last = self.run.last();
        }
        self.running = None;
        exit
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(mut running) = self.running.take() {
            // The runtime polls or drops the call, so there is one.
            let run = self.run.clone();
            tokio::spawn(async move {
                running.end_group(&run).await;
                // No retry before `running` is dropped, with its place among the live processes.
                if running.matched.stop {
                    run.set_last(LastBecause::OutputStops);
                }
            });
        }
    }
}

impl Running {
    /// Starts the threads that copy input and output.
    fn connect(&mut self, run: &Arc<RunState>) -> io::Result<()> {
        if let Some(stdout) = self.child.stdout.take() {
            let sink = match run.program.output {
                OutputMode::Live => Sink::Live(Stream::Out),
                OutputMode::Once(bytes_max) => {
                    let held = Held::new(bytes_max);
                    run.hold(held.clone());
                    Sink::Held(held)
                }
            };
            self.pumps.push(pump(blocking_stdout(stdout)?, sink, run.clone())?);
        }
        if let Some(stderr) = self.child.stderr.take() {
            let sink = Sink::Live(Stream::Err);
            self.pumps.push(pump(blocking_stderr(stderr)?, sink, run.clone())?);
        }
        if let (Some(stdin), Input::Replay(spool)) = (self.child.stdin.take(), &run.program.input) {
            self.feeder = Some(spool.feed(blocking_stdin(stdin)?, run.clone())?);
        }
        Ok(())
    }

    /// Ends the process and all of its group: SIGTERM, and SIGKILL after a while.
    async fn end_group(&mut self, run: &RunState) {
        self.group.terminate(&mut self.child);
        if timeout(run.program.kill_after, self.gone()).await.is_err() {
            self.group.kill(&mut self.child);
            let _ = timeout(AFTER_KILL, self.gone()).await;
        }
        tokio::select! {
            biased;
            () = self.output_copied() => {}
            _ = run.ended_for(run.program.kill_after) => {}
        }
    }

    /// Ends a command that waits for input that cannot be had.
    async fn end_without_input(&mut self, run: &RunState) -> End {
        self.end_group(run).await;
        match self.child.try_wait() {
            Ok(Some(status)) => end(Ok(status)),
            Ok(None) => End::Exited(i32::from(OWN_ERROR)),
            Err(error) => end(Err(error)),
        }
    }

    /// Waits for the end of the command itself.
    async fn command_end(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await;
        self.group.command_has_ended();
        self.live.command_has_ended();
        status
    }

    /// Waits for the end of the output, but after a signal that ends the run only as long as a command
    /// has between SIGTERM and SIGKILL. Then it returns that signal.
    async fn output_end(&mut self, run: &RunState) -> Option<i32> {
        tokio::select! {
            biased;
            () = self.pumps_end() => None,
            signal = run.ended_for(run.program.kill_after) => Some(signal),
        }
    }

    /// Waits until all that the group has written is copied, however slow the reader is. A process
    /// that has left the group can keep the output open, or write without end.
    async fn output_copied(&mut self) {
        let begin: Vec<Done> = self.pumps.iter().map(Pump::done).collect();
        let mut before = begin.clone();
        while timeout(AFTER_KILL, self.pumps_end()).await.is_err() {
            let is_copied = |(index, pump): (usize, &Pump)| {
                pump.has_waited_since(before[index]) || pump.has_copied_a_pipe_since(begin[index])
            };
            if self.pumps.iter().enumerate().all(is_copied) {
                return;
            }
            before = self.pumps.iter().map(Pump::done).collect();
        }
    }

    /// Waits for the end of the output, and keeps its matches.
    async fn pumps_end(&mut self) {
        while let Some(pump) = self.pumps.last_mut() {
            let matched = (&mut pump.matched).await;
            let Matched { until, retry, stop } = matched.unwrap_or_default();
            self.matched.until |= until;
            self.matched.retry |= retry;
            self.matched.stop |= stop;
            self.pumps.pop();
        }
    }

    /// Waits until the process and its group have ended.
    async fn gone(&mut self) {
        let _ = self.command_end().await;
        while self.group.has_members() {
            sleep(POLL).await;
        }
    }
}

fn end(status: io::Result<ExitStatus>) -> End {
    let status = match status {
        Ok(status) => status,
        Err(error) => {
            let text = format!("its exit code is not known: {error}");
            return End::NotStarted { code: OWN_ERROR, text };
        }
    };
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return End::Signalled(signal);
    }
    End::Exited(status.code().unwrap_or(1))
}

fn not_started(name_of_file: &OsString, error: &io::Error) -> End {
    let name = name_of_file.to_string_lossy();
    if error.kind() == io::ErrorKind::NotFound {
        // A path is looked up as it is, and the file can be there without what runs it.
        if name.contains('/') && std::path::Path::new(name_of_file).exists() {
            let text = format!(
                "{name} cannot be executed: the interpreter in its first line, or its loader, was not found"
            );
            return End::NotStarted { code: CANNOT_EXECUTE, text };
        }
        return End::NotStarted { code: NOT_FOUND, text: format!("{name}: command not found") };
    }
    // No process, no memory or no file descriptor is left: that is not about the command.
    #[cfg(unix)]
    {
        use rustix::io::Errno;
        let errno = Errno::from_io_error(error);
        if matches!(errno, Some(Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE)) {
            let text = format!("no process can be started: {error}");
            return End::NotStarted { code: OWN_ERROR, text };
        }
    }
    End::NotStarted { code: CANNOT_EXECUTE, text: format!("{name} cannot be executed: {error}") }
}

#[cfg(unix)]
mod streams {
    use std::fs::File;
    use std::io;
    use tokio::process::{ChildStderr, ChildStdin, ChildStdout};

    pub(super) fn blocking_stdout(stream: ChildStdout) -> io::Result<File> {
        Ok(stream.into_owned_fd()?.into())
    }
    pub(super) fn blocking_stderr(stream: ChildStderr) -> io::Result<File> {
        Ok(stream.into_owned_fd()?.into())
    }
    pub(super) fn blocking_stdin(stream: ChildStdin) -> io::Result<File> {
        Ok(stream.into_owned_fd()?.into())
    }
}
#[cfg(windows)]
mod streams {
    use std::fs::File;
    use std::io;
    use tokio::process::{ChildStderr, ChildStdin, ChildStdout};

    pub(super) fn blocking_stdout(stream: ChildStdout) -> io::Result<File> {
        Ok(stream.into_owned_handle()?.into())
    }
    pub(super) fn blocking_stderr(stream: ChildStderr) -> io::Result<File> {
        Ok(stream.into_owned_handle()?.into())
    }
    pub(super) fn blocking_stdin(stream: ChildStdin) -> io::Result<File> {
        Ok(stream.into_owned_handle()?.into())
    }
}
use streams::{blocking_stderr, blocking_stdin, blocking_stdout};

#[cfg(all(test, unix))]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn run_start_without_resources_is_125() {
        let code = |errno: Errno| match not_started(&"command".into(), &errno.into()) {
            End::NotStarted { code, .. } => code,
            end => panic!("it was not started: {end}"),
        };
        for errno in [Errno::AGAIN, Errno::NOMEM, Errno::MFILE, Errno::NFILE] {
            assert_eq!(code(errno), 125, "{errno}");
        }
        assert_eq!((code(Errno::NOENT), code(Errno::ACCESS), code(Errno::NOEXEC)), (127, 126, 126));
    }
}
