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

    pub(super) fn terminate(self, _child: &mut Child) {
        self.signal(Signal::TERM);
        // A stopped process does not end before it continues.
        self.signal(Signal::CONT);
    }

    pub(super) fn kill(self, _child: &mut Child) {
        self.signal(Signal::KILL);
    }

    /// The command was waited for. Its number may belong to another process by now, while a group
    /// keeps its number as long as it has members.
    pub(super) fn command_has_ended(&mut self) {
        if self.alone {
            self.leader = None;
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

/// Waits for adopted processes that have ended, so that they do not stay zombies as long as the
/// command runs. The command itself is waited for by its attempt.
#[cfg(target_os = "linux")]
pub(super) fn reap_adopted(running: Option<Group>) {
    let command = running.and_then(|group| group.leader);
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    for thread in threads {
        // An old kernel can have no such file: then they are waited for with their group.
        let children = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        let pids = children.split_whitespace().filter_map(|pid| pid.parse().ok());
        for pid in pids.filter_map(Pid::from_raw).filter(|pid| Some(*pid) != command) {
            let _ = rustix::process::waitpid(Some(pid), WaitOptions::NOHANG);
        }
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

    pub(super) fn command_has_ended(&mut self) {}

    pub(super) fn has_members(self) -> bool {
        false
    }
}
