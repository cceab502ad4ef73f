//! Signals: passed on to the command, and the end of the run.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::process::{LONG, eventually, runs};
use super::{TestFolder, ran};

fn send(signal: &str, child: &Child) {
    let pid = child.id().to_string();
    let sent = Command::new("kill").args([&format!("-{signal}"), &pid]).status();
    assert!(sent.expect("kill runs").success());
}

/// Waits for the end, or fails.
fn ends(child: &mut Child) -> ExitStatus {
    let mut status = None;
    eventually("the run ends", || {
        status = child.try_wait().expect("it can be waited for");
        status.is_some()
    });
    status.expect("it has ended")
}

/// Whether this process ignores the signal, and so does what it starts: a runner in the background.
fn is_ignored(number: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.unwrap_or(0) & 1 << (number - 1) != 0
}

/// The signals that ask a run to end, with their numbers.
fn ending() -> impl Iterator<Item = (&'static str, i32)> {
    let all = [("HUP", 1), ("INT", 2), ("QUIT", 3), ("TERM", 15)];
    all.into_iter().filter(|(_, number)| !is_ignored(*number))
}

/// The state of a process as one letter.
fn state(pid: &str) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

#[test]
fn run_ending_signals_are_passed_on() {
    for (signal, _) in ending() {
        let folder = TestFolder::new();
        let program = format!(
            "trap 'echo {signal} >> log; exit 42' {signal}; echo $$ > pid; \
             while :; do sleep 0.02; done"
        );
        let mut command = folder.command(&["-n", "5", "--json"]);
        let mut child = command
            .args(["--", "sh", "-c", &program])
            .stderr(Stdio::piped())
            .spawn()
            .expect("it runs");
        eventually("the command runs", || folder.read("pid").ends_with('\n'));
        send(signal, &child);
        let code = ends(&mut child).code();
        let err = child.wait_with_output().expect("it has ended").stderr;
        // The shell also says which signal has ended its `sleep`.
        let err = String::from_utf8_lossy(&err).into_owned();
        let line = err.lines().last().expect("there is a report");
        let report: serde_json::Value = serde_json::from_str(line).expect("it is JSON");
        assert_eq!((code, folder.read("log")), (Some(42), format!("{signal}\n")), "{report}");
        assert_eq!(report["because"], format!("stopped by SIG{signal}"));
    }
}

#[test]
fn run_ending_signals_end_a_command_without_handlers() {
    for (signal, number) in ending() {
        let folder = TestFolder::new();
        let mut command = folder.command(&["-n", "5"]);
        let program = "ulimit -c 0; echo $$ > pid; exec sleep 100";
        let mut child = command.args(["--", "sh", "-c", program]).spawn().expect("it runs");
        eventually("the command runs", || folder.read("pid").ends_with('\n'));
        send(signal, &child);
        assert_eq!(ends(&mut child).code(), Some(128 + number), "{signal}");
        assert!(!runs(&folder.read("pid")), "{signal}");
    }
}

#[test]
fn run_user_signals_are_passed_on_and_do_not_end() {
    let folder = TestFolder::new();
    let program = "trap 'echo usr1 >> log' USR1; trap 'echo usr2 >> log; exit 0' USR2; \
                   echo $$ > pid; while :; do sleep 0.02; done";
    let mut command = folder.command(&[]);
    let mut child = command.args(["--", "sh", "-c", program]).spawn().expect("it runs");
    eventually("the command runs", || folder.read("pid").ends_with('\n'));
    send("USR1", &child);
    eventually("the first one has arrived", || folder.read("log") == "usr1\n");
    send("USR2", &child);
    assert_eq!(ends(&mut child).code(), Some(0));
    assert_eq!(folder.read("log"), "usr1\nusr2\n");
}

#[cfg(target_os = "linux")]
#[test]
fn run_stop_and_continue_reach_the_command() {
    let folder = TestFolder::new();
    let program = "echo $$ > pid; until [ -e go ]; do sleep 0.02; done";
    let mut command = folder.command(&[]);
    let mut child = command.args(["--", "sh", "-c", program]).spawn().expect("it runs");
    eventually("the command runs", || folder.read("pid").ends_with('\n'));
    let (own, pid) = (child.id().to_string(), folder.read("pid"));
    send("TSTP", &child);
    let is_stopped = || state(&own) == Some('T') && state(&pid) == Some('T');
    eventually("both are stopped", is_stopped);
    send("CONT", &child);
    eventually("both continue", || state(&own) != Some('T') && state(&pid) != Some('T'));
    folder.write("go", "");
    assert_eq!(ends(&mut child).code(), Some(0));
}

#[test]
fn run_foreground_timeout_ends_the_command_alone() {
    let folder = TestFolder::new();
    let program = "sleep 100 >/dev/null 2>&1 & echo $! >> others; echo $$ >> pids; wait";
    let options = ["-n", "2", "--foreground", "--timeout", "1s"];
    let mut command = folder.command(&options);
    let ran = ran(command.args(["--", "sh", "-c", program]));
    assert_eq!(ran.code, Some(124), "{ran:?}");
    assert!(ran.err.contains("gave up after 2 attempts"), "{ran:?}");
    let (others, pids) = (folder.read("others"), folder.read("pids"));
    assert_eq!((others.lines().count(), pids.lines().count()), (2, 2));
    assert!(others.lines().all(runs) && !pids.lines().any(runs), "{others} {pids}");
    let killed = Command::new("kill").args(others.lines()).status().expect("kill runs");
    assert!(killed.success());
}

#[test]
fn run_foreground_signal_ends_the_command() {
    let folder = TestFolder::new();
    let mut command = folder.command(&["-n", "5", "--foreground"]);
    let program = "echo $$ > pid; exec sleep 100";
    let mut child = command.args(["--", "sh", "-c", program]).spawn().expect("it runs");
    eventually("the command runs", || folder.read("pid").ends_with('\n'));
    send("TERM", &child);
    assert_eq!(ends(&mut child).code(), Some(143));
    assert!(!runs(&folder.read("pid")));
}

#[test]
fn run_signal_ends_the_wait_for_output() {
    let folder = TestFolder::new();
    let program = "setsid sh -c 'echo $$ > pid; exec sleep 100' & \
                   until [ -e pid ]; do sleep 0.02; done";
    let mut command = folder.command(&["--kill-after", "300ms"]);
    let mut child = command
        .args(["--", "sh", "-c", program])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    eventually("the command runs", || folder.read("pid").ends_with('\n'));
    // The command ends soon. A signal before that ends it, with the same end.
    std::thread::sleep(Duration::from_millis(300));
    send("TERM", &child);
    assert_eq!(ends(&mut child).code(), Some(143));
    let killed = Command::new("kill").arg(folder.read("pid").trim()).status();
    assert!(killed.expect("kill runs").success(), "it had left the group");
}

#[test]
fn run_signal_ends_the_wait_for_a_slow_reader() {
    // Standard error is not read between two attempts, standard output not at the end.
    for attempts in ["2", "1"] {
        let folder = TestFolder::new();
        let mut command = folder.command(&["-n", attempts]);
        let program = "head -c 1000000 /dev/zero; touch ran; exit 1";
        let mut child = command
            .args(["--", "sh", "-c", program])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it runs");
        eventually("the command ran", || folder.file("ran").exists());
        std::thread::sleep(Duration::from_millis(500));
        assert!(child.try_wait().expect("it can be waited for").is_none(), "it waits");
        let begin = Instant::now();
        send("TERM", &child);
        assert_eq!(ends(&mut child).code(), Some(143));
        assert!(begin.elapsed() < LONG / 2);
    }
}

#[test]
fn run_signal_while_a_group_is_ended_is_the_last() {
    let folder = TestFolder::new();
    // The process in the background ends later, and its output is not that of the command.
    let program = "echo x >> count; \
                   (trap '' TERM; until [ -e go ]; do sleep 0.02; done) >/dev/null 2>&1 & exit 0";
    let options = ["-n", "3", "--until", "never", "--kill-after", "50s"];
    let mut command = folder.command(&options);
    let mut child =
        command.args(["--", "sh", "-c", program]).stderr(Stdio::piped()).spawn().expect("it runs");
    eventually("the command ran", || folder.read("count") == "x\n");
    std::thread::sleep(Duration::from_millis(500));
    send("TERM", &child);
    std::thread::sleep(Duration::from_millis(300));
    folder.write("go", "");
    assert_eq!(ends(&mut child).code(), Some(1));
    let err = child.wait_with_output().expect("it has ended").stderr;
    let err = String::from_utf8_lossy(&err);
    assert!(err.contains("after 1 attempt ") && err.contains("(stopped by SIGTERM)"), "{err}");
    assert_eq!(folder.read("count"), "x\n");
}

#[cfg(target_os = "linux")]
#[test]
fn run_adopted_processes_leave_no_zombies() {
    let folder = TestFolder::new();
    // Each of them leaves the group, loses its parent, and ends.
    let program = "for n in 1 2 3; do (setsid sh -c 'echo $$ >> pids' &); done; \
                   until [ -e go ]; do sleep 0.02; done; exit 7";
    let mut command = folder.command(&["-n", "1", "--stdout", "live"]);
    let mut child = command.args(["--", "sh", "-c", program]).spawn().expect("it runs");
    eventually("they ran", || folder.read("pids").lines().count() == 3);
    let pids = folder.read("pids");
    eventually("they were waited for", || pids.lines().all(|pid| state(pid).is_none()));
    folder.write("go", "");
    let status = ends(&mut child);
    assert_eq!((status.code(), status.signal()), (Some(7), None), "its own code is known");
}
