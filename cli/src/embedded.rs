//! The model that is part of the program: what runs when no file is named.

use halfbyte_gguf::{Aligned, Error, Gguf};

static FILE: &Aligned<[u8]> = &Aligned(*include_bytes!("../model/halfbyte-tiny.gguf"));

/// What messages call the model.
pub(crate) const NAME: &str = "halfbyte-tiny (embedded)";

/// A beginning that the model, which knows novels and nothing else, can go on from.
pub(crate) const PROMPT: &str = "It was a dark and stormy night, and the captain";

/// Opens the model; nothing is copied.
///
/// # Errors
/// Those of [`Gguf::from_static`], none of them in a file that passed this crate's tests.
pub(crate) fn gguf() -> Result<Gguf, Error> {
    Gguf::from_static(&FILE.0)
}

#[cfg(test)]
mod tests {
    use halfbyte::weight_types::WeightType;

    #[test]
    fn every_tensor_is_aligned_and_supported() {
        let gguf = super::gguf().unwrap();
        assert!(gguf.file_bytes() <= 8 << 20, "{} bytes", gguf.file_bytes());
        for tensor in gguf.tensors() {
            assert!(WeightType::of(tensor.ty).is_some(), "{}", tensor.name);
            assert_eq!(gguf.bytes(tensor).as_ptr().addr() % 32, 0, "{}", tensor.name);
        }
    }
}
