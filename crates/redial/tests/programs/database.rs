//! A service that connects to its database at start-up, before the database accepts connections.

use std::io;
use std::net::SocketAddr;

use redial::{Policy, StopReason, Throttle, ms, s};
use tokio::net::{TcpSocket, TcpStream};

/// Half a minute, however many attempts that takes. There is no retry budget: the connections of a pool all
/// fail at first, and the deadline and the backoff bound their load.
static CONNECT: Policy = Policy::exponential(ms(20))
    .cap(s(2))
    .unlimited()
    .deadline(s(30))
    .throttle(Throttle::none())
    .name("connect")
    .build();

async fn connect(address: SocketAddr, log: &mut Vec<String>) -> io::Result<TcpStream> {
    let stream = CONNECT
        .retry(|| TcpStream::connect(address))
        .when(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        .notify(|error, delay| log.push(format!("{error}, next attempt in {delay:?}")))
        .await?;
    Ok(stream)
}

#[tokio::test]
async fn program_connects_when_the_database_is_up() {
    // A socket that is bound and does not listen refuses connections.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    let database = tokio::spawn(async move {
        tokio::time::sleep(ms(100)).await;
        let listener = socket.listen(16).unwrap();
        listener.accept().await.unwrap();
    });
    let mut log = Vec::new();
    connect(address, &mut log).await.expect("the database is up after 100 ms");
    database.await.unwrap();
    assert!(!log.is_empty() && log[0].contains("refused"), "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn program_gives_up_after_half_a_minute() {
    let mut tries = 0;
    let refused = || {
        tries += 1;
        std::future::ready(Err::<(), _>(io::Error::from(io::ErrorKind::ConnectionRefused)))
    };
    let error = CONNECT.retry(refused).when(|_| true).await;
    let error = error.expect_err("it is never up");
    // It does not sleep if the next attempt, at most 2 s later, could not start in time.
    assert_eq!((error.stop_reason(), error.attempts()), (StopReason::Deadline, tries));
    assert!(error.elapsed() <= s(30) && error.elapsed() >= s(28), "{error}");
}
