//! Models in the types of ggml: they load, and compute what the same weights in F32 do.

use std::ops::ControlFlow;

use half::f16;
use halfbyte::model::{ActivationType, Compute, CpuSession, SessionOptions, Transformer};
use halfbyte::requantize::Plan;
use halfbyte::source::ModelFile;
use halfbyte_gguf::{Gguf, GgufWriter, TensorInfo, TensorType};
use halfbyte_testing::Rng;

/// The embedded model with other bytes for the tensors that `replace` has some for.
fn with(model: &Gguf, replace: impl Fn(&TensorInfo) -> Option<(TensorType, Vec<u8>)>) -> Gguf {
    let made: Vec<_> = model.tensors().iter().map(|info| (info, replace(info))).collect();
    let infos = made.iter().map(|(info, new)| {
        TensorInfo::new(&info.name, new.as_ref().map_or(info.ty, |new| new.0), &info.dims).unwrap()
    });
    let infos: Vec<_> = infos.collect();
    let mut writer = GgufWriter::new(Vec::new(), model.metadata(), &infos).unwrap();
    for (info, new) in &made {
        writer.write_tensor(&info.name, new.as_ref().map_or(model.bytes(info), |new| &new.1)).unwrap();
    }
    Gguf::from_vec(writer.finish().unwrap()).unwrap()
}

/// A model as `ty`.
fn quantized(model: &Gguf, ty: &str, compute: &Compute) -> Gguf {
    let plan = Plan::new(model, ty.parse().unwrap(), &[]).unwrap();
    let mut writer = GgufWriter::new(Vec::new(), plan.metadata(), plan.tensors()).unwrap();
    plan.write(compute.context(), &mut writer, &(), |_| ControlFlow::Continue(())).unwrap().unwrap();
    Gguf::from_vec(writer.finish().unwrap()).unwrap()
}

/// Logits behind a prompt and a token more.
fn logits(gguf: Gguf, compute: &Compute, activations: ActivationType) -> Vec<f32> {
    let model = Transformer::new(ModelFile::from(gguf)).unwrap();
    let options = SessionOptions { activations, ..SessionOptions::new(64) };
    let mut session = CpuSession::new(&model, compute, options).unwrap();
    session.feed(&[5, 700, 2047, 33, 9]).unwrap();
    session.feed(&[12]).unwrap().to_vec()
}

/// Checks that a model computes what it does with its weights in F32. Decoding loses nothing, so that the order of the sums is
/// the only difference with f32 activations.
fn check(gguf: Gguf, compute: &Compute, ty: &str) {
    let wide = quantized(&gguf, "f32", compute);
    let bytes = with(&gguf, |_| None);
    let got = logits(gguf, compute, ActivationType::F32);
    let want = logits(wide, compute, ActivationType::F32);
    let most = want.iter().fold(0.0, |most: f32, x| most.max(x.abs()));
    assert!(most > 0.1 && most.is_finite(), "{ty}: {most}");
    let off = got.iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(off < 1e-4 * most, "{ty}: off by {off}, of {most}");
    // 16-bit activations are exact to about 2^-16 of a group's largest, and most of the types have kernels for them.
    let integers = logits(bytes, compute, ActivationType::Int16);
    let off = integers.iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(off < 5e-3 * most, "{ty}: off by {off} with 16-bit activations, of {most}");
}

#[test]
fn models_that_were_quantized_run() {
    let model = Gguf::open(halfbyte_testing::tiny_model()).unwrap();
    let compute = Compute::new(2).unwrap();
    for ty in ["q5_0", "q5_1", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4"] {
        let gguf = quantized(&model, ty, &compute);
        assert_eq!(gguf.tensor("blk.0.attn_q.weight").unwrap().ty.name(), ty.to_uppercase());
        check(gguf, &compute, ty);
    }
}

/// Types that nothing here writes: the matrices of queries are random blocks, with scales for weights of a tenth or so.
#[test]
fn models_of_types_that_are_only_read_run() {
    const SEED: u64 = 8_086;
    println!("seed {SEED}");
    let model = Gguf::open(halfbyte_testing::tiny_model()).unwrap();
    let compute = Compute::new(2).unwrap();
    // Where a block has its f16 scale, and the scale.
    for (ty, at, scale) in [
        (TensorType::IQ1_S, Some(0), 0.01),
        (TensorType::IQ1_M, None, 0.01),
        (TensorType::IQ2_XXS, Some(0), 0.0005),
        (TensorType::IQ2_XS, Some(0), 0.0005),
        (TensorType::IQ2_S, Some(0), 0.0005),
        (TensorType::IQ3_XXS, Some(0), 0.0005),
        (TensorType::IQ3_S, Some(0), 0.0005),
        (TensorType::TQ1_0, Some(52), 0.1),
        (TensorType::TQ2_0, Some(64), 0.1),
        (TensorType::NVFP4, None, 0.0),
        (TensorType::Q1_0, Some(0), 0.1),
        (TensorType::Q2_0, Some(0), 0.1),
    ] {
        let scale = f16::from_f32(scale).to_bits();
        let gguf = with(&model, |info| {
            let mut rng = Rng(SEED);
            let n = info.n_elements() / ty.block_len() * ty.block_bytes();
            let mut bytes: Vec<u8> = (0..n).map(|_| rng.byte()).collect();
            for block in bytes.chunks_exact_mut(ty.block_bytes()) {
                match (ty, at) {
                    (_, Some(at)) => block[at..at + 2].copy_from_slice(&scale.to_le_bytes()),
                    // Four bits of the scale in each of four numbers.
                    (TensorType::IQ1_M, _) => {
                        for k in 0..4 {
                            let byte = &mut block[49 + 2 * k];
                            *byte = *byte & 15 | ((scale >> (4 * k)) as u8) << 4;
                        }
                    }
                    // An exponent of 2^-4 or 2^-5.
                    _ => block[..4].iter_mut().for_each(|byte| *byte = *byte % 16 + 16),
                }
            }
            info.name.ends_with("attn_q.weight").then_some((ty, bytes))
        });
        assert_eq!(gguf.tensor("blk.0.attn_q.weight").unwrap().ty, ty);
        check(gguf, &compute, ty.name());
    }
}
