//! The picture of a report: offered load and goodput over time, one panel per policy.

use std::fmt::Write as _;

use super::svg::{self, Anchor, NARROW, Svg, WIDTH, wrapped};
use super::terminal::{BOLD, CODES, Canvas, DIM, Style};
use super::{label, seconds, ticks};
use crate::report::{PolicyReport, Report};

const PANEL: f64 = 84.0;
/// The space above a panel for its name and a verdict of one line, and that of each further line.
const HEAD: f64 = 42.0;
const LINE: f64 = 16.0;
/// The space above the panels for a title of one line and a legend in one row.
const TOP: f64 = 58.0;
const BOTTOM: f64 = 34.0;
/// A line of the title or of the legend.
const ROW: f64 = 20.0;
/// The lines of a plot in a terminal.
const ROWS: usize = 5;

/// The rate at the top of all panels. A short peak is cut off, so that the rest can be read.
fn top_rate(report: &Report) -> f64 {
    let offered = |policy: &PolicyReport| {
        let mut rates: Vec<f64> = policy.series.iter().map(|it| it.offered_per_second).collect();
        rates.sort_by(f64::total_cmp);
        let peak = rates.last().copied().unwrap_or(0.0);
        let usual = rates.get(rates.len() * 97 / 100).copied().unwrap_or(peak);
        if usual > 0.0 { peak.min(usual * 1.3) } else { peak }
    };
    let most = report.policies.iter().map(offered).fold(1.0, f64::max);
    match capacity(report) {
        Some(capacity) if capacity < most * 3.0 => most.max(capacity * 1.05),
        _ => most,
    }
}

/// The capacity of the last service.
fn capacity(report: &Report) -> Option<f64> {
    report.services.last().and_then(|service| service.capacity_per_second)
}

/// The capacity, if it is not above the panels.
fn drawn_capacity(report: &Report) -> Option<f64> {
    let max = ticks(top_rate(report), 4).last().copied().unwrap_or(1.0);
    capacity(report).filter(|capacity| *capacity <= max)
}

/// The SVG of a report.
///
/// ```
/// use redial_sim::{chart, scenarios};
///
/// let report = scenarios::by_name("layers").ok_or("unknown")?.simulation().run()?;
/// assert!(chart::report_svg(&report).starts_with("<svg"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn report_svg(report: &Report) -> String {
    report_svg_of_width(report, WIDTH)
}

/// The SVG of a report with this width in pixels, from 300 to 2000; 760 is the usual one.
#[must_use]
pub fn report_svg_of_width(report: &Report, width: f64) -> String {
    let page = Page::new(report, width);
    let about = wrapped(&report.about, svg::columns(page.width - 2.0 * page.margin));
    let panels: f64 = page.verdicts.iter().map(|lines| PANEL + head(lines)).sum();
    let height = page.top + panels + BOTTOM + LINE * about.len() as f64 + 10.0;
    let names: Vec<&str> = report.policies.iter().map(|it| it.name.as_str()).collect();
    let title = title(report);
    let mut svg = Svg::new(page.width, height, &format!("{title} for {}", names.join("; ")));
    for (index, line) in page.title.iter().enumerate() {
        svg.text("title", page.text_left, 24.0 + ROW * index as f64, Anchor::Start, line);
    }
    legend(&mut svg, report, &page);
    let y_ticks = ticks(top_rate(report), 4);
    let x_ticks = ticks(report.duration_seconds, if page.is_narrow { 4 } else { 8 });
    let mut y = page.top;
    for (policy, verdict) in report.policies.iter().zip(&page.verdicts) {
        let head = head(verdict);
        panel(&mut svg, report, policy, (&page, y + head), &y_ticks, &x_ticks);
        svg.text("name", page.text_left, y + 18.0, Anchor::Start, &policy.name);
        for (index, line) in verdict.iter().enumerate() {
            let y = y + 34.0 + LINE * index as f64;
            svg.text("note", page.text_left, y, Anchor::Start, line);
        }
        y += head + PANEL;
    }
    for tick in x_ticks.iter().filter(|tick| **tick <= report.duration_seconds) {
        let x = page.left + tick / report.duration_seconds * page.plot();
        svg.text("note", x, y + 18.0, Anchor::Middle, seconds(*tick));
    }
    for (index, line) in about.iter().enumerate() {
        let y = y + BOTTOM + 14.0 + LINE * index as f64;
        svg.text("note", page.margin, y, Anchor::Start, line);
    }
    svg.finish()
}

fn title(report: &Report) -> String {
    format!("{}: offered load and goodput over time", report.name)
}

/// The space above a panel.
fn head(verdict: &[String]) -> f64 {
    HEAD + LINE * verdict.len().saturating_sub(1) as f64
}

/// Where the parts of a picture are.
struct Page {
    width: f64,
    is_narrow: bool,
    /// The left edge of notes, of names and verdicts, and of the plots.
    margin: f64,
    text_left: f64,
    left: f64,
    right: f64,
    title: Vec<String>,
    /// The top of the legend, and of the first panel.
    legend: f64,
    top: f64,
    verdicts: Vec<Vec<String>>,
}

impl Page {
    fn new(report: &Report, width: f64) -> Page {
        let width = svg::width(width);
        let is_narrow = width < NARROW;
        let (margin, text_left, left, right) =
            if is_narrow { (8.0, 8.0, 46.0, 20.0) } else { (20.0, 64.0, 64.0, 20.0) };
        let text_width = width - text_left - if is_narrow { 20.0 } else { 8.0 };
        // The letters of the title are larger.
        let title = wrapped(&title(report), svg::columns(text_width) * 3 / 4);
        let legend = 46.0 + ROW * title.len().saturating_sub(1) as f64;
        let rows = if is_narrow { legend_entries(report).count() } else { 1 };
        let columns = svg::columns(text_width);
        let verdicts = report.policies.iter().map(|policy| wrapped(&policy.verdict, columns));
        Page {
            width,
            is_narrow,
            margin,
            text_left,
            left,
            right,
            title,
            legend,
            top: legend + TOP - 46.0 + ROW * (rows - 1) as f64,
            verdicts: verdicts.collect(),
        }
    }

    /// The width of a plot.
    fn plot(&self) -> f64 {
        self.width - self.left - self.right
    }
}

/// An entry of the legend.
enum Entry {
    Offered,
    Goodput,
    Capacity(f64),
    Disturbance,
}

fn legend_entries(report: &Report) -> impl Iterator<Item = Entry> {
    let disturbance = (!report.disturbances.is_empty()).then_some(Entry::Disturbance);
    let rates = [Entry::Offered, Entry::Goodput].into_iter();
    rates.chain(drawn_capacity(report).map(Entry::Capacity)).chain(disturbance)
}

fn legend(svg: &mut Svg, report: &Report, page: &Page) {
    /// The left edges of the entries in a row.
    const IN_ROW: [f64; 4] = [0.0, 210.0, 420.0, 560.0];
    for (index, entry) in legend_entries(report).enumerate() {
        // An entry is in a row of its own, or in the only row.
        let (x, y) = match page.is_narrow {
            true => (page.text_left, page.legend + ROW * index as f64),
            false => (page.text_left + IN_ROW[index], page.legend),
        };
        let text = match entry {
            Entry::Offered => {
                svg.line("l0", (x, y - 4.0), (x + 22.0, y - 4.0));
                "requests offered per second".to_owned()
            }
            Entry::Goodput => {
                svg.rect("a1 soft", x, y - 10.0, 22.0, 11.0);
                svg.line("l1", (x, y - 10.0), (x + 22.0, y - 10.0));
                "calls that succeed (goodput)".to_owned()
            }
            Entry::Capacity(capacity) => {
                svg.line("dash", (x, y - 4.0), (x + 22.0, y - 4.0));
                format!("capacity {}", label(capacity.round()))
            }
            Entry::Disturbance => {
                svg.rect("shade", x, y - 11.0, 22.0, 13.0);
                "disturbance".to_owned()
            }
        };
        svg.text("", x + 28.0, y, Anchor::Start, text);
    }
}

fn panel(
    svg: &mut Svg,
    report: &Report,
    policy: &PolicyReport,
    (page, top): (&Page, f64),
    y_ticks: &[f64],
    x_ticks: &[f64],
) {
    let (left, width) = (page.left, page.plot());
    let max = y_ticks.last().copied().unwrap_or(1.0);
    let x = |at: f64| left + at / report.duration_seconds * width;
    let y = |rate: f64| top + PANEL - (rate / max).min(1.0) * PANEL;
    for (from, to) in &report.disturbances {
        svg.rect("shade", x(*from), top, x(*to) - x(*from), PANEL);
    }
    for tick in y_ticks {
        svg.line("grid", (left, y(*tick)), (left + width, y(*tick)));
        svg.text("note", left - 8.0, y(*tick) + 4.0, Anchor::End, label(*tick));
    }
    for tick in x_ticks.iter().filter(|tick| **tick <= report.duration_seconds) {
        svg.line("axis", (x(*tick), top + PANEL), (x(*tick), top + PANEL + 4.0));
    }
    let middle = report.interval_seconds / 2.0;
    let line = |of: fn(&crate::Point) -> f64| -> Vec<(f64, f64)> {
        let point = |point: &crate::Point| {
            (x((point.at_seconds + middle).min(report.duration_seconds)), y(of(point)))
        };
        policy.series.iter().map(point).collect()
    };
    let goodput = line(|point| point.goodput_per_second);
    if let (Some(first), Some(last)) = (goodput.first(), goodput.last()) {
        let mut area = vec![(first.0, y(0.0))];
        area.extend(&goodput);
        area.push((last.0, y(0.0)));
        svg.polygon("a1 soft", &area);
    }
    svg.polyline("l0", &line(|point| point.offered_per_second));
    svg.polyline("l1", &goodput);
    if let Some(capacity) = drawn_capacity(report) {
        svg.line("dash", (left, y(capacity)), (left + width, y(capacity)));
    }
    svg.line("axis", (left, top + PANEL), (left + width, top + PANEL));
}

/// The report as text with plots, for a terminal or a file.
#[must_use]
pub fn report_text(report: &Report, style: Style) -> String {
    let width = style.width();
    let mut text = String::new();
    let _ = writeln!(text, "{}", style.paint(BOLD, &report.name));
    for line in wrapped(&report.about, width.min(110)) {
        let _ = writeln!(text, "{}", style.paint(DIM, &line));
    }
    let _ = writeln!(
        text,
        "\n{} requests offered per second   {} goodput per second   seed {}",
        style.paint(CODES[0], "⠤⠤"),
        style.paint(CODES[1], "⣿⣿"),
        report.seed
    );
    let ticks = ticks(top_rate(report), 4);
    let max = ticks.last().copied().unwrap_or(1.0);
    for policy in &report.policies {
        let _ = writeln!(text, "\n{}", style.paint(BOLD, &policy.name));
        for line in wrapped(&policy.verdict, width - 2) {
            let _ = writeln!(text, "  {line}");
        }
        plot(&mut text, report, policy, max, style);
    }
    text.push('\n');
    table(&mut text, report, style);
    text
}

fn plot(text: &mut String, report: &Report, policy: &PolicyReport, max: f64, style: Style) {
    const MARGIN: usize = 10;
    let width = style.width() - MARGIN - 1;
    let mut canvas = Canvas::new(width, ROWS);
    let of = |of: fn(&crate::Point) -> f64| -> Vec<f64> { policy.series.iter().map(of).collect() };
    canvas.area(&of(|point| point.goodput_per_second), max, 1);
    canvas.line(&of(|point| point.offered_per_second), max, 0);
    for row in 0..ROWS {
        let tick = match row {
            0 => label(max),
            _ if row == ROWS - 1 => "0".to_owned(),
            _ => String::new(),
        };
        let _ = writeln!(text, "{tick:>8} │{}", canvas.row(row, style).trim_end());
    }
    let mut axis = String::new();
    for tick in ticks(report.duration_seconds, width / 14) {
        if tick > report.duration_seconds {
            break;
        }
        let at = (tick / report.duration_seconds * (width - 1) as f64) as usize;
        let name = seconds(tick);
        if axis.chars().count() <= at && at + name.chars().count() <= width {
            while axis.chars().count() < at {
                axis.push(' ');
            }
            axis.push_str(&name);
        }
    }
    let _ = writeln!(text, "         └{}\n          {axis}", "─".repeat(width));
}

/// The figures of all policies.
fn table(text: &mut String, report: &Report, style: Style) {
    const COLUMNS: usize = 59;
    let longest = report.policies.iter().map(|it| it.name.chars().count()).max().unwrap_or(0);
    let width = longest.min(style.width().saturating_sub(COLUMNS)).max(6);
    let _ = writeln!(
        text,
        "{:<width$} {:>9} {:>9} {:>9} {:>8} {:>9} {:>9}",
        "policy", "offered/s", "goodput/s", "recovered", "req/call", "p50", "p99"
    );
    for policy in &report.policies {
        let recovered = match (policy.recovered_after_seconds, policy.was_disturbed) {
            (Some(after), _) => format!("{after:.0} s"),
            (None, true) => "never".to_owned(),
            (None, false) => "-".to_owned(),
        };
        // A name that is too long for its column has a line of its own.
        let mut name = policy.name.as_str();
        if name.chars().count() > width {
            let _ = writeln!(text, "{name}");
            name = "";
        }
        let _ = writeln!(
            text,
            "{name:<width$} {:>9.0} {:>9.0} {recovered:>9} {:>8.2} {:>9} {:>9}",
            policy.offered_per_second,
            policy.goodput_per_second,
            policy.amplification,
            seconds(policy.latency.p50_ms / 1000.0),
            seconds(policy.latency.p99_ms / 1000.0),
        );
    }
}

#[cfg(test)]
mod tests {
    use redial_core::{ms, s};

    use super::*;
    use crate::{CallPolicy, Distribution, Service, Simulation, Variant};

    fn report(workers: Option<u32>) -> Report {
        let mut simulation = Simulation::new("small", s(5));
        let mut service = Service::new("backend", Distribution::Fixed(ms(500)));
        service.workers = workers;
        simulation.services.push(service);
        simulation.policies.push(Variant::new("default", CallPolicy::default()));
        simulation.run().expect("it runs")
    }

    #[test]
    fn chart_wraps_a_verdict_that_is_too_long() {
        let mut report = report(None);
        let short = report_svg(&report);
        report.policies[0].verdict = "a long verdict ".repeat(12);
        let long = report_svg(&report);
        let notes = long.lines().filter_map(|line| line.strip_prefix("<text class=\"note\""));
        let texts = notes.filter_map(|line| line.split_once('>')?.1.strip_suffix("</text>"));
        let most = texts.map(|text| text.chars().count()).max();
        assert!(most.is_some_and(|most| (80..=112).contains(&most)), "{most:?}");
        let height = |svg: &str| -> Option<f64> {
            svg.split_once(" height=\"")?.1.split_once('"')?.0.parse().ok()
        };
        assert_eq!(height(&long), height(&short).map(|height| height + LINE));
    }

    #[test]
    fn chart_legend_has_the_capacity_only_if_it_is_drawn() {
        assert!(report_svg(&report(Some(1))).contains(">capacity 2<"));
        assert!(!report_svg(&report(Some(1000))).contains(">capacity"));
    }
}
