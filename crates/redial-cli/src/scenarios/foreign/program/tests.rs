//! Goal: a program that does not keep to the protocol is named, with what it did, soon, and does not stay
//! behind. Method: programs of one line of shell. Where a test says how long something takes at the most,
//! that is many times what a busy machine needs.

use std::ops::Deref;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::super::play;
use super::super::protocol::Options;
use super::super::scene::Scene;
use super::*;

/// Long enough for any machine, and far below what a hang would take.
const SOON: Duration = Duration::from_secs(60);

/// A program of shell, and the file that it is in until the test ends.
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

fn told(id: u64) -> Told {
    let (target, config) = (String::new(), "{}".to_owned());
    Told { id, target, config, options: Options::default(), give_up: 0.0, calls: Vec::new() }
}

/// Asks for the answers to these, one after the other: what was answered before the complaint.
async fn complaint(program: &Program, ids: &[u64]) -> (Vec<u64>, String) {
    let mut answered = Vec::new();
    for id in ids {
        let answer = tokio::time::timeout(SOON, program.play(&told(*id))).await;
        match answer.expect("it hangs") {
            Ok(answer) => answered.push(answer.id),
            Err(error) => return (answered, error.to_string()),
        }
    }
    panic!("no complaint after {answered:?}");
}

/// Whether there is a process of this number, be it one that has ended and was not waited for.
fn is_there(pid: u32) -> bool {
    let status = Command::new("sh").args(["-c", &format!("kill -0 {pid}")]).output();
    status.expect("there is a shell").status.success()
}

/// The number of its process.
async fn pid(program: &Program) -> u32 {
    program.child.lock().await.id().expect("it has not been waited for")
}

/// A program that answers each line with this, in which `$id` is the number of what was asked.
fn answering(answer: &str) -> String {
    format!(r#"while read -r line; do id=${{line#*\"id\":}}; id=${{id%%,*}}; {answer}; done"#)
}

#[tokio::test]
async fn whatever_is_not_in_the_protocol_is_named() {
    let echo = |text: &str| format!(r#"echo "{}""#, text.replace('"', "\\\""));
    let answer = echo(r#"{"id":$id}"#);
    let cases: [(&str, String, &[u64], &str); 11] = [
        ("ends", "exit 3".into(), &[], "it ended before it had answered: exit status: 3"),
        ("ends-later", "read -r line; exit 0".into(), &[], "exit status: 0"),
        ("killed", "kill -9 $$".into(), &[], "it ended before it had answered: signal: 9"),
        // It never reads: the write may fail before what it printed is read.
        ("greets", "echo hello".into(), &[], r#"it printed "hello": expected value"#),
        ("garbage", answering(&echo("hello")), &[], r#"it printed "hello": expected value"#),
        ("binary", r"printf '\377\n'; cat".into(), &[], "what it prints cannot be read: "),
        ("empty", "echo; cat".into(), &[], r#"it printed "": EOF while parsing"#),
        ("half", r#"printf '{"id": 0'"#.into(), &[], "or one without an end"),
        (
            "stranger",
            answering(&echo(r#"{"id":77}"#)),
            &[],
            "it answered 77, for which nobody waits",
        ),
        (
            "twice",
            answering(&format!("{answer}; {answer}")),
            &[3],
            "it answered 3, for which nobody waits",
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
        // The problem stays the first one, whoever asks.
        let (_, again) = self::complaint(&program, &[5]).await;
        assert_eq!(again, complaint, "{test}");
        let _complains = program.end().await;
        assert!(!is_there(pid.expect("it was started")), "{test}: it was left behind");
    }
}

/// Red: without `take(LINE_MAX)` it reads until there is no memory any more.
#[tokio::test]
async fn a_line_without_an_end_is_not_read_to_its_end() {
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
async fn a_line_of_the_limit_is_read_and_one_byte_more_is_not() {
    // An answer, and the end of the line.
    let answer = r#"{"id":1}"#;
    let room = usize::try_from(LINE_MAX).expect("it is small") - answer.len() - 1;
    for (test, blanks, is_read) in [("fits", room, true), ("too-long", room + 1, false)] {
        let script = format!("read -r line; printf '%{blanks}s{answer}\\n' ''; cat");
        let program = program(test, &script);
        let answer = tokio::time::timeout(SOON, program.play(&told(1))).await.expect("it hangs");
        assert_eq!(answer.is_ok(), is_read, "{test}: {answer:?}");
        assert_eq!(program.end().await.is_ok(), is_read, "{test}");
    }
}

#[tokio::test]
async fn of_a_long_line_the_beginning_is_shown() {
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

/// In virtual time, which passes as soon as nothing else happens.
#[tokio::test(start_paused = true)]
async fn a_program_that_stops_answering_is_given_up_on() {
    // One does not even read: a line that is larger than a pipe is never written.
    for (test, script) in [("deaf", "sleep 600"), ("silent", "while read -r line; do :; done")] {
        let program = program(test, script);
        let pid = pid(&program).await;
        let mut scene = Scene::warm_up();
        scene.config = " ".repeat(1 << 20);
        let error = play::play(&program, &scene).await.expect_err("nobody answers");
        let text = error.to_string();
        assert!(text.ends_with("the program did not answer, though it was to give up"), "{text}");
        assert!(is_there(pid), "{test}: it runs until it is ended");
        tokio::time::resume();
        program.end().await.expect("it said nothing that is wrong");
        assert!(!is_there(pid), "{test}");
        tokio::time::pause();
    }
}

/// What a program has started holds its pipes, and the user's terminal.
///
/// Red: without `process_group` in `Program::start` the sleeper goes on, and the pipe stays open.
#[tokio::test]
async fn what_a_program_has_started_ends_with_it() {
    let script = r#"sleep 600 & sleep 600 & read -r line; echo '{"id":1}'; wait"#;
    let program = program("family", script);
    program.play(&told(1)).await.expect("an answer");
    program.end().await.expect("all is well");
    let closed = async {
        while lock(&program.waiting).is_some() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(SOON, closed).await.expect("somebody still has its output open");
}

#[tokio::test]
async fn answers_may_come_in_any_order() {
    let script = r#"read -r a; read -r b; echo '{"id":2}'; echo '{"id":1}'; cat"#;
    let program = program("order", script);
    let (first, second) = (told(1), told(2));
    let both = async { tokio::join!(program.play(&first), program.play(&second)) };
    let (one, two) = tokio::time::timeout(SOON, both).await.expect("it hangs");
    assert_eq!((one.expect("an answer").id, two.expect("an answer").id), (1, 2));
    program.end().await.expect("all is well");
}

#[tokio::test]
async fn what_cannot_be_started_is_named() {
    for (command, expected) in [
        // Why not is the system's to say: a folder of the path that may not be read makes it another word.
        ("there-is-no-such-program x", "cannot start there-is-no-such-program x: "),
        ("/", "cannot start /: "),
        (" ", "a program has a name"),
    ] {
        let error = Program::start(command, "client").expect_err(command);
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}
