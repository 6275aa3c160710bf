//! Metadata under an architecture's prefix, and the parts that most descriptions have.

use halfbyte_cpu_kernels::{HeadOrder, RopeTable};
use halfbyte_gguf::{Array, Metadata, Value};

use super::Architecture;
use crate::model::{
    Activation, Attention, Dense, Description, Error, FeedForward, Layer, Linear, Mixer, Norm, Rope, RopeId,
    VectorId, vector,
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

    /// A number that may be 0.
    pub(super) fn opt_u32(&self, name: &str) -> Result<Option<u32>, Error> {
        Ok(self.metadata.opt_u32(&self.key(name))?)
    }

    /// A list of truth values, which files may hold as numbers.
    pub(super) fn opt_bools(&self, name: &str) -> Result<Option<Vec<bool>>, Error> {
        match self.metadata.get(&self.key(name)) {
            None => Ok(None),
            Some(Value::Array(Array::Bool(list))) => Ok(Some(list.clone())),
            Some(Value::Array(Array::U32(list))) => Ok(Some(list.iter().map(|&v| v != 0).collect())),
            Some(Value::Array(Array::I32(list))) => Ok(Some(list.iter().map(|&v| v != 0).collect())),
            Some(other) => Err(self.wrong(name, other.type_name(), "a list of truth values".into())),
        }
    }

    /// The error for a key whose value makes no sense.
    pub(super) fn wrong(&self, name: &str, got: impl ToString, expected: String) -> Error {
        Error::Hyperparameter { key: self.key(name), got: got.to_string(), expected }
    }

    /// Which key head a value head reads.
    pub(super) fn head_order(&self) -> HeadOrder {
        self.source.head_order()
    }

    /// The names of all tensors.
    pub(super) fn tensor_names(&self) -> impl Iterator<Item = &'a str> {
        self.source.tensors().iter().map(|tensor| tensor.name.as_str())
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
        d.norm = self.norm(&mut d, "output_norm.weight", width)?;
        Ok(d)
    }

    /// Adds the output matrix if the file has one, behind the layers.
    pub(super) fn end(&self, d: &mut Description) {
        if self.source.opt_tensor("output.weight").is_some() {
            d.output = d.add_matrix("output.weight", d.n_vocab, d.width);
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

    /// A model of layers with attention and a gated feed-forward network, a norm before each: Llama's layout. `finish`
    /// completes each layer with what is particular to the architecture.
    pub(super) fn dense(
        &self,
        mut finish: impl FnMut(&Self, &mut Description, usize, &mut Layer) -> Result<(), Error>,
    ) -> Result<Description, Error> {
        let mut d = self.begin()?;
        let heads = self.heads(d.width)?;
        let n_layers = self.size("block_count")?;
        let hidden = self.size("feed_forward_length")?;
        let rope = self.rope(&mut d, heads.head_dim)?;
        for i in 0..n_layers {
            let mut layer = self.dense_layer(&mut d, i, heads, hidden, rope)?;
            finish(self, &mut d, i, &mut layer)?;
            d.layers.push(layer);
        }
        self.end(&mut d);
        Ok(d)
    }

    /// The heads of every layer, their sizes checked against the width.
    pub(super) fn heads(&self, width: usize) -> Result<Heads, Error> {
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

    fn dense_layer(
        &self,
        d: &mut Description,
        i: usize,
        heads: Heads,
        hidden: usize,
        rope: RopeId,
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
        let dense = Dense {
            gate: plain(d, name("ffn_gate"), hidden, width),
            up: plain(d, name("ffn_up"), hidden, width),
            down: plain(d, name("ffn_down"), width, hidden),
            activation: Activation::Silu,
            width: hidden,
        };
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
            gated: false,
        };
        Ok(Layer {
            mixer_norm,
            mixer: Mixer::Attention(attention),
            after_mixer: None,
            feed_forward_norm,
            feed_forward: FeedForward::Dense(dense),
            after_feed_forward: None,
        })
    }

    /// The matrix of a part of layer `i`, with its bias if the file has one.
    fn linear(&self, d: &mut Description, i: usize, part: &str, rows: usize, cols: usize) -> Linear {
        let bias = format!("blk.{i}.{part}.bias");
        let bias: Option<VectorId> =
            self.source.opt_tensor(&bias).is_some().then(|| d.add_vector(bias.clone(), rows));
        Linear { matrix: d.add_matrix(format!("blk.{i}.{part}.weight"), rows, cols), bias }
    }

    /// `base^(-2 i / dims)`, divided by the linear factor or by the factors of the tensor `rope_freqs.weight` (which is how
    /// Llama 3's scaling is stored).
    pub(super) fn rope(&self, d: &mut Description, head_dim: usize) -> Result<RopeId, Error> {
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

pub(super) fn plain(d: &mut Description, tensor: String, rows: usize, cols: usize) -> Linear {
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
