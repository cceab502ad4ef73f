//! Timeouts, deadlines, signals and process groups.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{TestFolder, ran};

/// Longer than any of these tests may take.
pub(super) const LONG: Duration = Duration::from_secs(60);

/// Whether a process of this number runs. One that has ended and was not waited for does not.
pub(super) fn runs(pid: &str) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())) else {
        return false;
    };
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    !matches!(state, Some('Z' | 'X') | None)
}

pub(super) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < LONG, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn run_timeout_ends_the_whole_process_group() {
    let folder = TestFolder::new();
    let ran = folder
        .run(&["-n", "2", "--timeout", "1s"], "sleep 100 & echo $! >> pids; echo $$ >> pids; wait");
    assert_eq!(ran.code, Some(124), "{ran:?}");
    assert!(ran.err.contains("gave up after 2 attempts"), "{ran:?}");
    assert!(ran.err.contains("timed out"), "{ran:?}");
    assert!(ran.took >= Duration::from_millis(2000) && ran.took < LONG, "{ran:?}");
    let pids = folder.read("pids");
    assert_eq!(pids.lines().count(), 4);
    assert!(!pids.lines().any(runs), "a process is left");
}

#[test]
fn run_stubborn_command_is_killed_after_the_grace() {
    let folder = TestFolder::new();
    let ran = folder.run(
        &["-n", "1", "--timeout", "1s", "--kill-after", "300ms"],
        "trap '' TERM; echo $$ > pid; while :; do sleep 0.05; done",
    );
    assert_eq!(ran.code, Some(124), "{ran:?}");
    assert!(ran.took >= Duration::from_millis(1300) && ran.took < LONG, "{ran:?}");
    assert!(!runs(&folder.read("pid")), "it is left");
}

#[test]
fn run_next_attempt_waits_until_the_last_one_has_ended() {
    let folder = TestFolder::new();
    let program = "trap 'sleep 0.3; echo end >> log; exit 0' TERM; echo begin >> log; \
                   while :; do sleep 0.02; done";
    let ran = folder.run(&["-n", "2", "--timeout", "1s", "--jitter", "none"], program);
    assert_eq!(ran.code, Some(124), "{ran:?}");
    assert_eq!(folder.read("log"), "begin\nend\nbegin\nend\n");
}

#[test]
fn run_timeout_then_success_is_success() {
    let folder = TestFolder::new();
    let program = "if [ -e once ]; then echo done; else touch once; echo part; sleep 100; fi";
    let ran = folder.run(&["-n", "3", "--timeout", "2s"], program);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "done\n"), "{ran:?}");
    assert_eq!(ran.err, "part\n", "the output of the attempt that timed out is not lost");
}

#[test]
fn run_deadline_ends_the_running_attempt() {
    let folder = TestFolder::new();
    let ran = folder
        .run(&["-n", "unlimited", "--deadline", "700ms"], "echo $$ >> pids; sleep 0.2; exit 1");
    assert_eq!(ran.code, Some(124), "{ran:?}");
    assert!(ran.took < LONG, "{ran:?}");
    let pids = folder.read("pids");
    assert!(pids.lines().count() >= 1 && !pids.lines().any(runs), "{pids}");
    let ran = folder.run(&["--deadline", "300ms"], "sleep 100");
    assert_eq!(ran.code, Some(124), "{ran:?}");
}

#[test]
fn run_deadline_stops_before_a_delay_that_is_too_long() {
    let folder = TestFolder::new();
    let begin = Instant::now();
    let mut command = Command::new(env!("CARGO_BIN_EXE_redial"));
    command.args(["run", "--first", "1h", "--jitter", "none", "--deadline", "30m", "false"]);
    let ran = ran(command.stdin(Stdio::null()).current_dir(folder.path()));
    assert_eq!(ran.code, Some(124), "{ran:?}");
    assert!(ran.err.contains("exit code 1 (no time left before the deadline)"), "{ran:?}");
    assert!(begin.elapsed() < LONG, "it slept");
}

#[test]
fn run_failed_command_leaves_no_process_behind() {
    let folder = TestFolder::new();
    // The output of the process in the background is not that of the command.
    let program = "sleep 100 >/dev/null 2>&1 & echo $! >> pids; exit 3";
    let ran = folder.run(&["-n", "2"], program);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let pids = folder.read("pids");
    assert_eq!(pids.lines().count(), 2);
    assert!(!pids.lines().any(runs), "a process is left");
}

#[test]
fn run_successful_command_may_leave_a_daemon() {
    let folder = TestFolder::new();
    let ran = folder.run(&[], "sleep 100 >/dev/null 2>&1 & echo $! > pid");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let pid = folder.read("pid");
    assert!(runs(&pid), "the daemon was ended");
    let kill = Command::new("kill").arg(pid.trim()).status().expect("kill runs");
    assert!(kill.success());
}

#[test]
fn run_passes_signals_on_and_stops_retrying() {
    let folder = TestFolder::new();
    let program =
        "trap 'echo got >> log; exit 42' TERM; echo $$ > pid; while :; do sleep 0.02; done";
    let mut child = folder.command(&["-n", "5"]).args(["--", "sh", "-c", program]).spawn().unwrap();
    eventually("the command runs", || folder.read("pid").ends_with('\n'));
    // Twice is no harm: the first one ends it.
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let status = child.wait().unwrap();
    assert_eq!((status.code(), folder.read("log").as_str()), (Some(42), "got\n"));
    assert!(!runs(&folder.read("pid")));
}

#[test]
fn run_passes_user_signals_on_and_continues() {
    let folder = TestFolder::new();
    let program = "trap 'echo usr1; exit 0' USR1; echo $$ > pid; while :; do sleep 0.02; done";
    let child =
        folder.command(&[]).args(["--", "sh", "-c", program]).stdout(Stdio::piped()).spawn();
    let child = child.unwrap();
    eventually("the command runs", || folder.read("pid").ends_with('\n'));
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-USR1", &pid]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"usr1\n"[..]));
}

#[test]
fn run_signal_between_attempts_is_128_and_its_number() {
    let folder = TestFolder::new();
    let options = ["--first", "1h", "--jitter", "none", "--log", "log.jsonl", "--json"];
    let mut command = folder.command(&options);
    // `--first` is given twice; the last one counts.
    let child = command
        .args(["--", "sh", "-c", "touch ran; exit 1"])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    eventually("the command ran", || folder.file("ran").exists());
    // The attempt may still be ending: then the signal arrives before the delay, with the same end.
    std::thread::sleep(Duration::from_millis(300));
    let pid = child.id().to_string();
    // Not SIGINT, which a shell ignores for commands in the background.
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(143));
    assert!(folder.read("log.jsonl").contains("\"cancelled\""), "{}", folder.read("log.jsonl"));
    // The attempt before the delay is reported.
    let report: serde_json::Value = serde_json::from_slice(&ended.stderr).expect("it is JSON");
    let attempts = report["attempts"].as_array().expect("a list");
    assert_eq!((attempts.len(), attempts[0]["exit_code"].as_i64()), (1, Some(1)), "{report}");
    assert_eq!(report["because"], "stopped by SIGTERM");
}

#[cfg(target_os = "linux")]
#[test]
fn run_ignored_signals_stay_ignored() {
    let folder = TestFolder::new();
    let redial = env!("CARGO_BIN_EXE_redial");
    let program = "touch started; until [ -e go ]; do sleep 0.02; done; echo fine";
    let script = format!("trap '' HUP INT; exec {redial} run --first 5ms -- sh -c '{program}'");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(folder.path()).stdin(Stdio::null());
    let child = command.stdout(Stdio::piped()).spawn().unwrap();
    eventually("the command runs", || folder.file("started").exists());
    for signal in ["-HUP", "-INT"] {
        let pid = child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }
    folder.write("go", "");
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"fine\n"[..]));
}

#[test]
fn run_stopped_command_ends_at_its_timeout() {
    let folder = TestFolder::new();
    let options = ["-n", "1", "--timeout", "300ms", "--kill-after", "50s"];
    let ran = folder.run(&options, "kill -STOP $$");
    assert_eq!(ran.code, Some(124), "{ran:?}");
    assert!(ran.took < Duration::from_secs(30), "{ran:?}");
}

#[test]
fn run_stopped_command_ends_with_a_signal() {
    let folder = TestFolder::new();
    let mut command = folder.command(&[]);
    command.args(["--", "sh", "-c", "echo $$ > pid; kill -STOP $$; sleep 100"]);
    let mut child = command.spawn().unwrap();
    let stopped = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", folder.read("pid").trim()));
        stat.is_ok_and(|stat| stat.contains(") T "))
    };
    eventually("the command is stopped", stopped);
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let mut code = None;
    eventually("the command ends", || {
        code = child.try_wait().unwrap().map(|status| status.code());
        code.is_some()
    });
    assert_eq!(code, Some(Some(143)));
}

#[test]
fn run_stop_on_output_decides_after_a_timeout() {
    let folder = TestFolder::new();
    let options = ["-n", "3", "--timeout", "500ms", "--stop-on-output", "denied"];
    let ran = folder.run(&options, "echo x >> count; echo denied; sleep 100");
    assert_eq!((ran.code, ran.out.as_str()), (Some(124), "denied\n"), "{ran:?}");
    assert!(ran.err.contains("(the output matches --stop-on-output)"), "{ran:?}");
    assert_eq!(folder.read("count"), "x\n", "{ran:?}");
}
