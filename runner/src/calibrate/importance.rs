//! The importance of the columns of a model's matrices.

use std::ops::ControlFlow;

use super::Error;
use crate::model::{Compute, Description, Layerwise, Stage, Transformer, Visitor};
use halfbyte_gguf::imatrix::Imatrix;

/// Adds to `imatrix` the squares of the inputs that `windows` of tokens, each from an empty context, give every matrix
/// of `model`; matrices that read the same inputs get the same sums. The output matrix is among them, by the embedding's
/// name where the two are tied. Every window counts as a chunk.
///
/// `go_on` is asked before each window with the number of those done; if it breaks, so does this, with
/// [`Error::Stopped`].
///
/// # Errors
/// Those of the model and of the sums; [`Error::Stopped`].
pub fn importance(
    compute: &Compute,
    model: &Transformer,
    windows: &[Vec<u32>],
    imatrix: &mut Imatrix,
    mut go_on: impl FnMut(usize) -> ControlFlow<()>,
) -> Result<(), Error> {
    let mut adder = Adder { imatrix, description: model.description() };
    // Windows are run one at a time: the sums need no more.
    for (done, window) in windows.iter().enumerate() {
        if go_on(done).is_break() {
            return Err(Error::Stopped);
        }
        Layerwise::new(model, compute, std::slice::from_ref(window))?.run(&mut adder)?;
        adder.imatrix.add_chunks(1)?;
    }
    Ok(())
}

struct Adder<'a> {
    imatrix: &'a mut Imatrix,
    description: &'a Description,
}

impl Visitor for Adder<'_> {
    type Error = Error;

    fn inputs(&mut self, stage: Stage, x: &[f32], rows: usize) -> Result<(), Error> {
        let columns = x.len() / rows;
        for name in stage.tensors(self.description) {
            match stage {
                Stage::ExpertInput(l, e) | Stage::ExpertOutput(l, e) => {
                    let expert = (e, self.description.stacked(l, &name));
                    let expert = if expert.1 == 1 { (0, 1) } else { expert };
                    self.imatrix.add_expert(&name, expert, x, columns)?;
                }
                _ => self.imatrix.add(&name, x, columns)?,
            }
        }
        Ok(())
    }
}
