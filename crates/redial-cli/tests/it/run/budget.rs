//! Retry budgets that processes share.

use std::process::{Command, Stdio};

use super::TestFolder;

const BUDGET: [&str; 6] = ["--budget", "db", "--budget-reserve", "4", "--budget-per-second", "0"];

fn with(options: &[&'static str]) -> Vec<&'static str> {
    BUDGET.iter().chain(options).copied().collect()
}

#[test]
fn run_budget_is_shared_by_processes_one_after_the_other() {
    let folder = TestFolder::new();
    let attempts = |program: &str| {
        folder.write("count", "");
        let ran = folder.run(&with(&["-n", "3"]), &format!("echo x >> count; {program}"));
        (ran.code, folder.read("count").lines().count(), ran.err)
    };
    assert_eq!(attempts("exit 5").1, 3);
    assert_eq!(attempts("exit 5").1, 3);
    let (code, count, err) = attempts("exit 5");
    assert_eq!((code, count), (Some(5), 1), "the budget is spent");
    assert!(err.contains("the retry budget is spent"), "{err}");
    // Ten successes add a token.
    for _ in 0..10 {
        assert_eq!(attempts("exit 0").0, Some(0));
    }
    assert_eq!(attempts("exit 5").1, 2);
}

#[test]
fn run_budget_bounds_processes_that_run_at_once() {
    let folder = TestFolder::new();
    let children: Vec<_> = (0..6)
        .map(|_| {
            let mut command = folder.command(&with(&["-n", "5"]));
            command.args(["--", "sh", "-c", "echo x >> count; exit 5"]);
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs")
        })
        .collect();
    for mut child in children {
        assert_eq!(child.wait().expect("it ends").code(), Some(5));
    }
    assert_eq!(folder.read("count").lines().count(), 6 + 4, "six first attempts, four retries");
}

#[test]
fn run_budget_survives_a_killed_process() {
    let folder = TestFolder::new();
    let mut command = folder.command(&with(&["-n", "50", "--first", "1ms"]));
    command.args(["--", "sh", "-c", "touch ran; exit 5"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
    let begin = std::time::Instant::now();
    while !folder.file("ran").exists() {
        assert!(begin.elapsed().as_secs() < 60, "it never ran");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    child.kill().expect("it can be killed");
    child.wait().expect("it ends");
    let ran = folder.run(&with(&["-n", "2"]), "exit 0");
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[test]
fn run_budget_needs_a_folder() {
    let folder = TestFolder::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_redial"));
    command.args(["run", "--budget", "db", "true"]).env_clear().stdin(Stdio::null());
    let ran = super::ran(command.current_dir(folder.path()));
    assert_eq!(ran.code, Some(125));
    assert!(ran.err.contains("set HOME, XDG_STATE_HOME or XDG_RUNTIME_DIR"), "{ran:?}");
    // Reading from a pipe would wait without end.
    let budgets = folder.path().join("redial").join("budgets");
    std::fs::create_dir_all(&budgets).expect("the folder can be written");
    let made = Command::new("mkfifo").arg(budgets.join("pipe")).status();
    assert!(made.expect("it runs").success());
    let ran = folder.run(&["--budget", "pipe"], "exit 0");
    assert_eq!(ran.code, Some(125), "{ran:?}");
    assert!(
        ran.err.contains("budgets cannot be used: ") && ran.err.contains("is no file"),
        "{ran:?}"
    );
}

#[test]
fn run_budget_is_shared_by_session_and_cron() {
    let folder = TestFolder::new();
    let session = TestFolder::new();
    let attempts = |runtime: Option<&std::path::Path>| {
        folder.write("count", "");
        let mut command = folder.command(&with(&["-n", "5"]));
        command.args(["--", "sh", "-c", "echo x >> count; exit 5"]);
        command.env_remove("XDG_STATE_HOME").env_remove("XDG_RUNTIME_DIR");
        command.env("HOME", folder.path());
        if let Some(path) = runtime {
            command.env("XDG_RUNTIME_DIR", path);
        }
        assert_eq!(super::ran(&mut command).code, Some(5));
        folder.read("count").lines().count()
    };
    assert_eq!(attempts(Some(session.path())), 5);
    assert_eq!(attempts(None), 1, "the session has spent it");
    assert!(folder.file(".local/state/redial/budgets/db").exists());
}

#[test]
fn run_budget_without_a_home_is_that_of_the_session() {
    let folder = TestFolder::new();
    let mut command = folder.command(&with(&[]));
    command.env_remove("XDG_STATE_HOME").env_remove("HOME").env("XDG_RUNTIME_DIR", folder.path());
    let ran = super::ran(command.args(["--", "true"]));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(folder.file("redial/budgets/db").exists());
}

#[test]
fn run_budget_is_whole_whenever_a_process_is_killed() {
    let folder = TestFolder::new();
    let spent = ["--budget", "db", "--budget-reserve", "1", "--budget-per-second", "0"];
    let run = |options: &[&str]| {
        let mut command = folder.command(&spent);
        command.args(options).args(["--", "false"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    // The only token is taken.
    assert_eq!(super::ran(&mut run(&["-n", "2"])).code, Some(1));
    for delay in 0..40 {
        let mut child = run(&["-n", "2"]).spawn().expect("it runs");
        std::thread::sleep(std::time::Duration::from_micros(delay * 250));
        child.kill().expect("it can be killed");
        child.wait().expect("it ends");
        let text = folder.read("redial/budgets/db");
        let record: serde_json::Value = serde_json::from_str(&text).expect("it is whole");
        assert_eq!(record["tokens"], 0.0, "{text}");
    }
}
