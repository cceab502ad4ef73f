//! An operation that changes `&mut self` and takes an argument by reference: as an async closure on a
//! target, and with an owned context where the future is spawned, boxed or part of a trait.

use std::error::Error;
use std::pin::Pin;

use redial::{Policy, ms};

static P: Policy = Policy::exponential(ms(1)).build();

type BoxError = Box<dyn Error + Send + Sync>;

struct Conn;

impl Conn {
    async fn run(&mut self, _sql: &str) -> Result<u32, BoxError> {
        Ok(7)
    }

    /// Not spawned: a closure may capture the argument.
    async fn query(&mut self, sql: &str) -> u32 {
        P.retry_on(self, async |conn| conn.run(sql).await).when(|_| true).await.unwrap_or(0)
    }

    async fn query_in_a_task(&mut self, sql: &str) -> u32 {
        P.retry_with_context((self, sql), |(conn, sql), attempt| async move {
            let result = if attempt.number() > 9 { Err("too many".into()) } else { conn.run(sql).await };
            ((conn, sql), result)
        })
        .until(|value| *value > 3)
        .when(|_| true)
        .await
        .unwrap_or(0)
    }
}

trait Store {
    fn get<'a>(&'a mut self, key: &'a str) -> Pin<Box<dyn Future<Output = u32> + Send + 'a>>;
}

impl Store for Conn {
    fn get<'a>(&'a mut self, key: &'a str) -> Pin<Box<dyn Future<Output = u32> + Send + 'a>> {
        Box::pin(self.query_in_a_task(key))
    }
}

fn spawn<F: Future<Output = u32> + Send + 'static>(future: F) {
    drop(future);
}

fn main() {
    spawn(async { Conn.query_in_a_task("select 7").await });
    spawn(async { Conn.get("key").await });
    // Not spawned.
    drop(Conn.query("select 7"));
}
