//! The arguments of `redial run`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use redial::Jitter;
use regex::bytes::Regex;

use super::exit_list::ExitList;

/// How long a command may take to end after SIGTERM, unless `--kill-after` says otherwise.
const KILL_AFTER: &str = "5s";
/// How much input or output of an attempt is kept, unless an option says otherwise.
const LIMIT: &str = "256MiB";

/// The arguments of `redial run`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXIT_CODES, args_override_self = true)]
pub struct Arguments {
    /// How often the command is run at most, or "unlimited".
    #[arg(long, short = 'n', value_name = "COUNT", value_parser = attempts, help_heading = "Backoff")]
    pub attempts: Option<Attempts>,
    /// The delay before the second attempt, before jitter.
    #[arg(long, short = 'd', value_name = "DURATION", value_parser = duration, help_heading = "Backoff")]
    pub first: Option<Duration>,
    /// The factor between two delays of the exponential backoff.
    #[arg(long, value_name = "NUMBER", help_heading = "Backoff")]
    pub factor: Option<f64>,
    /// The difference between two delays of the arithmetic backoff.
    #[arg(long, value_name = "DURATION", value_parser = duration, help_heading = "Backoff")]
    pub step: Option<Duration>,
    /// The longest delay, before jitter.
    #[arg(long, value_name = "DURATION", value_parser = duration, help_heading = "Backoff")]
    pub cap: Option<Duration>,
    /// How delays grow: exponential, constant, arithmetic, fibonacci, or a list of delays like
    /// 1s,5s,30s, whose last one repeats.
    #[arg(long, value_name = "KIND", value_parser = backoff, help_heading = "Backoff")]
    pub backoff: Option<BackoffKind>,
    /// How delays are randomized: none, full, half, equal, decorrelated, or a share like 0.2 for
    /// plus or minus 20 percent.
    #[arg(long, value_name = "KIND", value_parser = jitter, help_heading = "Backoff")]
    pub jitter: Option<Jitter>,
    /// The seed of the random delays, to repeat a run.
    #[arg(long, value_name = "NUMBER", help_heading = "Backoff")]
    pub seed: Option<u64>,
    /// Read the policy from a file (JSON or TOML); the other options take precedence.
    #[arg(long, value_name = "FILE", help_heading = "Backoff")]
    pub policy: Option<PathBuf>,

    /// End an attempt that takes longer, with all processes that it has started, and try again.
    #[arg(long, short = 't', value_name = "DURATION", value_parser = time, help_heading = "Time")]
    pub timeout: Option<Duration>,
    /// The time for all attempts and delays together.
    #[arg(long, value_name = "DURATION", value_parser = time, help_heading = "Time")]
    pub deadline: Option<Duration>,
    /// How long a command that is ended has between SIGTERM and SIGKILL.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = KILL_AFTER, help_heading = "Time")]
    pub kill_after: Duration,

    /// Retry these exit codes and signals only, for example 1-3,75,SIGKILL. By default everything
    /// but success, 126 and 127 is retried.
    #[arg(long, value_name = "LIST", help_heading = "What is retried")]
    pub retry_on: Option<ExitList>,
    /// Never retry these exit codes and signals.
    #[arg(long, value_name = "LIST", help_heading = "What is retried")]
    pub stop_on: Option<ExitList>,
    /// The exit codes that count as success.
    #[arg(long, value_name = "LIST", default_value = "0", help_heading = "What is retried")]
    pub success_on: ExitList,
    /// Retry if a line of the output matches this pattern, whatever the exit code.
    #[arg(long, value_name = "PATTERN", help_heading = "What is retried")]
    pub retry_on_output: Option<Regex>,
    /// Stop if a line of the output matches this pattern.
    #[arg(long, value_name = "PATTERN", help_heading = "What is retried")]
    pub stop_on_output: Option<Regex>,
    /// Run the command until a line of its output matches this pattern.
    #[arg(long, value_name = "PATTERN", help_heading = "What is retried")]
    pub until: Option<Regex>,

    /// Share a retry budget of this name with the other processes of this user.
    #[arg(long, value_name = "NAME", value_parser = budget_name, help_heading = "Retry budget")]
    pub budget: Option<String>,
    /// How many retries the budget has in reserve.
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 10.0,
        requires = "budget",
        help_heading = "Retry budget"
    )]
    pub budget_reserve: f64,
    /// What a success adds to it.
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 0.1,
        requires = "budget",
        help_heading = "Retry budget"
    )]
    pub budget_ratio: f64,
    /// What each second adds to it.
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 1.0,
        requires = "budget",
        help_heading = "Retry budget"
    )]
    pub budget_per_second: f64,

    /// The standard input of the command. By default it is replayed to each attempt, unless it is a
    /// terminal.
    #[arg(long, value_name = "MODE", help_heading = "Input and output")]
    pub stdin: Option<StdinMode>,
    /// How much input is kept for further attempts; with more of it, the command is not run again.
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value = LIMIT, help_heading = "Input and output")]
    pub stdin_limit: u64,
    /// The standard output of the command. By default it is live on a terminal, and otherwise that
    /// of the last attempt alone.
    #[arg(long, value_name = "MODE", help_heading = "Input and output")]
    pub stdout: Option<StdoutMode>,
    /// How much output is held back; with more of it, it is passed on, and the command is not run
    /// again.
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value = LIMIT, help_heading = "Input and output")]
    pub stdout_limit: u64,
    /// Run the command in the process group of this program, so that it can use the terminal. Then
    /// a timeout ends the command alone, and not what it has started.
    #[arg(long, help_heading = "Input and output")]
    pub foreground: bool,

    /// Print every event of the call on standard error as it happens.
    #[arg(long, help_heading = "Report")]
    pub explain: bool,
    /// Print a report as one line of JSON on standard error at the end.
    #[arg(long, help_heading = "Report")]
    pub json: bool,
    /// Write the call log to a file, and the policy beside it to FILE.policy.json, for `redial replay`
    /// and `redial explain`.
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    pub log: Option<PathBuf>,
    /// Do not print why the command was given up.
    #[arg(long, short = 'q', help_heading = "Report")]
    pub quiet: bool,

    /// The command and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

const EXIT_CODES: &str = "\
Exit codes:
  N      the exit code of the command's last attempt
  128+N  signal N ended the last attempt
  1      the command succeeded, but not with the output or the exit code that was asked for
  124    the deadline or the timeout of the last attempt ended it
  125    this program failed, could not write the output, or was used wrongly
  126    the command cannot be executed
  127    the command was not found

The command finds the number of the attempt, from 1, in the environment variable REDIAL_ATTEMPT.";

/// How often the command is run at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempts {
    /// This often.
    Count(u32),
    /// Until it succeeds or the deadline passes.
    Unlimited,
}

/// How delays grow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackoffKind {
    /// Each delay is the previous one times a factor.
    Exponential,
    /// The same delay each time.
    Constant,
    /// Each delay is longer by the same step.
    Arithmetic,
    /// The first delay times 1, 1, 2, 3, 5 and so on.
    Fibonacci,
    /// A list of delays; the last one repeats.
    Table(Vec<Duration>),
}

/// The standard input of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum StdinMode {
    /// Each attempt reads the whole input.
    Replay,
    /// The command has no input.
    None,
    /// The command uses the input of this program; a second attempt reads what the first one left.
    Inherit,
}

/// The standard output of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum StdoutMode {
    /// The output of the last attempt only; that of the others goes to standard error.
    Once,
    /// The output of all attempts, as it is written.
    Live,
}

/// A duration in the notation of policies: 250ms, 1.5s, 1m30s.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let json = serde_json::Value::String(text.to_owned());
    match redial::config::fields::span::deserialize(json) {
        Ok(Some(duration)) => Ok(duration),
        Ok(None) => Err("expected a duration like 250ms or 1.5s".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// A duration above 0.
fn time(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => {
            Err("0 leaves the command no time; leave the option out for no limit".to_owned())
        }
        time => Ok(time),
    }
}

fn attempts(text: &str) -> Result<Attempts, String> {
    match text {
        "unlimited" | "forever" => Ok(Attempts::Unlimited),
        _ => match text.parse::<u32>() {
            Ok(0) => Err("0 would never run it; write 1 for a single attempt".to_owned()),
            Ok(count) => Ok(Attempts::Count(count)),
            Err(_) => Err(format!("expected a number from 1 to {}, or unlimited", u32::MAX)),
        },
    }
}

fn backoff(text: &str) -> Result<BackoffKind, String> {
    Ok(match text {
        "exponential" => BackoffKind::Exponential,
        "constant" => BackoffKind::Constant,
        "arithmetic" => BackoffKind::Arithmetic,
        "fibonacci" => BackoffKind::Fibonacci,
        list if list.starts_with(|c: char| c.is_ascii_digit()) => {
            BackoffKind::Table(list.split(',').map(duration).collect::<Result<_, _>>()?)
        }
        _ => {
            return Err("expected exponential, constant, arithmetic, fibonacci, or a list of \
                        delays like 1s,5s,30s"
                .to_owned());
        }
    })
}

fn jitter(text: &str) -> Result<Jitter, String> {
    Ok(match text {
        "none" => Jitter::None,
        "full" => Jitter::Full,
        "half" => Jitter::Half,
        "equal" => Jitter::Equal,
        "decorrelated" => Jitter::Decorrelated,
        _ => match text.parse::<f64>() {
            Ok(share) if (0.0..=1.0).contains(&share) => Jitter::Proportional(share),
            _ => {
                return Err("expected none, full, half, equal, decorrelated, or a share from 0 \
                            to 1"
                    .to_owned());
            }
        },
    })
}

/// A number of bytes: 4096, 64KiB, 1MiB, 2GiB.
fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit {
        "" | "B" => Some(0),
        "K" | "KiB" => Some(10),
        "M" | "MiB" => Some(20),
        "G" | "GiB" => Some(30),
        _ => None,
    };
    let bytes = number
        .parse::<u64>()
        .ok()
        .zip(shift)
        .and_then(|(number, shift)| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| "expected a number of bytes like 4096, 64KiB or 1GiB".to_owned())
}

/// The name of a budget, which is also the name of its file.
fn budget_name(text: &str) -> Result<String, String> {
    const NAME_MAX: usize = 64;
    let valid = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if text.is_empty() || text.len() > NAME_MAX || text.starts_with('.') || !text.chars().all(valid)
    {
        return Err(format!(
            "expected up to {NAME_MAX} letters, digits, dots, dashes and underscores, and no dot \
             at the start"
        ));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_argument_bytes_have_binary_units() {
        assert_eq!(bytes("0"), Ok(0));
        assert_eq!(bytes("64KiB"), Ok(65_536));
        assert_eq!(bytes("2G"), Ok(2 << 30));
        for wrong in ["", "KiB", "1.5M", "1TB", "-1", "99999999999999G"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn run_argument_time_is_above_zero() {
        assert_eq!(time("1ms"), Ok(Duration::from_millis(1)));
        assert!(time("0s").unwrap_err().contains("leave the option out"));
        assert!(time("5").unwrap_err().contains("is not a duration"));
    }

    #[test]
    fn run_argument_budget_name_is_a_plain_file_name() {
        assert_eq!(budget_name("deploy-1.a_b"), Ok("deploy-1.a_b".to_owned()));
        let longest = "n".repeat(64);
        assert_eq!(budget_name(&longest), Ok(longest.clone()));
        for wrong in ["", ".", "..", ".x", "a/b", "a b", &format!("{longest}n")] {
            assert!(budget_name(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn run_argument_backoff_is_a_kind_or_a_list() {
        let list = vec![Duration::from_secs(1), Duration::from_millis(2500)];
        assert_eq!(backoff("1s,2.5s"), Ok(BackoffKind::Table(list)));
        assert_eq!(backoff("fibonacci"), Ok(BackoffKind::Fibonacci));
        assert!(backoff("1s,").is_err() && backoff("linear").is_err() && backoff("5").is_err());
    }
}
