//! `cargo xtask regressions`: proves that regression tests catch the bugs they were written for.
//!
//! Each file `tests/regressions/<test>.patch` puts a bug back into the code. Its first line is the
//! command that finds the bug, as a comment: `# cargo test -p <crate> --all-features <test>`. In a copy
//! of the working tree, the test must pass without the patch and fail with it. A patch that no longer
//! applies, a patch that no longer compiles, and a command that runs no test are failures.
//!
//! The tests run without a time limit: a regression test for a deadlock needs a timeout of its own.

use std::fs;
use std::path::{Path, PathBuf};

use crate::command_line::CommandLine;
use crate::machine;

/// The patches, below the workspace's root.
const PATCHES: &str = "tests/regressions";

/// The copy of the working tree and its build, below the workspace's root.
pub(crate) const FOLDER: &str = "target/regressions";

/// A patch and the test that must notice it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Regression {
    /// The name of the file without `.patch`.
    pub(crate) name: String,
    pub(crate) patch: PathBuf,
    pub(crate) command: CommandLine,
}

/// The result of a test command.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum TestRun {
    Passed,
    Failed,
    /// The command succeeded, but its filter matched no test.
    NoTest,
    /// The tests did not run: the build failed, or the command is wrong.
    NotRun,
}

/// A copy of the sources to which patches are applied.
pub(crate) trait Tree {
    /// # Errors
    /// The patch does not apply; the tree is unchanged.
    fn apply(&mut self, patch: &Path) -> Result<(), String>;
    /// Removes what [`Tree::apply`] changed.
    ///
    /// # Errors
    /// The tree cannot be restored.
    fn restore(&mut self) -> Result<(), String>;
    fn test(&mut self, command: &CommandLine) -> TestRun;
}

/// Reads a patch file.
///
/// # Errors
/// The first line is not the command of a test.
pub(crate) fn parse(patch: &Path, text: &str) -> Result<Regression, String> {
    let name = patch.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let first = text.lines().next().unwrap_or_default();
    let command = first.strip_prefix("# ").map(str::trim).unwrap_or_default();
    if !command.starts_with("cargo test ") {
        let expected = "# cargo test -p <crate> --all-features <test>";
        return Err(format!("{name}: the first line must be `{expected}`, not `{first}`"));
    }
    if !command.split_whitespace().any(|word| word.rsplit("::").next() == Some(&name)) {
        return Err(format!("{name}: the command does not name the test: `{command}`"));
    }
    if !text.lines().any(|line| line.starts_with("--- ")) {
        return Err(format!("{name}: there is no diff after the first line"));
    }
    Ok(Regression { name, patch: patch.to_owned(), command: CommandLine::new(command) })
}

/// All patches below `root` in the order of their names, and the problems of unreadable ones.
pub(crate) fn read(root: &Path) -> (Vec<Regression>, Vec<String>) {
    let folder = root.join(PATCHES);
    let entries = fs::read_dir(&folder).map(|entries| entries.flatten().map(|entry| entry.path()));
    let mut paths: Vec<_> = entries.into_iter().flatten().collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "patch"));
    paths.sort();
    if paths.is_empty() {
        return (Vec::new(), vec![format!("there are no patches in {PATCHES}")]);
    }
    let mut regressions = Vec::new();
    let mut problems = Vec::new();
    for path in paths {
        let text =
            fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()));
        match text.and_then(|text| parse(&path, &text)) {
            Ok(regression) => regressions.push(regression),
            Err(problem) => problems.push(problem),
        }
    }
    (regressions, problems)
}

/// Checks every regression, and returns one line for each that is not noticed by its test.
pub(crate) fn check(
    regressions: &[Regression],
    tree: &mut impl Tree,
    say: &mut impl FnMut(&str),
) -> Vec<String> {
    let mut problems = Vec::new();
    // All tests without a patch first: then the unpatched sources are built only once.
    let sound = regressions.iter().filter(|regression| {
        let problem = match tree.test(&regression.command) {
            TestRun::Passed => return true,
            TestRun::Failed => "the test fails without the patch",
            TestRun::NoTest => "the command runs no test",
            TestRun::NotRun => "the test does not build",
        };
        problems.push(format!("{}: {problem}: {}", regression.name, regression.command));
        false
    });
    for Regression { name, patch, command } in sound.collect::<Vec<_>>() {
        if let Err(reason) = tree.apply(patch) {
            problems.push(format!("{name}: the patch does not apply: {reason}"));
            continue;
        }
        match tree.test(command) {
            TestRun::Failed => say(&format!("{name}: the test fails with the patch, as it should")),
            TestRun::Passed => {
                problems.push(format!("{name}: the test passes in spite of the patch: {command}"));
            }
            TestRun::NoTest => {
                problems.push(format!("{name}: the patch removes the test: {command}"));
            }
            TestRun::NotRun => problems.push(format!("{name}: the patched code does not build")),
        }
        if let Err(reason) = tree.restore() {
            problems.push(format!("{name}: the sources cannot be restored: {reason}"));
            break;
        }
    }
    problems
}

/// A git worktree with the current state of the sources, uncommitted changes of tracked files included.
pub(crate) struct Worktree {
    root: PathBuf,
    folder: PathBuf,
    target: PathBuf,
}

impl Worktree {
    /// # Errors
    /// `root` is not a git repository, or the folder cannot be written.
    pub(crate) fn create(root: &Path, folder: &Path, target: &Path) -> Result<Self, String> {
        let root = fs::canonicalize(root).map_err(|error| error.to_string())?;
        let (folder, target) = (root.join(folder), root.join(target));
        let worktree = Worktree { root, folder, target };
        // An interrupted run leaves its worktree behind.
        worktree.remove();
        // An object for the uncommitted changes; nothing is printed if there are none.
        let changes = machine::output(&worktree.root, &CommandLine::new("git stash create"))?;
        let commit = if changes.trim().is_empty() { "HEAD" } else { changes.trim() };
        let add = CommandLine::new("git worktree add --quiet --force --detach")
            .arg(worktree.folder.to_string_lossy())
            .arg(commit);
        machine::output(&worktree.root, &add)?;
        Ok(worktree)
    }

    fn remove(&self) {
        let remove = CommandLine::new("git worktree remove --force");
        // There is none in a first run.
        let _ = machine::captured(&self.root, &remove.arg(self.folder.to_string_lossy()));
        let _ = machine::captured(&self.root, &CommandLine::new("git worktree prune"));
    }
}

impl Drop for Worktree {
    fn drop(&mut self) {
        self.remove();
    }
}

impl Tree for Worktree {
    fn apply(&mut self, patch: &Path) -> Result<(), String> {
        let patch = fs::canonicalize(patch).map_err(|error| error.to_string())?;
        let apply = CommandLine::new("git apply --whitespace=nowarn").arg(patch.to_string_lossy());
        match machine::captured(&self.folder, &apply) {
            Ok((true, _)) => Ok(()),
            Ok((false, printed)) => Err(printed.trim().to_owned()),
            Err(reason) => Err(reason),
        }
    }

    fn restore(&mut self) -> Result<(), String> {
        machine::output(&self.folder, &CommandLine::new("git reset --quiet --hard"))?;
        machine::output(&self.folder, &CommandLine::new("git clean --quiet -d --force"))?;
        Ok(())
    }

    fn test(&mut self, command: &CommandLine) -> TestRun {
        let command = command.clone().env("CARGO_TARGET_DIR", &self.target.to_string_lossy());
        match machine::captured(&self.folder, &command) {
            Ok((succeeded, printed)) => {
                let run = classify(succeeded, &printed);
                if matches!(run, TestRun::NotRun) {
                    eprintln!("{printed}");
                }
                run
            }
            Err(_) => TestRun::NotRun,
        }
    }
}

/// The result of `cargo test`, from its exit status and its output.
fn classify(succeeded: bool, printed: &str) -> TestRun {
    let passed = printed.lines().filter_map(|line| {
        let (_, counts) = line.trim().strip_prefix("test result: ")?.split_once(". ")?;
        counts.split(' ').next()?.parse::<u64>().ok()
    });
    // Cargo prints this for failed assertions and for a test process that aborts, but not for a failed
    // build.
    let failed = ["error: test failed", "error: doctest failed"];
    match succeeded {
        true if passed.sum::<u64>() > 0 => TestRun::Passed,
        true => TestRun::NoTest,
        false if failed.iter().any(|line| printed.contains(line)) => TestRun::Failed,
        false => TestRun::NotRun,
    }
}

#[cfg(test)]
mod tests;
