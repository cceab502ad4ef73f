//! Pictures of reports and plans: SVG, PNG, an HTML page and text for a terminal.
//!
//! All drawing is here. An SVG follows the light or dark theme of the page that shows it, needs no
//! script and no font of its own, and is the same for the same input.

mod html;
mod plan;
#[cfg(feature = "png")]
mod png;
mod simulation;
mod svg;
mod terminal;

pub use html::page;
pub use plan::{plan_svg, plan_svg_of_width, plan_text};
#[cfg(feature = "png")]
pub use png::{PngError, png};
pub use simulation::{report_svg, report_svg_of_width, report_text};
pub use terminal::Style;

/// The style of pictures for a page that shows them inline and has a switch between light and dark:
/// the rules of a light page, and the colours that replace them on a dark page. A picture of its own has
/// both in a `<style>` element.
#[must_use]
pub const fn styles() -> (&'static str, &'static str) {
    (svg::LIGHT, svg::DARK)
}

/// Round numbers for the ticks of an axis from 0 to at least `max`.
fn ticks(max: f64, count: usize) -> Vec<f64> {
    if !(max > 0.0 && max.is_finite()) {
        return vec![0.0, 1.0];
    }
    let rough = max / count.max(1) as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|it| it * power).find(|it| *it >= rough);
    let step = step.unwrap_or(10.0 * power);
    let last = (max / step - 1e-9).ceil() as usize;
    (0..=last).map(|index| index as f64 * step).collect()
}

/// A number for a label: `1.5`, `300`, `12 000`.
fn label(number: f64) -> String {
    let rounded = (number * 1000.0).round() / 1000.0;
    if rounded.abs() < 10_000.0 {
        return format!("{rounded}");
    }
    let digits = format!("{rounded:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('\u{2009}');
        }
        text.push(digit);
    }
    text
}

/// A duration in seconds, for a label.
fn seconds(seconds: f64) -> String {
    match seconds {
        0.0 => "0".to_owned(),
        _ if seconds < 0.001 => format!("{} µs", label((seconds * 1e7).round() / 10.0)),
        _ if seconds < 1.0 => format!("{} ms", label((seconds * 1e4).round() / 10.0)),
        _ => format!("{} s", label((seconds * 100.0).round() / 100.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chart_ticks_are_round_and_cover_the_largest_value() {
        assert_eq!(ticks(573.0, 3), [0.0, 200.0, 400.0, 600.0]);
        assert_eq!(ticks(200.0, 4), [0.0, 50.0, 100.0, 150.0, 200.0]);
        assert_eq!(ticks(0.0, 4), [0.0, 1.0]);
        assert_eq!(ticks(f64::NAN, 4), [0.0, 1.0]);
    }

    /// The numbers of an attribute in an SVG.
    fn numbers(svg: &str, attribute: &str) -> Vec<f64> {
        let start = format!(" {attribute}=\"");
        let parts = svg.split(&start).skip(1);
        parts.filter_map(|part| part.split('"').next()?.parse().ok()).collect()
    }

    /// The longest text of a picture, in characters.
    fn longest_text(svg: &str) -> usize {
        let texts = svg.split("</text>").filter_map(|part| part.rsplit('>').next());
        texts.map(|text| text.chars().count()).max().unwrap_or(0)
    }

    #[test]
    fn chart_of_each_width_has_nothing_beyond_its_edges() {
        let report = crate::scenarios::by_name("layers").map(|it| it.simulation().run());
        let report = report.expect("it exists").expect("it runs");
        let policy = crate::CallPolicy::default();
        let plan = crate::plan::plan("default", &policy, &crate::plan::Assumptions::default());
        let plans = [plan.expect("it runs")];
        for (asked, width) in [(0.0, 300.0), (340.0, 340.0), (760.0, 760.0), (f64::NAN, 760.0)] {
            for svg in [report_svg_of_width(&report, asked), plan_svg_of_width(&plans, asked)] {
                assert_eq!(numbers(&svg, "width")[0], width);
                let height = numbers(&svg, "height")[0];
                for (axis, most) in [("x", width), ("x2", width), ("y", height), ("y2", height)] {
                    let all = numbers(&svg, axis);
                    assert!(all.iter().all(|it| (0.0..=most).contains(it)), "{axis} in {asked}");
                }
                let columns = longest_text(&svg);
                assert!(columns as f64 * 6.4 <= width, "{columns} characters in {asked}");
            }
        }
        assert_eq!(report_svg(&report), report_svg_of_width(&report, 760.0));
        assert_eq!(plan_svg(&plans), plan_svg_of_width(&plans, 760.0));
    }

    #[test]
    fn chart_labels_are_short() {
        assert_eq!([0.1 + 0.2, 300.0, 12_000.0].map(label), ["0.3", "300", "12\u{2009}000"]);
        assert_eq!([0.0, 0.0005, 0.25, 1.5].map(seconds), ["0", "500 µs", "250 ms", "1.5 s"]);
    }
}
