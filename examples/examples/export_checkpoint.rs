//! Writes a GGUF file as a Hugging Face or an MLX directory, for tests of the way back and of other programs.
//!
//! ```text
//! cargo run --release -p halfbyte-examples --example export_checkpoint -- cli/model/halfbyte-tiny.gguf target/tiny-mlx4 mlx4
//! halfbyte run --model target/tiny-mlx4
//! ```
//!
//! Types: `f32`, `f16` and `bf16` as Hugging Face has them, `mlx4` and `mlx8` as MLX quantizes (groups of 64, scales and
//! biases in F16). Vectors stay F32 whatever the type, as in GGUF files: nothing is rounded but matrices. Architectures
//! llama, qwen2 and qwen3 without scaled rotations; tokenizers of GPT-2's kind.

use std::error::Error;
use std::ops::ControlFlow;
use std::path::Path;

use half::{bf16, f16};
use halfbyte::requantize::Plan;
use halfbyte_cpu_kernels::{Context, Isa};
use halfbyte_gguf::{Gguf, GgufWriter, Metadata, TensorInfo};
use halfbyte_q4::affine::{self, GroupSize};
use halfbyte_threadpool::ThreadPool;
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::{Map, Value, json};

/// What the weights of matrices become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Hugging Face.
    F32,
    F16,
    Bf16,
    /// MLX, 4 and 8 bits.
    Mlx4,
    Mlx8,
}

/// Names on the command line.
const KINDS: [(&str, Kind); 5] = [
    ("f32", Kind::F32),
    ("f16", Kind::F16),
    ("bf16", Kind::Bf16),
    ("mlx4", Kind::Mlx4),
    ("mlx8", Kind::Mlx8),
];

/// MLX's default.
const GROUP: GroupSize = GroupSize::G64;

type Failure = Box<dyn Error>;

#[allow(dead_code, reason = "tests have this file as a module")]
fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [file, directory, kind] = &args[..] else {
        return Err("expected FILE.gguf DIRECTORY TYPE".into());
    };
    let Some(&(_, kind)) = KINDS.iter().find(|(name, _)| name == kind) else {
        let names: Vec<_> = KINDS.iter().map(|(name, _)| *name).collect();
        return Err(format!("{kind:?} is no type: expected one of {}", names.join(", ")).into());
    };
    export(&Gguf::open(file)?, Path::new(directory), kind)
}

/// Writes `gguf` into `directory`, which is made if it is not there.
pub(crate) fn export(gguf: &Gguf, directory: &Path, kind: Kind) -> Result<(), Failure> {
    std::fs::create_dir_all(directory)?;
    let bits = match kind {
        Kind::Mlx4 => Some(4),
        Kind::Mlx8 => Some(8),
        _ => None,
    };
    let write = |name: &str, value: &Value| std::fs::write(directory.join(name), value.to_string());
    write("config.json", &config(gguf, bits)?)?;
    write("tokenizer.json", &tokenizer(gguf.metadata())?)?;

    let wide = widened(gguf)?;
    let mut made = Vec::new();
    for info in wide.tensors() {
        let name = checkpoint_name(&info.name).ok_or_else(|| format!("{}: unknown tensor", info.name))?;
        let x = rows(&wide, info)?;
        let shape: Vec<usize> = info.dims.iter().rev().copied().collect();
        match kind {
            _ if info.dims.len() < 2 => made.push(tensor(name, Dtype::F32, shape, &x)),
            Kind::F32 => made.push(tensor(name, Dtype::F32, shape, &x)),
            Kind::F16 => made.push(tensor(name, Dtype::F16, shape, &each(&x, f16::from_f32))),
            Kind::Bf16 => made.push(tensor(name, Dtype::BF16, shape, &each(&x, bf16::from_f32))),
            Kind::Mlx4 | Kind::Mlx8 => {
                let (codes, scales, biases) = match kind {
                    Kind::Mlx4 => four_bits(&x)?,
                    _ => eight_bits(&x),
                };
                let module = name.trim_end_matches(".weight").to_owned();
                let per_row = |n: usize| vec![shape[0], n / shape[0]];
                made.push(tensor(name, Dtype::U32, per_row(codes.len()), &codes));
                let groups = per_row(scales.len());
                made.push(tensor(format!("{module}.scales"), Dtype::F16, groups.clone(), &scales));
                made.push(tensor(format!("{module}.biases"), Dtype::F16, groups, &biases));
            }
        }
    }
    let views = made
        .iter()
        .map(|(name, ty, shape, bytes)| Ok((name, TensorView::new(*ty, shape.clone(), bytes)?)))
        .collect::<Result<Vec<_>, Failure>>()?;
    let maker = if bits.is_some() { "mlx" } else { "pt" };
    let note = [("format".to_owned(), maker.to_owned())].into();
    Ok(safetensors::serialize_to_file(views, Some(note), &directory.join("model.safetensors"))?)
}

type Made = (String, Dtype, Vec<usize>, Vec<u8>);

fn tensor<T: bytemuck::NoUninit>(name: String, ty: Dtype, shape: Vec<usize>, values: &[T]) -> Made {
    (name, ty, shape, bytemuck::cast_slice(values).to_vec())
}

fn each<T>(x: &[f32], f: impl Fn(f32) -> T) -> Vec<T> {
    x.iter().map(|&x| f(x)).collect()
}

/// The same file with F32 matrices.
fn widened(gguf: &Gguf) -> Result<Gguf, Failure> {
    let pool = ThreadPool::new(1)?;
    let ctx = Context { pool: &pool, isa: Isa::best()? };
    let plan = Plan::new(gguf, "f32".parse()?, &[])?;
    let mut writer = GgufWriter::new(Vec::new(), plan.metadata(), plan.tensors())?;
    plan.write(ctx, &mut writer, &(), |_| ControlFlow::Continue(()))?;
    Ok(Gguf::from_vec(writer.finish()?)?)
}

/// A tensor's weights with the rows in a checkpoint's order. GGUF has the two elements of a llama's head that rotate
/// together beside each other, a checkpoint has them half a head apart.
fn rows(wide: &Gguf, info: &TensorInfo) -> Result<Vec<f32>, Failure> {
    let x = wide.view::<f32>(info)?;
    let m = wide.metadata();
    let rotated = [".attn_q.weight", ".attn_k.weight"].iter().any(|end| info.name.ends_with(end));
    if !(rotated && m.str("general.architecture")? == "llama") {
        return Ok(x.to_vec());
    }
    let (dim, n) = (m.u32("llama.rope.dimension_count")? as usize, info.row_len());
    let row = |row: usize| {
        let (head, place) = (row / dim * dim, row % dim);
        head + 2 * (place % (dim / 2)) + place / (dim / 2)
    };
    Ok((0..info.n_rows()).flat_map(|r| &x[row(r) * n..][..n]).copied().collect())
}

type Affine = (Vec<u32>, Vec<f16>, Vec<f16>);

/// MLX's rule.
fn four_bits(x: &[f32]) -> Result<Affine, Failure> {
    let groups = x.len() / GROUP.weights();
    let (mut codes, mut scales, mut biases) =
        (vec![0; x.len() / 8], vec![f16::ZERO; groups], vec![f16::ZERO; groups]);
    affine::quantize_row(x, GROUP, &mut codes, &mut scales, &mut biases)?;
    Ok((codes, scales, biases))
}

/// The least weight of a group is its bias, the range a 255th part of which is a step.
fn eight_bits(x: &[f32]) -> Affine {
    let (mut codes, mut scales, mut biases) = (Vec::new(), Vec::new(), Vec::new());
    for group in x.chunks_exact(GROUP.weights()) {
        let least = group.iter().copied().fold(f32::INFINITY, f32::min);
        let most = group.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let (scale, bias) = (f16::from_f32(((most - least) / 255.0).max(1e-7)), f16::from_f32(least));
        let code = |w: f32| ((w - bias.to_f32()) / scale.to_f32()).round_ties_even().clamp(0.0, 255.0) as u8;
        let bytes: Vec<u8> = group.iter().map(|&w| code(w)).collect();
        codes.extend(bytes.as_chunks().0.iter().map(|&word| u32::from_le_bytes(word)));
        scales.push(scale);
        biases.push(bias);
    }
    (codes, scales, biases)
}

/// A checkpoint's name of GGUF's tensor `name`.
fn checkpoint_name(name: &str) -> Option<String> {
    let whole = match name {
        "token_embd.weight" => "model.embed_tokens.weight",
        "output_norm.weight" => "model.norm.weight",
        "output.weight" => "lm_head.weight",
        _ => {
            let (layer, rest) = name.strip_prefix("blk.")?.split_once('.')?;
            let (part, kind) = rest.rsplit_once('.')?;
            let module = match part {
                "attn_norm" => "input_layernorm",
                "ffn_norm" => "post_attention_layernorm",
                "attn_q" => "self_attn.q_proj",
                "attn_k" => "self_attn.k_proj",
                "attn_v" => "self_attn.v_proj",
                "attn_output" => "self_attn.o_proj",
                "attn_q_norm" => "self_attn.q_norm",
                "attn_k_norm" => "self_attn.k_norm",
                "ffn_gate" => "mlp.gate_proj",
                "ffn_up" => "mlp.up_proj",
                "ffn_down" => "mlp.down_proj",
                _ => return None,
            };
            return Some(format!("model.layers.{layer}.{module}.{kind}"));
        }
    };
    Some(whole.to_owned())
}

fn config(gguf: &Gguf, bits: Option<usize>) -> Result<Value, Failure> {
    let m = gguf.metadata();
    let name = m.str("general.architecture")?;
    let key = |key: &str| format!("{name}.{key}");
    if m.get(&key("rope.scaling.type")).is_some()
        || gguf.tensors().iter().any(|t| t.name.starts_with("rope_"))
    {
        return Err("scaled rotations are not exported".into());
    }
    let mut config = json!({
        "model_type": name,
        "hidden_act": "silu",
        "rms_norm_eps": m.f32(&key("attention.layer_norm_rms_epsilon"))?,
        "rope_theta": m.f32(&key("rope.freq_base"))?,
        "tie_word_embeddings": gguf.tensors().iter().all(|t| t.name != "output.weight"),
    });
    for (field, theirs) in [
        ("vocab_size", "vocab_size"),
        ("hidden_size", "embedding_length"),
        ("num_hidden_layers", "block_count"),
        ("intermediate_size", "feed_forward_length"),
        ("num_attention_heads", "attention.head_count"),
        ("num_key_value_heads", "attention.head_count_kv"),
        ("head_dim", "attention.key_length"),
        ("max_position_embeddings", "context_length"),
    ] {
        config[field] = m.u32(&key(theirs))?.into();
    }
    for (field, theirs) in [("bos_token_id", "bos_token_id"), ("eos_token_id", "eos_token_id")] {
        config[field] = m.u32(&format!("tokenizer.ggml.{theirs}"))?.into();
    }
    if let Some(bits) = bits {
        config["quantization"] = json!({"group_size": GROUP.weights(), "bits": bits});
    }
    Ok(config)
}

/// A `tokenizer.json` of GPT-2's kind.
fn tokenizer(m: &Metadata) -> Result<Value, Failure> {
    const CONTROL: i32 = 3;
    let (model, pre) = (m.str("tokenizer.ggml.model")?, m.str("tokenizer.ggml.pre")?);
    if (model, pre) != ("gpt2", "gpt-2") {
        return Err(
            format!("tokenizer {model:?} with rules {pre:?}: expected \"gpt2\" with \"gpt-2\"").into()
        );
    }
    let (mut vocab, mut added) = (Map::new(), Vec::new());
    let types = m.i32s("tokenizer.ggml.token_type")?;
    for (id, (text, &ty)) in m.strings("tokenizer.ggml.tokens")?.iter().zip(types.iter()).enumerate() {
        vocab.insert(text.to_owned(), id.into());
        if ty == CONTROL {
            added.push(
                json!({"id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true}),
            );
        }
    }
    let merges: Vec<_> = m.strings("tokenizer.ggml.merges")?.iter().collect();
    let byte_level =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    Ok(json!({
        "version": "1.0",
        "added_tokens": added,
        "normalizer": null,
        "pre_tokenizer": byte_level,
        "decoder": byte_level,
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "vocab": vocab, "merges": merges},
    }))
}
