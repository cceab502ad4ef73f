//! The overhead of a call: instructions (callgrind) and heap bytes (counting allocator), next to
//! other libraries and a hand-written loop in the same program.
//!
//! `cargo run --release --manifest-path benches/Cargo.toml` prints the tables. Instructions of a
//! case are the difference of two whole runs, divided by the difference of their counts, so that
//! one-time costs cancel out.

mod cases;
mod count;
mod operation;

use std::collections::HashMap;
use std::process::Command;

#[global_allocator]
static ALLOCATOR: count::Counting = count::Counting;

/// The two counts; both are below the hundred successes that fill up the budget.
const FEW: u64 = 20;
const MANY: u64 = 90;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["run", index, n] => {
            let case = &cases::CASES[index.parse::<usize>().expect("an index")];
            (case.run)(n.parse().expect("a count"));
        }
        [] => tables(""),
        [filter] => tables(filter),
        _ => panic!("no argument, or a part of a case's name"),
    }
}

fn tables(filter: &str) {
    let mut group = "";
    let mut firsts: HashMap<&str, f64> = HashMap::new();
    for (index, case) in cases::CASES.iter().enumerate() {
        if !format!("{} {}", case.group, case.name).contains(filter) {
            continue;
        }
        if case.group != group {
            group = case.group;
            println!(
                "\n## {group}\n| case | instructions | over the first | ratio | allocations |\n| --- | --- | --- | --- | --- |"
            );
        }
        let instructions = instructions(index);
        let first = *firsts.entry(group).or_insert(instructions);
        println!(
            "| {} | {instructions:.0} | {:+.0} | {:.2} | {:.1} |",
            case.name,
            instructions - first,
            instructions / first,
            allocations(case),
        );
    }
    if filter.is_empty() || "size".contains(filter) {
        println!(
            "\n## size of the future around an operation of 64 bytes\n| future | bytes |\n| --- | --- |"
        );
        for (name, bytes) in cases::sizes() {
            println!("| {name} | {bytes} |");
        }
    }
    if filter.is_empty() || "heap".contains(filter) {
        println!("\n## heap per sleeping retry, 100,000 of them\n| task | bytes |\n| --- | --- |");
        for name in ["bare sleep", "redial", "redial in an async block", "tokio-retry", "backon"] {
            println!("| {name} | {:.1} |", heap_per_sleeper(name));
        }
    }
}

/// Instructions per call.
fn instructions(index: usize) -> f64 {
    let whole = |n: u64| -> f64 {
        let this = std::env::current_exe().expect("this program");
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(this)
            .args(["run", &index.to_string(), &n.to_string()])
            .output()
            .expect("valgrind is installed");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}");
        let line = text.lines().find(|line| line.contains("Collected")).expect("a total");
        line.rsplit(' ').next().and_then(|number| number.parse().ok()).expect("a number")
    };
    (whole(MANY) - whole(FEW)) / (MANY - FEW) as f64
}

/// Allocations per call.
fn allocations(case: &cases::Case) -> f64 {
    let whole = |n: u64| {
        let before = count::allocations();
        (case.run)(n);
        count::allocations() - before
    };
    // Warm-up for one-time allocations.
    whole(FEW);
    (whole(MANY) as f64 - whole(FEW) as f64) / (MANY - FEW) as f64
}

/// Heap bytes per sleeping task.
fn heap_per_sleeper(name: &str) -> f64 {
    const TASKS: usize = 100_000;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let set = tokio::task::LocalSet::new();
    let before = count::live();
    runtime.block_on(set.run_until(async {
        for _ in 0..TASKS {
            cases::spawn_sleeper(name, &set);
        }
        // A turn of the set polls some tens of its tasks.
        for _ in 0..TASKS / 8 {
            tokio::task::yield_now().await;
        }
    }));
    (count::live() - before) as f64 / TASKS as f64
}
