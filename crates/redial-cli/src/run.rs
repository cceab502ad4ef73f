//! `redial run`: runs a command until it works (docs/run.md).
//!
//! Invariant: nothing here decides about a retry. One async call of [`redial::Policy`] runs the
//! attempts; this module starts processes, copies their streams and judges exit codes.

/// Prints a line on standard error. A reader that is gone must not end the command.
macro_rules! print_error {
    ($($part:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr().lock(), $($part)*);
    }};
}

mod arguments;
mod attempt_end;
mod budget;
mod exit_list;
mod input;
mod output;
mod policy;
mod process;
mod process_group;
mod record;
mod report;
mod run_state;
mod run_throttle;
mod signals;

use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redial::parts::Operation;
use redial::{Attempt, Directive, Policy, StopReason};

pub use arguments::{Arguments, Attempts, BackoffKind, StdinMode, StdoutMode};
pub use exit_list::ExitList;

use crate::log_file::policy_beside;
use attempt_end::{Exit, ExitRules, Patterns, signal_code};
use output::{Stream, on_thread};
use process::{OutputMode, Program};
use record::{EVENTS_MAX, Record};
use report::Ended;
use run_state::RunState;
use run_throttle::RunThrottle;
use signals::{Asked, Signals};

/// The exit code if this program fails, or is used wrongly.
pub const OWN_ERROR: u8 = 125;
/// How long the last message may wait for a slow reader if a signal ended the run between two
/// attempts.
const MESSAGE_MAX: Duration = Duration::from_millis(500);

/// Runs the command, and returns the exit code of this program.
#[must_use]
pub fn run(arguments: &Arguments) -> u8 {
    match try_run(arguments) {
        Ok(code) => code,
        Err(text) => {
            print_error!("redial: {text}");
            OWN_ERROR
        }
    }
}

fn try_run(arguments: &Arguments) -> Result<u8, String> {
    let config = policy::config(arguments)?;
    let (policy, budget) = policy::build(arguments, &config)?;
    if let Some(path) = &arguments.log {
        let text = serde_json::to_string_pretty(&config).map_err(|error| error.to_string())?;
        // A log that cannot be written is reported before the command runs.
        write(path, "")?;
        write(&policy_beside(path), &format!("{text}\n"))?;
    }
    let program = Program {
        command: arguments.command.clone(),
        input: input::Input::new(arguments)?,
        output: output_mode(arguments),
        foreground: arguments.foreground,
        kill_after: arguments.kill_after,
    };
    let (rules, patterns) = (ExitRules::new(arguments), Patterns::new(arguments));
    let run = RunState::new(program, rules, patterns, Record::new(arguments));
    let throttle = RunThrottle { run: run.clone(), budget };
    let policy = policy.sharing(Arc::new(throttle));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("no runtime: {error}"))?;
    process_group::adopt_orphans();
    let code = runtime.block_on(drive(arguments, &policy, &run));
    // A thread may still wait for input.
    runtime.shutdown_background();
    code
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text)
        .map_err(|error| format!("{} cannot be written: {error}", path.display()))
}

fn output_mode(arguments: &Arguments) -> OutputMode {
    let terminal = io::IsTerminal::is_terminal(&io::stdout());
    let default = if terminal { StdoutMode::Live } else { StdoutMode::Once };
    match arguments.stdout.unwrap_or(default) {
        StdoutMode::Live => OutputMode::Live,
        StdoutMode::Once => OutputMode::Once(arguments.stdout_limit),
    }
}

/// The command as an operation that can be attempted.
struct RunCommand(Arc<RunState>);

impl Operation for RunCommand {
    type Answer = Pin<Box<dyn Future<Output = Result<Exit, Infallible>> + Send>>;
    const READS_ATTEMPT: bool = true;

    fn start(&mut self, attempt: Attempt) -> Self::Answer {
        let run = self.0.clone();
        Box::pin(async move { Ok(run.attempt(attempt.number()).await) })
    }
}

async fn drive(arguments: &Arguments, policy: &Policy, run: &Arc<RunState>) -> Result<u8, String> {
    let mut signals = Signals::listen(arguments.foreground)
        .map_err(|error| format!("signals cannot be received: {error}"))?;
    let begin = Instant::now();
    let (stop_reason, signal) = call(arguments, policy, run, &mut signals).await;
    let elapsed = begin.elapsed();
    // A process that the deadline has ended is waited for. Signals are passed on meanwhile.
    loop {
        tokio::select! {
            () = run.idle() => break,
            _ = signals.next(run) => {}
        }
    }
    let released = run.release_output(Stream::Out);
    let cut_off = before_signal(released, arguments.kill_after, run, &mut signals).await;
    let ended = Ended { stop_reason, elapsed, run, signal };
    let mut message = if arguments.json {
        Some(ended.json().to_string())
    } else {
        ended.message().filter(|_| !arguments.quiet).map(|text| format!("redial: {text}"))
    };
    if let Some(path) = &arguments.log {
        let (text, is_cut) =
            run.record(|record| (record.call_log().to_json_lines(), record.log_is_cut()));
        write(path, &text)?;
        if is_cut {
            let note = format!("redial: the call log has the first {EVENTS_MAX} events only");
            message = Some(message.map_or(note.clone(), |text| format!("{note}\n{text}")));
        }
    }
    if let Some(signal) = cut_off {
        return Ok(signal_code(signal));
    }
    let code = ended.code();
    if let Some(text) = message {
        let printed = on_thread(move || print_error!("{text}"));
        let time = if signal.is_some() { MESSAGE_MAX } else { arguments.kill_after };
        before_signal(printed, time, run, &mut signals).await;
    }
    Ok(code)
}

/// Waits for output to be written, however slow its reader is. Returns the signal that ended the wait:
/// at once, or after this time if it had come before.
async fn before_signal(
    written: impl Future<Output = ()>,
    time: Duration,
    run: &RunState,
    signals: &mut Signals,
) -> Option<i32> {
    let (mut written, mut late) = (pin!(written), pin!(run.ended_for(time)));
    loop {
        tokio::select! {
            biased;
            () = &mut written => return None,
            signal = &mut late => return Some(signal),
            asked = signals.next(run) => if let Asked::Stop(signal) = asked {
                return Some(signal);
            },
        }
    }
}

/// Makes the call. Returns why it stopped, with the signal if one ended it between two attempts.
async fn call(
    arguments: &Arguments,
    policy: &Policy,
    run: &Arc<RunState>,
    signals: &mut Signals,
) -> (StopReason, Option<i32>) {
    let rules = |result: &Result<Exit, Infallible>| -> Option<Directive> {
        result.as_ref().ok().map(|exit| run.rules.directive(exit))
    };
    let (state, explain, mut start) = (run.clone(), arguments.explain, None);
    let mut retry = policy
        .retry(RunCommand(run.clone()))
        .classify(rules)
        .on_event(move |context, event| {
            state.event(context.at, event);
            if explain {
                let start = *start.get_or_insert(context.at);
                print_error!("{}", report::line(start, context.at, event, &state));
            }
        })
        .with_report();
    if let Some(seed) = arguments.seed {
        retry = retry.seed(seed);
    }
    let mut call = pin!(retry.into_future());
    loop {
        tokio::select! {
            biased;
            result = &mut call => return match result {
                Ok((_, report)) => (report.stop_reason, None),
                Err(error) => (error.stop_reason(), None),
            },
            asked = signals.next(run) => if let Asked::Stop(signal) = asked {
                return (StopReason::Cancelled, Some(signal));
            },
        }
    }
}
