//! An attempt must not keep a borrow of captured state: use `retry_on`.

use redial::{Policy, ms};

static QUERY: Policy = Policy::exponential(ms(100)).build();

struct Conn;

impl Conn {
    async fn query(&mut self) -> Result<u32, std::io::Error> {
        Ok(7)
    }
}

#[tokio::main]
async fn main() {
    let mut conn = Conn;
    let _ = QUERY.retry(|| conn.query()).when(|_| true).await;
}
