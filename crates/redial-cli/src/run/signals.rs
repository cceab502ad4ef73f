//! Signals: passed on to the command; those that ask to end also end the retries.

use super::run_state::RunState;

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Nothing but to pass it on.
    Continue,
    /// End now: no process runs.
    Stop(i32),
}

#[cfg(unix)]
mod system {
    use std::io;

    use rustix::process::Signal;
    use tokio::signal::unix::{Signal as Listener, SignalKind, signal};

    use super::{Asked, RunState};

    /// The signals that are passed on, and whether they end the retries.
    const PASSED_ON: [(Signal, bool); 7] = [
        (Signal::HUP, true),
        (Signal::INT, true),
        (Signal::QUIT, true),
        (Signal::TERM, true),
        (Signal::USR1, false),
        (Signal::USR2, false),
        (Signal::CONT, false),
    ];

    /// The signals that this process ignores since its start, one bit each.
    fn ignored() -> u64 {
        // Other systems than Linux have no such file, and the system call needs `unsafe`.
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
    }

    /// The signals of this process.
    pub(in crate::run) struct Signals {
        listeners: Vec<(Signal, bool, Listener)>,
        /// A child has ended.
        #[cfg(target_os = "linux")]
        children: Listener,
        foreground: bool,
    }

    impl Signals {
        pub(in crate::run) fn listen(foreground: bool) -> io::Result<Self> {
            let mut listeners = Vec::new();
            let ignored = ignored();
            for (number, ends) in PASSED_ON.into_iter().chain([(Signal::TSTP, false)]) {
                // `nohup` ignores SIGHUP, and shells ignore SIGINT for commands in the background: a
                // listener would receive it again.
                if ignored & 1 << (number.as_raw() - 1) != 0 {
                    continue;
                }
                let listener = signal(SignalKind::from_raw(number.as_raw()))?;
                listeners.push((number, ends, listener));
            }
            Ok(Signals {
                listeners,
                #[cfg(target_os = "linux")]
                children: signal(SignalKind::child())?,
                foreground,
            })
        }

        /// Waits for a signal and passes it on.
        pub(in crate::run) async fn next(&mut self, run: &RunState) -> Asked {
            let (number, ends) = std::future::poll_fn(|context| {
                #[cfg(target_os = "linux")]
                while self.children.poll_recv(context).is_ready() {
                    crate::run::process_group::reap_adopted(run.running());
                }
                for (number, ends, listener) in &mut self.listeners {
                    if listener.poll_recv(context).is_ready() {
                        return std::task::Poll::Ready((*number, *ends));
                    }
                }
                std::task::Poll::Pending
            })
            .await;
            let running = run.running();
            if let Some(group) = running
                && !self.comes_from_the_terminal(number)
            {
                group.signal(number);
                if ends {
                    // A stopped process does not end before it continues.
                    group.signal(Signal::CONT);
                }
            }
            if number == Signal::TSTP {
                // The terminal stops this process only: the command has a group of its own.
                let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
            }
            if !ends {
                return Asked::Continue;
            }
            run.end_by(number.as_raw());
            if running.is_some() { Asked::Continue } else { Asked::Stop(number.as_raw()) }
        }

        /// Whether the command gets this signal from the terminal by itself.
        fn comes_from_the_terminal(&self, signal: Signal) -> bool {
            self.foreground && matches!(signal, Signal::INT | Signal::QUIT | Signal::TSTP)
        }
    }
}

#[cfg(not(unix))]
mod system {
    use std::io;

    use super::{Asked, RunState};

    /// Ctrl-C, which the console also sends to the command.
    pub(in crate::run) struct Signals;

    const INTERRUPT: i32 = 2;

    impl Signals {
        pub(in crate::run) fn listen(_foreground: bool) -> io::Result<Self> {
            Ok(Signals)
        }

        pub(in crate::run) async fn next(&mut self, run: &RunState) -> Asked {
            if tokio::signal::ctrl_c().await.is_err() {
                std::future::pending::<()>().await;
            }
            run.end_by(INTERRUPT);
            if run.is_idle() { Asked::Stop(INTERRUPT) } else { Asked::Continue }
        }
    }
}

pub(super) use system::Signals;
