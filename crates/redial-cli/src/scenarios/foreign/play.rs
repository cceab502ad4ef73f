//! Plays one scene: a scripted server of its own, and one line for the program.

use std::io;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redial_faults::grpc::Server;

use super::program::Program;
use super::protocol::Told;
use super::scene::Scene;
use super::seen::Seen;

/// How long what was done last may need to be seen by the server.
const REST: Duration = Duration::from_millis(200);
/// How much longer than a program gives a call it may take to say so.
const SLOW: Duration = Duration::from_secs(60);

/// Each line has a number of its own.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Has the program play it, and gives what was seen.
///
/// # Errors
/// A socket cannot be had, or the program does not answer as it should.
pub(super) async fn play(program: &Program, scene: &Scene) -> io::Result<Seen> {
    let server = Server::new(scene.script.clone()).payload_bytes_kept(0);
    let server = server.listen((Ipv4Addr::LOCALHOST, 0)).await?;
    let give_up = scene.give_up();
    let told = Told {
        // Only that it is another one than all others counts.
        id: NEXT.fetch_add(1, Ordering::Relaxed),
        target: server.addr().to_string(),
        config: scene.config.clone(),
        options: scene.options.clone(),
        give_up: give_up.as_secs_f64() * 1e3,
        calls: scene.calls.clone(),
    };
    let answer = tokio::time::timeout(give_up + SLOW, program.play(&told)).await;
    let answer = answer.map_err(|_| {
        let text =
            format!("{:?}: the program did not answer, though it was to give up", scene.name);
        io::Error::other(text)
    })??;
    if answer.refused.is_none() && answer.calls.len() != told.calls.len() {
        let (said, asked) = (answer.calls.len(), told.calls.len());
        let text = format!("{:?}: the program tells of {said} calls, not of {asked}", scene.name);
        return Err(io::Error::other(text));
    }
    tokio::time::sleep(REST).await;
    Ok(Seen::new(answer, &server.record(), scene.estimator))
}
