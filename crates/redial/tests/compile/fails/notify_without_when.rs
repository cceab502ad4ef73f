//! `notify` and `record_errors` observe errors; errors still need `when`.

async fn fetch() -> Result<(), std::io::Error> {
    Ok(())
}

#[tokio::main]
async fn main() {
    let call = redial::retry(|| fetch()).until(|()| true).record_errors();
    let _ = call.notify(|error, delay| eprintln!("{error}, next attempt in {delay:?}")).await;
}
