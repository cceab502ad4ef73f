//! Goal: a patch that proves nothing is reported by name. Method: a scripted tree for the verdicts, and
//! a temporary git repository for what git does.

use std::collections::VecDeque;
use std::process::Command;

use super::*;

const DIFF: &str = "--- a/src/lib.rs\n+++ b/src/lib.rs\n@@ -1 +1 @@\n-old\n+new\n";

fn parsed(name: &str, text: &str) -> Result<Regression, String> {
    parse(&PathBuf::from(format!("tests/regressions/{name}.patch")), text)
}

fn regression(name: &str) -> Regression {
    let text = format!("# cargo test -p redial --all-features {name}\n{DIFF}");
    parsed(name, &text).expect("it is complete")
}

#[test]
fn regression_patch_starts_with_its_test_command() {
    let Regression { name, command, .. } = regression("budget_is_shared");
    assert_eq!(name, "budget_is_shared");
    assert_eq!(command.to_string(), "cargo test -p redial --all-features budget_is_shared");
    let path = format!("# cargo test -p redial --lib retry::tests::a_b -- --exact\n{DIFF}");
    assert!(
        parsed("a_b", &path).is_ok(),
        "a path before the name and options after it are allowed"
    );
}

#[test]
fn regression_patch_without_a_first_line_is_refused() {
    let expected = "`# cargo test -p <crate> --all-features <test>`";
    let problem = parsed("a_b", DIFF).unwrap_err();
    assert_eq!(problem, format!("a_b: the first line must be {expected}, not `--- a/src/lib.rs`"));
    let problem = parsed("a_b", "").unwrap_err();
    assert_eq!(problem, format!("a_b: the first line must be {expected}, not ``"));
    let problem = parsed("a_b", &format!("# rm -rf target\n{DIFF}")).unwrap_err();
    assert!(problem.contains("not `# rm -rf target`"), "{problem}");
}

#[test]
fn regression_patch_must_name_its_test_and_have_a_diff() {
    let problem = parsed("a_b", &format!("# cargo test -p redial a_c\n{DIFF}")).unwrap_err();
    assert_eq!(problem, "a_b: the command does not name the test: `cargo test -p redial a_c`");
    let problem = parsed("a_b", "# cargo test -p redial a_b\n").unwrap_err();
    assert_eq!(problem, "a_b: there is no diff after the first line");
}

/// Answers from lists, and remembers what was done.
#[derive(Default)]
struct Scripted {
    runs: VecDeque<TestRun>,
    refused: Vec<&'static str>,
    applied: usize,
    restored: usize,
}

impl Tree for Scripted {
    fn apply(&mut self, patch: &Path) -> Result<(), String> {
        if self.refused.iter().any(|name| patch.ends_with(format!("{name}.patch"))) {
            return Err("error: patch failed".to_owned());
        }
        self.applied += 1;
        Ok(())
    }

    fn restore(&mut self) -> Result<(), String> {
        self.restored += 1;
        Ok(())
    }

    fn test(&mut self, _: &CommandLine) -> TestRun {
        self.runs.pop_front().expect("one more test run than scripted")
    }
}

fn checked(names: &[&str], tree: &mut Scripted) -> (Vec<String>, Vec<String>) {
    let regressions: Vec<_> = names.iter().map(|name| regression(name)).collect();
    let mut said = Vec::new();
    let problems = check(&regressions, tree, &mut |text: &str| said.push(text.to_owned()));
    assert!(tree.runs.is_empty(), "all scripted runs are used");
    assert_eq!(tree.applied, tree.restored);
    (problems, said)
}

#[test]
fn regression_test_must_pass_before_and_fail_after_the_patch() {
    use TestRun::{Failed, NoTest, NotRun, Passed};
    let mut tree =
        Scripted { runs: [Passed, Passed, Failed, Failed].into(), ..Scripted::default() };
    let (problems, said) = checked(&["a", "b"], &mut tree);
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!(
        said,
        ["a", "b"].map(|it| format!("{it}: the test fails with the patch, as it should"))
    );
    for (run, problem) in [
        (Passed, "a: the test passes in spite of the patch: "),
        (NoTest, "a: the patch removes the test: "),
        (NotRun, "a: the patched code does not build"),
    ] {
        let mut tree = Scripted { runs: [Passed, run].into(), ..Scripted::default() };
        let (problems, said) = checked(&["a"], &mut tree);
        assert!(problems[0].starts_with(problem) && problems.len() == 1, "{problems:?}");
        assert!(said.is_empty());
    }
    for (run, problem) in [
        (Failed, "a: the test fails without the patch: "),
        (NoTest, "a: the command runs no test: "),
        (NotRun, "a: the test does not build: "),
    ] {
        let mut tree = Scripted { runs: [run].into(), ..Scripted::default() };
        let (problems, _) = checked(&["a"], &mut tree);
        assert!(problems[0].starts_with(problem) && problems.len() == 1, "{problems:?}");
        assert_eq!(tree.applied, 0, "a patch proves nothing about a test that is red already");
    }
}

#[test]
fn regression_patch_that_does_not_apply_fails_alone() {
    let runs = [TestRun::Passed, TestRun::Passed, TestRun::Failed].into();
    let mut tree = Scripted { runs, refused: vec!["a"], ..Scripted::default() };
    let (problems, said) = checked(&["a", "b"], &mut tree);
    assert_eq!(problems, ["a: the patch does not apply: error: patch failed"]);
    assert_eq!(said, ["b: the test fails with the patch, as it should"]);
}

#[test]
fn regression_run_tells_failed_tests_from_failed_builds() {
    let ok = "running 1 test\ntest result: ok. 1 passed; 0 failed; 0 ignored\n";
    let none = "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 40 filtered out\n";
    assert_eq!(classify(true, &format!("{none}{ok}")), TestRun::Passed);
    assert_eq!(classify(true, none), TestRun::NoTest);
    assert_eq!(classify(true, ""), TestRun::NoTest);
    let red =
        "test result: FAILED. 0 passed; 1 failed\nerror: test failed, to rerun pass `--lib`\n";
    assert_eq!(classify(false, red), TestRun::Failed);
    assert_eq!(classify(false, "error: test failed\nsignal: 6, SIGABRT\n"), TestRun::Failed);
    assert_eq!(classify(false, "error: could not compile `redial`\n"), TestRun::NotRun);
}

/// A git repository with one file, removed when dropped.
struct Repository(PathBuf);

impl Repository {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("xtask-{name}-{}", std::process::id()));
        fs::create_dir_all(folder.join(PATCHES))
            .expect("the folder for temporary files is writable");
        let repository = Repository(folder);
        repository.write("code.txt", "one\n");
        repository.git(&["init", "--quiet"]);
        repository.git(&["config", "user.name", "test"]);
        repository.git(&["config", "user.email", "test@example.com"]);
        repository.git(&["add", "code.txt"]);
        repository.git(&["commit", "--quiet", "--message", "first"]);
        repository
    }

    fn write(&self, file: &str, text: &str) -> PathBuf {
        let path = self.0.join(file);
        fs::write(&path, text).expect("the folder for temporary files is writable");
        path
    }

    fn git(&self, arguments: &[&str]) {
        let status = Command::new("git").args(arguments).current_dir(&self.0).status();
        assert!(status.expect("git runs").success(), "git {arguments:?}");
    }
}

impl Drop for Repository {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn regression_worktree_applies_and_restores_without_touching_the_sources() {
    let repository = Repository::new("regressions");
    let root = &repository.0;
    // An uncommitted change is part of what is checked.
    repository.write("code.txt", "one\ntwo\n");
    let header = "# cargo test -p a b\n--- a/code.txt\n+++ b/code.txt\n";
    let fits =
        repository.write("fits.patch", &format!("{header}@@ -1,2 +1,2 @@\n one\n-two\n+2\n"));
    let stale = repository.write("stale.patch", &format!("{header}@@ -1,1 +1,1 @@\n-zero\n+0\n"));
    let folder = Path::new("target/tree");
    let mut tree =
        Worktree::create(root, folder, Path::new("target/build")).expect("it is a repository");
    let copy = || fs::read_to_string(root.join(folder).join("code.txt")).expect("it is there");

    let problem = tree.apply(&stale).unwrap_err();
    assert!(problem.contains("patch does not apply"), "{problem}");
    assert_eq!(copy(), "one\ntwo\n");
    tree.apply(&fits).expect("it applies");
    assert_eq!(copy(), "one\n2\n");
    tree.restore().expect("git restores");
    assert_eq!(copy(), "one\ntwo\n");
    assert_eq!(fs::read_to_string(root.join("code.txt")).unwrap(), "one\ntwo\n");
    drop(tree);
    assert!(!root.join(folder).exists());
    // A second run starts from nothing.
    drop(Worktree::create(root, folder, Path::new("target/build")).expect("it is a repository"));
}

#[test]
fn regression_folder_without_patches_is_a_problem() {
    let repository = Repository::new("no-regressions");
    let none = format!("there are no patches in {PATCHES}");
    assert_eq!(read(&repository.0), (Vec::new(), vec![none]));
    repository.write("tests/regressions/b_c.patch", DIFF);
    repository.write("tests/regressions/a_b.patch", &format!("# cargo test -p redial a_b\n{DIFF}"));
    repository.write("tests/regressions/README.md", "");
    let (regressions, problems) = read(&repository.0);
    assert_eq!(regressions.iter().map(|it| &*it.name).collect::<Vec<_>>(), ["a_b"]);
    assert!(problems.len() == 1 && problems[0].starts_with("b_c: "), "{problems:?}");
}

#[test]
fn regression_patches_of_the_project_apply_and_name_a_test() {
    let root = crate::root();
    let (regressions, mut problems) = read(&root);
    let tests = crate::names::Names::existing_in(&root).expect("the sources are readable").tests;
    for Regression { name, patch, .. } in &regressions {
        let check = CommandLine::new("git apply --check").arg(patch.to_string_lossy());
        match machine::captured(&root, &check) {
            Ok((true, _)) => {}
            Ok((false, reason)) | Err(reason) => problems.push(format!("{name}: {reason}")),
        }
        if !tests.contains(name) {
            problems.push(format!("{name}: there is no such test"));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(regressions.len() > 10, "{} patches", regressions.len());
}
