//! Metadata under an architecture's prefix, and the parts that most descriptions have.

use halfbyte_cpu_kernels::RopeTable;
use halfbyte_gguf::{Metadata, Value};

use super::Architecture;
use crate::model::{
    Activation, Attention, Dense, Description, Error, Experts, FeedForward, Gating, Layer, Linear, Mixer,
    Norm, Rope, RopeId, SharedExpert, VectorId, vector,
};
use crate::source::Source;

/// Largest number of layers, heads or inputs that is taken seriously: far beyond any model, far below overflow.
const LIMIT: u32 = 1 << 20;

/// Reads a model's metadata.
pub(crate) struct Reader<'a> {
    source: &'a dyn Source,
    metadata: &'a Metadata,
    architecture: &'static Architecture,
}

/// Heads of an attention layer.
#[derive(Clone, Copy, Debug)]
struct Heads {
    n_heads: usize,
    n_kv_heads: usize,
    head_dim: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(source: &'a dyn Source, architecture: &'static Architecture) -> Self {
        Self { source, metadata: source.metadata(), architecture }
    }

    /// The key `name` with the architecture's prefix.
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture.name)
    }

    /// A size: at least 1 and no more than anyone could mean.
    fn size(&self, name: &str) -> Result<usize, Error> {
        let key = self.key(name);
        let value = self.metadata.u32(&key)?;
        check_size(key, value)
    }

    fn opt_size(&self, name: &str) -> Result<Option<usize>, Error> {
        let key = self.key(name);
        self.metadata.opt_u32(&key)?.map(|v| check_size(key, v)).transpose()
    }

    fn positive(&self, name: &str, default: Option<f32>) -> Result<f32, Error> {
        let key = self.key(name);
        let value = match (self.metadata.opt_f32(&key)?, default) {
            (Some(v), _) | (None, Some(v)) => v,
            (None, None) => self.metadata.f32(&key)?,
        };
        if value > 0.0 {
            Ok(value)
        } else {
            Err(Error::Hyperparameter { key, got: value.to_string(), expected: "a positive number".into() })
        }
    }

    /// Whether the model has experts.
    pub(super) fn has_experts(&self) -> Result<bool, Error> {
        Ok(self.metadata.opt_u32(&self.key("expert_count"))?.is_some_and(|n| n > 0))
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

    /// A model of layers with attention and a gated feed-forward network, a norm before each: Llama's layout. `finish`
    /// completes each layer with what is particular to the architecture.
    pub(super) fn dense(
        &self,
        finish: impl FnMut(&Self, &mut Description, usize, &mut Layer) -> Result<(), Error>,
    ) -> Result<Description, Error> {
        let hidden = self.size("feed_forward_length")?;
        self.layers(finish, |d, i| Ok(FeedForward::Dense(Self::dense_network(d, i, hidden))))
    }

    /// The same with a mixture of experts in every layer that has a router.
    pub(super) fn experts(
        &self,
        gating: Gating,
        finish: impl FnMut(&Self, &mut Description, usize, &mut Layer) -> Result<(), Error>,
    ) -> Result<Description, Error> {
        self.layers(finish, |d, i| {
            if self.source.opt_tensor(&format!("blk.{i}.ffn_gate_inp.weight")).is_some() {
                Ok(FeedForward::Experts(self.mixture(d, i, gating)?))
            } else {
                Ok(FeedForward::Dense(Self::dense_network(d, i, self.size("feed_forward_length")?)))
            }
        })
    }

    /// A model of layers with attention, whose feed-forward networks come from `feed_forward`.
    fn layers(
        &self,
        mut finish: impl FnMut(&Self, &mut Description, usize, &mut Layer) -> Result<(), Error>,
        feed_forward: impl Fn(&mut Description, usize) -> Result<FeedForward, Error>,
    ) -> Result<Description, Error> {
        let width = self.size("embedding_length")?;
        let heads = self.heads(width)?;
        let n_vocab = match self.source.opt_tensor("token_embd.weight") {
            Some(t) if t.dims.len() == 2 => t.dims[1],
            _ => self.size("vocab_size")?,
        };
        let n_layers = self.size("block_count")?;
        let mut d = Description::new(self.architecture.name, width, n_vocab);
        d.context = self.metadata.u32(&self.key("context_length"))?.max(1) as usize;
        d.norm = self.norm(&mut d, "output_norm.weight", width)?;
        let rope = self.rope(&mut d, heads.head_dim)?;
        for i in 0..n_layers {
            let mut layer = self.layer(&mut d, i, heads, rope, &feed_forward)?;
            finish(self, &mut d, i, &mut layer)?;
            d.layers.push(layer);
        }
        if self.source.opt_tensor("output.weight").is_some() {
            d.output = d.add_matrix("output.weight", n_vocab, width);
        }
        Ok(d)
    }

    /// The heads of every layer, their sizes checked against the width.
    fn heads(&self, width: usize) -> Result<Heads, Error> {
        let n_heads = self.size("attention.head_count")?;
        let n_kv_heads = self.opt_size("attention.head_count_kv")?.unwrap_or(n_heads);
        let indivisible = |name: &str, got: usize, by: &str, n: usize| Error::Hyperparameter {
            key: self.key(name),
            got: got.to_string(),
            expected: format!("a multiple of {} ({n})", self.key(by)),
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
            let (key, got) = (self.key("attention.value_length"), n.to_string());
            return Err(Error::Hyperparameter { key, got, expected: format!("the key length, {head_dim}") });
        }
        Ok(Heads { n_heads, n_kv_heads, head_dim })
    }

    fn layer(
        &self,
        d: &mut Description,
        i: usize,
        heads: Heads,
        rope: RopeId,
        feed_forward: impl Fn(&mut Description, usize) -> Result<FeedForward, Error>,
    ) -> Result<Layer, Error> {
        let Heads { n_heads, n_kv_heads, head_dim } = heads;
        let (width, q_width, kv_width) = (d.width, n_heads * head_dim, n_kv_heads * head_dim);
        let name = |part: &str| format!("blk.{i}.{part}.weight");
        let mixer_norm = Some(self.norm(d, name("attn_norm"), width)?);
        let q = self.linear(d, i, "attn_q", q_width, width);
        let k = self.linear(d, i, "attn_k", kv_width, width);
        let v = self.linear(d, i, "attn_v", kv_width, width);
        let output = plain(d, name("attn_output"), width, q_width);
        let feed_forward_norm = Some(self.norm(d, name("ffn_norm"), width)?);
        let feed_forward = feed_forward(d, i)?;
        let attention = Attention {
            n_heads,
            n_kv_heads,
            head_dim,
            q,
            k,
            v,
            output,
            head_norms: None,
            rope: Some(rope),
            window: None,
            scale: 1.0 / (head_dim as f32).sqrt(),
            soft_cap: None,
            sinks: None,
        };
        Ok(Layer {
            mixer_norm,
            mixer: Mixer::Attention(attention),
            after_mixer: None,
            feed_forward_norm,
            feed_forward,
            after_feed_forward: None,
        })
    }

    /// The feed-forward network of layer `i`.
    fn dense_network(d: &mut Description, i: usize, hidden: usize) -> Dense {
        Self::network(d, hidden, |part| format!("blk.{i}.ffn_{part}.weight"))
    }

    /// A network with a matrix of its own for each part.
    fn network(d: &mut Description, hidden: usize, name: impl Fn(&str) -> String) -> Dense {
        let width = d.width;
        Dense {
            gate: plain(d, name("gate"), hidden, width),
            up: plain(d, name("up"), hidden, width),
            down: plain(d, name("down"), width, hidden),
            activation: Activation::Silu,
            width: hidden,
        }
    }

    /// The experts of layer `i`, stacked in one tensor for each part or each in a tensor of its own, and the shared expert if
    /// the layer has one.
    fn mixture(&self, d: &mut Description, i: usize, gating: Gating) -> Result<Experts, Error> {
        let n = self.size("expert_count")?;
        let chosen = self.size("expert_used_count")?;
        if chosen > n {
            let (key, got) = (self.key("expert_used_count"), chosen.to_string());
            let expected = format!("at most {} ({n})", self.key("expert_count"));
            return Err(Error::Hyperparameter { key, got, expected });
        }
        let hidden = match self.opt_size("expert_feed_forward_length")? {
            Some(hidden) => hidden,
            None => self.size("feed_forward_length")?,
        };
        let gating = match self.metadata.opt_bool(&self.key("expert_weights_norm"))? {
            Some(true) => Gating::SoftmaxOfChosen,
            Some(false) => Gating::Softmax,
            None => gating,
        };
        self.refuse_other_gating()?;
        let width = d.width;
        let router = self.linear(d, i, "ffn_gate_inp", n, width);
        let is_stacked = self.source.opt_tensor(&format!("blk.{i}.ffn_down_exps.weight")).is_some();
        let expert = |d: &mut Description, e: usize| {
            if !is_stacked {
                return Self::network(d, hidden, |part| format!("blk.{i}.ffn_{part}.{e}.weight"));
            }
            let mut part = |part: &str, rows: usize, cols: usize| self.expert(d, i, part, (e, n), rows, cols);
            Dense {
                gate: part("gate", hidden, width),
                up: part("up", hidden, width),
                down: part("down", width, hidden),
                activation: Activation::Silu,
                width: hidden,
            }
        };
        let experts = (0..n).map(|e| expert(d, e)).collect();
        let shared = match self.opt_size("expert_shared_feed_forward_length")? {
            None if self.source.opt_tensor(&format!("blk.{i}.ffn_up_shexp.weight")).is_none() => None,
            length => Some(SharedExpert {
                dense: Self::network(d, length.unwrap_or(hidden), |part| {
                    format!("blk.{i}.ffn_{part}_shexp.weight")
                }),
                gate: self.opt_vector(d, format!("blk.{i}.ffn_gate_inp_shexp.weight"), width),
            }),
        };
        Ok(Experts { router, experts, chosen, gating, shared })
    }

    /// Part `part` of expert `e` of `n`, whose matrices are stacked.
    fn expert(
        &self,
        d: &mut Description,
        i: usize,
        part: &str,
        (e, n): (usize, usize),
        rows: usize,
        cols: usize,
    ) -> Linear {
        let own = e * rows..(e + 1) * rows;
        let matrix = d.add_matrix(format!("blk.{i}.ffn_{part}_exps.weight"), n * rows, cols);
        d.matrices[matrix.0].rows = own.clone();
        let bias = self.opt_vector(d, format!("blk.{i}.ffn_{part}_exps.bias"), n * rows);
        if let Some(bias) = bias {
            d.vectors[bias.0].range = own;
        }
        Linear { matrix, bias }
    }

    /// The vector with the tensor `name`, if the file has it.
    fn opt_vector(&self, d: &mut Description, name: String, len: usize) -> Option<VectorId> {
        self.source.opt_tensor(&name)?;
        Some(d.add_vector(name, len))
    }

    /// Refuses routers whose logits do not go through a softmax, and factors that there is no code for.
    fn refuse_other_gating(&self) -> Result<(), Error> {
        // llama.cpp's numbers: 0 is not set, 1 is softmax over all experts, 3 is softmax over the chosen ones.
        let key = self.key("expert_gating_func");
        if let Some(got) = self.metadata.opt_u32(&key)?.filter(|kind| ![0, 1, 3].contains(kind)) {
            let supported = "1 (softmax), 3 (softmax of the chosen)";
            return Err(Error::Feature { key, got: got.to_string(), supported });
        }
        let key = self.key("expert_weights_scale");
        if let Some(got) = self.metadata.opt_f32(&key)?.filter(|&scale| scale != 0.0 && scale != 1.0) {
            return Err(Error::Feature { key, got: got.to_string(), supported: "1" });
        }
        Ok(())
    }

    /// The matrix of a part of layer `i`, with its bias if the file has one.
    fn linear(&self, d: &mut Description, i: usize, part: &str, rows: usize, cols: usize) -> Linear {
        let bias = format!("blk.{i}.{part}.bias");
        let bias = self.opt_vector(d, bias, rows);
        Linear { matrix: d.add_matrix(format!("blk.{i}.{part}.weight"), rows, cols), bias }
    }

    /// `base^(-2 i / dims)`, divided by the linear factor or by the factors of the tensor `rope_freqs.weight` (which is how
    /// Llama 3's scaling is stored).
    fn rope(&self, d: &mut Description, head_dim: usize) -> Result<RopeId, Error> {
        let dims = self.opt_size("rope.dimension_count")?.unwrap_or(head_dim);
        if dims > head_dim || !dims.is_multiple_of(2) {
            let (key, got) = (self.key("rope.dimension_count"), dims.to_string());
            return Err(Error::Hyperparameter {
                key,
                got,
                expected: format!("an even number up to {head_dim}"),
            });
        }
        let base = self.positive("rope.freq_base", Some(10_000.0))?;
        let mut frequencies = RopeTable::plain_frequencies(f64::from(base), dims);
        let kind_key = self.key("rope.scaling.type");
        let linear = match self.metadata.opt_str(&kind_key)? {
            None | Some("linear") => self.positive("rope.scaling.factor", Some(1.0))?,
            Some("none") => 1.0,
            Some(other) => {
                let got = other.chars().take(64).collect();
                let supported = "none, linear, and Llama 3's factors in rope_freqs.weight";
                return Err(Error::Feature { key: kind_key, got, supported });
            }
        };
        let linear = match self.metadata.get(&self.key("rope.scale_linear")) {
            None | Some(Value::String(_)) => linear,
            Some(_) => self.positive("rope.scale_linear", Some(1.0))?,
        };
        for f in &mut frequencies {
            *f /= f64::from(linear);
        }
        if let Some(info) = self.source.opt_tensor(ROPE_FACTORS) {
            let factors = vector(self.source, ROPE_FACTORS, dims / 2)?;
            for (f, &factor) in frequencies.iter_mut().zip(&factors) {
                if !(factor > 0.0 && factor.is_finite()) {
                    let (key, got) = (info.name.clone(), factor.to_string());
                    return Err(Error::Hyperparameter {
                        key,
                        got,
                        expected: "positive finite factors".into(),
                    });
                }
                *f /= f64::from(factor);
            }
            // The factors are in the frequencies now. The list of vectors says that the tensor is used.
            d.add_vector(ROPE_FACTORS, dims / 2);
        }
        let order = self.source.rope_order().unwrap_or(self.architecture.rope_order);
        d.ropes.push(Rope { frequencies, order });
        Ok(RopeId(d.ropes.len() - 1))
    }
}

/// The tensor of Llama 3's factors.
const ROPE_FACTORS: &str = "rope_freqs.weight";

fn plain(d: &mut Description, tensor: String, rows: usize, cols: usize) -> Linear {
    Linear { matrix: d.add_matrix(tensor, rows, cols), bias: None }
}

fn check_size(key: String, value: u32) -> Result<usize, Error> {
    if (1..=LIMIT).contains(&value) {
        Ok(value as usize)
    } else {
        let expected = format!("a number from 1 to {LIMIT}");
        Err(Error::Hyperparameter { key, got: value.to_string(), expected })
    }
}
