//! The overhead of retries on reqwest: instructions (callgrind) and allocations of a request that succeeds,
//! and what random faults and an outage do through each library.
//!
//! `cargo run --release --manifest-path benches/Cargo.toml --features http --bin http` prints both;
//! `-- cost` or `-- faults` prints one. Instructions of a case are the difference of two whole runs,
//! divided by the difference of their counts.

mod cost;
#[path = "../count.rs"]
mod count;
mod faults;

#[global_allocator]
static ALLOCATOR: count::Counting = count::Counting;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["run", case, n] => cost::run(case, n.parse().expect("a count")),
        ["cost"] => cost::table(),
        ["faults"] => faults::tables(),
        [] => {
            cost::table();
            faults::tables();
        }
        _ => panic!("no argument, or one of: cost, faults"),
    }
}
