//! Hugging Face and MLX directories against transformers and mlx-lm, and the same weights in other formats.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use crate::converted;
use crate::export_checkpoint::{Kind, export};
use halfbyte::model::{ActivationType, Compute, CpuSession, SessionOptions, Transformer};
use halfbyte::requantize::{Difference, Encoding, difference};
use halfbyte::source::{self, ModelFile, Source};
use halfbyte_attention::KvType;
use halfbyte_cpu_kernels::Isa;
use halfbyte_gguf::TensorType;
use halfbyte_testing::golden;
use halfbyte_tokenizer::{Special, Tokenizer, TokenizerSpec};
use serde_json::Value;

const EXACT: SessionOptions =
    SessionOptions { context: 64, activations: ActivationType::F32, kv_type: KvType::F32, chunk: 5 };

fn open(name: &str) -> Arc<ModelFile> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../goldens/checkpoints").join(name);
    source::open(&path).unwrap()
}

fn ids(golden: &Value) -> Vec<u32> {
    serde_json::from_value(golden["ids"].clone()).unwrap()
}

fn logits(model: &Transformer, ctx: &Compute, options: SessionOptions, ids: &[u32]) -> Vec<f32> {
    let mut session = CpuSession::new(model, ctx, options).unwrap();
    let mut all = Vec::new();
    session.feed_all(ids, |_, logits| all.extend_from_slice(logits)).unwrap();
    all
}

/// The type as it is written, by its usual method.
fn encoding(ty: TensorType) -> Encoding {
    Encoding::new(ty).unwrap()
}

/// The largest difference of two lists of logits.
fn distance(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn logits_are_those_of_transformers_and_mlx() {
    let golden = golden("checkpoints.json");
    let cases = golden["logits"].as_object().unwrap();
    assert_eq!(cases.len(), 6);
    let pool = Compute::new(2).unwrap();
    for (name, want) in cases {
        let file = open(name);
        let model = Transformer::new(Arc::clone(&file)).unwrap();
        let want: Vec<Vec<f64>> = serde_json::from_value(want.clone()).unwrap();
        let want: Vec<f64> = want.concat();
        for isa in Isa::available() {
            let got = logits(&model, &pool.clone().with_isa(isa), EXACT, &ids(&golden));
            assert_eq!(got.len(), want.len());
            for (i, (&got, want)) in got.iter().zip(&want).enumerate() {
                // Logits reach 15; f32 sums in another order than theirs.
                let difference = (f64::from(got) - want).abs();
                assert!(difference < 2e-4, "{name}, {isa}, number {i}: {got}, recorded {want}");
            }
        }
    }
}

#[test]
fn stored_types_are_kept() {
    let ty = |file: &ModelFile, name: &str| file.tensor(name).unwrap().ty;
    let file = open("hf_llama");
    assert_eq!(file.format(), "Hugging Face, 2 safetensors files");
    assert_eq!(ty(&file, "blk.0.attn_q.weight"), TensorType::BF16);
    assert_eq!(ty(&open("hf_qwen2"), "blk.0.attn_q.bias"), TensorType::F16);
    let file = open("mlx_llama_mixed_g64");
    assert_eq!(file.format(), "MLX, quantized, 1 safetensors file");
    assert_eq!(ty(&file, "blk.0.attn_q.weight"), TensorType::MLX4_G64);
    assert_eq!(ty(&file, "token_embd.weight"), TensorType::MLX8_G64);
    assert_eq!(ty(&file, "blk.0.ffn_down.weight"), TensorType::MLX8_G32);
    // Codes of 64 x 64 weights, and a scale and a bias of 16 bits for every 64.
    assert_eq!(file.tensor("blk.0.attn_q.weight").unwrap().n_bytes, 64 * 64 / 2 + 64 * 4);
    assert_eq!(ty(&open("mlx_qwen2_4bit_g128"), "token_embd.weight"), TensorType::MLX4_G128);
}

#[test]
fn the_same_weights_in_gguf_give_the_same_logits() {
    let golden = golden("checkpoints.json");
    let pool = Compute::new(2).unwrap();
    let ctx = pool.clone().with_isa(Isa::fastest());
    for name in golden["logits"].as_object().unwrap().keys() {
        let file = open(name);
        let original = logits(&Transformer::new(Arc::clone(&file)).unwrap(), &ctx, EXACT, &ids(&golden));
        let mut encodings = vec![encoding(TensorType::F32)];
        if name.starts_with("hf") {
            // The weights have 8 significant bits at most.
            encodings.push(encoding(TensorType::F16));
        }
        for encoding in encodings {
            let gguf = converted(&**file, encoding, &ctx);
            // Norms as other readers want them, q and k in the order that they expect.
            assert!(gguf.tensors().iter().all(|t| t.dims.len() > 1 || t.ty == TensorType::F32));
            for info in gguf.tensors().iter().filter(|info| info.dims.len() == 2) {
                let stored = file.tensor(&info.name).unwrap();
                let go_on = |_| ControlFlow::Continue(());
                let found =
                    difference((&**file, &gguf), (stored, info), ctx.context(), go_on).unwrap().unwrap();
                assert_eq!(found.max_error, 0.0, "{name} {}", info.name);
            }
            let model = crate::common::transformer(&gguf).unwrap();
            let got = logits(&model, &ctx, EXACT, &ids(&golden));
            // Scores sum the elements of a head in another order.
            let distance = distance(&original, &got);
            assert!(distance < 1e-4, "{name}, {encoding}: {distance}");
        }
    }
}

#[test]
fn a_converted_llama_has_its_rows_in_pairs() {
    let pool = Compute::new(1).unwrap();
    let ctx = pool.clone().with_isa(Isa::scalar());
    let file = open("hf_llama");
    let gguf = converted(&**file, encoding(TensorType::F32), &ctx);
    let row = |source: &dyn Source, name: &str, row: usize| {
        let info = source.tensor(name).unwrap();
        let n = info.row_len() * info.ty.block_bytes();
        source.bytes(info)[row * n..][..n].to_vec()
    };
    let widened = |bytes: Vec<u8>| -> Vec<u8> { bytes.chunks(2).flat_map(|b| [0, 0, b[0], b[1]]).collect() };
    // Heads of 32: GGUF's rows 0, 1, 2 of a head are the checkpoint's 0, 16, 1; of v they are the same.
    for (ours, theirs) in [(0, 0), (1, 16), (2, 1), (31, 31), (32, 32), (33, 48)] {
        let name = "blk.0.attn_q.weight";
        assert_eq!(row(&gguf, name, ours), widened(row(&**file, name, theirs)), "row {ours}");
    }
    assert_eq!(row(&gguf, "blk.0.attn_v.weight", 1), widened(row(&**file, "blk.0.attn_v.weight", 1)));
}

#[test]
fn packing_changes_no_bit() {
    let golden = golden("checkpoints.json");
    let pool = Compute::new(2).unwrap();
    let ctx = pool.clone().with_isa(Isa::fastest());
    for name in ["mlx_llama_4bit_g32", "mlx_llama_mixed_g64", "mlx_qwen2_4bit_g128", "hf_llama"] {
        let file = open(name);
        let mut model = Transformer::new(Arc::clone(&file)).unwrap();
        for activations in ActivationType::ALL {
            let options = SessionOptions { activations, ..EXACT };
            let before = logits(&model, &ctx, options, &ids(&golden));
            model = model.pack(&ctx).unwrap();
            assert_eq!(logits(&model, &ctx, options, &ids(&golden)), before, "{name}");
            model = Transformer::new(Arc::clone(&file)).unwrap();
        }
    }
}

/// The embedded model by way of another format: the directory and the ids of its prompt there.
fn exported(kind: Kind, directory: &tempfile::TempDir) -> (Arc<ModelFile>, Vec<u32>) {
    export(&halfbyte_gguf::Gguf::open(halfbyte_testing::tiny_model()).unwrap(), directory.path(), kind)
        .unwrap();
    let file = source::open(directory.path()).unwrap();
    let ids = |metadata| {
        let tokenizer = Tokenizer::new(&TokenizerSpec::from_metadata(metadata).unwrap()).unwrap();
        tokenizer.encode_prompt("It was a dark and stormy night, and the captain", Special::Off).unwrap()
    };
    let there = ids(file.metadata());
    assert_eq!(there, ids(halfbyte_gguf::Gguf::open(halfbyte_testing::tiny_model()).unwrap().metadata()));
    (file, there)
}

/// How far the matrices of `b` are from those of `a`.
fn weight_error(a: &dyn Source, b: &dyn Source, ctx: &Compute) -> f64 {
    let mut sum = Difference::default();
    for info in a.tensors().iter().filter(|info| info.dims.len() == 2) {
        let go_on = |_| ControlFlow::Continue(());
        sum +=
            difference((a, b), (info, b.tensor(&info.name).unwrap()), ctx.context(), go_on).unwrap().unwrap();
    }
    sum.relative_squared_error()
}

#[test]
fn the_embedded_model_is_itself_in_every_hugging_face_type() {
    let pool = Compute::new(2).unwrap();
    let ctx = pool.clone().with_isa(Isa::fastest());
    let embedded = halfbyte_gguf::Gguf::open(halfbyte_testing::tiny_model()).unwrap();
    for (kind, ty) in
        [(Kind::F32, TensorType::F32), (Kind::F16, TensorType::F16), (Kind::Bf16, TensorType::BF16)]
    {
        let directory = tempfile::tempdir().unwrap();
        let (file, ids) = exported(kind, &directory);
        let gguf = converted(&embedded, encoding(ty), &ctx);
        let stored = |source: &dyn Source| source.tensor("blk.1.ffn_up.weight").unwrap().ty;
        assert_eq!((stored(&**file), stored(&gguf)), (ty, ty));
        assert_eq!(weight_error(&gguf, &**file, &ctx), 0.0, "{kind:?}");
        let original = logits(&crate::common::transformer(&gguf).unwrap(), &ctx, EXACT, &ids);
        let got = logits(&Transformer::new(Arc::clone(&file)).unwrap(), &ctx, EXACT, &ids);
        // Scores sum the elements of a head in another order.
        let distance = distance(&original, &got);
        assert!(distance < 1e-4, "{kind:?}: {distance}");
    }
}

#[test]
fn the_embedded_model_in_mlx_is_off_by_its_rounding_alone() {
    let pool = Compute::new(2).unwrap();
    let ctx = pool.clone().with_isa(Isa::fastest());
    let embedded = halfbyte_gguf::Gguf::open(halfbyte_testing::tiny_model()).unwrap();
    let mut distances = Vec::new();
    for (kind, ty, largest) in
        [(Kind::Mlx4, TensorType::MLX4_G64, 2e-2), (Kind::Mlx8, TensorType::MLX8_G64, 1e-4)]
    {
        let directory = tempfile::tempdir().unwrap();
        let (file, ids) = exported(kind, &directory);
        assert_eq!(file.tensor("token_embd.weight").unwrap().ty, ty);
        // A group's range is some five standard deviations, in 15 or 255 steps: a twelfth of a step's square.
        let error = weight_error(&embedded, &**file, &ctx);
        assert!(error > 0.0 && error < largest, "{kind:?}: {error}");
        let got = logits(&Transformer::new(Arc::clone(&file)).unwrap(), &ctx, EXACT, &ids);
        let gguf = converted(&**file, encoding(TensorType::F32), &ctx);
        assert_eq!(weight_error(&gguf, &**file, &ctx), 0.0, "{kind:?}");
        let decoded = logits(&crate::common::transformer(&gguf).unwrap(), &ctx, EXACT, &ids);
        let distance_to = |other: &[f32]| distance(other, &got);
        assert!(distance_to(&decoded) < 1e-4, "{kind:?}: {}", distance_to(&decoded));
        distances.push(distance_to(&logits(
            &crate::common::transformer(&embedded).unwrap(),
            &ctx,
            EXACT,
            &ids,
        )));
    }
    println!("largest differences from the F16 file's logits, 4 bits and 8: {distances:?}");
    assert!(distances[1] < 0.3 && distances[1] < distances[0] / 4.0, "{distances:?}");
}
