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
pub use plan::{plan_svg, plan_text};
#[cfg(feature = "png")]
pub use png::{PngError, png};
pub use simulation::{report_svg, report_text};
pub use terminal::Style;

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

    #[test]
    fn chart_labels_are_short() {
        assert_eq!([0.1 + 0.2, 300.0, 12_000.0].map(label), ["0.3", "300", "12\u{2009}000"]);
        assert_eq!([0.0, 0.0005, 0.25, 1.5].map(seconds), ["0", "500 µs", "250 ms", "1.5 s"]);
    }
}
