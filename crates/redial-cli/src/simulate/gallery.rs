//! The pictures of the documentation.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use redial_sim::plan::{Assumptions, plan};
use redial_sim::{Error, chart, file, scenarios};

use crate::output::{self, OK, UNREADABLE};

const HEAD: &str = "\
# Gallery

Pictures of the ready-made simulations and of two plans, drawn by the command `redial`. `redial simulate --gallery docs` writes
this page and its pictures, and a test checks that they are current. The model and its limits are in
[simulation.md](simulation.md).
";

/// The policies of the second plan.
const HEDGED: &str = r#"{ "attempts": 2, "hedge": {"delay": "40ms"}, "throttle": "none" }"#;
const RETRIED: &str = r#"{ "attempts": 5, "deadline": "5s", "attempt_timeout": "1s",
    "backoff": {"exponential": {"first": "100ms", "factor": 2, "cap": "2s"}} }"#;

/// The files of the gallery, by their path in `docs/`, and their content.
///
/// # Errors
/// A simulation cannot run.
pub fn gallery() -> Result<Vec<(String, String)>, Error> {
    let mut files = Vec::new();
    let mut page = HEAD.to_owned();
    for scenario in scenarios::ALL {
        let report = scenario.simulation().run()?;
        let path = format!("pictures/{}.svg", scenario.name);
        let _ = write!(
            page,
            "\n## {0}\n`redial simulate {0}`: {1}.\n\n![{0}: {1}]({path})\n",
            scenario.name, scenario.shows
        );
        files.push((path, chart::report_svg(&report)));
    }
    let mut plans = Vec::new();
    for (name, text) in [("5 attempts within 5 s", RETRIED), ("hedge after 40 ms", HEDGED)] {
        let policy = file::parse_policy(text, file::Format::Json).map_err(|problems| {
            Error::Invalid { path: name.to_owned(), problem: problems.to_string() }
        })?;
        plans.push(plan(name, &policy, &Assumptions::default())?);
    }
    let path = "pictures/plan.svg";
    let _ = write!(
        page,
        "\n## plan\n`redial plan retries.json hedged.json`: attempts over time, success and load of two \
         policies.\n\n![plan: attempts over time, success and load of two policies]({path})\n"
    );
    files.push((path.to_owned(), chart::plan_svg(&plans)));
    files.push(("gallery.md".to_owned(), page));
    Ok(files)
}

/// Writes the gallery into a folder.
pub(super) fn write(folder: &Path, err: &mut dyn Write) -> io::Result<u8> {
    let files = match gallery() {
        Ok(files) => files,
        Err(error) => return output::fail(err, UNREADABLE, &error.to_string()),
    };
    fs::create_dir_all(folder.join("pictures"))?;
    for (path, content) in files {
        fs::write(folder.join(path), content)?;
    }
    Ok(OK)
}
