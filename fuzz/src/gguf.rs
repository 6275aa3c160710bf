//! GGUF files: the bytes of the input are the file.

use std::path::PathBuf;

use halfbyte::model::Transformer;
use halfbyte::source::ModelFile;
use halfbyte_gguf::{Gguf, GgufWriter, TensorType};

use crate::gguf_support::{Raw, open_and_check, sample};
use crate::{Seeds, decode, with_zeros};

/// Zeros behind an input: weights for the tensor list of a whole model.
const WEIGHTS: usize = 128 << 10;

/// A file that opens keeps its promises, can be decoded, and is written again as it is: the input itself, and with
/// zeros behind it.
///
/// # Panics
/// If not.
pub fn check(data: &[u8]) {
    check_file(data.to_vec());
    check_file(with_zeros(data, WEIGHTS));
}

fn check_file(bytes: Vec<u8>) {
    let Some(gguf) = open_and_check(bytes) else { return };
    decode(&gguf);
    let mut writer = match GgufWriter::new(Vec::new(), gguf.metadata(), gguf.tensors()) {
        Ok(writer) => writer,
        // What is read need not be what a writer would write.
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    for info in gguf.tensors() {
        writer.write_tensor(&info.name, gguf.bytes(info)).unwrap();
    }
    let again = Gguf::from_vec(writer.finish().unwrap()).unwrap();
    assert!(again.metadata().iter().map(|(key, _)| key).eq(gguf.metadata().iter().map(|(key, _)| key)));
    for info in gguf.tensors() {
        let same = again.tensor(&info.name).unwrap();
        assert_eq!((&same.dims, same.ty), (&info.dims, info.ty));
        assert_eq!(again.bytes(same), gguf.bytes(info));
    }
    _ = Transformer::new(ModelFile::from(gguf)).map(|model| model.bytes_per_token());
}

/// Every kind of value, every type of tensors, and small models.
pub fn seeds() -> Seeds {
    let golden = |name: &str| {
        std::fs::read(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../goldens").join(name)).unwrap()
    };
    let types: Vec<u32> = (0..40).filter(|ty| TensorType::from_id(*ty).is_some()).collect();
    let tensors = types.iter().enumerate().fold(Raw::header(3, types.len() as u64, 0), |raw, (i, &ty)| {
        raw.tensor(&format!("blk.{i}"), &[256, 2], ty, 4096 * i as u64)
    });
    let mut seeds = vec![
        sample(),
        tensors.0,
        Raw::header(2, 1, 0).tensor("t", &[4, 2, 3, 1], 0, 0).data(96).0,
        // Claims and no bytes.
        Raw::header(3, 1 << 60, 0).0,
        Raw::header(3, 0, 1).str("k").u32(9).u32(8).u64(1 << 24).0,
        golden("imatrix.gguf"),
    ];
    for name in ["llama_factors", "llama_linear", "qwen2", "qwen3"] {
        seeds.push(without_weights(&golden(&format!("tiny_{name}.gguf"))));
    }
    seeds
}

/// A model's file up to its weights: all that decides about it, in little.
fn without_weights(bytes: &[u8]) -> Vec<u8> {
    let gguf = Gguf::from_vec(bytes.to_vec()).unwrap();
    let weights = gguf.tensors().iter().map(|info| info.offset + info.n_bytes).max().unwrap_or(0);
    bytes[..bytes.len() - weights.next_multiple_of(gguf.alignment())].to_vec()
}
