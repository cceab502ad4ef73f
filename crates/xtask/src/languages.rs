//! The gRPC libraries of other languages: how the programs around them (`interop/`) are built and
//! run, and how `docs/languages.md` lists their differences.
//!
//! Build output goes below `target/interop`, and no root is needed. The document's tables are
//! generated from `interop/differences.json`, so that they match what the steps check.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use crate::command_line::CommandLine;
use crate::couchbase_sdk;
use crate::needs::Need;

pub(crate) const GO: Need = Need::Toolchain { name: "Go", probe: "go version", package: "golang" };
pub(crate) const JAVA: Need =
    Need::Toolchain { name: "Java", probe: "javac --version", package: "default-jdk-headless" };
pub(crate) const MAVEN: Need =
    Need::Toolchain { name: "Maven", probe: "mvn --version", package: "maven" };
pub(crate) const PYTHON: Need = Need::Toolchain {
    name: "Python",
    // Needed by `venv`; a separate package on Debian.
    probe: "python3 -m ensurepip --version",
    package: "python3-venv",
};
pub(crate) const NODE: Need =
    Need::Toolchain { name: "Node", probe: "node --version", package: "nodejs" };
pub(crate) const NPM: Need =
    Need::Toolchain { name: "npm", probe: "npm --version", package: "npm" };

/// The languages: their names in the list of differences and in the document.
pub const LANGUAGES: [(&str, &str); 4] =
    [("go", "Go"), ("java", "Java"), ("python", "Python"), ("node", "Node")];

/// The scenario files for the clients.
const SCENARIOS: [&str; 7] =
    ["retry", "throttle", "buffer", "hedging", "transparent", "refused", "config"];

type Lines = Result<Vec<CommandLine>, String>;

pub(crate) fn go(_root: &Path) -> Lines {
    let build =
        CommandLine::new("go build -C interop/go -o ../../target/interop/go/peer .").downloads();
    Ok(played(vec![build], "go", "target/interop/go/peer"))
}

/// The official programs are built first, so that the run downloads nothing.
pub(crate) fn official(_root: &Path) -> Lines {
    let build = "go build -C interop/go -o ../../target/interop/go/official/ tool";
    let play = CommandLine::new("cargo run --package redial-interop -- official");
    Ok(vec![CommandLine::new(build).downloads(), play])
}

pub(crate) fn java(root: &Path) -> Lines {
    let root = root.canonicalize().map_err(|problem| format!("{}: {problem}", root.display()))?;
    let target = root.join("target/interop/java");
    let build = CommandLine::new("mvn --batch-mode --quiet --file interop/java/pom.xml package")
        .arg(format!("-Dredial.target={}", target.display()))
        .downloads();
    Ok(played(vec![build], "java", "java -jar target/interop/java/peer.jar"))
}

pub(crate) fn python(_root: &Path) -> Lines {
    let make = CommandLine::new("python3 -m venv target/interop/python");
    let install = "target/interop/python/bin/python -m pip install --quiet \
                   --disable-pip-version-check --requirement interop/python/requirements.txt";
    let program = "target/interop/python/bin/python interop/python/peer.py";
    Ok(played(vec![make, CommandLine::new(install).downloads()], "python", program))
}

pub(crate) fn node(_root: &Path) -> Lines {
    // Node finds packages next to the program.
    let folder = CommandLine::new("mkdir -p target/interop");
    let copy = CommandLine::new("cp -R interop/node target/interop");
    let install = "npm ci --prefix target/interop/node --no-audit --no-fund --ignore-scripts";
    let build = vec![folder, copy, CommandLine::new(install).downloads()];
    Ok(played(build, "node", "node target/interop/node/peer.js"))
}

/// Builds a program, then runs both directions: its client against our fault server, and our client
/// against its server.
fn played(mut lines: Vec<CommandLine>, language: &str, program: &str) -> Vec<CommandLine> {
    let scenarios =
        CommandLine::new("cargo run --release --package redial-cli -- scenarios --with")
            .arg(program)
            .arg("--as")
            .arg(language)
            .arg("--differences")
            .arg("interop/differences.json");
    let scenarios = SCENARIOS
        .iter()
        .fold(scenarios, |line, name| line.arg(format!("scenarios/grpc-{name}.json")))
        .arg("interop/extra-scenarios.json");
    // Not optimised: a release build takes longer than the run.
    let servers = CommandLine::new("cargo run --package redial-interop -- servers")
        .arg(language)
        .arg(program);
    lines.extend([scenarios, servers]);
    lines
}

/// The tables of `docs/languages.md` about differences: of clients, and of servers.
///
/// # Errors
/// The text is not JSON, or a row lacks a required field.
pub fn tables(differences: &str) -> Result<[String; 2], String> {
    let list: Value = serde_json::from_str(differences).map_err(|problem| problem.to_string())?;
    Ok([table(&list["differences"])?, table(&list["servers"])?])
}

fn table(rows: &Value) -> Result<String, String> {
    let mut text = "| difference | who | decision | reason | visible in |\n".to_owned();
    text.push_str("| --- | --- | --- | --- | --- |\n");
    for row in rows.as_array().ok_or("a list of rows is missing")? {
        let part =
            |name: &str| row[name].as_str().ok_or_else(|| format!("a row without {name:?}: {row}"));
        let (what, decision, why) = (part("what")?, part("ruling")?, part("why")?);
        let (who, shows) = (who(row)?, shows(row)?);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| {what} | {who} | {decision} | {why} | {shows} |");
    }
    Ok(text)
}

/// The languages of a row.
fn who(row: &Value) -> Result<String, String> {
    let listed: Option<BTreeSet<_>> =
        row["languages"].as_array().map(|list| list.iter().filter_map(Value::as_str).collect());
    let listed = listed.filter(|listed| !listed.is_empty());
    let mut listed = listed.ok_or_else(|| format!("a row without languages: {row}"))?;
    let names: Vec<_> =
        LANGUAGES.iter().filter(|(word, _)| listed.remove(word)).map(|(_, name)| *name).collect();
    match listed.first() {
        Some(unknown) => Err(format!("there is no language {unknown:?}")),
        None => Ok(names.join(", ")),
    }
}

/// The number of scenarios in which a row shows.
fn shows(row: &Value) -> Result<String, String> {
    let length = |name: &str| match &row[name] {
        Value::Object(map) => map.len(),
        Value::Array(list) => list.len(),
        _ => 0,
    };
    let counted = [("scenarios", "scenario"), ("configs", "config"), ("cases", "case")];
    let counted = counted.into_iter().filter_map(|(field, word)| match length(field) {
        0 => None,
        1 => Some(format!("1 {word}")),
        count => Some(format!("{count} {word}s")),
    });
    let mut parts: Vec<_> = counted.collect();
    if row["everywhere"].is_object() {
        parts.push("every call with several attempts".to_owned());
    }
    if parts.is_empty() {
        return Err(format!("a row that shows nowhere: {row}"));
    }
    Ok(parts.join(", "))
}

/// The Couchbase clients: their names in the list of differences and in the document.
pub const COUCHBASE_CLIENTS: [(&str, &str); 3] =
    [("go", "gocb"), ("java", "Java SDK"), ("rust", "Rust SDK")];

/// The programs around Couchbase's clients: their build, and the test's variables with their commands.
pub(crate) fn couchbase_clients(root: &Path) -> (Vec<CommandLine>, [(&'static str, String); 3]) {
    let go = "go build -C interop/couchbase/go -o ../../../target/interop/couchbase/go/peer .";
    let target = root.join("target/interop/couchbase/java");
    let java = "mvn --batch-mode --quiet --file interop/couchbase/java/pom.xml package";
    let java = CommandLine::new(java).arg(format!("-Dredial.target={}", target.display()));
    let (rust, rust_program) = couchbase_sdk::peer(root);
    let build = vec![CommandLine::new(go).downloads(), java.downloads(), rust];
    let go = root.join("target/interop/couchbase/go/peer").display().to_string();
    let java = format!("java -jar {}", target.join("peer.jar").display());
    let programs = [
        ("REDIAL_COUCHBASE_GO", go),
        ("REDIAL_COUCHBASE_JAVA", java),
        ("REDIAL_COUCHBASE_RUST", rust_program),
    ];
    (build, programs)
}

/// The tables of `docs/couchbase.md` about other clients: what each does in each case, and the differences.
///
/// # Errors
/// The text is not JSON, or a row lacks a required field.
pub fn couchbase_tables(differences: &str) -> Result<[String; 2], String> {
    let file: Value = serde_json::from_str(differences).map_err(|problem| problem.to_string())?;
    let list = |name: &str| file[name].as_array().ok_or_else(|| format!("no list {name:?}"));
    let (cases, rows) = (list("cases")?, list("differences")?);
    let mut behaviour =
        "| request | Redial | gocb | Java SDK | Rust SDK |\n| --- | --- | --- | --- | --- |\n"
            .to_owned();
    for case in cases {
        let name = case["name"].as_str().ok_or_else(|| format!("a case without a name: {case}"))?;
        let cells = COUCHBASE_CLIENTS.map(|(client, _)| {
            let parts = rows.iter().map(|row| fields(&row["cases"][name][client]));
            let parts: Vec<_> = parts.filter(|text| !text.is_empty()).collect();
            if parts.is_empty() { "the same".to_owned() } else { parts.join("; ") }
        });
        let expected = fields(&case["expect"]);
        let _ = writeln!(behaviour, "| {name} | {expected} | {} |", cells.join(" | "));
    }
    let mut table =
        "| difference | who | decision | reason |\n| --- | --- | --- | --- |\n".to_owned();
    for row in rows {
        let part =
            |name: &str| row[name].as_str().ok_or_else(|| format!("a row without {name:?}: {row}"));
        let seen = row["cases"].as_object().ok_or_else(|| format!("a row without cases: {row}"))?;
        let has = |client: &str| seen.values().any(|case| case[client].is_object());
        let who = COUCHBASE_CLIENTS.iter().filter(|(client, _)| has(client));
        let who: Vec<_> = who.map(|(_, name)| *name).collect();
        let (what, decision, why) = (part("what")?, part("ruling")?, part("why")?);
        let _ = writeln!(table, "| {what} | {} | {decision} | {why} |", who.join(", "));
    }
    Ok([behaviour, table])
}

/// The fields of a case in words; a list that is empty goes without saying.
fn fields(of: &Value) -> String {
    let list = |name: &str| {
        let items = of[name].as_array().into_iter().flatten();
        let texts = items.map(|item| item.as_str().map_or(item.to_string(), str::to_owned));
        texts.collect::<Vec<_>>().join(", ")
    };
    let mut parts: Vec<String> = of["outcome"].as_str().map(str::to_owned).into_iter().collect();
    match of["attempts"].as_u64() {
        Some(1) => parts.push("1 attempt".to_owned()),
        Some(attempts) => parts.push(format!("{attempts} attempts")),
        None => {}
    }
    for name in ["delays_ms", "gaps_ms"] {
        let delays = list(name);
        if !delays.is_empty() {
            parts.push(format!("{delays} ms"));
        }
    }
    let reasons = list("reasons");
    if !reasons.is_empty() {
        parts.push(reasons);
    }
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    //! Goal: build output stays below `target`, and every row is in a table.

    use super::*;

    fn texts(lines: Lines) -> Vec<String> {
        lines.unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn languages_program_is_built_below_target_and_run_both_ways() {
        let root = Path::new(".");
        for (lines, language) in
            [(go(root), "go"), (java(root), "java"), (python(root), "python"), (node(root), "node")]
        {
            let lines = texts(lines);
            let [.., clients, servers] = lines.as_slice() else { panic!("two lines play") };
            assert!(lines[0].contains("target/interop"), "{}", lines[0]);
            assert!(clients.contains(&format!("--as {language} --differences")), "{clients}");
            assert!(
                clients.ends_with("scenarios/grpc-config.json interop/extra-scenarios.json"),
                "{clients}"
            );
            assert!(servers.contains(&format!("-- servers {language} ")), "{servers}");
        }
    }

    #[test]
    fn languages_couchbase_tables_show_cases_and_differences() {
        let list = r#"{"cases": [{"name": "a get", "expect": {"outcome": "ok", "attempts": 2,
            "reasons": ["KV_LOCKED"], "delays_ms": [1], "gaps_ms": []}}], "differences": [
            {"what": "w", "ruling": "C2", "why": "y", "cases": {"a get": {"java":
            {"delays_ms": [0], "attempts": 1}}}}]}"#;
        let [cases, differences] = couchbase_tables(list).unwrap();
        let row =
            "| a get | ok; 2 attempts; 1 ms; KV_LOCKED | the same | 1 attempt; 0 ms | the same |";
        assert_eq!(cases.lines().last(), Some(row));
        assert_eq!(differences.lines().last(), Some("| w | Java SDK | C2 | y |"));
        assert!(couchbase_tables("{}").unwrap_err().contains("no list"));
    }

    #[test]
    fn languages_couchbase_programs_are_built_below_target() {
        let (build, programs) = couchbase_clients(Path::new("/redial"));
        assert!(build.iter().all(|line| line.to_string().contains("target/")));
        assert!(programs.iter().all(|(_, program)| program.contains("/redial/target/")));
    }

    #[test]
    fn languages_table_row_names_languages_and_scenario_count() {
        let list = r#"{"servers": [], "differences": [{"what": "a", "ruling": "G1", "why": "b",
            "languages": ["node", "go"], "scenarios": {"x": []}, "configs": ["y", "z"]}]}"#;
        let [clients, servers] = tables(list).unwrap();
        let row = clients.lines().last().unwrap();
        assert_eq!(row, "| a | Go, Node | G1 | b | 1 scenario, 2 configs |");
        assert_eq!(servers.lines().count(), 2, "a head and no row");
        let problem = tables(&list.replace("node", "cobol")).unwrap_err();
        assert_eq!(problem, "there is no language \"cobol\"");
        assert!(tables(&list.replace("configs", "cases")).is_ok());
        assert!(tables(&list.replace("what", "which")).unwrap_err().contains("without \"what\""));
    }
}
