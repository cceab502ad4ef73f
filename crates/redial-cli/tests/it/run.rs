//! Goal: `redial run` retries real commands, ends them in time and reports the right exit code.
//! Method: the binary runs small shell programs. Times are real; tolerances are generous, since the
//! machine may be busy.
#![cfg(unix)]

mod budget;
mod process;
mod signals;
mod streams;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A folder of its own for each test, and the commands that run in it.
pub(crate) struct TestFolder(tempfile::TempDir);

/// What a run left behind.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) took: Duration,
}

impl TestFolder {
    pub(crate) fn new() -> Self {
        TestFolder(tempfile::tempdir().expect("the temporary folder can be written"))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.file(name)).unwrap_or_default()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.file(name), text).expect("the folder can be written");
    }

    /// `redial run` with short delays and without input, in this folder.
    pub(crate) fn command(&self, options: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_redial"));
        command.arg("run").args(["--first", "5ms"]).args(options);
        command.current_dir(self.path()).env("XDG_STATE_HOME", self.path()).stdin(Stdio::null());
        command
    }

    /// Runs a shell program.
    pub(crate) fn run(&self, options: &[&str], program: &str) -> Ran {
        let mut command = self.command(options);
        command.args(["--", "sh", "-c", program]);
        ran(&mut command)
    }
}

pub(crate) fn ran(command: &mut Command) -> Ran {
    let begin = Instant::now();
    let Output { status, stdout, stderr } = command.output().expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("it is text");
    Ran { code: status.code(), out: text(stdout), err: text(stderr), took: begin.elapsed() }
}

/// A program that fails this often and then succeeds; it counts its runs in the file `count`.
pub(crate) fn fails(times: u32, code: u8) -> String {
    format!(
        "n=$(cat count 2>/dev/null || echo 0); n=$((n + 1)); echo $n > count; \
         echo \"out $n\"; [ $n -gt {times} ] || exit {code}"
    )
}

#[test]
fn run_success_at_first_attempt_prints_nothing_else() {
    let folder = TestFolder::new();
    let ran = folder.run(&[], "echo fine; echo note >&2");
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (Some(0), "fine\n", "note\n"));
}

#[test]
fn run_retries_until_the_command_works() {
    let folder = TestFolder::new();
    let ran = folder.run(&["--attempts", "5"], &fails(2, 7));
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "out 3\n"), "{ran:?}");
    assert_eq!(ran.err, "out 1\nout 2\n", "the output of failed attempts is not lost");
    assert_eq!(folder.read("count"), "3\n");
}

#[test]
fn run_command_finds_the_number_of_the_attempt() {
    let folder = TestFolder::new();
    let ran = folder.run(&["-n", "3", "--stdout", "live"], "echo $REDIAL_ATTEMPT; exit 1");
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), "1\n2\n3\n"), "{ran:?}");
}

#[test]
fn run_exit_code_is_that_of_the_last_attempt() {
    let folder = TestFolder::new();
    let ran = folder.run(&["--attempts", "2"], &fails(9, 7));
    assert_eq!((ran.code, ran.out.as_str()), (Some(7), "out 2\n"), "{ran:?}");
    assert!(ran.err.contains("redial: gave up after 2 attempts in "), "{ran:?}");
    assert!(ran.err.ends_with(": exit code 7 (no attempt left)\n"), "{ran:?}");
    let quiet = folder.run(&["--attempts", "1", "--quiet"], "exit 3");
    assert_eq!((quiet.code, quiet.err.as_str()), (Some(3), ""));
}

#[test]
fn run_signal_is_128_and_its_number() {
    let folder = TestFolder::new();
    let ran = folder.run(&["--attempts", "2"], "kill -9 $$");
    assert_eq!(ran.code, Some(137), "{ran:?}");
    assert!(ran.err.contains("gave up after 2 attempts"), "{ran:?}");
    assert!(ran.err.contains("ended by SIGKILL"), "{ran:?}");
}

#[test]
fn run_missing_command_is_127_and_not_retried() {
    let folder = TestFolder::new();
    let ran = super::run::ran(folder.command(&[]).arg("redial-no-such-command"));
    assert_eq!(ran.code, Some(127));
    assert_eq!(ran.err, "redial: redial-no-such-command: command not found\n");
    folder.write("plain", "not a program\n");
    let ran = super::run::ran(folder.command(&[]).arg(folder.file("plain")));
    assert_eq!(ran.code, Some(126), "{ran:?}");
    assert!(ran.err.contains("cannot be executed: "), "{ran:?}");
    // A program that is there, and what runs it is not.
    folder.write("script", "#!/no/such/interpreter\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.file("script"), mode).expect("it is there");
    let ran = super::run::ran(folder.command(&[]).arg("./script"));
    assert_eq!(ran.code, Some(126), "{ran:?}");
    assert!(ran.err.contains("./script cannot be executed: the interpreter"), "{ran:?}");
    // A shell that finds no command has the same code: it is not found the next time either.
    let ran = folder.run(&[], "echo x >> count; exit 127");
    assert_eq!((ran.code, folder.read("count").as_str()), (Some(127), "x\n"));
}

#[test]
fn run_wrong_usage_is_125() {
    let folder = TestFolder::new();
    for wrong in [
        &["--attempts", "0", "--", "true"][..],
        &["--no-such-option", "true"],
        &["--backoff", "constant", "--factor", "2", "--", "true"],
        &["--policy", "missing.json", "--", "true"],
        &["--retry-on", "SIGWHAT", "--", "true"],
        &["--until", "(", "--", "true"],
        &["--budget", "a/b", "--", "true"],
        &["--timeout", "0s", "--", "true"],
        &["--deadline", "0s", "--", "true"],
        &[],
    ] {
        let ran = super::run::ran(&mut folder.command(wrong));
        assert_eq!(ran.code, Some(125), "{wrong:?}: {ran:?}");
        assert!(!ran.err.is_empty() && ran.out.is_empty(), "{wrong:?}: {ran:?}");
    }
    let help = super::run::ran(&mut folder.command(&["--help"]));
    assert_eq!((help.code, help.err.as_str()), (Some(0), ""));
    assert!(help.out.contains("124"), "the exit codes are in the help: {}", help.out);
}

#[test]
fn run_retry_on_limits_what_is_retried() {
    let folder = TestFolder::new();
    let runs = |options: &[&str], program: &str| {
        folder.write("count", "");
        let ran = folder.run(options, &format!("echo x >> count; {program}"));
        (ran.code, folder.read("count").lines().count())
    };
    assert_eq!(runs(&["-n", "3", "--retry-on", "5-7"], "exit 7"), (Some(7), 3));
    assert_eq!(runs(&["-n", "3", "--retry-on", "5-7"], "exit 8"), (Some(8), 1));
    assert_eq!(runs(&["-n", "3", "--retry-on", "5-7"], "kill -15 $$"), (Some(143), 1));
    assert_eq!(runs(&["-n", "3", "--retry-on", "SIGTERM"], "kill -15 $$"), (Some(143), 3));
    assert_eq!(runs(&["-n", "3", "--stop-on", "9,signal"], "exit 9"), (Some(9), 1));
    assert_eq!(runs(&["-n", "3", "--stop-on", "9,signal"], "kill -15 $$"), (Some(143), 1));
    assert_eq!(runs(&["-n", "3", "--success-on", "0,4"], "exit 4"), (Some(4), 1));
    assert_eq!(runs(&["-n", "3", "--retry-on", "127"], "exit 127"), (Some(127), 3));
}

#[test]
fn run_output_patterns_decide() {
    let folder = TestFolder::new();
    let until = folder.run(&["-n", "5", "--until", "^state: ready$"], &{
        "n=$(cat count 2>/dev/null || echo 0); n=$((n + 1)); echo $n > count; \
         [ $n -lt 3 ] && echo 'state: pending' || echo 'state: ready'"
            .to_owned()
    });
    assert_eq!((until.code, until.out.as_str()), (Some(0), "state: ready\n"), "{until:?}");
    assert_eq!(folder.read("count"), "3\n");
    let never = folder.run(&["-n", "2", "--until", "ready"], "echo pending");
    assert_eq!((never.code, never.out.as_str()), (Some(1), "pending\n"), "{never:?}");
    assert!(never.err.contains("exit code 0, without the awaited output"), "{never:?}");
    let retry = folder.run(&["-n", "2", "--retry-on-output", "busy"], "echo busy >&2; exit 0");
    assert_eq!(retry.code, Some(1), "{retry:?}");
    let why = "exit code 0, and its output matches --retry-on-output (no attempt left)";
    assert!(retry.err.contains("gave up after 2 attempts") && retry.err.contains(why), "{retry:?}");
    let stop = folder.run(&["-n", "3", "--stop-on-output", "denied"], "echo denied; exit 6");
    assert_eq!(stop.code, Some(6), "{stop:?}");
    let why = "exit code 6, and its output matches --stop-on-output\n";
    assert!(stop.err.contains("gave up after 1 attempt ") && stop.err.ends_with(why), "{stop:?}");
    let other = folder.run(&["-n", "1", "--success-on", "3"], "exit 0");
    assert_eq!(other.code, Some(1), "{other:?}");
    assert!(other.err.contains("exit code 0, which is not in --success-on"), "{other:?}");
}

#[test]
fn run_policy_file_is_used_and_options_override_it() {
    let folder = TestFolder::new();
    folder.write("p.json", r#"{ "attempts": 2, "backoff": { "constant": "5ms" } }"#);
    folder.write("p.toml", "attempts = 2\nbackoff.constant = \"5ms\"\n");
    for file in ["p.json", "p.toml"] {
        let ran = folder.run(&["--policy", file], "exit 9");
        assert!(ran.err.contains("gave up after 2 attempts"), "{ran:?}");
        let ran = folder.run(&["--policy", file, "--attempts", "4"], "exit 9");
        assert!(ran.err.contains("gave up after 4 attempts"), "{ran:?}");
    }
    folder.write("hedged.json", r#"{ "hedge": { "delay": "20ms" } }"#);
    let ran = folder.run(&["--policy", "hedged.json"], "exit 9");
    assert_eq!(ran.code, Some(125), "{ran:?}");
    folder.write("wrong.json", "{ \"attempts\":\n 0 }");
    let ran = folder.run(&["--policy", "wrong.json"], "exit 9");
    assert_eq!(ran.code, Some(125));
    assert!(ran.err.contains("wrong.json: attempts: 0 would never try"), "{ran:?}");
}

#[test]
fn run_seed_repeats_the_delays() {
    let folder = TestFolder::new();
    let delays = |seed: &str| {
        let ran = folder.run(&["-n", "4", "--seed", seed, "--explain"], "exit 1");
        let lines = ran.err.lines().filter_map(|line| line.split("retry scheduled in ").nth(1));
        lines.map(|text| text.split(' ').next().unwrap_or("").to_owned()).collect::<Vec<_>>()
    };
    let first = delays("7");
    assert_eq!(first.len(), 3);
    assert_eq!(first, delays("7"));
    assert_ne!(first, delays("8"));
}

#[test]
fn run_json_report_has_each_attempt() {
    let folder = TestFolder::new();
    let ran = folder.run(&["-n", "2", "--json"], &fails(9, 7));
    let line = ran.err.lines().last().expect("there is a report");
    let report: serde_json::Value = serde_json::from_str(line).expect("it is JSON");
    assert_eq!(report["exit_code"], 7);
    assert_eq!((&report["stop_reason"], &report["succeeded"]), (&"attempts".into(), &false.into()));
    assert_eq!(report["attempts"].as_array().map(Vec::len), Some(2));
    assert_eq!(
        (&report["attempts"][1]["exit_code"], &report["attempts"][1]["signal"]),
        (&7.into(), &serde_json::Value::Null)
    );
    assert_eq!(report["command"][0], "sh");
}

#[test]
fn run_deadline_is_explained_from_the_start_of_the_call() {
    let folder = TestFolder::new();
    let options = ["--explain", "--deadline", "30s", "--log", "log.jsonl", "-n", "1"];
    let ran = folder.run(&options, "exit 9");
    assert!(ran.err.contains("call started (idempotent), deadline at 30s\n"), "{ran:?}");
    folder.write("other.json", r#"{ "attempts": 1, "deadline": "20s" }"#);
    let mut replay = Command::new(env!("CARGO_BIN_EXE_redial"));
    replay.args(["replay", "log.jsonl", "--policy", "other.json"]).current_dir(folder.path());
    let replayed = super::run::ran(&mut replay);
    let (recorded, other) = ("deadline at 30s\" at 0ns", "deadline at 20s\" at 0ns");
    assert!(replayed.out.contains(recorded) && replayed.out.contains(other), "{replayed:?}");
}

#[test]
fn run_unwritable_log_is_reported_before_the_command_runs() {
    let folder = TestFolder::new();
    for path in ["no/such/folder/log.jsonl", "."] {
        let ran = folder.run(&["--log", path], "touch ran");
        assert_eq!(ran.code, Some(125), "{ran:?}");
        assert!(ran.err.contains(" cannot be written: "), "{ran:?}");
        assert!(!folder.file("ran").exists(), "{path}");
    }
}

#[test]
fn run_log_replays_to_the_same_decisions() {
    let folder = TestFolder::new();
    let ran = folder.run(&["-n", "3", "--log", "log.jsonl", "--jitter", "none"], &fails(1, 7));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let log =
        redial::CallLog::from_json_lines(&folder.read("log.jsonl")).expect("it is a call log");
    let policy = redial::Policy::exponential(redial::ms(5))
        .cap(redial::s(60))
        .jitter(redial::Jitter::None)
        .attempts(3)
        .try_build()
        .unwrap();
    log.replay(&policy).expect("the same decisions");
    assert!(log.to_string().contains("exit code 7"), "{log}");
}
