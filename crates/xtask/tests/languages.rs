//! Goal: `docs/languages.md` matches the differences and versions that the steps `interop-*` check.
//! Method: its tables are regenerated from the files that the steps read.

use std::fs;

use serde_json::Value;
use xtask::languages;

fn read(path: &str) -> String {
    let path = xtask::root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|problem| panic!("{}: {problem}", path.display()))
}

fn differences() -> Value {
    serde_json::from_str(&read("interop/differences.json")).expect("it is JSON")
}

/// The text between two markers.
fn between<'t>(text: &'t str, from: &str, to: &str) -> &'t str {
    let rest = text.split_once(from).unwrap_or_else(|| panic!("there is no {from:?}")).1;
    rest.split_once(to).unwrap_or_else(|| panic!("there is no {to:?} after {from:?}")).0
}

#[test]
fn languages_tables_match_the_checked_differences() {
    let text = read("docs/languages.md");
    let [clients, servers] = languages::tables(&read("interop/differences.json")).unwrap();
    for (name, table) in [("differences", clients), ("servers", servers)] {
        let mark = format!("<!-- {name}: made from interop/differences.json -->\n");
        let written = between(&text, &mark, "<!-- end -->");
        assert!(written == table, "docs/languages.md is to have this:\n{mark}{table}<!-- end -->");
    }
}

#[test]
fn languages_couchbase_tables_match_the_checked_differences() {
    let text = read("docs/couchbase.md");
    let list = read("interop/couchbase/differences.json");
    for (name, table) in
        ["cases", "differences"].into_iter().zip(languages::couchbase_tables(&list).unwrap())
    {
        let mark = format!("<!-- {name}: made from interop/couchbase/differences.json -->\n");
        let written = between(&text, &mark, "<!-- end -->");
        assert!(written == table, "docs/couchbase.md is to have this:\n{mark}{table}<!-- end -->");
    }
    let (go, java) = (read("interop/couchbase/go/go.mod"), read("interop/couchbase/java/pom.xml"));
    let go = between(&go, "github.com/couchbase/gocb/v2 v", "\n");
    let java =
        between(&java, "<artifactId>java-client</artifactId>\n      <version>", "</version>");
    for version in [format!("gocb {}", go.trim()), format!("Java SDK {java}")] {
        assert!(text.contains(&version), "docs/couchbase.md is to name {version}");
    }
}

#[test]
fn languages_couchbase_rows_name_a_decision() {
    let decisions = read("docs/decisions.md");
    let list: Value = serde_json::from_str(&read("interop/couchbase/differences.json")).unwrap();
    for row in list["differences"].as_array().unwrap() {
        let id = row["ruling"].as_str().unwrap();
        // The later ones have a sentence in place of a number.
        let is_there =
            [format!("- **{id}**"), format!("- *{id}*")].iter().any(|it| decisions.contains(it));
        assert!(is_there, "there is no decision {id}");
    }
}

#[test]
fn languages_versions_match_the_installed_ones() {
    let package: Value = serde_json::from_str(&read("interop/node/package.json")).unwrap();
    let node = package["dependencies"]["@grpc/grpc-js"].as_str().unwrap();
    let (python, go, java) = (
        read("interop/python/requirements.txt"),
        read("interop/go/go.mod"),
        read("interop/java/pom.xml"),
    );
    let python = between(&python, "grpcio==", "\n");
    let go = between(&go, "google.golang.org/grpc v", "\n");
    let java = between(&java, "<grpc.version>", "</grpc.version>");
    let text = read("docs/languages.md");
    for (language, library, version) in [
        ("Go", "google.golang.org/grpc", go),
        ("Java", "io.grpc:grpc-netty-shaded", java),
        ("Python", "grpcio", python),
        ("Node", "@grpc/grpc-js", node),
    ] {
        let row = format!("| {language} | {library} | {} |\n", version.trim());
        assert!(text.contains(&row), "docs/languages.md is to have the row {row}");
    }
}

#[test]
fn languages_rows_name_existing_scenarios_and_a_decision() {
    let decisions = read("docs/decisions.md");
    let list = differences();
    let rows = |name: &str| list[name].as_array().cloned().unwrap_or_default();
    assert!(!rows("differences").is_empty());
    for row in rows("differences").iter().chain(&rows("servers")) {
        let id = row["ruling"].as_str().unwrap();
        assert!(decisions.contains(&format!("- **{id}**")), "there is no decision {id}");
        let scenarios = row["scenarios"].as_object().into_iter().flat_map(|it| it.keys());
        let scenarios = scenarios.map(|key| (key.as_str(), "scenarios"));
        let configs = row["configs"].as_array().into_iter().flatten().filter_map(Value::as_str);
        for (key, kind) in scenarios.chain(configs.map(|key| (key, "configs"))) {
            let (file, name) = key.split_once(": ").expect("a file and a name");
            let folder = if file == "extra-scenarios.json" { "interop" } else { "scenarios" };
            let file: Value = serde_json::from_str(&read(&format!("{folder}/{file}"))).unwrap();
            let listed = file[kind].as_array().unwrap();
            assert!(listed.iter().any(|it| it["name"] == *name), "there is no {key:?}");
        }
    }
}

#[test]
fn languages_lock_files_contain_no_registry_urls() {
    for file in ["node/package-lock.json", "node/package.json", "python/requirements.txt"] {
        let text = read(&format!("interop/{file}"));
        assert!(!text.contains("\"resolved\"") && !text.contains("index-url"), "{file}");
    }
    for file in ["node/package-lock.json", "requirements.txt", "../envoy.txt"] {
        let text = read(&format!("checks/milvus/{file}"));
        assert!(!text.contains("\"resolved\"") && !text.contains("index-url"), "{file}");
    }
    for file in ["java/pom.xml", "couchbase/pom.xml", "couchbase/java/pom.xml"] {
        assert!(!read(&format!("interop/{file}")).contains("<repository>"), "{file}");
    }
}
