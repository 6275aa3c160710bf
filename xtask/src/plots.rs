//! What all plots look like.

use anyhow::{Error, anyhow};
use plotters::style::RGBColor;

/// A color for each of the things compared.
pub(crate) const COLORS: [RGBColor; 3] =
    [RGBColor(0x1f, 0x77, 0xb4), RGBColor(0xd6, 0x62, 0x1f), RGBColor(0x6b, 0x8e, 0x23)];
/// Of words and axes.
pub(crate) const INK: RGBColor = RGBColor(0x33, 0x33, 0x33);

/// An error of the drawing library, whose types borrow from the drawing.
pub(crate) fn failed(error: &dyn std::fmt::Display) -> Error {
    anyhow!("the plot can't be drawn: {error}")
}
