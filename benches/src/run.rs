//! What `redial run` costs a command that works at once, next to Debian's `retry` and `attempt-cli`:
//! time, processor time and memory, as ratios (docs/run.md).
//!
//! `run REDIAL [ROUNDS]`, with the path of a release build of `redial`. Each round runs every program
//! a number of times in turn, so that other load on the machine meets all of them. `true` alone is
//! the cost without any of them. The memory of a program is what its command reads of it, from /proc:
//! the command is this binary, as `run probe`.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How often each program is run in a round.
const RUNS: usize = 20;
/// The number of rounds, unless an argument says otherwise.
const ROUNDS: usize = 25;
/// How often the memory of each program is read.
const PROBES: usize = 9;
/// A tick of the processor time in /proc, in milliseconds: 100 a second on all Linux systems.
const TICK_MS: f64 = 10.0;

/// A program, and its arguments before the command that it runs.
struct Program {
    name: &'static str,
    words: Vec<String>,
}

/// What a program costs.
#[derive(Default)]
struct Cost {
    times: Vec<Duration>,
    processor_ms: f64,
    resident_kib: u64,
    private_kib: u64,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["probe"] => probe(),
        [redial] => compare(redial, ROUNDS),
        [redial, rounds] => compare(redial, rounds.parse().expect("a number of rounds")),
        _ => panic!("expected the path of a release build of redial, and a number of rounds"),
    }
}

fn compare(redial: &str, rounds: usize) {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let all = [
        Program { name: "true alone", words: Vec::new() },
        Program { name: "redial run", words: words(&[redial, "run", "--"]) },
        Program { name: "retry", words: words(&["retry", "--"]) },
        Program { name: "attempt-cli", words: words(&["attempt", "--"]) },
    ];
    let mut programs: Vec<(Program, Cost)> = Vec::new();
    for program in all {
        match program.words.first().filter(|word| !is_there(word)) {
            None => programs.push((program, Cost::default())),
            Some(word) => println!("skipped: {word} is not installed"),
        }
    }
    for _ in 0..rounds {
        for (program, cost) in &mut programs {
            program.round(cost);
        }
    }
    for (program, cost) in programs.iter_mut().filter(|(program, _)| !program.words.is_empty()) {
        program.memory(cost);
    }
    table(&mut programs, rounds * RUNS);
}

/// Whether a program can be started.
fn is_there(program: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    Path::new(program).exists()
        || std::env::split_paths(&folders).any(|folder| folder.join(program).exists())
}

impl Program {
    /// The command line that runs this command.
    fn command(&self, command: &[&str]) -> Command {
        let words: Vec<&str> =
            self.words.iter().map(String::as_str).chain(command.iter().copied()).collect();
        let mut line = Command::new(words[0]);
        line.args(&words[1..]).stdin(Stdio::null()).stderr(Stdio::null());
        line
    }

    fn round(&self, cost: &mut Cost) {
        let before = children_ms();
        for _ in 0..RUNS {
            let begin = Instant::now();
            let status = self.command(&["true"]).stdout(Stdio::null()).status();
            cost.times.push(begin.elapsed());
            assert!(status.is_ok_and(|status| status.success()), "{} works", self.name);
        }
        cost.processor_ms += children_ms() - before;
    }

    fn memory(&self, cost: &mut Cost) {
        let own = std::env::current_exe().expect("this binary has a path");
        let own = own.to_str().expect("its path is text");
        let mut read: Vec<(u64, u64)> = Vec::new();
        for _ in 0..PROBES {
            let output = self.command(&[own, "probe"]).output().expect("it runs");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let mut numbers = text.split_whitespace().filter_map(|word| word.parse().ok());
            read.push(numbers.next().zip(numbers.next()).expect("two numbers"));
        }
        read.sort_unstable();
        (cost.resident_kib, cost.private_kib) = read[PROBES / 2];
    }
}

/// The processor time of the children that were waited for, and of theirs.
fn children_ms() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux has it");
    let fields = stat.rsplit(") ").next().unwrap_or_default();
    // The name of the program, which may have spaces, is the second field.
    let ticks = fields.split(' ').skip(13).take(2).filter_map(|field| field.parse::<f64>().ok());
    ticks.sum::<f64>() * TICK_MS
}

/// Prints the largest resident set of the parent so far, and what is private of it now, in KiB.
fn probe() {
    let parent = std::os::unix::process::parent_id();
    let sum = |file: &str, names: &[&str]| -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{parent}/{file}")).unwrap_or_default();
        let lines = text.lines().filter(|line| names.iter().any(|name| line.starts_with(name)));
        lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum()
    };
    let private = sum("smaps_rollup", &["Private_Clean:", "Private_Dirty:"]);
    println!("{} {private}", sum("status", &["VmHWM:"]));
}

fn table(programs: &mut [(Program, Cost)], runs: usize) {
    println!("\n{runs} runs of each; medians, and the mean of the processor time");
    println!("| | time | processor time | resident memory | of it private |");
    println!("| --- | --- | --- | --- | --- |");
    let mut rows = Vec::new();
    for (program, cost) in programs {
        cost.times.sort_unstable();
        let time = cost.times[cost.times.len() / 2].as_secs_f64() * 1e3;
        let processor = cost.processor_ms / runs as f64;
        let (resident, private) = (cost.resident_kib as f64, cost.private_kib as f64);
        println!(
            "| {} | {time:.2} ms | {processor:.2} ms | {resident} KiB | {private} KiB |",
            program.name
        );
        rows.push((program.name, [time, processor, resident, private]));
    }
    let Some((_, own)) = rows.iter().find(|(name, _)| *name == "redial run") else { return };
    println!("\n| redial run | time | processor time | resident memory | of it private |");
    println!("| --- | --- | --- | --- | --- |");
    for (name, other) in rows.iter().filter(|(name, _)| ["retry", "attempt-cli"].contains(name)) {
        let ratios: Vec<_> = own.iter().zip(other).map(|(a, b)| format!("{:.1}", a / b)).collect();
        println!("| to {name} | {} |", ratios.join(" | "));
    }
}
