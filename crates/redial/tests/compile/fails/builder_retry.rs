//! A builder cannot run a call: build the policy first.

use redial::{Policy, ms};

fn main() {
    let _ = Policy::exponential(ms(100)).retry(|| std::fs::read("file")).when(|_| true).call();
}
