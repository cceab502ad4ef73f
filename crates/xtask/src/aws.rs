//! The steps of `clients/redial-aws`.

use std::path::Path;

use crate::client_crate::ClientCrate;
use crate::command_line::CommandLine;

const CRATE: ClientCrate =
    ClientCrate { manifest: "clients/redial-aws/Cargo.toml", target: "target/aws" };

pub(crate) fn checks() -> Vec<CommandLine> {
    CRATE.checks()
}

/// Installs `DynamoDB` Local and runs the test that needs it.
pub(crate) fn dynamodb(root: &Path) -> Result<Vec<CommandLine>, String> {
    let root = root.canonicalize().map_err(|problem| format!("{}: {problem}", root.display()))?;
    let folder = root.join("target/dynamodb-local").display().to_string();
    let pom = "clients/redial-aws/dynamodb-local/pom.xml";
    let install = format!("mvn --batch-mode --quiet --file {pom} dependency:copy-dependencies");
    let install = CommandLine::new(&install)
        .arg("-DincludeScope=runtime")
        .arg(format!("-DoutputDirectory={folder}"))
        .downloads();
    let test =
        CRATE.cargo("test").arg("--test").arg("dynamodb_local").arg("--").arg("--include-ignored");
    Ok(vec![install, test.env("REDIAL_DYNAMODB_LOCAL", &folder)])
}

/// A vendor's S3 server; the project tags no versions for Go.
const MINIO: &str = "github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c";

/// Builds `MinIO` and runs the S3 tests against it.
pub(crate) fn minio(root: &Path) -> Result<Vec<CommandLine>, String> {
    let root = root.canonicalize().map_err(|problem| format!("{}: {problem}", root.display()))?;
    let folder = root.join("target/minio").display().to_string();
    let install = CommandLine::new("go install").arg(MINIO).env("GOBIN", &folder).downloads();
    // One server for each test: one test at a time.
    let test =
        CRATE.cargo("test").arg("--test").arg("it").arg("--").arg("s3::").arg("--test-threads=1");
    Ok(vec![install, test.env("REDIAL_MINIO", &format!("{folder}/minio"))])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aws_steps_build_in_one_folder_below_target() {
        let mut lines = checks();
        lines.extend(dynamodb(&crate::root()).unwrap());
        lines.extend(minio(&crate::root()).unwrap());
        let texts: Vec<_> = lines.iter().map(ToString::to_string).collect();
        let builds = texts.iter().filter(|line| line.contains("--target-dir target/aws"));
        assert_eq!(builds.count(), 5, "{texts:?}");
        assert!(texts[4].contains("target/dynamodb-local"), "{}", texts[4]);
        assert!(texts[5].ends_with("--test dynamodb_local -- --include-ignored"), "{}", texts[5]);
        assert!(texts[6].contains("go install github.com/minio/minio@v0.0.0-"), "{}", texts[6]);
        assert!(texts[7].contains("REDIAL_MINIO=") && texts[7].contains("s3::"), "{}", texts[7]);
    }
}
