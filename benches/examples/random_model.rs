//! A model of random weights: `random_model TOKENIZER.gguf OUT.gguf q4_0|q8_0`.
//!
//! It has the shape of Llama 3.2 1B (16 layers, 2048 wide, 32 query and 8 key heads of 64, 8192 hidden, output tied to
//! the embedding) and the vocabulary and tokenizer of the file named first, which has to be a llama. No cache holds its
//! weights, which is what it is for. They are random codes with one scale, of the size that trained weights have, so
//! that numbers stay finite; the same seed makes the same file. It appears under its name once it is complete.

use half::f16;
use halfbyte_gguf::{Gguf, GgufWriter, TensorInfo, TensorType};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::error::Error;

const LAYERS: usize = 16;
const WIDTH: usize = 2048;
const KV_WIDTH: usize = 8 * 64;
const FEED_FORWARD: usize = 8192;
/// Standard deviation of the weights.
const DEVIATION: f64 = 0.02;
const SEED: u64 = 20_261_129;
/// Blocks written at a time.
const CHUNK: usize = 1 << 16;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [tokenizer, out, ty] = args.as_slice() else {
        return Err("expected TOKENIZER.gguf OUT.gguf TYPE".into());
    };
    let (ty, bytes, deviation) = match ty.as_str() {
        // Of codes that are all equally likely: 16 of them, or 256.
        "q4_0" => (TensorType::Q4_0, 18, (255.0_f64 / 12.0).sqrt()),
        "q8_0" => (TensorType::Q8_0, 34, (65_535.0_f64 / 12.0).sqrt()),
        other => return Err(format!("type {other}: expected q4_0 or q8_0").into()),
    };
    let scale = f16::from_f64(DEVIATION / deviation).to_le_bytes();
    let source = Gguf::open(tokenizer)?;
    let mut metadata = source.metadata().clone();
    let architecture = metadata.str("general.architecture")?;
    if architecture != "llama" {
        return Err(format!("{tokenizer} is a {architecture}: expected a llama").into());
    }
    let vocabulary = source.tensor("token_embd.weight")?.n_rows();
    metadata.set("general.name", "random weights in the shape of Llama 3.2 1B");
    for (key, value) in [
        ("block_count", LAYERS),
        ("context_length", 8192),
        ("embedding_length", WIDTH),
        ("feed_forward_length", FEED_FORWARD),
        ("attention.head_count", WIDTH / 64),
        ("attention.head_count_kv", KV_WIDTH / 64),
        ("rope.dimension_count", 64),
        ("vocab_size", vocabulary),
    ] {
        metadata.set(format!("llama.{key}"), u32::try_from(value)?);
    }
    metadata.set("general.file_type", if ty == TensorType::Q4_0 { 2_u32 } else { 7_u32 });

    let tensors = tensors(ty, vocabulary)?;
    let mut writer = GgufWriter::create(out, &metadata, &tensors)?;
    let mut random = Pcg64Mcg::seed_from_u64(SEED);
    let mut chunk = vec![0; CHUNK * bytes];
    for tensor in &tensors {
        if tensor.ty == TensorType::F32 {
            writer.append(&1.0_f32.to_le_bytes().repeat(tensor.n_elements()))?;
            continue;
        }
        let mut left = tensor.n_elements() / 32;
        while left > 0 {
            let blocks = &mut chunk[..left.min(CHUNK) * bytes];
            random.fill_bytes(blocks);
            for block in blocks.chunks_exact_mut(bytes) {
                block[..2].copy_from_slice(&scale);
            }
            left -= blocks.len() / bytes;
            writer.append(blocks)?;
        }
    }
    writer.commit()?;
    Ok(())
}

/// All tensors in the order of the file: matrices of type `ty`, norms of ones.
fn tensors(ty: TensorType, vocabulary: usize) -> Result<Vec<TensorInfo>, Box<dyn Error>> {
    let mut tensors = vec![TensorInfo::new("token_embd.weight", ty, &[WIDTH, vocabulary])?];
    for layer in 0..LAYERS {
        for (part, columns, rows) in [
            ("attn_q", WIDTH, WIDTH),
            ("attn_k", WIDTH, KV_WIDTH),
            ("attn_v", WIDTH, KV_WIDTH),
            ("attn_output", WIDTH, WIDTH),
            ("ffn_gate", WIDTH, FEED_FORWARD),
            ("ffn_up", WIDTH, FEED_FORWARD),
            ("ffn_down", FEED_FORWARD, WIDTH),
        ] {
            tensors.push(TensorInfo::new(format!("blk.{layer}.{part}.weight"), ty, &[columns, rows])?);
        }
        for part in ["attn_norm", "ffn_norm"] {
            tensors.push(TensorInfo::new(format!("blk.{layer}.{part}.weight"), TensorType::F32, &[WIDTH])?);
        }
    }
    tensors.push(TensorInfo::new("output_norm.weight", TensorType::F32, &[WIDTH])?);
    Ok(tensors)
}
