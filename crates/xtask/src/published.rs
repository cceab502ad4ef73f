//! The published crates, those in `clients/` included, as `cargo metadata` lists them; whether the order of
//! publishing in `docs/releasing.md` follows their dependencies; what their manifests lack; and which public
//! types have one name.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::command_line::CommandLine;
use crate::{machine, names};

/// The manifests of all workspaces with published crates.
const MANIFESTS: &[&str] =
    &["./Cargo.toml", "clients/redial-aws/Cargo.toml", "clients/redial-couchbase-sdk/Cargo.toml"];

/// The heading of the list of levels.
const HEADING: &str = "## Order of publishing";

/// A crate that is published.
#[derive(Clone, Debug, PartialEq)]
pub struct Crate {
    /// Its name.
    pub name: String,
    /// The folder of its manifest.
    pub folder: PathBuf,
    /// The crates of this project that must be published before it. Cargo drops dev-dependencies without
    /// a version from the published manifest, so they are not among these.
    pub dependencies: Vec<String>,
    /// What crates.io and docs.rs show of a crate, and its manifest does not have.
    pub lacks: Vec<&'static str>,
    /// Whether it has an example.
    pub has_example: bool,
}

impl Crate {
    /// Whether it has a workspace of its own.
    fn is_client(&self) -> bool {
        self.folder.parent().is_some_and(|parent| parent.ends_with("clients"))
    }
}

/// Packages every published crate, and builds it from its package.
pub(crate) fn package_lines(crates: &[Crate]) -> Vec<CommandLine> {
    // A change that is not committed yet can be checked, too.
    let package = || CommandLine::new("cargo package --allow-dirty --target-dir target/package");
    let (clients, members): (Vec<&Crate>, Vec<&Crate>) =
        crates.iter().partition(|it| it.is_client());
    let workspace = members.iter().fold(package(), |line, it| line.arg("--package").arg(&it.name));
    let client_lines = clients.iter().map(|client| {
        let manifest = client.folder.join("Cargo.toml").display().to_string();
        // The other workspace's crates are not published yet.
        let line = package().arg("--manifest-path").arg(manifest);
        let required = members.iter().filter(|it| client.dependencies.contains(&it.name));
        required.fold(line, |line, Crate { name, folder, .. }| {
            line.arg("--config").arg(format!("patch.crates-io.{name}.path='{}'", folder.display()))
        })
    });
    std::iter::once(workspace).chain(client_lines).collect()
}

/// Checks the dependencies of every published crate. `deny.toml` applies to the folders below it, too.
pub(crate) fn deny_lines() -> Vec<CommandLine> {
    let check = |manifest: &&str| {
        let line = CommandLine::new("cargo deny --manifest-path").arg(*manifest);
        ["check", "licenses", "bans", "sources"].into_iter().fold(line, CommandLine::arg)
    };
    MANIFESTS.iter().map(check).collect()
}

/// All published crates below `root`.
///
/// # Errors
/// Cargo does not read a manifest.
pub fn crates_in(root: &Path) -> Result<Vec<Crate>, String> {
    let mut crates = Vec::new();
    for manifest in MANIFESTS {
        let line = CommandLine::new("cargo metadata --no-deps --format-version 1 --manifest-path");
        crates.extend(crates_of(&machine::output(root, &line.arg(*manifest))?)?);
    }
    Ok(crates)
}

fn crates_of(metadata: &str) -> Result<Vec<Crate>, String> {
    let metadata: Value = serde_json::from_str(metadata)
        .map_err(|problem| format!("cargo metadata is not readable: {problem}"))?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata names no packages")?;
    // `publish = false` is an empty list of registries.
    packages.iter().filter(|package| package["publish"].is_null()).map(crate_of).collect()
}

fn crate_of(package: &Value) -> Result<Crate, String> {
    let name = package["name"].as_str().ok_or("a package has no name")?;
    let manifest = package["manifest_path"].as_str().ok_or("a package has no manifest")?;
    let dependencies = package["dependencies"].as_array().into_iter().flatten();
    let required = dependencies.filter(|it| it["path"].is_string() && it["kind"] != "dev");
    Ok(Crate {
        name: name.to_owned(),
        folder: Path::new(manifest).parent().unwrap_or(Path::new("")).to_owned(),
        dependencies: required.filter_map(|it| it["name"].as_str()).map(str::to_owned).collect(),
        lacks: lacks(package),
        has_example: targets(package).any(|target| is_kind(target, "example")),
    })
}

/// The keys without which crates.io shows too little of a crate, or docs.rs hides what features add.
fn lacks(package: &Value) -> Vec<&'static str> {
    let texts = ["description", "license", "repository", "rust_version", "readme"];
    let lists = ["keywords", "categories"];
    let is_text = |key: &&str| package[key].as_str().is_some_and(|text| !text.is_empty());
    let is_list = |key: &&str| package[key].as_array().is_some_and(|list| !list.is_empty());
    let texts = texts.into_iter().filter(|key| !is_text(key));
    let lists = lists.into_iter().filter(|key| !is_list(key));
    let docs = &package["metadata"]["docs"]["rs"];
    let has_cfg =
        docs["rustdoc-args"].as_array().is_some_and(|args| args.contains(&"docsrs".into()));
    let all_features = (docs["all-features"] != true).then_some("docs.rs: all-features");
    let cfg = (!has_cfg).then_some("docs.rs: rustdoc-args with --cfg docsrs");
    texts.chain(lists).chain(all_features).chain(cfg).collect()
}

fn targets(package: &Value) -> impl Iterator<Item = &Value> {
    package["targets"].as_array().into_iter().flatten()
}

fn is_kind(target: &Value, kind: &str) -> bool {
    target["kind"].as_array().is_some_and(|kinds| kinds.contains(&kind.into()))
}

/// What is wrong with the order in `page`: a crate that is missing, unknown or named twice, or that is not
/// below all of its dependencies.
#[must_use]
pub fn order_problems(page: &str, crates: &[Crate]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut levels = BTreeMap::new();
    for (level, name) in order_in(page) {
        if !crates.iter().any(|it| it.name == name) {
            problems.push(format!("`{name}` is not a published crate"));
        }
        if levels.insert(name, level).is_some() {
            problems.push(format!("`{name}` is named twice"));
        }
    }
    for Crate { name, dependencies, .. } in crates {
        let Some(level) = levels.get(name.as_str()) else {
            problems.push(format!("`{name}` is missing"));
            continue;
        };
        let is_late = |dependency: &&String| {
            levels.get(dependency.as_str()).is_some_and(|other| other >= level)
        };
        let late = dependencies.iter().filter(is_late);
        problems.extend(late.map(|late| format!("`{name}` needs `{late}`, which is not above it")));
    }
    problems
}

/// The public types that more than one of these crates defines, each with those crates: structs, enums,
/// traits, type aliases and unions that begin a line with `pub`.
///
/// # Errors
/// A source file is not readable.
pub fn shared_types(crates: &[Crate]) -> io::Result<BTreeMap<String, BTreeSet<&str>>> {
    let mut types: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for Crate { name, folder, .. } in crates {
        names::visit(&folder.join("src"), "rs", &mut |source| {
            for item in types_in(source) {
                types.entry(item.to_owned()).or_default().insert(name);
            }
            Ok(())
        })?;
    }
    types.retain(|_, crates| crates.len() > 1);
    Ok(types)
}

fn types_in(source: &str) -> impl Iterator<Item = &str> {
    source.lines().filter_map(|line| {
        let mut words = line.strip_prefix("pub ")?.splitn(2, ' ');
        let is_type = ["struct", "enum", "trait", "type", "union"].contains(&words.next()?);
        let name = words.next()?.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
        is_type.then_some(name)
    })
}

/// The crates of the numbered list under the heading, each with the number of its item.
fn order_in(page: &str) -> Vec<(usize, &str)> {
    let section = page.split_once(HEADING).map_or("", |(_, section)| section);
    let section = section.split("\n## ").next().unwrap_or("");
    let items = section.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    let numbered = (1..).zip(items);
    numbered
        .flat_map(|(level, item)| item.split('`').skip(1).step_by(2).map(move |name| (level, name)))
        .collect()
}

#[cfg(test)]
mod tests {
    //! Goal: an order is accepted only if each crate stands below all that it needs.

    use super::*;

    fn sample(name: &str, dependencies: &[&str]) -> Crate {
        Crate {
            name: name.to_owned(),
            folder: PathBuf::new(),
            dependencies: dependencies.iter().map(ToString::to_string).collect(),
            lacks: Vec::new(),
            has_example: false,
        }
    }

    #[test]
    fn published_manifest_that_lacks_something_is_reported() {
        let complete = serde_json::json!({
            "description": "text", "license": "MIT", "repository": "url", "rust_version": "1.90",
            "readme": "README.md", "keywords": ["retry"], "categories": ["asynchronous"],
            "metadata": { "docs": { "rs": { "all-features": true, "rustdoc-args": ["--cfg", "docsrs"] } } },
            "targets": [{ "kind": ["lib"] }, { "kind": ["example"] }],
        });
        assert_eq!(lacks(&complete), [""; 0]);
        assert!(targets(&complete).any(|target| is_kind(target, "example")));

        let empty = serde_json::json!({ "keywords": [], "readme": null, "metadata": null });
        assert_eq!(
            lacks(&empty),
            [
                "description",
                "license",
                "repository",
                "rust_version",
                "readme",
                "keywords",
                "categories",
                "docs.rs: all-features",
                "docs.rs: rustdoc-args with --cfg docsrs",
            ]
        );
        assert!(!targets(&empty).any(|target| is_kind(target, "example")));
    }

    #[test]
    fn published_order_puts_dependencies_above() {
        let crates = [sample("a", &[]), sample("b", &["a"]), sample("c", &["b", "a"])];
        let page = |items: &str| format!("{HEADING}\n`x` is text.\n\n{items}\n\n## Next\n1. `y`\n");
        let problems = |items: &str| order_problems(&page(items), &crates);
        assert_eq!(problems("1. `a`\n2. `b`\n3. `c`"), [""; 0]);
        assert_eq!(problems("1. `a`\n2. `b`, `c`"), ["`c` needs `b`, which is not above it"]);
        assert_eq!(
            problems("1. `a`, `d`\n2. `b`\n3. `a`"),
            [
                "`d` is not a published crate",
                "`a` is named twice",
                "`b` needs `a`, which is not above it",
                "`c` is missing"
            ]
        );
    }

    #[test]
    fn published_clients_have_their_dependencies_checked() {
        let lines: Vec<String> = deny_lines().iter().map(ToString::to_string).collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(
            lines[1],
            "cargo deny --manifest-path clients/redial-aws/Cargo.toml check licenses bans sources"
        );
    }

    #[test]
    fn published_clients_are_packaged_with_crates_of_the_workspace() {
        let at = |folder: &str, it: Crate| Crate { folder: PathBuf::from(folder), ..it };
        let crates = [
            at("/crates/a", sample("a", &[])),
            at("/crates/b", sample("b", &["a"])),
            at("/clients/c", sample("c", &["a"])),
        ];
        let lines = package_lines(&crates);
        let text = |line: &CommandLine| line.arguments.join(" ");
        assert!(text(&lines[0]).ends_with("--package a --package b"), "{}", lines[0]);
        let client =
            "--manifest-path /clients/c/Cargo.toml --config patch.crates-io.a.path='/crates/a'";
        assert!(text(&lines[1]).ends_with(client), "{}", lines[1]);
        assert_eq!(lines.len(), 2);
    }

    #[test]
    fn published_types_are_those_that_begin_a_line() {
        let source = "pub struct A<T>(T);\npub enum B {\n    C,\n}\npub(crate) struct D;\npub fn e() {}\n\
                      mod f {\n    pub struct G;\n}\npub trait H: A {}\npub type I = A;\nstruct J;\n";
        assert_eq!(types_in(source).collect::<Vec<_>>(), ["A", "B", "H", "I"]);
    }

    #[test]
    fn published_crates_exclude_private_ones_and_dev_dependencies() {
        let metadata = r#"{"packages": [
            {"name": "private", "publish": [], "manifest_path": "/p/Cargo.toml"},
            {"name": "a", "publish": null, "manifest_path": "/crates/a/Cargo.toml", "dependencies": [
                {"name": "b", "path": "/crates/b", "kind": null},
                {"name": "c", "path": "/crates/c", "kind": "dev"},
                {"name": "serde", "kind": null}
            ]}
        ]}"#;
        let a = Crate { folder: PathBuf::from("/crates/a"), ..sample("a", &["b"]) };
        let read: Vec<Crate> = crates_of(metadata).unwrap();
        assert!(!read[0].lacks.is_empty());
        let read: Vec<_> = read.into_iter().map(|it| Crate { lacks: Vec::new(), ..it }).collect();
        assert_eq!(read, [a]);
        assert!(crates_of("{}").is_err());
    }
}
