//! Calls as users write them.

use std::io;

use redial::{Hedged, Policy, ms, s};

static FETCH: Policy = Policy::exponential(ms(100)).cap(s(5)).attempts(5).deadline(s(10)).build();
static READ: Hedged = Policy::hedged(ms(20)).attempts(3).build();

struct Db;
struct Conn;
#[derive(Clone, Copy)]
struct Status(bool);

impl Db {
    async fn user(&self, id: u32) -> io::Result<u32> {
        Ok(id)
    }
    async fn status(&self) -> io::Result<Status> {
        Ok(Status(true))
    }
}

impl Conn {
    async fn query(&mut self, sql: &str) -> io::Result<usize> {
        Ok(sql.len())
    }
}

impl Status {
    fn is_done(self) -> bool {
        self.0
    }
}

async fn fetch(url: &str, number: u32, remaining: Option<std::time::Duration>) -> io::Result<u32> {
    assert_eq!((url, remaining), ("url", Some(s(10))));
    Ok(number)
}

fn is_transient(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::TimedOut
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> io::Result<()> {
    let (db, job, replica, mut conn, id, url, sql) = (Db, Db, Db, Conn, 7, "url", "select");

    let user = redial::retry(|| db.user(id)).when(is_transient).await?;
    assert_eq!(user, 7);
    FETCH.retry(|| db.user(id)).when(is_transient).await?;

    FETCH.retry_with(|attempt| fetch(&url, attempt.number(), attempt.remaining())).when(is_transient).await?;
    FETCH.retry_on(&mut conn, async |c| c.query(sql).await).when(is_transient).await?;

    FETCH.retry(|| std::fs::read("Cargo.toml")).when(is_transient).call()?;
    READ.retry(|| replica.user(id)).when(is_transient).await?;
    let status = FETCH.retry(|| job.status()).until(|status| status.is_done()).when(is_transient).await;
    assert!(status.is_ok_and(Status::is_done));

    tokio::spawn(redial::retry(|| async { io::Result::Ok(1) }).when(is_transient).into_future());
    Ok(())
}
