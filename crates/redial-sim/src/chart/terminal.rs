//! Plots for a terminal: lines of Braille dots, with or without colour.

use std::fmt::Write as _;

/// How to write to a terminal or a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// The width in columns.
    pub columns: usize,
    /// Whether to use colours.
    pub colour: Colour,
}

/// Whether to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// ANSI colours, for a terminal.
    Ansi,
    /// None, for a pipe, or if `NO_COLOR` is set.
    None,
}

impl Style {
    /// The narrowest plot.
    pub const COLUMNS_MIN: usize = 40;
    /// The widest plot.
    pub const COLUMNS_MAX: usize = 200;

    /// Text of this width without colours.
    #[must_use]
    pub const fn plain(columns: usize) -> Style {
        Style { columns, colour: Colour::None }
    }

    /// Text of this width with colours.
    #[must_use]
    pub const fn coloured(columns: usize) -> Style {
        Style { columns, colour: Colour::Ansi }
    }

    pub(super) fn width(self) -> usize {
        self.columns.clamp(Style::COLUMNS_MIN, Style::COLUMNS_MAX)
    }

    /// The text in a colour (an ANSI code such as 32), or as it is.
    pub(super) fn paint(self, code: u8, text: &str) -> String {
        match self.colour {
            Colour::Ansi => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
            Colour::None => text.to_owned(),
        }
    }
}

/// The colours of lines: those that most terminals show well on light and on dark backgrounds. The usual
/// blue is too dark for the one, and the yellow too light for the other.
pub(super) const CODES: [u8; 5] = [31, 32, 36, 35, 90];
pub(super) const BOLD: u8 = 1;
pub(super) const DIM: u8 = 2;

/// Whether a line has dots in this column. Lines differ without colours, too.
const fn is_drawn(owner: u8, column: usize) -> bool {
    let (on, off) = match owner % 5 {
        0 => (1, 0),
        1 => (2, 1),
        2 => (1, 1),
        3 => (5, 2),
        _ => (1, 3),
    };
    column % (on + off) < on
}

/// A piece of a line, for the legend.
pub(super) fn sample(owner: u8, style: Style) -> String {
    let piece: String = (0..8).map(|at| if is_drawn(owner, at) { '⠒' } else { ' ' }).collect();
    style.paint(CODES[usize::from(owner) % CODES.len()], &piece)
}

/// A bar for the mean of the values in each column, from 0 to `max`; a blank where there is none.
pub(super) fn bars(values: &[Option<f64>], max: f64, width: usize) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let column = |x: usize| {
        let from = x * values.len() / width;
        let to = ((x + 1) * values.len()).div_ceil(width).max(from + 1).min(values.len());
        let known = values.get(from..to).into_iter().flatten().flatten();
        let count = known.clone().count();
        if count == 0 {
            return ' ';
        }
        let mean = known.sum::<f64>() / count as f64;
        BARS[((mean / max * 8.0).ceil().clamp(1.0, 8.0) as usize) - 1]
    };
    (0..width).map(column).collect()
}

/// Dots of Braille characters, two wide and four high each.
pub(super) struct Canvas {
    width: usize,
    height: usize,
    cells: Vec<u8>,
    /// The line that was drawn last into a cell.
    owners: Vec<u8>,
}

impl Canvas {
    pub(super) fn new(width: usize, height: usize) -> Canvas {
        let cells = width * height;
        Canvas { width, height, cells: vec![0; cells], owners: vec![0; cells] }
    }

    /// Sets a dot; (0, 0) is at the bottom left.
    fn dot(&mut self, x: usize, y: usize, owner: u8) {
        const BITS: [[u8; 4]; 2] = [[0x40, 0x04, 0x02, 0x01], [0x80, 0x20, 0x10, 0x08]];
        let (column, row) = (x / 2, y / 4);
        if column < self.width && row < self.height {
            let cell = (self.height - 1 - row) * self.width + column;
            self.cells[cell] |= BITS[x % 2][y % 4];
            self.owners[cell] = owner;
        }
    }

    /// Draws values from 0 to `max` from left to right, as a connected line with the dashes of its owner.
    pub(super) fn line(&mut self, values: &[f64], max: f64, owner: u8) {
        let mut previous: Option<usize> = None;
        for x in 0..self.width * 2 {
            let Some(y) = self.height_of(values, max, x) else { continue };
            let last = previous.unwrap_or(y);
            if is_drawn(owner, x / 2) {
                for y in last.min(y)..=last.max(y) {
                    self.dot(x, y, owner);
                }
            }
            previous = Some(y);
        }
    }

    /// Fills the area below values from 0 to `max`.
    pub(super) fn area(&mut self, values: &[f64], max: f64, owner: u8) {
        for x in 0..self.width * 2 {
            let height = self.height_of(values, max, x).unwrap_or(0);
            for y in 0..height {
                self.dot(x, y, owner);
            }
        }
    }

    /// The dot of the mean of the values in this column of dots.
    fn height_of(&self, values: &[f64], max: f64, x: usize) -> Option<usize> {
        let (width, height) = (self.width * 2, self.height * 4);
        let from = x * values.len() / width;
        let to = ((x + 1) * values.len()).div_ceil(width).max(from + 1).min(values.len());
        let values = values.get(from..to).filter(|it| !it.is_empty())?;
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let y = (mean / max * (height - 1) as f64).round().clamp(0.0, (height - 1) as f64);
        Some(y as usize)
    }

    /// A row of characters, the first at the top.
    pub(super) fn row(&self, row: usize, style: Style) -> String {
        let mut text = String::new();
        for column in 0..self.width {
            let cell = row * self.width + column;
            let c = char::from_u32(0x2800 + u32::from(self.cells[cell])).unwrap_or(' ');
            if self.cells[cell] == 0 {
                text.push(' ');
            } else {
                let code = CODES[usize::from(self.owners[cell]) % CODES.len()];
                let _ = write!(text, "{}", style.paint(code, &c.to_string()));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_canvas_draws_a_rising_line() {
        let mut canvas = Canvas::new(2, 1);
        // Each value is joined to the one before.
        canvas.line(&[0.0, 1.0, 2.0, 3.0], 3.0, 0);
        assert_eq!(canvas.row(0, Style::plain(80)), "⣠⠞");
        let coloured = canvas.row(0, Style::coloured(80));
        assert!(coloured.contains("\u{1b}[31m⣠\u{1b}[0m"), "{coloured:?}");
    }

    #[test]
    fn terminal_lines_differ_without_colours() {
        let samples: Vec<String> = (0..5).map(|owner| sample(owner, Style::plain(80))).collect();
        for (index, one) in samples.iter().enumerate() {
            assert!(!samples[..index].contains(one), "{samples:?}");
            let mut canvas = Canvas::new(8, 1);
            canvas.line(&[1.0; 16], 3.0, index as u8);
            let drawn: Vec<bool> =
                canvas.row(0, Style::plain(80)).chars().map(|c| c != ' ').collect();
            assert_eq!(drawn, one.chars().map(|c| c != ' ').collect::<Vec<_>>());
        }
    }

    #[test]
    fn terminal_area_is_filled_and_empty_at_zero() {
        let mut canvas = Canvas::new(2, 1);
        canvas.area(&[0.0, 0.0, 3.0, 2.0], 3.0, 1);
        assert_eq!(canvas.row(0, Style::plain(80)), " ⣦");
    }

    #[test]
    fn terminal_bars_show_values_up_to_the_top() {
        let values = [0.0, 1.0, 2.0, 9.0].map(Some);
        assert_eq!(bars(&values, 2.0, 4), "▁▄██");
        assert_eq!(bars(&[Some(2.0), None, None, Some(1.0)], 2.0, 2), "█▄");
        assert_eq!(bars(&[None, Some(1.0)], 1.0, 2), " █");
        assert_eq!(bars(&[], 1.0, 2), "  ");
    }

    #[test]
    fn terminal_canvas_accepts_every_number_of_values() {
        for values in [0, 1, 3, 1000] {
            let mut canvas = Canvas::new(10, 2);
            canvas.line(&vec![1.0; values], 1.0, 0);
            assert_eq!(canvas.row(0, Style::plain(80)).trim().is_empty(), values == 0);
        }
    }
}
