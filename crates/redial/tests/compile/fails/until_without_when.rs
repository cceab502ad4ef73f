//! `until` classifies values; errors still need `when`.

async fn status() -> Result<u32, std::io::Error> {
    Ok(7)
}

#[tokio::main]
async fn main() {
    let _ = redial::retry(|| status()).until(|status| *status == 7).await;
}
