//! The picture of a report, one panel per policy: offered load and goodput over time, and beside them the
//! requests per call, the 99th percentile of the latency, and the tokens of a throttle.

use std::fmt::Write as _;

use super::svg::{self, Anchor, NARROW, Svg, WIDTH, wrapped};
use super::terminal::{self, BOLD, CODES, Canvas, DIM, Style};
use super::{label, seconds, ticks};
use crate::report::{Point, PolicyReport, SimulationReport};

const PANEL: f64 = 84.0;
/// The space above a panel for its name and a verdict of one line, and that of each further line.
const HEAD: f64 = 50.0;
const LINE: f64 = 16.0;
/// The space above the panels for a title of one line and a legend in one row.
const TOP: f64 = 58.0;
const BOTTOM: f64 = 34.0;
/// The height of a strip below a panel and of the space above it, and the width of the labels of a strip
/// beside a panel.
const STRIP: f64 = 34.0;
const STRIP_GAP: f64 = 12.0;
const STRIP_LABELS: f64 = 62.0;
/// A line of the title or of the legend.
const ROW: f64 = 20.0;
/// The lines of a plot in a terminal.
const ROWS: usize = 5;

/// A figure over time beside the rates.
struct Strip {
    name: &'static str,
    /// In a terminal.
    short: &'static str,
    class: &'static str,
    of: fn(&Point) -> Option<f64>,
    label: fn(f64) -> String,
    /// The least value at the top.
    top_min: f64,
    /// Whether each policy has an axis of its own: its tokens are not those of another throttle.
    own_axis: bool,
}

const STRIPS: [Strip; 3] = [
    Strip {
        name: "requests per call",
        short: "req/call",
        class: "l2",
        of: |point| point.amplification,
        label,
        top_min: 2.0,
        own_axis: false,
    },
    Strip {
        name: "99th percentile of the latency",
        short: "p99",
        class: "l3",
        of: |point| point.p99_ms.map(|ms| ms / 1000.0),
        label: seconds,
        top_min: 0.0,
        own_axis: false,
    },
    Strip {
        name: "retry tokens left",
        short: "tokens",
        class: "l4",
        of: |point| point.tokens,
        label,
        top_min: 0.0,
        own_axis: true,
    },
];
/// The place of the tokens in [`STRIPS`]: the last, since not every policy shows them.
const TOKENS: usize = STRIPS.len() - 1;

/// The strips of a picture: none for calls that all start in one interval, whose latency is the time.
fn strips(report: &SimulationReport) -> &'static [Strip] {
    let intervals = |policy: &PolicyReport| {
        policy.series.iter().filter(|point| point.calls_per_second > 0.0).count()
    };
    if report.policies.iter().all(|policy| intervals(policy) <= 1) {
        return &[];
    }
    if report.policies.iter().any(uses_tokens) { &STRIPS } else { &STRIPS[..TOKENS] }
}

/// The strips of a policy.
fn strips_of(report: &SimulationReport, policy: &PolicyReport) -> &'static [Strip] {
    let all = strips(report);
    if uses_tokens(policy) { all } else { &all[..all.len().min(TOKENS)] }
}

/// Whether a retry has taken tokens: otherwise they stay as they are.
fn uses_tokens(policy: &PolicyReport) -> bool {
    policy.series.windows(2).any(|pair| pair[0].tokens != pair[1].tokens)
}

impl Strip {
    /// The ticks of the axis of a policy.
    fn ticks(&self, report: &SimulationReport, policy: &PolicyReport) -> Vec<f64> {
        if self.own_axis {
            let values = policy.series.iter().filter_map(self.of);
            return ticks(values.fold(self.top_min, f64::max), 3);
        }
        let top = |policy: &PolicyReport| top(policy.series.iter().filter_map(self.of));
        ticks(report.policies.iter().map(top).fold(self.top_min, f64::max), 3)
    }
}

/// What a picture says if [`top`] has cut a peak off.
const CUT: &str = "Short peaks above the top of an axis are cut off.";

/// Whether a peak is cut off.
fn is_cut(report: &SimulationReport) -> bool {
    let max = last(&ticks(top_rate(report), 4));
    report.policies.iter().any(|policy| {
        policy.series.iter().any(|point| point.offered_per_second > max)
            || strips(report).iter().any(|strip| {
                let max = last(&strip.ticks(report, policy));
                policy.series.iter().filter_map(strip.of).any(|value| value > max)
            })
    })
}

/// The value at the top of a plot. A short peak is cut off, so that the rest can be read.
fn top(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let peak = values.last().copied().unwrap_or(0.0);
    let usual = values.get(values.len() * 97 / 100).copied().unwrap_or(peak);
    if usual > 0.0 { peak.min(usual * 1.3) } else { peak }
}

/// The rate at the top of all panels.
fn top_rate(report: &SimulationReport) -> f64 {
    let offered =
        |policy: &PolicyReport| top(policy.series.iter().map(|point| point.offered_per_second));
    let most = report.policies.iter().map(offered).fold(1.0, f64::max);
    match capacity(report) {
        Some(capacity) if capacity < most * 3.0 => most.max(capacity * 1.05),
        _ => most,
    }
}

/// The capacity of the last service.
fn capacity(report: &SimulationReport) -> Option<f64> {
    report.services.last().and_then(|service| service.capacity_per_second)
}

/// The capacity, if it is not above the panels.
fn drawn_capacity(report: &SimulationReport) -> Option<f64> {
    let max = last(&ticks(top_rate(report), 4));
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
pub fn report_svg(report: &SimulationReport) -> String {
    report_svg_of_width(report, WIDTH)
}

/// The SVG of a report with this width in pixels, from 300 to 2000; 760 is the usual one.
#[must_use]
pub fn report_svg_of_width(report: &SimulationReport, width: f64) -> String {
    let page = Page::new(report, width);
    let columns = svg::columns(page.width - 2.0 * page.margin);
    let mut about = wrapped(&report.about, columns);
    if is_cut(report) {
        about.extend(wrapped(CUT, columns));
    }
    let heads: f64 = page.verdicts.iter().map(|lines| head(lines)).sum();
    let panels =
        report.policies.iter().map(|policy| page.panel(report, policy)).sum::<f64>() + heads;
    let height = page.top + panels + BOTTOM + LINE * about.len() as f64 + 10.0;
    let names: Vec<&str> = report.policies.iter().map(|it| it.name.as_str()).collect();
    let title = title(report);
    let mut svg = Svg::new(page.width, height, &format!("{title} for {}", names.join("; ")));
    for (index, line) in page.title.iter().enumerate() {
        svg.text("title", page.text_left, 24.0 + ROW * index as f64, Anchor::Start, line);
    }
    legend(&mut svg, report, &page);
    let rates = ticks(top_rate(report), 4);
    let mut y = page.top;
    for (policy, verdict) in report.policies.iter().zip(&page.verdicts) {
        svg.text("name", page.text_left, y + 20.0, Anchor::Start, &policy.name);
        for (index, line) in verdict.iter().enumerate() {
            let y = y + 36.0 + LINE * index as f64;
            svg.text("note", page.text_left, y, Anchor::Start, line);
        }
        y += head(verdict);
        panel(&mut svg, report, policy, (page.rates(), y), &rates);
        for (index, strip) in strips_of(report, policy).iter().enumerate() {
            strip_panel(&mut svg, report, policy, (page.strip(index), y), strip);
        }
        y += page.panel(report, policy);
    }
    let strips = (0..page.columns()).map(|index| page.strip(index));
    for plot in [page.rates()].into_iter().chain(strips.filter(|_| !page.is_narrow)) {
        for (tick, x) in plot.times(report) {
            svg.text("note", x, y + 18.0, Anchor::Middle, seconds(tick));
        }
    }
    for (index, line) in about.iter().enumerate() {
        let y = y + BOTTOM + 14.0 + LINE * index as f64;
        svg.text("note", page.margin, y, Anchor::Start, line);
    }
    svg.finish()
}

fn title(report: &SimulationReport) -> String {
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
    strips: &'static [Strip],
}

/// Where a plot is, from the top of its panel.
#[derive(Clone, Copy)]
struct Plot {
    left: f64,
    width: f64,
    top: f64,
    height: f64,
}

impl Plot {
    fn x(self, report: &SimulationReport, at: f64) -> f64 {
        self.left + (at / report.duration_seconds).min(1.0) * self.width
    }

    /// The ticks of the time, and where they are.
    fn times(self, report: &SimulationReport) -> impl Iterator<Item = (f64, f64)> {
        let ticks = ticks(report.duration_seconds, (self.width / 85.0) as usize + 1);
        let ticks = ticks.into_iter().filter(|tick| *tick <= report.duration_seconds);
        ticks.map(move |tick| (tick, self.x(report, tick)))
    }
}

impl Page {
    fn new(report: &SimulationReport, width: f64) -> Page {
        let width = svg::width(width);
        let is_narrow = width < NARROW;
        let (margin, text_left, left, right) =
            if is_narrow { (8.0, 8.0, 54.0, 20.0) } else { (20.0, 64.0, 64.0, 20.0) };
        let text_width = width - text_left - if is_narrow { 20.0 } else { 8.0 };
        // The letters of the title are larger.
        let title = wrapped(&title(report), svg::columns(text_width) * 3 / 4);
        let legend = 46.0 + ROW * title.len().saturating_sub(1) as f64;
        let rows = match is_narrow {
            true => legend_entries(report).count(),
            false => 1 + usize::from(!strips(report).is_empty()),
        };
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
            strips: strips(report),
        }
    }

    /// The plot of the rates: the strips are to the right of it, or below it on a narrow page.
    fn rates(&self) -> Plot {
        let strips = if self.is_narrow { 0 } else { self.columns() };
        let width = self.width - self.left - self.right - strips as f64 * self.strip_width();
        Plot { left: self.left, width, top: 0.0, height: PANEL }
    }

    /// The columns of strips on a wide page: the tokens are below the requests per call.
    fn columns(&self) -> usize {
        self.strips.len().min(TOKENS)
    }

    /// The width of a strip and of the space to the left of it, for its labels.
    fn strip_width(&self) -> f64 {
        (self.width - self.left - self.right) * 0.25
    }

    fn strip(&self, index: usize) -> Plot {
        let rates = self.rates();
        if self.is_narrow {
            let top = PANEL + STRIP_GAP + (STRIP + STRIP_GAP) * index as f64;
            return Plot { top, height: STRIP, ..rates };
        }
        let is_shared = self.strips.len() > TOKENS;
        let (column, top, height) = match index {
            0 if is_shared => (0, 0.0, STRIP),
            TOKENS => (0, PANEL - STRIP, STRIP),
            _ => (index, 0.0, PANEL),
        };
        let left = rates.left + rates.width + self.strip_width() * column as f64 + STRIP_LABELS;
        Plot { left, width: self.strip_width() - STRIP_LABELS, top, height }
    }

    /// The height of a panel without the space above it.
    fn panel(&self, report: &SimulationReport, policy: &PolicyReport) -> f64 {
        let strips = if self.is_narrow { strips_of(report, policy).len() } else { 0 };
        PANEL + (STRIP + STRIP_GAP) * strips as f64
    }
}

/// An entry of the legend.
enum Entry {
    Offered,
    Goodput,
    Capacity(f64),
    Disturbance,
    Strip(&'static Strip),
}

fn legend_entries(report: &SimulationReport) -> impl Iterator<Item = Entry> {
    let disturbance = (!report.disturbances.is_empty()).then_some(Entry::Disturbance);
    let rates = [Entry::Offered, Entry::Goodput].into_iter();
    let strips = strips(report).iter().map(Entry::Strip);
    rates.chain(drawn_capacity(report).map(Entry::Capacity)).chain(disturbance).chain(strips)
}

fn legend(svg: &mut Svg, report: &SimulationReport, page: &Page) {
    /// The left edges of the entries in a row.
    const IN_ROW: [f64; 4] = [0.0, 210.0, 420.0, 560.0];
    const STRIPS_IN_ROW: [f64; STRIPS.len()] = [0.0, 210.0, 450.0];
    let before_strips = legend_entries(report).count() - page.strips.len();
    for (index, entry) in legend_entries(report).enumerate() {
        // An entry is in a row of its own, or in the row of the rates or of the strips.
        let (x, y) = match (page.is_narrow, index.checked_sub(before_strips)) {
            (true, _) => (page.text_left, page.legend + ROW * index as f64),
            (false, None) => (page.text_left + IN_ROW[index], page.legend),
            (false, Some(strip)) => (page.text_left + STRIPS_IN_ROW[strip], page.legend + ROW),
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
            Entry::Strip(strip) => {
                svg.line(strip.class, (x, y - 4.0), (x + 22.0, y - 4.0));
                strip.name.to_owned()
            }
        };
        svg.text("", x + 28.0, y, Anchor::Start, text);
    }
}

/// Draws the axes of a plot and the disturbances, and returns the height of a value.
fn axes(
    svg: &mut Svg,
    report: &SimulationReport,
    (plot, top): (Plot, f64),
    ticks: &[f64],
    label: fn(f64) -> String,
) -> impl Fn(f64) -> f64 + use<> {
    let Plot { left, width, height, .. } = plot;
    let top = top + plot.top;
    let max = last(ticks);
    let y = move |value: f64| top + height - (value / max).min(1.0) * height;
    for (from, to) in &report.disturbances {
        let (from, to) = (plot.x(report, *from), plot.x(report, *to));
        svg.rect("shade", from, top, to - from, height);
    }
    // A low plot has room for two labels.
    let has_room = height >= LINE * ticks.len() as f64;
    for (index, tick) in ticks.iter().enumerate() {
        svg.line("grid", (left, y(*tick)), (left + width, y(*tick)));
        if has_room || index == 0 || index + 1 == ticks.len() {
            svg.text("note", left - 8.0, y(*tick) + 4.0, Anchor::End, label(*tick));
        }
    }
    for (_, x) in plot.times(report) {
        svg.line("axis", (x, top + height), (x, top + height + 4.0));
    }
    y
}

fn panel(
    svg: &mut Svg,
    report: &SimulationReport,
    policy: &PolicyReport,
    (plot, top): (Plot, f64),
    ticks: &[f64],
) {
    let y = axes(svg, report, (plot, top), ticks, label);
    let middle = report.interval_seconds / 2.0;
    let line = |of: fn(&Point) -> f64| -> Vec<(f64, f64)> {
        let point = |point: &Point| (plot.x(report, point.at_seconds + middle), y(of(point)));
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
    let (left, right) = (plot.left, plot.left + plot.width);
    if let Some(capacity) = drawn_capacity(report) {
        svg.line("dash", (left, y(capacity)), (right, y(capacity)));
    }
    svg.line("axis", (left, y(0.0)), (right, y(0.0)));
}

fn strip_panel(
    svg: &mut Svg,
    report: &SimulationReport,
    policy: &PolicyReport,
    (plot, top): (Plot, f64),
    strip: &Strip,
) {
    let y = axes(svg, report, (plot, top), &strip.ticks(report, policy), strip.label);
    // A line for each run of intervals with a value.
    for points in policy.series.chunk_by(|a, b| (strip.of)(a).is_some() == (strip.of)(b).is_some())
    {
        let from = points.first().map_or(0.0, |point| point.at_seconds);
        let to = points.last().map_or(0.0, |point| point.at_seconds) + report.interval_seconds;
        let values: Vec<f64> = points.iter().filter_map(strip.of).collect();
        let step = (to - from) / values.len().max(1) as f64;
        let point = |(index, value): (usize, &f64)| {
            (plot.x(report, from + step * (index as f64 + 0.5)), y(*value))
        };
        match values[..] {
            [] => {}
            [value] => {
                let at = |seconds| (plot.x(report, seconds), y(value));
                svg.polyline(strip.class, &[at(from), at(to)]);
            }
            _ => {
                let line: Vec<_> = values.iter().enumerate().map(point).collect();
                svg.polyline(strip.class, &line);
            }
        }
    }
    svg.line("axis", (plot.left, y(0.0)), (plot.left + plot.width, y(0.0)));
}

/// The report as text with plots, for a terminal or a file.
#[must_use]
pub fn report_text(report: &SimulationReport, style: Style) -> String {
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
    for (strip, code) in strips(report).iter().zip(&CODES[2..]) {
        let most = match report.policies.first() {
            Some(policy) if !strip.own_axis => (strip.label)(last(&strip.ticks(report, policy))),
            _ => "the most of each policy".to_owned(),
        };
        let _ = writeln!(text, "{} {} as bars up to {most}", style.paint(*code, "▃█"), strip.name);
    }
    if is_cut(report) {
        let _ = writeln!(text, "{}", style.paint(DIM, CUT));
    }
    let max = last(&ticks(top_rate(report), 4));
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

/// The value at the top of an axis.
fn last(ticks: &[f64]) -> f64 {
    ticks.last().copied().unwrap_or(1.0)
}

fn plot(
    text: &mut String,
    report: &SimulationReport,
    policy: &PolicyReport,
    max: f64,
    style: Style,
) {
    const MARGIN: usize = 10;
    let width = style.width() - MARGIN - 1;
    let mut canvas = Canvas::new(width, ROWS);
    let of = |of: fn(&Point) -> f64| -> Vec<f64> { policy.series.iter().map(of).collect() };
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
    for (strip, code) in strips_of(report, policy).iter().zip(&CODES[2..]) {
        let values: Vec<Option<f64>> = policy.series.iter().map(strip.of).collect();
        let max = last(&strip.ticks(report, policy));
        let bars = terminal::bars(&values, max, width);
        let _ = writeln!(text, "{:>8} │{}", strip.short, style.paint(*code, bars.trim_end()));
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
fn table(text: &mut String, report: &SimulationReport, style: Style) {
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
    use crate::{CallPolicy, Distribution, Load, Service, Simulation, Variant};

    fn report(workers: Option<u32>) -> SimulationReport {
        let mut simulation = Simulation::new("small", s(5));
        simulation.clients.load = Load::Even { calls_per_second: 100.0 };
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
    fn chart_draws_requests_per_call_and_latency() {
        let mut report = report(None);
        let names = ["requests per call", "99th percentile of the latency"];
        for width in [300.0, 760.0] {
            let svg = report_svg_of_width(&report, width);
            assert!(names.iter().all(|name| svg.contains(&format!(">{name}<"))), "{svg}");
            for class in ["l2", "l3"] {
                assert_eq!(svg.matches(&format!("<polyline class=\"{class}\"")).count(), 1);
            }
        }
        let text = report_text(&report, Style::plain(80));
        assert!(text.contains("\nreq/call │▄") && text.contains("\n     p99 │"), "{text}");
        // A burst.
        report.policies[0].series.iter_mut().skip(1).for_each(|point| point.calls_per_second = 0.0);
        let (svg, text) = (report_svg(&report), report_text(&report, Style::plain(80)));
        assert!(names.iter().all(|name| !svg.contains(name)), "{svg}");
        assert!(!text.contains("req/call │") && !text.contains("p99 │"), "{text}");
    }

    #[test]
    fn chart_interrupts_a_line_where_no_call_succeeds() {
        let mut report = report(None);
        report.policies[0].series[60].p99_ms = None;
        let svg = report_svg(&report);
        assert_eq!(svg.matches("<polyline class=\"l3\"").count(), 2, "{svg}");
    }

    #[test]
    fn chart_draws_the_tokens_of_policies_that_use_them() {
        let mut report = report(None);
        report.policies.push(report.policies[0].clone());
        assert!(!report_svg(&report).contains("retry tokens left"), "no retry has used them");
        for (index, point) in report.policies[1].series.iter_mut().enumerate() {
            point.tokens = Some(if index < 50 { 100.0 } else { 0.0 });
        }
        for width in [300.0, 760.0] {
            let svg = report_svg_of_width(&report, width);
            assert!(svg.contains(">retry tokens left<"), "{svg}");
            assert_eq!(svg.matches("<polyline class=\"l4\"").count(), 1, "{svg}");
        }
        let text = report_text(&report, Style::plain(80));
        assert_eq!(text.matches("\n  tokens │█").count(), 1, "{text}");
        assert!(!text.contains(CUT) && !report_svg(&report).contains(CUT));
        report.policies[0].series[50].p99_ms = Some(1e6);
        assert!(report_text(&report, Style::plain(80)).contains(CUT));
        assert!(report_svg(&report).contains(CUT));
    }

    #[test]
    fn chart_legend_has_the_capacity_only_if_it_is_drawn() {
        assert!(report_svg(&report(Some(1))).contains(">capacity 2<"));
        assert!(!report_svg(&report(Some(1000))).contains(">capacity"));
    }
}
