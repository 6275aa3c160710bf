//! Metadata under an architecture's prefix, and the parts that most descriptions have.

use std::ops::Range;

use halfbyte_gguf::Metadata;

use super::Architecture;
use crate::model::{
    Activation, Attention, Dense, Description, Error, Experts, FeedForward, Gating, Layer, Linear, Mixer,
    Norm, SharedExpert, VectorId,
};
use crate::source::Source;

/// Largest number of layers, heads or inputs that is taken seriously: far beyond any model, far below overflow.
const LIMIT: u32 = 1 << 20;

/// Reads a model's metadata.
pub(crate) struct Reader<'a> {
    pub(super) source: &'a dyn Source,
    pub(super) metadata: &'a Metadata,
    pub(super) architecture: &'static Architecture,
}

/// What the layers of dense architectures differ in most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Whether there is a norm before each half of a layer.
    pub(super) before: bool,
    /// Whether there is a norm after each half of a layer.
    pub(super) after: bool,
    /// The name of the norm before the feed-forward network.
    pub(super) feed_forward_norm: &'static str,
    /// Whether the tensor `ffn_up` has the rows of the gate before its own.
    pub(super) gate_in_up: bool,
    /// The activation of the feed-forward network.
    pub(super) activation: Activation,
    /// How experts are weighed, if layers with a router may have them.
    pub(super) experts: Option<Gating>,
}

impl Layout {
    /// Llama's: a norm before each half, SiLU.
    pub(super) const LLAMA: Self = Self {
        before: true,
        after: false,
        feed_forward_norm: "ffn_norm",
        gate_in_up: false,
        activation: Activation::Silu,
        experts: None,
    };
}

/// Heads of an attention layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heads {
    pub(super) n_heads: usize,
    pub(super) n_kv_heads: usize,
    pub(super) head_dim: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(source: &'a dyn Source, architecture: &'static Architecture) -> Self {
        Self { source, metadata: source.metadata(), architecture }
    }

    /// The key `name` with the architecture's prefix.
    pub(super) fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture.name)
    }

    /// A size: at least 1 and no more than anyone could mean.
    pub(super) fn size(&self, name: &str) -> Result<usize, Error> {
        let key = self.key(name);
        let value = self.metadata.u32(&key)?;
        check_size(key, value)
    }

    pub(super) fn opt_size(&self, name: &str) -> Result<Option<usize>, Error> {
        let key = self.key(name);
        self.metadata.opt_u32(&key)?.map(|v| check_size(key, v)).transpose()
    }

    pub(super) fn positive(&self, name: &str, default: Option<f32>) -> Result<f32, Error> {
        let key = self.key(name);
        let value = match (self.metadata.opt_f32(&key)?, default) {
            (Some(v), _) | (None, Some(v)) => v,
            (None, None) => self.metadata.f32(&key)?,
        };
        if value > 0.0 && value.is_finite() {
            Ok(value)
        } else {
            Err(Error::Hyperparameter { key, got: value.to_string(), expected: "a positive number".into() })
        }
    }

    /// A positive number, if the file has it.
    pub(super) fn opt_positive(&self, name: &str) -> Result<Option<f32>, Error> {
        match self.metadata.get(&self.key(name)) {
            Some(_) => self.positive(name, None).map(Some),
            None => Ok(None),
        }
    }

    /// A positive number, if the file has it and it is not 0, which stands for none.
    pub(super) fn opt_scale(&self, name: &str) -> Result<Option<f32>, Error> {
        if self.metadata.opt_f32(&self.key(name))? == Some(0.0) { Ok(None) } else { self.opt_positive(name) }
    }

    /// The error for a key whose value makes no sense.
    pub(super) fn wrong(&self, name: &str, got: impl ToString, expected: String) -> Error {
        Error::Hyperparameter { key: self.key(name), got: got.to_string(), expected }
    }

    /// Refuses files with the key `name`; supported are `supported`.
    pub(super) fn refuse(&self, name: &str, supported: &'static str) -> Result<(), Error> {
        let key = self.key(name);
        match self.metadata.get(&key) {
            Some(_) => Err(Error::Feature { key, got: "a value".to_owned(), supported }),
            None => Ok(()),
        }
    }

    /// Refuses models that have experts.
    pub(super) fn refuse_experts(&self) -> Result<(), Error> {
        let key = self.key("expert_count");
        match self.metadata.opt_u32(&key)?.filter(|&n| n > 0) {
            Some(experts) => {
                Err(Error::Feature { key, got: experts.to_string(), supported: "0 (dense models)" })
            }
            None => Ok(()),
        }
    }

    /// A root-mean-square norm with the tensor `name`.
    pub(super) fn norm(
        &self,
        description: &mut Description,
        name: impl Into<String>,
        len: usize,
    ) -> Result<Norm, Error> {
        let eps = self.positive("attention.layer_norm_rms_epsilon", None)?;
        Ok(Norm { weight: description.add_vector(name, len), eps })
    }

    /// The norms over each head of the queries and of the keys of layer `i`.
    pub(super) fn head_norms(
        &self,
        description: &mut Description,
        i: usize,
        head_dim: usize,
    ) -> Result<[Norm; 2], Error> {
        Ok([
            self.norm(description, format!("blk.{i}.attn_q_norm.weight"), head_dim)?,
            self.norm(description, format!("blk.{i}.attn_k_norm.weight"), head_dim)?,
        ])
    }

    /// A model without layers: its sizes, its embedding and its last norm.
    pub(super) fn begin(&self) -> Result<Description, Error> {
        let width = self.size("embedding_length")?;
        let n_vocab = match self.source.opt_tensor("token_embd.weight") {
            Some(t) if t.dims.len() == 2 => t.dims[1],
            _ => self.size("vocab_size")?,
        };
        let mut d = Description::new(self.architecture.name, width, n_vocab);
        d.context = self.metadata.u32(&self.key("context_length"))?.max(1) as usize;
        d.norm = self.norm(&mut d, format!("{}.weight", self.architecture.last_norm), width)?;
        Ok(d)
    }

    /// Adds the output matrix if the file has one, behind the layers.
    pub(super) fn end(&self, d: &mut Description) {
        if self.source.opt_tensor("output.weight").is_some() {
            d.output = d.add_matrix("output.weight", d.n_vocab, d.width);
        }
    }

    /// A model of layers with attention and a gated feed-forward network. `finish` completes the attention of each layer with
    /// what is particular to the architecture.
    pub(super) fn dense(
        &self,
        layout: Layout,
        mut finish: impl FnMut(&Self, &mut Description, usize, &mut Attention) -> Result<(), Error>,
    ) -> Result<Description, Error> {
        if layout.experts.is_none() {
            self.refuse_experts()?;
        }
        let mut d = self.begin()?;
        let heads = self.heads(d.width)?;
        let n_layers = self.n_layers()?;
        let rope = self.rope(&mut d, heads.head_dim)?;
        for i in 0..n_layers {
            let layer = self.layer(&mut d, i, heads, layout, |d, attention| {
                attention.rope = Some(rope);
                finish(self, d, i, attention)
            })?;
            d.layers.push(layer);
        }
        self.end(&mut d);
        Ok(d)
    }

    /// How many layers there are.
    pub(super) fn n_layers(&self) -> Result<usize, Error> {
        self.size("block_count")
    }

    /// The heads of every layer, their sizes checked against the width.
    pub(super) fn heads(&self, width: usize) -> Result<Heads, Error> {
        let n_heads = self.size("attention.head_count")?;
        let n_kv_heads = self.opt_size("attention.head_count_kv")?.unwrap_or(n_heads);
        self.heads_of(width, n_heads, n_kv_heads)
    }

    /// The same of a layer with `n_kv_heads` key and value heads, at least 1.
    pub(super) fn heads_of(&self, width: usize, n_heads: usize, n_kv_heads: usize) -> Result<Heads, Error> {
        let indivisible = |name: &str, got: usize, by: &str, n: usize| {
            self.wrong(name, got, format!("a multiple of {} ({n})", self.key(by)))
        };
        if !n_heads.is_multiple_of(n_kv_heads) {
            return Err(indivisible("attention.head_count", n_heads, "attention.head_count_kv", n_kv_heads));
        }
        let head_dim = match self.opt_size("attention.key_length")? {
            Some(n) => n,
            None if width.is_multiple_of(n_heads) => width / n_heads,
            None => return Err(indivisible("embedding_length", width, "attention.head_count", n_heads)),
        };
        if let Some(n) = self.opt_size("attention.value_length")?.filter(|&n| n != head_dim) {
            return Err(self.wrong("attention.value_length", n, format!("the key length, {head_dim}")));
        }
        Ok(Heads { n_heads, n_kv_heads, head_dim })
    }

    /// Layer `i`, with attention. `finish` completes it.
    pub(super) fn layer(
        &self,
        d: &mut Description,
        i: usize,
        heads: Heads,
        layout: Layout,
        finish: impl FnOnce(&mut Description, &mut Attention) -> Result<(), Error>,
    ) -> Result<Layer, Error> {
        let Heads { n_heads, n_kv_heads, head_dim } = heads;
        let (width, q_width, kv_width) = (d.width, n_heads * head_dim, n_kv_heads * head_dim);
        let norm = |d: &mut Description, wanted: bool, part: &str| {
            wanted.then(|| self.norm(d, format!("blk.{i}.{part}.weight"), width)).transpose()
        };
        let mixer_norm = norm(d, layout.before, "attn_norm")?;
        let fused = self.source.opt_tensor(&format!("blk.{i}.attn_qkv.weight")).is_some();
        let [q, k, v] = if fused {
            let rows = [0, q_width, q_width + kv_width, q_width + 2 * kv_width];
            self.stacked(d, i, "attn_qkv", rows, width)
        } else {
            [("attn_q", q_width), ("attn_k", kv_width), ("attn_v", kv_width)]
                .map(|(part, rows)| self.linear(d, i, part, rows, width))
        };
        let output = self.linear(d, i, "attn_output", width, q_width);
        let after_mixer = norm(d, layout.after, "post_attention_norm")?;
        let feed_forward_norm = norm(d, layout.before, layout.feed_forward_norm)?;
        let feed_forward = self.feed_forward(d, i, layout)?;
        let after_feed_forward = norm(d, layout.after, "post_ffw_norm")?;
        let mut attention = Attention {
            n_heads,
            n_kv_heads,
            head_dim,
            q,
            k,
            v,
            output,
            head_norms: None,
            rope: None,
            window: None,
            scale: 1.0 / (head_dim as f32).sqrt(),
            soft_cap: None,
            sinks: None,
            temperature: None,
            gated: false,
        };
        finish(d, &mut attention)?;
        Ok(Layer {
            mixer_norm,
            mixer: Mixer::Attention(attention),
            after_mixer,
            feed_forward_norm,
            feed_forward,
            after_feed_forward,
        })
    }

    /// The feed-forward network of layer `i`, or its experts if it has a router and may have them.
    pub(super) fn feed_forward(
        &self,
        d: &mut Description,
        i: usize,
        layout: Layout,
    ) -> Result<FeedForward, Error> {
        let has_router = self.source.opt_tensor(&format!("blk.{i}.ffn_gate_inp.weight")).is_some();
        Ok(match layout.experts.filter(|_| has_router) {
            Some(gating) => FeedForward::Experts(self.mixture(d, i, layout.activation, gating)?),
            None => FeedForward::Dense(self.dense_network(d, i, layout)?),
        })
    }

    /// The gated feed-forward network of layer `i`.
    fn dense_network(&self, d: &mut Description, i: usize, layout: Layout) -> Result<Dense, Error> {
        let (width, hidden) = (d.width, self.size("feed_forward_length")?);
        let [gate, up] = if layout.gate_in_up {
            self.stacked(d, i, "ffn_up", [0, hidden, 2 * hidden], width)
        } else {
            ["ffn_gate", "ffn_up"].map(|part| self.linear(d, i, part, hidden, width))
        };
        let down = self.linear(d, i, "ffn_down", width, hidden);
        Ok(Dense { gate, up, down, activation: layout.activation, width: hidden })
    }

    /// The experts of layer `i`, stacked in one tensor for each part or each in a tensor of its own, and the shared expert if
    /// the layer has one.
    fn mixture(
        &self,
        d: &mut Description,
        i: usize,
        activation: Activation,
        gating: Gating,
    ) -> Result<Experts, Error> {
        let n = self.size("expert_count")?;
        let chosen = self.size("expert_used_count")?;
        if chosen > n {
            let expected = format!("at most {} ({n})", self.key("expert_count"));
            return Err(self.wrong("expert_used_count", chosen, expected));
        }
        let hidden = match self.opt_size("expert_feed_forward_length")? {
            Some(hidden) => hidden,
            None => self.size("feed_forward_length")?,
        };
        self.refuse_other_gating(gating)?;
        let gating = match (gating, self.metadata.opt_bool(&self.key("expert_weights_norm"))?) {
            (Gating::Sigmoid { normalised, .. }, known) => Gating::Sigmoid {
                normalised: known.unwrap_or(normalised),
                bias: Some(d.add_vector(format!("blk.{i}.exp_probs_b.bias"), n)),
            },
            (_, Some(true)) => Gating::SoftmaxOfChosen,
            (_, Some(false)) => Gating::Softmax,
            (gating, None) => gating,
        };
        let width = d.width;
        let router = self.linear(d, i, "ffn_gate_inp", n, width);
        let is_joined = self.source.opt_tensor(&format!("blk.{i}.ffn_gate_up_exps.weight")).is_some();
        let is_stacked = self.source.opt_tensor(&format!("blk.{i}.ffn_down_exps.weight")).is_some();
        let expert = |d: &mut Description, e: usize| {
            if !is_stacked {
                return network(d, (hidden, activation), |part| format!("blk.{i}.ffn_{part}.{e}.weight"));
            }
            let mut part = |part: &str, rows: Range<usize>, of: usize, cols: usize| {
                self.expert(d, i, part, e * of + rows.start..e * of + rows.end, n * of, cols)
            };
            let [gate, up] = if is_joined {
                [0..hidden, hidden..2 * hidden].map(|rows| part("gate_up", rows, 2 * hidden, width))
            } else {
                ["gate", "up"].map(|name| part(name, 0..hidden, hidden, width))
            };
            Dense { gate, up, down: part("down", 0..width, width, hidden), activation, width: hidden }
        };
        let experts = (0..n).map(|e| expert(d, e)).collect();
        let shared = match self.opt_size("expert_shared_feed_forward_length")? {
            None if self.source.opt_tensor(&format!("blk.{i}.ffn_up_shexp.weight")).is_none() => None,
            length => Some(SharedExpert {
                dense: network(d, (length.unwrap_or(hidden), activation), |part| {
                    format!("blk.{i}.ffn_{part}_shexp.weight")
                }),
                gate: self.opt_vector(d, format!("blk.{i}.ffn_gate_inp_shexp.weight"), width),
            }),
        };
        Ok(Experts { router, experts, chosen, gating, shared })
    }

    /// `rows` of the `total` rows of all experts in part `part`.
    fn expert(
        &self,
        d: &mut Description,
        i: usize,
        part: &str,
        rows: Range<usize>,
        total: usize,
        cols: usize,
    ) -> Linear {
        let bias = self.opt_vector(d, format!("blk.{i}.ffn_{part}_exps.bias"), total);
        if let Some(bias) = bias {
            d.vectors[bias.0].range = rows.clone();
        }
        Linear { matrix: d.add_rows(format!("blk.{i}.ffn_{part}_exps.weight"), total, rows, cols), bias }
    }

    /// The vector with the tensor `name`, if the file has it.
    pub(super) fn opt_vector(&self, d: &mut Description, name: String, len: usize) -> Option<VectorId> {
        self.source.opt_tensor(&name)?;
        Some(d.add_vector(name, len))
    }

    /// Refuses routers whose logits go through another function than the architecture's, and factors that there is no code for.
    fn refuse_other_gating(&self, gating: Gating) -> Result<(), Error> {
        // llama.cpp's numbers: 0 is not set, 1 is softmax over all experts, 2 is sigmoid, 3 is softmax over the chosen ones.
        let (known, supported): (&[u32], _) = match gating {
            Gating::Sigmoid { .. } => (&[0, 2], "2 (sigmoid)"),
            _ => (&[0, 1, 3], "1 (softmax), 3 (softmax of the chosen)"),
        };
        let key = self.key("expert_gating_func");
        if let Some(got) = self.metadata.opt_u32(&key)?.filter(|kind| !known.contains(kind)) {
            return Err(Error::Feature { key, got: got.to_string(), supported });
        }
        let key = self.key("expert_weights_scale");
        if let Some(got) = self.metadata.opt_f32(&key)?.filter(|&scale| scale != 0.0 && scale != 1.0) {
            return Err(Error::Feature { key, got: got.to_string(), supported: "1" });
        }
        Ok(())
    }

    /// The matrices that lie one over the other in a part of layer `i`: matrix `n` has the rows from `rows[n]` on, and the
    /// same elements of the bias, if the file has one. `rows` has one number more than there are matrices.
    pub(super) fn stacked<const N: usize, const BOUNDS: usize>(
        &self,
        d: &mut Description,
        i: usize,
        part: &str,
        rows: [usize; BOUNDS],
        cols: usize,
    ) -> [Linear; N] {
        const { assert!(BOUNDS == N + 1) };
        let bias = format!("blk.{i}.{part}.bias");
        let biased = self.source.opt_tensor(&bias).is_some();
        let total = rows[N];
        std::array::from_fn(|n| {
            let rows = rows[n]..rows[n + 1];
            let matrix = d.add_rows(format!("blk.{i}.{part}.weight"), total, rows.clone(), cols);
            let bias = biased.then(|| {
                let id = d.add_vector(bias.clone(), total);
                d.vectors[id.0].range = rows;
                id
            });
            Linear { matrix, bias }
        })
    }

    /// The matrix of a part of layer `i`, with its bias if the file has one.
    pub(super) fn linear(
        &self,
        d: &mut Description,
        i: usize,
        part: &str,
        rows: usize,
        cols: usize,
    ) -> Linear {
        let bias = format!("blk.{i}.{part}.bias");
        let bias = self.opt_vector(d, bias, rows);
        Linear { matrix: d.add_matrix(format!("blk.{i}.{part}.weight"), rows, cols), bias }
    }
}

/// A network of `hidden` numbers with a matrix of its own for each part.
fn network(
    d: &mut Description,
    (hidden, activation): (usize, Activation),
    name: impl Fn(&str) -> String,
) -> Dense {
    let width = d.width;
    let mut part = |part: &str, rows: usize, cols: usize| Linear {
        matrix: d.add_matrix(name(part), rows, cols),
        bias: None,
    };
    Dense {
        gate: part("gate", hidden, width),
        up: part("up", hidden, width),
        down: part("down", width, hidden),
        activation,
        width: hidden,
    }
}

fn check_size(key: String, value: u32) -> Result<usize, Error> {
    if (1..=LIMIT).contains(&value) {
        Ok(value as usize)
    } else {
        let expected = format!("a number from 1 to {LIMIT}");
        Err(Error::Hyperparameter { key, got: value.to_string(), expected })
    }
}
