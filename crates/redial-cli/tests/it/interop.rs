//! Goal: the answers of a program in another language are compared with the expectations and the
//! list of known differences, and invalid programs and lists are rejected. Method: shell scripts
//! that refuse every config. `cargo xtask test interop` covers real clients.

use std::fs;
use std::path::{Path, PathBuf};

use redial_cli::scenarios::{Arguments, run};

/// Refuses every config, with one line for each request.
const REFUSES: &str = r#"while read -r line; do
  id=${line#*\"id\":}; echo "{\"id\":${id%%,*},\"refused\":\"I like none\"}"; done"#;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A temporary file with this content.
fn written(name: &str, text: &str) -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, text).expect("it can be written");
    path.display().to_string()
}

/// Runs these files with a shell script: exit code, standard output and standard error.
fn play(test: &str, script: &str, list: Option<&str>, files: &[&str]) -> (u8, String, String) {
    let script = written(&format!("{test}.sh"), script);
    let differences = list.map(|text| written(&format!("{test}.json"), text));
    let arguments = Arguments {
        with: Some(format!("sh {script}")),
        language: differences.as_ref().map(|_| "shell".to_owned()),
        differences,
        files: files.iter().map(|file| root().join(file).display().to_string()).collect(),
        ..Arguments::default()
    };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = run(&arguments, &mut out, &mut err).expect("it writes into memory");
    let text = |bytes| String::from_utf8(bytes).expect("it is text");
    (code, text(out), text(err))
}

/// A list with one known difference of this language.
fn list(rest: &str) -> String {
    format!(
        r#"{{"about": "a", "differences": [{{"what": "it refuses", "ruling": "G39", "why": "b",
            "languages": ["shell"], {rest}}}]}}"#
    )
}

const REFUSED: &[&str] = &["scenarios/grpc-refused.json"];

#[test]
fn interop_client_that_refuses_an_invalid_config_passes() {
    let (code, out, err) = play("refuses", REFUSES, None, REFUSED);
    assert_eq!((code, &*out, &*err), (0, "1 passed, 0 failed, 0 skipped\n", ""));
}

#[test]
fn interop_unlisted_difference_fails_and_listed_one_passes() {
    let files = &["interop/extra-scenarios.json"];
    let (code, out, _) = play("unlisted", REFUSES, None, files);
    assert_eq!(code, 1);
    assert!(out.contains("happened  refused: I like none"), "{out}");
    assert!(out.ends_with("0 passed, 9 failed, 0 skipped\n"), "{out}");
    let row =
        list(r#""scenarios": {"extra-scenarios.json: a pushback with a fraction": "refused"}"#);
    let (_, out, _) = play("listed", REFUSES, Some(&row), files);
    assert!(out.ends_with("1 passed, 8 failed, 0 skipped\n"), "{out}");
    let row = list(r#""configs": ["grpc-config.json: nothing at all"]"#);
    let (_, with, _) = play("config", REFUSES, Some(&row), &["scenarios/grpc-config.json"]);
    let (_, without, _) = play("configs", REFUSES, None, &["scenarios/grpc-config.json"]);
    let failed = |out: &str| out.lines().filter(|line| line.starts_with("FAILED")).count();
    assert_eq!(failed(&with) + 1, failed(&without), "{with}");
}

#[test]
fn interop_failure_is_repeated_alone_at_most_twice() {
    // Accepts the config this many times after the warm-up line, then refuses it.
    let wavers = |times: u32| {
        format!(
            r#"n=0; while read -r line; do id=${{line#*\"id\":}}; id=${{id%%,*}}; n=$((n+1))
              if [ $n -gt 1 ] && [ $n -le $((1+{times})) ]; then
                echo "{{\"id\":$id,\"calls\":[{{\"began\":0,\"ended\":1,\"outcome\":\"OK\"}}]}}"
              else echo "{{\"id\":$id,\"refused\":\"I like none\"}}"; fi; done"#
        )
    };
    let again = "played again by itself: \"a service config with a problem\"\n";
    let (code, out, err) = play("wavers", &wavers(2), None, REFUSED);
    assert_eq!((code, &*out), (0, "1 passed, 0 failed, 0 skipped\n"), "{err}");
    assert_eq!(err, again.repeat(2));
    let (code, out, err) = play("persists", &wavers(3), None, REFUSED);
    assert_eq!((code, &*err), (1, &*again.repeat(2)), "{out}");
}

#[test]
fn interop_listed_difference_that_does_not_show_fails() {
    let row =
        list(r#""scenarios": {"grpc-refused.json: a service config with a problem": "refused"}"#);
    let (code, out, _) = play("needless", REFUSES, Some(&row), REFUSED);
    assert_eq!(code, 1);
    assert!(out.contains("expected  the difference \"it refuses\""), "{out}");
    assert!(out.contains("it does not show: take it out of the list"), "{out}");
}

#[test]
fn interop_listed_difference_of_an_unknown_scenario_is_an_error() {
    for name in ["nothing", "late: early hands on the real failure"] {
        let row = list(&format!(r#""scenarios": {{"grpc-retry.json: {name}": "refused"}}"#));
        let (code, _, err) = play("unknown", REFUSES, Some(&row), &["scenarios/grpc-retry.json"]);
        assert_eq!(code, 2);
        let expected = format!("a row is about grpc-retry.json: {name}, which is not played\n");
        assert_eq!(err, expected);
    }
    let (code, _, err) = play("misspelt", REFUSES, Some(&list(r#""scenarioes": {}"#)), REFUSED);
    assert_eq!(code, 2);
    assert!(err.contains("unknown field `scenarioes`"), "{err}");
}

#[test]
fn interop_program_without_the_protocol_is_reported() {
    for (test, script, complaint) in [
        ("ends", "exit 3", "it ended before it had answered: exit status: 3"),
        ("garbage", "read -r line; echo hello", "it printed \"hello\""),
        (
            "stranger",
            r#"read -r line; echo '{"id": 77}'"#,
            "it answered 77, which is not a pending request",
        ),
        ("half", r#"read -r line; printf '{"id": 0'"#, "or one without an end"),
        (
            "mute",
            r#"while read -r line; do id=${line#*\"id\":}; echo "{\"id\":${id%%,*}}"; done"#,
            "the program tells of 0 calls, not of 1",
        ),
    ] {
        let (code, _, err) = play(test, script, None, REFUSED);
        assert_eq!(code, 2, "{test}");
        assert!(err.contains(complaint), "{test}: {err}");
    }
    let arguments = Arguments {
        with: Some("there-is-no-such-program".to_owned()),
        files: vec![root().join(REFUSED[0]).display().to_string()],
        ..Arguments::default()
    };
    let mut err = Vec::new();
    assert_eq!(run(&arguments, &mut Vec::new(), &mut err).expect("it writes into memory"), 2);
    let err = String::from_utf8(err).expect("it is text");
    assert!(err.starts_with("cannot start there-is-no-such-program: "), "{err}");
}

/// The duplicate may also be the last answer, when no request is pending.
#[cfg(unix)]
#[test]
fn interop_program_that_answers_twice_is_rejected_and_killed() {
    let pid_file = written("twice.pid", "");
    // Each call fails before it is made; the last request is answered twice.
    let twice = format!(
        r#"echo $$ >{pid_file}; while read -r line; do id=${{line#*\"id\":}}; id=${{id%%,*}}
        answer="{{\"id\":$id,\"refused\":\"I like none\"}}"; echo "$answer"
        case $line in *maxAttempts*) echo "$answer";; esac; done"#
    );
    for (script, expected) in [(&*twice, 2), (&*twice.replace("*maxAttempts*", "never"), 0)] {
        let (code, _, err) = play("twice", script, None, REFUSED);
        assert_eq!(code, expected, "{err}");
        assert_eq!(err.contains(", which is not a pending request"), expected == 2, "{err}");
        let pid = fs::read_to_string(&pid_file).expect("it was started");
        assert!(!is_there(&pid), "{pid} is still there");
    }
}

/// Whether a process with this id exists, zombies included.
#[cfg(unix)]
fn is_there(pid: &str) -> bool {
    let kill = std::process::Command::new("sh").args(["-c", &format!("kill -0 {pid}")]).output();
    kill.expect("there is a shell").status.success()
}

/// The program has its own process group, so the terminal does not interrupt it. In real time: the
/// interrupt is sent a second after the program received a scenario, which it never answers.
#[cfg(unix)]
#[test]
fn interop_interrupt_leaves_no_process_behind() {
    use std::process::{Command, Stdio};

    let pid_file = written("interrupted.pid", "");
    let script = format!("read -r line; sleep 1; echo $$ >{pid_file}; sleep 600 & wait");
    let script = written("interrupted.sh", &script);
    let scenarios = root().join(REFUSED[0]).display().to_string();
    let run = Command::new(env!("CARGO_BIN_EXE_redial"))
        .args(["scenarios", "--with", &format!("sh {script}"), &scenarios])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let pid = loop {
        let pid = fs::read_to_string(&pid_file).expect("it was written");
        if pid.ends_with('\n') {
            break pid.trim().to_owned();
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    assert!(is_there(&pid));
    let interrupt = Command::new("sh").args(["-c", &format!("kill -INT {}", run.id())]).status();
    assert!(interrupt.expect("there is a shell").success());
    // A process left behind would hold this pipe open for ten minutes.
    let output = run.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "interrupted\n");
    assert!(!is_there(&pid), "{pid} is still there");
}

#[test]
fn interop_scenario_counts_are_pinned() {
    for (file, played, skipped) in [
        ("buffer", 5, 0),
        ("config", 62, 0),
        ("hedging", 12, 1),
        ("refused", 1, 0),
        ("retry", 18, 1),
        ("throttle", 8, 0),
        ("transparent", 3, 4),
    ] {
        let path = format!("scenarios/grpc-{file}.json");
        let (_, out, _) = play(&format!("pinned-{file}"), REFUSES, None, &[&path]);
        let last = out.lines().last().expect("there is a last line");
        let counts: Vec<usize> =
            last.split(", ").filter_map(|part| part.split(' ').next()?.parse().ok()).collect();
        assert_eq!((counts[0] + counts[1], counts[2]), (played, skipped), "{file}: {last}");
    }
}

#[test]
fn interop_core_passes_scenarios_where_other_languages_differ() {
    let files = vec![root().join("interop/extra-scenarios.json").display().to_string()];
    let arguments = Arguments { files, ..Arguments::default() };
    let mut out = Vec::new();
    assert_eq!(run(&arguments, &mut out, &mut Vec::new()).expect("it writes into memory"), 0);
    assert_eq!(String::from_utf8(out).expect("it is text"), "9 passed, 0 failed\n");
}
