//! What one more call site costs: compile time and code size, redial next to a hand-written loop, backon
//! and tokio-retry.
//!
//! For each of them a program with call sites is written into `benches/target/sites` and built. Every site
//! has an operation and a value type of its own, because generic code is compiled again for each of them.
//! CPU seconds are those of the whole `cargo` process tree, and of the sites alone: the dependencies are
//! built before.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The number of call sites of a program whose build is measured.
const SITES: usize = 50;
/// The number in a second program. The difference in size is that of the other sites.
const FEW_SITES: usize = 10;
/// Builds of each kind; the fastest counts.
const ROUNDS: usize = 3;

struct Variant {
    name: &'static str,
    dependencies: &'static str,
    /// The body of a call site around `fetch(key)`, which returns `Result<Value, Failure>`.
    site: &'static str,
}

const VARIANTS: [Variant; 4] = [
    Variant {
        name: "hand-written loop",
        dependencies: "",
        site: r#"
    let mut delay = Duration::from_millis(100);
    let mut attempt = 1;
    loop {
        match fetch(key).await {
            Ok(value) => return Ok(value),
            Err(error) if attempt == 3 || !error.is_transient() => {
                return Err(format!("{error}, after {attempt} attempts").into());
            }
            Err(_) => {}
        }
        tokio::time::sleep(delay).await;
        delay *= 2;
        attempt += 1;
    }"#,
    },
    Variant {
        name: "redial",
        dependencies: "redial = { path = \"REDIAL\" }",
        site: "    Ok(redial::retry(|| fetch(key)).when(Failure::is_transient).await?)",
    },
    Variant {
        name: "backon",
        dependencies: "backon = \"1.6\"",
        site: r#"    use backon::Retryable;
    Ok((|| fetch(key)).retry(backon::ExponentialBuilder::default()).when(Failure::is_transient).await?)"#,
    },
    Variant {
        name: "tokio-retry",
        dependencies: "tokio-retry = \"0.3\"",
        site: r#"    use tokio_retry::strategy::{ExponentialBackoff, jitter};
    let delays = ExponentialBackoff::from_millis(2).factor(50).map(jitter).take(2);
    Ok(tokio_retry::RetryIf::start(delays, || fetch(key), Failure::is_transient).await?)"#,
    },
];

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/sites");
    println!("## {SITES} call sites, CPU seconds of building them");
    println!(
        "| sites of | debug | release | incremental, one site changed | code per site | over the hand-written loop | stripped bytes per site | over it |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    let mut hand = None;
    for variant in &VARIANTS {
        let folder = write_program(&root, variant, SITES);
        let debug = fastest(|| rebuild(&folder, &["build"], "0"));
        let release = fastest(|| rebuild(&folder, &["build", "--release"], "0"));
        let many = [code_bytes(&folder), binary_bytes(&folder)];
        let incremental = fastest(|| change_one_site(&folder));
        let few = write_program(&root, variant, FEW_SITES);
        cargo(&few, &["build", "--release"], "0");
        let few = [code_bytes(&few), binary_bytes(&few)];
        let per_site = [0, 1].map(|size| (many[size] - few[size]) / (SITES - FEW_SITES) as f64);
        let hand = *hand.get_or_insert(per_site);
        let [code, file] = per_site;
        println!(
            "| {} | {debug:.2} | {release:.2} | {incremental:.2} | {code:.0} | {:+.0} | {file:.0} | {:+.0} |",
            variant.name,
            code - hand[0],
            file - hand[1],
        );
    }
    println!(
        "\n## A clean debug build of the library and its dependencies\n| library | CPU seconds |\n| --- | --- |"
    );
    for variant in VARIANTS.iter().filter(|variant| !variant.dependencies.is_empty()) {
        let seconds = fastest(|| clean_library_build(&root, variant));
        println!("| {} | {seconds:.2} |", variant.name);
    }
}

fn fastest(mut measure: impl FnMut() -> f64) -> f64 {
    (0..ROUNDS).map(|_| measure()).fold(f64::INFINITY, f64::min)
}

/// Writes the program and returns its folder.
fn write_program(root: &Path, variant: &Variant, sites: usize) -> PathBuf {
    let folder = root.join(format!("{}-{sites}", variant.name.replace(' ', "-")));
    let manifest = format!(
        "[workspace]\n[package]\nname = \"sites\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\
         [dependencies]\ntokio = {{ version = \"1\", features = [\"macros\", \"rt\", \"time\"] }}\n{}\n\
         [profile.release]\nstrip = true\n",
        dependencies(variant),
    );
    write(&folder.join("Cargo.toml"), &manifest);
    let mut main = String::new();
    let mut arms = String::new();
    for site in 0..sites {
        let _ = writeln!(main, "mod site_{site};");
        let _ = writeln!(
            arms,
            "        {site} => println!(\"{{:?}}\", site_{site}::get(&key).await?),"
        );
        write(&folder.join(format!("src/site_{site}.rs")), &site_module(variant, site));
    }
    let _ = write!(
        main,
        r#"
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {{
    let key = std::env::args().nth(1).unwrap_or_default();
    match key.len() {{
{arms}        _ => {{}}
    }}
    Ok(())
}}
"#
    );
    write(&folder.join("src/main.rs"), &main);
    folder
}

fn dependencies(variant: &Variant) -> String {
    let redial = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/redial");
    variant.dependencies.replace("REDIAL", &redial.display().to_string())
}

fn site_module(variant: &Variant, site: usize) -> String {
    // The fields make the value types differ in size too.
    let fields: String =
        (0..=site % 7).map(|field| format!("    pub field_{field}: u64,\n")).collect();
    let values: String =
        (0..=site % 7).map(|field| format!("field_{field}: length + {field}, ")).collect();
    format!(
        r#"#![allow(dead_code, unused_imports)]
use std::fmt;
use std::time::Duration;

#[derive(Debug)]
pub struct Value {{
{fields}}}

#[derive(Debug)]
pub enum Failure {{
    Busy,
    NotFound,
}}

impl Failure {{
    fn is_transient(&self) -> bool {{
        matches!(self, Failure::Busy)
    }}
}}

impl fmt::Display for Failure {{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {{
        f.write_str("request {site} failed")
    }}
}}

impl std::error::Error for Failure {{}}

async fn fetch(key: &str) -> Result<Value, Failure> {{
    tokio::task::yield_now().await;
    let length = key.len() as u64;
    match length {{
        {site} => Err(Failure::NotFound),
        length if length % 3 == 1 => Err(Failure::Busy),
        length => Ok(Value {{ {values}}}),
    }}
}}

pub async fn get(key: &str) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {{
{}
}}
"#,
        variant.site.trim_start_matches('\n')
    )
}

/// CPU seconds of building the sites again, without their dependencies.
fn rebuild(folder: &Path, arguments: &[&str], incremental: &str) -> f64 {
    cargo(folder, arguments, incremental);
    touch(folder);
    cargo(folder, arguments, incremental)
}

/// CPU seconds of an incremental debug build after a change to one site.
fn change_one_site(folder: &Path) -> f64 {
    cargo(folder, &["build"], "1");
    let site = folder.join("src/site_7.rs");
    let text = fs::read_to_string(&site).expect("a site");
    write(&site, &text.replace("request 7", "request 7!"));
    cargo(folder, &["build"], "1")
}

/// CPU seconds of a build of the library alone, from an empty target folder.
fn clean_library_build(root: &Path, variant: &Variant) -> f64 {
    let folder = root.join(format!("{}-library", variant.name));
    let manifest = format!(
        "[workspace]\n[package]\nname = \"library\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[dependencies]\n{}\n",
        dependencies(variant),
    );
    write(&folder.join("Cargo.toml"), &manifest);
    write(&folder.join("src/lib.rs"), "");
    cargo(&folder, &["fetch"], "0");
    let _ = fs::remove_dir_all(folder.join("target"));
    cargo(&folder, &["build"], "0")
}

fn touch(folder: &Path) {
    let main = folder.join("src/main.rs");
    let text = fs::read_to_string(&main).expect("a program");
    write(&main, &format!("{text}// Built again.\n"));
}

/// Runs cargo; returns the CPU seconds of it and its children.
fn cargo(folder: &Path, arguments: &[&str], incremental: &str) -> f64 {
    let before = children_seconds();
    let output = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(arguments)
        .arg("--quiet")
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .env("CARGO_INCREMENTAL", incremental)
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    children_seconds() - before
}

/// CPU seconds of all child processes that have ended, in steps of 10 ms.
fn children_seconds() -> f64 {
    const TICKS_PER_SECOND: f64 = 100.0;
    let text = fs::read_to_string("/proc/self/stat").expect("Linux");
    // The fields after the name of the program, which is in brackets; the first of them is the third.
    let fields: Vec<&str> = text[text.rfind(')').expect("a name") + 2..].split(' ').collect();
    let ticks = |number: usize| -> f64 { fields[number - 3].parse().expect("a number") };
    (ticks(16) + ticks(17)) / TICKS_PER_SECOND
}

fn binary_bytes(folder: &Path) -> f64 {
    fs::metadata(folder.join("target/release/sites")).expect("a program").len() as f64
}

/// The size of the section `.text`: machine code without data, relocations and unwind tables.
fn code_bytes(folder: &Path) -> f64 {
    let program = fs::read(folder.join("target/release/sites")).expect("a program");
    let number = |at: usize, bytes: usize| -> usize {
        program[at..at + bytes].iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte))
    };
    assert_eq!(&program[..5], b"\x7fELF\x02", "a program of 64 bits");
    let (table, entry, count) = (number(0x28, 8), number(0x3a, 2), number(0x3c, 2));
    let header = |index: usize| table + index * entry;
    let names = number(header(number(0x3e, 2)) + 0x18, 8);
    let text =
        (0..count).map(header).find(|at| program[names + number(*at, 4)..].starts_with(b".text\0"));
    number(text.expect("a section of code") + 0x20, 8) as f64
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(path, text).expect("a file");
}
