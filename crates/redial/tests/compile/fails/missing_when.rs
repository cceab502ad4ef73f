//! What may be repeated is somebody's explicit word.

async fn fetch() -> Result<(), std::io::Error> {
    Ok(())
}

#[tokio::main]
async fn main() {
    let _ = redial::retry(|| fetch()).await;
}
