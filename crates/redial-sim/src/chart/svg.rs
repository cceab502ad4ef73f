//! A small writer of SVG, with one style for all pictures.

use std::fmt::{Display, Write as _};

/// The rules of a picture on a light page, by class.
pub(super) const LIGHT: &str = "\
text{font:12px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,'DejaVu Sans',sans-serif;fill:#24292f}\
.title{font-size:15px;font-weight:600}.name{font-size:13px;font-weight:600}.note{fill:#57606a}\
.page{fill:#ffffff}.grid{stroke:#d8dee4}.axis{stroke:#8c959f}.shade{fill:#f3e5c8}\
.l0,.l1,.l2,.l3,.l4{fill:none;stroke-width:1.8;stroke-linejoin:round}\
.l0{stroke:#cf4a1f}.l1{stroke:#1f7a4d}.l2{stroke:#2f6fd0}.l3{stroke:#8250df}.l4{stroke:#9a6700}\
.a0,.a1,.a2,.a3,.a4{stroke:none}\
.a0{fill:#cf4a1f}.a1{fill:#1f7a4d}.a2{fill:#2f6fd0}.a3{fill:#8250df}.a4{fill:#9a6700}\
.soft{opacity:.28}.dash{stroke:#57606a;stroke-dasharray:5 4;fill:none}";

/// The colours that replace those of [`LIGHT`] on a dark page.
pub(super) const DARK: &str = "\
text{fill:#e6edf3}.note{fill:#9da7b3}.page{fill:#0d1117}\
.grid{stroke:#2a313c}.axis{stroke:#6e7681}.shade{fill:#3a3016}.dash{stroke:#9da7b3}\
.l0{stroke:#ff8a5c}.l1{stroke:#4ac585}.l2{stroke:#6ea8ff}.l3{stroke:#b492ff}.l4{stroke:#d9a441}\
.a0{fill:#ff8a5c}.a1{fill:#4ac585}.a2{fill:#6ea8ff}.a3{fill:#b492ff}.a4{fill:#d9a441}";

/// The width of pictures, in pixels.
pub(super) const WIDTH: f64 = 760.0;
/// The narrowest picture.
const WIDTH_MIN: f64 = 300.0;
/// The widest picture.
const WIDTH_MAX: f64 = 2000.0;
/// Below this width a picture has one column, and its legend one entry per line.
pub(super) const NARROW: f64 = 600.0;
/// The width of a character of a note.
const NOTE_PIXELS: f64 = 6.4;

/// The number of colours.
pub(super) const COLOURS: usize = 5;

/// An SVG document.
pub(super) struct Svg {
    width: f64,
    height: f64,
    label: String,
    body: String,
}

/// Where a text is aligned.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Svg {
    /// A page of this size; `label` describes the picture for screen readers.
    pub(super) fn new(width: f64, height: f64, label: &str) -> Svg {
        let mut svg = Svg { width, height, label: label.to_owned(), body: String::new() };
        svg.rect("page", 0.0, 0.0, width, height);
        svg
    }

    pub(super) fn rect(&mut self, class: &str, x: f64, y: f64, width: f64, height: f64) {
        let (x, y, width, height) = (number(x), number(y), number(width), number(height));
        let _ = writeln!(
            self.body,
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"/>"
        );
    }

    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let [x1, y1, x2, y2] = [from.0, from.1, to.0, to.1].map(number);
        let _ = writeln!(
            self.body,
            "<line class=\"{class}\" x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\"/>"
        );
    }

    pub(super) fn polyline(&mut self, class: &str, points: &[(f64, f64)]) {
        self.shape("polyline", class, points);
    }

    pub(super) fn polygon(&mut self, class: &str, points: &[(f64, f64)]) {
        self.shape("polygon", class, points);
    }

    fn shape(&mut self, element: &str, class: &str, points: &[(f64, f64)]) {
        let _ = write!(self.body, "<{element} class=\"{class}\" points=\"");
        for (index, (x, y)) in points.iter().enumerate() {
            let separator = if index == 0 { "" } else { " " };
            let _ = write!(self.body, "{separator}{},{}", number(*x), number(*y));
        }
        let _ = writeln!(self.body, "\"/>");
    }

    pub(super) fn text(&mut self, class: &str, x: f64, y: f64, anchor: Anchor, text: impl Display) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let (x, y, text) = (number(x), number(y), escaped(&text.to_string()));
        let _ = writeln!(
            self.body,
            "<text class=\"{class}\" x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{text}</text>"
        );
    }

    pub(super) fn finish(self) -> String {
        let Svg { width, height, label, body } = self;
        let (width, height, label) = (number(width), number(height), escaped(&label));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" role=\"img\" aria-label=\"{label}\">\n\
             <style>{LIGHT}@media(prefers-color-scheme:dark){{{DARK}}}</style>\n{body}</svg>\n"
        )
    }
}

/// A coordinate with one decimal, which is enough and keeps pictures small and stable.
fn number(value: f64) -> String {
    let rounded = (value * 10.0).round() / 10.0;
    format!("{}", if rounded == 0.0 { 0.0 } else { rounded })
}

/// A width that a picture can have.
pub(super) fn width(pixels: f64) -> f64 {
    if pixels.is_finite() { pixels.clamp(WIDTH_MIN, WIDTH_MAX) } else { WIDTH }
}

/// The characters of a note that fit into this width, also in a wide font.
pub(super) fn columns(pixels: f64) -> usize {
    ((pixels / NOTE_PIXELS) as usize).max(10)
}

/// A text without the characters that have a meaning in XML, and without control characters.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

/// The lines of a text, broken at blanks after about this many characters.
pub(super) fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn svg_escapes_names() {
        let mut svg = Svg::new(10.0, 10.0, "a\"b");
        svg.text("name", 1.0, 2.04, Anchor::Start, "<script>&\u{1}");
        let text = svg.finish();
        assert!(text.contains("&lt;script&gt;&amp; </text>"), "{text}");
        assert!(text.contains("aria-label=\"a&quot;b\"") && text.contains("y=\"2\""), "{text}");
    }

    #[test]
    fn svg_text_is_wrapped_at_blanks() {
        assert_eq!(wrapped("one two  three", 7), ["one two", "three"]);
    }
}
