//! The picture of plans: timelines of attempts, and curves of success and load.

use std::fmt::Write as _;

use super::svg::{self, Anchor, COLOURS, NARROW, Svg, WIDTH, wrapped};
use super::terminal::{BOLD, CODES, Canvas, Style, sample};
use super::{label, seconds, ticks};
use crate::plan::{PolicyPlan, Window};

const ROW: f64 = 22.0;
/// The space for the name of a policy.
const NAME: f64 = 26.0;
/// The height of a curve.
const CURVE: f64 = 190.0;
/// The space above a curve, and below it for its axis.
const ABOVE_CURVE: f64 = 58.0;
const BELOW_CURVE: f64 = 62.0;
/// A line of a note, and of the title.
const LINE: f64 = 17.0;
const TITLE: f64 = 20.0;

/// The last moment of a plan that is drawn.
fn end(plans: &[PolicyPlan]) -> f64 {
    let last = |most: f64, window: Window| {
        let times = [window.earliest, window.typical, window.latest].into_iter().flatten();
        times.fold(most, f64::max)
    };
    let mut most: f64 = 0.0;
    for plan in plans {
        most = plan.attempts.iter().map(|attempt| attempt.starts).fold(most, last);
        let end = last(most, plan.gives_up_after_seconds);
        // The attempts that are shown would be too narrow beside thousands that are not.
        most = if plan.has_more_attempts { end.min(most * 2.0) } else { end };
        most = plan.deadline_seconds.map_or(most, |deadline| most.max(deadline.min(most * 2.0)));
    }
    if most > 0.0 { most } else { 1.0 }
}

/// The SVG of one plan, or of several side by side.
#[must_use]
pub fn plan_svg(plans: &[PolicyPlan]) -> String {
    plan_svg_of_width(plans, WIDTH)
}

/// The SVG of plans with this width in pixels, from 300 to 2000; 760 is the usual one.
#[must_use]
pub fn plan_svg_of_width(plans: &[PolicyPlan], width: f64) -> String {
    const NOTE: &str = "start of each attempt if all fail: earliest to latest, the line is typical";
    let page = Page::new(width);
    let columns = svg::columns(page.width - page.margin - page.right);
    let names: Vec<&str> = plans.iter().map(|plan| plan.name.as_str()).collect();
    let title = format!("Plan of {}", names.join(" and "));
    // The letters of the title are larger.
    let titles = wrapped(&title, columns * 3 / 4);
    let notes = wrapped(NOTE, columns);
    // Beside the colour of the policy.
    let wrap = |line: &String| wrapped(line, svg::columns(page.width - page.margin - 18.0));
    let summaries: Vec<Vec<String>> =
        plans.iter().map(|plan| plan.summary.iter().flat_map(wrap).collect()).collect();
    let rows: usize = plans.iter().map(|plan| plan.attempts.len() + 1).sum();
    let timeline = rows as f64 * ROW + plans.len() as f64 * NAME;
    let top = 60.0
        + TITLE * titles.len().saturating_sub(1) as f64
        + LINE * notes.len().saturating_sub(1) as f64;
    let curves = if page.is_narrow { 2.0 } else { 1.0 } * (ABOVE_CURVE + CURVE + BELOW_CURVE);
    let sentences: usize = summaries.iter().map(|lines| lines.len() + 1).sum();
    let height = top + timeline + curves + 4.0 + sentences as f64 * LINE;
    let mut svg = Svg::new(page.width, height, &title);
    let mut y = 24.0;
    for line in &titles {
        svg.text("title", page.margin, y, Anchor::Start, line);
        y += TITLE;
    }
    for line in &notes {
        svg.text("note", page.margin, y - 2.0, Anchor::Start, line);
        y += LINE;
    }
    let mut y = timelines(&mut svg, plans, &page, top) + ABOVE_CURVE;
    let success = |point: &crate::plan::CurvePoint| point.success * 100.0;
    let load = |point: &crate::plan::CurvePoint| point.amplification;
    let (success_title, load_title) = ("calls that succeed, %", "attempts per call");
    let width = page.width - page.left - page.right;
    if page.is_narrow {
        curve(&mut svg, plans, (page.left, y, width), success_title, success);
        y += CURVE + BELOW_CURVE + ABOVE_CURVE;
        curve(&mut svg, plans, (page.left, y, width), load_title, load);
    } else {
        let half = (width - 60.0) / 2.0;
        curve(&mut svg, plans, (page.left, y, half), success_title, success);
        curve(&mut svg, plans, (page.left + half + 60.0, y, half), load_title, load);
    }
    y += CURVE + BELOW_CURVE;
    for (index, (plan, lines)) in plans.iter().zip(&summaries).enumerate() {
        svg.rect(&format!("a{}", index % COLOURS), page.margin, y - 10.0, 11.0, 11.0);
        svg.text("name", page.margin + 18.0, y, Anchor::Start, &plan.name);
        for line in lines {
            y += LINE;
            svg.text("note", page.margin + 18.0, y, Anchor::Start, line);
        }
        y += LINE;
    }
    svg.finish()
}

/// Where the parts of a picture are.
struct Page {
    width: f64,
    is_narrow: bool,
    /// The left edge of texts, and of plots.
    margin: f64,
    left: f64,
    right: f64,
}

impl Page {
    fn new(width: f64) -> Page {
        let width = svg::width(width);
        let is_narrow = width < NARROW;
        let (margin, left, right) = if is_narrow { (8.0, 64.0, 14.0) } else { (30.0, 74.0, 20.0) };
        Page { width, is_narrow, margin, left, right }
    }
}

fn timelines(svg: &mut Svg, plans: &[PolicyPlan], page: &Page, top: f64) -> f64 {
    let ticks = ticks(end(plans), if page.is_narrow { 3 } else { 6 });
    let max = ticks.last().copied().unwrap_or(1.0);
    let width = page.width - page.left - page.right;
    let x = |at: f64| page.left + (at / max).min(1.0) * width;
    let rows: usize = plans.iter().map(|plan| plan.attempts.len() + 1).sum();
    let bottom = top + rows as f64 * ROW + plans.len() as f64 * NAME;
    for tick in &ticks {
        svg.line("grid", (x(*tick), top), (x(*tick), bottom));
        svg.text("note", x(*tick), bottom + 16.0, Anchor::Middle, seconds(*tick));
    }
    let mut y = top;
    for (index, plan) in plans.iter().enumerate() {
        svg.text("name", page.left, y + 18.0, Anchor::Start, &plan.name);
        y += NAME;
        let colour = index % COLOURS;
        let height = ROW * (plan.attempts.len() + 1) as f64;
        if let Some(deadline) = plan.deadline_seconds.filter(|deadline| *deadline <= max) {
            svg.line("dash", (x(deadline), y), (x(deadline), y + height));
        }
        for attempt in &plan.attempts {
            svg.text("note", page.left - 8.0, y + 15.0, Anchor::End, attempt.number);
            bar(svg, colour, attempt.starts, &x, y);
            y += ROW;
        }
        svg.text("note", page.left - 8.0, y + 15.0, Anchor::End, "gives up");
        bar(svg, colour, plan.gives_up_after_seconds, &x, y);
        y += ROW;
    }
    bottom
}

/// A window as a bar, with a line at the typical time.
fn bar(svg: &mut Svg, colour: usize, window: Window, x: &dyn Fn(f64) -> f64, y: f64) {
    let times = [window.earliest, window.typical, window.latest].into_iter().flatten();
    let (from, to) = times.fold((f64::INFINITY, 0.0f64), |(a, b), it| (a.min(it), b.max(it)));
    if from.is_finite() {
        let width = (x(to) - x(from)).max(3.0);
        svg.rect(&format!("a{colour} soft"), x(from), y + 4.0, width, ROW - 8.0);
    }
    if let Some(typical) = window.typical {
        svg.rect(&format!("a{colour}"), x(typical) - 1.5, y + 2.0, 3.0, ROW - 4.0);
    }
}

fn curve(
    svg: &mut Svg,
    plans: &[PolicyPlan],
    (left, top, width): (f64, f64, f64),
    title: &str,
    of: fn(&crate::plan::CurvePoint) -> f64,
) {
    let points = plans.iter().flat_map(|plan| &plan.curve).map(of);
    let ticks = ticks(points.fold(1.0, f64::max), 4);
    let max = ticks.last().copied().unwrap_or(1.0);
    let y = |value: f64| top + CURVE - value / max * CURVE;
    svg.text("name", left, top - 10.0, Anchor::Start, title);
    for tick in &ticks {
        svg.line("grid", (left, y(*tick)), (left + width, y(*tick)));
        svg.text("note", left - 8.0, y(*tick) + 4.0, Anchor::End, label(*tick));
    }
    for percent in [0.0, 25.0, 50.0, 75.0, 100.0] {
        let x = left + percent / 100.0 * width;
        svg.text("note", x, top + CURVE + 16.0, Anchor::Middle, format!("{percent}"));
    }
    let name = "attempts that fail, %";
    svg.text("note", left + width / 2.0, top + CURVE + 32.0, Anchor::Middle, name);
    for (index, plan) in plans.iter().enumerate() {
        let point = |it: &crate::plan::CurvePoint| (left + it.failure_rate * width, y(of(it)));
        let line: Vec<_> = plan.curve.iter().map(point).collect();
        svg.polyline(&format!("l{}", index % COLOURS), &line);
    }
    svg.line("axis", (left, top + CURVE), (left + width, top + CURVE));
}

/// Plans as text with plots, for a terminal or a file.
#[must_use]
pub fn plan_text(plans: &[PolicyPlan], style: Style) -> String {
    let mut text = String::new();
    let end = end(plans);
    for (index, plan) in plans.iter().enumerate() {
        let _ = writeln!(text, "{}", style.paint(BOLD, &plan.name));
        for line in &plan.summary {
            for (index, line) in super::svg::wrapped(line, style.width() - 4).iter().enumerate() {
                let _ = writeln!(text, "{}{line}", if index == 0 { "  " } else { "    " });
            }
        }
        rows(&mut text, plan, end, CODES[index % CODES.len()], style);
        text.push('\n');
    }
    curves(&mut text, plans, style, "calls that succeed", 1.0, |point| point.success);
    let most = plans.iter().flat_map(|plan| &plan.curve).map(|point| point.amplification);
    let most = ticks(most.fold(1.0, f64::max), 2).last().copied().unwrap_or(1.0);
    curves(&mut text, plans, style, "attempts per call", most, |point| point.amplification);
    text
}

/// The attempts as rows: their times, and a bar.
fn rows(text: &mut String, plan: &PolicyPlan, end: f64, code: u8, style: Style) {
    let time = |at: Option<f64>| at.map_or("-".to_owned(), seconds);
    let row = |text: &mut String, name: &str, window: Window| {
        let Window { earliest, typical, latest } = window;
        let times = [earliest, typical, latest].map(time);
        let width = style.width().saturating_sub(42).max(1);
        let column = |at: f64| ((at / end * (width - 1) as f64) as usize).min(width - 1);
        let mut bar = vec![' '; width];
        let known: Vec<usize> =
            [earliest, typical, latest].into_iter().flatten().map(column).collect();
        if let (Some(from), Some(to)) = (known.iter().min(), known.iter().max()) {
            bar[*from..=*to].fill('─');
        }
        if let Some(typical) = typical {
            bar[column(typical)] = '█';
        }
        let bar: String = bar.into_iter().collect();
        let bar = style.paint(code, bar.trim_end());
        let _ = writeln!(text, "  {name:>8} {:>9} {:>9} {:>9} {bar}", times[0], times[1], times[2]);
    };
    let heading = format!("  {:>8} {:>9} {:>9} {:>9}", "attempt", "earliest", "typical", "latest");
    let _ = writeln!(text, "{heading}");
    for attempt in &plan.attempts {
        row(text, &attempt.number.to_string(), attempt.starts);
    }
    if plan.has_more_attempts {
        let _ = writeln!(text, "  {:>8}", "…");
    }
    if !plan.has_more_attempts || plan.gives_up_after_seconds != Window::default() {
        row(text, "gives up", plan.gives_up_after_seconds);
        if let Some(reason) = plan.gives_up_because {
            let _ = writeln!(text, "  {:>8} {reason}", "because");
        }
    }
}

fn curves(
    text: &mut String,
    plans: &[PolicyPlan],
    style: Style,
    title: &str,
    max: f64,
    of: fn(&crate::plan::CurvePoint) -> f64,
) {
    const ROWS: usize = 5;
    let width = style.width().min(100) - 11;
    let mut canvas = Canvas::new(width, ROWS);
    for (index, plan) in plans.iter().enumerate() {
        let values: Vec<f64> = plan.curve.iter().map(of).collect();
        canvas.line(&values, max, (index % CODES.len()) as u8);
    }
    let _ = writeln!(text, "{title}, by the share of attempts that fail");
    if plans.len() > 1 {
        for (index, plan) in plans.iter().enumerate() {
            let line = sample((index % CODES.len()) as u8, style);
            let _ = writeln!(text, "  {line}  {}", plan.name);
        }
    }
    for row in 0..ROWS {
        let tick = match row {
            0 => label(max),
            _ if row == ROWS - 1 => "0".to_owned(),
            _ => String::new(),
        };
        let _ = writeln!(text, "{tick:>8} │{}", canvas.row(row, style).trim_end());
    }
    let _ = writeln!(text, "         └{}", "─".repeat(width));
    let _ = writeln!(text, "          0 %{:>1$}\n", "100 %", width - 3);
}
