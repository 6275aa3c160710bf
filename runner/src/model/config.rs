//! Hyperparameters, read from GGUF metadata and checked against each other.

use super::Error;
use crate::source::Source;
use halfbyte_cpu_kernels::{RopeOrder, RopeTable};
use halfbyte_gguf::{Metadata, Value};

/// Largest number of layers, heads or inputs that is taken seriously: far beyond any model, far below overflow.
const LIMIT: u32 = 1 << 20;

/// A supported architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Architecture {
    /// Llama 2 and 3, SmolLM2, and others that converted to it.
    Llama,
    /// Qwen2 and 2.5: biases on q, k and v.
    Qwen2,
    /// Qwen3: a norm on every head of q and k.
    Qwen3,
}

impl Architecture {
    fn from_name(name: &str) -> Result<Self, Error> {
        match name {
            "llama" => Ok(Self::Llama),
            "qwen2" => Ok(Self::Qwen2),
            "qwen3" => Ok(Self::Qwen3),
            _ => Err(Error::Architecture { got: name.chars().take(64).collect() }),
        }
    }

    /// GGUF's name of it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
        }
    }

    /// Which elements of a head are rotated together in GGUF files.
    fn rope_order(self) -> RopeOrder {
        match self {
            Self::Llama => RopeOrder::Adjacent,
            Self::Qwen2 | Self::Qwen3 => RopeOrder::Halves,
        }
    }
}

/// The sizes and constants of a model.
#[derive(Clone, Debug)]
pub struct Config {
    /// The architecture.
    pub architecture: Architecture,
    /// Layers.
    pub n_layers: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads; each serves `n_heads / n_kv_heads` query heads.
    pub n_kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Width of the feed-forward layer.
    pub feed_forward: usize,
    /// Tokens in the vocabulary.
    pub n_vocab: usize,
    /// Positions the model is trained for.
    pub context: usize,
    /// The epsilon of every norm.
    pub norm_eps: f32,
    /// Which elements of a head are rotated together.
    pub rope_order: RopeOrder,
    /// Radians a position for each rotated pair, scaling included.
    pub rope_frequencies: Vec<f64>,
}

/// Metadata under the architecture's prefix.
struct Keys<'a> {
    metadata: &'a Metadata,
    prefix: &'static str,
}

impl Keys<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.prefix)
    }

    /// A size: at least 1 and no more than anyone could mean.
    fn size(&self, name: &str) -> Result<usize, Error> {
        let key = self.key(name);
        let value = self.metadata.u32(&key)?;
        self.check_size(key, value)
    }

    fn opt_size(&self, name: &str) -> Result<Option<usize>, Error> {
        let key = self.key(name);
        self.metadata.opt_u32(&key)?.map(|v| self.check_size(key, v)).transpose()
    }

    fn check_size(&self, key: String, value: u32) -> Result<usize, Error> {
        if (1..=LIMIT).contains(&value) {
            Ok(value as usize)
        } else {
            let expected = format!("a number from 1 to {LIMIT}");
            Err(Error::Hyperparameter { key, got: value.to_string(), expected })
        }
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
}

impl Config {
    /// Reads and checks the hyperparameters of a model.
    ///
    /// # Errors
    /// An unsupported architecture, a missing key, a value of the wrong type, out of range or at odds with
    /// another one, or a feature that is not supported (experts, other rope scaling than linear and Llama 3's).
    pub fn from_source(source: &dyn Source) -> Result<Self, Error> {
        let metadata = source.metadata();
        let architecture = Architecture::from_name(metadata.str("general.architecture")?)?;
        let keys = Keys { metadata, prefix: architecture.name() };
        if let Some(experts) = metadata.opt_u32(&keys.key("expert_count"))?.filter(|&n| n > 0) {
            let (key, got) = (keys.key("expert_count"), experts.to_string());
            return Err(Error::Feature { key, got, supported: "0 (dense models)" });
        }
        let width = keys.size("embedding_length")?;
        let n_heads = keys.size("attention.head_count")?;
        let n_kv_heads = keys.opt_size("attention.head_count_kv")?.unwrap_or(n_heads);
        let indivisible = |name: &str, got: usize, by: &str, n: usize| Error::Hyperparameter {
            key: keys.key(name),
            got: got.to_string(),
            expected: format!("a multiple of {} ({n})", keys.key(by)),
        };
        if !n_heads.is_multiple_of(n_kv_heads) {
            return Err(indivisible("attention.head_count", n_heads, "attention.head_count_kv", n_kv_heads));
        }
        let head_dim = match keys.opt_size("attention.key_length")? {
            Some(n) => n,
            None if width.is_multiple_of(n_heads) => width / n_heads,
            None => return Err(indivisible("embedding_length", width, "attention.head_count", n_heads)),
        };
        if let Some(n) = keys.opt_size("attention.value_length")?.filter(|&n| n != head_dim) {
            let (key, got) = (keys.key("attention.value_length"), n.to_string());
            return Err(Error::Hyperparameter { key, got, expected: format!("the key length, {head_dim}") });
        }
        let n_vocab = match source.opt_tensor("token_embd.weight") {
            Some(t) if t.dims.len() == 2 => t.dims[1],
            _ => keys.size("vocab_size")?,
        };
        Ok(Self {
            architecture,
            n_layers: keys.size("block_count")?,
            width,
            n_heads,
            n_kv_heads,
            head_dim,
            feed_forward: keys.size("feed_forward_length")?,
            n_vocab,
            context: metadata.u32(&keys.key("context_length"))?.max(1) as usize,
            norm_eps: keys.positive("attention.layer_norm_rms_epsilon", None)?,
            rope_order: source.rope_order().unwrap_or_else(|| architecture.rope_order()),
            rope_frequencies: rope_frequencies(source, &keys, head_dim)?,
        })
    }

    /// Width of all query heads together.
    pub fn q_width(&self) -> usize {
        self.n_heads * self.head_dim
    }

    /// Width of all key (or value) heads together.
    pub fn kv_width(&self) -> usize {
        self.n_kv_heads * self.head_dim
    }

    /// An empty table of this model's rotations.
    pub fn rope_table(&self) -> RopeTable {
        RopeTable::new(self.rope_frequencies.clone(), self.rope_order)
    }
}

/// `base^(-2 i / dims)`, divided by the linear factor or by the factors of the tensor `rope_freqs.weight` (which
/// is how Llama 3's scaling is stored).
fn rope_frequencies(source: &dyn Source, keys: &Keys<'_>, head_dim: usize) -> Result<Vec<f64>, Error> {
    let dims = keys.opt_size("rope.dimension_count")?.unwrap_or(head_dim);
    if dims > head_dim || !dims.is_multiple_of(2) {
        let (key, got) = (keys.key("rope.dimension_count"), dims.to_string());
        return Err(Error::Hyperparameter { key, got, expected: format!("an even number up to {head_dim}") });
    }
    let base = keys.positive("rope.freq_base", Some(10_000.0))?;
    let mut frequencies = RopeTable::plain_frequencies(f64::from(base), dims);
    let kind_key = keys.key("rope.scaling.type");
    let linear = match keys.metadata.opt_str(&kind_key)? {
        None | Some("linear") => keys.positive("rope.scaling.factor", Some(1.0))?,
        Some("none") => 1.0,
        Some(other) => {
            let got = other.chars().take(64).collect();
            let supported = "none, linear, and Llama 3's factors in rope_freqs.weight";
            return Err(Error::Feature { key: kind_key, got, supported });
        }
    };
    let linear = match keys.metadata.get(&keys.key("rope.scale_linear")) {
        None | Some(Value::String(_)) => linear,
        Some(_) => keys.positive("rope.scale_linear", Some(1.0))?,
    };
    for f in &mut frequencies {
        *f /= f64::from(linear);
    }
    if let Some(info) = source.opt_tensor("rope_freqs.weight") {
        let factors = super::weights::vector(source, "rope_freqs.weight", dims / 2)?;
        for (f, &factor) in frequencies.iter_mut().zip(&factors) {
            if !(factor > 0.0 && factor.is_finite()) {
                let (key, got) = (info.name.clone(), factor.to_string());
                return Err(Error::Hyperparameter { key, got, expected: "positive finite factors".into() });
            }
            *f /= f64::from(factor);
        }
    }
    Ok(frequencies)
}
