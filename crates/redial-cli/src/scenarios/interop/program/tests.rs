//! Goal: protocol violations are reported quickly with their cause, and no process is left behind.
//! Method: shell scripts as programs. Time limits are many times what a busy machine needs.

use std::ops::Deref;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::super::play;
use super::super::protocol::Options;
use super::super::test_case::TestCase;
use super::*;

/// Long enough for a busy machine, and shorter than a hang.
const SOON: Duration = Duration::from_secs(60);

/// A running shell script, and its file, removed at the end of the test.
struct Scripted(Program, PathBuf);

impl Deref for Scripted {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.0
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        let _removed = std::fs::remove_file(&self.1);
    }
}

fn program(test: &str, script: &str) -> Scripted {
    let name = format!("redial-program-{}-{test}.sh", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, script).expect("it can be written");
    let program = Program::start(&format!("sh {}", path.display()), "client");
    Scripted(program.expect("there is a shell"), path)
}

fn call_request(id: u64) -> CaseRequest {
    let (target, config) = (String::new(), "{}".to_owned());
    CaseRequest { id, target, config, options: Options::default(), give_up: 0.0, calls: Vec::new() }
}

/// Requests these ids in order: the answered ones, and the error.
async fn complaint(program: &Program, ids: &[u64]) -> (Vec<u64>, String) {
    let mut answered = Vec::new();
    for id in ids {
        let answer = tokio::time::timeout(SOON, program.play(&call_request(*id))).await;
        match answer.expect("it hangs") {
            Ok(answer) => answered.push(answer.id),
            Err(error) => return (answered, error.to_string()),
        }
    }
    panic!("no complaint after {answered:?}");
}

/// Whether a process with this id exists, zombies included.
fn is_there(pid: u32) -> bool {
    let status = Command::new("sh").args(["-c", &format!("kill -0 {pid}")]).output();
    status.expect("there is a shell").status.success()
}

/// Its process id.
async fn pid(program: &Program) -> u32 {
    program.child.lock().await.id().expect("it has not been waited for")
}

/// A script that answers each line with this text; `$id` is the id of the request.
fn answering(answer: &str) -> String {
    format!(r#"while read -r line; do id=${{line#*\"id\":}}; id=${{id%%,*}}; {answer}; done"#)
}

#[tokio::test]
async fn interop_program_protocol_violation_is_reported() {
    let echo = |text: &str| format!(r#"echo "{}""#, text.replace('"', "\\\""));
    let answer = echo(r#"{"id":$id}"#);
    let cases: [(&str, String, &[u64], &str); 11] = [
        ("ends", "exit 3".into(), &[], "it ended before it had answered: exit status: 3"),
        ("ends-later", "read -r line; exit 0".into(), &[], "exit status: 0"),
        ("killed", "kill -9 $$".into(), &[], "it ended before it had answered: signal: 9"),
        // It never reads: the write may fail before its output is read.
        ("greets", "echo hello".into(), &[], r#"it printed "hello": expected value"#),
        ("garbage", answering(&echo("hello")), &[], r#"it printed "hello": expected value"#),
        ("binary", r"printf '\377\n'; cat".into(), &[], "what it prints cannot be read: "),
        ("empty", "echo; cat".into(), &[], r#"it printed "": EOF while parsing"#),
        ("half", r#"printf '{"id": 0'"#.into(), &[], "or one without an end"),
        (
            "stranger",
            answering(&echo(r#"{"id":77}"#)),
            &[],
            "it answered 77, which is not a pending request",
        ),
        (
            "twice",
            answering(&format!("{answer}; {answer}")),
            &[3],
            "it answered 3, which is not a pending request",
        ),
        (
            "closes",
            "exec >&-; while read -r line; do :; done; sleep 30".into(),
            &[],
            "it closed its input or output before it had answered",
        ),
    ];
    for (test, script, before, expected) in cases {
        let program = program(test, &script);
        let pid = program.child.lock().await.id();
        let (answered, complaint) = complaint(&program, &[3, 4]).await;
        assert_eq!(answered, before, "{test}: {complaint}");
        assert!(complaint.contains(expected), "{test}: {complaint}");
        assert!(complaint.starts_with("sh ") && complaint.contains(".sh: "), "{test}: {complaint}");
        // Later requests get the first error too.
        let (_, again) = self::complaint(&program, &[5]).await;
        assert_eq!(again, complaint, "{test}");
        let _complains = program.end().await;
        assert!(!is_there(pid.expect("it was started")), "{test}: it was left behind");
    }
}

#[tokio::test]
async fn interop_program_endless_line_is_cut_off() {
    let program = program("endless", "while :; do printf '%65536s' ''; done");
    let pid = pid(&program).await;
    let (_, complaint) = complaint(&program, &[1]).await;
    assert!(
        complaint.contains("it printed a line of 1048576 bytes, or one without"),
        "{complaint}"
    );
    assert_eq!(program.end().await.expect_err("it has a problem").to_string(), complaint);
    assert!(!is_there(pid));
}

#[tokio::test]
async fn interop_program_line_limit_is_exact() {
    // An answer, and the end of the line.
    let answer = r#"{"id":1}"#;
    let room = usize::try_from(LINE_MAX).expect("it is small") - answer.len() - 1;
    for (test, blanks, is_read) in [("fits", room, true), ("too-long", room + 1, false)] {
        let script = format!("read -r line; printf '%{blanks}s{answer}\\n' ''; cat");
        let program = program(test, &script);
        let answer =
            tokio::time::timeout(SOON, program.play(&call_request(1))).await.expect("it hangs");
        assert_eq!(answer.is_ok(), is_read, "{test}: {answer:?}");
        assert_eq!(program.end().await.is_ok(), is_read, "{test}");
    }
}

#[tokio::test]
async fn interop_program_error_shows_the_start_of_a_long_line() {
    for (length, ends) in [(SHOWN_MAX, "x\": "), (SHOWN_MAX + 1, "x\"...: ")] {
        let text = "x".repeat(length);
        let program = program(&format!("long-{length}"), &format!("echo {text}; cat"));
        let (_, complaint) = complaint(&program, &[1]).await;
        let (shown, _) = complaint.split_once("expected value").expect("it is no JSON");
        assert!(shown.ends_with(ends), "{shown}");
        assert_eq!(
            shown.matches('x').count() - shown.matches("xx.sh").count(),
            SHOWN_MAX,
            "{shown}"
        );
    }
}

/// In virtual time, which advances when the runtime is idle.
#[tokio::test(start_paused = true)]
async fn interop_program_that_stops_answering_times_out() {
    // This one does not read: a line that is larger than the pipe is never written.
    for (test, script) in [("deaf", "sleep 600"), ("silent", "while read -r line; do :; done")] {
        let program = program(test, script);
        let pid = pid(&program).await;
        let mut test_case = TestCase::warm_up();
        test_case.config = " ".repeat(1 << 20);
        let error = play::play(&program, &test_case).await.expect_err("the program never answers");
        let text = error.to_string();
        assert!(text.ends_with("the program did not answer, though it was to give up"), "{text}");
        assert!(is_there(pid), "{test}: it runs until it is ended");
        tokio::time::resume();
        program.end().await.expect("it kept the protocol");
        assert!(!is_there(pid), "{test}");
        tokio::time::pause();
    }
}

/// Child processes of the program hold its pipes and the user's terminal.
#[tokio::test]
async fn interop_program_child_processes_are_killed_with_it() {
    let script = r#"sleep 600 & sleep 600 & read -r line; echo '{"id":1}'; wait"#;
    let program = program("family", script);
    program.play(&call_request(1)).await.expect("an answer");
    program.end().await.expect("all is well");
    let closed = async {
        while lock(&program.waiting).is_some() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(SOON, closed).await.expect("a process still has its output open");
}

#[tokio::test]
async fn interop_program_answers_may_arrive_in_any_order() {
    let script = r#"read -r a; read -r b; echo '{"id":2}'; echo '{"id":1}'; cat"#;
    let program = program("order", script);
    let (first, second) = (call_request(1), call_request(2));
    let both = async { tokio::join!(program.play(&first), program.play(&second)) };
    let (one, two) = tokio::time::timeout(SOON, both).await.expect("it hangs");
    assert_eq!((one.expect("an answer").id, two.expect("an answer").id), (1, 2));
    program.end().await.expect("all is well");
}

#[tokio::test]
async fn interop_program_that_cannot_start_is_reported() {
    for (command, expected) in [
        // The reason depends on the system: an unreadable folder in `PATH` changes the error.
        ("there-is-no-such-program x", "cannot start there-is-no-such-program x: "),
        ("/", "cannot start /: "),
        (" ", "a program has a name"),
    ] {
        let error = Program::start(command, "client").expect_err(command);
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}
