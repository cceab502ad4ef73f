//! The overhead of the layer on tonic: client instructions (callgrind), heap bytes (counting
//! allocator), and tail latency on virtual time.
//!
//! `cargo run --release --manifest-path benches/Cargo.toml --features grpc --bin grpc` prints the
//! tables. Server and client are two processes, so that only the client is counted. Instructions of
//! a call are the difference of two whole runs, divided by the difference of their counts; variants
//! are interleaved and repeated, and the spread of the repetitions is printed, since identical
//! programs differ by some 0.4 %.

#[path = "../count.rs"]
mod count;
mod server;
mod tail;
mod variants;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use variants::{Shape, VARIANTS};

#[global_allocator]
static ALLOCATOR: count::Counting = count::Counting;

/// How often each figure is measured.
const ROUNDS: usize = 3;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve"] => server::serve(),
        ["client", shape, variant, calls, address] => {
            let calls = calls.parse().expect("a count");
            let allocated = variants::run(Shape::named(shape), variant, calls, address);
            println!("{allocated}");
        }
        [] => tables(""),
        [filter] => tables(filter),
        _ => panic!("no argument, or one of: unary, stream, bytes, tail"),
    }
}

fn tables(filter: &str) {
    for shape in [Shape::Unary, Shape::Stream] {
        if shape.name().contains(filter) {
            table(shape);
        }
    }
    if "bytes".contains(filter) {
        let (_server, address) = start_server();
        println!("\n## bytes held per call in flight, message of 1 KiB\n| variant | bytes | over plain |\n| --- | --- | --- |");
        let mut plain = None;
        for variant in VARIANTS {
            let bytes = client(Shape::Bytes, variant, Shape::Bytes.counts().1, &address, false);
            let plain = *plain.get_or_insert(bytes);
            println!("| {variant} | {bytes:.0} | {:+.0} |", bytes - plain);
        }
    }
    if "tail".contains(filter) {
        tail::table();
    }
}

fn table(shape: Shape) {
    println!("\n## {}", shape.title());
    println!("| variant | instructions | ratio | spread of the ratio | allocations |");
    println!("| --- | --- | --- | --- | --- |");
    let mut rounds = vec![Vec::new(); VARIANTS.len()];
    for _ in 0..ROUNDS {
        // Rounds with one server agree with each other more than with the next run, so each round has its
        // own server: the spread then shows the differences between runs.
        let (_server, address) = start_server();
        for (variant, figures) in VARIANTS.iter().zip(&mut rounds) {
            figures.push(per_call(shape, variant, &address, true));
        }
    }
    let (_server, address) = start_server();
    let mean = |figures: &[f64]| figures.iter().sum::<f64>() / figures.len() as f64;
    let plain = mean(&rounds[0]);
    for (variant, figures) in VARIANTS.iter().zip(&rounds) {
        let allocations = per_call(shape, variant, &address, false);
        let ratios: Vec<f64> = figures.iter().map(|figure| figure / plain).collect();
        let low = ratios.iter().copied().fold(f64::MAX, f64::min);
        let high = ratios.iter().copied().fold(0.0, f64::max);
        println!(
            "| {variant} | {:.0} | {:.4} | {low:.4} to {high:.4} | {allocations:.1} |",
            mean(figures),
            mean(&ratios),
        );
    }
}

/// Instructions or allocations of one call.
fn per_call(shape: Shape, variant: &str, address: &str, instructions: bool) -> f64 {
    let (few, many) = shape.counts();
    let whole = |calls| client(shape, variant, calls, address, instructions);
    (whole(many) - whole(few)) / (many - few) as f64
}

/// Runs a client process: its instructions, or the allocations that it prints.
fn client(shape: Shape, variant: &str, calls: u64, address: &str, instructions: bool) -> f64 {
    let this = std::env::current_exe().expect("this program");
    let mut command = if instructions {
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(this);
        valgrind
    } else {
        Command::new(this)
    };
    let output = command
        .args(["client", shape.name(), variant, &calls.to_string(), address])
        .output()
        .expect("valgrind is installed");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}");
    let number = if instructions {
        printed.lines().find(|line| line.contains("Collected")).and_then(|line| line.rsplit(' ').next().map(str::to_owned))
    } else {
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    number.and_then(|number| number.parse().ok()).expect("a number")
}

/// Starts the server's process, which is killed with the returned guard, and its address.
struct ServerProcess(Child);

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
    }
}

fn start_server() -> (ServerProcess, String) {
    let this = std::env::current_exe().expect("this program");
    let mut child = Command::new(this)
        .arg("serve")
        .stdout(Stdio::piped())
        .spawn()
        .expect("the server starts");
    let stdout = child.stdout.take().expect("its output");
    let mut address = String::new();
    BufReader::new(stdout).read_line(&mut address).expect("its address");
    (ServerProcess(child), address.trim().to_owned())
}
