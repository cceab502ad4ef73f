//! An operation returns a `Result`.

fn main() {
    let _ = redial::retry(|| 7).when(|_| true).call();
}
