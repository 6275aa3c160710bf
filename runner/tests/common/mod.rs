//! What several integration tests need.
#![allow(dead_code, reason = "each test that includes this uses a part of it")]

pub(crate) mod recorded;

use halfbyte::model::{Error, Transformer};
use halfbyte::source::ModelFile;
use halfbyte_gguf::Gguf;

/// The model in a copy of `gguf`.
pub(crate) fn transformer(gguf: &Gguf) -> Result<Transformer, Error> {
    let bytes = gguf.contents().collect::<Vec<_>>().concat();
    let copy = Gguf::from_vec(bytes).expect("bytes that were read before");
    Transformer::new(ModelFile::from(copy))
}
