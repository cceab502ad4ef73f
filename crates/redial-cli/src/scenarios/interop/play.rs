//! Runs one test case: its own fault server, and one line for the program.

use std::io;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redial_faults::grpc::Server;

use super::observed::Observed;
use super::program::Program;
use super::protocol::CaseRequest;
use super::test_case::TestCase;

/// How long the server may need to receive the last frames.
const REST: Duration = Duration::from_millis(200);
/// How much longer than its own time limit a program may take to answer.
const SLOW: Duration = Duration::from_secs(60);

/// The id of the next line.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Runs the test case in the program, and returns the observed behaviour.
///
/// # Errors
/// No socket is available, or the program violates the protocol.
pub(super) async fn play(program: &Program, test_case: &TestCase) -> io::Result<Observed> {
    let server = Server::new(test_case.script.clone()).payload_bytes_kept(0);
    let server = server.listen((Ipv4Addr::LOCALHOST, 0)).await?;
    let give_up = test_case.give_up();
    let request = CaseRequest {
        // Only uniqueness matters.
        id: NEXT.fetch_add(1, Ordering::Relaxed),
        target: server.addr().to_string(),
        config: test_case.config.clone(),
        options: test_case.options.clone(),
        give_up: give_up.as_secs_f64() * 1e3,
        calls: test_case.calls.clone(),
    };
    let answer = tokio::time::timeout(give_up + SLOW, program.play(&request)).await;
    let answer = answer.map_err(|_| {
        let text =
            format!("{:?}: the program did not answer, though it was to give up", test_case.name);
        io::Error::other(text)
    })??;
    if answer.refused.is_none() && answer.calls.len() != request.calls.len() {
        let (received, requested) = (answer.calls.len(), request.calls.len());
        let text = format!(
            "{:?}: the program tells of {received} calls, not of {requested}",
            test_case.name
        );
        return Err(io::Error::other(text));
    }
    tokio::time::sleep(REST).await;
    Ok(Observed::new(answer, &server.record(), test_case.time_scale))
}
