//! PNG from an SVG of this crate.

use std::fmt;
use std::sync::Arc;

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};

/// Why a picture cannot be drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PngError {
    /// The system has no font for the labels.
    NoFont,
    /// The SVG cannot be drawn.
    Drawing(String),
}

impl fmt::Display for PngError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PngError::NoFont => f.write_str(
                "no font is installed; install one such as fonts-dejavu-core, or write SVG",
            ),
            PngError::Drawing(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for PngError {}

/// The scale of the pixels, for screens with a high density.
const SCALE: f32 = 2.0;

/// Draws an SVG as PNG, in the colours for light pages, with a font of the system.
///
/// # Errors
/// The system has no font, or the text is no SVG.
pub fn png(svg: &str) -> Result<Vec<u8>, PngError> {
    let mut fonts = fontdb::Database::new();
    fonts.load_system_fonts();
    let Some(face) = fonts
        .faces()
        .find(|face| {
            let name = face.families.first().map_or("", |family| family.0.as_str());
            ["DejaVu Sans", "Liberation Sans", "Arial", "Helvetica"].contains(&name)
        })
        .or_else(|| fonts.faces().next())
    else {
        return Err(PngError::NoFont);
    };
    let family = face.families.first().map(|family| family.0.clone()).unwrap_or_default();
    fonts.set_sans_serif_family(family);
    let drawing = |error: &dyn fmt::Display| PngError::Drawing(error.to_string());
    let options = Options { fontdb: Arc::new(fonts), ..Options::default() };
    let tree = Tree::from_str(svg, &options).map_err(|error| drawing(&error))?;
    let size = tree.size();
    let (width, height) = ((size.width() * SCALE) as u32, (size.height() * SCALE) as u32);
    let mut pixels =
        Pixmap::new(width, height).ok_or_else(|| drawing(&"the picture has no size"))?;
    resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut pixels.as_mut());
    pixels.encode_png().map_err(|error| drawing(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn png_is_drawn_or_asks_for_a_font() {
        let svg = super::super::svg::Svg::new(20.0, 10.0, "empty").finish();
        match png(&svg) {
            Ok(bytes) => assert!(bytes.starts_with(b"\x89PNG")),
            Err(error) => assert_eq!(error, PngError::NoFont),
        }
    }
}
