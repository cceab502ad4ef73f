//! The command `redial`.
#![forbid(unsafe_code)]

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use redial_cli::{demo, faults, plan, scenarios, simulate};

/// Run, show and check retry behaviour.
#[derive(Debug, Parser)]
#[command(name = "redial", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run scenario files: a policy, its inputs and the expected behaviour.
    Scenarios(scenarios::Arguments),
    /// Run a fault server: a scripted server for clients in any language.
    Faults(faults::Arguments),
    /// Simulate a fleet of clients that retry, in virtual time, and compare policies.
    Simulate(simulate::Arguments),
    /// Show what a policy will do: attempts over time, probability of success, load.
    Plan(plan::Arguments),
    /// Watch a flaky operation under one policy of each design, in real time.
    Demo,
}

fn main() -> ExitCode {
    let Arguments { command } = Arguments::parse();
    let (stdout, stderr) = (io::stdout().lock(), io::stderr().lock());
    let mut out = BufWriter::new(stdout);
    let mut err = BufWriter::new(stderr);
    let done = match command {
        Command::Scenarios(arguments) => scenarios::run(&arguments, &mut out, &mut err),
        Command::Faults(arguments) => faults::run(&arguments, &mut out, &mut err),
        Command::Simulate(arguments) => simulate::run(&arguments, &mut out, &mut err),
        Command::Plan(arguments) => plan::run(&arguments, &mut out, &mut err),
        Command::Demo => demo(&mut out).map(|()| 0),
    };
    let flushed = out.flush().and_then(|()| err.flush());
    match done.and_then(|code| flushed.map(|()| code)) {
        Ok(code) => code.into(),
        // The reader of the output has closed the pipe.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("redial: cannot write: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs the demo in real time; each part is printed as it ends.
fn demo(out: &mut impl Write) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(demo::run(out, columns()))
}

/// The width of the terminal, or `COLUMNS` without one.
fn columns() -> usize {
    let terminal = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    let told = || std::env::var("COLUMNS").ok()?.parse().ok();
    terminal.or_else(told).unwrap_or(80)
}
