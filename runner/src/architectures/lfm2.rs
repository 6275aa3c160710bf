//! LFM2: most layers are a short gated convolution, and a few have attention with norms over each head. The larger models have
//! experts behind the first layers.
//!
//! GGUF files say by each layer's number of key and value heads what it is: layers with none convolve.

use halfbyte_cpu_kernels::RopeOrder;
use halfbyte_gguf::{Array, Metadata, Value};

use super::{Architecture, Form, Layout, Reader, Roots, experts, llama};
use crate::model::{Description, Error, Gating, Layer, Mixer, ShortConvolution};
use crate::source::{self, Object};

pub(super) const LFM2: Architecture = Architecture {
    name: "lfm2",
    model_types: &["lfm2"],
    rope_order: RopeOrder::Halves,
    roots: Roots { norm: "model.embedding_norm", ..Architecture::USUAL.roots },
    last_norm: "token_embd_norm",
    modules: &MODULES,
    parameters: &[("feed_forward.expert_bias", "exp_probs_b.bias")],
    defaults: &[("intermediate_size", 12_288), ("rope_theta", 1_000_000)],
    form,
    configure,
    describe,
    ..Architecture::USUAL
};

pub(super) const LFM2MOE: Architecture = Architecture {
    name: "lfm2moe",
    model_types: &["lfm2_moe"],
    defaults: &[("rope_theta", 1_000_000)],
    configure: configure_with_experts,
    describe: describe_with_experts,
    ..LFM2
};

/// The modules of a layer. Models with experts have other names for the parts of a network in MLX's directories, where experts
/// are stacked as `switch_mlp`.
const MODULES: [(&str, &str); 26] = [
    ("operator_norm", "attn_norm"),
    ("ffn_norm", "ffn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.out_proj", "attn_output"),
    ("self_attn.q_layernorm", "attn_q_norm"),
    ("self_attn.k_layernorm", "attn_k_norm"),
    ("conv.conv", "shortconv.conv"),
    ("conv.in_proj", "shortconv.in_proj"),
    ("conv.out_proj", "shortconv.out_proj"),
    ("feed_forward.w1", "ffn_gate"),
    ("feed_forward.w2", "ffn_down"),
    ("feed_forward.w3", "ffn_up"),
    ("feed_forward.gate_proj", "ffn_gate"),
    ("feed_forward.down_proj", "ffn_down"),
    ("feed_forward.up_proj", "ffn_up"),
    ("feed_forward.gate", "ffn_gate_inp"),
    ("feed_forward.experts.*.w1", "ffn_gate.*"),
    ("feed_forward.experts.*.w2", "ffn_down.*"),
    ("feed_forward.experts.*.w3", "ffn_up.*"),
    ("feed_forward.experts.gate_up_proj", "ffn_gate_up_exps"),
    ("feed_forward.experts.down_proj", "ffn_down_exps"),
    ("feed_forward.switch_mlp.gate_proj", "ffn_gate_exps"),
    ("feed_forward.switch_mlp.up_proj", "ffn_up_exps"),
    ("feed_forward.switch_mlp.down_proj", "ffn_down_exps"),
];

/// The most taps of the convolution that are taken seriously.
const MOST_TAPS: usize = 64;

const TAPS: &str = "shortconv.l_cache";
const LEADING: &str = "leading_dense_block_count";
const KV_HEADS: &str = "attention.head_count_kv";

fn form(known: &str, _: bool) -> Form {
    if known.ends_with(".shortconv.conv.weight") { Form::Taps } else { Form::AsStored }
}

fn configure(config: &Object, metadata: &mut Metadata) -> Result<(), source::Error> {
    llama::configure(config, metadata)?;
    metadata.set("lfm2.feed_forward_length", hidden_width(config)?);
    configure_mixers(config, metadata, "lfm2")
}

fn configure_with_experts(config: &Object, metadata: &mut Metadata) -> Result<(), source::Error> {
    experts::configure(config, metadata)?;
    if config.opt_bool("use_expert_bias")? == Some(false) {
        return Err(config.unsupported("use_expert_bias", "true"));
    }
    if config.opt_f64("routed_scaling_factor")?.is_some_and(|factor| factor != 1.0) {
        return Err(config.unsupported("routed_scaling_factor", "1"));
    }
    metadata.set(format!("lfm2moe.{LEADING}"), config.u32("num_dense_layers")?);
    // The sigmoid, by llama.cpp's number.
    metadata.set("lfm2moe.expert_gating_func", 2_u32);
    configure_mixers(config, metadata, "lfm2moe")
}

/// The width of dense networks: `block_ff_dim`, which files may give before it is adjusted to what the network has.
fn hidden_width(config: &Object) -> Result<u32, source::Error> {
    let field = if config.get("block_ff_dim").is_some() { "block_ff_dim" } else { "intermediate_size" };
    let width = config.u32(field)?;
    if config.opt_bool("block_auto_adjust_ff_dim")? == Some(false) {
        return Ok(width);
    }
    let multiple = u64::from(config.opt_u32("block_multiple_of")?.unwrap_or(256));
    if multiple == 0 {
        return Err(config.wrong("block_multiple_of", "at least 1"));
    }
    let factor = config.opt_positive("block_ffn_dim_multiplier")?.unwrap_or(1.0);
    let adjusted = (factor * (u64::from(width) * 2 / 3) as f64) as u64;
    let adjusted = adjusted.div_ceil(multiple).checked_mul(multiple).and_then(|n| u32::try_from(n).ok());
    adjusted.ok_or_else(|| config.wrong(field, "a width that fits in memory"))
}

/// The convolution's taps, the norms' epsilon, and the heads of each layer: none where it convolves.
fn configure_mixers(config: &Object, metadata: &mut Metadata, prefix: &str) -> Result<(), source::Error> {
    if config.get("sliding_window").is_some() {
        return Err(config.unsupported("sliding_window", "null"));
    }
    let eps = config.opt_positive("norm_eps")?.unwrap_or(1e-5);
    metadata.set(format!("{prefix}.attention.layer_norm_rms_epsilon"), eps as f32);
    metadata.set(format!("{prefix}.{TAPS}"), config.u32("conv_L_cache")?);
    let n_heads = config.u32("num_attention_heads")?;
    let n_kv_heads = config.opt_u32("num_key_value_heads")?.unwrap_or(n_heads);
    let heads = |attends: bool| if attends { n_kv_heads.cast_signed() } else { 0 };
    let layers = attending(config)?.into_iter().map(heads).collect();
    metadata.set(format!("{prefix}.{KV_HEADS}"), Value::Array(Array::I32(layers)));
    Ok(())
}

/// Which layers have attention: by the type of each, or by a list of those that have it.
fn attending(config: &Object) -> Result<Vec<bool>, source::Error> {
    let n_layers = config.u32("num_hidden_layers")? as usize;
    if let Some(types) = config.opt_strings("layer_types")? {
        if types.len() != n_layers || types.iter().any(|ty| *ty != "conv" && *ty != "full_attention") {
            let expected = format!("a list of conv and full_attention for {n_layers} layers");
            return Err(config.wrong("layer_types", expected));
        }
        return Ok(types.into_iter().map(|ty| ty == "full_attention").collect());
    }
    let number = |value: &serde_json::Value| {
        value.as_u64().and_then(|i| usize::try_from(i).ok()).filter(|&i| i < n_layers)
    };
    let list = config.get("full_attn_idxs").and_then(serde_json::Value::as_array);
    let list: Option<Vec<usize>> = list.and_then(|list| list.iter().map(number).collect());
    let expected = || config.wrong("full_attn_idxs", format!("a list of numbers below {n_layers}"));
    let list = list.ok_or_else(expected)?;
    Ok((0..n_layers).map(|i| list.contains(&i)).collect())
}

fn describe(reader: &Reader<'_>) -> Result<Description, Error> {
    reader.refuse_experts()?;
    layers(reader, Layout::LLAMA, 0)
}

fn describe_with_experts(reader: &Reader<'_>) -> Result<Description, Error> {
    let experts = Some(Gating::Sigmoid { normalised: true, bias: None });
    let leading = reader.metadata.opt_u32(&reader.key(LEADING))?.unwrap_or(0) as usize;
    layers(reader, Layout { experts, ..Layout::LLAMA }, leading)
}

/// A model whose feed-forward networks are those of `layout`, but for the first `leading` ones, which are dense.
fn layers(reader: &Reader<'_>, layout: Layout, leading: usize) -> Result<Description, Error> {
    let key = reader.key("attention.causal");
    if reader.metadata.opt_bool(&key)? == Some(false) {
        return Err(Error::Feature { key, got: "false".to_owned(), supported: "true" });
    }
    let mut d = reader.begin()?;
    let window = reader.window(0)?;
    let n_heads = reader.size("attention.head_count")?;
    let head_dim = reader.heads_of(d.width, n_heads, n_heads)?.head_dim;
    let rope = reader.rope(&mut d, head_dim)?;
    let taps = reader.size(TAPS)?;
    if taps > MOST_TAPS {
        return Err(reader.wrong(TAPS, taps, format!("at most {MOST_TAPS}")));
    }
    for (i, n_kv_heads) in kv_heads(reader)?.into_iter().enumerate() {
        let layout = if i < leading { Layout { experts: None, ..layout } } else { layout };
        let layer = if n_kv_heads == 0 {
            convolving(reader, &mut d, i, layout, taps)?
        } else {
            let heads = reader.heads_of(d.width, n_heads, n_kv_heads)?;
            reader.layer(&mut d, i, heads, layout, |d, attention| {
                attention.head_norms = Some(reader.head_norms(d, i, heads.head_dim)?);
                attention.rope = Some(rope);
                attention.window = window;
                Ok(())
            })?
        };
        d.layers.push(layer);
    }
    reader.end(&mut d);
    Ok(d)
}

/// Key and value heads of each layer: a list, or one number for all layers.
fn kv_heads(reader: &Reader<'_>) -> Result<Vec<usize>, Error> {
    let (key, n_layers) = (reader.key(KV_HEADS), reader.n_layers()?);
    let Some(Value::Array(_)) = reader.metadata.get(&key) else {
        return Ok(vec![reader.size(KV_HEADS)?; n_layers]);
    };
    let list = reader.metadata.i32s(&key)?;
    if list.len() != n_layers {
        let got = format!("a list of {}", list.len());
        return Err(reader.wrong(KV_HEADS, got, format!("a number for each of {n_layers} layers")));
    }
    let heads = list.iter().map(|&n| {
        usize::try_from(n).map_err(|_| reader.wrong(KV_HEADS, n, "no number below 0 in the list".into()))
    });
    heads.collect()
}

/// A layer with a short convolution.
fn convolving(
    reader: &Reader<'_>,
    d: &mut Description,
    i: usize,
    layout: Layout,
    taps: usize,
) -> Result<Layer, Error> {
    let width = d.width;
    let mixer_norm = Some(reader.norm(d, format!("blk.{i}.attn_norm.weight"), width)?);
    let rows = [0, width, 2 * width, 3 * width];
    let [input_gate, output_gate, values] = reader.stacked(d, i, "shortconv.in_proj", rows, width);
    let mixer = Mixer::ShortConvolution(ShortConvolution {
        channels: width,
        input_gate,
        output_gate,
        values,
        convolution: d.add_columns(format!("blk.{i}.shortconv.conv.weight"), taps, width),
        taps,
        bias: reader.opt_vector(d, format!("blk.{i}.shortconv.conv.bias"), width),
        output: reader.linear(d, i, "shortconv.out_proj", width, width),
    });
    let feed_forward_norm = Some(reader.norm(d, format!("blk.{i}.ffn_norm.weight"), width)?);
    let feed_forward = reader.feed_forward(d, i, layout)?;
    Ok(Layer {
        mixer_norm,
        mixer,
        after_mixer: None,
        feed_forward_norm,
        feed_forward,
        after_feed_forward: None,
    })
}
