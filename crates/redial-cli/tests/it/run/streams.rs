//! Standard input and output.

use std::io::Write;
use std::process::{Command, Stdio};

use super::{Ran, TestFolder, fails, ran};

/// Runs with this input in a pipe.
fn piped(
    folder: &TestFolder,
    options: &[&str],
    program: &str,
    input: &[u8],
) -> (Option<i32>, Vec<u8>, String) {
    let mut command = folder.command(options);
    command.args(["--", "sh", "-c", program]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut stdin = child.stdin.take().expect("it is piped");
    let input = input.to_vec();
    // The command may end before it has read everything.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("the writer ends");
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), output.stdout, err)
}

/// A program that counts and then fails this often.
fn then_fails(times: u32, first: &str) -> String {
    format!("{first}; {}", fails(times, 5).replace("echo \"out $n\"; ", ""))
}

#[test]
fn run_input_is_replayed_to_each_attempt() {
    let folder = TestFolder::new();
    let input: Vec<u8> = (0..3_000_000_u32).map(|it| (it % 251) as u8).collect();
    let (code, out, err) = piped(&folder, &["-n", "4"], &then_fails(2, "cat"), &input);
    assert_eq!(code, Some(0), "{err:.200}");
    assert!(out == input, "{} of {} bytes", out.len(), input.len());
}

#[test]
fn run_unread_input_is_read_by_the_next_attempt() {
    let folder = TestFolder::new();
    let program = then_fails(1, "head -c 3 >/dev/null; [ -e count ] && cat");
    let (code, out, err) = piped(&folder, &["-n", "4"], &program, b"abcdefgh");
    assert_eq!((code, out.as_slice()), (Some(0), &b"defgh"[..]), "{err}");
}

#[test]
fn run_input_limit_is_exact() {
    let folder = TestFolder::new();
    let at_limit =
        piped(&folder, &["-n", "3", "--stdin-limit", "8"], &then_fails(1, "cat"), b"12345678");
    assert_eq!((at_limit.0, at_limit.1.as_slice()), (Some(0), &b"12345678"[..]), "{at_limit:?}");
    let folder = TestFolder::new();
    let beyond =
        piped(&folder, &["-n", "3", "--stdin-limit", "8"], &then_fails(1, "cat"), b"123456789");
    assert_eq!((beyond.0, beyond.1.as_slice()), (Some(5), &b"123456789"[..]), "{beyond:?}");
    assert!(beyond.2.contains("larger than --stdin-limit"), "{beyond:?}");
    assert!(beyond.2.contains("gave up after 1 attempt "), "{beyond:?}");
}

#[test]
fn run_open_pipe_does_not_delay_a_command_without_input() {
    let folder = TestFolder::new();
    let mut command = folder.command(&[]);
    let mut child = command.args(["--", "true"]).stdin(Stdio::piped()).spawn().unwrap();
    // The writing end stays open.
    let stdin = child.stdin.take();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    drop(stdin);
}

#[test]
fn run_input_file_is_read_again_from_its_offset() {
    let folder = TestFolder::new();
    folder.write("input", "one\ntwo\nthree\n");
    let redial = env!("CARGO_BIN_EXE_redial");
    // The shell reads a line; each attempt reads the rest; what it leaves is there for the shell.
    let script = format!(
        "{{ IFS= read -r line; {redial} run --first 5ms -- sh -c 'head -c 4; [ -e once ] || {{ touch once; exit 1; }}'; cat; }} < input"
    );
    let ran = ran(Command::new("sh").args(["-c", &script]).current_dir(folder.path()));
    assert_eq!(ran.out, "two\nthree\n", "{ran:?}");
}

#[test]
fn run_without_input_reads_nothing() {
    let folder = TestFolder::new();
    let (code, out, _) = piped(&folder, &["--stdin", "none"], "cat", b"data");
    assert_eq!((code, out.as_slice()), (Some(0), &b""[..]));
}

#[test]
fn run_live_output_has_every_attempt() {
    let folder = TestFolder::new();
    let ran = folder.run(&["--stdout", "live"], &fails(2, 7));
    assert_eq!(
        (ran.code, ran.out.as_str(), ran.err.as_str()),
        (Some(0), "out 1\nout 2\nout 3\n", "")
    );
}

#[test]
fn run_large_output_is_held_and_complete() {
    let folder = TestFolder::new();
    let program = format!("head -c 5000000 /dev/zero; {}", fails(1, 7));
    let ran = folder.run(&[], &program);
    assert_eq!(ran.code, Some(0));
    assert_eq!((ran.out.len(), ran.err.len()), (5_000_000 + 6, 5_000_000 + 6));
}

#[test]
fn run_output_limit_is_exact() {
    let folder = TestFolder::new();
    let at_limit =
        folder.run(&["--stdout-limit", "12"], &format!("printf 123456; {}", fails(1, 7)));
    assert_eq!((at_limit.code, at_limit.out.as_str()), (Some(0), "123456out 2\n"), "{at_limit:?}");
    let folder = TestFolder::new();
    let beyond = folder.run(&["--stdout-limit", "11"], &format!("printf 123456; {}", fails(1, 7)));
    assert_eq!((beyond.code, beyond.out.as_str()), (Some(7), "123456out 1\n"), "{beyond:?}");
    assert!(beyond.err.contains("larger than --stdout-limit"), "{beyond:?}");
    assert_eq!(folder.read("count"), "1\n", "what has been passed on is not repeated");
}

#[test]
fn run_output_limit_also_holds_after_a_timeout() {
    let folder = TestFolder::new();
    let program = "echo x >> count; echo 123456; sleep 100";
    let ran = folder.run(&["-n", "3", "--timeout", "2s", "--stdout-limit", "3"], program);
    assert_eq!((ran.code, ran.out.as_str()), (Some(124), "123456\n"), "{ran:?}");
    assert_eq!(folder.read("count"), "x\n", "{ran:?}");
}

#[test]
fn run_closed_reader_ends_the_retries() {
    let folder = TestFolder::new();
    let redial = env!("CARGO_BIN_EXE_redial");
    let script = format!(
        "{redial} run --first 5ms --stdout live --until never -- sh -c 'echo x >> count; yes' | head -n 1"
    );
    let ran = ran(Command::new("sh").args(["-c", &script]).current_dir(folder.path()));
    assert_eq!(ran.out, "y\n", "{ran:?}");
    assert_eq!(folder.read("count"), "x\n", "{ran:?}");
}

#[test]
fn run_output_of_background_processes_is_awaited() {
    let folder = TestFolder::new();
    let ran = folder.run(&[], "(sleep 0.3; echo late) & echo early");
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "early\nlate\n"), "{ran:?}");
}

#[test]
fn run_closed_standard_error_does_not_end_the_command() {
    let folder = TestFolder::new();
    let redial = env!("CARGO_BIN_EXE_redial");
    let script = format!(
        "{{ {redial} run --first 300ms --jitter none --explain -- sh -c 'echo x >> count; [ $(wc -l < count) -gt 2 ]' 2>&1 >&3 | true; }} 3>&1"
    );
    let ran = ran(Command::new("sh").args(["-c", &script]).current_dir(folder.path()));
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{ran:?}");
    assert_eq!(folder.read("count"), "x\nx\nx\n", "{ran:?}");
}

/// Runs with this standard output and standard error.
#[cfg(target_os = "linux")]
fn with_outputs(folder: &TestFolder, options: &[&str], program: &str, redirect: &str) -> Ran {
    let redial = env!("CARGO_BIN_EXE_redial");
    let options = options.join(" ");
    let script = format!("{redial} run --first 5ms {options} -- sh -c '{program}' {redirect}");
    ran(Command::new("sh").args(["-c", &script]).current_dir(folder.path()).stdin(Stdio::null()))
}

#[cfg(target_os = "linux")]
#[test]
fn run_lost_output_is_125() {
    let folder = TestFolder::new();
    let program = "echo x >> count; echo out";
    for options in [&[][..], &["--stdout", "live", "--until", "out"]] {
        folder.write("count", "");
        let ran = with_outputs(&folder, options, program, "> /dev/full");
        assert_eq!(ran.code, Some(125), "{ran:?}");
        assert!(ran.err.contains("the output cannot be written: No space left"), "{ran:?}");
        assert_eq!(folder.read("count"), "x\n", "{ran:?}");
    }
    let failed = with_outputs(&folder, &["--json"], "echo out; exit 7", "> /dev/full");
    assert_eq!(failed.code, Some(125), "{failed:?}");
    let passed = with_outputs(&folder, &["--stdout-limit", "1", "--json"], program, "> /dev/full");
    assert_eq!(passed.code, Some(125), "{passed:?}");
    assert!(passed.err.contains("\"because\":\"the output cannot be written\""), "{passed:?}");
    assert!(passed.err.contains("\"succeeded\":false"), "{passed:?}");
    let folder = TestFolder::new();
    let retried = with_outputs(&folder, &[], &fails(1, 7).replace('"', ""), "2> /dev/full");
    assert_eq!(retried.code, Some(125), "{retried:?}");
}

#[test]
fn run_closed_standard_error_does_not_end_the_retries() {
    let folder = TestFolder::new();
    let redial = env!("CARGO_BIN_EXE_redial");
    let program = fails(2, 7).replace('"', "");
    let script =
        format!("{{ {redial} run --first 300ms -- sh -c '{program}' 2>&1 >&3 | true; }} 3>&1");
    let ran = ran(Command::new("sh").args(["-c", &script]).current_dir(folder.path()));
    assert_eq!((ran.out.as_str(), folder.read("count").as_str()), ("out 3\n", "3\n"), "{ran:?}");
}

#[test]
fn run_full_temporary_folder_loses_no_output() {
    let folder = TestFolder::new();
    let mut command = folder.command(&[]);
    let program = format!("head -c 5000000 /dev/zero; {}", fails(1, 7));
    // A temporary folder that is missing refuses files, as one that is full does.
    command.args(["--", "sh", "-c", &program]).env("TMPDIR", folder.file("missing"));
    let ran = ran(&mut command);
    assert_eq!((ran.code, ran.out.len()), (Some(7), 5_000_000 + 6), "{}", ran.err);
    assert!(ran.err.contains("cannot be kept in the temporary folder"), "{}", ran.err);
    assert_eq!(folder.read("count"), "1\n", "what has been passed on is not repeated");
}

#[test]
fn run_late_output_of_earlier_attempt_goes_to_standard_error() {
    let folder = TestFolder::new();
    // The process leaves its group, so the timeout does not end it.
    let program = "
        if [ -e second ]; then exit 3; fi
        if [ -e first ]; then
            touch second; until [ -e late ]; do sleep 0.02; done; sleep 0.2; exit 3
        fi
        touch first
        setsid sh -c 'until [ -e second ]; do sleep 0.02; done; echo late; touch late' &
        sleep 100";
    let ran = folder.run(&["-n", "3", "--timeout", "2s", "--kill-after", "100ms"], program);
    assert_eq!((ran.code, ran.out.as_str()), (Some(3), ""), "{ran:?}");
    assert!(ran.err.contains("late\n") && ran.err.contains("after 3 attempts"), "{ran:?}");
}

#[test]
fn run_closed_reader_of_inherited_output_ends_the_retries() {
    let folder = TestFolder::new();
    let redial = env!("CARGO_BIN_EXE_redial");
    let script = format!(
        "{redial} run --first 5ms --stdout live -- sh -c 'echo x >> count; yes' | head -n 1"
    );
    let mut command = Command::new("sh");
    let ran = ran(command.args(["-c", &script]).current_dir(folder.path()).stdin(Stdio::null()));
    assert_eq!((ran.out.as_str(), folder.read("count").as_str()), ("y\n", "x\n"), "{ran:?}");
    assert!(ran.err.contains("the reader of standard output is gone"), "{ran:?}");
}

#[test]
fn run_terminal_as_input_needs_the_foreground() {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let folder = TestFolder::new();
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("there is a terminal");
    grantpt(&terminal).and_then(|()| unlockpt(&terminal)).expect("it can be used");
    let name = ptsname(&terminal, Vec::new()).expect("it has a name");
    let name = name.to_str().expect("it is text");
    let runs = |options: &[&str]| {
        let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY;
        let input = rustix::fs::open(name, flags, rustix::fs::Mode::empty()).expect("it opens");
        let mut command = folder.command(options);
        ran(command.args(["--", "echo", "ran"]).stdin(Stdio::from(input)))
    };
    for mode in ["inherit", "replay"] {
        let refused = runs(&["--stdin", mode]);
        assert_eq!((refused.code, refused.out.as_str()), (Some(125), ""), "{refused:?}");
        assert!(refused.err.contains("--foreground"), "{refused:?}");
        assert_eq!(runs(&["--stdin", mode, "--foreground"]).out, "ran\n");
    }
    assert_eq!(runs(&[]).out, "ran\n");
}

#[test]
fn run_slow_reader_gets_all_output_after_a_timeout() {
    // More than a pipe holds, and less than the two pipes on its way: the command can write all of it
    // while the reader sleeps, for longer than an output from which nothing comes is awaited.
    let folder = TestFolder::new();
    let redial = env!("CARGO_BIN_EXE_redial");
    let options = "-n 1 --first 5ms --timeout 2s";
    let program = "head -c 120000 /dev/zero; sleep 100";
    for (more, to, redirect) in [
        ("--stdout live --until never", "", ""),
        ("--stdout once --stdout-limit 100", "", ""),
        ("--until never", ">&2", "2>&1"),
    ] {
        let script = format!(
            "{redial} run -q {options} {more} -- sh -c '({program}) {to}' {redirect} | (sleep 6; wc -c)"
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script]).current_dir(folder.path()).stdin(Stdio::null());
        let ran = ran(&mut command);
        assert_eq!(ran.out.trim(), "120000", "{more}: {ran:?}");
    }
}

#[test]
fn run_next_attempt_waits_for_a_slow_reader() {
    let folder = TestFolder::new();
    let redial = env!("CARGO_BIN_EXE_redial");
    let program = "echo x >> count; head -c 110000 /dev/zero; sleep 100";
    let options = "-n 2 --first 5ms --timeout 2s --stdout live --until never";
    let script =
        format!("{redial} run {options} -- sh -c '{program}' | (sleep 6; cat count >&2; wc -c)");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(folder.path()).stdin(Stdio::null());
    let ran = ran(&mut command);
    assert_eq!(ran.out.trim(), "220000", "{ran:?}");
    assert!(ran.err.starts_with("x\n") && !ran.err.starts_with("x\nx\n"), "{ran:?}");
}

#[test]
fn run_endless_output_of_an_escaped_process_is_left() {
    let folder = TestFolder::new();
    let program = "echo $$ > pid; setsid sh -c 'echo $$ > other; exec yes' & sleep 100";
    let redial = env!("CARGO_BIN_EXE_redial");
    let options = "-n 1 --timeout 500ms --stdout live --until never";
    let script = format!("{redial} run {options} -- sh -c \"{}\"", program.replace('$', "\\$"));
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(folder.path()).stdin(Stdio::null());
    let status = command.stdout(Stdio::null()).status().expect("it runs");
    let killed = Command::new("kill").arg(folder.read("other").trim()).status();
    assert_eq!(status.code(), Some(124));
    // Without a reader it may have ended by SIGPIPE.
    drop(killed);
}

#[test]
fn run_input_that_cannot_be_read_is_125() {
    let folder = TestFolder::new();
    let mut command = folder.command(&["-n", "3"]);
    let program = "echo x >> count; cat; echo complete";
    let folder_as_input = std::fs::File::open(folder.path()).expect("it can be opened");
    command.args(["--", "sh", "-c", program]).stdin(Stdio::from(folder_as_input));
    let ran = ran(&mut command);
    assert_eq!((ran.code, ran.out.as_str()), (Some(125), ""), "{ran:?}");
    assert!(ran.err.contains("the standard input cannot be read: Is a directory"), "{ran:?}");
    assert!(ran.err.ends_with("(the input cannot be read)\n"), "{ran:?}");
    assert_eq!(folder.read("count"), "x\n", "{ran:?}");
}
