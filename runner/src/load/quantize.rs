//! Weights of another type than the file's, made while a model is loaded.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::LoadError;
use crate::model::Compute;
use crate::requantize::{Encoding, Plan};
use crate::source::ModelFile;
use halfbyte_gguf::{Gguf, GgufWriter};

/// Converts the weights of `file` to `encoding` in memory, as `halfbyte quantize` does to a file.
///
/// `go_on` is called with the number of weights converted so far and the number of all. If it breaks, so does this, with
/// `None`.
///
/// # Errors
/// [`LoadError::Requantize`] if the weights can't have this type, [`LoadError::Source`] if the file was changed meanwhile.
pub fn load_as(
    file: &Arc<ModelFile>,
    encoding: Encoding,
    compute: &Compute,
    mut go_on: impl FnMut(usize, usize) -> ControlFlow<()>,
) -> Result<Option<Arc<ModelFile>>, LoadError> {
    let gguf = |error| LoadError::Requantize(crate::requantize::Error::Gguf(error));
    let plan = Plan::new(&***file, encoding, &[])?;
    let (n_bytes, weights) =
        (plan.tensors().iter().map(|tensor| tensor.n_bytes).sum::<usize>(), plan.n_weights());
    // Metadata and alignment take little beside the weights.
    let memory = Vec::with_capacity(n_bytes + (n_bytes >> 6));
    let mut writer = GgufWriter::new(memory, plan.metadata(), plan.tensors()).map_err(gguf)?;
    if plan.write(compute.context(), &mut writer, &(), |done| go_on(done, weights))?.is_none() {
        return Ok(None);
    }
    file.require_unchanged()?;
    let bytes = writer.finish().map_err(gguf)?;
    Ok(Some(Arc::new(Gguf::from_vec(bytes).map_err(gguf)?.into())))
}
