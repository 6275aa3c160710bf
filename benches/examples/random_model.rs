//! A model of random weights: `random_model TOKENIZER.gguf OUT.gguf q4_0|q8_0 [llama|qwen35]`.
//!
//! It has the shape of Llama 3.2 1B (16 layers, 2048 wide, 32 query and 8 key heads of 64, 8192 hidden, output tied to
//! the embedding) or of Qwen3.5-0.8B (24 layers, 1024 wide, 3584 hidden; 16 heads of 128 with the gated delta rule, or 8
//! query and 2 key heads of 256 in every fourth layer) and the vocabulary and tokenizer of the file named first, which has
//! to be a llama. No cache holds Llama's
//! weights, which is what it is for. They are random codes with one scale, of the size that trained weights have, so
//! that numbers stay finite; the same seed makes the same file. It appears under its name once it is complete.

use half::f16;
use halfbyte_gguf::{Gguf, GgufWriter, TensorInfo, TensorType};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::error::Error;

/// A shape.
struct Shape {
    architecture: &'static str,
    name: &'static str,
    layers: usize,
    width: usize,
    feed_forward: usize,
    /// Metadata beyond these sizes.
    keys: &'static [(&'static str, u32)],
}

const SHAPES: [Shape; 2] = [
    Shape {
        architecture: "llama",
        name: "Llama 3.2 1B",
        layers: 16,
        width: 2048,
        feed_forward: 8192,
        keys: &[
            ("context_length", 8192),
            ("attention.head_count", 32),
            ("attention.head_count_kv", 8),
            ("rope.dimension_count", 64),
        ],
    },
    Shape {
        architecture: "qwen35",
        name: "Qwen3.5-0.8B",
        layers: 24,
        width: 1024,
        feed_forward: 3584,
        keys: &[
            ("context_length", 262_144),
            ("attention.head_count", 8),
            ("attention.head_count_kv", 2),
            ("attention.key_length", 256),
            ("attention.value_length", 256),
            ("rope.dimension_count", 64),
            ("full_attention_interval", 4),
            ("ssm.conv_kernel", 4),
            ("ssm.state_size", 128),
            ("ssm.group_count", 16),
            ("ssm.time_step_rank", 16),
            ("ssm.inner_size", 2048),
        ],
    },
];
/// Standard deviation of the weights.
const DEVIATION: f64 = 0.02;
const SEED: u64 = 20_261_129;
/// Blocks written at a time.
const CHUNK: usize = 1 << 16;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (tokenizer, out, ty, shape) = match args.as_slice() {
        [tokenizer, out, ty] => (tokenizer, out, ty, "llama"),
        [tokenizer, out, ty, shape] => (tokenizer, out, ty, shape.as_str()),
        _ => return Err("expected TOKENIZER.gguf OUT.gguf TYPE [SHAPE]".into()),
    };
    let Some(shape) = SHAPES.iter().find(|known| known.architecture == shape) else {
        return Err(format!("shape {shape}: expected llama or qwen35").into());
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
    let eps = metadata.f32("llama.attention.layer_norm_rms_epsilon")?;
    let prefix = shape.architecture;
    metadata.set("general.architecture", prefix);
    metadata.set("general.name", format!("random weights in the shape of {}", shape.name));
    metadata.set(format!("{prefix}.attention.layer_norm_rms_epsilon"), eps);
    for (key, value) in [
        ("block_count", shape.layers),
        ("embedding_length", shape.width),
        ("feed_forward_length", shape.feed_forward),
        ("vocab_size", vocabulary),
    ] {
        metadata.set(format!("{prefix}.{key}"), u32::try_from(value)?);
    }
    for &(key, value) in shape.keys {
        metadata.set(format!("{prefix}.{key}"), value);
    }
    metadata.set("general.file_type", if ty == TensorType::Q4_0 { 2_u32 } else { 7_u32 });

    let tensors = tensors(shape, ty, vocabulary)?;
    let mut writer = GgufWriter::create(out, &metadata, &tensors)?;
    let mut random = Pcg64Mcg::seed_from_u64(SEED);
    let mut chunk = vec![0; CHUNK * bytes];
    for tensor in &tensors {
        if tensor.ty == TensorType::F32 {
            // Norms of ones; decays of exp(-softplus(-3)), and a mean of four rows in place of a convolution.
            let value: f32 = match tensor.name.rsplit_once("ssm_").map_or("", |(_, part)| part) {
                "a" => -1.0,
                "dt.bias" => -3.0,
                "conv1d.weight" => 0.25,
                _ => 1.0,
            };
            writer.append(&value.to_le_bytes().repeat(tensor.n_elements()))?;
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

/// All tensors in the order of the file: matrices of type `ty`, and vectors.
fn tensors(shape: &Shape, ty: TensorType, vocabulary: usize) -> Result<Vec<TensorInfo>, Box<dyn Error>> {
    let (width, hidden) = (shape.width, shape.feed_forward);
    let mut tensors = vec![TensorInfo::new("token_embd.weight", ty, &[width, vocabulary])?];
    let dense = [("ffn_gate", width, hidden), ("ffn_up", width, hidden), ("ffn_down", hidden, width)];
    for layer in 0..shape.layers {
        // The parts of the mixer: matrices with their columns and rows, and vectors.
        let (matrices, vectors): (&[_], &[_]) = match shape.architecture {
            "llama" => (
                &[
                    ("attn_q", 2048, 2048),
                    ("attn_k", 2048, 512),
                    ("attn_v", 2048, 512),
                    ("attn_output", 2048, 2048),
                ],
                &[("attn_norm.weight", &[2048][..]), ("ffn_norm.weight", &[2048])],
            ),
            _ if (layer + 1) % 4 == 0 => (
                &[
                    ("attn_q", 1024, 4096),
                    ("attn_k", 1024, 512),
                    ("attn_v", 1024, 512),
                    ("attn_output", 2048, 1024),
                ],
                &[
                    ("attn_norm.weight", &[1024]),
                    ("post_attention_norm.weight", &[1024]),
                    ("attn_q_norm.weight", &[256]),
                    ("attn_k_norm.weight", &[256]),
                ],
            ),
            _ => (
                &[
                    ("attn_qkv", 1024, 6144),
                    ("attn_gate", 1024, 2048),
                    ("ssm_beta", 1024, 16),
                    ("ssm_alpha", 1024, 16),
                    ("ssm_out", 2048, 1024),
                ],
                &[
                    ("attn_norm.weight", &[1024]),
                    ("post_attention_norm.weight", &[1024]),
                    ("ssm_conv1d.weight", &[4, 6144]),
                    ("ssm_a", &[16]),
                    ("ssm_dt.bias", &[16]),
                    ("ssm_norm.weight", &[128]),
                ],
            ),
        };
        for (part, columns, rows) in matrices.iter().chain(&dense) {
            tensors.push(TensorInfo::new(format!("blk.{layer}.{part}.weight"), ty, &[*columns, *rows])?);
        }
        for (part, dims) in vectors {
            tensors.push(TensorInfo::new(format!("blk.{layer}.{part}"), TensorType::F32, dims)?);
        }
    }
    tensors.push(TensorInfo::new("output_norm.weight", TensorType::F32, &[width])?);
    Ok(tensors)
}
