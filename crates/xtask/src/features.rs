//! The checked feature combinations of the crates of the workspace (none, each alone, all), from `cargo
//! metadata --no-deps --format-version 1`.
//!
//! Clippy instead of `cargo check`: it finds the same errors, and can deny warnings in our own
//! crates without new flags that would rebuild all dependencies.

use serde_json::Value;

use crate::command_line::CommandLine;

/// One line for each combination of each crate that has features.
pub(crate) fn lines(metadata: &str) -> Result<Vec<CommandLine>, String> {
    let mut lines = Vec::new();
    for package in packages(metadata)? {
        let name = package["name"].as_str().ok_or("a package has no name")?;
        let features = package["features"].as_object().ok_or("a package has no features")?;
        if features.is_empty() {
            // The only combination is built by the steps clippy and test.
            continue;
        }
        let check = |features: &str| {
            CommandLine::new(&format!(
                "cargo clippy --quiet --package {name} {features} -- -D warnings"
            ))
        };
        lines.push(check("--no-default-features"));
        for feature in features.keys() {
            lines.push(check(&format!("--no-default-features --features {feature}")));
        }
        lines.push(check("--all-features"));
    }
    Ok(lines)
}

fn packages(metadata: &str) -> Result<Vec<Value>, String> {
    let metadata: Value = serde_json::from_str(metadata)
        .map_err(|problem| format!("cargo metadata is not readable: {problem}"))?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata names no packages")?;
    Ok(packages.clone())
}

#[cfg(test)]
mod tests {
    //! Goal: every combination of every crate is listed. Method: shortened output of cargo.

    use super::*;

    #[test]
    fn features_crate_is_checked_with_none_each_and_all() {
        let metadata = r#"{"packages": [
            {"name": "plain", "features": {}},
            {"name": "rich", "features": {"default": ["tokio"], "tokio": ["dep:tokio"]}}
        ]}"#;
        let lines: Vec<_> = lines(metadata).unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "cargo clippy --quiet --package rich --no-default-features -- -D warnings",
                "cargo clippy --quiet --package rich --no-default-features --features default -- -D warnings",
                "cargo clippy --quiet --package rich --no-default-features --features tokio -- -D warnings",
                "cargo clippy --quiet --package rich --all-features -- -D warnings",
            ]
        );
    }

    #[test]
    fn features_unreadable_metadata_is_an_error() {
        assert!(lines("").is_err());
        assert!(lines("{}").is_err());
        assert!(lines(r#"{"packages": [{"name": "broken"}]}"#).is_err());
    }
}
