//! A gRPC server that refuses the first stream of a call and answers the second one, over TCP.
//!
//! `cargo run -p redial-faults --example refuse_once`
//!
//! The client here is plain HTTP/2 and retries by hand; a test would use the client that it is about.

use std::error::Error;

use bytes::Bytes;
use http::Request;
use redial_faults::grpc::{Answer, Server};
use tokio::net::TcpStream;

/// Sends one request and returns the gRPC status, or the HTTP/2 error of the stream.
async fn call(client: &mut h2::client::SendRequest<Bytes>) -> Result<String, h2::Error> {
    let request = Request::post("http://faults.test/shop.Orders/Get")
        .header("content-type", "application/grpc")
        .body(())
        .map_err(|_| h2::Error::from(h2::Reason::INTERNAL_ERROR))?;
    let (response, _) = client.send_request(request, true)?;
    let mut body = response.await?.into_body();
    while let Some(chunk) = body.data().await {
        body.flow_control().release_capacity(chunk?.len())?;
    }
    let trailers = body.trailers().await?.unwrap_or_default();
    let status = trailers.get("grpc-status").map(|value| String::from_utf8_lossy(value.as_bytes()));
    Ok(status.unwrap_or_default().into_owned())
}

async fn run() -> Result<(String, usize), Box<dyn Error>> {
    let script = [Answer::reset(h2::Reason::REFUSED_STREAM), Answer::reply("an order")];
    let server = Server::new(script).listen("127.0.0.1:0").await?;
    println!("listening on {}", server.addr());
    let connection = TcpStream::connect(server.addr()).await?;
    let (client, connection) = h2::client::handshake(connection).await?;
    tokio::spawn(connection);
    let mut client = client.ready().await?;
    let status = match call(&mut client).await {
        Err(error) if error.reason() == Some(h2::Reason::REFUSED_STREAM) => {
            println!("attempt 1: {error}");
            call(&mut client).await?
        }
        other => other?,
    };
    println!("attempt 2: grpc-status {status}");
    drop(client);
    let record = server.shutdown().await;
    for stream in &record.streams {
        println!("server saw: {:?}", stream.end);
    }
    Ok((status, record.streams.len()))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    run().await.map(drop)
}

#[cfg(test)]
mod tests {
    #[tokio::test]
    async fn example_gets_its_answer_from_the_second_stream() {
        let (status, streams) = super::run().await.unwrap();
        assert_eq!((status.as_str(), streams), ("0", 2));
    }
}
