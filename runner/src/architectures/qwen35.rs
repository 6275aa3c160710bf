//! Qwen3.5: three of four layers have the gated delta rule, and the others have attention with gates. The larger models have
//! experts.
//!
//! GGUF files have the logarithms of decays as they are multiplied (`ssm_a`), weights of norms with 1 added, and value heads
//! in an order of their own. Hugging Face's checkpoints have none of that, and MLX's have the norms alone; what is read from
//! them takes GGUF's form, but for the order of heads, which [`Source::head_order`](crate::source::Source::head_order) tells.

use halfbyte_cpu_kernels::{DeltaShape, RopeOrder};
use halfbyte_gguf::{Array, Metadata, Value};

use super::reader::Heads;
use super::{Architecture, Form, Layout, Reader, experts, llama};
use crate::model::{Attention, Description, Error, GatedDelta, Gating, Layer, Mixer, RopeId};
use crate::source::{self, Object};

pub(super) const QWEN35: Architecture = Architecture {
    name: "qwen35",
    model_types: &["qwen3_5", "qwen3_5_text"],
    rope_order: RopeOrder::Halves,
    modules: &MODULES,
    parameters: &PARAMETERS,
    partial_rotary: 0.25,
    form,
    configure,
    describe,
    ..Architecture::USUAL
};

pub(super) const QWEN35MOE: Architecture = Architecture {
    name: "qwen35moe",
    model_types: &["qwen3_5_moe", "qwen3_5_moe_text"],
    configure: configure_with_experts,
    describe: describe_with_experts,
    ..QWEN35
};

/// The modules of a layer. MLX has the experts of a layer stacked as `switch_mlp`.
const MODULES: [(&str, &str); 28] = [
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "post_attention_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("linear_attn.in_proj_qkv", "attn_qkv"),
    ("linear_attn.in_proj_z", "attn_gate"),
    ("linear_attn.in_proj_b", "ssm_beta"),
    ("linear_attn.in_proj_a", "ssm_alpha"),
    ("linear_attn.conv1d", "ssm_conv1d"),
    ("linear_attn.norm", "ssm_norm"),
    ("linear_attn.out_proj", "ssm_out"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
    ("mlp.gate", "ffn_gate_inp"),
    ("mlp.experts.gate_up_proj", "ffn_gate_up_exps"),
    ("mlp.experts.down_proj", "ffn_down_exps"),
    ("mlp.switch_mlp.gate_proj", "ffn_gate_exps"),
    ("mlp.switch_mlp.up_proj", "ffn_up_exps"),
    ("mlp.switch_mlp.down_proj", "ffn_down_exps"),
    ("mlp.shared_expert.gate_proj", "ffn_gate_shexp"),
    ("mlp.shared_expert.up_proj", "ffn_up_shexp"),
    ("mlp.shared_expert.down_proj", "ffn_down_shexp"),
    ("mlp.shared_expert_gate", "ffn_gate_inp_shexp"),
];

/// The parameters of recurrent layers that are no module's.
const PARAMETERS: [(&str, &str); 2] =
    [("linear_attn.A_log", "ssm_a"), ("linear_attn.dt_bias", "ssm_dt.bias")];

/// What is added to the squares of a key before it is given the length 1. It is part of the architecture.
const KEY_EPS: f32 = 1e-6;

/// The most taps of the convolution that are taken seriously.
const MOST_TAPS: usize = 64;

const INTERVAL: &str = "full_attention_interval";
const RECURRENT: &str = "attention.recurrent_layers";
const LINEAR: &str = "linear_attention";

/// What becomes of a checkpoint's tensor that is called `known` in GGUF files.
fn form(known: &str, norms_lack_one: bool) -> Form {
    let part =
        known.strip_prefix("blk.").and_then(|name| name.split_once('.')).map_or(known, |(_, part)| part);
    match part {
        "ssm_conv1d.weight" => Form::Taps,
        "ssm_a" => Form::MinusExp,
        "output_norm.weight"
        | "attn_norm.weight"
        | "post_attention_norm.weight"
        | "attn_q_norm.weight"
        | "attn_k_norm.weight"
            if norms_lack_one =>
        {
            Form::PlusOne
        }
        _ => Form::AsStored,
    }
}

fn configure(config: &Object, metadata: &mut Metadata) -> Result<(), source::Error> {
    llama::configure(config, metadata)?;
    configure_mixers(config, metadata)
}

fn configure_with_experts(config: &Object, metadata: &mut Metadata) -> Result<(), source::Error> {
    experts::configure(config, metadata)?;
    configure_mixers(config, metadata)
}

/// The heads of recurrent layers, and which layers are recurrent.
fn configure_mixers(config: &Object, metadata: &mut Metadata) -> Result<(), source::Error> {
    let prefix = metadata.str("general.architecture").unwrap_or_default().to_owned();
    for (field, wanted) in [("attention_bias", false), ("attn_output_gate", true)] {
        if config.opt_bool(field)?.is_some_and(|value| value != wanted) {
            return Err(config.unsupported(field, wanted.to_string()));
        }
    }
    let size = |field: &str| match config.u32(field)? {
        n @ 1..0x10_0000 => Ok(n),
        _ => Err(config.wrong(field, "a number from 1 to 1048575")),
    };
    let (k_heads, v_heads) = (size("linear_num_key_heads")?, size("linear_num_value_heads")?);
    let (k_dim, v_dim) = (size("linear_key_head_dim")?, size("linear_value_head_dim")?);
    let inner = v_heads.checked_mul(v_dim);
    let inner = inner.ok_or_else(|| config.wrong("linear_num_value_heads", "heads that fit in memory"))?;
    for (key, value) in [
        ("ssm.conv_kernel", size("linear_conv_kernel_dim")?),
        ("ssm.state_size", k_dim),
        ("ssm.group_count", k_heads),
        ("ssm.time_step_rank", v_heads),
        ("ssm.inner_size", inner),
    ] {
        metadata.set(format!("{prefix}.{key}"), value);
    }
    let Some(types) = config.get("layer_types") else {
        let interval = if config.get(INTERVAL).is_some() { size(INTERVAL)? } else { 4 };
        metadata.set(format!("{prefix}.{INTERVAL}"), interval);
        return Ok(());
    };
    let known = |name: &serde_json::Value| match name.as_str() {
        Some(LINEAR) => Some(true),
        Some("full_attention") => Some(false),
        _ => None,
    };
    let layers: Option<Vec<bool>> = types.as_array().and_then(|list| list.iter().map(known).collect());
    let expected = format!("a list of {LINEAR} and full_attention");
    let layers = layers.ok_or_else(|| config.wrong("layer_types", expected))?;
    metadata.set(format!("{prefix}.{RECURRENT}"), Value::Array(Array::Bool(layers)));
    Ok(())
}

fn describe(reader: &Reader<'_>) -> Result<Description, Error> {
    reader.refuse_experts()?;
    layers(reader, Layout::LLAMA)
}

fn describe_with_experts(reader: &Reader<'_>) -> Result<Description, Error> {
    layers(reader, Layout { experts: Some(Gating::SoftmaxOfChosen), ..Layout::LLAMA })
}

/// A model whose feed-forward networks are those of `layout`.
fn layers(reader: &Reader<'_>, layout: Layout) -> Result<Description, Error> {
    let mut d = reader.begin()?;
    let heads = reader.heads(d.width)?;
    let rope = reader.rope(&mut d, heads.head_dim)?;
    let (delta, taps) = delta(reader)?;
    let blocks = reader.n_layers()?;
    // Blocks behind the layers make drafts.
    let drafting = reader.metadata.opt_u32(&reader.key("nextn_predict_layers"))?.unwrap_or(0) as usize;
    if drafting >= blocks {
        let expected = format!("fewer than {} ({blocks})", reader.key("block_count"));
        return Err(reader.wrong("nextn_predict_layers", drafting, expected));
    }
    let n_layers = blocks - drafting;
    for (i, is_recurrent) in recurrent(reader, n_layers)?.into_iter().enumerate() {
        let name = |part: &str| format!("blk.{i}.{part}.weight");
        let width = d.width;
        let mixer_norm = Some(reader.norm(&mut d, name("attn_norm"), width)?);
        let mixer = if is_recurrent {
            Mixer::GatedDelta(gated_delta(reader, &mut d, i, delta, taps)?)
        } else {
            Mixer::Attention(attention(reader, &mut d, i, heads, rope)?)
        };
        let feed_forward_norm = Some(reader.norm(&mut d, name("post_attention_norm"), width)?);
        let feed_forward = reader.feed_forward(&mut d, i, layout)?;
        d.layers.push(Layer {
            mixer_norm,
            mixer,
            after_mixer: None,
            feed_forward_norm,
            feed_forward,
            after_feed_forward: None,
        });
    }
    reader.end(&mut d);
    let drafts = |name: &&str| {
        let block = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
        block.and_then(|(n, _)| n.parse().ok()).is_some_and(|n: usize| (n_layers..blocks).contains(&n))
    };
    let names = reader.source.tensors().iter().map(|tensor| tensor.name.as_str());
    d.unused = names.filter(drafts).map(str::to_owned).collect();
    if !d.unused.is_empty() {
        tracing::info!("{} tensors of {drafting} draft blocks are not used", d.unused.len());
    }
    Ok(d)
}

/// Which layers have the gated delta rule.
fn recurrent(reader: &Reader<'_>, n_layers: usize) -> Result<Vec<bool>, Error> {
    if let Some(mut listed) = reader.flags(RECURRENT, n_layers)? {
        listed.truncate(n_layers);
        return Ok(listed);
    }
    let interval = reader.opt_size(INTERVAL)?.unwrap_or(4);
    Ok((1..=n_layers).map(|i| !i.is_multiple_of(interval)).collect())
}

/// The heads of recurrent layers, and the taps of their convolution.
fn delta(reader: &Reader<'_>) -> Result<(DeltaShape, usize), Error> {
    let (k_heads, v_heads) = (reader.size("ssm.group_count")?, reader.size("ssm.time_step_rank")?);
    let (k_dim, inner) = (reader.size("ssm.state_size")?, reader.size("ssm.inner_size")?);
    for (name, n, by, of) in [
        ("ssm.time_step_rank", v_heads, "ssm.group_count", k_heads),
        ("ssm.inner_size", inner, "ssm.time_step_rank", v_heads),
    ] {
        if !n.is_multiple_of(of) {
            return Err(reader.wrong(name, n, format!("a multiple of {} ({of})", reader.key(by))));
        }
    }
    let taps = reader.size("ssm.conv_kernel")?;
    if taps > MOST_TAPS {
        return Err(reader.wrong("ssm.conv_kernel", taps, format!("at most {MOST_TAPS}")));
    }
    let shape =
        DeltaShape { k_heads, v_heads, k_dim, v_dim: inner / v_heads, order: reader.source.head_order() };
    // The state of a sequence is allocated by these numbers alone.
    if shape.state_len() > 1 << 30 || shape.row() > 1 << 24 {
        return Err(reader.wrong(
            "ssm.inner_size",
            inner,
            "heads whose state has at most 2^30 numbers".into(),
        ));
    }
    Ok((shape, taps))
}

fn gated_delta(
    reader: &Reader<'_>,
    d: &mut Description,
    i: usize,
    shape: DeltaShape,
    taps: usize,
) -> Result<GatedDelta, Error> {
    let name = |part: &str| format!("blk.{i}.{part}");
    let (width, row, values) = (d.width, shape.row(), shape.value_width());
    Ok(GatedDelta {
        shape,
        qkv: reader.linear(d, i, "attn_qkv", row, width),
        gate: reader.linear(d, i, "attn_gate", values, width),
        beta: reader.linear(d, i, "ssm_beta", shape.v_heads, width),
        decay: reader.linear(d, i, "ssm_alpha", shape.v_heads, width),
        convolution: d.add_columns(name("ssm_conv1d.weight"), taps, row),
        taps,
        rate: d.add_vector(name("ssm_a"), shape.v_heads),
        bias: d.add_vector(name("ssm_dt.bias"), shape.v_heads),
        key_eps: KEY_EPS,
        norm: reader.norm(d, name("ssm_norm.weight"), shape.v_dim)?,
        output: reader.linear(d, i, "ssm_out", width, values),
    })
}

fn attention(
    reader: &Reader<'_>,
    d: &mut Description,
    i: usize,
    Heads { n_heads, n_kv_heads, head_dim }: Heads,
    rope: RopeId,
) -> Result<Attention, Error> {
    let width = d.width;
    Ok(Attention {
        n_heads,
        n_kv_heads,
        head_dim,
        q: reader.linear(d, i, "attn_q", 2 * n_heads * head_dim, width),
        k: reader.linear(d, i, "attn_k", n_kv_heads * head_dim, width),
        v: reader.linear(d, i, "attn_v", n_kv_heads * head_dim, width),
        output: reader.linear(d, i, "attn_output", width, n_heads * head_dim),
        head_norms: Some(reader.head_norms(d, i, head_dim)?),
        rope: Some(rope),
        window: None,
        scale: 1.0 / (head_dim as f32).sqrt(),
        soft_cap: None,
        sinks: None,
        temperature: None,
        gated: true,
    })
}
