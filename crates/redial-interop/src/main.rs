//! `redial-interop official`: gRPC's official cases against the programs of grpc-go.

use std::path::Path;
use std::process::ExitCode;

use redial_interop::official;

const USAGE: &str = "usage: redial-interop official\n\n\
    Plays gRPC's interoperability cases: our client against grpc-go's server, and grpc-go's client\n\
    against our server. Without Go it is skipped, which in CI (CI=true) is a failure.";

#[tokio::main]
async fn main() -> ExitCode {
    let words: Vec<_> = std::env::args().skip(1).collect();
    if words != ["official"] {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    match official::play(&root).await {
        Ok(Some(tally)) => {
            let official::Tally { passed, failed, left_out } = tally;
            println!("{passed} passed, {failed} failed, {left_out} left out");
            if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Ok(None) if std::env::var_os("CI").is_some_and(|ci| ci == "true") => {
            eprintln!("Go is not installed, and in CI nothing is skipped");
            ExitCode::FAILURE
        }
        Ok(None) => {
            println!("skipped: Go is not installed");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}
