//! Generates the checked-in Rust code of the project's proto files, or checks that it is up to
//! date.
//!
//! The output is deterministic for a proto file and `Cargo.lock`, so a difference means that only
//! one of the files was changed. Run by `cargo xtask generate`. The code begins with a fingerprint
//! of its proto file, so that a fast test detects a changed proto file.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

/// A generated file: the proto file, the package name of the generator, the path of the code.
struct Target {
    proto: &'static str,
    package: &'static str,
    code: &'static str,
}

const TARGETS: &[Target] = &[
    Target {
        proto: "crates/redial-echo/proto/echo.proto",
        package: "redial.test",
        code: "crates/redial-echo/src/generated.rs",
    },
    Target {
        proto: "crates/redial-interop/proto/testing.proto",
        package: "grpc.testing",
        code: "crates/redial-interop/src/generated/testing.rs",
    },
    Target {
        proto: "crates/redial-interop/proto/orca.proto",
        package: "xds.service.orca.v3",
        code: "crates/redial-interop/src/generated/orca.rs",
    },
];

fn main() -> ExitCode {
    let words: Vec<_> = env::args().skip(1).collect();
    let check = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => false,
        ["--check"] => true,
        _ => {
            eprintln!("usage: codegen [--check]");
            return ExitCode::from(2);
        }
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut good = true;
    for target in TARGETS {
        match make(&root, target)
            .and_then(|code| write_or_check(&root.join(target.code), &code, check))
        {
            Ok(Generated::Unchanged) => println!("{}: up to date", target.code),
            Ok(Generated::Written) => println!("{}: written", target.code),
            Ok(Generated::Stale) => {
                eprintln!(
                    "{}: not what {} gives; run `cargo xtask generate`",
                    target.code, target.proto
                );
                good = false;
            }
            Err(problem) => {
                eprintln!("{}: {problem}", target.proto);
                good = false;
            }
        }
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

enum Generated {
    Unchanged,
    Written,
    Stale,
}

fn write_or_check(path: &Path, code: &str, check: bool) -> Result<Generated, Box<dyn Error>> {
    if fs::read_to_string(path).is_ok_and(|kept| kept == code) {
        return Ok(Generated::Unchanged);
    }
    if check {
        return Ok(Generated::Stale);
    }
    fs::write(path, code)?;
    Ok(Generated::Written)
}

fn make(root: &Path, target: &Target) -> Result<String, Box<dyn Error>> {
    let proto = root.join(target.proto);
    let folder = proto.parent().ok_or("the proto file is in no folder")?;
    let descriptors = protox::compile([&proto], [folder])?;
    let out = Scratch::new()?;
    tonic_prost_build::configure()
        // `Bytes`: payloads are forwarded without a copy.
        .bytes(".")
        .emit_rerun_if_changed(false)
        .out_dir(&out.0)
        .compile_fds(descriptors)?;
    let code = fs::read_to_string(out.0.join(format!("{}.rs", target.package)))?;
    let fingerprint = fingerprint(&fs::read(&proto)?);
    Ok(format!(
        "// Made from {} ({fingerprint:016x}) by `cargo xtask generate`; do not edit.\n{code}",
        target.proto
    ))
}

/// FNV-1a with 64 bits: enough to detect a change, and simple to implement in a test.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// A temporary folder, removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self, Box<dyn Error>> {
        let path = env::temp_dir().join(format!("redial-codegen-{}", std::process::id()));
        fs::create_dir(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // If this fails, a small temporary file stays behind.
        let _ = fs::remove_dir_all(&self.0);
    }
}
