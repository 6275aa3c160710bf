//! llama.cpp's mixes: files in which some tensors get a better type than the others.
//!
//! A mix has a type for most tensors, and a rule for those that lose most by it. The rules are those of llama.cpp's
//! `llama-quant.cpp`; `docs/quantizers.md` has them as a table.

use halfbyte_gguf::{TensorInfo, TensorType};

use super::{Encoding, EncodingError, Keep};
use crate::source::Source;

/// A mix of types, by llama.cpp's name.
///
/// ```
/// use halfbyte::requantize::{Mix, Plan};
/// use halfbyte_gguf::Gguf;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let gguf = Gguf::open("../cli/model/halfbyte-tiny.gguf")?;
/// let mix = Mix::by_name("q4_k_m").expect("one of them");
/// let mut plan = Plan::new(&gguf, mix.usual()?, &mix.keep(&gguf)?)?;
/// plan.set_file_type(mix.file_type());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mix {
    /// Mostly Q2_K.
    Q2K,
    /// Q3_K but for the output matrix.
    Q3KSmall,
    /// Mostly Q3_K.
    Q3KMedium,
    /// Q3_K for half of the weights.
    Q3KLarge,
    /// Mostly Q4_K.
    Q4KSmall,
    /// Q4_K and, for half of the values and of the second matrices of the feed-forward networks, Q6_K.
    Q4KMedium,
    /// Q5_K but for the output matrix.
    Q5KSmall,
    /// Q5_K and, for half of the values and of the second matrices of the feed-forward networks, Q6_K.
    Q5KMedium,
}

/// What the rules ask of a model.
#[derive(Debug, Clone, Copy)]
struct Facts {
    /// Heads of queries to a head of keys and values.
    queries: u32,
    layers: usize,
    /// Experts of a layer.
    experts: u32,
    /// Whether the embedding is the output matrix, too.
    tied: bool,
    /// Whether the model is of those that llama.cpp calls 70B: their values are so few that more bits cost nothing.
    is_70b: bool,
}

impl Mix {
    /// Every mix, the smallest first.
    pub const ALL: [Self; 8] = [
        Self::Q2K,
        Self::Q3KSmall,
        Self::Q3KMedium,
        Self::Q3KLarge,
        Self::Q4KSmall,
        Self::Q4KMedium,
        Self::Q5KSmall,
        Self::Q5KMedium,
    ];

    /// llama.cpp's name, such as `Q4_K_M`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Q2K => "Q2_K",
            Self::Q3KSmall => "Q3_K_S",
            Self::Q3KMedium => "Q3_K_M",
            Self::Q3KLarge => "Q3_K_L",
            Self::Q4KSmall => "Q4_K_S",
            Self::Q4KMedium => "Q4_K_M",
            Self::Q5KSmall => "Q5_K_S",
            Self::Q5KMedium => "Q5_K_M",
        }
    }

    /// The mix of this name, in letters of either case.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mix| mix.name().eq_ignore_ascii_case(name))
    }

    /// llama.cpp's number for such a file (`general.file_type`).
    pub const fn file_type(self) -> u32 {
        match self {
            Self::Q2K => 10,
            Self::Q3KSmall => 11,
            Self::Q3KMedium => 12,
            Self::Q3KLarge => 13,
            Self::Q4KSmall => 14,
            Self::Q4KMedium => 15,
            Self::Q5KSmall => 16,
            Self::Q5KMedium => 17,
        }
    }

    /// The type of most tensors.
    const fn usual_type(self) -> TensorType {
        match self {
            Self::Q2K => TensorType::Q2_K,
            Self::Q3KSmall | Self::Q3KMedium | Self::Q3KLarge => TensorType::Q3_K,
            Self::Q4KSmall | Self::Q4KMedium => TensorType::Q4_K,
            Self::Q5KSmall | Self::Q5KMedium => TensorType::Q5_K,
        }
    }

    /// The type of most tensors.
    ///
    /// # Errors
    /// [`EncodingError::Type`] if nothing writes it.
    pub fn usual(self) -> Result<Encoding, EncodingError> {
        Encoding::new(self.usual_type())
    }

    /// The tensors of `source` that get another type. As the exceptions of [`Plan::new`](super::Plan::new), they come
    /// before those that a user adds.
    ///
    /// # Errors
    /// [`EncodingError::Type`] if nothing writes one of the types.
    pub fn keep(self, source: &dyn Source) -> Result<Vec<Keep>, EncodingError> {
        let facts = facts(source);
        let matrices = source.tensors().iter().filter(|info| info.dims.len() > 1);
        let types = matrices.map(|info| (info, self.choose(info, facts)));
        let others = types.filter(|(_, ty)| *ty != self.usual_type());
        others
            .map(|(info, ty)| Ok(Keep { pattern: info.name.clone(), encoding: Encoding::new(ty)? }))
            .collect()
    }

    /// The type of a tensor.
    fn choose(self, info: &TensorInfo, facts: Facts) -> TensorType {
        let name = info.name.as_str();
        if name == "output.weight" || facts.tied && name == "token_embd.weight" {
            let whole = info.row_len().is_multiple_of(self.usual_type().block_len());
            return if whole { TensorType::Q6_K } else { TensorType::Q8_0 };
        }
        let layer = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
        let Some((layer, part)) = layer.and_then(|(n, part)| Some((n.parse().ok()?, part))) else {
            return self.usual_type();
        };
        match part {
            // Beside eight experts these are small.
            "attn_k.weight" | "attn_v.weight" if facts.experts == 8 => TensorType::Q8_0,
            "attn_output.weight"
                if facts.experts == 8
                    && !matches!(self, Self::Q3KLarge | Self::Q5KSmall | Self::Q5KMedium) =>
            {
                TensorType::Q5_K
            }
            "attn_output.weight" if facts.experts == 8 => self.usual_type(),
            "attn_v.weight" => self.values(layer, facts),
            "ffn_down.weight" | "ffn_down_exps.weight" | "ffn_down_shexp.weight" => {
                self.down(layer, facts.layers)
            }
            "attn_output.weight" => match self {
                Self::Q2K => TensorType::Q3_K,
                Self::Q3KMedium => TensorType::Q4_K,
                Self::Q3KLarge => TensorType::Q5_K,
                _ => self.usual_type(),
            },
            _ => self.usual_type(),
        }
    }

    /// The type of a layer's matrix of values.
    fn values(self, layer: usize, facts: Facts) -> TensorType {
        let ty = match self {
            Self::Q2K if facts.queries >= 4 => TensorType::Q4_K,
            Self::Q2K => TensorType::Q3_K,
            Self::Q3KMedium if layer < 2 => TensorType::Q5_K,
            Self::Q3KMedium => TensorType::Q4_K,
            Self::Q3KLarge => TensorType::Q5_K,
            Self::Q4KSmall if layer < 4 => TensorType::Q5_K,
            Self::Q4KMedium | Self::Q5KMedium if uses_more_bits(layer, facts.layers) => TensorType::Q6_K,
            _ => self.usual_type(),
        };
        let few = matches!(ty, TensorType::Q3_K | TensorType::Q4_K);
        if facts.is_70b && few { TensorType::Q5_K } else { ty }
    }

    /// The type of the second matrix of a layer's feed-forward network.
    fn down(self, layer: usize, layers: usize) -> TensorType {
        match self {
            Self::Q2K => TensorType::Q3_K,
            Self::Q3KMedium if layer < layers / 16 => TensorType::Q5_K,
            Self::Q3KMedium => TensorType::Q4_K,
            Self::Q3KLarge => TensorType::Q5_K,
            Self::Q4KSmall if layer < layers / 8 => TensorType::Q5_K,
            Self::Q4KMedium | Self::Q5KMedium if uses_more_bits(layer, layers) => TensorType::Q6_K,
            _ => self.usual_type(),
        }
    }
}

/// The layers that get more bits: the first and the last eighth, and every third between.
fn uses_more_bits(layer: usize, layers: usize) -> bool {
    let eighth = layers / 8;
    layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2
}

fn facts(source: &dyn Source) -> Facts {
    let metadata = source.metadata();
    let architecture = metadata.str("general.architecture").unwrap_or_default();
    let number = |name: &str| metadata.opt_u32(&format!("{architecture}.{name}")).ok().flatten();
    let heads = number("attention.head_count").unwrap_or(1).max(1);
    let kv_heads = number("attention.head_count_kv").unwrap_or(heads).max(1);
    let layers = number("block_count").unwrap_or(0) as usize;
    let is_70b = layers == 80
        && match architecture {
            "llama" => heads != kv_heads,
            "qwen2" => true,
            _ => false,
        };
    let tied = source.opt_tensor("output.weight").is_none();
    Facts { queries: heads / kv_heads, layers, experts: number("expert_count").unwrap_or(0), tied, is_70b }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(mix: Mix, name: &str, cols: usize, facts: Facts) -> &'static str {
        let info = TensorInfo::new(name, TensorType::F32, &[cols, 2]).unwrap();
        mix.choose(&info, facts).name()
    }

    /// Llama 2 7B, whose mixes are listed by many: its files as Q4_K_M have these layers in Q6_K.
    const LLAMA_7B: Facts = Facts { queries: 1, layers: 32, experts: 0, tied: false, is_70b: false };

    #[test]
    fn layers_with_more_bits_are_those_of_published_files() {
        let better = |layers| (0..layers).filter(|&i| uses_more_bits(i, layers)).collect::<Vec<_>>();
        assert_eq!(better(32), [0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31]);
        // TinyLlama.
        assert_eq!(better(22), [0, 1, 4, 7, 10, 13, 16, 19, 20, 21]);
    }

    #[test]
    fn the_rules_are_llama_cpps() {
        use Mix::*;
        for (mix, name, want) in [
            (Q4KMedium, "output.weight", "Q6_K"),
            (Q4KMedium, "token_embd.weight", "Q4_K"),
            (Q4KMedium, "blk.3.attn_v.weight", "Q6_K"),
            (Q4KMedium, "blk.4.attn_v.weight", "Q4_K"),
            (Q4KMedium, "blk.6.ffn_down.weight", "Q6_K"),
            (Q4KMedium, "blk.5.ffn_down.weight", "Q4_K"),
            (Q4KMedium, "blk.0.ffn_up.weight", "Q4_K"),
            (Q4KMedium, "blk.0.attn_output.weight", "Q4_K"),
            (Q4KSmall, "blk.3.attn_v.weight", "Q5_K"),
            (Q4KSmall, "blk.4.attn_v.weight", "Q4_K"),
            (Q4KSmall, "blk.3.ffn_down.weight", "Q5_K"),
            (Q4KSmall, "blk.4.ffn_down.weight", "Q4_K"),
            (Q5KMedium, "blk.31.ffn_down.weight", "Q6_K"),
            (Q5KMedium, "blk.7.attn_v.weight", "Q5_K"),
            (Q5KSmall, "blk.0.attn_v.weight", "Q5_K"),
            (Q3KSmall, "blk.0.ffn_down.weight", "Q3_K"),
            (Q3KMedium, "blk.1.attn_v.weight", "Q5_K"),
            (Q3KMedium, "blk.2.attn_v.weight", "Q4_K"),
            (Q3KMedium, "blk.1.ffn_down.weight", "Q5_K"),
            (Q3KMedium, "blk.2.ffn_down.weight", "Q4_K"),
            (Q3KMedium, "blk.9.attn_output.weight", "Q4_K"),
            (Q3KLarge, "blk.9.attn_output.weight", "Q5_K"),
            (Q3KLarge, "blk.9.ffn_down.weight", "Q5_K"),
            (Q3KLarge, "blk.9.attn_q.weight", "Q3_K"),
            (Q2K, "blk.9.attn_v.weight", "Q3_K"),
            (Q2K, "blk.9.ffn_down.weight", "Q3_K"),
            (Q2K, "blk.9.attn_output.weight", "Q3_K"),
            (Q2K, "blk.9.ffn_gate.weight", "Q2_K"),
            (Q2K, "output.weight", "Q6_K"),
        ] {
            assert_eq!(chosen(mix, name, 4096, LLAMA_7B), want, "{mix:?} {name}");
        }
        let grouped = Facts { queries: 4, ..LLAMA_7B };
        assert_eq!(chosen(Q2K, "blk.9.attn_v.weight", 4096, grouped), "Q4_K");
        // Mixtral 8x7B.
        let mixture = Facts { queries: 4, experts: 8, ..LLAMA_7B };
        for (name, want) in [
            ("blk.9.attn_k.weight", "Q8_0"),
            ("blk.9.attn_v.weight", "Q8_0"),
            ("blk.9.attn_output.weight", "Q5_K"),
            ("blk.9.attn_q.weight", "Q4_K"),
            ("blk.9.ffn_down_exps.weight", "Q6_K"),
            ("blk.10.ffn_down_exps.weight", "Q4_K"),
        ] {
            assert_eq!(chosen(Q4KMedium, name, 4096, mixture), want, "{name}");
        }
        let large = Facts { queries: 8, layers: 80, experts: 0, tied: false, is_70b: true };
        assert_eq!(chosen(Q4KMedium, "blk.11.attn_v.weight", 8192, large), "Q5_K");
        assert_eq!(chosen(Q4KMedium, "blk.12.attn_v.weight", 8192, large), "Q6_K");
        // The output matrix has the type of the embedding, and rows that are no whole super-blocks Q8_0.
        let tied = Facts { tied: true, ..LLAMA_7B };
        assert_eq!(chosen(Q4KMedium, "token_embd.weight", 4096, tied), "Q6_K");
        assert_eq!(chosen(Q4KMedium, "token_embd.weight", 576, tied), "Q8_0");
    }

    #[test]
    fn names_are_read_back() {
        for mix in Mix::ALL {
            assert_eq!(Mix::by_name(&mix.name().to_lowercase()), Some(mix));
            mix.usual().unwrap();
        }
        assert_eq!(Mix::by_name("q6_k_m"), None);
    }
}
