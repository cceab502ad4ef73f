//! `when` must return whether to retry.

fn main() {
    let _ = redial::retry(|| std::fs::read("file")).when(|error| error.to_string()).call();
}
