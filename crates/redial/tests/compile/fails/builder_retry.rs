//! What was not checked repeats nothing.

use redial::{Policy, ms};

fn main() {
    let _ = Policy::exponential(ms(100)).retry(|| std::fs::read("file")).when(|_| true).call();
}
