//! Tensors of checkpoints that GGUF files have in another form, and those that a text model does not use.

use std::borrow::Cow;
use std::collections::BTreeMap;

use half::{bf16, f16};
use safetensors::Dtype;

use super::Error;
use super::files::Entry;
use crate::architectures::Form;
use halfbyte_gguf::quote;

/// What a tensor of a checkpoint is part of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place<'a> {
    /// A part that reads text. The name is that of a model that does nothing else.
    Text(Cow<'a, str>),
    /// A part that reads images, which is left out.
    Images,
    /// A block that makes drafts, which is left out.
    Drafts,
}

/// What the tensor `name` is part of. `partial`: the configuration says that reading text is but a part of the model.
pub(super) fn place(name: &str, partial: bool) -> Place<'_> {
    if ["mtp.", "model.mtp.", "language_model.mtp."].iter().any(|prefix| name.starts_with(prefix)) {
        return Place::Drafts;
    }
    if !partial {
        return Place::Text(Cow::Borrowed(name));
    }
    // Newer directories have the parts within `model`.
    if let Some(rest) = name.strip_prefix("model.language_model.") {
        return Place::Text(Cow::Owned(format!("model.{rest}")));
    }
    if let Some(rest) = name.strip_prefix("language_model.") {
        return Place::Text(Cow::Borrowed(rest));
    }
    let part = name.strip_prefix("model.").unwrap_or(name);
    let images = ["vision_tower.", "vision_model.", "visual.", "multi_modal_projector.", "embed_vision."];
    if images.iter().any(|prefix| part.starts_with(prefix)) {
        Place::Images
    } else {
        Place::Text(Cow::Borrowed(name))
    }
}

/// Whether norms are stored without the 1 that their weights are added to: Hugging Face's files, whose convolutions have the
/// taps in their last dimension. MLX adds the 1 when it moves the taps.
pub(super) fn norms_lack_one(entries: &BTreeMap<String, Entry>) -> bool {
    let taps_last = |entry: &Entry| entry.shape.last().is_some_and(|&n| n != 1);
    entries.iter().any(|(name, entry)| name.ends_with(".conv1d.weight") && taps_last(entry))
}

/// The dimensions, inputs first, and the numbers that `entry` has in `form`; `bytes` are those of the file.
///
/// # Errors
/// A type or a shape that the form is not made of, by the tensor's name.
pub(super) fn convert(
    name: &str,
    form: Form,
    entry: &Entry,
    bytes: &[u8],
) -> Result<(Vec<usize>, Vec<f32>), Error> {
    let mut numbers: Vec<f32> = match entry.dtype {
        Dtype::F32 => bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect(),
        Dtype::F16 => bytes.as_chunks().0.iter().map(|&b| f16::from_le_bytes(b).to_f32()).collect(),
        Dtype::BF16 => bytes.as_chunks().0.iter().map(|&b| bf16::from_le_bytes(b).to_f32()).collect(),
        other => return Err(Error::Type { tensor: quote(name), got: format!("{other:?}") }),
    };
    let dims = match (form, &*entry.shape) {
        // The convolution of each channel by itself: one input channel, before or behind the taps.
        (Form::Taps, &[channels, 1, taps] | &[channels, taps, 1]) => vec![taps, channels],
        (Form::PlusOne | Form::MinusExp, &[n]) => vec![n],
        (_, shape) => {
            let got = format!("shape {shape:?}");
            return Err(Error::Shape { tensor: quote(name), got, expected: expected(form) });
        }
    };
    for x in &mut numbers {
        *x = match form {
            Form::PlusOne => *x + 1.0,
            Form::MinusExp => -f64::from(*x).exp() as f32,
            Form::AsStored | Form::Taps => *x,
        };
    }
    Ok((dims, numbers))
}

fn expected(form: Form) -> &'static str {
    match form {
        Form::Taps => "[channels, 1, taps] or [channels, taps, 1]",
        _ => "one dimension",
    }
}
