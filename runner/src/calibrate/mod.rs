//! Calibration: a text is run through a model, and weights are rounded by the inputs that the matrices get.
//!
//! ```text
//! text -> windows of tokens -> layer by layer, stage by stage:
//!     inputs of the stage's matrices -> second moments -> Cholesky factor -> 4-bit rows with error compensation
//!     the windows go on through the quantized matrices
//! ```
//!
//! [`quantize`] makes the tensors of a [`Plan`](crate::requantize::Plan) whose method is
//! [`Gptq`](crate::requantize::Method::Gptq), one after the other, into a
//! [`Checkpoint`], from which the plan then takes them. Each matrix is calibrated on the inputs that it gets from the
//! quantized matrices before it. Memory holds the windows' activations ([`Layerwise`]), and for one stage at a time the
//! second moments and their factor, 16 bytes times the square of the columns.
//!
//! [`importance`] adds up the squares of the inputs, for methods that weigh columns and for other programs.
//! [`output_errors`] measures how far rounding moves the outputs of the matrices.
//!
//! [`Layerwise`]: crate::model::Layerwise

mod checkpoint;
mod error;
mod gptq;
mod importance;
mod moments;
mod outputs;

pub use checkpoint::{Checkpoint, Fingerprint};
pub use error::Error;
pub use gptq::{Progress, Recipe, Report, fingerprint, quantize};
pub use importance::importance;
pub use outputs::{OutputError, output_errors};

use crate::model::{self, Description, Layer};

/// Refuses a model with experts, whose matrices each have inputs of their own.
fn refuse_experts(description: &Description) -> Result<(), model::Error> {
    if description.layers.iter().any(Layer::has_experts) {
        let (key, got) = ("calibration".to_owned(), format!("{} with experts", description.architecture));
        return Err(model::Error::Feature { key, got, supported: "models without experts" });
    }
    Ok(())
}
