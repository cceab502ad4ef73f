//! A Milvus insert whose answer is lost: repeated by default, sent once with protected writes.
//!
//! `cargo run -p redial-milvus --features tonic --example insert_once`
//!
//! The server is a scripted double that counts inserts: it stands for a Milvus that executes each
//! one. `checks/milvus` shows the same with rows in milvus-lite.

#[path = "../../redial-faults/tests/grpc/codec.rs"]
mod codec;

use std::error::Error;

use bytes::Bytes;
use redial_faults::grpc::{Answer, Script, Server, StatusNumber, WaitFor};
use redial_milvus::{Options, WriteRetries};
use tonic::client::Grpc;
use tonic::transport::Endpoint;
use tonic::{Request, Status};
use tower::ServiceBuilder;

const INSERT: &str = "/milvus.proto.milvus.MilvusService/Insert";

/// The result of an insert, and how often the server executed it.
async fn insert(options: Options) -> Result<(Result<(), Status>, u64), Box<dyn Error>> {
    // The server has the whole request when its answer is replaced by UNAVAILABLE.
    let lost = Answer::trailers_only(StatusNumber::UNAVAILABLE).text("answer lost");
    let script =
        Script::new().attempts([lost.wait_for(WaitFor::Request)]).default_answer(Answer::echo());
    let server = Server::new(script).listen("127.0.0.1:0").await?;
    let channel = Endpoint::from_shared(format!("http://{}", server.addr()))?.connect_lazy();
    let layer = options.interceptor()?.log_to_stderr().layer();
    let mut client = Grpc::new(ServiceBuilder::new().layer(layer).service(channel));
    client.ready().await.map_err(|error| error.to_string())?;
    let rows = Request::new(Bytes::from_static(b"rows"));
    let result = client.unary(rows, INSERT.parse()?, codec::Raw).await.map(drop);
    Ok((result, server.counts().streams))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let (result, executed) = insert(Options::DEFAULT).await?;
    println!("default: {result:?}, executed {executed} times");
    let options = Options::DEFAULT.write_retries(WriteRetries::OnlyIfNotRun);
    let (result, executed) = insert(options).await?;
    println!("protected: {result:?}, executed {executed} times");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn insert_example_runs_twice_unless_protected() {
        let (result, executed) = insert(Options::DEFAULT).await.unwrap();
        assert_eq!((result.is_ok(), executed), (true, 2));
        let options = Options::DEFAULT.write_retries(WriteRetries::OnlyIfNotRun);
        let (result, executed) = insert(options).await.unwrap();
        assert_eq!((result.is_ok(), executed), (false, 1));
    }
}
