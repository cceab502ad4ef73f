//! The process group of an attempt.
//!
//! On Unix the command leads a group of its own, and signals reach all of it. On other systems only
//! the command itself can be ended.

use tokio::process::Child;

#[cfg(unix)]
use rustix::process::{Pid, Signal, WaitOptions};

/// The processes of an attempt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    #[cfg(unix)]
    leader: Option<Pid>,
    #[cfg(unix)]
    alone: bool,
}

#[cfg(unix)]
impl Group {
    /// The group that this process leads, or the process alone.
    pub(super) fn new(child: &Child, alone: bool) -> Self {
        let leader = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Group { leader, alone }
    }

    pub(super) fn terminate(self, child: &mut Child) {
        self.signal_if_running(child, Signal::TERM);
        // A stopped process does not end before it continues.
        self.signal_if_running(child, Signal::CONT);
    }

    pub(super) fn kill(self, child: &mut Child) {
        self.signal_if_running(child, Signal::KILL);
    }

    fn signal_if_running(self, child: &Child, signal: Signal) {
        // The number of a process that was waited for may belong to another process by now. A group
        // keeps its number as long as it has members.
        if !self.alone || child.id().is_some() {
            self.signal(signal);
        }
    }

    /// Sends a signal to all of it.
    pub(super) fn signal(self, signal: Signal) {
        let Some(leader) = self.leader else { return };
        // An error says that there is no such process any more.
        let _ = match self.alone {
            true => rustix::process::kill_process(leader, signal),
            false => rustix::process::kill_process_group(leader, signal),
        };
    }

    /// Whether processes of the group are left, after the command itself was waited for.
    pub(super) fn has_members(self) -> bool {
        let Some(leader) = self.leader.filter(|_| !self.alone) else { return false };
        // Orphans of the group are our children, since this process is a subreaper: without this,
        // those that have ended would count as members.
        while let Ok(Some(_)) = rustix::process::waitpgid(leader, WaitOptions::NOHANG) {}
        rustix::process::test_kill_process_group(leader).is_ok()
    }
}

/// Makes this process the parent of orphans among its descendants, where the system can do that.
pub(super) fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    {
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    }
}

#[cfg(not(unix))]
impl Group {
    pub(super) fn new(_child: &Child, _alone: bool) -> Self {
        Group {}
    }

    pub(super) fn terminate(self, child: &mut Child) {
        let _ = child.start_kill();
    }

    pub(super) fn kill(self, child: &mut Child) {
        let _ = child.start_kill();
    }

    pub(super) fn has_members(self) -> bool {
        false
    }
}
