//! `redial simulate`: a fleet in virtual time, from a file or by the name of a scenario
//! (docs/simulation.md).

mod gallery;

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;

use redial_sim::file::{self, Format};
use redial_sim::{Error, Load, Simulation, SimulationReport, chart, scenarios};

use crate::output::{self, OK, PROBLEMS, Pictures, UNREADABLE};
use crate::{check, progress};

pub use gallery::gallery;

/// The largest number of runs of a sweep.
pub const RUNS_MAX: usize = 10_000;

/// The arguments of `redial simulate`.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(after_help = "Exit codes: 0 success, 1 problems in the simulation file, 2 a file that \
cannot be read or written, or wrong usage.")]
pub struct Arguments {
    /// A simulation file (TOML or JSON; `-` is standard input), or the name of a scenario (see --list).
    #[arg(value_name = "FILE|NAME", required_unless_present_any = ["list", "gallery"])]
    pub simulation: Option<String>,
    /// List the ready-made scenarios.
    #[arg(long)]
    pub list: bool,
    /// Print the simulation file of a scenario, as a start for your own, and do not run it.
    #[arg(long)]
    pub print: bool,
    /// The seed of the random numbers; the same seed gives the same result.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Run this many seeds on all cores, and print how each policy did in all of them.
    #[arg(long, value_name = "N", conflicts_with_all = ["svg", "png", "html"])]
    pub seeds: Option<u32>,
    /// Multiply the rate of calls by each of these factors, on all cores: a sweep over the load.
    #[arg(long, value_name = "FACTOR,..", value_delimiter = ',', value_parser = factor, conflicts_with_all = ["svg", "png", "html"])]
    pub load: Vec<f64>,
    /// The pictures to write.
    #[command(flatten)]
    pub pictures: Pictures,
    /// Write the gallery into this folder of the documentation, from the examples in it.
    #[arg(long, value_name = "FOLDER", hide = true)]
    pub gallery: Option<String>,
}

fn factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if factor.is_finite() && factor > 0.0 => Ok(factor),
        _ => Err("write a number above 0, like 1.5".to_owned()),
    }
}

/// Runs the command. Returns 0, 1 if the file has problems, or 2 if a file cannot be read or written.
///
/// # Errors
/// The output cannot be written.
pub fn run(arguments: &Arguments, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<u8> {
    if arguments.list {
        return list(arguments.pictures.json, out);
    }
    if let Some(folder) = &arguments.gallery {
        return gallery::write(Path::new(folder), err);
    }
    let name = arguments.simulation.as_deref().unwrap_or_default();
    if arguments.print {
        return match scenarios::by_name(name) {
            Some(scenario) => out.write_all(scenario.text.as_bytes()).map(|()| OK),
            None => output::fail(err, UNREADABLE, &unknown(name, "no scenario has this name")),
        };
    }
    let mut simulation = match open(name) {
        Ok(simulation) => simulation,
        Err((code, text)) => return output::fail(err, code, &text),
    };
    if let Some(seed) = arguments.seed {
        simulation.seed = seed;
    }
    if arguments.seeds.is_some() || !arguments.load.is_empty() {
        return sweep(arguments, &simulation, out, err);
    }
    let report = match progress::with_bar(|progress| simulation.run_with_progress(progress)) {
        Ok(report) => report,
        Err(error) => return output::fail(err, PROBLEMS, &format!("{name}: {error}")),
    };
    show(arguments, &report, out, err)
}

fn list(json: bool, out: &mut dyn Write) -> io::Result<u8> {
    if json {
        let entry =
            |it: &scenarios::Scenario| serde_json::json!({"name": it.name, "shows": it.shows});
        let list: Vec<_> = scenarios::ALL.iter().map(entry).collect();
        writeln!(out, "{}", serde_json::json!({ "scenarios": list }))?;
        return Ok(OK);
    }
    for scenario in scenarios::ALL {
        writeln!(out, "{:<16} {}", scenario.name, scenario.shows)?;
    }
    Ok(OK)
}

fn unknown(name: &str, what: &str) -> String {
    let names: Vec<&str> = scenarios::ALL.iter().map(|scenario| scenario.name).collect();
    let meant = check::nearest(name, &names).map(|name| format!(" did you mean {name:?}?"));
    let listed = names.join(", ");
    format!("{name}: {what};{} the scenarios are {listed}", meant.unwrap_or_default())
}

/// The simulation of a file or scenario, or the exit code and what is wrong.
fn open(name: &str) -> Result<Simulation, (u8, String)> {
    if let Some(scenario) = scenarios::by_name(name) {
        return Ok(scenario.simulation());
    }
    let is_file = name == "-" || Path::new(name).exists() || name.contains(['.', '/', '\\']);
    if !is_file {
        let text = unknown(name, "neither a file nor a scenario has this name");
        return Err((UNREADABLE, text));
    }
    let text = output::read(name).map_err(|error| (UNREADABLE, error))?;
    let mut simulation =
        file::parse(&text, Format::of(name, &text), &files_beside(name)).map_err(|problems| {
            let lines: Vec<String> =
                problems.as_slice().iter().map(|problem| format!("{name}:{problem}")).collect();
            (PROBLEMS, lines.join("\n"))
        })?;
    if simulation.name.is_empty() {
        let stem = Path::new(name).file_stem().unwrap_or_default();
        simulation.name = stem.to_string_lossy().into_owned();
    }
    Ok(simulation)
}

/// Opens the files that a simulation file of this name refers to, relative to its folder.
pub(crate) fn files_beside(name: &str) -> impl Fn(&str) -> io::Result<String> {
    let folder = Path::new(name).parent().unwrap_or(Path::new("")).to_owned();
    move |file| output::read_file(folder.join(file))
}

fn show(
    arguments: &Arguments,
    report: &SimulationReport,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<u8> {
    let json = serde_json::to_string(report).map_err(io::Error::other)?;
    let text = |style| chart::report_text(report, style);
    let svg = chart::report_svg(report);
    arguments.pictures.show(&report.name, &svg, &text, &json, out, err)
}

/// Runs several seeds or loads, and shows one line per policy and load.
fn sweep(
    arguments: &Arguments,
    simulation: &Simulation,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<u8> {
    let factors = if arguments.load.is_empty() { &[1.0][..] } else { &arguments.load };
    let seeds = u64::from(arguments.seeds.unwrap_or(1));
    let runs = factors.len().saturating_mul(usize::try_from(seeds).unwrap_or(usize::MAX));
    if runs == 0 || runs > RUNS_MAX {
        let text = format!("a sweep of {runs} runs; ask for 1 to {RUNS_MAX}");
        return output::fail(err, UNREADABLE, &text);
    }
    let mut simulations = Vec::new();
    for factor in factors {
        for seed in 0..seeds {
            let mut one = simulation.clone();
            one.seed = simulation.seed.wrapping_add(seed);
            match &mut one.clients.load {
                Load::Poisson { calls_per_second } | Load::Even { calls_per_second } => {
                    *calls_per_second *= factor;
                }
                _ if *factor == 1.0 => {}
                _ => {
                    let text = "--load needs clients with calls_per_second";
                    return output::fail(err, UNREADABLE, text);
                }
            }
            simulations.push(one);
        }
    }
    let reports = match progress::with_bar(|it| redial_sim::sweep_with_progress(&simulations, it)) {
        Ok(reports) => reports,
        Err(error @ Error::Invalid { .. }) => {
            // The file was valid before its rate of calls was multiplied.
            let is_file = arguments.load.is_empty() || !simulation.problems().is_empty();
            let (code, what) = match is_file {
                true => (PROBLEMS, &*simulation.name),
                false => (UNREADABLE, "--load"),
            };
            return output::fail(err, code, &format!("{what}: {error}"));
        }
        Err(error) => return output::fail(err, PROBLEMS, &error.to_string()),
    };
    if arguments.pictures.json {
        let json = serde_json::to_string(&serde_json::json!({ "runs": reports }));
        writeln!(out, "{}", json.map_err(io::Error::other)?)?;
    } else {
        let seeds = usize::try_from(seeds).unwrap_or(1);
        for (factor, reports) in factors.iter().zip(reports.chunks(seeds)) {
            write!(out, "{}", summary(*factor, reports))?;
        }
    }
    Ok(OK)
}

/// One line per policy: the mean rates, and in how many runs it recovered.
fn summary(factor: f64, reports: &[SimulationReport]) -> String {
    let mut text = format!("load × {factor}, {} runs\n", reports.len());
    let names: Vec<&str> = reports[0].policies.iter().map(|it| it.name.as_str()).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    for (index, name) in names.iter().enumerate() {
        let runs = reports.iter().map(|report| &report.policies[index]);
        let count = reports.len() as f64;
        let offered = runs.clone().map(|it| it.offered_per_second).sum::<f64>() / count;
        let goodput = runs.clone().map(|it| it.goodput_per_second).sum::<f64>() / count;
        let _ = write!(text, "  {name:<width$} offered {offered:>8.0}/s goodput {goodput:>8.0}/s");
        if runs.clone().any(|it| it.was_disturbed) {
            let mut after: Vec<f64> = runs.filter_map(|it| it.recovered_after_seconds).collect();
            after.sort_by(f64::total_cmp);
            let _ = write!(text, "  recovered {} of {}", after.len(), reports.len());
            if let (Some(first), Some(last)) = (after.first(), after.last()) {
                let _ = match *last == 0.0 {
                    true => write!(text, " at once"),
                    false => write!(text, " after {first:.0} to {last:.0} s"),
                };
            }
        }
        text.push('\n');
    }
    text
}
