//! `redial-interop official`: gRPC's official cases against the programs of grpc-go.
//! `redial-interop servers LANGUAGE PROGRAM`: our client against a server written with another library.

use std::path::Path;
use std::process::ExitCode;

use redial_interop::{BoxError, official, servers};

const USAGE: &str = "usage: redial-interop official\n\
    \x20      redial-interop servers LANGUAGE PROGRAM\n\n\
    official: plays gRPC's interoperability cases: our client against grpc-go's server, and grpc-go's client\n\
    against our server. Without Go it is skipped, which in CI (CI=true) is a failure.\n\n\
    servers: plays our cases against a server written with the library of another language, as\n\
    interop/README.md says; PROGRAM is a command line whose words are apart by blanks.";

#[tokio::main]
async fn main() -> ExitCode {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let played = match words.as_slice() {
        ["official"] => official(&root).await,
        ["servers", language, program] => servers(&root, language, program).await,
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    played.unwrap_or_else(|problem| {
        eprintln!("{problem}");
        ExitCode::FAILURE
    })
}

async fn official(root: &Path) -> Result<ExitCode, BoxError> {
    match official::play(root).await? {
        Some(official::Tally { passed, failed, skipped }) => {
            println!("{passed} passed, {failed} failed, {skipped} left out");
            Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        None if std::env::var_os("CI").is_some_and(|ci| ci == "true") => {
            Err("Go is not installed, and in CI nothing is skipped".into())
        }
        None => {
            println!("skipped: Go is not installed");
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn servers(root: &Path, language: &str, program: &str) -> Result<ExitCode, BoxError> {
    let servers::Tally { passed, failed } = servers::play(root, language, program).await?;
    println!("{passed} passed, {failed} failed");
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
