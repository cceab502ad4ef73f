//! `when` answers whether to try again, and nothing else.

fn main() {
    let _ = redial::retry(|| std::fs::read("file")).when(|error| error.to_string()).call();
}
