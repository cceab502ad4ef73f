//! `redial ui`: check, plan and simulate on a page in the browser (docs/ui.md).
//!
//! The page is static. It sends the texts of its editors here and shows the answers: everything is
//! computed by the functions behind `redial check`, `plan` and `simulate`, and the pictures are those of
//! `redial-sim`.
//!
//! Only this machine can connect, and only with the token in the address. [`Limits`] bound what a page
//! can ask for. A page that is closed stops its runs.

mod access;
mod browser;
mod catalog;
mod check;
mod command_line;
mod files;
mod limits;
mod page;
mod plan;
mod request;
mod runs;
mod server;
mod simulate;

use std::io::{self, Write};
use std::time::Duration;

use crate::faults::Signals;
use crate::output::{OK, UNREADABLE};

pub use limits::{BODY_BYTES_MAX, INTERVALS_MAX, NAME_BYTES_MAX, POLICIES_MAX};
pub use server::{Activity, Limits, Server};

/// How long open requests may take to end after Ctrl-C.
const PATIENCE: Duration = Duration::from_secs(2);

/// The arguments of `redial ui`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Arguments {
    /// The port on 127.0.0.1; 0 takes any free port.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub port: u16,
    /// Open the page in the browser: the program in BROWSER, or that of the desktop.
    #[arg(long)]
    pub open: bool,
}

const HELP: &str = "\
The first line of the output is the address of the page, with a random token. Keep it to yourself:
whoever has it can use the page on this machine. Ctrl-C ends the command.

Exit codes: 0 ended by Ctrl-C, 2 the port cannot be used, or wrong usage.";

/// Serves the page until a signal. Returns 0 then, and 2 if the port cannot be used.
///
/// # Errors
/// The output cannot be written, or there is no runtime.
pub fn run(arguments: &Arguments, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<u8> {
    let server = match Server::bind(arguments.port, Limits::default()) {
        Ok(server) => server,
        Err(error) => {
            let port = arguments.port;
            writeln!(err, "redial: cannot listen on 127.0.0.1:{port}: {error}")?;
            writeln!(err, "redial: leave --port out for any free port")?;
            return Ok(UNREADABLE);
        }
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let served = runtime.block_on(serve(server, arguments.open, out, err));
    // A run sees within milliseconds that it has to stop.
    runtime.shutdown_timeout(PATIENCE);
    served.map(|()| OK)
}

async fn serve(
    server: Server,
    open: bool,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<()> {
    let signals = Signals::new()?;
    writeln!(out, "{}", server.url())?;
    out.flush()?;
    writeln!(err, "Ctrl-C ends the command.")?;
    err.flush()?;
    let opening = open.then(|| server.opening_url());
    let mut served = std::pin::pin!(server.serve(signals.any()));
    if let Some(url) = opening {
        let mut opened = tokio::task::spawn_blocking(move || browser::open(&url));
        tokio::select! {
            served = &mut served => return served,
            opened = &mut opened => {
                if let Ok(Err(problem)) = opened {
                    writeln!(err, "redial: {problem}; open the address yourself")?;
                    err.flush()?;
                }
            }
        }
    }
    served.await
}
