//! The official programs of grpc-go against our layers, case by case, in both directions.
//!
//! Every case of grpc-go's client runs or is skipped for a reason, and so is every case of ours
//! against its server. Reasons are checked too: one that no longer holds is a failure, so that no
//! case is skipped longer than necessary.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tonic::codec::CompressionEncoding;
use tonic::{Code, Status};

use crate::BoxError;
use crate::caller::Caller;
use crate::cases::{self, CASE_MAX, CASES};
use crate::children::{self, Server};
use crate::server::TestServer;
use crate::testing::Empty;

/// The longest allowed time to download and build the programs, on a slow network and a busy
/// machine.
const BUILD_MAX: Duration = Duration::from_secs(20 * 60);

const CLIENT: &str = "google.golang.org/grpc/interop/client";
const SERVER: &str = "google.golang.org/grpc/interop/server";

/// A skipped case of grpc-go's client: the reason, and the client's error for it.
struct SkippedCase {
    name: &'static str,
    why: &'static str,
    refusal: &'static str,
}

const fn skipped(name: &'static str, why: &'static str, refusal: &'static str) -> SkippedCase {
    SkippedCase { name, why, refusal }
}

const TLS: &str = "TLS credentials need to be set";
const GOOGLE: &str = "needs an account and a server of Google";
const NO_COMPRESSION: &str = "grpc-go's client has no cases of compression";

const CLIENT_SKIPPED: &[SkippedCase] = &[
    skipped("compute_engine_creds", GOOGLE, TLS),
    skipped("service_account_creds", GOOGLE, TLS),
    skipped("jwt_token_creds", GOOGLE, TLS),
    skipped("per_rpc_creds", GOOGLE, TLS),
    skipped("oauth2_auth_token", GOOGLE, TLS),
    skipped("google_default_credentials", GOOGLE, "GoogleDefaultCredentials need to be set"),
    skipped("compute_engine_channel_credentials", GOOGLE, "ComputeEngineCreds need to be set"),
    skipped("client_compressed_unary", NO_COMPRESSION, "Unsupported test case"),
    skipped("server_compressed_unary", NO_COMPRESSION, "Unsupported test case"),
    skipped("client_compressed_streaming", NO_COMPRESSION, "Unsupported test case"),
    skipped("server_compressed_streaming", NO_COMPRESSION, "Unsupported test case"),
];

/// The skipped cases against grpc-go's server, with the reason that [`holds`] checks.
const SERVER_SKIPPED: &[(&str, Reason)] = &[
    ("pick_first_unary", Reason::Anonymous),
    ("client_compressed_unary", Reason::NoCompression),
    ("server_compressed_unary", Reason::NoCompression),
    ("client_compressed_streaming", Reason::NoCompression),
    ("server_compressed_streaming", Reason::NoCompression),
];

#[derive(Clone, Copy)]
enum Reason {
    Anonymous,
    NoCompression,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Anonymous => "grpc-go's server does not say who it is",
            Self::NoCompression => "grpc-go's server understands no compression",
        })
    }
}

/// The results of all cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Passed cases.
    pub passed: usize,
    /// Failed cases, each printed with its error.
    pub failed: usize,
    /// Skipped cases, for a checked reason.
    pub skipped: usize,
}

/// Builds the official programs with the installed Go, runs all cases, and prints the results.
/// `None` if Go is not installed.
///
/// # Errors
/// If the programs cannot be built or do not start.
pub async fn play(root: &Path) -> Result<Option<Tally>, BoxError> {
    if !children::exists("go", "version").await? {
        return Ok(None);
    }
    let programs = Programs::build(root).await?;
    let mut tally = Tally::default();

    println!("their client, our server");
    let unlisted = unlisted(&programs.help().await?);
    if !unlisted.is_empty() {
        tally.failed += unlisted.len();
        println!("  failed: cases that are in no list here: {}", unlisted.join(", "));
    }
    let server = TestServer::start()?;
    for name in CASES {
        let begun = Instant::now();
        let result = programs.play(name, server.address().port()).await;
        tally.report(name, begun.elapsed(), result);
    }
    for case in CLIENT_SKIPPED {
        let result = programs.refuses(case, server.address().port()).await;
        tally.report_skipped(case.name, case.why, result);
    }

    println!("our client, their server");
    let server = Server::start(&programs.server, CASE_MAX).await?;
    let caller = Caller::new(&format!("127.0.0.1:{}", server.port))?;
    for name in CASES.iter().filter(|name| !SERVER_SKIPPED.iter().any(|(out, _)| out == *name)) {
        let begun = Instant::now();
        let result = cases::play(name, &caller).await;
        tally.report(name, begun.elapsed(), result);
    }
    for (name, reason) in SERVER_SKIPPED {
        tally.report_skipped(name, reason, holds(*reason, &caller).await);
    }
    Ok(Some(tally))
}

impl Tally {
    fn report(&mut self, name: &str, took: Duration, result: Result<(), BoxError>) {
        match result {
            Ok(()) => {
                self.passed += 1;
                println!("  {name}: passed in {} ms", took.as_millis());
            }
            Err(problem) => {
                self.failed += 1;
                println!("  {name}: failed: {problem}");
            }
        }
    }

    fn report_skipped(&mut self, name: &str, why: impl fmt::Display, holds: Result<(), BoxError>) {
        match holds {
            Ok(()) => {
                self.skipped += 1;
                println!("  {name}: left out: {why}");
            }
            Err(problem) => {
                self.failed += 1;
                println!(
                    "  {name}: failed: left out because {why}, which does not hold: {problem}"
                );
            }
        }
    }
}

struct Programs {
    client: PathBuf,
    server: PathBuf,
}

impl Programs {
    async fn build(root: &Path) -> Result<Self, BoxError> {
        let folder = root.join("target/interop/go/official");
        std::fs::create_dir_all(&folder)?;
        let module = root.join("interop/go");
        let arguments = [
            "build".as_ref(),
            "-C".as_ref(),
            module.as_os_str(),
            "-o".as_ref(),
            folder.as_os_str(),
        ]
        .into_iter()
        .chain([CLIENT.as_ref(), SERVER.as_ref()]);
        // Not through `children::run`: the module download may need a proxy.
        let build = tokio::process::Command::new("go").args(arguments).kill_on_drop(true).output();
        let output = tokio::time::timeout(BUILD_MAX, build).await??;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("go build failed: {}", said.trim()).into());
        }
        Ok(Self { client: folder.join("client"), server: folder.join("server") })
    }

    async fn help(&self) -> Result<String, BoxError> {
        let output = children::run(&self.client, ["-help"], CASE_MAX).await?;
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    }

    async fn play(&self, name: &str, port: u16) -> Result<(), BoxError> {
        let (succeeded, said) = self.ask(name, port).await?;
        if succeeded { Ok(()) } else { Err(said.into()) }
    }

    async fn refuses(&self, case: &SkippedCase, port: u16) -> Result<(), BoxError> {
        let (succeeded, said) = self.ask(case.name, port).await?;
        if !succeeded && said.contains(case.refusal) {
            return Ok(());
        }
        Err(format!("expected the client to say `{}`, found `{said}`", case.refusal).into())
    }

    /// Whether grpc-go's client passed the case, and its output.
    async fn ask(&self, name: &str, port: u16) -> Result<(bool, String), BoxError> {
        let mut arguments = vec![
            format!("-test_case={name}"),
            "-server_host=127.0.0.1".into(),
            format!("-server_port={port}"),
        ];
        if name.ends_with("_soak") {
            // Latency is not tested here.
            arguments.push("-soak_iterations=50".into());
            arguments.push("-soak_overall_timeout_seconds=50".into());
            arguments.push("-soak_per_iteration_max_acceptable_latency_ms=50000".into());
        }
        if name.starts_with("orca_") {
            // The reports are read by a load balancer that the client uses for these cases.
            arguments.push(
                "-service_config_json={\"loadBalancingConfig\": \
                 [{\"test_backend_metrics_load_balancer\": {}}]}"
                    .into(),
            );
        }
        let output = children::run(&self.client, arguments, CASE_MAX).await?;
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Ok((output.status.success(), said))
    }
}

/// The cases in the client's help text that are in no list.
fn unlisted(help: &str) -> Vec<String> {
    let listed =
        |name: &str| CASES.contains(&name) || CLIENT_SKIPPED.iter().any(|case| case.name == name);
    let options = help.split_once("Valid options are:").map_or("", |(_, options)| options);
    let names: Vec<_> = options
        .lines()
        .skip(1)
        .map_while(|line| line.trim().split_once(':'))
        .map(|(name, _)| name.trim())
        .collect();
    if names.is_empty() {
        return vec!["the help of the client names none".into()];
    }
    names.into_iter().filter(|name| !listed(name)).map(str::to_owned).collect()
}

/// Checks whether the reason to skip cases still holds.
async fn holds(reason: Reason, caller: &Caller) -> Result<(), BoxError> {
    let mut client = caller.connect()?.client();
    match reason {
        Reason::Anonymous => {
            let answer = client.unary_call(cases::server_id_request()).await?.into_inner();
            if answer.server_id.is_empty() { Ok(()) } else { Err(answer.server_id.into()) }
        }
        Reason::NoCompression => {
            let mut client = client.send_compressed(CompressionEncoding::Gzip);
            match client.empty_call(Empty {}).await.map_err(|status: Status| status.code()) {
                Err(Code::Unimplemented) => Ok(()),
                found => Err(format!("gzip was answered with {found:?}").into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! Goal: new cases of grpc-go are detected. Method: a sample help text.

    use super::*;

    const HELP: &str = "  -test_case string\n    \tConfigure. Valid options are:\n    \t        \
                        empty_unary : nothing;\n    \t        NEW: nobody knows;\n    \t        \
                        jwt_token_creds: needs much. (default \"large_unary\")\n  -use_alts\n";

    #[test]
    fn interop_official_unlisted_case_is_reported() {
        assert_eq!(unlisted(&HELP.replace("NEW", "fast_unary")), ["fast_unary"]);
        assert_eq!(unlisted(&HELP.replace("NEW", "ping_pong")), [""; 0]);
    }

    #[test]
    fn interop_official_help_without_cases_is_an_error() {
        assert_eq!(unlisted("usage"), ["the help of the client names none"]);
    }

    #[test]
    fn interop_official_case_lists_do_not_overlap() {
        for (at, name) in CASES.iter().enumerate() {
            assert!(!CLIENT_SKIPPED.iter().any(|case| case.name == *name), "{name}");
            assert!(!CASES[..at].contains(name), "{name}");
        }
    }
}
