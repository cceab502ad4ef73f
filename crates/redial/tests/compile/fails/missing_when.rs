//! A call must state which errors are retried.

async fn fetch() -> Result<(), std::io::Error> {
    Ok(())
}

#[tokio::main]
async fn main() {
    let _ = redial::retry(|| fetch()).await;
}
