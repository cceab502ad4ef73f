//! A Milvus insert whose answer is lost: repeated by default, executed once with protected writes. A
//! protected insert is still repeated if the server has refused it unseen.
//!
//! `cargo run -p redial-milvus --features tonic --example insert_once`
//!
//! The server is a scripted double that counts inserts: it stands for a Milvus that executes each
//! one. `checks/milvus` shows the same with rows in milvus-lite.

#[path = "../../redial-faults/tests/grpc/codec.rs"]
mod codec;

use std::error::Error;

use bytes::Bytes;
use redial_faults::grpc::{
    Answer, Reason, Script, Server, StatusNumber, StreamOutcome, StreamRecord, WaitFor,
};
use redial_milvus::{Options, WriteRetries};
use tonic::client::Grpc;
use tonic::transport::Endpoint;
use tonic::{Request, Status};
use tower::ServiceBuilder;

const INSERT: &str = "/milvus.proto.milvus.MilvusService/Insert";

const PROTECTED: Options = Options::DEFAULT.write_retries(WriteRetries::OnlyIfNotRun);

/// The server executes the insert, and its answer is replaced by UNAVAILABLE.
fn lost() -> Answer {
    let answer = Answer::trailers_only(StatusNumber::UNAVAILABLE).text("answer lost");
    answer.wait_for(WaitFor::Request)
}

/// The server refuses the stream without a look at it, as during a restart.
fn refused() -> Answer {
    Answer::reset(Reason::REFUSED_STREAM)
}

/// The result of an insert whose first attempt meets this, and how often the server executed it.
async fn insert(
    options: Options,
    first: Answer,
) -> Result<(Result<(), Status>, usize), Box<dyn Error>> {
    let script = Script::new().attempts([first]).default_answer(Answer::echo());
    let server = Server::new(script).listen("127.0.0.1:0").await?;
    let channel = Endpoint::from_shared(format!("http://{}", server.addr()))?.connect_lazy();
    let layer = options.interceptor()?.log_to_stderr().layer();
    let mut client = Grpc::new(ServiceBuilder::new().layer(layer).service(channel));
    client.ready().await.map_err(|error| error.to_string())?;
    let rows = Request::new(Bytes::from_static(b"rows"));
    let result = client.unary(rows, INSERT.parse()?, codec::Raw).await.map(drop);
    drop(client);
    let is_executed = |stream: &&StreamRecord| {
        matches!(stream.end.map(|end| end.outcome), Some(StreamOutcome::Answered(_)))
    };
    let record = server.shutdown().await;
    Ok((result, record.streams.iter().filter(is_executed).count()))
}

fn described(result: &Result<(), Status>) -> String {
    match result {
        Ok(()) => "ok".to_owned(),
        Err(status) => format!("{:?}: {}", status.code(), status.message()),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let (result, executed) = insert(Options::DEFAULT, lost()).await?;
    println!("default, answer lost: {}, executed {executed} times", described(&result));
    let (result, executed) = insert(PROTECTED, lost()).await?;
    println!("protected, answer lost: {}, executed {executed} times", described(&result));
    let (result, executed) = insert(PROTECTED, refused()).await?;
    println!("protected, refused unseen: {}, executed {executed} times", described(&result));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn insert_example_runs_twice_unless_protected() {
        for (options, first, expected) in [
            (Options::DEFAULT, lost(), (true, 2)),
            (PROTECTED, lost(), (false, 1)),
            (PROTECTED, refused(), (true, 1)),
        ] {
            let (result, executed) = insert(options, first).await.unwrap();
            assert_eq!((result.is_ok(), executed), expected);
        }
    }
}
