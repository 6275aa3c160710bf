//! The distance between weights and those that replace them.

use std::ops::AddAssign;

use halfbyte_cpu_kernels::{Isa, Matrix};

use super::Error;
use crate::model;

/// Sums over pairs of a weight `w` and the weight `q` that replaces it. All zero for no pairs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Difference {
    /// `sum (w - q)^2`.
    pub squared_error: f64,
    /// `sum w^2`.
    pub squared_weights: f64,
    /// `max |w - q|`.
    pub max_error: f64,
}

impl Difference {
    /// `sum (w - q)^2 / sum w^2`: 0 where nothing differs, infinite where only zeros do.
    pub fn relative_squared_error(&self) -> f64 {
        if self.squared_error == 0.0 { 0.0 } else { self.squared_error / self.squared_weights }
    }

    /// Adds the pairs of two slices of the same length.
    pub(super) fn take(&mut self, w: &[f32], q: &[f32]) {
        for (&w, &q) in w.iter().zip(q) {
            let (w, difference) = (f64::from(w), f64::from(w) - f64::from(q));
            self.squared_error += difference * difference;
            self.squared_weights += w * w;
            self.max_error = self.max_error.max(difference.abs());
        }
    }
}

impl AddAssign for Difference {
    /// Adds the pairs of `other`.
    fn add_assign(&mut self, other: Self) {
        self.squared_error += other.squared_error;
        self.squared_weights += other.squared_weights;
        self.max_error = self.max_error.max(other.max_error);
    }
}

/// Decodes a row of the tensor called `name` into `x`, which is as long, and checks that every weight is finite.
pub(crate) fn decode(
    isa: Isa,
    matrix: &Matrix<'_>,
    name: &str,
    row: usize,
    x: &mut [f32],
) -> Result<(), Error> {
    matrix.decode_row(isa, row, x).map_err(model::Error::from)?;
    match x.iter().position(|w| !w.is_finite()) {
        None => Ok(()),
        Some(position) => {
            Err(Error::NonFinite { tensor: name.to_owned(), row, position, value: x[position] })
        }
    }
}
