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

/// The policies of the plan, by their paths in `docs/`.
const PLANNED: [&str; 2] = ["examples/retries.json", "examples/hedged.json"];

/// The files of the gallery, by their path in `docs/`, and their content.
///
/// # Errors
/// A simulation cannot run, or an example in `docs/` cannot be read.
pub fn gallery(docs: &Path) -> Result<Vec<(String, String)>, Error> {
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
    for path in PLANNED {
        let problem = |problem| Error::Invalid { path: path.to_owned(), problem };
        let text =
            output::read_file(docs.join(path)).map_err(|error| problem(error.to_string()))?;
        let policy = file::parse_policy(&text, file::Format::Json)
            .map_err(|problems| problem(problems.to_string()))?;
        plans.push(plan(&crate::plan::name(path), &policy, &Assumptions::default())?);
    }
    let path = "pictures/plan.svg";
    let _ = write!(
        page,
        "\n## plan\n`redial plan {}`, in the folder of this page: attempts over time, success and load of two \
         policies.\n\n![plan: attempts over time, success and load of two policies]({path})\n",
        PLANNED.join(" ")
    );
    files.push((path.to_owned(), chart::plan_svg(&plans)));
    files.push(("gallery.md".to_owned(), page));
    Ok(files)
}

/// Writes the gallery into the folder of the documentation.
pub(super) fn write(folder: &Path, err: &mut dyn Write) -> io::Result<u8> {
    let files = match gallery(folder) {
        Ok(files) => files,
        Err(error) => return output::fail(err, UNREADABLE, &error.to_string()),
    };
    fs::create_dir_all(folder.join("pictures"))?;
    for (path, content) in files {
        fs::write(folder.join(path), content)?;
    }
    Ok(OK)
}
