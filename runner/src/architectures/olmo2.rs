//! OLMo 2 and OLMo 3: norms after each half of a layer and none before, norms over all heads of the queries and of the
//! keys, and in OLMo 3 windows in three of four layers, whose rotations are not scaled.

use halfbyte_cpu_kernels::RopeOrder;
use halfbyte_gguf::Metadata;

use super::{Architecture, Layout, Reader, llama, set_windows};
use crate::model::{Attention, Description, Error};
use crate::source::{self, Object};

pub(super) const OLMO2: Architecture = Architecture {
    name: "olmo2",
    model_types: &["olmo2", "olmo3"],
    rope_order: RopeOrder::Halves,
    modules: &AFTER_MODULES,
    plain_in_windows: true,
    configure,
    describe,
    ..Architecture::USUAL
};

/// The modules of a layer with norms after its halves alone, and norms of queries and keys.
pub(super) const AFTER_MODULES: [(&str, &str); 11] = [
    ("post_attention_layernorm", "post_attention_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

fn configure(config: &Object, metadata: &mut Metadata) -> Result<(), source::Error> {
    llama::configure(config, metadata)?;
    if config.opt_str("model_type")? == Some("olmo3") {
        set_windows(config, metadata, "olmo2", 4, Some(4096))?;
    }
    Ok(())
}

fn describe(reader: &Reader<'_>) -> Result<Description, Error> {
    let layout = Layout { before: false, after: true, ..Layout::LLAMA };
    let (window, windowed) = (reader.window(0)?, reader.windowed(4)?);
    let mut local = None;
    reader.dense(layout, |reader, description, i, attention| {
        add_wide_norms(reader, description, i, attention)?;
        if window.is_some() && windowed[i] {
            attention.window = window;
            let rope = match local {
                Some(rope) => rope,
                None => reader.window_rope(description, attention.head_dim, None)?,
            };
            local = Some(rope);
            attention.rope = Some(rope);
        }
        Ok(())
    })
}

/// Norms over all heads of the queries, and over all heads of the keys.
pub(super) fn add_wide_norms(
    reader: &Reader<'_>,
    description: &mut Description,
    i: usize,
    attention: &mut Attention,
) -> Result<(), Error> {
    let part = |part: &str| format!("blk.{i}.{part}.weight");
    attention.head_norms = Some([
        reader.norm(description, part("attn_q_norm"), attention.q_width())?,
        reader.norm(description, part("attn_k_norm"), attention.kv_width())?,
    ]);
    Ok(())
}
