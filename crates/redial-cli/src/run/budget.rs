//! A retry budget that the processes of a user share: a small file, locked for each change.
//!
//! The system releases the lock of a process that ends, however it ends. The file has one record of a
//! fixed size, written at once: a process that is killed leaves the old record or the new one. A file
//! that cannot be understood, because the machine stopped while it was written, counts as a full
//! budget.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redial::throttle::{Bucket, Cost, Grant, RetryBudget, Withdrawal};
use redial::time::Ns;
use serde::{Deserialize, Serialize};

/// How long a change waits for the lock. Other processes hold it for microseconds; one that was
/// stopped while it held it must not stop the others.
const LOCK_MAX: Duration = Duration::from_secs(2);
/// How often the lock is tried.
const LOCK_POLL: Duration = Duration::from_millis(5);
/// The size of the file, and how much of it is read. Two numbers with their names need less.
const RECORD_BYTES: usize = 128;

/// A budget in a file.
#[derive(Debug)]
pub(super) struct FileBudget {
    path: PathBuf,
    parameters: RetryBudget,
}

/// The content of the file.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Stored {
    /// The tokens at `at`.
    tokens: f64,
    /// The time up to which the refill has been added, in nanoseconds since 1970.
    at: Ns,
}

impl FileBudget {
    /// The budget of this name.
    ///
    /// # Errors
    /// Its folder or file cannot be written.
    pub(super) fn open(name: &str, parameters: RetryBudget) -> io::Result<Self> {
        let folder = folder().ok_or_else(|| {
            io::Error::other("no folder for it: set HOME, XDG_STATE_HOME or XDG_RUNTIME_DIR")
        })?;
        FileBudget::open_in(&folder, name, parameters).map_err(|error| {
            io::Error::new(error.kind(), format!("{} cannot be used: {error}", folder.display()))
        })
    }

    fn open_in(folder: &Path, name: &str, parameters: RetryBudget) -> io::Result<Self> {
        create_private(folder)?;
        let budget = FileBudget { path: folder.join(name), parameters };
        budget.change(|_, _, _| ((), None))?;
        Ok(budget)
    }

    /// Changes the budget under its lock; returns the tokens that are left, too. The change returns
    /// the time up to which it has added the refill, if it has added any.
    fn change<T>(
        &self,
        change: impl FnOnce(&RetryBudget, Stored, Ns) -> (T, Option<Ns>),
    ) -> io::Result<(T, f64)> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&self.path)?;
        // Reading from a pipe could wait without end.
        if !file.metadata()?.is_file() {
            return Err(io::Error::other(format!("{} is no file", self.path.display())));
        }
        lock(&file)?;
        let now = unix_now();
        let mut text = String::new();
        // A text that is not UTF-8 is not understood either.
        let _ = Read::by_ref(&mut file).take(RECORD_BYTES as u64).read_to_string(&mut text);
        let stored = serde_json::from_str(&text).unwrap_or(Stored { tokens: f64::MAX, at: now });
        // A clock that was set back must not stop the refill until it has caught up.
        let at = stored.at.min(now);
        let budget = self.parameters.with_tokens(stored.tokens, at);
        let tokens = budget.tokens(now).unwrap_or(0.0);
        let (result, refilled) = change(&budget, Stored { tokens, at }, now);
        let tokens = budget.tokens(now).unwrap_or(0.0);
        let mut text = serde_json::to_string(&Stored { tokens, at: refilled.unwrap_or(at) })?;
        text.extend(std::iter::repeat_n(' ', RECORD_BYTES.saturating_sub(text.len() + 1)));
        text.push('\n');
        file.seek(SeekFrom::Start(0))?;
        file.write_all(text.as_bytes())?;
        Ok((result, tokens))
    }

    fn take(&self, budget: &RetryBudget, before: Stored, cost: Cost, now: Ns) -> (Grant, Ns) {
        let grant = budget.withdraw(cost, now);
        let taken = if grant == Grant::Refused { 0.0 } else { 1.0 };
        let refilled = budget.tokens(now).unwrap_or(0.0) + taken;
        let (reserve, _, per_second) = self.parameters.parameters();
        if refilled >= reserve || per_second == 0.0 {
            return (grant, now);
        }
        // The refill counts in thousandths of a token: the rest of the time counts the next time.
        let paid = (refilled - before.tokens).max(0.0) / per_second;
        (grant, before.at.saturating_add((paid * 1e9) as Ns).min(now))
    }
}

impl Bucket for FileBudget {
    fn watches_calls(&self) -> bool {
        false
    }

    fn withdraw(&self, cost: Cost, _now: Ns) -> Grant {
        match self.change(|budget, before, now| {
            let (grant, refilled) = self.take(budget, before, cost, now);
            (grant, Some(refilled))
        }) {
            Ok((grant, _)) => grant,
            // Without its budget a retry could be one of too many.
            Err(error) => {
                print_error!("redial: the budget {} cannot be used: {error}", self.path.display());
                Grant::Refused
            }
        }
    }

    fn refund(&self, withdrawal: Withdrawal) {
        let _ = self.change(|budget, _, _| (budget.refund(withdrawal), None));
    }

    fn succeeded(&self, withdrawal: Option<Withdrawal>) {
        let _ = self.change(|budget, _, _| (budget.succeeded(withdrawal), None));
    }

    fn tokens(&self, _now: Ns) -> Option<f64> {
        self.change(|_, _, _| ((), None)).ok().map(|((), left)| left)
    }
}

fn lock(file: &File) -> io::Result<()> {
    let until = Instant::now() + LOCK_MAX;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if Instant::now() < until => {
                std::thread::sleep(LOCK_POLL);
            }
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::other("another process holds its lock"));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

fn unix_now() -> Ns {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// The folder of the budgets: in that of the user's state, which cron jobs and login sessions both
/// find. The folder of the session, which ends with it, is for users without a home.
fn folder() -> Option<PathBuf> {
    let variable = |name: &str| {
        let value = std::env::var_os(name).filter(|value| !value.is_empty())?;
        Some(PathBuf::from(value)).filter(|path| path.is_absolute())
    };
    let state = || variable("XDG_STATE_HOME");
    let home = || Some(variable("HOME")?.join(".local").join("state"));
    let windows = || variable("LOCALAPPDATA");
    let session = || variable("XDG_RUNTIME_DIR");
    let base = state().or_else(home).or_else(windows).or_else(session)?;
    Some(base.join("redial").join("budgets"))
}

/// Creates a folder that only its owner can read, with its parents.
fn create_private(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use redial::FailureKind;

    const COST: Cost = Cost { kind: FailureKind::Server };

    fn open(folder: &Path, parameters: RetryBudget) -> FileBudget {
        FileBudget::open_in(folder, "test", parameters).expect("the folder is writable")
    }

    #[test]
    fn file_budget_is_shared_by_all_that_open_it() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (
            open(folder.path(), RetryBudget::new(3.0, 0.5)),
            open(folder.path(), RetryBudget::new(3.0, 0.5)),
        );
        assert_ne!(one.withdraw(COST, 0), Grant::Refused);
        assert_ne!(two.withdraw(COST, 0), Grant::Refused);
        assert_ne!(one.withdraw(COST, 0), Grant::Refused);
        assert_eq!(two.withdraw(COST, 0), Grant::Refused);
        one.succeeded(None);
        two.succeeded(None);
        assert_ne!(one.withdraw(COST, 0), Grant::Refused);
        assert_eq!(two.tokens(0), Some(0.0));
        two.refund(Withdrawal(1000));
        assert_eq!(one.tokens(0), Some(1.0));
    }

    #[test]
    fn file_budget_refills_over_time() {
        let folder = tempfile::tempdir().unwrap();
        let budget = open(folder.path(), RetryBudget::new(1.0, 0.0).per_second(50.0));
        let begin = Instant::now();
        assert_ne!(budget.withdraw(COST, 0), Grant::Refused);
        let mut refused = 0;
        // A success in between must not move the time of the refill.
        while budget.withdraw(COST, 0) == Grant::Refused {
            budget.succeeded(None);
            refused += 1;
            assert!(begin.elapsed() < Duration::from_secs(20), "it never refills");
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(refused > 0 || begin.elapsed() >= Duration::from_millis(20));
    }

    #[test]
    fn file_budget_that_is_damaged_is_full() {
        let folder = tempfile::tempdir().unwrap();
        for content in ["", "{\"tokens\":0,\"at\":", "\u{0}\u{0}\u{0}", &"x".repeat(10_000)] {
            fs::write(folder.path().join("test"), content).unwrap();
            let budget = open(folder.path(), RetryBudget::new(2.0, 0.1));
            assert_eq!(budget.tokens(0), Some(2.0), "{content:.10}");
            assert_ne!(budget.withdraw(COST, 0), Grant::Refused);
            assert_eq!(open(folder.path(), RetryBudget::new(2.0, 0.1)).tokens(0), Some(1.0));
        }
    }

    #[test]
    fn file_budget_record_has_one_size() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("test");
        for content in ["", "{\"tokens\":1.0,\"at\":5}", "{\"tokens\":1e300,\"at\":5}"] {
            fs::write(&path, content).unwrap();
            let budget = open(folder.path(), RetryBudget::new(2.0, 0.001).per_second(0.37));
            budget.withdraw(COST, 0);
            budget.succeeded(None);
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.len() == RECORD_BYTES && text.ends_with('\n'), "{text:?}");
        }
        let longest = Stored { tokens: -f64::MIN_POSITIVE, at: u64::MAX };
        assert!(serde_json::to_string(&longest).unwrap().len() < RECORD_BYTES);
    }

    #[test]
    fn file_budget_ignores_what_follows_its_record() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("test");
        let open = || open(folder.path(), RetryBudget::new(2.0, 0.1));
        assert_ne!(open().withdraw(COST, 0), Grant::Refused);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{text}a tail")).unwrap();
        assert_eq!(open().tokens(0), Some(1.0));
    }

    #[test]
    fn file_budget_counts_exactly_under_contention() {
        let folder = tempfile::tempdir().unwrap();
        let granted: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let budget = open(folder.path(), RetryBudget::new(50.0, 0.0));
                        (0..20).filter(|_| budget.withdraw(COST, 0) != Grant::Refused).count()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(granted, 50);
    }
}
