//! The steps of `cargo xtask test`: the list, and what is selected from it.
//!
//! To add a step, add an entry to [`STEPS`]; everything else (listing, naming it alone, skipping,
//! counting) follows from it. Cheap steps come first, so that a slip is seen early.

use std::fmt::Write as _;
use std::path::Path;

use crate::arguments::Arguments;
use crate::command_line::CommandLine;
use crate::features;
use crate::languages;
use crate::machine;
use crate::needs::Need;

/// When a step runs if it is not named.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum When {
    Always,
    /// With `--long`, and not once something has failed.
    Long,
}

/// One thing that must hold.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) why: &'static str,
    pub(crate) when: When,
    pub(crate) needs: &'static [Need],
    /// What to run, below the workspace's root. All of it runs even if a part fails, so that one run
    /// shows all that is wrong.
    pub(crate) lines: fn(&Path) -> Result<Vec<CommandLine>, String>,
}

const RUSTFMT: Need = Need::Component { name: "rustfmt", command: "fmt" };
const CLIPPY: Need = Need::Component { name: "clippy", command: "clippy" };
const VALGRIND: Need = Need::Program { name: "valgrind", package: "valgrind" };
const CARGO_DENY: Need = Need::CargoTool { name: "cargo-deny", version: "0.20.2" };
const CARGO_MUTANTS: Need = Need::CargoTool { name: "cargo-mutants", version: "27.1.0" };

/// The designs whose scenarios must hold, and those that the live level plays as well.
const SCENARIOS: &[&str] = &[
    "limits",
    "generic",
    "smithy",
    "couchbase",
    "milvus",
    "refused",
    "grpc-buffer",
    "grpc-config",
    "grpc-hedging",
    "grpc-refused",
    "grpc-retry",
    "grpc-throttle",
    "grpc-transparent",
];
const SCENARIOS_LIVE: &[&str] = &[
    "limits",
    "generic",
    "smithy",
    "grpc-buffer",
    "grpc-hedging",
    "grpc-retry",
    "grpc-throttle",
    "grpc-transparent",
];

/// All steps, in the order in which they run.
pub(crate) const STEPS: &[Step] = &[
    Step {
        name: "fmt",
        why: "one layout for everybody, so that a diff shows the change alone",
        when: When::Always,
        needs: &[RUSTFMT],
        lines: |_| line("cargo fmt --all --check"),
    },
    Step {
        name: "clippy",
        why: "no warning lands, in tests and examples neither",
        when: When::Always,
        needs: &[CLIPPY],
        lines: |_| line("cargo clippy --workspace --all-targets --all-features -- -D warnings"),
    },
    Step {
        name: "doc",
        why: "every link in the documentation leads somewhere",
        when: When::Always,
        needs: &[],
        lines: |_| {
            Ok(vec![
                CommandLine::new("cargo doc --workspace --no-deps --all-features")
                    .env("RUSTDOCFLAGS", "-D warnings"),
            ])
        },
    },
    Step {
        name: "features",
        why: "every crate builds with no feature, with each alone and with all",
        when: When::Always,
        needs: &[CLIPPY],
        lines: |root| {
            let metadata = CommandLine::new("cargo metadata --no-deps --format-version 1");
            features::lines(&machine::output(root, &metadata)?)
        },
    },
    Step {
        name: "no-std",
        why: "the core links where there is no std",
        when: When::Always,
        needs: &[],
        // Its own target folder: it is a workspace of its own, and would take the lock of ours.
        lines: |_| {
            line("cargo build --manifest-path checks/no-std/Cargo.toml --target-dir target/no-std")
        },
    },
    Step {
        name: "test",
        why: "unit tests, properties, drivers, documents, and every example in the documentation",
        when: When::Always,
        needs: &[],
        lines: |_| line("cargo test --workspace --all-features --no-fail-fast"),
    },
    Step {
        name: "channel-only",
        why: "evidence is found in the errors of a tonic that is built without its server, too",
        when: When::Always,
        needs: &[],
        // A workspace of its own, since features of one workspace add up.
        lines: |_| {
            line(concat!(
                "cargo test --locked --manifest-path checks/channel-only/Cargo.toml ",
                "--target-dir target/channel-only"
            ))
        },
    },
    Step {
        name: "older-tonic",
        why: "clients that were generated for another tonic work through the layer",
        when: When::Always,
        needs: &[],
        // A workspace of its own, which has that tonic and no other.
        lines: |_| {
            line(concat!(
                "cargo test --locked --manifest-path checks/older-tonic/Cargo.toml ",
                "--target-dir target/older-tonic"
            ))
        },
    },
    Step {
        name: "scenarios",
        why: "every design does what its scenarios say, in virtual time and through what users run",
        when: When::Always,
        needs: &[],
        lines: |_| Ok(vec![scenarios("", SCENARIOS), scenarios("--live", SCENARIOS_LIVE)]),
    },
    Step {
        name: "loom",
        why: "throttles, tapes and configs are exact however the steps of their users interleave",
        when: When::Always,
        needs: &[],
        lines: |_| {
            // Without its features, which only bring what loom cannot see.
            let grpc = "cargo test --package redial-grpc --release --lib --no-default-features";
            Ok(vec![
                loom("cargo test --package redial-core --release --test loom"),
                loom(grpc).arg("models"),
            ])
        },
    },
    Step {
        name: "memcheck",
        why: "the one unsafe module reads and frees nothing that is not its own, and leaks nothing",
        when: When::Always,
        needs: &[VALGRIND],
        lines: |_| Ok(vec![memcheck()]),
    },
    Step {
        name: "interop-official",
        why: "gRPC's own interoperability cases hold, with grpc-go at the other end",
        when: When::Always,
        needs: &[languages::GO],
        lines: languages::official,
    },
    Step {
        name: "interop-go",
        why: "grpc-go differs from us as docs/languages.md says, and in nothing else",
        when: When::Always,
        needs: &[languages::GO],
        lines: languages::go,
    },
    Step {
        name: "interop-java",
        why: "grpc-java differs from us as docs/languages.md says, and in nothing else",
        when: When::Always,
        needs: &[languages::JAVA, languages::MAVEN],
        lines: languages::java,
    },
    Step {
        name: "interop-python",
        why: "grpcio differs from us as docs/languages.md says, and in nothing else",
        when: When::Always,
        needs: &[languages::PYTHON],
        lines: languages::python,
    },
    Step {
        name: "interop-node",
        why: "grpc-js differs from us as docs/languages.md says, and in nothing else",
        when: When::Always,
        needs: &[languages::NODE, languages::NPM],
        lines: languages::node,
    },
    Step {
        name: "swaps",
        why: "a million configs that were in force leave nothing behind",
        when: When::Long,
        needs: &[],
        lines: |_| {
            let line = CommandLine::new("cargo test --package redial-grpc --test swaps");
            Ok(vec![line.env("REDIAL_SWAPS", "1000000")])
        },
    },
    Step {
        name: "soak",
        why: "a hundred thousand calls, servers that fail in every way, and nothing lost or left behind",
        when: When::Long,
        needs: &[],
        lines: |_| {
            let line = CommandLine::new(
                "cargo test --package redial-grpc-balance --all-features --test soak",
            );
            Ok(vec![line.env("REDIAL_SOAK_CALLS", "100000").env("REDIAL_SOAK_SEED", "2")])
        },
    },
    Step {
        name: "model",
        why: "the balanced channel keeps its promises in a hundred random histories of its servers",
        when: When::Long,
        needs: &[],
        lines: |_| {
            let line = CommandLine::new(
                "cargo test --package redial-grpc-balance --all-features --test it -- channel_invariants_hold",
            );
            Ok(vec![line.env("REDIAL_MODEL_RUNS", "100").env("REDIAL_MODEL_SEED", "1000")])
        },
    },
    Step {
        name: "generated",
        why: "the checked-in code is what the proto files give",
        when: When::Long,
        needs: &[],
        lines: |_| Ok(vec![generator(true)]),
    },
    Step {
        name: "deny",
        why: "licences, sources and bans of everything that is built in",
        when: When::Long,
        needs: &[CARGO_DENY],
        lines: |_| line("cargo deny check licenses bans sources"),
    },
    Step {
        name: "mutants",
        why: "a wrong decision in the core turns a test red (.cargo/mutants.toml says where)",
        when: When::Long,
        needs: &[CARGO_MUTANTS],
        lines: |_| line("cargo mutants --package redial-core --jobs 2"),
    },
];

/// The steps to run, in the list's order whatever the order in which they were named.
pub(crate) fn select<'a>(
    steps: &'a [Step],
    arguments: &Arguments,
) -> Result<Vec<&'a Step>, String> {
    let is_step = |name: &&String| steps.iter().any(|step| is_named(step, name));
    if let Some(unknown) = arguments.names.iter().find(|name| !is_step(name)) {
        let names: Vec<_> = steps.iter().map(|step| step.name).collect();
        return Err(format!("there is no step `{unknown}`; there are {}", names.join(", ")));
    }
    let selected = |step: &&Step| {
        if arguments.names.is_empty() {
            step.when == When::Always || arguments.long
        } else {
            arguments.names.iter().any(|name| is_named(step, name))
        }
    };
    Ok(steps.iter().filter(selected).collect())
}

/// Whether a step has this name, or one that goes on from it: `interop` is all that begin with `interop-`.
fn is_named(step: &Step, name: &str) -> bool {
    let rest = step.name.strip_prefix(name);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// The folder that only the step of this name uses.
pub(crate) fn own_folder(name: &str) -> Option<&'static str> {
    match name {
        "doc" => Some("target/doc"),
        "no-std" => Some("target/no-std"),
        // Where trybuild compiles what must not compile.
        "test" => Some("target/tests"),
        "channel-only" => Some("target/channel-only"),
        "older-tonic" => Some("target/older-tonic"),
        "loom" => Some("target/loom"),
        _ => None,
    }
}

/// What `--list` prints.
pub(crate) fn list(steps: &[Step]) -> String {
    let mut text = String::new();
    for step in steps {
        let when = match step.when {
            When::Always => "always",
            When::Long => "--long",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{:<16} {when:<7} {}", step.name, step.why);
        for need in step.needs {
            let _ = writeln!(text, "{:<24} needs {}: {}", "", need.name(), need.advice());
        }
    }
    text
}

fn line(words: &str) -> Result<Vec<CommandLine>, String> {
    Ok(vec![CommandLine::new(words)])
}

fn loom(words: &str) -> CommandLine {
    // Its own target folder: the flag changes every crate, and would build ours again afterwards.
    CommandLine::new(words).env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", "target/loom")
}

fn scenarios(level: &str, designs: &[&str]) -> CommandLine {
    let run = format!("cargo run --release --package redial-cli -- scenarios {level}");
    let line = CommandLine::new(&run);
    designs.iter().fold(line, |line, design| line.arg(format!("scenarios/{design}.json")))
}

/// Runs the generator of the checked-in code, to write it or only to check it.
pub(crate) fn generator(check: bool) -> CommandLine {
    // Its own target folder: it is a workspace of its own, and would take the lock of ours.
    let line = CommandLine::new("cargo run --quiet --locked --manifest-path")
        .arg("checks/codegen/Cargo.toml")
        .arg("--target-dir")
        .arg("target/codegen");
    if check { line.arg("--").arg("--check") } else { line }
}

fn memcheck() -> CommandLine {
    // Definite leaks only: the test harness itself keeps one block that valgrind calls possibly lost.
    let runner = "target.'cfg(all())'.runner = ['valgrind', '--error-exitcode=1', \
                  '--leak-check=full', '--show-leak-kinds=definite', \
                  '--errors-for-leak-kinds=definite']";
    CommandLine::new("cargo --config")
        .arg(runner)
        .arg("test")
        .arg("--package")
        .arg("redial")
        .arg("--all-features")
        .arg("--release")
        .arg("--test")
        .arg("memory")
        // Optimised, since that is where an invalid access has its chance, and with lines in the
        // report; without LTO, which would merge the frames that the report is to name.
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "line-tables-only")
}

#[cfg(test)]
mod tests {
    //! Goal: the right steps run, in the right order. Method: a list made up for it, and the real one.

    use std::collections::BTreeSet;

    use super::*;

    const fn step(name: &'static str, when: When) -> Step {
        Step { name, why: "why", when, needs: &[], lines: |_| Ok(Vec::new()) }
    }

    const SAMPLE: &[Step] =
        &[step("a", When::Always), step("b", When::Long), step("c", When::Always)];

    fn selected(long: bool, names: &[&str]) -> Result<Vec<&'static str>, String> {
        let names = names.iter().map(ToString::to_string).collect();
        let arguments = Arguments { long, install: false, names };
        Ok(select(SAMPLE, &arguments)?.iter().map(|step| step.name).collect())
    }

    #[test]
    fn long_steps_run_only_when_they_are_asked_for() {
        assert_eq!(selected(false, &[]).unwrap(), ["a", "c"]);
        assert_eq!(selected(true, &[]).unwrap(), ["a", "b", "c"]);
    }

    #[test]
    fn named_steps_run_alone_once_and_in_the_order_of_the_list() {
        assert_eq!(selected(false, &["c", "b", "c"]).unwrap(), ["b", "c"]);
        assert_eq!(selected(true, &["a"]).unwrap(), ["a"]);
    }

    #[test]
    fn a_family_of_steps_has_one_name() {
        let family = [step("a-b", When::Always), step("ab", When::Always), step("a", When::Long)];
        let names = vec!["a".to_owned()];
        let arguments = Arguments { long: false, install: false, names };
        let selected = select(&family, &arguments).unwrap();
        assert_eq!(selected.iter().map(|step| step.name).collect::<Vec<_>>(), ["a-b", "a"]);
    }

    #[test]
    fn an_unknown_step_is_named_together_with_those_that_exist() {
        assert_eq!(
            selected(false, &["a", "x"]).unwrap_err(),
            "there is no step `x`; there are a, b, c"
        );
    }

    #[test]
    fn every_step_has_a_name_of_its_own_and_says_why_it_is_there() {
        let names: BTreeSet<_> = STEPS.iter().map(|step| step.name).collect();
        assert_eq!(names.len(), STEPS.len());
        assert!(STEPS.iter().all(|step| !step.why.is_empty()));
    }

    #[test]
    fn the_list_says_what_each_step_needs_and_how_to_get_it() {
        let text = list(STEPS);
        assert!(STEPS.iter().all(|step| text.contains(step.why)));
        assert!(text.contains("needs valgrind: apt-get install"));
        assert!(text.contains("needs cargo-deny: cargo install --locked --root target/tools"));
    }

    #[test]
    fn a_folder_of_its_own_is_named_by_no_other_step() {
        for step in STEPS {
            let lines = (step.lines)(&crate::root()).unwrap();
            let text = lines.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
            for other in STEPS.iter().filter(|other| other.name != step.name) {
                let Some(folder) = own_folder(other.name) else { continue };
                assert!(!text.contains(folder), "{} uses {folder}", step.name);
            }
            let is_ours = ["no-std", "channel-only", "older-tonic", "loom"].contains(&step.name);
            let folder = own_folder(step.name);
            assert!(!is_ours || folder.is_some_and(|it| text.contains(it)), "{}", step.name);
        }
    }

    #[test]
    fn the_step_checks_the_generated_code_and_does_not_write_it() {
        let step = STEPS.iter().find(|step| step.name == "generated").unwrap();
        let lines = (step.lines)(Path::new(".")).unwrap();
        let line = "cargo run --quiet --locked --manifest-path checks/codegen/Cargo.toml \
                    --target-dir target/codegen";
        assert_eq!(
            lines.iter().map(ToString::to_string).collect::<Vec<_>>(),
            [format!("{line} -- --check")]
        );
        assert_eq!(generator(false).to_string(), line);
    }

    #[test]
    fn the_live_scenarios_are_a_part_of_all_scenarios() {
        assert!(SCENARIOS_LIVE.iter().all(|live| SCENARIOS.contains(live)));
        assert_eq!(
            scenarios("--live", &["smithy"]).to_string(),
            "cargo run --release --package redial-cli -- scenarios --live scenarios/smithy.json"
        );
    }
}
